#ifndef QN_KERNELS_X86_GEMM_AVX2_H
#define QN_KERNELS_X86_GEMM_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "build with the flags of the avx2 tier"
#endif

#include <immintrin.h>

#include "kernels/gemm_util.h"

/// What the AVX2 GEMM variants share: panels of 16 outputs, taken two at a time (for a pair these
/// are gate and up), and the epilogue of a row of two panels.

#define QN_INLINE static inline __attribute__((always_inline))

/// Before a short loop over registers, which must vanish.
#if defined(__clang__)
#define QN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QN_UNROLL _Pragma("GCC unroll 8")
#endif

enum {
    QN_AVX2_NR = 16
};

/// qn_gemm_exp on 8 values, operation by operation.
QN_INLINE __m256 qn_avx2_exp(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(12582912.0f);

    x = _mm256_min_ps(_mm256_set1_ps(88.0f), x); // the second operand is kept when it is NaN
    x = _mm256_max_ps(_mm256_set1_ps(-87.0f), x);
    __m256 n = _mm256_sub_ps(_mm256_fmadd_ps(x, _mm256_set1_ps(1.44269504f), magic), magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693359375f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
    __m256 p =
        _mm256_fmadd_ps(_mm256_set1_ps(1.9875691500e-4f), r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
}

/// qn_gemm_gate on 8 values.
QN_INLINE __m256 qn_avx2_gate(enum qn_glu glu, __m256 gate, __m256 up)
{
    __m256 u;

    if (glu == QN_GLU_SILU) {
        u = _mm256_xor_ps(gate, _mm256_set1_ps(-0.0f));
    } else if (glu == QN_GLU_GELU_TANH) {
        __m256 cube = _mm256_mul_ps(_mm256_mul_ps(gate, gate), gate);
        u = _mm256_mul_ps(_mm256_fmadd_ps(_mm256_set1_ps(0.044715f), cube, gate),
                          _mm256_set1_ps(-1.5957691216f));
    } else {
        return gate;
    }
    __m256 d = _mm256_add_ps(_mm256_set1_ps(1.0f), qn_avx2_exp(u));
    return _mm256_mul_ps(_mm256_div_ps(gate, d), up);
}

/// qn_f32_to_bf16 on 8 values.
QN_INLINE __m128i qn_avx2_to_bf16(__m256 v)
{
    const __m256i u = _mm256_castps_si256(v), hi = _mm256_srli_epi32(u, 16);
    __m256i lsb = _mm256_and_si256(hi, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(u, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(hi, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i h = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

/// 8 whole columns from `col` of row m.
QN_INLINE void qn_avx2_finish8(const struct qn_gemm_args *a, size_t m, size_t col, __m256 v,
                               __m256 up)
{
    const __m256 scale = _mm256_set1_ps(a->scale);

    v = _mm256_mul_ps(v, scale);
    if (a->bias) {
        v = _mm256_add_ps(v, _mm256_loadu_ps(a->bias + col));
    }
    if (a->w->pair) {
        up = _mm256_mul_ps(up, scale);
        if (a->bias) {
            up = _mm256_add_ps(up, _mm256_loadu_ps(a->bias + a->w->n / 2 + col));
        }
        v = qn_avx2_gate(a->glu, v, up);
    }
    if (a->residual) {
        v = _mm256_add_ps(v, _mm256_loadu_ps(a->residual + m * a->ldr + col));
    }
    if (a->out_type == QN_OUT_BF16) {
        _mm_storeu_si128((__m128i *)((uint16_t *)a->out + m * a->ldo + col), qn_avx2_to_bf16(v));
    } else {
        _mm256_storeu_ps((float *)a->out + m * a->ldo + col, v);
    }
}

/// n <= 16 columns of row m from their sums; `up` is read for a pair only.
static inline void qn_avx2_finish(const struct qn_gemm_args *a, size_t m, size_t col, size_t n,
                                  const float *sums, const float *up)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 u = a->w->pair ? _mm256_load_ps(up + i) : _mm256_setzero_ps();
        qn_avx2_finish8(a, m, col + i, _mm256_load_ps(sums + i), u);
    }
    for (; i < n; i++) {
        qn_gemm_finish(a, m, col + i, sums[i], a->w->pair ? up[i] : 0.0f);
    }
}

/// Rows m … m + rows - 1 of panels p and, unless it is the last alone, p + 1.
/// sums: [2][rows][16], by panel.
static inline void qn_avx2_finish_tile(const struct qn_gemm_args *a, size_t m, size_t rows,
                                       size_t p, size_t n_panels, const float *sums)
{
    const size_t n_steps = a->w->pair ? 1 : n_panels;

    for (size_t i = 0; i < n_steps; i++) {
        size_t col, n;
        qn_gemm_panel_cols(a->w, QN_AVX2_NR, p + i, &col, &n);
        for (size_t r = 0; r < rows; r++) {
            const float *row = sums + (i * rows + r) * QN_AVX2_NR;
            qn_avx2_finish(a, m + r, col, n, row, row + rows * QN_AVX2_NR);
        }
    }
}

#endif
