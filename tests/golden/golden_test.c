#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fixture.h"

// Tiny random checkpoints of every descriptor against the logits that transformers gives for them
// in float32 (tools/golden/make_models.py).
//
// Bounds. With f32 activations, whatever the weights' dtype, the reference computes the same sums
// in another order: max |difference| <= 2e-4 max |logit|. With bf16 activations every GEMM input
// and the KV cache carry 8 bits: max |difference| <= BF16_BOUND max |logit|, and the first choice
// is the reference's wherever its lead over the second exceeds that bound. With int8 activations
// (127 steps for a token's largest value in each group) the same with INT8_BOUND, and the
// Kullback-Leibler divergence of the next-token distributions is at most INT8_KL nats in the mean.

#define MODELS "tests/golden/models/"
static const double F32_BOUND = 2e-4, BF16_BOUND = 0.03, INT8_BOUND = 0.06, INT8_KL = 0.02;

enum {
    BLOCK_TOKENS = 16
};

struct golden {
    const char *name, *file; ///< file: "" for the directory
};

struct result {
    double max_logit, max_diff;
    double mean_kl;                  ///< of ours from the reference's distribution
    size_t worst_row;                ///< where max_diff is
    size_t n_rows, n_clear, n_wrong; ///< rows whose margin exceeds the bound; first choices wrong
    size_t wrong_row;                ///< the first of them
};

static size_t top1(const float *x, size_t n, double *out_margin)
{
    size_t best = 0;
    float second = -INFINITY;
    for (size_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    for (size_t i = 0; i < n; i++) {
        second = i != best && x[i] > second ? x[i] : second;
    }
    *out_margin = (double)x[best] - (double)second;
    return best;
}

static double log_sum_exp(const float *x, size_t n)
{
    double sum = 0, largest = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, (double)x[i]);
    }
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - largest);
    }
    return largest + log(sum);
}

static double divergence(const float *p, const float *q, size_t n)
{
    double zp = log_sum_exp(p, n), zq = log_sum_exp(q, n), kl = 0;
    for (size_t i = 0; i < n; i++) {
        kl += exp((double)p[i] - zp) * ((double)p[i] - zp - (double)q[i] + zq);
    }
    return kl;
}

static struct result measure(const char *name, const char *file, enum qn_act act, double bound)
{
    char path[256];
    size_t n, one, rows, vocab;
    snprintf(path, sizeof path, MODELS "%s/tokens.npy", name);
    int32_t *tokens = fx_npy(path, "'<i4'", &n, &one);
    snprintf(path, sizeof path, MODELS "%s/logits.npy", name);
    float *want = fx_npy(path, "'<f4'", &rows, &vocab);
    assert_int_equal(rows, n);
    struct fx_model f;
    snprintf(path, sizeof path, MODELS "%s/%s", name, file);
    fx_open(&f, path, act);
    assert_int_equal(f.vocab, vocab);
    struct fx_run *r = fx_run_new(f.model, 2, n, 1, n, BLOCK_TOKENS);
    float *got = fx_floats(n * vocab);
    fx_feed(r, 0, tokens, n, n, got);

    struct result res = {.n_rows = n};
    for (size_t i = 0; i < n * vocab; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        assert_true(isfinite(got[i]));
        res.max_logit = fmax(res.max_logit, fabs((double)want[i]));
        res.worst_row = d > res.max_diff ? i / vocab : res.worst_row;
        res.max_diff = fmax(res.max_diff, d);
    }
    for (size_t i = 0; i < n; i++) {
        double margin, mine;
        res.mean_kl += divergence(want + i * vocab, got + i * vocab, vocab) / (double)n;
        size_t a = top1(want + i * vocab, vocab, &margin), b = top1(got + i * vocab, vocab, &mine);
        if (margin > bound * res.max_logit) {
            res.n_clear++;
            if (a != b && res.n_wrong++ == 0) {
                res.wrong_row = i;
            }
        }
    }
    free(got);
    free(want);
    free(tokens);
    fx_run_free(r);
    fx_close(&f);
    return res;
}

static void hold(const char *name, const char *file, enum qn_act act, double bound)
{
    struct result r = measure(name, file, act, bound);
    print_message(
        "%s %s: max |difference| / max |logit| %.1e (bound %.0e), %zu of %zu rows clear\n", name,
        qn_act_name(act), r.max_diff / r.max_logit, bound, r.n_clear, r.n_rows);
    if (!(r.max_diff <= bound * r.max_logit)) {
        fail_msg("model \"%s\" %s, position %zu: a logit differs by %g, expected at most %g", name,
                 qn_act_name(act), r.worst_row, r.max_diff, bound * r.max_logit);
    }
    if (act == QN_ACT_I8) {
        print_message("%s i8: divergence %.4f (bound %.2f)\n", name, r.mean_kl, INT8_KL);
        assert_true(r.mean_kl <= INT8_KL);
    }
    if (r.n_wrong > 0) {
        fail_msg("model \"%s\" %s, position %zu: another best token", name, qn_act_name(act),
                 r.wrong_row);
    }
    assert_true(2 * r.n_clear >= r.n_rows); // else the check of first choices says little
}

