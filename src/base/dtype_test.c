// Conversions against plain arithmetic, over every 16-bit and 8-bit value.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>

#include "base/dtype.h"

// Value of a small float from its fields, without any bit tricks.
static double value_of(unsigned bits, int n_exp, int n_man, int bias)
{
    unsigned man = bits & ((1u << n_man) - 1), exp = bits >> n_man & ((1u << n_exp) - 1);
    double sign = bits >> (n_exp + n_man) & 1 ? -1 : 1;
    double fraction = (double)man / (double)(1u << n_man);
    return sign * (exp == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, (int)exp - bias));
}

static void test_every_f16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = qn_f16_to_f32((uint16_t)h);
        uint16_t back = qn_f32_to_f16(f);
        if ((h & 0x7c00u) == 0x7c00u) {
            bool inf = (h & 0x3ffu) == 0;
            assert_true(inf ? isinf(f) != 0 : isnan(f) != 0);
            assert_true(inf ? back == h : (back & 0x7c00u) == 0x7c00u && (back & 0x3ffu) != 0);
            assert_int_equal(signbit(f) != 0, h >> 15);
            continue;
        }
        assert_true((double)f == value_of(h, 5, 10, 15));
        assert_int_equal(signbit(f) != 0, h >> 15);
        assert_int_equal(back, h);
    }
}

static void test_every_bf16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = qn_bf16_to_f32((uint16_t)h);
        uint16_t back = qn_f32_to_bf16(f);
        if ((h & 0x7f80u) == 0x7f80u && (h & 0x7fu) != 0) {
            assert_true(isnan(f) && isnan(qn_bf16_to_f32(back)));
            continue;
        }
        if ((h & 0x7f80u) != 0x7f80u) {
            assert_true((double)f == value_of(h, 8, 7, 127));
        }
        assert_int_equal(back, h);
    }
}

// Between two neighbours: below the middle down, above it up, in the middle to the even one.
static void check_between(unsigned h, float low, float high, uint16_t (*round)(float))
{
    float middle = (float)(((double)low + (double)high) / 2);
    assert_int_equal(round(nextafterf(middle, low)), h);
    assert_int_equal(round(nextafterf(middle, high)), h + 1);
    assert_int_equal(round(middle), h % 2 == 0 ? h : h + 1);
    assert_int_equal(round(-middle), (h % 2 == 0 ? h : h + 1) | 0x8000u);
}

static void test_rounding_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7bffu; h++) {
        check_between(h, qn_f16_to_f32((uint16_t)h), qn_f16_to_f32((uint16_t)(h + 1)),
                      qn_f32_to_f16);
    }
    for (unsigned h = 1; h < 0x7f7fu; h++) {
        check_between(h, qn_bf16_to_f32((uint16_t)h), qn_bf16_to_f32((uint16_t)(h + 1)),
                      qn_f32_to_bf16);
    }
    assert_int_equal(qn_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(qn_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(qn_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(qn_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(qn_f32_to_bf16(3.4028235e38f), 0x7f80);
}

static void test_every_8_bit_value(void **state)
{
    (void)state;
    for (unsigned b = 0; b < 256; b++) {
        float f = qn_e4m3_to_f32((uint8_t)b);
        if ((b & 0x7fu) == 0x7fu) {
            assert_true(isnan(f));
        } else {
            assert_true((double)f == value_of(b, 4, 3, 7));
        }
        float e = qn_e8m0_to_f32((uint8_t)b);
        assert_true(b == 255 ? isnan(e) != 0 : (double)e == ldexp(1, (int)b - 127));
    }
    assert_true(qn_e4m3_to_f32(0x7e) == 448);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_f16),
        cmocka_unit_test(test_every_bf16),
        cmocka_unit_test(test_rounding_to_nearest_even),
        cmocka_unit_test(test_every_8_bit_value),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
