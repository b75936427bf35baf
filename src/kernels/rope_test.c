#include "kernels/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/// cos and sin of the f32-rounded angle, computed with 200 bits and rounded to f32.
static const struct {
    size_t pos;
    float w, cos_a, sin_a;
} golden[] = {
    {0, 1.0f, 1.0f, 0.0f},
    {1, 1.0f, 0x1.14a28p-1f, 0x1.aed548p-1f},
    {7, 0x1.8p-1f, 0x1.063012p-1f, -0x1.b7c644p-1f},
    {4095, 1.0f, -0x1.0e3cd8p-4f, -0x1.fee26cp-1f},
    {131071, 1.0f, -0x1.a2cebcp-1f, -0x1.268614p-1f},
    {262143, 1.0f, -0x1.37e404p-1f, 0x1.960a26p-1f},
    {300000, 1.0f, -0x1.fd0e9ep-1f, 0x1.b6886p-4f},
    {299999, 0x1.9c975ap-1f, 0x1.ffe1b8p-1f, 0x1.6029a4p-6f},
    {262143, 0x1.930bep-7f, 0x1.de4722p-2f, 0x1.c4b8a8p-1f},
    {131072, 0x1.094564p-15f, -0x1.1339bcp-1f, -0x1.afbc1ap-1f},
    {262144, 0x1.6a09e6p+0f, 0x1.60a044p-1f, 0x1.733676p-1f},
    {211455, 0x1.4c7bbep-1f, -0x1.42b02cp-1f, 0x1.8d8340p-1f},
};

enum {
    N_GOLDEN = sizeof golden / sizeof golden[0]
};

static void test_angles(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN; i++) {
        float c, s;
        qn_rope_angles(&c, &s, &golden[i].w, 1, golden[i].pos, 1.0f);
        assert_float_equal(c, golden[i].cos_a, 0.0f);
        assert_float_equal(s, golden[i].sin_a, 0.0f);
    }
}

static void test_factor_and_many(void **state)
{
    float w[N_GOLDEN], c[N_GOLDEN], s[N_GOLDEN];
    const float m = 1.3465736f; // YaRN, factor 32

    (void)state;
    for (size_t i = 0; i < N_GOLDEN; i++) {
        w[i] = golden[i].w;
    }
    qn_rope_angles(c, s, w, N_GOLDEN, 262143, m);
    for (size_t i = 0; i < N_GOLDEN; i++) {
        float one_c, one_s;
        qn_rope_angles(&one_c, &one_s, &w[i], 1, 262143, 1.0f);
        assert_true(fabsf(c[i] - m * one_c) <= 0x1p-22f);
        assert_true(fabsf(s[i] - m * one_s) <= 0x1p-22f);
        assert_true(fabsf(c[i] * c[i] + s[i] * s[i] - m * m) <= 1e-6f);
    }
    assert_float_equal(c[5], m * golden[5].cos_a, 0x1p-22);
    assert_float_equal(s[5], m * golden[5].sin_a, 0x1p-22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_angles),
        cmocka_unit_test(test_factor_and_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