static const char *const hf_models[] = {
    "llama_plain",  "llama_linear", "llama_llama3",   "llama_yarn",       "llama_dynamic",
    "llama_bf16",   "llama_dtypes", "llama_own_head", "mistral",          "qwen2",
    "qwen2_window", "qwen3",        "qwen3_yarn",     "gemma3_old",       "gemma3_new",
    "gemma3_mm",    "smollm3",      "smollm3_window", "smollm3_interval",
};

static const char *const bf16_models[] = {"llama_llama3", "llama_bf16", "qwen2",
                                          "qwen3_yarn",   "gemma3_new", "smollm3_interval"};

static void test_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hf_models / sizeof hf_models[0]; i++) {
        hold(hf_models[i], "", QN_ACT_F32, F32_BOUND);
    }
}

static void test_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bf16_models / sizeof bf16_models[0]; i++) {
        hold(bf16_models[i], "", QN_ACT_BF16, BF16_BOUND);
    }
}

static void test_quantised(void **state)
{
    (void)state;
    static const char *const names[] = {"gguf_mixed", "gguf_k", "gguf_gemma3"};
    for (size_t i = 0; i < 3; i++) {
        hold(names[i], "model.gguf", QN_ACT_F32, F32_BOUND);
        hold(names[i], "model.gguf", QN_ACT_BF16, BF16_BOUND);
        hold(names[i], "model.gguf", QN_ACT_I8, INT8_BOUND);
    }
}

// A tied and an untied model, each by its own flag, at the root and in text_config.
static void test_LOD_05_tied_flag(void **state)
{
    (void)state;
    hold("llama_plain", "", QN_ACT_F32, F32_BOUND);
    hold("llama_linear", "", QN_ACT_F32, F32_BOUND);
    hold("gemma3_mm", "", QN_ACT_F32, F32_BOUND);
}

static void test_LOD_10_head_dim(void **state)
{
    (void)state;
    struct fx_model f;
    fx_open(&f, MODELS "qwen3", QN_ACT_F32);
    assert_int_equal(qn_model_info(f.model)->d_model, 40);
    assert_int_equal(qn_model_info(f.model)->head_dim, 16);
    assert_int_equal(qn_model_info(f.model)->n_heads, 4);
    assert_int_equal(qn_model_info(f.model)->n_kv_heads, 2);
    fx_close(&f);
    hold("qwen3", "", QN_ACT_F32, F32_BOUND);
}

// A BF16 norm weight of 1e6 beside F16 and F32 matrices.
static void test_LOD_11_mixed_dtypes(void **state)
{
    (void)state;
    hold("llama_dtypes", "", QN_ACT_F32, F32_BOUND);
    hold("llama_dtypes", "", QN_ACT_BF16, BF16_BOUND);
}

// GGUF keeps the same weights in another order and under other names: the same bits.
static void test_gguf_twins(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum qn_act act;
    } twins[] = {
        {"llama_plain", QN_ACT_F32},       // q and k in another order
        {"gemma3_old", QN_ACT_F32},        // norms with 1 added
        {"qwen3", QN_ACT_F32},             // norms of q and k
        {"qwen2", QN_ACT_F32},             // biases
        {"qwen2", QN_ACT_BF16},            //
        {"smollm3_interval", QN_ACT_F32},  // biases of q and k in another order
        {"smollm3_interval", QN_ACT_BF16}, //
    };
    for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++) {
        char path[256];
        size_t n, one;
        snprintf(path, sizeof path, MODELS "%s/tokens.npy", twins[i].name);
        int32_t *tokens = fx_npy(path, "'<i4'", &n, &one);
        float *logits[2];
        size_t vocab = 0;
        for (size_t k = 0; k < 2; k++) {
            struct fx_model f;
            snprintf(path, sizeof path, MODELS "%s%s", twins[i].name, k == 0 ? "" : "/twin.gguf");
            fx_open(&f, path, twins[i].act);
            vocab = f.vocab;
            struct fx_run *r = fx_run_new(f.model, 1, n, 1, n, BLOCK_TOKENS);
            logits[k] = fx_floats(n * vocab);
            fx_feed(r, 0, tokens, n, n, logits[k]);
            fx_run_free(r);
            fx_close(&f);
        }
        for (size_t row = 0; row < n; row++) {
            if (memcmp(logits[0] + row * vocab, logits[1] + row * vocab, vocab * sizeof(float)) !=
                0) {
                fail_msg("model \"%s\" %s, position %zu: twin.gguf has other bits", twins[i].name,
                         qn_act_name(twins[i].act), row);
            }
        }
        free(logits[0]);
        free(logits[1]);
        free(tokens);
    }
}

// GGUF keeps Llama 3's scaling as divisors of the frequencies.
static void test_gguf_frequency_divisors(void **state)
{
    (void)state;
    hold("llama_llama3", "twin.gguf", QN_ACT_F32, F32_BOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_LOD_05_tied_flag),
        cmocka_unit_test(test_LOD_10_head_dim),
        cmocka_unit_test(test_LOD_11_mixed_dtypes),
        cmocka_unit_test(test_gguf_twins),
        cmocka_unit_test(test_gguf_frequency_divisors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
