#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/fixture.h"

enum {
    V = 4096
};

/// A row, parameters and the memory to sample with.
struct bench {
    float *x;
    size_t n;
    void *scratch;
    struct quern_sampling s;
    struct qn_sample_params p;
};

static void open_bench(struct bench *b, size_t n, uint64_t seed, float scale)
{
    memset(b, 0, sizeof *b);
    b->n = n;
    b->x = malloc(n * sizeof *b->x);
    b->scratch = aligned_alloc(64, qn_sampler_scratch_bytes(n));
    assert_true(b->x != NULL && b->scratch != NULL);
    for (size_t i = 0; i < n; i++) {
        uint64_t words[2] = {seed, i};
        b->x[i] = ((float)(qn_hash64(words, sizeof words, 0) >> 40) * 0x1p-24f - 0.5f) * scale;
    }
    quern_sampling_init(&b->s);
    b->p = (struct qn_sample_params){.sampling = &b->s, .seed = 1};
}

static void close_bench(struct bench *b)
{
    free(b->x);
    free(b->scratch);
}

static int32_t sample(struct bench *b, size_t position)
{
    b->p.position = position;
    return qn_sample(b->x, b->n, &b->p, b->scratch);
}

static int32_t best(const struct bench *b)
{
    size_t at = 0;
    for (size_t i = 1; i < b->n; i++) {
        at = b->x[i] > b->x[at] ? i : at;
    }
    return (int32_t)at;
}

static void test_SMP_01_the_likeliest_survives(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, V, 1, 20);
    b.s.temperature = 0.8;
    for (size_t i = 0; i < 100; i++) {
        b.s.top_p = 1e-8;
        assert_int_equal(sample(&b, i), best(&b));
        b.s.top_p = 0;
        assert_int_equal(sample(&b, i), best(&b));
        b.s.top_p = 1;
        b.s.min_p = 1;
        assert_int_equal(sample(&b, i), best(&b));
        b.s.min_p = 0;
        b.s.top_k = 1;
        assert_int_equal(sample(&b, i), best(&b));
        b.s.top_k = 0;
    }
    close_bench(&b);
}

static void test_SMP_02_no_top_k(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, V, 2, 8);
    static const int64_t off[] = {0, -1, 1000000000, V};
    for (size_t i = 0; i < 200; i++) {
        b.s.top_k = 0;
        int32_t want = sample(&b, i);
        for (size_t k = 0; k < sizeof off / sizeof off[0]; k++) {
            b.s.top_k = off[k];
            assert_int_equal(sample(&b, i), want);
        }
    }
    close_bench(&b);
}

static void test_SMP_03_cold_is_greedy(void **state)
{
    (void)state;
    static const double cold[] = {1e-12, 1e-5, 0};
    struct bench b;
    open_bench(&b, V, 3, 20);
    b.x[77] = 11.06f;
    for (size_t i = 0; i < 3; i++) {
        b.s.temperature = cold[i];
        assert_int_equal(sample(&b, i), 77);
    }
    // Of equal logits the lower id.
    b.x[50] = 11.06f;
    assert_int_equal(sample(&b, 0), 50);
    // Barely above: raised to 0.01, which is next to greedy.
    b.x[50] = 11.00f;
    b.s.temperature = 2e-5;
    for (size_t i = 0; i < 100; i++) {
        int32_t id = sample(&b, i);
        assert_true(id == 77 || id == 50);
    }
    close_bench(&b);
}

