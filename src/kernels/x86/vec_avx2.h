#ifndef QN_KERNELS_X86_VEC_AVX2_H
#define QN_KERNELS_X86_VEC_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "this file is for the avx2 tier: -mavx2 -mfma"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/// The vector vocabulary of vec_math.h, ops_vec.h and attn_vec.h: eight f32 lanes.

enum {
    VW = 8
};
typedef __m256 vf;
typedef __m256 vm;

static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void v_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}

static inline __m256i v_tail_mask(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// The first n < VW lanes; the others are zero and not read.
static inline vf v_load_n(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, v_tail_mask(n));
}

static inline void v_store_n(float *p, vf a, size_t n)
{
    _mm256_maskstore_ps(p, v_tail_mask(n), a);
}

static inline vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

/// a * b + c, one rounding.
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/// a > b ? a : b, so b where either is NaN.
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

/// Magnitude of a, sign of s.
static inline vf v_copysign(vf a, vf s)
{
    const vf sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, s));
}

/// Ordered comparisons: false with NaN.
static inline vm v_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

static inline vm v_le(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}

static inline vm v_and(vm a, vm b)
{
    return _mm256_and_ps(a, b);
}

/// m ? a : b
static inline vf v_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}

/// 0, 1, …, VW - 1
static inline vf v_iota(void)
{
    return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

/// p * 2^n for the integer n in the low bits of t.
static inline vf v_scale2(vf p, vf t)
{
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n));
}

/// Sum of the lanes in one fixed order.
static inline float v_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/// Largest lane; no lane may be NaN.
static inline float v_top(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

static inline float v_first(vf a)
{
    return _mm256_cvtss_f32(a);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    const __m128i h = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

#endif
