#include "base/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define QN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QN_ASAN 1
#endif
#endif
#ifdef QN_ASAN
#include <sanitizer/asan_interface.h>
#define QN_RED_ZONE 64
#define poison(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define QN_RED_ZONE 0
#define poison(p, n) ((void)(p), (void)(n))
#define unpoison(p, n) ((void)(p), (void)(n))
#endif

#define HUGE_PAGE_MIN ((size_t)4 << 20)
#define CHUNK_MIN ((size_t)64 << 10)
#define CHUNK_MAX ((size_t)4 << 20)

static _Atomic uint64_t g_held[QN_MEM_N_PURPOSES];

static void held_add(enum qn_mem_purpose purpose, uint64_t n)
{
    // Relaxed: a statistic, it orders nothing.
    atomic_fetch_add_explicit(&g_held[purpose], n, memory_order_relaxed);
}

static void held_sub(enum qn_mem_purpose purpose, uint64_t n)
{
    atomic_fetch_sub_explicit(&g_held[purpose], n, memory_order_relaxed);
}

uint64_t qn_mem_held_bytes(enum qn_mem_purpose purpose)
{
    return atomic_load_explicit(&g_held[purpose], memory_order_relaxed);
}

const char *qn_mem_purpose_name(enum qn_mem_purpose purpose)
{
    static const char *const names[] = {"weights", "kv", "activations", "text", "request", "other"};
    return (size_t)purpose < QN_MEM_N_PURPOSES ? names[purpose] : "unknown";
}

void *qn_pages_alloc(size_t n_bytes, enum qn_mem_purpose purpose)
{
    if (n_bytes == 0) {
        n_bytes = 1;
    }
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    if (n_bytes >= HUGE_PAGE_MIN) {
        (void)madvise(p, n_bytes, MADV_HUGEPAGE); // advice: a refusal changes speed alone
    }
    held_add(purpose, n_bytes);
    return p;
}

void qn_pages_free(void *p, size_t n_bytes, enum qn_mem_purpose purpose)
{
    if (p == NULL) {
        return;
    }
    if (n_bytes == 0) {
        n_bytes = 1;
    }
    munmap(p, n_bytes);
    held_sub(purpose, n_bytes);
}

void *qn_aligned_alloc(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - 64) {
        return NULL;
    }
    bytes = (bytes + 63) / 64 * 64;
    return aligned_alloc(64, bytes == 0 ? 64 : bytes);
}

struct chunk {
    struct chunk *next;
    size_t cap;  // payload bytes
    size_t used; // payload bytes
    unsigned char *data;
};

struct qn_arena {
    enum qn_mem_purpose purpose;
    size_t limit;
    size_t total; // payload bytes of all chunks
    size_t used;
    struct chunk *first;
    struct chunk *cur;
};

enum qn_status qn_arena_new(enum qn_mem_purpose purpose, size_t limit_bytes,
                            struct qn_arena **out_arena, struct qn_err *err)
{
    struct qn_arena *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate an arena");
    }
    a->purpose = purpose;
    a->limit = limit_bytes;
    *out_arena = a;
    return QN_OK;
}

static bool add_chunk(struct qn_arena *a, size_t need)
{
    size_t cap = a->total < CHUNK_MIN ? CHUNK_MIN : a->total;
    cap = cap > CHUNK_MAX ? CHUNK_MAX : cap;
    cap = cap < need ? need : cap;
    if (a->limit != 0) {
        if (a->total > a->limit || need > a->limit - a->total) {
            return false;
        }
        cap = cap > a->limit - a->total ? a->limit - a->total : cap;
    }
    struct chunk *c = malloc(sizeof *c);
    unsigned char *data = qn_aligned_alloc(cap, 1);
    if (c == NULL || data == NULL) {
        free(c);
        free(data);
        return false;
    }
    poison(data, cap);
    *c = (struct chunk){.cap = cap, .data = data};
    if (a->cur != NULL) {
        c->next = a->cur->next;
        a->cur->next = c;
    } else {
        a->first = c;
    }
    a->cur = c;
    a->total += cap;
    held_add(a->purpose, cap);
    return true;
}

void *qn_arena_alloc(struct qn_arena *a, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t align = n_bytes >= 64 || QN_RED_ZONE > 0 ? 64 : 16;
    size_t need = n_bytes + QN_RED_ZONE;
    for (;;) {
        struct chunk *c = a->cur;
        if (c != NULL) {
            size_t at = (c->used + align - 1) / align * align;
            if (at <= c->cap && need <= c->cap - at) {
                c->used = at + need;
                a->used += n_bytes;
                unpoison(c->data + at, n_bytes);
                memset(c->data + at, 0, n_bytes);
                return c->data + at;
            }
            if (c->next != NULL && c->next->used == 0 && need + align <= c->next->cap) {
                a->cur = c->next;
                continue;
            }
        }
        if (!add_chunk(a, need + align)) {
            return NULL;
        }
    }
}

void *qn_arena_array(struct qn_arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        return NULL;
    }
    return qn_arena_alloc(a, bytes);
}

char *qn_arena_strndup(struct qn_arena *a, const char *s, size_t n)
{
    char *p = qn_arena_alloc(a, n + 1);
    if (p != NULL) {
        memcpy(p, s, n);
    }
    return p;
}

char *qn_arena_strdup(struct qn_arena *a, const char *s)
{
    return qn_arena_strndup(a, s, strlen(s));
}

void qn_arena_reset(struct qn_arena *a)
{
    for (struct chunk *c = a->first; c != NULL; c = c->next) {
        c->used = 0;
        poison(c->data, c->cap);
    }
    a->cur = a->first;
    a->used = 0;
}

size_t qn_arena_used_bytes(const struct qn_arena *a)
{
    return a->used;
}

void qn_arena_free(struct qn_arena *a)
{
    if (a == NULL) {
        return;
    }
    for (struct chunk *c = a->first; c != NULL;) {
        struct chunk *next = c->next;
        unpoison(c->data, c->cap);
        free(c->data);
        held_sub(a->purpose, c->cap);
        free(c);
        c = next;
    }
    free(a);
}