// Every id that is drawn must be among those that a plain sort allows, and all of those must come.
static void check_support(struct bench *b, double top_p, int64_t top_k, double min_p)
{
    double *w = malloc(b->n * sizeof *w), total = 0;
    bool *allowed = calloc(b->n, sizeof *allowed), *seen = calloc(b->n, sizeof *seen);
    assert_true(w != NULL && allowed != NULL && seen != NULL);
    double max = (double)b->x[best(b)];
    for (size_t i = 0; i < b->n; i++) {
        w[i] = exp(((double)b->x[i] - max) / b->s.temperature);
        w[i] = w[i] < min_p ? 0 : w[i];
    }
    size_t n = 0;
    for (size_t k = 0; k < b->n && (top_k <= 0 || k < (size_t)top_k); k++) {
        size_t at = 0;
        for (size_t i = 1; i < b->n; i++) {
            at = w[i] > w[at] || (allowed[at] && !allowed[i]) ? i : at;
        }
        if (allowed[at] || w[at] <= 0) {
            break;
        }
        allowed[at] = true;
        total += w[at];
        w[at] = -w[at];
        n++;
    }
    // Second pass: the nucleus of what is left, best first.
    double mass = 0;
    size_t kept = 0;
    bool *in = calloc(b->n, sizeof *in);
    assert_non_null(in);
    while (kept < n && (kept == 0 || mass < top_p * total)) {
        size_t at = b->n;
        for (size_t i = 0; i < b->n; i++) {
            at = allowed[i] && !in[i] && (at == b->n || w[i] < w[at]) ? i : at;
        }
        in[at] = true;
        mass += -w[at];
        kept++;
    }
    b->s.top_p = top_p;
    b->s.top_k = top_k;
    b->s.min_p = min_p;
    size_t n_seen = 0;
    for (size_t i = 0; i < 6000; i++) {
        int32_t id = sample(b, i);
        assert_true(id >= 0 && in[id]);
        n_seen += !seen[id];
        seen[id] = true;
    }
    assert_int_equal(n_seen, kept);
    free(w);
    free(allowed);
    free(seen);
    free(in);
}

static void test_filters_keep_what_a_sort_would(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 40, 4, 4);
    b.x[3] = b.x[9] = b.x[20]; // ties
    for (int t = 0; t < 3; t++) {
        b.s.temperature = 0.7 + 0.4 * t;
        check_support(&b, 1, 0, 0);
        check_support(&b, 0.5, 0, 0);
        check_support(&b, 0.9, 0, 0);
        check_support(&b, 1, 7, 0);
        check_support(&b, 0.8, 12, 0);
        check_support(&b, 1, 0, 0.1);
        check_support(&b, 0.9, 20, 0.05);
    }
    close_bench(&b);
}

// Past the heap: partitioning has to agree with it.
static void test_large_top_k_selects_the_best(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, V, 5, 2);
    b.s.top_k = 600;
    float *sorted = malloc(V * sizeof *sorted);
    assert_non_null(sorted);
    size_t above;
    for (size_t i = 0; i < 3000; i++) {
        int32_t id = sample(&b, i);
        above = 0;
        for (size_t j = 0; j < V; j++) {
            above += b.x[j] > b.x[id];
        }
        assert_true(above < 600);
    }
    free(sorted);
    close_bench(&b);
}

static void test_draws_follow_the_distribution(void **state)
{
    (void)state;
    enum {
        N = 40000
    };
    struct bench b;
    open_bench(&b, 5, 6, 0);
    static const float p[] = {0.4f, 0.3f, 0.15f, 0.1f, 0.05f};
    size_t count[5] = {0};
    for (size_t i = 0; i < 5; i++) {
        b.x[i] = logf(p[i]) + 3;
    }
    for (size_t i = 0; i < N; i++) {
        count[sample(&b, i)]++;
    }
    double chi2 = 0;
    for (size_t i = 0; i < 5; i++) {
        double want = (double)p[i] * N, d = (double)count[i] - want;
        chi2 += d * d / want;
    }
    assert_true(chi2 < 23.5); // 4 degrees of freedom, one in 10,000
    close_bench(&b);
}

static void test_draw_is_a_fixed_function(void **state)
{
    (void)state;
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        double u = qn_draw(7, 0, i);
        assert_true(u >= 0 && u < 1);
        assert_true(u == qn_draw(7, 0, i));
        assert_true(u != qn_draw(8, 0, i) && u != qn_draw(7, 1, i) && u != qn_draw(7, 0, i + 1));
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.015);
}

