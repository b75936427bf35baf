#ifndef QN_KERNELS_VEC_MATH_H
#define QN_KERNELS_VEC_MATH_H

/// Elementary functions on vectors. Include a vec_<tier>.h first: it defines vf and v_….

#include <math.h>

/// Constant-trip loops over register tiles must be unrolled, or the tile lives in memory.
#if defined(__clang__)
#define QN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QN_UNROLL _Pragma("GCC unroll 32")
#endif
#define QN_INLINE static inline __attribute__((always_inline))

/// e^x within 2 ulp on [-87, 88.72]; exactly 0 below (e^x would be denormal), inf above, NaN stays.
/// x = (n + r) ln 2 with |r| <= 1/2; 2^r - 1 = r * (degree 5, minimax for the relative error).
QN_INLINE vf v_exp(vf x)
{
    const vf magic = v_set1(0x1.8p23f); // adding it leaves round(x log2 e) in the low bits
    const vf t = v_fma(x, v_set1(0x1.715476p+0f), magic);
    const vf n = v_sub(t, magic);
    vf r = v_fma(x, v_set1(0x1.715476p+0f), v_sub(v_set1(0.0f), n));
    r = v_fma(x, v_set1(0x1.4ae0cp-26f), r); // what the constant's rounding lost

    vf p = v_set1(1.540351253e-4f);
    p = v_fma(p, r, v_set1(1.339073568e-3f));
    p = v_fma(p, r, v_set1(9.618237495e-3f));
    p = v_fma(p, r, v_set1(5.550357433e-2f));
    p = v_fma(p, r, v_set1(2.402264979e-1f));
    p = v_fma(p, r, v_set1(6.931471879e-1f));
    p = v_fma(p, r, v_set1(1.0f));

    vf y = v_scale2(p, t);
    const vf zero = v_set1(0.0f);
    y = v_select(v_le(v_set1(-87.0f), x), y, v_max(zero, x)); // NaN > 0 is false: NaN
    return v_select(v_lt(v_set1(88.7228f), x), v_set1(INFINITY), y);
}

/// The same value for one number.
QN_INLINE float v_exp1(float x)
{
    return v_first(v_exp(v_set1(x)));
}

/// 1 / (1 + e^-x)
QN_INLINE vf v_sigmoid(vf x)
{
    const vf one = v_set1(1.0f);
    return v_div(one, v_add(one, v_exp(v_sub(v_set1(0.0f), x))));
}

/// tanh within 4 ulp: an odd polynomial below 5/8, 1 - 2 / (e^2|x| + 1) above.
QN_INLINE vf v_tanh(vf x)
{
    const vf one = v_set1(1.0f), a = v_abs(x);
    const vf z = v_mul(x, x);
    vf p = v_set1(-6.115927641e-3f);
    p = v_fma(p, z, v_set1(2.101247671e-2f));
    p = v_fma(p, z, v_set1(-5.38547677e-2f));
    p = v_fma(p, z, v_set1(1.333280206e-1f));
    p = v_fma(p, z, v_set1(-3.333332947e-1f));
    const vf small = v_fma(v_mul(p, z), x, x);
    const vf e = v_add(v_exp(v_add(a, a)), one);
    const vf large = v_sub(one, v_div(v_set1(2.0f), e));
    return v_select(v_lt(a, v_set1(0.625f)), small, v_copysign(large, x));
}

#endif
