// The engine as a whole over the hashing toy: who runs when must never show in an answer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "engine/fixture.h"

enum {
    N_OTHERS = 7
};

static struct qn_answer *answers(size_t n)
{
    struct qn_answer *a = calloc(n, sizeof *a);
    assert_non_null(a);
    return a;
}

static void assert_same_ids(const struct qn_answer *a, const struct qn_answer *b)
{
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
}

// Ask while others are there: submitted before, some of them again in the middle.
static void ask_among_others(struct quern_engine *e, const struct quern_request_params *p,
                             struct qn_answer *answer)
{
    int32_t prompts[N_OTHERS][90];
    struct quern_request *others[2 * N_OTHERS];
    struct qn_answer *trash = answers(1);
    for (size_t i = 0; i < N_OTHERS; i++) {
        qn_fixture_prompt(prompts[i], 90, 100 + i);
        struct quern_request_params q = qn_fixture_greedy(prompts[i], 20 + 10 * i, 40 + 5 * i);
        q.sampling.temperature = i % 2 == 0 ? 1 : 0;
        others[i] = qn_fixture_submit(e, &q);
    }
    struct quern_request *r = qn_fixture_submit(e, p);
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    for (size_t i = 0; i < N_OTHERS; i++) {
        struct quern_request_params q = qn_fixture_greedy(prompts[i], 90, 20);
        others[N_OTHERS + i] = qn_fixture_submit(e, &q);
    }
    memset(answer, 0, p->n * sizeof *answer);
    qn_fixture_collect(e, r, answer);
    quern_request_free(e, r);
    for (size_t i = 0; i < 2 * N_OTHERS; i++) {
        memset(trash, 0, sizeof *trash);
        qn_fixture_collect(e, others[i], trash);
        quern_request_free(e, others[i]);
    }
    free(trash);
}

static void test_SMP_04_greedy_does_not_depend_on_the_rest(void **state)
{
    (void)state;
    struct qn_answer *alone = answers(1), *among = answers(1);
    int32_t prompt[50];
    qn_fixture_prompt(prompt, 50, 1);
    struct quern_request_params p = qn_fixture_greedy(prompt, 50, 64);
    const struct quern_engine_options settings[] = {
        {.max_num_seqs = 16},
        {.max_num_seqs = 4, .max_num_batched_tokens = 16},
        {.max_num_seqs = 16, .max_num_batched_tokens = 33, .block_tokens = 32},
    };
    for (size_t threads = 1; threads <= 2; threads++) {
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
            struct qn_toy toy = {0};
            struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, settings[i], threads);
            if (i == 0 && threads == 1) {
                qn_fixture_ask(e, &p, alone);
                assert_int_equal(alone->n_ids, 64);
            }
            ask_among_others(e, &p, among);
            assert_same_ids(alone, among);
            qn_fixture_at_rest(e);
            quern_engine_free(e);
        }
    }
    free(alone);
    free(among);
}

static void test_SMP_05_seed_fixes_the_ids(void **state)
{
    (void)state;
    struct qn_answer *alone = answers(1), *among = answers(1);
    int32_t prompt[30];
    qn_fixture_prompt(prompt, 30, 2);
    struct quern_request_params p = qn_fixture_greedy(prompt, 30, 40);
    p.sampling.temperature = 1;
    p.sampling.has_seed = true;
    p.sampling.seed = 7;
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 2);
    qn_fixture_ask(e, &p, alone);
    ask_among_others(e, &p, among);
    assert_same_ids(alone, among);
    p.sampling.has_seed = false;
    size_t n_equal = 0;
    for (size_t i = 0; i < 8; i++) {
        qn_fixture_ask(e, &p, among);
        n_equal += memcmp(alone->ids, among->ids, 40 * sizeof *alone->ids) == 0;
    }
    assert_int_equal(n_equal, 0);
    quern_engine_free(e);
    free(alone);
    free(among);
}

