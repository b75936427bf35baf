// int8 x int8 and int8 x int4 on Armv8-A: widening multiplies with pairwise accumulation. Exact:
// a product is at most 127 * 128, two of them are added in 32 bits.
#include "kernels/arm/gemm_i8.h"

#ifndef __ARM_NEON
#error "built without NEON"
#endif

ARM_INLINE void group_dot(int32x4_t d[][2], const uint8_t *cells, const int8_t *x, size_t ldx,
                          size_t n_steps, const int rows, const enum i8_mode mode)
{
    int32x4_t acc[2][8];
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        ARM_UNROLL
        for (int c = 0; c < 8; c++) {
            acc[r][c] = vdupq_n_s32(0);
        }
    }
    for (size_t s = 0; s < n_steps; s++, cells += 64, x += mode == I8_BYTES ? 16 : 32) {
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            int8x16_t lo, hi;
            i8_unpack(&lo, &hi, cells + 16 * j, mode);
            ARM_UNROLL
            for (int r = 0; r < rows; r++) {
                const int8_t *xr = x + (size_t)(r / 2) * ldx + 8 * (r & 1);
                int8x8_t a = vld1_s8(xr);
                acc[r][2 * j] = vpadalq_s16(acc[r][2 * j], vmull_s8(vget_low_s8(lo), a));
                acc[r][2 * j + 1] = vpadalq_s16(acc[r][2 * j + 1], vmull_s8(vget_high_s8(lo), a));
                if (mode != I8_BYTES) {
                    a = vld1_s8(xr + 16);
                    acc[r][2 * j] = vpadalq_s16(acc[r][2 * j], vmull_s8(vget_low_s8(hi), a));
                    acc[r][2 * j + 1] =
                        vpadalq_s16(acc[r][2 * j + 1], vmull_s8(vget_high_s8(hi), a));
                }
            }
        }
    }
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        ARM_UNROLL
        for (int h = 0; h < 2; h++) {
            int32x4_t *a = &acc[r][4 * h];
            d[r][h] = vpaddq_s32(vpaddq_s32(a[0], a[1]), vpaddq_s32(a[2], a[3]));
        }
    }
}

ARM_INLINE void rows_fn(float *out, const void *panel, const struct qn_wdesc *w, const void *lhs,
                        size_t m, size_t rows, const enum i8_mode mode, const bool has_min)
{
    if (rows == 1) {
        i8_tile(out, panel, w, lhs, m, 1, mode, has_min);
    } else {
        i8_tile(out, panel, w, lhs, m, 2, mode, has_min);
    }
}

I8_DEFINE_VARIANT(i8, QN_W_I8, I8_BYTES, I8_BYTES, 2, neon, QN_ISA_NEON, rows_fn)
I8_DEFINE_VARIANT(i4, QN_W_I4, I8_NIBBLE_X16, I8_NIBBLE, 2, neon, QN_ISA_NEON, rows_fn)
