// GEMM with f32 accumulation on Armv8-A: activations f32 (or rounded to bf16), weights widened in
// registers. Panel of 16 outputs, tile of 4 rows. Every output is a chain of fused multiply-adds
// along K, cut every 64 inputs (rounding errors of a long chain of equal signs add up) and at
// groups; the pieces are added in order. A row has the same bits whatever the tile.
#include "kernels/gemm.h"

#ifndef __ARM_NEON
#error "built without NEON"
#endif

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "kernels/arm/gemm_arm.h"

enum {
    NR = 16,
    MR = 4,
    CHAIN = 64
};

// ---- panels -------------------------------------------------------------------------------------
// F32 and BF16: [K][16]. Integer kinds, for each group: 16 scales, 16 minima if any, then [g][16]
// bytes (I8) or [g / 2 rounded up][16] bytes, k in the low and k + 1 in the high nibble (I4, +8
// without a minimum).

static size_t cell_bytes(const struct qn_wdesc *w, size_t n_k)
{
    switch (w->kind) {
    case QN_W_F32:
        return n_k * NR * 4;
    case QN_W_BF16:
        return n_k * NR * 2;
    case QN_W_I8:
        return n_k * NR;
    default:
        return (n_k + 1) / 2 * NR;
    }
}

static size_t group_bytes(const struct qn_wdesc *w)
{
    size_t head = NR * sizeof(float) * (w->has_min ? 2 : 1);
    return head + cell_bytes(w, qn_gemm_group(w));
}

static size_t panel_bytes(const struct qn_wdesc *w)
{
    size_t n = qn_gemm_is_int(w) ? group_bytes(w) * qn_gemm_n_groups(w) : cell_bytes(w, w->k);
    return (n + 63) / 64 * 64;
}

static void pack_float(unsigned char *panel, const struct qn_wdesc *w, const void *q, size_t n_rows)
{
    size_t size = w->kind == QN_W_F32 ? 4 : 2;
    for (size_t n = 0; n < n_rows; n++) {
        const unsigned char *row = (const unsigned char *)q + n * w->k * size;
        for (size_t k = 0; k < w->k; k++) {
            memcpy(panel + (k * NR + n) * size, row + k * size, size);
        }
    }
}

static void pack_panel(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                       size_t n_rows)
{
    memset(panel, 0, panel_bytes(w));
    if (!qn_gemm_is_int(w)) {
        pack_float(panel, w, rows->q, n_rows);
        return;
    }
    size_t g = qn_gemm_group(w), n_groups = qn_gemm_n_groups(w);
    size_t head = NR * (w->has_min ? 2u : 1u);
    const uint8_t bias = w->kind == QN_W_I4 && !w->has_min ? 8 : 0;
    for (size_t i = 0; i < n_groups; i++) {
        float *scale = (float *)((unsigned char *)panel + i * group_bytes(w));
        uint8_t *cells = (uint8_t *)(scale + head);
        for (size_t n = 0; n < n_rows; n++) {
            const int8_t *q = (const int8_t *)rows->q + n * w->k + i * g;
            scale[n] = rows->scale[n * n_groups + i];
            if (w->has_min) {
                scale[NR + n] = rows->min[n * n_groups + i];
            }
            for (size_t k = 0; k < g; k++) {
                if (w->kind == QN_W_I8) {
                    cells[k * NR + n] = (uint8_t)q[k];
                } else {
                    cells[k / 2 * NR + n] |= (uint8_t)((uint8_t)(q[k] + bias) << (k % 2 * 4));
                }
            }
        }
    }
}

// ---- lhs: rows of f32, K apart ------------------------------------------------------------------

static size_t lhs_bytes(const struct qn_wdesc *w, size_t m)
{
    return m * w->k * sizeof(float);
}

static void lhs_pack_f32(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                         size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        memcpy((float *)lhs + r * w->k, x + r * ldx, w->k * sizeof(float));
    }
}

static void lhs_pack_bf16(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                          size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        float *out = (float *)lhs + r * w->k;
        for (size_t k = 0; k < w->k; k++) {
            out[k] = qn_bf16_to_f32(qn_f32_to_bf16(x[r * ldx + k]));
        }
    }
}

// ---- tile ---------------------------------------------------------------------------------------

struct scales {
    float32x4_t s[4], m[4];
};