static void test_SMP_06_choices_differ_and_repeat(void **state)
{
    (void)state;
    // Room to share the prompt, and so little that choices have to compute it again.
    const struct quern_engine_options settings[] = {
        {0}, {.max_num_seqs = 2}, {.max_num_seqs = 8, .max_num_batched_tokens = 16}};
    struct qn_answer *first = answers(4), *again = answers(4);
    int32_t prompt[37];
    qn_fixture_prompt(prompt, 37, 3);
    struct quern_request_params p = qn_fixture_greedy(prompt, 37, 30);
    p.n = 4;
    p.sampling.temperature = 1;
    p.sampling.has_seed = true;
    p.sampling.seed = 7;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct qn_toy toy = {0};
        struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, settings[i], 1);
        if (i == 0) {
            qn_fixture_ask(e, &p, first);
            struct quern_request *r = qn_fixture_submit(e, &p);
            memset(again, 0, 4 * sizeof *again);
            qn_fixture_collect(e, r, again);
            struct quern_usage u;
            quern_request_usage(r, &u);
            assert_int_equal(u.prompt_tokens, 37);
            assert_int_equal(u.completion_tokens, 4 * 30);
            assert_true(u.ttft_s > 0 && u.e2e_s >= u.ttft_s);
            quern_request_free(e, r);
        } else {
            qn_fixture_ask(e, &p, again);
        }
        for (size_t c = 0; c < 4; c++) {
            assert_same_ids(&first[c], &again[c]);
            for (size_t d = 0; d < c; d++) {
                assert_memory_not_equal(first[c].ids, first[d].ids, 30 * sizeof(int32_t));
            }
        }
        qn_fixture_at_rest(e);
        quern_engine_free(e);
    }
    // A choice is what it would be alone: the greedy one equals n = 1.
    p.sampling.temperature = 0;
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 1);
    qn_fixture_ask(e, &p, first);
    p.n = 1;
    qn_fixture_ask(e, &p, again);
    for (size_t c = 0; c < 4; c++) {
        assert_same_ids(&first[c], &again[0]);
    }
    quern_engine_free(e);
    free(first);
    free(again);
}

// Blocks for one group of the toy's two: n full ones and what fits of the windowed.
static uint64_t cache_bytes(size_t n_blocks, size_t block_tokens)
{
    return (uint64_t)n_blocks * 2 * block_tokens * 4;
}

static void test_SCH_04_what_never_fits_is_refused(void **state)
{
    (void)state;
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(
        &toy, NULL,
        (struct quern_engine_options){.max_num_seqs = 2, .kv_cache_bytes = cache_bytes(4, 16)}, 1);
    int32_t prompt[70];
    qn_fixture_prompt(prompt, 70, 4);
    struct qn_answer *a = answers(1);
    // 64 positions hold 60 prompt tokens, four of the answer, and the last one needs no place.
    struct quern_request_params p = qn_fixture_greedy(prompt, 60, 10);
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a->n_ids, 5);
    assert_int_equal(a->finish, QUERN_FINISH_LENGTH);
    p.n_prompt = 70;
    struct quern_request *r = NULL;
    struct quern_error err = {0};
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_CONTEXT);
    assert_string_equal(err.param, "input_tokens");
    assert_non_null(strstr(err.message, "70 tokens does not fit the KV cache, which holds 64"));
    qn_fixture_at_rest(e);
    quern_engine_free(e);
    free(a);
}