// One adjusted logit, seen through logprobs of a two-token softmax would hide it: look at which
// token wins instead, against a rival just above or below the wanted value.
static void check_penalised(struct bench *b, size_t id, float want)
{
    size_t rival = b->n - 1;
    assert_true(id != rival);
    for (int side = 0; side < 2; side++) {
        float saved[8];
        memcpy(saved, b->x, b->n * sizeof *saved);
        for (size_t i = 0; i < b->n; i++) {
            b->x[i] = i == id ? saved[i] : -100;
        }
        b->x[rival] = want + (side == 0 ? 1e-4f : -1e-4f);
        assert_int_equal(sample(b, 0), side == 0 ? rival : id);
        memcpy(b->x, saved, b->n * sizeof *saved);
    }
}

static void test_SMP_08_repetition_penalty(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 4, 7, 1);
    static const float x[] = {2, -1, 0.5f, 0};
    memcpy(b.x, x, sizeof x);
    b.s.temperature = 0;
    b.s.repetition_penalty = 2;
    struct qn_seen seen;
    void *memory = calloc(1, qn_seen_bytes(8));
    assert_non_null(memory);
    qn_seen_init(&seen, memory, 8);
    qn_seen_add(&seen, 0, false);
    qn_seen_add(&seen, 1, false);
    qn_seen_add(&seen, 1, false); // once per distinct token
    assert_int_equal(seen.n_distinct, 2);
    b.p.seen = &seen;
    check_penalised(&b, 0, 1);
    check_penalised(&b, 1, -2);
    check_penalised(&b, 2, 0.5f);
    free(memory);
    close_bench(&b);
}

static void test_SMP_09_what_penalties_count(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 4, 7, 1);
    static const float x[] = {2, 1, 0.5f, 0};
    memcpy(b.x, x, sizeof x);
    b.s.temperature = 0;
    struct qn_seen seen;
    void *memory = calloc(1, qn_seen_bytes(8));
    assert_non_null(memory);
    qn_seen_init(&seen, memory, 8);
    for (size_t i = 0; i < 5; i++) {
        qn_seen_add(&seen, 0, false); // in the prompt alone
    }
    b.p.seen = &seen;
    b.s.presence_penalty = 1.5;
    check_penalised(&b, 0, 2);
    b.s.presence_penalty = 0;
    b.s.frequency_penalty = 1;
    check_penalised(&b, 0, 2);
    b.s.frequency_penalty = 0;
    b.s.repetition_penalty = 2;
    check_penalised(&b, 0, 1);
    b.s.repetition_penalty = 1;
    qn_seen_add(&seen, 1, true);
    qn_seen_add(&seen, 1, true);
    b.s.presence_penalty = 0.25;
    b.s.frequency_penalty = 0.5;
    check_penalised(&b, 1, 1 - 0.25f - 2 * 0.5f);
    free(memory);
    close_bench(&b);
}

static void test_masks_and_bias(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 8, 8, 0);
    for (size_t i = 0; i < 8; i++) {
        b.x[i] = (float)i;
    }
    b.s.temperature = 0;
    static const int32_t allowed[] = {1, 3, 5}, suppressed[] = {5, 100}, bias_ids[] = {1, 3};
    static const float bias[] = {10, -100};
    assert_int_equal(sample(&b, 0), 7);
    b.s.allowed_ids = allowed;
    b.s.n_allowed = 3;
    assert_int_equal(sample(&b, 0), 5);
    b.p.suppress_ids = suppressed;
    b.p.n_suppress_ids = 2;
    assert_int_equal(sample(&b, 0), 3);
    b.s.bias_ids = bias_ids;
    b.s.bias = bias;
    b.s.n_bias = 2;
    assert_int_equal(sample(&b, 0), 1);
    b.s.n_bias = 0;
    static const int32_t eos[] = {3}, stop[] = {1};
    b.p.eos_ids = eos;
    b.p.n_eos_ids = 1;
    b.s.stop_ids = stop;
    b.s.n_stop_ids = 1;
    b.s.min_tokens = 2;
    assert_int_equal(sample(&b, 1), -1); // nothing is left
    assert_int_equal(sample(&b, 2), 3);
    b.s.ignore_eos = true; // then EOS is a token like others
    assert_int_equal(sample(&b, 1), 3);
    b.s.temperature = 1;
    assert_int_equal(sample(&b, 1), 3);
    close_bench(&b);
}

