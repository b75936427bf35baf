#ifndef QN_KERNELS_ARM_GEMM_I8_H
#define QN_KERNELS_ARM_GEMM_I8_H

// int8 activations x I8 and I4 weights on Arm, all but the inner product: a tier's file defines
// group_dot, declared below.
//
// Weight panel of 8 outputs, for each group: 8 scales, 8 minima if any, then cells of 8 bytes:
//   I8  [g / 8][8]:  cell (s, n) holds q[n][8 s … 8 s + 7]
//   I4  [g / 16][8]: byte j holds q[n][16 s + j] in the low and q[n][16 s + 8 + j] in the high
//       nibble; two's complement without a minimum, unsigned with one
// Packed lhs, for each pair of rows: scales [2][n_scales], sums [2][K / 16] (int32, of 16 values
// each), then cells [K / 8][2][8]. A missing second row is zero, and so is the tail of K.

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "kernels/arm/gemm_arm.h"

enum {
    I8_NR = 8
};

// ---- panels -------------------------------------------------------------------------------------

ARM_INLINE size_t i8_group_cells(const struct qn_wdesc *w)
{
    size_t g = qn_gemm_group(w);
    return w->kind == QN_W_I8 ? qn_round_up(g, 8) * I8_NR : qn_round_up(g, 16) / 2 * I8_NR;
}

ARM_INLINE size_t i8_group_bytes(const struct qn_wdesc *w)
{
    return I8_NR * sizeof(float) * (w->has_min ? 2 : 1) + i8_group_cells(w);
}

static size_t i8_panel_bytes(const struct qn_wdesc *w)
{
    return qn_round_up(i8_group_bytes(w) * qn_gemm_n_groups(w), 64);
}

// A group is a whole number of steps, or all of K (whose tail is padded).
static bool i8_supports(const struct qn_wdesc *w)
{
    return w->n > 0 && w->k > 0 && w->k % qn_gemm_group(w) == 0 &&
           (qn_gemm_group(w) % 16 == 0 || qn_gemm_n_groups(w) == 1);
}

static void i8_pack_panel(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                          size_t n_rows)
{
    const size_t g = qn_gemm_group(w), n_groups = qn_gemm_n_groups(w);

    memset(panel, 0, i8_panel_bytes(w));
    for (size_t i = 0; i < n_groups; i++) {
        float *scale = (float *)(void *)((unsigned char *)panel + i * i8_group_bytes(w));
        uint8_t *cells = (uint8_t *)(scale + I8_NR * (w->has_min ? 2 : 1));
        for (size_t n = 0; n < n_rows; n++) {
            const int8_t *q = (const int8_t *)rows->q + n * w->k + i * g;
            scale[n] = rows->scale[n * n_groups + i];
            if (w->has_min) {
                scale[I8_NR + n] = rows->min[n * n_groups + i];
            }
            for (size_t k = 0; k < g; k++) {
                if (w->kind == QN_W_I8) {
                    cells[k / 8 * 64 + n * 8 + k % 8] = (uint8_t)q[k];
                } else {
                    unsigned nibble = (unsigned)q[k] & 15u;
                    cells[k / 16 * 64 + n * 8 + k % 8] |=
                        (uint8_t)(k % 16 < 8 ? nibble : nibble << 4);
                }
            }
        }
    }
}

// ---- lhs ----------------------------------------------------------------------------------------

ARM_INLINE size_t i8_n_scales(const struct qn_wdesc *w)
{
    size_t span = qn_gemm_act_span(w);
    return (w->k + span - 1) / span;
}

ARM_INLINE size_t i8_n_sums(const struct qn_wdesc *w)
{
    return (w->k + 15) / 16;
}

ARM_INLINE size_t i8_head_bytes(const struct qn_wdesc *w)
{
    return qn_round_up(2 * (i8_n_scales(w) * sizeof(float) + i8_n_sums(w) * sizeof(int32_t)), 64);
}

ARM_INLINE size_t i8_pair_bytes(const struct qn_wdesc *w)
{
    return i8_head_bytes(w) + qn_round_up(w->k, 32) * 2;
}

static size_t i8_lhs_bytes(const struct qn_wdesc *w, size_t m)
{
    return (m + 1) / 2 * i8_pair_bytes(w);
}

