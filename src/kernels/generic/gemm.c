#include "kernels/gemm.h"

#include "kernels/gemm_util.h"

/// The reference of every variant, and what CPUs without a faster one run. A panel holds its rows
/// one after another ([NR][k], nibbles with the even k low), then their scales and minima.
enum {
    NR = 8,
    ROWS = 8 ///< rows that share a widened weight
};

static size_t row_bytes(const struct qn_wdesc *w)
{
    switch (w->kind) {
    case QN_W_F32:
        return w->k * sizeof(float);
    case QN_W_BF16:
        return w->k * sizeof(uint16_t);
    case QN_W_I8:
        return w->k;
    default:
        return (w->k + 1) / 2;
    }
}

static bool supports(const struct qn_wdesc *w)
{
    return w->n > 0 && w->k > 0 && (!qn_gemm_is_int(w) || w->k % qn_gemm_group(w) == 0);
}

static size_t scales_offset(const struct qn_wdesc *w)
{
    return qn_round_up(NR * row_bytes(w), 64);
}

static size_t panel_bytes(const struct qn_wdesc *w)
{
    size_t n_scales = qn_gemm_is_int(w) ? NR * qn_gemm_n_groups(w) * (w->has_min ? 2 : 1) : 0;

    return qn_round_up(scales_offset(w) + n_scales * sizeof(float), 64);
}

static void pack_panel(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                       size_t n_rows)
{
    const size_t n_bytes = row_bytes(w);
    unsigned char *q = panel;

    memset(panel, 0, panel_bytes(w));
    if (w->kind != QN_W_I4) {
        memcpy(q, rows->q, n_rows * n_bytes);
    } else {
        const int8_t *src = rows->q;
        for (size_t r = 0; r < n_rows; r++) {
            for (size_t k = 0; k < w->k; k++) {
                unsigned nibble = (unsigned)src[r * w->k + k] & 15u;
                q[r * n_bytes + k / 2] |= (unsigned char)(k % 2 ? nibble << 4 : nibble);
            }
        }
    }
    if (qn_gemm_is_int(w)) {
        const size_t n_groups = qn_gemm_n_groups(w);
        float *scale = (float *)(q + scales_offset(w));
        memcpy(scale, rows->scale, n_rows * n_groups * sizeof *scale);
        if (w->has_min) {
            memcpy(scale + NR * n_groups, rows->min, n_rows * n_groups * sizeof *scale);
        }
    }
}

/// One packed row of weights.
struct wrow {
    const struct qn_wdesc *w;
    const unsigned char *q;
    const float *scale, *min;
};

static struct wrow weight_row(const struct qn_wdesc *w, const void *panel, size_t r)
{
    const unsigned char *p = panel;
    const size_t n_groups = qn_gemm_is_int(w) ? qn_gemm_n_groups(w) : 0;
    const float *scale = (const float *)(p + scales_offset(w));

    return (struct wrow){.w = w,
                         .q = p + r * row_bytes(w),
                         .scale = scale + r * n_groups,
                         .min = scale + (NR + r) * n_groups};
}

static int weight_int(const struct wrow *row, size_t k)
{
    if (row->w->kind == QN_W_I8) {
        return (int8_t)row->q[k];
    }
    int nibble = k % 2 ? row->q[k / 2] >> 4 : row->q[k / 2] & 15;
    return row->w->has_min || nibble < 8 ? nibble : nibble - 16;
}

/// `g`: the group that k lies in (integer kinds).
static float weight_f32(const struct wrow *row, size_t k, size_t g)
{
    if (row->w->kind == QN_W_F32) {
        return ((const float *)row->q)[k];
    }
    if (row->w->kind == QN_W_BF16) {
        return qn_bf16_to_f32(((const uint16_t *)row->q)[k]);
    }
    float q = (float)weight_int(row, k);
    return row->w->has_min ? fmaf(q, row->scale[g], row->min[g]) : q * row->scale[g];
}

/// Float activations: a row of f32, padded to whole cache lines.
static size_t lhs_row_floats(const struct qn_wdesc *w)
{
    return qn_round_up(w->k, 16);
}

static size_t lhs_bytes_float(const struct qn_wdesc *w, size_t m)
{
    return m * lhs_row_floats(w) * sizeof(float);
}

static void lhs_pack_f32(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                         size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        memcpy((float *)lhs + r * lhs_row_floats(w), x + r * ldx, w->k * sizeof *x);
    }
}