static void test_SCH_05_preemption_makes_progress(void **state)
{
    (void)state;
    struct qn_answer *want = answers(2), *got = answers(2);
    int32_t prompt[2][16];
    struct quern_request_params p[2];
    struct qn_toy toy = {0};
    struct quern_engine *roomy =
        qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 1);
    for (size_t i = 0; i < 2; i++) {
        qn_fixture_prompt(prompt[i], 16, 50 + i);
        p[i] = qn_fixture_greedy(prompt[i], 16, 64); // 5 blocks at full length
        p[i].sampling.temperature = i == 0 ? 0 : 1;
        p[i].sampling.has_seed = true;
        p[i].sampling.seed = 11;
        p[i].sampling.presence_penalty = 0.5;
        qn_fixture_ask(roomy, &p[i], &want[i]);
    }
    quern_engine_free(roomy);
    struct quern_engine *tight = qn_fixture_toy_engine(
        &toy, NULL,
        (struct quern_engine_options){.max_num_seqs = 4, .kv_cache_bytes = cache_bytes(8, 16)}, 1);
    atomic_store(&toy.hold, true); // until both are there
    struct quern_request *r[2] = {qn_fixture_submit(tight, &p[0]), qn_fixture_submit(tight, &p[1])};
    atomic_store(&toy.hold, false);
    for (size_t i = 0; i < 2; i++) {
        qn_fixture_collect(tight, r[i], &got[i]);
        assert_same_ids(&want[i], &got[i]);
    }
    struct quern_usage u[2];
    for (size_t i = 0; i < 2; i++) {
        quern_request_usage(r[i], &u[i]);
        quern_request_free(tight, r[i]);
    }
    struct quern_stats s;
    quern_engine_stats(tight, &s);
    assert_in_range(s.preemptions, 1, 4);
    qn_fixture_at_rest(tight);
    quern_engine_free(tight);
    free(want);
    free(got);
}

static void test_SCH_06_prefill_steps_decode_too(void **state)
{
    (void)state;
    struct qn_toy toy = {.step_us = 200}; // time to look on
    struct quern_engine *e = qn_fixture_toy_engine(
        &toy, NULL, (struct quern_engine_options){.max_num_seqs = 4, .max_num_batched_tokens = 64},
        1);
    int32_t *prompt = calloc(2048, sizeof *prompt);
    assert_non_null(prompt);
    qn_fixture_prompt(prompt, 2048, 5);
    struct qn_answer *a = answers(1), *b = answers(1);
    struct quern_request_params pa = qn_fixture_greedy(prompt, 8, 4000);
    struct quern_request_params pb = qn_fixture_greedy(prompt, 2048, 4);
    struct quern_request *ra = qn_fixture_submit(e, &pa);
    while (a->n_ids == 0) { // A decodes
        (void)qn_fixture_read(ra, a);
    }
    atomic_store(&toy.hold, true);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    (void)qn_fixture_read(ra, a);
    size_t before = a->n_ids, steps = atomic_load(&toy.n_steps);
    struct quern_request *rb = qn_fixture_submit(e, &pb);
    atomic_store(&toy.hold, false);
    while (b->n_ids == 0) {
        (void)qn_fixture_read(rb, b);
    }
    (void)qn_fixture_read(ra, a);
    size_t taken = atomic_load(&toy.n_steps) - steps;
    assert_true(taken >= 32); // 2048 rows beside A's, 63 a step
    assert_true(a->n_ids - before >= 31);
    assert_true(atomic_load(&toy.max_rows_seen) <= 64);
    quern_engine_abort(e, ra);
    qn_fixture_collect(e, ra, a);
    qn_fixture_collect(e, rb, b);
    assert_int_equal(a->finish, QUERN_FINISH_ABORT);
    assert_int_equal(b->finish, QUERN_FINISH_LENGTH);
    quern_request_free(e, ra);
    quern_request_free(e, rb);
    quern_engine_free(e);
    free(prompt);
    free(a);
    free(b);
}

