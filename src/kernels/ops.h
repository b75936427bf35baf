#ifndef QN_KERNELS_OPS_H
#define QN_KERNELS_OPS_H

#include "kernels/cpu.h"

#include <stddef.h>
#include <stdint.h>

/// Elementwise and row operations. One table per tier, chosen once by qn_ops_get(). All reductions
/// have one fixed order per tier, so a row has the same bits whatever its neighbours.

/// Root-mean-square norm of each row: y = x / sqrt(mean(x^2) + eps) * w.
/// @param[out] y     [rows][ldy] f32, may be x itself when ldx == ldy, else no overlap.
/// @param[in]  x     [rows][ldx] f32; NaN and inf propagate.
/// @param[in]  w     [dim] f32 or NULL (weightless); Gemma's 1 + w is folded in at load.
/// @param      eps   > 0, config key rms_norm_eps.
/// The sum of squares must be within f32. Within 16 ulp of generic. Source: arXiv:1910.07467; eps
/// inside the root as in Hugging Face LlamaRMSNorm.
typedef void qn_rmsnorm_fn(float *y, size_t ldy, const float *x, size_t ldx, const float *w,
                           size_t rows, size_t dim, float eps);

/// Rotate-half rotary embedding in place on n_heads heads of one token:
/// (x_i, x_{i+h}) -> (x_i c_i - x_{i+h} s_i, x_{i+h} c_i + x_i s_i) for i < n_pairs, h = pair
/// distance. cos and sin are [n_pairs], already multiplied by the attention factor; dims that are
/// not in a pair stay as they are.
typedef void qn_rope_fn(float *x, size_t n_heads, size_t head_dim, size_t n_pairs,
                        size_t pair_distance, const float *cos_t, const float *sin_t);

/// y = act(gate) * up. y may be gate or up. NaN and inf propagate.
/// silu(x) = x / (1 + e^-x); gelu_tanh(x) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
typedef void qn_glu_fn(float *y, const float *gate, const float *up, size_t n);

/// y += x * s
typedef void qn_axpy_fn(float *y, const float *x, float s, size_t n);
/// x *= s
typedef void qn_scale_fn(float *x, float s, size_t n);
/// x = c * tanh(x / c)
typedef void qn_softcap_fn(float *x, float c, size_t n);

/// Largest of n >= 1 values and its lowest index; NaN never wins unless all are NaN (then index 0).
typedef void qn_argmax_fn(const float *x, size_t n, float *out_max, size_t *out_index);
/// log(sum(exp(x))), stable; terms within 2 ulp, summed in a fixed order, in double above a block.
/// NaN when a value is; else +inf when one is, -inf when all are.
typedef float qn_logsumexp_fn(const float *x, size_t n);
/// In place softmax of x * inv_temperature (> 0, finite). Terms below e^-87 of the largest are
/// exactly 0 (generic: those that f32 cannot hold). x holds no NaN, no +inf, and not only -inf.
typedef void qn_softmax_fn(float *x, size_t n, float inv_temperature);

struct qn_ops {
    const char *name; ///< tier
    enum qn_isa isa;
    qn_rmsnorm_fn *rmsnorm;
    qn_rope_fn *rope;
    qn_glu_fn *glu_silu;
    qn_glu_fn *glu_gelu_tanh;
    qn_axpy_fn *axpy;
    qn_scale_fn *scale;
    qn_softcap_fn *softcap;
    qn_argmax_fn *argmax;
    qn_logsumexp_fn *logsumexp;
    qn_softmax_fn *softmax;
};

/// Table of the tier in force; entries that a tier lacks are those of the tier below.
const struct qn_ops *qn_ops_get(void);
const struct qn_ops *const *qn_ops_tables(size_t *out_n);

/// cos and sin of fp32(pos) * w[i], rounded once in f32, times m; accurate to f32 at angles up to
/// 3e5. Setup code: no variants.
void qn_rope_angles(float *cos_t, float *sin_t, const float *w, size_t n_pairs, size_t pos,
                    float m);

#endif
