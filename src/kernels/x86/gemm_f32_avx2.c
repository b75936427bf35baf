// f32 and bf16 activations (the latter rounded when packed, then widened): every weight becomes f32
// and goes through FMA. One sum per output, along K in ascending order.
//
// Panels, for 16 outputs:
//   F32   [k][16] f32
//   BF16  [k][8][2]: a 32-bit lane holds output j low, output 8 + j high
//   I8    by group: [group][16] bytes, 16 scales, 16 minima
//   I4    by group: [group / 8][16] 32-bit lanes with 8 nibbles, lowest k first, then as I8
// Groups are padded to 8 k with zeros, as the activations are.

#include "kernels/x86/gemm_avx2.h"

enum {
    NR = QN_AVX2_NR,
    MR = 6 ///< 12 sums, two weight vectors and a broadcast: all 16 registers
};

static bool supports(const struct qn_wdesc *w)
{
    return w->n > 0 && w->k > 0 && (!qn_gemm_is_int(w) || w->group % 8 == 0);
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

    for (size_t g = 0; g < n_groups; g++) {
        unsigned char *to = (unsigned char *)panel + g * n_bytes;
        float *scale = (float *)(to + padded_group(w) * NR / (w->kind == QN_W_I4 ? 2 : 1));
        for (size_t r = 0; r < n_rows; r++) {
            const int8_t *q = (const int8_t *)rows->q + r * w->k + g * group;
            for (size_t k = 0; k < group; k++) {
                if (w->kind == QN_W_I8) {
                    to[k * NR + r] = (unsigned char)q[k];
                } else {
                    unsigned nibble = (unsigned)q[k] & 15u;
                    to[(k / 8 * NR + r) * 4 + k % 8 / 2] |=
                        (unsigned char)(k % 2 ? nibble << 4 : nibble);
                }
            }
            scale[r] = rows->scale[r * n_groups + g];
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

/// Rows of f32, zero behind k; the spare line keeps rows of 2^n off the same cache set.
QN_INLINE size_t lhs_ld(const struct qn_wdesc *w)
{
    return qn_round_up(w->k, 16) + 16;
}

static size_t lhs_bytes(const struct qn_wdesc *w, size_t m)
{
    return m * lhs_ld(w) * sizeof(float);
}

static void lhs_pack_f32(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                         size_t m0, size_t m1)
{
    const size_t ld = lhs_ld(w);

    (void)m;
    for (size_t r = m0; r < m1; r++) {
        float *to = (float *)lhs + r * ld;
        memcpy(to, x + r * ldx, w->k * sizeof *x);
        memset(to + w->k, 0, (ld - w->k) * sizeof *x);
    }
}

static void lhs_pack_bf16(void *lhs, const struct qn_wdesc *w, const float *x, size_t ldx, size_t m,
                          size_t m0, size_t m1)
{
    lhs_pack_f32(lhs, w, x, ldx, m, m0, m1);
    for (size_t r = m0; r < m1; r++) {
        float *to = (float *)lhs + r * lhs_ld(w);
        for (size_t k = 0; k < w->k; k += 8) { // rows are padded to 16
            __m128i h = qn_avx2_to_bf16(_mm256_load_ps(to + k));
            __m256i f = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
            _mm256_store_ps(to + k, _mm256_castsi256_ps(f));
        }
    }
}

/// The sums are acc[panel][row][half].
#define FOR_SUMS(rows, np, body)                                                                   \
    _Pragma("GCC unroll 2") for (int p = 0; p < (np); p++)                                         \
    {                                                                                              \
        _Pragma("GCC unroll 8") for (int r = 0; r < (rows); r++)                                   \
        {                                                                                          \
            body;                                                                                  \
        }                                                                                          \
    }

/// One k: w0 and w1 of panel p times x[r][k] for all rows.
#define STEP(rows, p, x, ld, k, w0, w1)                                                            \
    _Pragma("GCC unroll 8") for (int r = 0; r < (rows); r++)                                       \
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
#pragma GCC unroll 2
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
            STEP(rows, p, x, ld, k, w0, w1)
        }
    }
    STORE_SUMS(rows, np, sums)
}

/// Scales and minima of a group, held while its k pass.
struct coef {
    __m256 scale[2], min[2];
};

QN_INLINE __m256 dequantise(bool has_min, __m256i q, __m256 scale, __m256 min)
{
    __m256 f = _mm256_cvtepi32_ps(q);

    return has_min ? _mm256_fmadd_ps(f, scale, min) : _mm256_mul_ps(f, scale);
}

QN_INLINE void sum_int(enum qn_wkind kind, const bool has_min, const int rows, const int np,
                       float *sums, const struct qn_wdesc *w, const float *x,
                       const unsigned char *panel, size_t n_bytes)
{
    const size_t ld = lhs_ld(w), group = padded_group(w), n_groups = qn_gemm_n_groups(w);
    const size_t q_bytes = group * NR / (kind == QN_W_I4 ? 2 : 1);
    const size_t step = group_bytes(kind, w);
    __m256 acc[2][MR][2];

    FOR_SUMS(rows, np, acc[p][r][0] = acc[p][r][1] = _mm256_setzero_ps())
    for (size_t g = 0; g < n_groups; g++, panel += step, x += group) {
        struct coef c[2];
#pragma GCC unroll 2
        for (int p = 0; p < np; p++) {
            const float *scale = (const float *)(panel + (size_t)p * n_bytes + q_bytes);
            c[p].scale[0] = _mm256_load_ps(scale);
            c[p].scale[1] = _mm256_load_ps(scale + 8);
            c[p].min[0] = has_min ? _mm256_load_ps(scale + NR) : _mm256_setzero_ps();
            c[p].min[1] = has_min ? _mm256_load_ps(scale + NR + 8) : _mm256_setzero_ps();
        }
        for (size_t k = 0; k < group; k += 8) {
#pragma GCC unroll 2
            for (int p = 0; p < np; p++) {
                const unsigned char *from = panel + (size_t)p * n_bytes;
                if (kind == QN_W_I8) {
                    const __m128i *q = (const __m128i *)(from + k * NR);
#pragma GCC unroll 8
                    for (int i = 0; i < 8; i++) {
                        __m128i v = _mm_load_si128(q + i);
                        __m256 w0 = dequantise(has_min, _mm256_cvtepi8_epi32(v), c[p].scale[0],
                                               c[p].min[0]);
                        __m256 w1 =
                            dequantise(has_min, _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)),
                                       c[p].scale[1], c[p].min[1]);
                        STEP(rows, p, x, ld, k + (size_t)i, w0, w1)
                    }
                } else {
                    const __m256i *q = (const __m256i *)(from + k * NR / 2);
                    const __m256i v0 = _mm256_load_si256(q), v1 = _mm256_load_si256(q + 1);
#pragma GCC unroll 8
                    for (int i = 0; i < 8; i++) {
                        __m256i q0 = _mm256_slli_epi32(v0, 28 - 4 * i);
                        __m256i q1 = _mm256_slli_epi32(v1, 28 - 4 * i);
                        q0 = has_min ? _mm256_srli_epi32(q0, 28) : _mm256_srai_epi32(q0, 28);
                        q1 = has_min ? _mm256_srli_epi32(q1, 28) : _mm256_srai_epi32(q1, 28);
                        __m256 w0 = dequantise(has_min, q0, c[p].scale[0], c[p].min[0]);
                        __m256 w1 = dequantise(has_min, q1, c[p].scale[1], c[p].min[1]);
                        STEP(rows, p, x, ld, k + (size_t)i, w0, w1)
                    }
                }
            }
        }
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
