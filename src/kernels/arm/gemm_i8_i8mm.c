// int8 x int8 and int8 x int4 with SMMLA: a pair of rows times a pair of channels over 8 inputs.
#include "kernels/arm/gemm_i8.h"

#ifndef __ARM_FEATURE_MATMUL_INT8
#error "built without i8mm"
#endif

ARM_INLINE void group_dot(int32x4_t d[][2], const uint8_t *cells, const int8_t *x, size_t ldx,
                          size_t n_steps, const int rows, const enum i8_mode mode)
{
    const int pairs = (rows + 1) / 2;
    int32x4_t acc[4][4]; // [pair of rows][pair of channels]: (r, c) (r, c+1) (r+1, c) (r+1, c+1)
    ARM_UNROLL
    for (int p = 0; p < pairs; p++) {
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            acc[p][j] = vdupq_n_s32(0);
        }
    }
    for (size_t s = 0; s < n_steps; s++, cells += 64, x += mode == I8_BYTES ? 16 : 32) {
        int8x16_t lo[4], hi[4];
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            i8_unpack(&lo[j], &hi[j], cells + 16 * j, mode);
        }
        ARM_UNROLL
        for (int p = 0; p < pairs; p++) {
            int8x16_t a = vld1q_s8(x + (size_t)p * ldx);
            ARM_UNROLL
            for (int j = 0; j < 4; j++) {
                acc[p][j] = vmmlaq_s32(acc[p][j], a, lo[j]);
            }
        }
        if (mode != I8_BYTES) {
            ARM_UNROLL
            for (int p = 0; p < pairs; p++) {
                int8x16_t a = vld1q_s8(x + (size_t)p * ldx + 16);
                ARM_UNROLL
                for (int j = 0; j < 4; j++) {
                    acc[p][j] = vmmlaq_s32(acc[p][j], a, hi[j]);
                }
            }
        }
    }
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        ARM_UNROLL
        for (int h = 0; h < 2; h++) {
            int32x4_t a = acc[r / 2][2 * h], b = acc[r / 2][2 * h + 1];
            d[r][h] = r % 2 == 0 ? vcombine_s32(vget_low_s32(a), vget_low_s32(b))
                                 : vcombine_s32(vget_high_s32(a), vget_high_s32(b));
        }
    }
}

// Eight rows where the f32 sums are touched rarely, four where they are touched every few steps.
ARM_INLINE void rows_fn(float *out, const void *panel, const struct qn_wdesc *w, const void *lhs,
                        size_t m, size_t rows, const enum i8_mode mode, const bool has_min)
{
    if (rows > 4 && qn_gemm_group(w) < 128) {
        i8_tile(out, panel, w, lhs, m, 4, mode, has_min);
        out += 4 * I8_NR;
        m += 4;
        rows -= 4;
    }
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
    case 4:
        i8_tile(out, panel, w, lhs, m, 4, mode, has_min);
        break;
    case 5:
        i8_tile(out, panel, w, lhs, m, 5, mode, has_min);
        break;
    case 6:
        i8_tile(out, panel, w, lhs, m, 6, mode, has_min);
        break;
    case 7:
        i8_tile(out, panel, w, lhs, m, 7, mode, has_min);
        break;
    default:
        i8_tile(out, panel, w, lhs, m, 8, mode, has_min);
        break;
    }
}

I8_DEFINE_VARIANT(i8, QN_W_I8, I8_BYTES, I8_BYTES, 8, i8mm, QN_ISA_I8MM, rows_fn)
I8_DEFINE_VARIANT(i4, QN_W_I4, I8_NIBBLE_X16, I8_NIBBLE, 8, i8mm, QN_ISA_I8MM, rows_fn)
