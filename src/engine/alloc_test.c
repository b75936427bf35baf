// Nothing is allocated by a step: every allocation of the process is counted while answers are
// being decoded.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/fixture.h"
#include "text/tok_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_COUNT 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAN_COUNT 0
#endif
#endif
#ifndef CAN_COUNT
#define CAN_COUNT 1
#endif

static _Atomic size_t n_allocations;

#if CAN_COUNT
// The C library's own allocator under its other names.
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void count(void)
{
    atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
}

void *malloc(size_t n)
{
    count();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count();
    return __libc_memalign(align, n);
}
#endif

static void wait_for_steps(struct qn_toy *toy, size_t n)
{
    while (atomic_load(&toy->n_steps) < n) {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

static void test_no_allocation_per_decode_step(void **state)
{
    (void)state;
    if (!CAN_COUNT) {
        print_message("skipped: a sanitizer owns malloc\n");
        skip();
    }
    enum {
        N = 6
    };
    struct qn_tok *tb = qn_fixture_load(qn_fixture_tb());
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, tb, (struct quern_engine_options){0}, 2);
    int32_t prompt[40];
    qn_fixture_prompt(prompt, 40, 1);
    static const char *const stop[] = {"never to be found", "nor this"};
    static const int32_t bias_ids[] = {5};
    static const float bias[] = {1};
    struct quern_request *r[N];
    for (size_t i = 0; i < N; i++) {
        // Every feature of a step at once: penalties, filters, stop strings, logprobs, bias.
        struct quern_request_params p = qn_fixture_greedy(prompt, 40 - i, 3000);
        p.sampling.temperature = i % 2 == 0 ? 1 : 0;
        p.sampling.top_p = i % 3 == 0 ? 0.9 : 1;
        p.sampling.top_k = i % 3 == 1 ? 40 : 0;
        p.sampling.repetition_penalty = 1.1;
        p.sampling.frequency_penalty = 0.1;
        p.sampling.stop = stop;
        p.sampling.n_stop = 2;
        p.sampling.logprobs = 5;
        p.sampling.bias_ids = bias_ids;
        p.sampling.bias = bias;
        p.sampling.n_bias = 1;
        r[i] = qn_fixture_submit(e, &p);
    }
    wait_for_steps(&toy, 30);
    size_t steps = atomic_load(&toy.n_steps), before = atomic_load(&n_allocations);
    assert_true(before > 0); // the counter counts
    wait_for_steps(&toy, steps + 300);
    size_t after = atomic_load(&n_allocations);
    assert_int_equal(after - before, 0);
    for (size_t i = 0; i < N; i++) {
        assert_false(quern_request_finished(r[i]));
        quern_request_free(e, r[i]);
    }
    qn_fixture_at_rest(e);
    quern_engine_free(e);
    qn_tok_free(tb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_allocation_per_decode_step),
    };
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
