// int8 activations: exact 32-bit sums of byte products per weight group, then f32 in the order of
// gemm.h, so that the bits are generic's.
//
// Panels, for 16 outputs, by weight group: the bytes, 16 scales, 16 minima. A 32-bit lane holds 4
// consecutive k of one output, as the byte multiply pairs them:
//   I8  [group / 4][16][4 bytes]
//   I4  [group / 8][16][4 bytes]: low nibbles k … k + 3, high nibbles k + 4 … k + 7; a weight
//       without a minimum is stored as q + 8, and 8 * (sum of activations) is taken off again
// K of row scales is padded to 32 with zeros.
//
// Rows of the packed lhs: the bytes, zero behind k, then per activation group the scale, -8 * sum
// and scale * sum. Activation groups of 32 also have the sums of both halves, for weight groups of
// 16.

#include "kernels/x86/gemm_avx2.h"

enum {
    NR = QN_AVX2_NR,
    MR = 4,
    PREFETCH_BYTES = 2048, ///< at M = 1: 75 to 97 % of the read peak; 1024 and 4096 gain less
    /// |q_x q_w| <= 127 * 128, or 127 * 15 beside a correction of 8 * 127: the sum fits 32 bits.
    MAX_GROUP = 131071
};

static bool supports(const struct qn_wdesc *w)
{
    return w->n > 0 && w->k > 0 && qn_gemm_group(w) <= MAX_GROUP &&
           (w->group == 16 || w->group % 32 == 0);
}

QN_INLINE size_t padded_group(const struct qn_wdesc *w)
{
    return w->group ? w->group : qn_round_up(w->k, 32);
}

QN_INLINE size_t group_bytes(enum qn_wkind kind, const struct qn_wdesc *w)
{
    return padded_group(w) * NR / (kind == QN_W_I4 ? 2 : 1) +
           NR * sizeof(float) * (w->has_min ? 2 : 1);
}

static size_t panel_bytes(const struct qn_wdesc *w)
{
    return qn_gemm_n_groups(w) * group_bytes(w->kind, w);
}

static void pack_panel(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                       size_t n_rows)
{
    const size_t group = qn_gemm_group(w), n_groups = qn_gemm_n_groups(w);
    const size_t n_bytes = group_bytes(w->kind, w);
    const unsigned offset = w->has_min ? 0 : 8;

    memset(panel, 0, panel_bytes(w));
    for (size_t g = 0; g < n_groups; g++) {
        unsigned char *to = (unsigned char *)panel + g * n_bytes;
        float *scale = (float *)(to + padded_group(w) * NR / (w->kind == QN_W_I4 ? 2 : 1));
        for (size_t r = 0; r < n_rows; r++) {
            const int8_t *q = (const int8_t *)rows->q + r * w->k + g * group;
            for (size_t k = 0; k < group; k++) {
                if (w->kind == QN_W_I8) {
                    to[(k / 4 * NR + r) * 4 + k % 4] = (unsigned char)q[k];
                } else {
                    unsigned nibble = ((unsigned)q[k] + offset) & 15u;
                    to[(k / 8 * NR + r) * 4 + k % 4] |=
                        (unsigned char)(k % 8 >= 4 ? nibble << 4 : nibble);
                }
            }
            scale[r] = rows->scale[r * n_groups + g];
            if (w->has_min) {
                scale[NR + r] = rows->min[r * n_groups + g];
            }
        }
    }
}

/// One activation group, or half of one.
struct rec {
    float scale;
    int32_t minus8; ///< -8 * sum
    float sum;      ///< scale * sum
    int32_t unused;
};

QN_INLINE size_t lhs_n_recs(const struct qn_wdesc *w)
{
    size_t span = qn_gemm_act_span(w);

    return (w->k + span - 1) / span;
}

QN_INLINE size_t lhs_q_bytes(const struct qn_wdesc *w)
{
    return qn_round_up(w->k, 32);
}

QN_INLINE size_t lhs_row_bytes(const struct qn_wdesc *w)
{
    size_t n = lhs_n_recs(w) * (qn_gemm_act_span(w) == 32 ? 3 : 1);

    return qn_round_up(lhs_q_bytes(w) + n * sizeof(struct rec), 64) + 64;
}

static size_t lhs_bytes(const struct qn_wdesc *w, size_t m)
{
    return m * lhs_row_bytes(w);
}

