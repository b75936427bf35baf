// f32 and bf16 activations (the latter rounded when packed, then widened): weights become f32 and
// go through FMA along K in ascending order. Integer weights are summed unscaled within a group,
// then acc = fma(part, scale, acc) and with a minimum acc = fma(sum of x, min, acc).
//
// Panels, for 16 outputs:
//   F32   [k][16] f32
//   BF16  [k][8][2]: a 32-bit lane holds output j low, output 8 + j high
//   I8    by group: [group][16] bytes, 16 scales, 16 minima
//   I4    by group: [group / 8][16] 32-bit lanes with 8 nibbles, lowest k first, q + 8 without a
//         minimum; then 16 times the scales (the kernel has q / 16), and the minima
// K of row scales is padded to 8 with zeros, as the activations are.
//
// Rows of the packed lhs: f32, zero behind k, then the sums over activation groups; groups of 32
// also have the sums of both halves, for weight groups of 16.

#include "kernels/x86/gemm_avx2.h"

enum {
    NR = QN_AVX2_NR,
    PREFETCH_BYTES = 2048,
    MR = 6 ///< 12 sums, two weight vectors and a broadcast: all 16 registers
};

static bool supports(const struct qn_wdesc *w)
{
    return w->n > 0 && w->k > 0 && (!qn_gemm_is_int(w) || w->group == 16 || w->group % 32 == 0);
}

/// K of one group with its padding.
QN_INLINE size_t padded_group(const struct qn_wdesc *w)
{
    return qn_round_up(qn_gemm_group(w), 8);
}

QN_INLINE size_t group_bytes(enum qn_wkind kind, const struct qn_wdesc *w)
{
    size_t q = padded_group(w) * NR / (kind == QN_W_I4 ? 2 : 1);

    return q + NR * sizeof(float) * (w->has_min ? 2 : 1);
}

static size_t panel_bytes(const struct qn_wdesc *w)
{
    if (w->kind == QN_W_F32) {
        return w->k * NR * sizeof(float);
    }
    if (w->kind == QN_W_BF16) {
        return qn_round_up(w->k * NR * sizeof(uint16_t), 64);
    }
    return qn_round_up(qn_gemm_n_groups(w) * group_bytes(w->kind, w), 64);
}

static void pack_float(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                       size_t n_rows)
{
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t k = 0; k < w->k; k++) {
            if (w->kind == QN_W_F32) {
                ((float *)panel)[k * NR + r] = ((const float *)rows->q)[r * w->k + k];
            } else {
                ((uint16_t *)panel)[k * NR + r % 8 * 2 + r / 8] =
                    ((const uint16_t *)rows->q)[r * w->k + k];
            }
        }
    }
}

static void pack_int(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                     size_t n_rows)
{
    const size_t group = qn_gemm_group(w), n_groups = qn_gemm_n_groups(w);
    const size_t n_bytes = group_bytes(w->kind, w);
    const float factor = w->kind == QN_W_I4 ? 16.0f : 1.0f;
    const unsigned offset = w->has_min ? 0 : 8;

    for (size_t g = 0; g < n_groups; g++) {
        unsigned char *to = (unsigned char *)panel + g * n_bytes;
        float *scale = (float *)(to + padded_group(w) * NR / (w->kind == QN_W_I4 ? 2 : 1));
        for (size_t r = 0; r < n_rows; r++) {
            const int8_t *q = (const int8_t *)rows->q + r * w->k + g * group;
            for (size_t k = 0; k < group; k++) {
                if (w->kind == QN_W_I8) {
                    to[k * NR + r] = (unsigned char)q[k];
                } else {
                    unsigned nibble = ((unsigned)q[k] + offset) & 15u;
                    to[(k / 8 * NR + r) * 4 + k % 8 / 2] |=
                        (unsigned char)(k % 2 ? nibble << 4 : nibble);
                }
            }
            scale[r] = rows->scale[r * n_groups + g] * factor;
            if (w->has_min) {
                scale[NR + r] = rows->min[r * n_groups + g];
            }
        }
    }
}

