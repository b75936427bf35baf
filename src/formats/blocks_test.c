#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "formats/blocks.h"
#include "formats/ckpt.h"

// Blocks of bytes (37 i + 11) mod 256 with scale 0.0625, minimum 0.03125 and, for MXFP4, exponent
// byte 124; the sums are exact in f64. The figures are the ggml reference decoder's.
static const struct {
    enum qn_dtype dtype;
    int d, m; // offsets of scale and minimum, -1: none
    double w0, w1, w15, w16, w31, half, last, sum, psum;
} k_golden[] = {
    {QN_DT_Q4_0, 0, -1, -0.1875, 0.125, -0.5, -0.1875, 0, -0.1875, 0, -1.3125, -32.375},
    {QN_DT_Q4_1, 0, 2, 0.96875, 0.28125, 0.65625, 0.59375, 0.78125, 0.59375, 0.78125, 16.3125,
     265.4375},
    {QN_DT_Q5_0, 0, -1, 0.5625, -0.125, -0.75, 0.875, 0.0625, 0.875, 0.0625, 0.9375, 7},
    {QN_DT_Q5_1, 0, 2, 1.21875, 1.53125, 1.90625, 1.21875, 0.34375, 1.21875, 0.34375, 32.5625,
     510.3125},
    {QN_DT_Q8_0, 0, -1, 5.3125, 7.625, -8, -5.6875, -3, -5.6875, -3, -11, -505},
    {QN_DT_Q2_K, 80, 82, 2.0625, 0, 1.375, -0.09375, -0.09375, 0.46875, 0.28125, 128.6875,
     15195.625},
    {QN_DT_Q3_K, 108, -1, 5.0625, -6.75, -3.375, -6, 4, 0.125, 2.625, 59.875, 11071.5625},
    {QN_DT_Q4_K, 0, 2, 19.71875, -1.59375, 10.03125, 19.71875, 10.03125, 26.4375, 3.03125, 3402.5,
     473302.5},
    {QN_DT_Q5_K, 0, 2, 50.71875, -1.59375, 10.03125, 50.71875, 10.03125, 65.4375, 6.78125, 7263.5,
     1001715.5},
    {QN_DT_Q6_K, 208, -1, -89.4375, 106, -19.875, -27, -6, -21.9375, -3.75, 288.25, 49026.25},
    {QN_DT_IQ4_NL, 0, -1, -2.1875, 1.5625, -7.9375, -2.1875, 0.0625, -2.1875, 0.0625, -16.0625,
     -432.4375},
    {QN_DT_IQ4_XS, 0, -1, 4.0625, -0.0625, -5.5625, 4.0625, 2.1875, -36.5625, -1, -687.8125,
     -130695.875},
    {QN_DT_MXFP4, -1, -1, 0, 0.375, -0.1875, 0.1875, 0.375, 0.1875, 0.375, 1.5625, 39.875},
};

static struct qn_tensor row_tensor(enum qn_dtype dtype, const void *data, size_t rows, size_t k)
{
    return (struct qn_tensor){
        .name = "w",
        .file = "f",
        .dtype = dtype,
        .rank = 2,
        .shape = {rows, k},
        .data = data,
        .n_bytes = rows * (k / qn_dtype_block_elems(dtype)) * (uint64_t)qn_dtype_block_bytes(dtype),
    };
}