/// Bits of the largest magnitude of n values; not below 0x7f800000: one is not finite.
static uint32_t top_bits(const float *x, size_t n)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    _Alignas(32) uint32_t lane[8];
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(x + i));
        top = _mm256_max_epi32(top, _mm256_and_si256(v, mask));
    }
    _mm256_store_si256((__m256i *)lane, top);
    for (int j = 1; j < 8; j++) {
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    }
    for (; i < n; i++) {
        uint32_t u = qn_f32_bits(x[i]) & 0x7fffffffu;
        lane[0] = u > lane[0] ? u : lane[0];
    }
    return lane[0];
}

/// q = round(x * factor), and their sum.
static int32_t quantise(int8_t *q, const float *x, size_t n, float factor)
{
    const __m256 f = _mm256_set1_ps(factor);
    __m256i sum = _mm256_setzero_si256();
    _Alignas(32) int32_t lane[8];
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), f));
        sum = _mm256_add_epi32(sum, v);
        __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storel_epi64((__m128i *)(q + i), _mm_packs_epi16(h, h));
    }
    _mm256_store_si256((__m256i *)lane, sum);
    int32_t total = lane[0] + lane[1] + lane[2] + lane[3] + lane[4] + lane[5] + lane[6] + lane[7];
    for (; i < n; i++) {
        q[i] = (int8_t)lrintf(x[i] * factor);
        total += q[i];
    }
    return total;
}

static struct rec record(float scale, int32_t sum)
{
    return (struct rec){.scale = scale, .minus8 = -8 * sum, .sum = (float)sum * scale};
}

static void pack_row(unsigned char *to, const struct qn_wdesc *w, const float *x)
{
    const size_t span = qn_gemm_act_span(w), n = lhs_n_recs(w);
    struct rec *whole = (struct rec *)(to + lhs_q_bytes(w)), *half = whole + n;
    int8_t *q = (int8_t *)to;
    bool finite = true;

    for (size_t i = 0; i < n; i++) {
        const size_t k = i * span, len = w->k - k < span ? w->k - k : span;
        uint32_t top = top_bits(x + k, len);
        float factor, scale = qn_gemm_act_scale(qn_f32_from_bits(top), &factor);
        finite = finite && top < 0x7f800000u;
        if (!finite) {
            break;
        }
        if (span == 32) {
            const size_t len0 = len < 16 ? len : 16;
            int32_t sum0 = quantise(q + k, x + k, len0, factor);
            int32_t sum1 = quantise(q + k + len0, x + k + len0, len - len0, factor);
            half[2 * i] = record(scale, sum0);
            half[2 * i + 1] = record(scale, sum1);
            whole[i] = record(scale, sum0 + sum1);
        } else {
            whole[i] = record(scale, quantise(q + k, x + k, len, factor));
        }
    }
    memset(q + w->k, 0, lhs_q_bytes(w) - w->k);
    if (!finite) {
        memset(q, 0, w->k);
        for (size_t i = 0; i < n * (span == 32 ? 3 : 1); i++) {
            whole[i] = (struct rec){.scale = NAN, .minus8 = 0, .sum = NAN};
        }
    }
}

static void lhs_pack(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                     size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        pack_row((unsigned char *)lhs + r * lhs_row_bytes(w), w, x + r * ldx);
    }
}

QN_INLINE __m256i broadcast4(const unsigned char *x)
{
    int32_t v;

    memcpy(&v, x, sizeof v);
    return _mm256_set1_epi32(v);
}

/// Keeps a running sum in its register: compilers would add the products as a tree, which needs
/// more of them alive than there are registers.
#define IN_ORDER(v) __asm__("" : "+x"(v))

/// isum[r][c] += the products of n_k (16 or 32) consecutive k. Unsigned nibbles times bytes: a pair
/// is at most 2 * 15 * 127, so 8 of them fit 16 bits.
QN_INLINE void dot_i4(const int rows, const int n_k, __m256i isum[][2], const unsigned char *q,
                      const unsigned char *x, size_t ld)
{
    const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i part[MR][2];

    QN_UNROLL
    for (int r = 0; r < rows; r++) {
        part[r][0] = part[r][1] = _mm256_setzero_si256();
    }
    QN_UNROLL
    for (int s = 0; s < n_k / 8; s++) {
        QN_UNROLL
        for (int c = 0; c < 2; c++) {
            __m256i v = _mm256_load_si256((const __m256i *)q + 2 * s + c);
            __m256i lo = _mm256_and_si256(v, mask);
            __m256i hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
            QN_UNROLL
            for (int r = 0; r < rows; r++) {
                const unsigned char *xr = x + (size_t)r * ld + 8 * s;
                __m256i p = _mm256_maddubs_epi16(lo, broadcast4(xr));
                part[r][c] = _mm256_add_epi16(part[r][c], p);
                IN_ORDER(part[r][c]);
                p = _mm256_maddubs_epi16(hi, broadcast4(xr + 4));
                part[r][c] = _mm256_add_epi16(part[r][c], p);
                IN_ORDER(part[r][c]);
            }
        }
    }
    QN_UNROLL
    for (int r = 0; r < rows; r++) {
        QN_UNROLL
        for (int c = 0; c < 2; c++) {
            isum[r][c] = _mm256_add_epi32(isum[r][c], _mm256_madd_epi16(part[r][c], ones));
        }
    }
}