static void pack_panel(void *panel, const struct qn_wdesc *w, const struct qn_wrows *rows,
                       size_t n_rows)
{
    memset(panel, 0, panel_bytes(w));
    if (qn_gemm_is_int(w)) {
        pack_int(panel, w, rows, n_rows);
    } else {
        pack_float(panel, w, rows, n_rows);
    }
}

QN_INLINE size_t lhs_n_sums(const struct qn_wdesc *w)
{
    size_t span = qn_gemm_act_span(w);

    return (w->k + span - 1) / span;
}

/// Start of the sums in a row, and the row's length, in floats. The spare line keeps rows of 2^n
/// off the same cache set.
QN_INLINE size_t lhs_sums_at(const struct qn_wdesc *w)
{
    return qn_round_up(w->k, 16);
}
QN_INLINE size_t lhs_ld(const struct qn_wdesc *w)
{
    size_t n_sums = lhs_n_sums(w) * (qn_gemm_act_span(w) == 32 ? 3 : 1);

    return qn_round_up(lhs_sums_at(w) + n_sums, 16) + 16;
}

static size_t lhs_bytes(const struct qn_wdesc *w, size_t m)
{
    return m * lhs_ld(w) * sizeof(float);
}

/// Sum of n values: lane i takes those at i mod 8, then the lanes in ascending order.
static float sum_of(const float *x, size_t n)
{
    _Alignas(32) float lane[8];
    __m256 acc = _mm256_setzero_ps();
    float sum = 0.0f;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        acc = _mm256_add_ps(acc, _mm256_loadu_ps(x + i));
    }
    _mm256_store_ps(lane, acc);
    for (size_t j = 0; i + j < n; j++) {
        lane[j] += x[i + j];
    }
    for (int j = 0; j < 8; j++) {
        sum += lane[j];
    }
    return sum;
}

/// The sums behind a packed row.
static void pack_sums(float *row, const struct qn_wdesc *w)
{
    const size_t span = qn_gemm_act_span(w), n = lhs_n_sums(w);
    float *whole = row + lhs_sums_at(w), *half = whole + n;

    for (size_t i = 0; i < n; i++) {
        const size_t k = i * span, len = w->k - k < span ? w->k - k : span;
        whole[i] = sum_of(row + k, len);
        if (span == 32) {
            const size_t len0 = len < 16 ? len : 16;
            half[2 * i] = sum_of(row + k, len0);
            half[2 * i + 1] = sum_of(row + k + len0, len - len0);
        }
    }
}

/// One row, rounded to bf16 or not.
QN_INLINE void pack_row(bool bf16, float *to, const struct qn_wdesc *w, const float *x)
{
    memset(to + w->k, 0, (lhs_ld(w) - w->k) * sizeof *x);
    memcpy(to, x, w->k * sizeof *x);
    for (size_t k = 0; bf16 && k < w->k; k += 8) { // rows are padded to 16
        __m128i h = qn_avx2_to_bf16(_mm256_load_ps(to + k));
        __m256i f = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
        _mm256_store_ps(to + k, _mm256_castsi256_ps(f));
    }
    pack_sums(to, w);
}

static void lhs_pack_f32(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                         size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        pack_row(false, (float *)lhs + r * lhs_ld(w), w, x + r * ldx);
    }
}

static void lhs_pack_bf16(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                          size_t m0, size_t m1)
{
    (void)m;
    for (size_t r = m0; r < m1; r++) {
        pack_row(true, (float *)lhs + r * lhs_ld(w), w, x + r * ldx);
    }
}

/// The sums are acc[panel][row][half].
#define FOR_SUMS(rows, np, body)                                                                   \
    QN_UNROLL for (int p = 0; p < (np); p++)                                                       \
    {                                                                                              \
        QN_UNROLL for (int r = 0; r < (rows); r++)                                                 \
        {                                                                                          \
            body;                                                                                  \
        }                                                                                          \
    }

/// One k: w0 and w1 of panel p times x[r][k] for all rows.
#define STEP(acc, rows, p, x, ld, k, w0, w1)                                                       \
    QN_UNROLL for (int r = 0; r < (rows); r++)                                                     \
    {                                                                                              \
        __m256 xk = _mm256_broadcast_ss((x) + (size_t)r * (ld) + (k));                             \
        acc[p][r][0] = _mm256_fmadd_ps(xk, w0, acc[p][r][0]);                                      \
        acc[p][r][1] = _mm256_fmadd_ps(xk, w1, acc[p][r][1]);                                      \
    }

