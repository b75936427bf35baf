#ifndef QN_KERNELS_ARM_GEMM_ARM_H
#define QN_KERNELS_ARM_GEMM_ARM_H

#include "kernels/gemm.h"
#include "kernels/gemm_util.h"

/// What the Arm GEMM variants share, header-only: each is built with its own tier's flags.

#define ARM_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define ARM_UNROLL _Pragma("unroll")
#else
#define ARM_UNROLL _Pragma("GCC unroll 16")
#endif

/// Packed-lhs layouts of the Arm variants.
enum {
    ARM_LHS_F32 = QN_LHS_ARM,
    ARM_LHS_BF16_WIDE, ///< rounded to bf16, kept as f32
    ARM_LHS_BF16_PAIRS,
    ARM_LHS_I8_PAIRS
};

/// Sums of rows [m, m + rows) times one panel, before any epilogue: out[rows][nr].
typedef void arm_tile_fn(float *out, const void *panel, const struct qn_wdesc *w, const void *lhs,
                         size_t m, size_t rows);

enum {
    ARM_TILE_MAX = 128
};

/// The loops around a tile: panels outermost, so that a panel is read from memory once.
ARM_INLINE void arm_run(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0, size_t p1,
                        size_t mr, size_t nr, size_t panel_bytes, arm_tile_fn *tile)
{
    const size_t step = a->w->pair ? 2 : 1;
    float sum[ARM_TILE_MAX], up[ARM_TILE_MAX] = {0};

    for (size_t p = p0; p < p1; p += step) {
        const unsigned char *panel = (const unsigned char *)a->rhs + p * panel_bytes;
        size_t col0, n;
        qn_gemm_panel_cols(a->w, nr, p, &col0, &n);
        for (size_t m = m0; m < m1; m += mr) {
            size_t rows = m1 - m < mr ? m1 - m : mr;
            tile(sum, panel, a->w, a->lhs, m, rows);
            if (a->w->pair) {
                tile(up, panel + panel_bytes, a->w, a->lhs, m, rows);
            }
            for (size_t r = 0; r < rows; r++) {
                for (size_t c = 0; c < n; c++) {
                    qn_gemm_finish(a, m + r, col0 + c, sum[r * nr + c], up[r * nr + c]);
                }
            }
        }
    }
}

#endif
