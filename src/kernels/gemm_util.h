#ifndef QN_KERNELS_GEMM_UTIL_H
#define QN_KERNELS_GEMM_UTIL_H

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/gemm.h"

/// What GEMM variants share, header-only so that each is built with its own tier's flags.

/// Packed-lhs layouts. Two variants with the same number read the same bytes.
enum qn_lhs_layout {
    QN_LHS_GENERIC_F32 = 1,
    QN_LHS_GENERIC_BF16,
    QN_LHS_GENERIC_I8,
    QN_LHS_AVX2_F32 = 16,
    QN_LHS_AVX2_BF16,
    QN_LHS_AVX2_I8,
    QN_LHS_ARM = 32 ///< first number of the Arm variants
};

static inline size_t qn_round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

static inline bool qn_gemm_is_int(const struct qn_wdesc *w)
{
    return w->kind == QN_W_I8 || w->kind == QN_W_I4;
}

/// K per weight scale, and scales per row (integer kinds).
static inline size_t qn_gemm_group(const struct qn_wdesc *w)
{
    return w->group ? w->group : w->k;
}
static inline size_t qn_gemm_n_groups(const struct qn_wdesc *w)
{
    return w->k / qn_gemm_group(w);
}

/// qn_gemm_act_group, inline for the packers.
static inline size_t qn_gemm_act_span(const struct qn_wdesc *w)
{
    if (!w->group) {
        return w->k;
    }
    return w->group >= 32 ? w->group : qn_round_up(32, w->group);
}

/// Columns of the output: half of n for a pair.
static inline size_t qn_gemm_n_out(const struct qn_wdesc *w)
{
    return w->pair ? w->n / 2 : w->n;
}

/// exp(x) for the gates below: x clamped to [-87, 88] (the gates are flat there), within 2 ulp, NaN
/// stays. Each step is one rounded operation, so vector code that mirrors them has the same bits.
/// Range reduction by ln 2 in two parts; coefficients: Cephes expf.
static inline float qn_gemm_exp(float x)
{
    x = 88.0f < x ? 88.0f : x;
    x = -87.0f > x ? -87.0f : x;
    float n = fmaf(x, 1.44269504f, 12582912.0f) - 12582912.0f; // to nearest integer
    float r = fmaf(n, -0.693359375f, x);
    r = fmaf(n, 2.12194440e-4f, r);
    float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    if (isnan(x)) {
        return x; // the cast below is undefined for it
    }
    return p * qn_f32_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

/// act(gate) * up. GELU's tanh form: 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)).
static inline float qn_gemm_gate(enum qn_glu glu, float gate, float up)
{
    if (glu == QN_GLU_SILU) {
        return gate / (1.0f + qn_gemm_exp(-gate)) * up;
    }
    if (glu == QN_GLU_GELU_TANH) {
        float cube = gate * gate * gate;
        float u = fmaf(0.044715f, cube, gate) * -1.5957691216f; // -2 sqrt(2 / pi)
        return gate / (1.0f + qn_gemm_exp(u)) * up;
    }
    return gate;
}

/// Epilogue of one output element: the order that gemm.h states. `up` counts for a pair only.
static inline void qn_gemm_finish(const struct qn_gemm_args *a, size_t m, size_t col, float sum,
                                  float up)
{
    float v = sum * a->scale;

    if (a->bias) {
        v += a->bias[col];
    }
    if (a->w->pair) {
        up *= a->scale;
        if (a->bias) {
            up += a->bias[a->w->n / 2 + col];
        }
        v = qn_gemm_gate(a->glu, v, up);
    }
    if (a->residual) {
        v += a->residual[m * a->ldr + col];
    }
    if (a->out_type == QN_OUT_BF16) {
        ((uint16_t *)a->out)[m * a->ldo + col] = qn_f32_to_bf16(v);
    } else {
        ((float *)a->out)[m * a->ldo + col] = v;
    }
}

/// Where a panel's outputs go: first column and how many.
static inline void qn_gemm_panel_cols(const struct qn_wdesc *w, size_t nr, size_t p,
                                      size_t *out_col0, size_t *out_n)
{
    size_t n = qn_gemm_n_out(w), col0 = (w->pair ? p / 2 : p) * nr;

    *out_col0 = col0;
    *out_n = n - col0 < nr ? n - col0 : nr;
}

/// Scale of one activation group (gemm.h, qn_gemm_act_group) and the factor to quantise it with.
/// `top` is the largest magnitude.
static inline float qn_gemm_act_scale(float top, float *out_factor)
{
    if (top < 1e-30f) {
        *out_factor = 0.0f;
        return 0.0f;
    }
    *out_factor = 127.0f / top;
    return top / 127.0f;
}

#endif