static void test_logprobs(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 1000, 9, 10);
    b.x[10] = b.x[500];
    struct quern_logprob lp[1 + QN_MAX_LOGPROBS];
    double max = (double)b.x[best(&b)], sum = 0;
    for (size_t i = 0; i < b.n; i++) {
        sum += exp((double)b.x[i] - max);
    }
    qn_logprobs(b.x, b.n, 500, QN_MAX_LOGPROBS, lp);
    assert_int_equal(lp[0].id, 500);
    assert_int_equal(lp[1].id, best(&b));
    for (size_t i = 0; i <= QN_MAX_LOGPROBS; i++) {
        double want = (double)b.x[lp[i].id] - max - log(sum);
        assert_true(fabs((double)lp[i].logprob - want) < 1e-5);
        int32_t rank = 1;
        for (size_t j = 0; j < b.n; j++) {
            rank += b.x[j] > b.x[lp[i].id];
        }
        assert_int_equal(lp[i].rank, rank);
        assert_true(i < 2 || lp[i].logprob <= lp[i - 1].logprob);
        if (lp[i].id == 500) { // the same bits wherever it stands
            assert_true(lp[i].logprob == lp[0].logprob);
        }
    }
    // More asked for than there is.
    qn_logprobs(b.x, 2, 1, 3, lp);
    assert_int_equal(lp[3].id, -1);
    close_bench(&b);
}

static void test_nonfinite_rows_are_seen(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 67, 10, 1e30f);
    assert_true(qn_logits_finite(b.x, b.n));
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (size_t i = 0; i < b.n; i++) {
        float was = b.x[i];
        for (size_t k = 0; k < 4; k++) {
            b.x[i] = bad[k];
            assert_false(qn_logits_finite(b.x, b.n));
        }
        b.x[i] = was;
    }
    b.x[0] = 3.4028235e38f;
    b.x[66] = -3.4028235e38f;
    assert_true(qn_logits_finite(b.x, b.n));
    close_bench(&b);
}

/// One field out of range, and the name that the error must give.
struct bad {
    const char *param;
    void (*set)(struct quern_request_params *p);
};

#define BAD(name, field, value)                                                                    \
    static void name(struct quern_request_params *p)                                               \
    {                                                                                              \
        p->field = (value);                                                                        \
    }
BAD(hot, sampling.temperature, 999999)
BAD(colder, sampling.temperature, -1)
BAD(nan_temperature, sampling.temperature, NAN)
BAD(small_p, sampling.top_p, -1)
BAD(large_p, sampling.top_p, 1.5)
BAD(min_p, sampling.min_p, 1.01)
BAD(no_repetition, sampling.repetition_penalty, 0)
BAD(inf_repetition, sampling.repetition_penalty, INFINITY)
BAD(presence, sampling.presence_penalty, 2.1)
BAD(frequency, sampling.frequency_penalty, NAN)
BAD(top_k, sampling.top_k, -2)
BAD(logprobs, sampling.logprobs, 1000)
BAD(min_tokens, sampling.min_tokens, 17)
BAD(no_choice, n, 0)
BAD(many_choices, n, 129)
BAD(no_prompt, n_prompt, 0)

static void test_SMP_10_ranges(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"temperature", hot},
        {"temperature", colder},
        {"temperature", nan_temperature},
        {"top_p", small_p},
        {"top_p", large_p},
        {"min_p", min_p},
        {"repetition_penalty", no_repetition},
        {"repetition_penalty", inf_repetition},
        {"presence_penalty", presence},
        {"frequency_penalty", frequency},
        {"top_k", top_k},
        {"logprobs", logprobs},
        {"min_tokens", min_tokens},
        {"n", no_choice},
        {"n", many_choices},
        {"prompt", no_prompt},
    };
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 1);
    struct qn_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    static const int32_t prompt[] = {1, 2, 3};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct quern_request_params p = qn_fixture_greedy(prompt, 3, 16);
        bad[i].set(&p);
        struct quern_request *r = NULL;
        struct quern_error err = {0};
        assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
        assert_string_equal(err.param, bad[i].param);
        assert_true(strncmp(err.message, bad[i].param, strlen(bad[i].param)) == 0);
        assert_null(r);
    }
    struct quern_request_params p = qn_fixture_greedy(prompt, 3, 16);
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a->n_ids, 16);
    quern_engine_free(e);
    free(a);
}