/// The same for signed bytes: |w| times a with the sign of w. Exact because a is in [-127, 127]: a
/// pair is at most 2 * 128 * 127 = 32512.
QN_INLINE void dot_i8(const int rows, const int n_k, __m256i isum[][2], const unsigned char *q,
                      const unsigned char *x, size_t ld)
{
    const __m256i ones = _mm256_set1_epi16(1);

    QN_UNROLL
    for (int s = 0; s < n_k / 4; s++) {
        QN_UNROLL
        for (int c = 0; c < 2; c++) {
            __m256i v = _mm256_load_si256((const __m256i *)q + 2 * s + c);
            __m256i mag = _mm256_abs_epi8(v);
            QN_UNROLL
            for (int r = 0; r < rows; r++) {
                __m256i a = broadcast4(x + (size_t)r * ld + 4 * s);
                __m256i p = _mm256_maddubs_epi16(mag, _mm256_sign_epi8(a, v));
                isum[r][c] = _mm256_add_epi32(isum[r][c], _mm256_madd_epi16(p, ones));
                IN_ORDER(isum[r][c]);
            }
        }
    }
}

/// Sums of `rows` rows and one panel into sums[rows][NR]. `n_k` is 16 for weight groups of 16.
QN_INLINE void sum_tile(enum qn_wkind kind, const bool has_min, const int n_k, const int rows,
                        float *sums, const struct qn_wdesc *w, const unsigned char *x,
                        const unsigned char *panel)
{
    const size_t ld = lhs_row_bytes(w), group = padded_group(w), n_groups = qn_gemm_n_groups(w);
    const size_t chunk = (size_t)n_k * NR / (kind == QN_W_I4 ? 2 : 1);
    const unsigned char *recs =
        x + lhs_q_bytes(w) + (n_k == 16 ? lhs_n_recs(w) * sizeof(struct rec) : 0);
    __m256 acc[MR][2];

    QN_UNROLL
    for (int r = 0; r < rows; r++) {
        acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    }
    for (size_t g = 0; g < n_groups; g++) {
        __m256i isum[MR][2];
        QN_UNROLL
        for (int r = 0; r < rows; r++) {
            const struct rec *rec = (const struct rec *)(recs + (size_t)r * ld) + g;
            isum[r][0] = isum[r][1] = kind == QN_W_I4 && !has_min ? _mm256_set1_epi32(rec->minus8)
                                                                  : _mm256_setzero_si256();
        }
        for (size_t k = 0; k < group; k += (size_t)n_k, x += n_k, panel += chunk) {
            if (rows == 1) { // each byte of the panel is used once: ask for it early
                for (size_t i = 0; i < chunk; i += 64) {
                    _mm_prefetch((const char *)panel + PREFETCH_BYTES + i, _MM_HINT_T0);
                }
            }
            if (kind == QN_W_I4) {
                dot_i4(rows, n_k, isum, panel, x, ld);
            } else {
                dot_i8(rows, n_k, isum, panel, x, ld);
            }
        }
        const float *scale = (const float *)panel;
        QN_UNROLL
        for (int r = 0; r < rows; r++) {
            const struct rec *rec = (const struct rec *)(recs + (size_t)r * ld) + g;
            const __m256 s = _mm256_set1_ps(rec->scale);
            QN_UNROLL
            for (int c = 0; c < 2; c++) {
                __m256 f = _mm256_mul_ps(_mm256_load_ps(scale + 8 * c), s);
                acc[r][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[r][c]), f, acc[r][c]);
                if (has_min) {
                    acc[r][c] = _mm256_fmadd_ps(_mm256_set1_ps(rec->sum),
                                                _mm256_load_ps(scale + NR + 8 * c), acc[r][c]);
                }
            }
        }
        panel += NR * sizeof(float) * (has_min ? 2 : 1);
    }
    QN_UNROLL
    for (int r = 0; r < rows; r++) {
        _mm256_store_ps(sums + r * NR, acc[r][0]);
        _mm256_store_ps(sums + r * NR + 8, acc[r][1]);
    }
}

