// int8 x int8 and int8 x int4 with SDOT: two channels' cells against one row's 8 bytes twice; the
// two partial sums of a channel are added at the end of a group.
#include "kernels/arm/gemm_i8.h"

#ifndef __ARM_FEATURE_DOTPROD
#error "built without dotprod"
#endif

ARM_INLINE int8x16_t twice(const int8_t *p)
{
    int8x8_t v = vld1_s8(p);
    return vcombine_s8(v, v);
}

ARM_INLINE void group_dot(int32x4_t d[][2], const uint8_t *cells, const int8_t *x, size_t ldx,
                          size_t n_steps, const int rows, const enum i8_mode mode)
{
    int32x4_t acc[4][4];
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            acc[r][j] = vdupq_n_s32(0);
        }
    }
    for (size_t s = 0; s < n_steps; s++, cells += 64, x += mode == I8_BYTES ? 16 : 32) {
        int8x16_t lo[4], hi[4];
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            i8_unpack(&lo[j], &hi[j], cells + 16 * j, mode);
        }
        ARM_UNROLL
        for (int r = 0; r < rows; r++) {
            const int8_t *xr = x + (size_t)(r / 2) * ldx + 8 * (r & 1);
            int8x16_t a = twice(xr);
            ARM_UNROLL
            for (int j = 0; j < 4; j++) {
                acc[r][j] = vdotq_s32(acc[r][j], lo[j], a);
            }
            if (mode != I8_BYTES) {
                a = twice(xr + 16);
                ARM_UNROLL
                for (int j = 0; j < 4; j++) {
                    acc[r][j] = vdotq_s32(acc[r][j], hi[j], a);
                }
            }
        }
    }
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        d[r][0] = vpaddq_s32(acc[r][0], acc[r][1]);
        d[r][1] = vpaddq_s32(acc[r][2], acc[r][3]);
    }
}

ARM_INLINE void rows_fn(float *out, const void *panel, const struct qn_wdesc *w, const void *lhs,
                        size_t m, size_t rows, const enum i8_mode mode, const bool has_min)
{
    switch (rows) {
    case 1:
        i8_tile(out, panel, w, lhs, m, 1, mode, has_min);
        break;
    case 2:
        i8_tile(out, panel, w, lhs, m, 2, mode, has_min);
        break;
    case 3:
        i8_tile(out, panel, w, lhs, m, 3, mode, has_min);
        break;
    default:
        i8_tile(out, panel, w, lhs, m, 4, mode, has_min);
        break;
    }
}

I8_DEFINE_VARIANT(i8, QN_W_I8, I8_BYTES, I8_BYTES, 4, dotprod, QN_ISA_DOTPROD, rows_fn)
I8_DEFINE_VARIANT(i4, QN_W_I4, I8_NIBBLE_X16, I8_NIBBLE, 4, dotprod, QN_ISA_DOTPROD, rows_fn)