#define STORE_SUMS(rows, np, sums)                                                                 \
    FOR_SUMS(rows, np, {                                                                           \
        _mm256_store_ps((sums) + (p * (rows) + r) * NR, acc[p][r][0]);                             \
        _mm256_store_ps((sums) + (p * (rows) + r) * NR + 8, acc[p][r][1]);                         \
    })

QN_INLINE void sum_float(enum qn_wkind kind, const int rows, const int np, float *sums,
                         const struct qn_wdesc *w, const float *x, const unsigned char *panel,
                         size_t n_bytes)
{
    const size_t ld = lhs_ld(w), n_k = w->k;
    __m256 acc[2][MR][2];

    FOR_SUMS(rows, np, acc[p][r][0] = acc[p][r][1] = _mm256_setzero_ps())
    for (size_t k = 0; k < n_k; k++) {
        QN_UNROLL
        for (int p = 0; p < np; p++) {
            const unsigned char *from = panel + (size_t)p * n_bytes;
            __m256 w0, w1;
            if (kind == QN_W_F32) {
                w0 = _mm256_load_ps((const float *)from + k * NR);
                w1 = _mm256_load_ps((const float *)from + k * NR + 8);
            } else {
                __m256i v = _mm256_load_si256((const __m256i *)from + k);
                w0 = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
                w1 = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)));
            }
            STEP(acc, rows, p, x, ld, k, w0, w1)
        }
    }
    STORE_SUMS(rows, np, sums)
}

/// Values i of 8 lanes of 8 nibbles, over 16: the nibble becomes the top of the mantissa of 1 +
/// u/16. Shift, and, or, subtract spread over more ports than shifts and a conversion.
QN_INLINE __m256 nibble_f32(bool has_min, __m256i v, int i)
{
    __m256i u = i < 5 ? _mm256_slli_epi32(v, 19 - 4 * i) : _mm256_srli_epi32(v, 4 * i - 19);

    u = _mm256_and_si256(u, _mm256_set1_epi32(0x00780000));
    u = _mm256_or_si256(u, _mm256_set1_epi32(0x3f800000));
    return _mm256_sub_ps(_mm256_castsi256_ps(u), _mm256_set1_ps(has_min ? 1.0f : 1.5f));
}

/// The two weight vectors of the i-th of 8 consecutive k, unscaled.
QN_INLINE void widen_int(enum qn_wkind kind, const bool has_min, const unsigned char *from, int i,
                         __m256 *w0, __m256 *w1)
{
    if (kind == QN_W_I8) {
        const unsigned char *q = from + i * NR;
        *w0 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)q)));
        *w1 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(q + 8))));
    } else {
        const __m256i *q = (const __m256i *)from;
        *w0 = nibble_f32(has_min, _mm256_load_si256(q), i);
        *w1 = nibble_f32(has_min, _mm256_load_si256(q + 1), i);
    }
}

/// part[p][r][half] += the products of 8 consecutive k of panel p. Nibbles for three rows and more
/// are first widened into the stack: in one loop they and the sums do not fit 16 registers.
QN_INLINE void step8_int(enum qn_wkind kind, const bool has_min, const int rows, const int p,
                         __m256 part[2][MR][2], const float *x, size_t ld,
                         const unsigned char *from)
{
    __m256 w0, w1;

    if (kind == QN_W_I8 || rows < 3) {
        QN_UNROLL
        for (int i = 0; i < 8; i++) {
            widen_int(kind, has_min, from, i, &w0, &w1);
            STEP(part, rows, p, x, ld, (size_t)i, w0, w1)
        }
        return;
    }
    _Alignas(32) float piece[8 * NR];
    QN_UNROLL
    for (int i = 0; i < 8; i++) {
        widen_int(kind, has_min, from, i, &w0, &w1);
        _mm256_store_ps(piece + i * NR, w0);
        _mm256_store_ps(piece + i * NR + 8, w1);
    }
    __asm__("" : "+m"(piece)); // or the compiler joins the loops again
    QN_UNROLL
    for (int i = 0; i < 8; i++) {
        w0 = _mm256_load_ps(piece + i * NR);
        w1 = _mm256_load_ps(piece + i * NR + 8);
        STEP(part, rows, p, x, ld, (size_t)i, w0, w1)
    }
}