typedef void sum_fn(float *sums, const struct qn_wdesc *w, const unsigned char *x,
                    const unsigned char *panel);

#define SUM_FN(name, kind, has_min, n_k, rows)                                                     \
    static void name##_##rows(float *sums, const struct qn_wdesc *w, const unsigned char *x,       \
                              const unsigned char *panel)                                          \
    {                                                                                              \
        sum_tile(kind, has_min, n_k, rows, sums, w, x, panel);                                     \
    }
#define SUM_FNS(name, kind, has_min, n_k)                                                          \
    SUM_FN(name, kind, has_min, n_k, 1)                                                            \
    SUM_FN(name, kind, has_min, n_k, 2)                                                            \
    SUM_FN(name, kind, has_min, n_k, 3)                                                            \
    SUM_FN(name, kind, has_min, n_k, 4)

SUM_FNS(i8_16, QN_W_I8, false, 16)
SUM_FNS(i8_16_min, QN_W_I8, true, 16)
SUM_FNS(i8_32, QN_W_I8, false, 32)
SUM_FNS(i8_32_min, QN_W_I8, true, 32)
SUM_FNS(i4_16, QN_W_I4, false, 16)
SUM_FNS(i4_16_min, QN_W_I4, true, 16)
SUM_FNS(i4_32, QN_W_I4, false, 32)
SUM_FNS(i4_32_min, QN_W_I4, true, 32)

#define BY_ROWS(name)                                                                              \
    {                                                                                              \
        name##_1, name##_2, name##_3, name##_4                                                     \
    }

/// [I4][groups of 16][minimum][rows - 1]
static sum_fn *const sum_fns[2][2][2][MR] = {
    {{BY_ROWS(i8_32), BY_ROWS(i8_32_min)}, {BY_ROWS(i8_16), BY_ROWS(i8_16_min)}},
    {{BY_ROWS(i4_32), BY_ROWS(i4_32_min)}, {BY_ROWS(i4_16), BY_ROWS(i4_16_min)}},
};

static void run(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0, size_t p1)
{
    sum_fn *const *by_rows = sum_fns[a->w->kind == QN_W_I4][a->w->group == 16][a->w->has_min];
    const size_t n_bytes = panel_bytes(a->w), ld = lhs_row_bytes(a->w);
    _Alignas(32) float sums[2 * MR * NR];

    for (size_t p = p0; p < p1; p += 2) {
        const unsigned char *panel = (const unsigned char *)a->rhs + p * n_bytes;
        const size_t n_panels = p1 - p < 2 ? 1 : 2;
        for (size_t m = m0; m < m1; m += MR) {
            const size_t rows = m1 - m < MR ? m1 - m : MR;
            const unsigned char *x = (const unsigned char *)a->lhs + m * ld;
            for (size_t i = 0; i < n_panels; i++) {
                by_rows[rows - 1](sums + i * rows * NR, a->w, x, panel + i * n_bytes);
            }
            qn_avx2_finish_tile(a, m, rows, p, n_panels, sums);
        }
    }
}

#define AVX2(kind_name, KIND)                                                                      \
    extern const struct qn_gemm_impl qn_gemm_f32_i8_##kind_name##_4x16_avx2;                       \
    const struct qn_gemm_impl qn_gemm_f32_i8_##kind_name##_4x16_avx2 = {                           \
        .name = "gemm_f32_i8_" #kind_name "_4x16_avx2",                                            \
        .kind = KIND,                                                                              \
        .act = QN_ACT_I8,                                                                          \
        .isa = QN_ISA_AVX2,                                                                        \
        .mr = MR,                                                                                  \
        .nr = NR,                                                                                  \
        .kr = KIND == QN_W_I4 ? 8 : 4,                                                             \
        .supports = supports,                                                                      \
        .panel_bytes = panel_bytes,                                                                \
        .pack_panel = pack_panel,                                                                  \
        .lhs_layout = QN_LHS_AVX2_I8,                                                              \
        .lhs_bytes = lhs_bytes,                                                                    \
        .lhs_pack = lhs_pack,                                                                      \
        .run = run,                                                                                \
    };

AVX2(i8, QN_W_I8)
AVX2(i4, QN_W_I4)