ARM_INLINE void widen_s8(float32x4_t w[4], int8x16_t q)
{
    int16x8_t lo = vmovl_s8(vget_low_s8(q)), hi = vmovl_s8(vget_high_s8(q));
    w[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo)));
    w[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo)));
    w[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi)));
    w[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi)));
}

// The 16 weights of input k (counted from the start of `cells`).
ARM_INLINE void load_weights(float32x4_t w[4], const enum qn_wkind kind, const bool has_min,
                             const uint8_t *cells, size_t k, const struct scales *sc)
{
    if (kind == QN_W_F32) {
        const float *p = (const float *)(const void *)cells + k * NR;
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            w[j] = vld1q_f32(p + 4 * j);
        }
        return;
    }
    if (kind == QN_W_BF16) {
        const uint16_t *p = (const uint16_t *)(const void *)cells + k * NR;
        uint16x8_t a = vld1q_u16(p), b = vld1q_u16(p + 8);
        w[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(a), 16));
        w[1] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(a), 16));
        w[2] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(b), 16));
        w[3] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(b), 16));
        return;
    }
    if (kind == QN_W_I8) {
        widen_s8(w, vld1q_s8((const int8_t *)cells + k * NR));
    } else {
        uint8x16_t b = vld1q_u8(cells + k / 2 * NR);
        b = k % 2 == 0 ? vandq_u8(b, vdupq_n_u8(15)) : vshrq_n_u8(b, 4);
        int8x16_t q = vreinterpretq_s8_u8(b);
        widen_s8(w, has_min ? q : vsubq_s8(q, vdupq_n_s8(8)));
    }
    ARM_UNROLL
    for (int j = 0; j < 4; j++) {
        w[j] = has_min ? vfmaq_f32(sc->m[j], w[j], sc->s[j]) : vmulq_f32(w[j], sc->s[j]);
    }
}

ARM_INLINE void tile(float *out, const unsigned char *panel, const struct qn_wdesc *wd,
                     const enum qn_wkind kind, const bool has_min, const float *x, const int rows)
{
    float32x4_t total[MR][4];
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            total[r][j] = vdupq_n_f32(0);
        }
    }
    const bool grouped = kind == QN_W_I8 || kind == QN_W_I4;
    const size_t ldx = wd->k;
    const size_t g = grouped ? qn_gemm_group(wd) : wd->k;
    const size_t stride = grouped ? group_bytes(wd) : 0;
    for (size_t k0 = 0; k0 < wd->k; k0 += g, panel += stride) {
        struct scales sc;
        const uint8_t *cells = panel;
        if (grouped) {
            const float *s = (const float *)(const void *)panel;
            ARM_UNROLL
            for (int j = 0; j < 4; j++) {
                sc.s[j] = vld1q_f32(s + 4 * j);
                sc.m[j] = has_min ? vld1q_f32(s + NR + 4 * j) : vdupq_n_f32(0);
            }
            cells = (const uint8_t *)(s + NR * (has_min ? 2 : 1));
        }
        for (size_t c0 = 0; c0 < g; c0 += CHAIN) {
            const size_t c1 = g - c0 < CHAIN ? g : c0 + CHAIN;
            float32x4_t acc[MR][4];
            ARM_UNROLL
            for (int r = 0; r < rows; r++) {
                ARM_UNROLL
                for (int j = 0; j < 4; j++) {
                    acc[r][j] = vdupq_n_f32(0);
                }
            }
            for (size_t k = c0; k < c1; k++) {
                float32x4_t w[4];
                load_weights(w, kind, has_min, cells, k, &sc);
                ARM_UNROLL
                for (int r = 0; r < rows; r++) {
                    float32x4_t a = vld1q_dup_f32(x + (size_t)r * ldx + k0 + k);
                    ARM_UNROLL
                    for (int j = 0; j < 4; j++) {
                        acc[r][j] = vfmaq_f32(acc[r][j], w[j], a);
                    }
                }
            }
            ARM_UNROLL
            for (int r = 0; r < rows; r++) {
                ARM_UNROLL
                for (int j = 0; j < 4; j++) {
                    total[r][j] = vaddq_f32(total[r][j], acc[r][j]);
                }
            }
        }
    }
    ARM_UNROLL
    for (int r = 0; r < rows; r++) {
        ARM_UNROLL
        for (int j = 0; j < 4; j++) {
            vst1q_f32(out + r * NR + 4 * j, total[r][j]);
        }
    }
}