QN_INLINE void sum_int(enum qn_wkind kind, const bool has_min, const int rows, const int np,
                       float *sums, const struct qn_wdesc *w, const float *x,
                       const unsigned char *panel, size_t n_bytes)
{
    const size_t ld = lhs_ld(w), group = padded_group(w), n_groups = qn_gemm_n_groups(w);
    const size_t step = 8 * NR / (kind == QN_W_I4 ? 2 : 1);
    const float *x_sum = x + lhs_sums_at(w) + (w->group == 16 ? lhs_n_sums(w) : 0);
    __m256 acc[2][MR][2];

    FOR_SUMS(rows, np, acc[p][r][0] = acc[p][r][1] = _mm256_setzero_ps())
    for (size_t g = 0; g < n_groups; g++) {
        __m256 part[2][MR][2];
        FOR_SUMS(rows, np, part[p][r][0] = part[p][r][1] = _mm256_setzero_ps())
        for (size_t k = 0; k < group; k += 8, x += 8, panel += step) {
            QN_UNROLL
            for (int p = 0; p < np; p++) {
                const unsigned char *from = panel + (size_t)p * n_bytes;
                if (rows == 1) { // each byte of the panel is used once: ask for it early
                    _mm_prefetch((const char *)from + PREFETCH_BYTES, _MM_HINT_T0);
                    _mm_prefetch((const char *)from + PREFETCH_BYTES + step / 2, _MM_HINT_T0);
                }
                step8_int(kind, has_min, rows, p, part, x, ld, from);
            }
        }
        QN_UNROLL
        for (int p = 0; p < np; p++) {
            const float *scale = (const float *)(panel + (size_t)p * n_bytes);
            QN_UNROLL
            for (int r = 0; r < rows; r++) {
                QN_UNROLL
                for (int c = 0; c < 2; c++) {
                    acc[p][r][c] =
                        _mm256_fmadd_ps(part[p][r][c], _mm256_load_ps(scale + 8 * c), acc[p][r][c]);
                    if (has_min) {
                        acc[p][r][c] =
                            _mm256_fmadd_ps(_mm256_broadcast_ss(x_sum + (size_t)r * ld + g),
                                            _mm256_load_ps(scale + NR + 8 * c), acc[p][r][c]);
                    }
                }
            }
        }
        panel += NR * sizeof(float) * (has_min ? 2 : 1);
    }
    STORE_SUMS(rows, np, sums)
}

/// The kinds as functions of constant rows and panels. A single row takes two panels at once, so
/// that four independent sums hide the latency of FMA; more rows have enough of their own.
#define SUM_FLOAT(kind) sum_float(kind, rows, np, sums, w, x, panel, n_bytes)
#define SUM_INT(kind)                                                                              \
    do {                                                                                           \
        if (w->has_min) {                                                                          \
            sum_int(kind, true, rows, np, sums, w, x, panel, n_bytes);                             \
        } else {                                                                                   \
            sum_int(kind, false, rows, np, sums, w, x, panel, n_bytes);                            \
        }                                                                                          \
    } while (0)

typedef void sum_fn(float *sums, const struct qn_wdesc *w, const float *x,
                    const unsigned char *panel, size_t n_bytes);

#define SUM_FN(name, rows_, np_, call)                                                             \
    static void name##_##rows_##_##np_(float *sums, const struct qn_wdesc *w, const float *x,      \
                                       const unsigned char *panel, size_t n_bytes)                 \
    {                                                                                              \
        enum {                                                                                     \
            rows = rows_,                                                                          \
            np = np_                                                                               \
        };                                                                                         \
        call;                                                                                      \
    }

