#ifndef QN_KERNELS_X86_VEC_AVX512_H
#define QN_KERNELS_X86_VEC_AVX512_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) ||                   \
    !defined(__AVX512DQ__)
#error "this file is for the avx512 tier: -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/// The vector vocabulary of vec_math.h, ops_vec.h and attn_vec.h: sixteen f32 lanes.

enum {
    VW = 16
};
typedef __m512 vf;
typedef __mmask16 vm;

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

/// The first n < VW lanes; the others are zero and not read.
static inline vf v_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
}

static inline void v_store_n(float *p, vf a, size_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), a);
}

static inline vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

/// a * b + c, one rounding.
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/// a > b ? a : b, so b where either is NaN.
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf v_abs(vf a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}

/// Magnitude of a, sign of s.
static inline vf v_copysign(vf a, vf s)
{
    const vf sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, s));
}

/// Ordered comparisons: false with NaN.
static inline vm v_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

static inline vm v_le(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}

static inline vm v_and(vm a, vm b)
{
    return (vm)(a & b);
}

/// m ? a : b
static inline vf v_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

/// 0, 1, …, VW - 1
static inline vf v_iota(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// p * 2^n for the integer n in the low bits of t.
static inline vf v_scale2(vf p, vf t)
{
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
}

/// The two halves of a vector, and their four lanes, joined in one fixed order.
static inline float v_sum(vf a)
{
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/// Largest lane; no lane may be NaN.
static inline float v_top(vf a)
{
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

static inline float v_first(vf a)
{
    return _mm512_cvtss_f32(a);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

#endif
