#ifndef QN_KERNELS_GEMM_H
#define QN_KERNELS_GEMM_H

#include "kernels/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// y[m][n] = epilogue( sum over k of x[m][k] * W[n][k] )
///
/// Weights are packed once into panels of `nr` outputs; the panel is the unit of threading. Every
/// output element is summed along K in one fixed order that depends on the variant alone, never on
/// M, on neighbouring rows, on the split or on the thread: a row has the same bits alone and in a
/// batch.

enum qn_wkind {
    QN_W_F32,
    QN_W_BF16,
    QN_W_I8, ///< signed bytes, scale per row or per group of K, optional minimum
    QN_W_I4, ///< 4-bit values, scale per row or per group of K, optional minimum
    QN_N_WKINDS
};

/// What GEMM inputs are rounded to.
enum qn_act {
    QN_ACT_F32,  ///< no rounding; weights are widened
    QN_ACT_BF16, ///< rounded to bf16
    QN_ACT_I8,   ///< dynamic int8: one scale per token and activation group (integer kinds only)
    QN_N_ACTS
};

/// Shape and kind of one weight matrix W[n][k].
struct qn_wdesc {
    enum qn_wkind kind;
    size_t n;     ///< outputs, both halves of a gate/up pair counted
    size_t k;     ///< inputs
    size_t group; ///< K per scale; 0: one scale per row. Divides k (the loader sees to it)
    bool has_min; ///< w = scale * q + min; else w = scale * q
    bool pair;    ///< gate/up pair: n = 2 * d_ff, see qn_gemm_args.glu
};

/// Unpacked rows handed to the packer, row-major, one value per element.
struct qn_wrows {
    const void *q;      ///< F32: float[k]; BF16: uint16_t[k]; I8, I4: int8_t[k] per row.
                        ///< I4 is in [-8, 7] without a minimum, in [0, 15] with one.
    const float *scale; ///< [rows][groups], integer kinds; may be negative
    const float *min;   ///< [rows][groups] when has_min
};

/// Gated activations of a pair: out = act(gate) * up.
enum qn_glu {
    QN_GLU_NONE,
    QN_GLU_SILU,
    QN_GLU_GELU_TANH
};

enum qn_out {
    QN_OUT_F32,
    QN_OUT_BF16
};

struct qn_gemm_args {
    const struct qn_wdesc *w;
    const void *rhs; ///< packed panels
    const void *lhs; ///< packed by the same variant's lhs_pack, rows 0 … m-1
    size_t m;
    void *out;  ///< [m][ldo] of out_type; pair: n/2 columns
    size_t ldo; ///< elements
    enum qn_out out_type;
    float scale;           ///< multiplies the sum, before bias; 1 usually
    const float *bias;     ///< [n] (pair: gate then up, n/2 each) or NULL
    const float *residual; ///< [m][ldr] f32 added last, or NULL; may be out itself
    size_t ldr;
    enum qn_glu glu; ///< QN_GLU_NONE unless w->pair
};

/// Order of application: (sum * scale) + bias, then the GLU of a pair, then + residual, then the
/// rounding to out_type.

/// One variant: kind x activation x tier. Functions take pointers, sizes and a range; they never
/// allocate, lock, log or keep state. Edges are theirs: every M, N, K >= 1 works.
struct qn_gemm_impl {
    const char *name; ///< "gemm_f32_i8_i4_4x16_avx2": output, lhs, rhs, mr x nr, tier
    enum qn_wkind kind;
    enum qn_act act;
    enum qn_isa isa;
    unsigned mr, nr, kr;
    /// Whether this variant takes the shape (group sizes, minimum, K); generic takes all.
    bool (*supports)(const struct qn_wdesc *w);
    /// Bytes of one packed panel of nr outputs, a multiple of 64. Panels are contiguous.
    size_t (*panel_bytes)(const struct qn_wdesc *w);
    /// Pack n_rows <= nr consecutive rows into a panel; missing rows and the tail of K are zero.
    /// Pair: panel 2i holds gate rows [i * nr, …), panel 2i + 1 the same up rows
    /// (qn_gemm_panel_rows).
    void (*pack_panel)(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                       size_t n_rows);
    /// Two matrices may share a packed lhs when lhs_layout, k and qn_gemm_act_group are equal.
    uint32_t lhs_layout;
    size_t (*lhs_bytes)(const struct qn_wdesc *w, size_t m);
    /// Convert rows [m0, m1) of x (f32, row stride ldx) into the packed lhs. m0 is a multiple of
    /// mr; ranges of different calls do not touch the same cache block beyond that.
    void (*lhs_pack)(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                     size_t m0, size_t m1);
    /// Rows [m0, m1) (m0 a multiple of mr) times panels [p0, p1) (pair: both even).
    void (*run)(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0, size_t p1);
};

/// K per activation scale under QN_ACT_I8: for grouped kinds the smallest multiple of the group
/// that is at least 32 (the last may be short), K for row scales. Quantisation: s = max|x| / 127
/// over the group, q = round-to-nearest-even(x * (127 / max|x|)) in
/// [-127, 127]; a group with max below 1e-30 has s = 0 and all q = 0; a non-finite input makes the
/// row's outputs NaN.
///
/// The sum of QN_ACT_I8 has one order in all tiers, so all have the same bits. For the weight
/// groups G in ascending order, with D = sum of q_x * q_w and A = sum of q_x over the group, exact
/// integers, and s_x the scale of the activation group that G lies in, each operation rounded to
/// f32:
///   acc = fma(D, s_w[G] * s_x, acc), then with a minimum acc = fma(A * s_x, min[G], acc)
/// starting from acc = 0. With float activations a variant's sum is within (K + 16) 2^-24 sum |x w|
/// of generic's, with |w| + 2 |min| for |w| where there is a minimum; within (4 sqrt(K) + 16) 2^-24
/// of it unless the terms are alike, as in constructed cases, so that all roundings go one way. The
/// gates of a pair have one sequence of operations in all tiers too (qn_gemm_gate in gemm_util.h).
size_t qn_gemm_act_group(const struct qn_wdesc *w);

/// The variant for a shape: the last row of gemm.inc that the CPU and the shape allow. Never NULL
/// for a valid pair (QN_ACT_I8 with a float kind is not one: NULL).
const struct qn_gemm_impl *qn_gemm_select(const struct qn_wdesc *w, enum qn_act act);
/// All variants, for checks and benches.
const struct qn_gemm_impl *const *qn_gemm_impls(size_t *out_n);

/// Panels of a packed matrix, and its bytes.
size_t qn_gemm_n_panels(const struct qn_gemm_impl *g, const struct qn_wdesc *w);
size_t qn_gemm_rhs_bytes(const struct qn_gemm_impl *g, const struct qn_wdesc *w);
/// Source rows of panel p: first row and how many (1 … nr).
void qn_gemm_panel_rows(const struct qn_gemm_impl *g, const struct qn_wdesc *w, size_t p,
                        size_t *out_row0, size_t *out_n_rows);

const char *qn_wkind_name(enum qn_wkind kind);
const char *qn_act_name(enum qn_act act);

#endif