/// Rows 1 … MR of `count` panels into sums[count][rows][NR].
#define RUN(name, call)                                                                            \
    SUM_FN(name, 1, 1, call)                                                                       \
    SUM_FN(name, 1, 2, call)                                                                       \
    SUM_FN(name, 2, 1, call)                                                                       \
    SUM_FN(name, 3, 1, call)                                                                       \
    SUM_FN(name, 4, 1, call)                                                                       \
    SUM_FN(name, 5, 1, call)                                                                       \
    SUM_FN(name, 6, 1, call)                                                                       \
    static void run_##name(const struct qn_gemm_args *a, size_t m0, size_t m1, size_t p0,          \
                           size_t p1)                                                              \
    {                                                                                              \
        static sum_fn *const by_rows[MR] = {name##_1_1, name##_2_1, name##_3_1,                    \
                                            name##_4_1, name##_5_1, name##_6_1};                   \
        run(a, by_rows, name##_1_2, m0, m1, p0, p1);                                               \
    }

static void run(const struct qn_gemm_args *a, sum_fn *const by_rows[MR], sum_fn *one_row_two_panels,
                size_t m0, size_t m1, size_t p0, size_t p1)
{
    const size_t n_bytes = panel_bytes(a->w), ld = lhs_ld(a->w);
    _Alignas(32) float sums[2 * MR * NR];

    for (size_t p = p0; p < p1; p += 2) {
        const unsigned char *panel = (const unsigned char *)a->rhs + p * n_bytes;
        const size_t n_panels = p1 - p < 2 ? 1 : 2;
        for (size_t m = m0; m < m1; m += MR) {
            const size_t rows = m1 - m < MR ? m1 - m : MR;
            const float *x = (const float *)a->lhs + m * ld;
            if (rows == 1 && n_panels == 2) {
                one_row_two_panels(sums, a->w, x, panel, n_bytes);
            } else {
                for (size_t i = 0; i < n_panels; i++) {
                    by_rows[rows - 1](sums + i * rows * NR, a->w, x, panel + i * n_bytes, n_bytes);
                }
            }
            qn_avx2_finish_tile(a, m, rows, p, n_panels, sums);
        }
    }
}

RUN(f32, SUM_FLOAT(QN_W_F32))
RUN(bf16, SUM_FLOAT(QN_W_BF16))
RUN(i8, SUM_INT(QN_W_I8))
RUN(i4, SUM_INT(QN_W_I4))

#define AVX2(act_name, ACT, kind_name, KIND, layout)                                               \
    extern const struct qn_gemm_impl qn_gemm_f32_##act_name##_##kind_name##_6x16_avx2;             \
    const struct qn_gemm_impl qn_gemm_f32_##act_name##_##kind_name##_6x16_avx2 = {                 \
        .name = "gemm_f32_" #act_name "_" #kind_name "_6x16_avx2",                                 \
        .kind = KIND,                                                                              \
        .act = ACT,                                                                                \
        .isa = QN_ISA_AVX2,                                                                        \
        .mr = MR,                                                                                  \
        .nr = NR,                                                                                  \
        .kr = KIND == QN_W_I4 ? 8 : 1,                                                             \
        .supports = supports,                                                                      \
        .panel_bytes = panel_bytes,                                                                \
        .pack_panel = pack_panel,                                                                  \
        .lhs_layout = layout,                                                                      \
        .lhs_bytes = lhs_bytes,                                                                    \
        .lhs_pack = lhs_pack_##act_name,                                                           \
        .run = run_##kind_name,                                                                    \
    };

AVX2(f32, QN_ACT_F32, f32, QN_W_F32, QN_LHS_AVX2_F32)
AVX2(f32, QN_ACT_F32, bf16, QN_W_BF16, QN_LHS_AVX2_F32)
AVX2(f32, QN_ACT_F32, i8, QN_W_I8, QN_LHS_AVX2_F32)
AVX2(f32, QN_ACT_F32, i4, QN_W_I4, QN_LHS_AVX2_F32)
AVX2(bf16, QN_ACT_BF16, f32, QN_W_F32, QN_LHS_AVX2_BF16)
AVX2(bf16, QN_ACT_BF16, bf16, QN_W_BF16, QN_LHS_AVX2_BF16)
AVX2(bf16, QN_ACT_BF16, i8, QN_W_I8, QN_LHS_AVX2_BF16)
AVX2(bf16, QN_ACT_BF16, i4, QN_W_I4, QN_LHS_AVX2_BF16)