static void lhs_pack_bf16(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                          size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        float *to = (float *)lhs + r * lhs_row_floats(w);
        for (size_t k = 0; k < w->k; k++) {
            to[k] = qn_bf16_to_f32(qn_f32_to_bf16(x[r * ldx + k]));
        }
    }
}

/// Weights [k0, k1) of a row, all of one scale group, as f32.
static void widen(float *to, const struct wrow *row, size_t k0, size_t k1)
{
    const size_t g = qn_gemm_is_int(row->w) ? k0 / qn_gemm_group(row->w) : 0;

    for (size_t k = k0; k < k1; k++) {
        to[k - k0] = weight_f32(row, k, g);
    }
}

/// Rows [m, m + n_rows) times one weight row, widened a piece at a time.
static void dot_float(const struct qn_gemm_args *a, size_t m, size_t n_rows, const void *panel,
                      size_t r, float *out)
{
    enum {
        PIECE = 128
    };
    const struct wrow row = weight_row(a->w, panel, r);
    const float *x = (const float *)a->lhs + m * lhs_row_floats(a->w);
    const size_t group = qn_gemm_is_int(a->w) ? qn_gemm_group(a->w) : a->w->k;
    double sum[ROWS] = {0};

    for (size_t k0 = 0, k1; k0 < a->w->k; k0 = k1) {
        float piece[PIECE];
        size_t group_end = (k0 / group + 1) * group;
        k1 = group_end - k0 < PIECE ? group_end : k0 + PIECE;
        widen(piece, &row, k0, k1);
        for (size_t i = 0; i < n_rows; i++) {
            const float *xi = x + i * lhs_row_floats(a->w);
            double acc = sum[i];
            for (size_t k = k0; k < k1; k++) {
                acc += (double)xi[k] * (double)piece[k - k0];
            }
            sum[i] = acc;
        }
    }
    for (size_t i = 0; i < n_rows; i++) {
        out[i] = (float)sum[i];
    }
}

/// int8 activations: a row is its scales, then its values.
static size_t lhs_scales_bytes(const struct qn_wdesc *w)
{
    size_t span = qn_gemm_act_span(w);

    return qn_round_up((w->k + span - 1) / span * sizeof(float), 64);
}

static size_t lhs_row_bytes_i8(const struct qn_wdesc *w)
{
    return lhs_scales_bytes(w) + qn_round_up(w->k, 64);
}

static size_t lhs_bytes_i8(const struct qn_wdesc *w, size_t m)
{
    return m * lhs_row_bytes_i8(w);
}

static void quantise_row(float *scale, int8_t *q, const struct qn_wdesc *w, const float *x)
{
    const size_t span = qn_gemm_act_span(w);
    bool finite = true;

    for (size_t k0 = 0; k0 < w->k; k0 += span) {
        size_t k1 = w->k - k0 < span ? w->k : k0 + span;
        float top = 0.0f, factor;
        for (size_t k = k0; k < k1; k++) {
            float mag = fabsf(x[k]);
            finite = finite && isfinite(mag);
            top = mag > top ? mag : top;
        }
        scale[k0 / span] = qn_gemm_act_scale(top, &factor);
        for (size_t k = k0; k < k1; k++) {
            q[k] = finite ? (int8_t)lrintf(x[k] * factor) : 0;
        }
    }
    for (size_t k0 = 0; !finite && k0 < w->k; k0 += span) {
        scale[k0 / span] = NAN;
    }
}

static void lhs_pack_i8(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                        size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        unsigned char *to = (unsigned char *)lhs + r * lhs_row_bytes_i8(w);
        quantise_row((float *)to, (int8_t *)(to + lhs_scales_bytes(w)), w, x + r * ldx);
    }
}

/// Exact integer sums per weight group, then f32 in the order of gemm.h: all tiers have these bits.
static float dot_i8_row(const struct qn_wdesc *w, const unsigned char *lhs, const struct wrow *row)
{
    const float *act_scale = (const float *)lhs;
    const int8_t *x = (const int8_t *)(lhs + lhs_scales_bytes(w));
    const size_t group = qn_gemm_group(w), span = qn_gemm_act_span(w);
    float acc = 0.0f;

    for (size_t g = 0; g < qn_gemm_n_groups(w); g++) {
        int64_t dot = 0, sum = 0;
        for (size_t k = g * group; k < (g + 1) * group; k++) {
            dot += x[k] * weight_int(row, k);
            sum += x[k];
        }
        float s = act_scale[g * group / span];
        acc = fmaf((float)dot, row->scale[g] * s, acc);
        if (w->has_min) {
            acc = fmaf((float)sum * s, row->min[g], acc);
        }
    }
    return acc;
}