// Largest magnitude of n values; infinite when one of them is not finite.
ARM_INLINE float i8_top(const float *x, size_t n)
{
    float32x4_t top = vdupq_n_f32(0);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        top = vmaxq_f32(top, vabsq_f32(vld1q_f32(x + i))); // FMAX: a NaN stays
    }
    float best = vmaxvq_f32(top);
    for (; i < n; i++) {
        float mag = fabsf(x[i]);
        best = mag > best || isnan(mag) ? mag : best;
    }
    return isfinite(best) ? best : INFINITY;
}

static void i8_quantise_row(unsigned char *pair, size_t half, const struct qn_wdesc *w,
                            const float *x)
{
    const size_t span = qn_gemm_act_span(w), n_scales = i8_n_scales(w);
    float *scale = (float *)(void *)pair + half * n_scales;
    int32_t *sums = (int32_t *)(void *)((float *)(void *)pair + 2 * n_scales) + half * i8_n_sums(w);
    int8_t *cells = (int8_t *)pair + i8_head_bytes(w) + half * 8;
    bool finite = true;

    for (size_t k0 = 0; k0 < w->k; k0 += span) {
        size_t k1 = w->k - k0 < span ? w->k : k0 + span;
        float factor = 0, top = i8_top(x + k0, k1 - k0);
        finite = finite && isfinite(top);
        scale[k0 / span] = finite ? qn_gemm_act_scale(top, &factor) : 0;
        for (size_t k = k0; k < k1; k++) {
            int32_t q = finite ? vcvtns_s32_f32(x[k] * factor) : 0;
            cells[k / 8 * 16 + k % 8] = (int8_t)q;
            sums[k / 16] += q;
        }
    }
    for (size_t i = 0; !finite && i < n_scales; i++) {
        scale[i] = NAN;
    }
}

static void i8_lhs_pack(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                        size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        unsigned char *pair = (unsigned char *)lhs + r / 2 * i8_pair_bytes(w);
        if (r % 2 == 0) {
            memset(pair, 0, i8_pair_bytes(w));
        }
        i8_quantise_row(pair, r % 2, w, x + r * ldx);
    }
}

// ---- tile ---------------------------------------------------------------------------------------

/// How a group's cells are read. With I8_NIBBLE_X16 the integer sums come out 16 times too large.
enum i8_mode {
    I8_BYTES,
    I8_NIBBLE_X16,
    I8_NIBBLE
};

/// Steps of 8 (I8) or 16 (I4) inputs: cells of `rows` rows whose pairs are `ldx` bytes apart times
/// 8 channels; d[r][0] channels 0-3, d[r][1] channels 4-7.
ARM_INLINE void group_dot(int32x4_t d[][2], const uint8_t *cells, const int8_t *x, size_t ldx,
                          size_t n_steps, const int rows, const enum i8_mode mode);

/// Two vectors (four channel pairs each) of the next 8 inputs, or of 16 for nibbles.
ARM_INLINE void i8_unpack(int8x16_t *lo, int8x16_t *hi, const uint8_t *cells,
                          const enum i8_mode mode)
{
    uint8x16_t b = vld1q_u8(cells);
    if (mode == I8_NIBBLE_X16) {
        *lo = vreinterpretq_s8_u8(vshlq_n_u8(b, 4));
        *hi = vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(0xf0)));
    } else if (mode == I8_NIBBLE) {
        *lo = vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(15)));
        *hi = vreinterpretq_s8_u8(vshrq_n_u8(b, 4));
    } else {
        *lo = vreinterpretq_s8_u8(b);
        *hi = *lo;
    }
}

