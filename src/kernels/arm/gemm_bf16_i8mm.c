// bf16 x bf16 with BFMMLA: a pair of rows times a pair of channels over 4 inputs. For every M,
// since BFMMLA's rounding (odd, denormals flushed) differs from that of FMA chains: one
// instruction, one order, the same bits for a row alone and in a batch.
//
// Panel of 8 outputs: [K / 4][8][4] bf16. Lhs, for each pair of rows: [K / 4][2][4] bf16. Tails are
// zero.
#include "kernels/arm/gemm_arm.h"

#ifndef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#error "built without bf16"
#endif

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

enum {
    NR = 8,
    MR = 8
};

static size_t panel_bytes(const struct qn_wdesc *w)
{
    return qn_round_up(w->k, 4) * NR * sizeof(uint16_t);
}

static bool supports(const struct qn_wdesc *w)
{
    return w->n > 0 && w->k > 0;
}

static void pack_panel(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                       size_t n_rows)
{
    uint16_t *cells = panel;
    memset(panel, 0, panel_bytes(w));
    for (size_t n = 0; n < n_rows; n++) {
        const uint16_t *row = (const uint16_t *)rows->q + n * w->k;
        for (size_t k = 0; k < w->k; k++) {
            cells[k / 4 * NR * 4 + n * 4 + k % 4] = row[k];
        }
    }
}

static size_t pair_elems(const struct qn_wdesc *w)
{
    return qn_round_up(w->k, 32) * 2;
}

static size_t lhs_bytes(const struct qn_wdesc *w, size_t m)
{
    return (m + 1) / 2 * pair_elems(w) * sizeof(uint16_t);
}

static void lhs_pack(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                     size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        uint16_t *pair = (uint16_t *)lhs + r / 2 * pair_elems(w);
        if (r % 2 == 0) {
            memset(pair, 0, pair_elems(w) * sizeof *pair);
        }
        for (size_t k = 0; k < w->k; k++) {
            pair[k / 4 * 8 + r % 2 * 4 + k % 4] = qn_f32_to_bf16(x[r * ldx + k]);
        }
    }
}

ARM_INLINE bfloat16x8_t load_bf16(const uint16_t *p)
{
    return vreinterpretq_bf16_u16(vld1q_u16(p));
}

ARM_INLINE void tile_rows(float *out, const uint16_t *cells, const struct qn_wdesc *w,
                          const uint16_t *x, const int pairs)
{
    const size_t ldx = pair_elems(w);
    float32x4_t acc[4][4];
    ARM_UNROLL
    for (int p = 0; p < pairs; p++) {
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            acc[p][j] = vdupq_n_f32(0);
        }
    }
    for (size_t k = 0; k < w->k; k += 4, cells += NR * 4, x += 8) {
        bfloat16x8_t b[4];
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            b[j] = load_bf16(cells + 8 * j);
        }
        ARM_UNROLL
        for (int p = 0; p < pairs; p++) {
            bfloat16x8_t a = load_bf16(x + (size_t)p * ldx);
            ARM_UNROLL
            for (int j = 0; j < 4; j++) {
                acc[p][j] = vbfmmlaq_f32(acc[p][j], a, b[j]);
            }
        }
    }
    ARM_UNROLL
    for (int p = 0; p < pairs; p++) {
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            vst1_f32(out + 2 * p * NR + 2 * j, vget_low_f32(acc[p][j]));
            vst1_f32(out + (2 * p + 1) * NR + 2 * j, vget_high_f32(acc[p][j]));
        }
    }
}

static void tile(float *out, const void *panel, const struct qn_wdesc *w, const void *lhs, size_t m,
                 size_t rows)
{
    const uint16_t *x = (const uint16_t *)lhs + m / 2 * pair_elems(w);
    switch ((rows + 1) / 2) {
    case 1:
        tile_rows(out, panel, w, x, 1);
        break;
    case 2:
        tile_rows(out, panel, w, x, 2);
        break;
    case 3:
        tile_rows(out, panel, w, x, 3);
        break;
    default:
        tile_rows(out, panel, w, x, 4);
        break;
    }
}

static void run(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0, size_t p1)
{
    arm_run(a, m0, m1, p0, p1, MR, NR, panel_bytes(a->w), tile);
}

extern const struct qn_gemm_impl qn_gemm_f32_bf16_bf16_i8mm;
const struct qn_gemm_impl qn_gemm_f32_bf16_bf16_i8mm = {
    .name = "gemm_f32_bf16_bf16_8x8_i8mm",
    .kind = QN_W_BF16,
    .act = QN_ACT_BF16,
    .isa = QN_ISA_I8MM,
    .mr = MR,
    .nr = NR,
    .kr = 4,
    .supports = supports,
    .panel_bytes = panel_bytes,
    .pack_panel = pack_panel,
    .lhs_layout = ARM_LHS_BF16_PAIRS,
    .lhs_bytes = lhs_bytes,
    .lhs_pack = lhs_pack,
    .run = run,
};
