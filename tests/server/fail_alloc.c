#include "fail_alloc.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// The linker sends malloc and its kin from our objects here (--wrap), jansson's by way of base.
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

_Thread_local unsigned fail_alloc_exempt;
static atomic_long g_left; // allocations until the one that fails; 0: none will
static long g_round;

static void on_signal(int sig)
{
    atomic_store(&g_left, sig == SIGUSR1 ? ++g_round : 0);
}

static bool fails(void)
{
    if (fail_alloc_exempt > 0 || atomic_load(&g_left) <= 0) {
        return false;
    }
    return atomic_fetch_sub(&g_left, 1) == 1;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = __wrap_malloc(n);
    return copy != NULL ? memcpy(copy, s, n) : NULL;
}

void fail_alloc_install(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &sa, NULL);
    sigaction(SIGUSR2, &sa, NULL);
}

void fail_alloc_leave(const int *unused)
{
    (void)unused;
    fail_alloc_exempt--;
}