static void test_SCH_08_ids_do_not_depend_on_the_chunk(void **state)
{
    (void)state;
    static const size_t chunks[] = {1, 7, 16, 33, 64, 100, 1000};
    int32_t prompt[100];
    qn_fixture_prompt(prompt, 100, 6);
    struct quern_request_params p = qn_fixture_greedy(prompt, 100, 32);
    p.sampling.prompt_logprobs = 2;
    struct qn_answer *first = answers(1), *a = answers(1);
    struct quern_logprob lp[100 * 3];
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct qn_toy toy = {0};
        struct quern_engine *e = qn_fixture_toy_engine(
            &toy, NULL,
            (struct quern_engine_options){.max_num_seqs = 1, .max_num_batched_tokens = chunks[i]},
            1);
        struct quern_request *r = qn_fixture_submit(e, &p);
        memset(a, 0, sizeof *a);
        qn_fixture_collect(e, r, a);
        const struct quern_logprob *got = quern_request_prompt_logprobs(r);
        assert_non_null(got);
        assert_int_equal(got[0].id, -1);
        if (i == 0) {
            *first = *a;
            memcpy(lp, got, sizeof lp);
            for (size_t j = 1; j < 100; j++) {
                assert_int_equal(lp[3 * j].id, prompt[j]);
                assert_true(lp[3 * j + 1].logprob >= lp[3 * j].logprob);
                assert_int_equal(lp[3 * j + 1].rank, 1);
            }
        }
        assert_same_ids(first, a);
        assert_memory_equal(lp, got, sizeof lp);
        quern_request_free(e, r);
        quern_engine_free(e);
    }
    free(first);
    free(a);
}

// A random life: submit, wait a little, abort or free at any moment. Afterwards everything is free
// and an answer is what it was.
static void test_SCH_11_nothing_leaks_when_requests_are_dropped(void **state)
{
    (void)state;
    enum {
        ROUNDS = 1000,
        ALIVE = 24
    };
    uint64_t seed = 12345, x = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(
        &toy, NULL,
        (struct quern_engine_options){
            .max_num_seqs = 6, .max_num_batched_tokens = 48, .kv_cache_bytes = cache_bytes(24, 16)},
        2);
    int32_t prompt[200];
    qn_fixture_prompt(prompt, 200, 7);
    struct qn_answer *before = answers(1), *after = answers(4);
    struct quern_request_params whole = qn_fixture_greedy(prompt, 200, 100);
    qn_fixture_ask(e, &whole, before);
    struct quern_request *alive[ALIVE] = {0};
    for (size_t i = 0; i < ROUNDS; i++) {
        x = qn_hash64(&x, sizeof x, 1);
        size_t at = x % ALIVE;
        if (alive[at] != NULL) {
            if (x >> 8 & 1) {
                quern_engine_abort(e, alive[at]);
            }
            if (x >> 9 & 1) {
                memset(after, 0, 4 * sizeof *after);
                (void)qn_fixture_read(alive[at], after);
            }
            quern_request_free(e, alive[at]);
        }
        struct quern_request_params p =
            qn_fixture_greedy(prompt + (x >> 20) % 60, 1 + (x >> 32) % 120, (x >> 40) % 60);
        p.n = 1 + (x >> 16) % 4;
        p.sampling.temperature = x >> 50 & 1;
        p.sampling.repetition_penalty = x >> 51 & 1 ? 1.1 : 1;
        p.sampling.prompt_logprobs = x >> 52 & 1 ? 1 : -1;
        alive[at] = qn_fixture_submit(e, &p);
        if (x >> 10 & 1) {
            nanosleep(&(struct timespec){.tv_nsec = (long)(x >> 44 & 0xff) * 1000}, NULL);
        }
        if (x >> 11 & 1) {
            (void)quern_engine_next(e);
        }
    }
    for (size_t i = 0; i < ALIVE; i++) {
        quern_request_free(e, alive[i]); // takes NULL
    }
    qn_fixture_at_rest(e);
    qn_fixture_ask(e, &whole, after);
    assert_same_ids(before, after);
    qn_fixture_at_rest(e);
    quern_engine_free(e);
    free(before);
    free(after);
}

