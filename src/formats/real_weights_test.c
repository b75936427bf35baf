#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "formats/ckpt.h"

// Real models twice: a GGUF file, and the Hugging Face directory that another program made of it
// (dequantised, rounded to bf16). Names, shapes, order of rows, norms and every weight must agree.
// QUERN_TEST_SMOLLM2 and QUERN_TEST_GEMMA3 name the files, QUERN_TEST_HF the folder of directories.

enum {
    ROWS_PER_TENSOR = 400
};

// Hugging Face's row for a row of the file.
static uint64_t hf_row(const struct qn_tensor *t, uint64_t row, uint64_t head_dim)
{
    if ((t->flags & QN_T_QK_INTERLEAVED) == 0) {
        return row;
    }
    uint64_t in_head = row % head_dim;
    return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}

static void compare_tensor(const struct qn_tensor *t, const struct qn_tensor *u, uint64_t head_dim,
                           uint32_t *seed)
{
    struct qn_err err;
    assert_int_equal(t->rank, u->rank);
    assert_memory_equal(t->shape, u->shape, t->rank * sizeof t->shape[0]);
    assert_int_equal(u->dtype, QN_DT_BF16);
    size_t k = (size_t)t->shape[t->rank - 1];
    uint64_t rows = t->rank == 2 ? t->shape[0] : 1;
    float *x = calloc(k, sizeof *x), *y = calloc(k, sizeof *y);
    for (uint64_t i = 0; i < rows && i < ROWS_PER_TENSOR; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        uint64_t row = rows <= ROWS_PER_TENSOR ? i : (*seed >> 4) % rows;
        if (qn_tensor_read_f32(t, row, 0, k, x, &err) != QN_OK ||
            qn_tensor_read_f32(u, hf_row(t, row, head_dim), 0, k, y, &err) != QN_OK) {
            fail_msg("%s", err.msg);
        }
        for (size_t j = 0; j < k; j++) {
            float w = (t->flags & QN_T_NORM_FOLDED) != 0 ? x[j] - 1.0f : x[j];
            if (qn_bf16_to_f32(qn_f32_to_bf16(w)) != y[j]) {
                fail_msg("tensor \"%s\" row %llu column %zu: %.9g and %.9g", t->name,
                         (unsigned long long)row, j, (double)w, (double)y[j]);
            }
        }
    }
    free(x);
    free(y);
}

static void compare_models(const char *file_var, const char *name)
{
    const char *file = getenv(file_var), *root = getenv("QUERN_TEST_HF");
    if (file == NULL || root == NULL) {
        print_message("skipped: %s and QUERN_TEST_HF are not set\n", file_var);
        skip();
    }
    static const char *const k_keys[] = {
        "model_type",          "vocab_size",         "hidden_size",
        "intermediate_size",   "num_hidden_layers",  "num_attention_heads",
        "num_key_value_heads", "head_dim",           "max_position_embeddings",
        "rms_norm_eps",        "tie_word_embeddings"};
    char path[1024];
    struct qn_ckpt *a = NULL, *b = NULL;
    struct qn_err err;
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (qn_ckpt_open(file, &a, &err) != QN_OK || qn_ckpt_open(path, &b, &err) != QN_OK) {
        fail_msg("%s", err.msg);
    }
    for (size_t i = 0; i < sizeof k_keys / sizeof k_keys[0]; i++) {
        const json_t *x = json_object_get(qn_ckpt_config(a), k_keys[i]);
        const json_t *y = json_object_get(qn_ckpt_config(b), k_keys[i]);
        if (x == NULL || !json_equal(x, y)) {
            fail_msg("config key \"%s\" differs", k_keys[i]);
        }
    }
    uint64_t head_dim =
        (uint64_t)json_integer_value(json_object_get(qn_ckpt_config(a), "head_dim"));
    uint32_t seed = 1;
    assert_int_equal(qn_ckpt_n_tensors(a), qn_ckpt_n_tensors(b));
    for (size_t i = 0; i < qn_ckpt_n_tensors(a); i++) {
        const struct qn_tensor *t = qn_ckpt_tensor(a, i), *u = qn_ckpt_find(b, t->name);
        if (u == NULL) {
            fail_msg("tensor \"%s\" is not in the directory", t->name);
        }
        compare_tensor(t, u, head_dim, &seed);
    }
    qn_ckpt_close(a);
    qn_ckpt_close(b);
}

static void test_smollm2(void **state)
{
    (void)state;
    compare_models("QUERN_TEST_SMOLLM2", "smollm2");
}

static void test_gemma3(void **state)
{
    (void)state;
    compare_models("QUERN_TEST_GEMMA3", "gemma3-270m");
}

int main(void)
{
    if (getenv("QUERN_TEST_HF") == NULL) {
        printf("skipped: QUERN_TEST_HF is not set\n");
        return 77; // ctest then lists the program as skipped
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_gemma3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