static void test_SMP_07_ids_are_checked_against_the_vocabulary(void **state)
{
    (void)state;
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 1);
    static const int32_t prompt[] = {1, 2, 3}, bad[] = {QN_TOY_VOCAB}, minus[] = {-1},
                         last[] = {QN_TOY_VOCAB - 1};
    static const float bias[] = {5}, strong[] = {-100}, stronger[] = {-101};
    struct quern_request *r = NULL;
    struct quern_error err = {0};
    struct quern_request_params p = qn_fixture_greedy(prompt, 3, 4);
    p.sampling.bias_ids = bad;
    p.sampling.bias = bias;
    p.sampling.n_bias = 1;
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    assert_string_equal(err.param, "logit_bias");
    assert_string_equal(err.message, "logit_bias: found token id 320, expected 0 to 319");
    p.sampling.bias_ids = last;
    p.sampling.bias = stronger;
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    p.sampling.bias = strong;
    struct qn_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a->n_ids, 4);
    p = qn_fixture_greedy(prompt, 3, 4);
    p.sampling.stop_ids = minus;
    p.sampling.n_stop_ids = 1;
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    assert_string_equal(err.param, "stop_token_ids");
    p = qn_fixture_greedy(prompt, 3, 4);
    p.sampling.allowed_ids = bad;
    p.sampling.n_allowed = 1;
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    assert_string_equal(err.param, "allowed_token_ids");
    p = qn_fixture_greedy(bad, 1, 4);
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    assert_string_equal(err.param, "prompt");
    assert_null(r);
    quern_engine_free(e);
    free(a);
}

static void test_context_is_checked(void **state)
{
    (void)state;
    struct qn_toy toy = {0};
    struct quern_engine *e = qn_fixture_toy_engine(&toy, NULL, (struct quern_engine_options){0}, 1);
    int32_t *prompt = calloc(4097, sizeof *prompt);
    struct qn_answer *a = calloc(1, sizeof *a);
    assert_true(prompt != NULL && a != NULL);
    qn_fixture_prompt(prompt, 4097, 1);
    struct quern_request *r = NULL;
    struct quern_error err = {0};
    struct quern_request_params p = qn_fixture_greedy(prompt, 4096, 5);
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_CONTEXT);
    assert_non_null(strstr(err.message, "This model's maximum context length is 4096 tokens. "
                                        "However, you requested 5 output tokens and your prompt "
                                        "contains 4096 input tokens"));
    p = qn_fixture_greedy(prompt, 4090, 100); // cut to what is left
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a->n_ids, 6);
    assert_int_equal(a->finish, QUERN_FINISH_LENGTH);
    quern_engine_free(e);
    free(prompt);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_SMP_01_the_likeliest_survives),
        cmocka_unit_test(test_SMP_02_no_top_k),
        cmocka_unit_test(test_SMP_03_cold_is_greedy),
        cmocka_unit_test(test_filters_keep_what_a_sort_would),
        cmocka_unit_test(test_large_top_k_selects_the_best),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_draw_is_a_fixed_function),
        cmocka_unit_test(test_SMP_08_repetition_penalty),
        cmocka_unit_test(test_SMP_09_what_penalties_count),
        cmocka_unit_test(test_masks_and_bias),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_nonfinite_rows_are_seen),
        cmocka_unit_test(test_SMP_10_ranges),
        cmocka_unit_test(test_SMP_07_ids_are_checked_against_the_vocabulary),
        cmocka_unit_test(test_context_is_checked),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