static void test_nonfinite_logits_end_that_request_alone(void **state)
{
    (void)state;
    struct qn_toy toy = {.bad_token = 255};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 1);
    int32_t good[20], bad[20];
    qn_fixture_prompt(good, 20, 8);
    qn_fixture_prompt(bad, 20, 9);
    bad[10] = 255;
    struct quern_request_params p = qn_fixture_greedy(good, 20, 50);
    p.sampling.allowed_ids = good; // never samples the bad token
    p.sampling.n_allowed = 20;
    struct quern_request_params q = qn_fixture_greedy(bad, 20, 50);
    q.n = 3;
    q.sampling.prompt_logprobs = 1;
    struct qn_answer *a = answers(1), *b = answers(3);
    struct quern_request *ra = qn_fixture_submit(e, &p), *rb = qn_fixture_submit(e, &q);
    qn_fixture_collect(e, ra, a);
    qn_fixture_collect(e, rb, b);
    assert_int_equal(a->finish, QUERN_FINISH_LENGTH);
    assert_int_equal(a->n_ids, 50);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(b[i].finish, QUERN_FINISH_ERROR);
        assert_string_equal(b[i].error, "nonfinite logits");
        assert_int_equal(b[i].n_ids, 0);
    }
    assert_null(quern_request_prompt_logprobs(rb));
    quern_request_free(e, ra);
    quern_request_free(e, rb);
    qn_fixture_at_rest(e);
    quern_engine_free(e);
    free(a);
    free(b);
}

static void test_waiting_queue_is_bounded(void **state)
{
    (void)state;
    struct qn_toy toy = {0};
    atomic_store(&toy.hold, true);
    struct quern_engine *e = qn_fixture_toy_engine(
        &toy, NULL, (struct quern_engine_options){.max_num_seqs = 1, .max_waiting = 3}, 1);
    int32_t prompt[4] = {1, 2, 3, 4};
    struct quern_request_params p = qn_fixture_greedy(prompt, 4, 4);
    struct quern_request *r[16], *refused = NULL;
    size_t n = 0;
    struct quern_error err = {0};
    enum quern_status rc = QUERN_OK;
    while (n < 16 && (rc = quern_engine_submit(e, &p, &r[n], &err)) == QUERN_OK) {
        n++;
    }
    assert_int_equal(rc, QUERN_E_BUSY);
    assert_in_range(n, 3, 4); // one may run already
    assert_null(refused);
    atomic_store(&toy.hold, false);
    struct qn_answer *a = answers(1);
    for (size_t i = 0; i < n; i++) {
        memset(a, 0, sizeof *a);
        qn_fixture_collect(e, r[i], a);
        assert_int_equal(a->finish, QUERN_FINISH_LENGTH);
        quern_request_free(e, r[i]);
    }
    qn_fixture_ask(e, &p, a);
    quern_engine_free(e);
    free(a);
}

static uint64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void test_CPU_06_an_idle_engine_sleeps(void **state)
{
    (void)state;
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 2);
    int32_t prompt[4] = {1, 2, 3, 4};
    struct quern_request_params p = qn_fixture_greedy(prompt, 4, 4);
    struct qn_answer *a = answers(1);
    for (size_t i = 0; i < 2; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        uint64_t before = cpu_ns();
        assert_null(quern_engine_wait(e, 1000));
        assert_true(cpu_ns() - before < 10000000u); // 0.1 s in 10 s
        qn_fixture_ask(e, &p, a);
    }
    quern_engine_free(e);
    free(a);
}

static void notify(void *user)
{
    atomic_fetch_add((_Atomic size_t *)user, 1);
}