ARM_INLINE void i8_tile(float *out, const void *panel, const struct qn_wdesc *w, const void *lhs,
                        size_t m, const int rows, const enum i8_mode mode, const bool has_min)
{
    const size_t g = qn_gemm_group(w), span = qn_gemm_act_span(w), n_groups = qn_gemm_n_groups(w);
    const size_t ldx = i8_pair_bytes(w), n_scales = i8_n_scales(w), n_sums = i8_n_sums(w);
    const size_t stride = i8_group_bytes(w);
    const size_t n_steps = mode == I8_BYTES ? (g + 7) / 8 : (g + 15) / 16;
    const unsigned char *pairs = (const unsigned char *)lhs + m / 2 * ldx;
    const int8_t *cells = (const int8_t *)pairs + i8_head_bytes(w);
    const unsigned char *group = panel;
    float32x4_t acc[8][2];

    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        acc[r][0] = vdupq_n_f32(0);
        acc[r][1] = vdupq_n_f32(0);
    }
    for (size_t i = 0; i < n_groups; i++, group += stride) {
        const float *scale = (const float *)(const void *)group;
        int32x4_t d[8][2];
        group_dot(d, (const uint8_t *)(scale + I8_NR * (has_min ? 2 : 1)), cells + i * g * 2, ldx,
                  n_steps, rows, mode);
        const float32x4_t s0 = vld1q_f32(scale), s1 = vld1q_f32(scale + 4);
        ARM_UNROLL
        for (int r = 0; r < rows; r++) {
            const float *head = (const float *)(const void *)(pairs + (size_t)(r / 2) * ldx);
            float sx = head[(size_t)(r & 1) * n_scales + i * g / span];
            if (mode == I8_NIBBLE_X16) {
                d[r][0] = vshrq_n_s32(d[r][0], 4);
                d[r][1] = vshrq_n_s32(d[r][1], 4);
            }
            acc[r][0] = vfmaq_f32(acc[r][0], vcvtq_f32_s32(d[r][0]), vmulq_n_f32(s0, sx));
            acc[r][1] = vfmaq_f32(acc[r][1], vcvtq_f32_s32(d[r][1]), vmulq_n_f32(s1, sx));
            if (has_min) {
                const int32_t *sums =
                    (const int32_t *)(const void *)(head + 2 * n_scales) + (size_t)(r & 1) * n_sums;
                int32_t sum = 0;
                for (size_t j = i * g / 16; j < (i * g + g + 15) / 16; j++) {
                    sum += sums[j];
                }
                float a = (float)sum * sx;
                acc[r][0] = vfmaq_n_f32(acc[r][0], vld1q_f32(scale + 8), a);
                acc[r][1] = vfmaq_n_f32(acc[r][1], vld1q_f32(scale + 12), a);
            }
        }
    }
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        vst1q_f32(out + r * I8_NR, acc[r][0]);
        vst1q_f32(out + r * I8_NR + 4, acc[r][1]);
    }
}

/// The descriptor of one tier's variant. MR is even; TILE_ROWS(tile call with constant rows) is
/// given by the tier.
#define I8_DEFINE_VARIANT(KIND_NAME, KIND, MODE, MODE_MIN, MR_, TIER, ISA, ROWS_FN)                \
    static void tile_##KIND_NAME(float *out, const void *panel, const struct qn_wdesc *w,          \
                                 const void *lhs, size_t m, size_t rows)                           \
    {                                                                                              \
        ROWS_FN(out, panel, w, lhs, m, rows, MODE, false);                                         \
    }                                                                                              \
    static void tile_##KIND_NAME##_min(float *out, const void *panel, const struct qn_wdesc *w,    \
                                       const void *lhs, size_t m, size_t rows)                     \
    {                                                                                              \
        ROWS_FN(out, panel, w, lhs, m, rows, MODE_MIN, true);                                      \
    }                                                                                              \
    static void run_##KIND_NAME(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0,     \
                                size_t p1)                                                         \
    {                                                                                              \
        arm_run(a, m0, m1, p0, p1, MR_, I8_NR, i8_panel_bytes(a->w),                               \
                a->w->has_min ? tile_##KIND_NAME##_min : tile_##KIND_NAME);                        \
    }                                                                                              \
    extern const struct qn_gemm_impl qn_gemm_f32_i8_##KIND_NAME##_##TIER;                          \
    const struct qn_gemm_impl qn_gemm_f32_i8_##KIND_NAME##_##TIER = {                              \
        .name = "gemm_f32_i8_" #KIND_NAME "_" #MR_ "x8_" #TIER,                                    \
        .kind = KIND,                                                                              \
        .act = QN_ACT_I8,                                                                          \
        .isa = ISA,                                                                                \
        .mr = MR_,                                                                                 \
        .nr = I8_NR,                                                                               \
        .kr = 8,                                                                                   \
        .supports = i8_supports,                                                                   \
        .panel_bytes = i8_panel_bytes,                                                             \
        .pack_panel = i8_pack_panel,                                                               \
        .lhs_layout = ARM_LHS_I8_PAIRS,                                                            \
        .lhs_bytes = i8_lhs_bytes,                                                                 \
        .lhs_pack = i8_lhs_pack,                                                                   \
        .run = run_##KIND_NAME,                                                                    \
    };

#endif