static void dot_i8(const struct qn_gemm_args *a, size_t m, size_t n_rows, const void *panel,
                   size_t r, float *out)
{
    const struct wrow row = weight_row(a->w, panel, r);
    const unsigned char *lhs = (const unsigned char *)a->lhs + m * lhs_row_bytes_i8(a->w);

    for (size_t i = 0; i < n_rows; i++) {
        out[i] = dot_i8_row(a->w, lhs + i * lhs_row_bytes_i8(a->w), &row);
    }
}

typedef void dot_fn(const struct qn_gemm_args *a, size_t m, size_t n_rows, const void *panel,
                    size_t r, float *out);

static void run(const struct qn_gemm_args *a, dot_fn *dot, size_t m0, size_t m1, size_t p0,
                size_t p1)
{
    const size_t n_bytes = panel_bytes(a->w), step = a->w->pair ? 2 : 1;
    float sum[ROWS], up[ROWS] = {0};

    for (size_t p = p0; p < p1; p += step) {
        const unsigned char *panel = (const unsigned char *)a->rhs + p * n_bytes;
        size_t col0, n;
        qn_gemm_panel_cols(a->w, NR, p, &col0, &n);
        for (size_t m = m0; m < m1; m += ROWS) {
            const size_t n_rows = m1 - m < ROWS ? m1 - m : ROWS;
            for (size_t r = 0; r < n; r++) {
                dot(a, m, n_rows, panel, r, sum);
                if (a->w->pair) {
                    dot(a, m, n_rows, panel + n_bytes, r, up);
                }
                for (size_t i = 0; i < n_rows; i++) {
                    qn_gemm_finish(a, m + i, col0 + r, sum[i], up[i]);
                }
            }
        }
    }
}

static void run_float(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0, size_t p1)
{
    run(a, dot_float, m0, m1, p0, p1);
}

static void run_i8(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0, size_t p1)
{
    run(a, dot_i8, m0, m1, p0, p1);
}

#define GENERIC(act_name, ACT, kind_name, KIND, layout, bytes_fn, pack_fn, run_fn)                 \
    extern const struct qn_gemm_impl qn_gemm_f32_##act_name##_##kind_name##_generic;               \
    const struct qn_gemm_impl qn_gemm_f32_##act_name##_##kind_name##_generic = {                   \
        .name = "gemm_f32_" #act_name "_" #kind_name "_1x8_generic",                               \
        .kind = KIND,                                                                              \
        .act = ACT,                                                                                \
        .isa = QN_ISA_GENERIC,                                                                     \
        .mr = 1,                                                                                   \
        .nr = NR,                                                                                  \
        .kr = 1,                                                                                   \
        .supports = supports,                                                                      \
        .panel_bytes = panel_bytes,                                                                \
        .pack_panel = pack_panel,                                                                  \
        .lhs_layout = layout,                                                                      \
        .lhs_bytes = bytes_fn,                                                                     \
        .lhs_pack = pack_fn,                                                                       \
        .run = run_fn,                                                                             \
    };

#define GENERIC_FLOAT(kind_name, KIND)                                                             \
    GENERIC(f32, QN_ACT_F32, kind_name, KIND, QN_LHS_GENERIC_F32, lhs_bytes_float, lhs_pack_f32,   \
            run_float)                                                                             \
    GENERIC(bf16, QN_ACT_BF16, kind_name, KIND, QN_LHS_GENERIC_BF16, lhs_bytes_float,              \
            lhs_pack_bf16, run_float)
#define GENERIC_I8(kind_name, KIND)                                                                \
    GENERIC(i8, QN_ACT_I8, kind_name, KIND, QN_LHS_GENERIC_I8, lhs_bytes_i8, lhs_pack_i8, run_i8)

GENERIC_FLOAT(f32, QN_W_F32)
GENERIC_FLOAT(bf16, QN_W_BF16)
GENERIC_FLOAT(i8, QN_W_I8)
GENERIC_FLOAT(i4, QN_W_I4)
GENERIC_I8(i8, QN_W_I8)
GENERIC_I8(i4, QN_W_I4)