static void test_each_request_is_announced_until_read(void **state)
{
    (void)state;
    struct qn_toy toy = {0};
    _Atomic size_t n_notified = 0;
    struct quern_engine *e = qn_fixture_toy_engine(
        &toy, NULL, (struct quern_engine_options){.notify = notify, .user = (void *)&n_notified},
        1);
    int32_t prompt[4] = {1, 2, 3, 4};
    struct quern_request_params p = qn_fixture_greedy(prompt, 4, 3);
    p.user = &toy;
    struct quern_request *r = qn_fixture_submit(e, &p);
    struct qn_answer *a = answers(1);
    while (!qn_fixture_read(r, a)) {
        struct quern_request *next = quern_engine_wait(e, 10000);
        assert_true(next == r || next == NULL);
        assert_ptr_equal(quern_request_user(r), &toy);
    }
    assert_int_equal(a->n_ids, 3);
    assert_true(atomic_load(&n_notified) >= 1);
    while (quern_engine_next(e) != NULL) { // the last news may still be announced once
    }
    assert_null(quern_engine_next(e));
    quern_request_free(e, r);
    quern_engine_free(e);
    free(a);
}

static void test_statistics_add_up(void **state)
{
    (void)state;
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 1);
    int32_t prompt[10];
    qn_fixture_prompt(prompt, 10, 10);
    struct quern_request_params p = qn_fixture_greedy(prompt, 10, 5);
    p.n = 2;
    struct qn_answer *a = answers(2);
    qn_fixture_ask(e, &p, a);
    qn_fixture_at_rest(e);
    struct quern_stats s;
    quern_engine_stats(e, &s);
    assert_int_equal(s.prompt_tokens, 10);
    assert_int_equal(s.generation_tokens, 10);
    assert_int_equal(s.finished_length, 2);
    assert_int_equal(s.finished_stop + s.finished_abort + s.finished_error, 0);
    assert_int_equal(s.steps, 5);
    const struct {
        const struct quern_hist *h;
        uint64_t n;
    } hists[] = {{&s.ttft_s, 2},   {&s.itl_s, 8},       {&s.tpot_s, 2},
                 {&s.e2e_s, 2},    {&s.queue_s, 1},     {&s.prefill_s, 2},
                 {&s.decode_s, 2}, {&s.inference_s, 2}, {&s.step_tokens, 5},
                 {&s.step_s, 5},   {&s.prompt_len, 1},  {&s.generation_len, 2}};
    for (size_t i = 0; i < sizeof hists / sizeof hists[0]; i++) {
        uint64_t sum = 0;
        for (size_t b = 0; b <= hists[i].h->n; b++) {
            sum += hists[i].h->count[b];
        }
        assert_int_equal(sum, hists[i].n);
    }
    assert_true(s.step_tokens.sum == 10 + 4 * 2);
    assert_true(s.prompt_len.sum == 10 && s.generation_len.sum == 10);
    // 1 2 5 10 … up to 4096
    assert_int_equal(s.prompt_len.n, 11);
    assert_true(s.prompt_len.le[10] == 2000 && s.prompt_len.count[3] == 1);
    assert_true(s.kv_usage == 0);
    quern_engine_free(e);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_SMP_04_greedy_does_not_depend_on_the_rest),
        cmocka_unit_test(test_SMP_05_seed_fixes_the_ids),
        cmocka_unit_test(test_SMP_06_choices_differ_and_repeat),
        cmocka_unit_test(test_SCH_04_what_never_fits_is_refused),
        cmocka_unit_test(test_SCH_05_preemption_makes_progress),
        cmocka_unit_test(test_SCH_06_prefill_steps_decode_too),
        cmocka_unit_test(test_SCH_08_ids_do_not_depend_on_the_chunk),
        cmocka_unit_test(test_SCH_11_nothing_leaks_when_requests_are_dropped),
        cmocka_unit_test(test_nonfinite_logits_end_that_request_alone),
        cmocka_unit_test(test_waiting_queue_is_bounded),
        cmocka_unit_test(test_CPU_06_an_idle_engine_sleeps),
        cmocka_unit_test(test_each_request_is_announced_until_read),
        cmocka_unit_test(test_statistics_add_up),
    };
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