static void test_golden_vectors(void **state)
{
    (void)state;
    const uint16_t d = 0x2c00, m = 0x2800;
    for (size_t i = 0; i < sizeof k_golden / sizeof k_golden[0]; i++) {
        enum qn_dtype dtype = k_golden[i].dtype;
        size_t n = qn_dtype_block_elems(dtype), bytes = qn_dtype_block_bytes(dtype);
        unsigned char b[1 + 512];
        for (size_t j = 0; j < bytes; j++) {
            b[1 + j] = (unsigned char)(37 * j + 11);
        }
        if (k_golden[i].d >= 0) {
            memcpy(b + 1 + k_golden[i].d, &d, 2);
        } else {
            b[1] = 124;
        }
        if (k_golden[i].m >= 0) {
            memcpy(b + 1 + k_golden[i].m, &m, 2);
        }
        float w[256];
        struct qn_tensor t = row_tensor(dtype, b + 1, 1, n); // an odd address
        struct qn_err err;
        assert_int_equal(qn_tensor_read_f32(&t, 0, 0, n, w, &err), QN_OK);
        double sum = 0, psum = 0;
        for (size_t j = 0; j < n; j++) {
            sum += (double)w[j];
            psum += (double)(j + 1) * (double)w[j];
        }
        const double want[] = {k_golden[i].w0,   k_golden[i].w1,  k_golden[i].w15,
                               k_golden[i].w16,  k_golden[i].w31, k_golden[i].half,
                               k_golden[i].last, k_golden[i].sum, k_golden[i].psum};
        const double got[] = {(double)w[0],     (double)w[1],  (double)w[15],
                              (double)w[16],    (double)w[31], (double)w[n / 2],
                              (double)w[n - 1], sum,           psum};
        for (size_t j = 0; j < sizeof want / sizeof want[0]; j++) {
            if (got[j] != want[j]) {
                fail_msg("%s: figure %zu: found %.9g, expected %.9g", qn_dtype_name(dtype), j,
                         got[j], want[j]);
            }
        }
    }
}