ARM_INLINE void tile_rows(float *out, const unsigned char *panel, const struct qn_wdesc *w,
                          const enum qn_wkind kind, const bool has_min, const float *x, size_t rows)
{
    switch (rows) {
    case 1:
        tile(out, panel, w, kind, has_min, x, 1);
        break;
    case 2:
        tile(out, panel, w, kind, has_min, x, 2);
        break;
    case 3:
        tile(out, panel, w, kind, has_min, x, 3);
        break;
    default:
        tile(out, panel, w, kind, has_min, x, 4);
        break;
    }
}

#define DEFINE_TILE(NAME, KIND, MIN)                                                               \
    static void NAME(float *out, const void *panel, const struct qn_wdesc *w, const void *lhs,     \
                     size_t m, size_t rows)                                                        \
    {                                                                                              \
        tile_rows(out, panel, w, KIND, MIN, (const float *)lhs + m * w->k, rows);                  \
    }
DEFINE_TILE(tile_f32, QN_W_F32, false)
DEFINE_TILE(tile_bf16, QN_W_BF16, false)
DEFINE_TILE(tile_i8, QN_W_I8, false)
DEFINE_TILE(tile_i8_min, QN_W_I8, true)
DEFINE_TILE(tile_i4, QN_W_I4, false)
DEFINE_TILE(tile_i4_min, QN_W_I4, true)

// ---- variants -----------------------------------------------------------------------------------

static bool supports(const struct qn_wdesc *w)
{
    return w->n > 0 && w->k > 0 && (!qn_gemm_is_int(w) || w->k % qn_gemm_group(w) == 0);
}

#define DEFINE_VARIANT(ACT_NAME, ACT, LAYOUT, PACK, KIND_NAME, KIND, TILE, TILE_MIN)               \
    static void run_##ACT_NAME##_##KIND_NAME(const struct qn_gemm_args *a, size_t m0, size_t m1,   \
                                             size_t p0, size_t p1)                                 \
    {                                                                                              \
        arm_run(a, m0, m1, p0, p1, MR, NR, panel_bytes(a->w), a->w->has_min ? TILE_MIN : TILE);    \
    }                                                                                              \
    extern const struct qn_gemm_impl qn_gemm_f32_##ACT_NAME##_##KIND_NAME##_neon;                  \
    const struct qn_gemm_impl qn_gemm_f32_##ACT_NAME##_##KIND_NAME##_neon = {                      \
        .name = "gemm_f32_" #ACT_NAME "_" #KIND_NAME "_4x16_neon",                                 \
        .kind = KIND,                                                                              \
        .act = ACT,                                                                                \
        .isa = QN_ISA_NEON,                                                                        \
        .mr = MR,                                                                                  \
        .nr = NR,                                                                                  \
        .kr = 1,                                                                                   \
        .supports = supports,                                                                      \
        .panel_bytes = panel_bytes,                                                                \
        .pack_panel = pack_panel,                                                                  \
        .lhs_layout = LAYOUT,                                                                      \
        .lhs_bytes = lhs_bytes,                                                                    \
        .lhs_pack = PACK,                                                                          \
        .run = run_##ACT_NAME##_##KIND_NAME,                                                       \
    };

#define DEFINE_ACTS(KIND_NAME, KIND, TILE, TILE_MIN)                                               \
    DEFINE_VARIANT(f32, QN_ACT_F32, ARM_LHS_F32, lhs_pack_f32, KIND_NAME, KIND, TILE, TILE_MIN)    \
    DEFINE_VARIANT(bf16, QN_ACT_BF16, ARM_LHS_BF16_WIDE, lhs_pack_bf16, KIND_NAME, KIND, TILE,     \
                   TILE_MIN)

DEFINE_ACTS(f32, QN_W_F32, tile_f32, tile_f32)
DEFINE_ACTS(bf16, QN_W_BF16, tile_bf16, tile_bf16)
DEFINE_ACTS(i8, QN_W_I8, tile_i8, tile_i8_min)
DEFINE_ACTS(i4, QN_W_I4, tile_i4, tile_i4_min)