static uint32_t next_rand(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

// Random blocks whose half-precision fields are finite.
static void random_blocks(enum qn_dtype dtype, unsigned char *b, size_t n_blocks, uint32_t *seed)
{
    size_t bytes = qn_dtype_block_bytes(dtype);
    int d = -1, m = -1;
    for (size_t i = 0; i < sizeof k_golden / sizeof k_golden[0]; i++) {
        if (k_golden[i].dtype == dtype) {
            d = k_golden[i].d;
            m = k_golden[i].m;
        }
    }
    for (size_t i = 0; i < n_blocks * bytes; i++) {
        b[i] = (unsigned char)next_rand(seed);
    }
    for (size_t i = 0; i < n_blocks; i++) {
        unsigned char *p = b + i * bytes;
        if (d < 0) {
            p[0] = (unsigned char)(p[0] == 255 ? 0 : p[0]);
            continue;
        }
        p[d + 1] &= 0xbb; // clears an exponent bit, keeps the sign
        if (m >= 0) {
            p[m + 1] &= 0xbb;
        }
    }
}

static void test_canon_equals_f32(void **state)
{
    (void)state;
    enum {
        K = 512,
        ROWS = 5
    };
    uint32_t seed = 12345;
    for (size_t i = 0; i < sizeof k_golden / sizeof k_golden[0]; i++) {
        enum qn_dtype dtype = k_golden[i].dtype;
        size_t per_row = K / qn_dtype_block_elems(dtype), bytes = qn_dtype_block_bytes(dtype);
        unsigned char *b = malloc(ROWS * per_row * bytes);
        random_blocks(dtype, b, ROWS * per_row, &seed);
        struct qn_tensor t = row_tensor(dtype, b, ROWS, K);
        struct qn_canon_desc desc;
        struct qn_err err;
        assert_int_equal(qn_tensor_canon(&t, &desc, &err), QN_OK);
        assert_true(desc.kind == QN_CANON_I8 || desc.kind == QN_CANON_I4);
        assert_true(desc.group == 16 || desc.group == 32);
        for (uint64_t row = 0; row < ROWS; row++) {
            float w[K], scale[K / 16], min[K / 16];
            int8_t q[K];
            assert_int_equal(qn_tensor_read_f32(&t, row, 0, K, w, &err), QN_OK);
            assert_int_equal(qn_tensor_read_canon(&t, row, q, scale, min, &err), QN_OK);
            for (size_t j = 0; j < K; j++) {
                size_t g = j / desc.group;
                float v = scale[g] * (float)q[j];
                v = desc.has_min ? v + min[g] : v;
                if (qn_f32_bits(v) != qn_f32_bits(w[j])) {
                    fail_msg("%s element %zu: %.9g and %.9g", qn_dtype_name(dtype), j, (double)v,
                             (double)w[j]);
                }
                int lo = desc.kind == QN_CANON_I8 ? -128 : desc.has_min ? 0 : -8;
                int hi = desc.kind == QN_CANON_I8 ? 127 : desc.has_min ? 15 : 7;
                assert_in_range(q[j] + 128, (uintmax_t)(lo + 128), (uintmax_t)(hi + 128));
            }
            // a part of a row is the same numbers
            size_t e = qn_dtype_block_elems(dtype);
            float part[256];
            assert_int_equal(qn_tensor_read_f32(&t, row, K - e, e, part, &err), QN_OK);
            assert_memory_equal(part, w + K - e, e * sizeof *part);
        }
        free(b);
    }
}

static void test_non_finite_is_refused(void **state)
{
    (void)state;
    struct qn_err err;
    unsigned char b[512] = {0};
    float out[256], scale[16], min[16];
    int8_t q[256];
    const uint16_t inf = 0x7c00, nan = 0x7e01;
    for (size_t i = 0; i < sizeof k_golden / sizeof k_golden[0]; i++) {
        size_t n = qn_dtype_block_elems(k_golden[i].dtype);
        struct qn_tensor t = row_tensor(k_golden[i].dtype, b, 1, n);
        for (int field = 0; field < 2; field++) {
            int at = field == 0 ? k_golden[i].d : k_golden[i].m;
            memset(b, 1, sizeof b); // non-zero sub-block scales
            if (at >= 0) {
                memcpy(b + at, field == 0 ? &inf : &nan, 2);
            } else if (field == 0) {
                b[0] = 255; // MXFP4
            } else {
                continue;
            }
            assert_int_equal(qn_tensor_read_canon(&t, 0, q, scale, min, &err), QN_E_FORMAT);
            assert_non_null(strstr(err.msg, "tensor \"w\""));
            assert_int_equal(qn_tensor_read_f32(&t, 0, 0, n, out, &err), QN_E_FORMAT);
        }
    }
    const float f[4] = {1, 2, 1.0f / 0.0f, 3};
    float got[4];
    struct qn_tensor t = row_tensor(QN_DT_F32, f, 1, 4);
    assert_int_equal(qn_tensor_read_canon(&t, 0, got, NULL, NULL, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "column 2"));
    const uint16_t h[4] = {0x3f80, 0x7fc0, 0, 0};
    uint16_t got16[4];
    t = row_tensor(QN_DT_BF16, h, 1, 4);
    assert_int_equal(qn_tensor_read_canon(&t, 0, got16, NULL, NULL, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "column 1"));
}

static void test_LOD_11_dtypes_are_widened_not_reinterpreted(void **state)
{
    (void)state;
    struct qn_err err;
    struct qn_canon_desc desc;
    float out[3];
    // 1e6 does not fit F16: BF16 must not pass through it
    const uint16_t bf16[3] = {qn_f32_to_bf16(1e6f), qn_f32_to_bf16(-3.0f), 0x0001};
    uint16_t same[3];
    struct qn_tensor t = row_tensor(QN_DT_BF16, bf16, 1, 3);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 3, out, &err), QN_OK);
    assert_true(out[0] == 999424.0f && out[1] == -3.0f && out[2] == 0x1p-133f);
    assert_int_equal(qn_tensor_canon(&t, &desc, &err), QN_OK);
    assert_int_equal(desc.kind, QN_CANON_BF16);
    assert_int_equal(qn_tensor_read_canon(&t, 0, same, NULL, NULL, &err), QN_OK);
    assert_memory_equal(same, bf16, sizeof same);

    const uint16_t f16[3] = {0x3c01, 0x0001, 0xfbff}; // more mantissa than bf16, subnormal, largest
    t = row_tensor(QN_DT_F16, f16, 1, 3);
    assert_int_equal(qn_tensor_canon(&t, &desc, &err), QN_OK);
    assert_int_equal(desc.kind, QN_CANON_F32);
    assert_int_equal(qn_tensor_read_canon(&t, 0, out, NULL, NULL, &err), QN_OK);
    assert_true(out[0] == 1.0009765625f && out[1] == 0x1p-24f && out[2] == -65504.0f);

    const float f32[3] = {1.5e-40f, -3.4e38f, 0.1f};
    t = row_tensor(QN_DT_F32, f32, 1, 3);
    assert_int_equal(qn_tensor_read_canon(&t, 0, out, NULL, NULL, &err), QN_OK);
    assert_memory_equal(out, f32, sizeof out);
}

static void test_plain_integers_and_fp8(void **state)
{
    (void)state;
    struct qn_err err;
    struct qn_canon_desc desc;
    float out[4];
    const int8_t i8[4] = {-128, -1, 0, 127};
    struct qn_tensor t = row_tensor(QN_DT_I8, i8, 2, 2);
    assert_int_equal(qn_tensor_read_f32(&t, 1, 0, 2, out, &err), QN_OK);
    assert_true(out[0] == 0 && out[1] == 127);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 1, 1, out, &err), QN_OK);
    assert_true(out[0] == -1);
    assert_int_equal(qn_tensor_canon(&t, &desc, &err), QN_E_UNSUPPORTED);
    const unsigned char fp8[4] = {0x01, 0x08, 0x7e, 0xfe};
    t = row_tensor(QN_DT_E4M3, fp8, 1, 4);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 4, out, &err), QN_OK);
    assert_true(out[0] == 0x1p-9f && out[1] == 0x1p-6f && out[2] == 448 && out[3] == -448);
    const int16_t i16[2] = {-32768, 32767};
    t = row_tensor(QN_DT_I16, i16, 1, 2);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 2, out, &err), QN_OK);
    assert_true(out[0] == -32768 && out[1] == 32767);
    const double f64[2] = {0.1, -2.5};
    t = row_tensor(QN_DT_F64, f64, 1, 2);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 2, out, &err), QN_OK);
    assert_true(out[0] == 0.1f && out[1] == -2.5f);
    const int64_t i64[1] = {7};
    t = row_tensor(QN_DT_I64, i64, 1, 1);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 1, out, &err), QN_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "I64"));
}

static void test_rows_and_parts_are_checked(void **state)
{
    (void)state;
    struct qn_err err;
    unsigned char b[4 * 18] = {0};
    float out[64], scale[2];
    int8_t q[64];
    struct qn_tensor t = row_tensor(QN_DT_Q4_0, b, 2, 64);
    assert_int_equal(qn_tensor_read_f32(&t, 1, 32, 32, out, &err), QN_OK);
    assert_int_equal(qn_tensor_read_f32(&t, 2, 0, 32, out, &err), QN_E_INVALID);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 16, 32, out, &err), QN_E_INVALID);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 32, 64, out, &err), QN_E_INVALID);
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 20, out, &err), QN_E_INVALID);
    assert_int_equal(qn_tensor_read_canon(&t, 2, q, scale, NULL, &err), QN_E_INVALID);
    t = (struct qn_tensor){.name = "o", .file = "f", .dtype = QN_DT_OTHER, .rank = 1, .shape = {8}};
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 8, out, &err), QN_E_UNSUPPORTED);
    t = row_tensor(QN_DT_F32, b, 0, 4); // no rows at all
    assert_int_equal(qn_tensor_read_f32(&t, 0, 0, 4, out, &err), QN_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_vectors),
        cmocka_unit_test(test_canon_equals_f32),
        cmocka_unit_test(test_non_finite_is_refused),
        cmocka_unit_test(test_LOD_11_dtypes_are_widened_not_reinterpreted),
        cmocka_unit_test(test_plain_integers_and_fp8),
        cmocka_unit_test(test_rows_and_parts_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
