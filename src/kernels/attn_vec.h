#ifndef QN_KERNELS_ATTN_VEC_H
#define QN_KERNELS_ATTN_VEC_H

/// Attention for any tier with a vector vocabulary. Include vec_<tier>.h first; the including file
/// makes its rows with QN_ATTN_VEC_IMPL.
///
/// A tile is up to TILE (query row, head) pairs of one KV head; it walks a span once: scores of
/// every key that one of its rows sees, softmax row by row, weighted values. Sums of a row do not
/// depend on the tile: a score is one chain of fma over head_dim, a value one chain over the keys,
/// and keys that a row does not see add an exact zero.

#include "kernels/attn_util.h"
#include "kernels/vec_math.h"

enum {
    CHUNK = 16,                ///< tokens scored together; divides every block
    NV = CHUNK / VW,           ///< vectors of a chunk
    TILE = 12,                 ///< rows that share one pass over K and V
    VALUE_KEYS = 64,           ///< keys whose V rows are used for all of head_dim before the next
    MAX_V = VW == 16 ? 2 : NV, ///< vectors of the widest value tile
    DIM_MULTIPLE = VW == 16 ? 16 : 8, ///< head_dim is a multiple of it
    LAST_V = DIM_MULTIPLE / VW,       ///< vectors of the last value tile
    MAX_ROWS = VW == 16 ? TILE : 6    ///< rows of one register tile
};

struct tile {
    size_t n;
    const float *q[TILE];
    float *partial[TILE];
    size_t lo[TILE], hi[TILE]; ///< keys that the row sees, from the span's start
    size_t lo_all, hi_all;     ///< keys that some row sees
    float s[TILE][QN_ATTN_SPAN];
};

QN_INLINE vf kv_load(const unsigned char *base, size_t i, enum qn_kv_type type)
{
    if (type == QN_KV_F32) {
        return v_load((const float *)(const void *)base + i);
    }
    return v_load_bf16((const uint16_t *)(const void *)base + i);
}

QN_INLINE size_t kv_elem(enum qn_kv_type type)
{
    return type == QN_KV_F32 ? sizeof(float) : sizeof(uint16_t);
}

/// q.k of rows [i, i + R) and one chunk of tokens; k points at the chunk's tokens of dimension 0.
QN_INLINE void score_rows(struct tile *t, enum qn_kv_type type, const size_t R, size_t i,
                          const unsigned char *k, size_t head_dim, size_t block_tokens, size_t j)
{
    const float *q[TILE];
    vf acc[TILE][NV];
    QN_UNROLL
    for (size_t r = 0; r < R; r++) {
        q[r] = t->q[i + r];
        QN_UNROLL
        for (size_t u = 0; u < NV; u++) {
            acc[r][u] = v_set1(0.0f);
        }
    }
    for (size_t d = 0; d < head_dim; d++) {
        vf kv[NV];
        QN_UNROLL
        for (size_t u = 0; u < NV; u++) {
            kv[u] = kv_load(k, d * block_tokens + u * VW, type);
        }
        QN_UNROLL
        for (size_t r = 0; r < R; r++) {
            const vf qd = v_set1(q[r][d]);
            QN_UNROLL
            for (size_t u = 0; u < NV; u++) {
                acc[r][u] = v_fma(qd, kv[u], acc[r][u]);
            }
        }
    }
    QN_UNROLL
    for (size_t r = 0; r < R; r++) {
        QN_UNROLL
        for (size_t u = 0; u < NV; u++) {
            v_store(t->s[i + r] + j + u * VW, acc[r][u]);
        }
    }
}

/// partial += p.V of rows [i, i + R), N vectors of head_dim from d on, over n keys from key j on
/// that lie in one block; v points at the first key's values.
QN_INLINE void value_rows(struct tile *t, enum qn_kv_type type, const size_t R, const size_t N,
                          size_t i, const unsigned char *v, size_t head_dim, size_t d, size_t j,
                          size_t n)
{
    const float *p[TILE];
    vf acc[TILE][MAX_V];
    QN_UNROLL
    for (size_t r = 0; r < R; r++) {
        p[r] = t->s[i + r] + j;
        QN_UNROLL
        for (size_t u = 0; u < N; u++) {
            acc[r][u] = v_load(t->partial[i + r] + 2 + d + u * VW);
        }
    }
    for (size_t k = 0; k < n; k++) {
        vf vv[MAX_V];
        QN_UNROLL
        for (size_t u = 0; u < N; u++) {
            vv[u] = kv_load(v, k * head_dim + d + u * VW, type);
        }
        QN_UNROLL
        for (size_t r = 0; r < R; r++) {
            const vf pk = v_set1(p[r][k]);
            QN_UNROLL
            for (size_t u = 0; u < N; u++) {
                acc[r][u] = v_fma(pk, vv[u], acc[r][u]);
            }
        }
    }
    QN_UNROLL
    for (size_t r = 0; r < R; r++) {
        QN_UNROLL
        for (size_t u = 0; u < N; u++) {
            v_store(t->partial[i + r] + 2 + d + u * VW, acc[r][u]);
        }
    }
}

/// Calls body with R as a constant for the next rows of a tile, until none is left.
#define FOR_ROWS(t, i, body)                                                                       \
    for (size_t i = 0, left = (t)->n; left > 0;) {                                                 \
        size_t step;                                                                               \
        if (MAX_ROWS > 6 && left >= MAX_ROWS) {                                                    \
            body(MAX_ROWS);                                                                        \
            step = MAX_ROWS;                                                                       \
        } else if (left >= 6) {                                                                    \
            body(6);                                                                               \
            step = 6;                                                                              \
        } else if (left >= 4) {                                                                    \
            body(4);                                                                               \
            step = 4;                                                                              \
        } else if (left == 3) {                                                                    \
            body(3);                                                                               \
            step = 3;                                                                              \
        } else if (left == 2) {                                                                    \
            body(2);                                                                               \
            step = 2;                                                                              \
        } else {                                                                                   \
            body(1);                                                                               \
            step = 1;                                                                              \
        }                                                                                          \
        i += step;                                                                                 \
        left -= step;                                                                              \
    }

QN_INLINE void tile_scores(struct tile *t, const struct qn_attn_args *a, enum qn_kv_type type,
                           size_t kvh, size_t s0)
{
    const size_t hd = a->kv->shape.head_dim, bt = a->kv->shape.block_tokens;

    for (size_t j = t->lo_all / CHUNK * CHUNK; j < t->hi_all; j += CHUNK) {
        const unsigned char *k = qn_attn_head_base(a->kv, a->blocks, s0 + j, kvh, kv_elem(type)) +
                                 (s0 + j) % bt * kv_elem(type);
#define SCORE(R) score_rows(t, type, R, i, k, hd, bt, j)
        FOR_ROWS(t, i, SCORE)
#undef SCORE
    }
}

/// Scores of a row become weights relative to their maximum; m and l go to the partial.
QN_INLINE void row_softmax(struct tile *t, const struct qn_attn_args *a, size_t i)
{
    const size_t j0 = t->lo_all / CHUNK * CHUNK;
    const size_t j1 = (t->hi_all + CHUNK - 1) / CHUNK * CHUNK;
    const vf lo = v_set1((float)t->lo[i]), hi = v_set1((float)t->hi[i]);
    const vf scale = v_set1(a->scale), cap = v_set1(a->softcap), none = v_set1(-INFINITY);
    float *s = t->s[i];
    vf m = none, l[NV];

    for (size_t j = j0; j < j1; j += VW) {
        const vf at = v_add(v_iota(), v_set1((float)j));
        vf x = v_mul(v_load(s + j), scale);
        if (a->softcap > 0.0f) {
            x = v_mul(cap, v_tanh(v_div(x, cap)));
        }
        x = v_select(v_and(v_le(lo, at), v_lt(at, hi)), x, none);
        v_store(s + j, x);
        m = v_max(x, m);
    }
    const float top = v_top(m);
    const vf vtop = v_set1(t->lo[i] < t->hi[i] ? top : 0.0f); // nothing seen: every weight is 0
    QN_UNROLL
    for (size_t u = 0; u < NV; u++) {
        l[u] = v_set1(0.0f);
    }
    for (size_t j = j0; j < j1; j += CHUNK) {
        QN_UNROLL
        for (size_t u = 0; u < NV; u++) {
            const vf p = v_exp(v_sub(v_load(s + j + u * VW), vtop));
            v_store(s + j + u * VW, p);
            l[u] = v_add(l[u], p);
        }
    }
    QN_UNROLL
    for (size_t u = 1; u < NV; u++) {
        l[0] = v_add(l[0], l[u]);
    }
    t->partial[i][0] = top;
    t->partial[i][1] = v_sum(l[0]);
}

QN_INLINE void tile_values(struct tile *t, const struct qn_attn_args *a, enum qn_kv_type type,
                           size_t kvh, size_t s0)
{
    const size_t hd = a->kv->shape.head_dim, bt = a->kv->shape.block_tokens;
    const vf zero = v_set1(0.0f);
    const size_t group = bt < VALUE_KEYS ? bt : VALUE_KEYS;

    for (size_t i = 0; i < t->n; i++) {
        for (size_t d = 0; d < hd; d += VW) {
            v_store(t->partial[i] + 2 + d, zero);
        }
    }
    for (size_t j = t->lo_all, end; j < t->hi_all; j = end) {
        end = (j / group + 1) * group;
        end = end < t->hi_all ? end : t->hi_all;
        const unsigned char *v = qn_attn_head_base(a->kv, a->blocks, s0 + j, kvh, kv_elem(type)) +
                                 (bt + (s0 + j) % bt) * hd * kv_elem(type);
        size_t d = 0;
        for (; d + MAX_V * VW <= hd; d += MAX_V * VW) {
#define VALUE(R) value_rows(t, type, R, MAX_V, i, v, hd, d, j, end - j)
            FOR_ROWS(t, i, VALUE)
#undef VALUE
        }
        if (d < hd) {
#define VALUE(R) value_rows(t, type, R, LAST_V, i, v, hd, d, j, end - j)
            FOR_ROWS(t, i, VALUE)
#undef VALUE
        }
    }
    // An exact zero of a key that is not seen may turn -0 into 0: both become 0.
    for (size_t i = 0; i < t->n; i++) {
        for (size_t d = 0; d < hd; d += VW) {
            float *p = t->partial[i] + 2 + d;
            v_store(p, v_add(v_load(p), zero));
        }
    }
}

QN_INLINE void span_any(const struct qn_attn_args *a, enum qn_kv_type type, size_t r0, size_t r1,
                        size_t kvh, size_t s, float *partial)
{
    const size_t hd = a->kv->shape.head_dim, group = a->n_heads / a->kv->shape.n_kv_heads;
    const size_t total = (r1 - r0) * group, s0 = s * QN_ATTN_SPAN;
    struct tile t;

    for (size_t first = 0; first < total; first += t.n) {
        t.n = total - first < TILE ? total - first : TILE;
        t.lo_all = QN_ATTN_SPAN;
        t.hi_all = 0;
        for (size_t i = 0; i < t.n; i++) {
            const size_t r = r0 + (first + i) / group, g = (first + i) % group;
            t.q[i] = a->q + r * a->ldq + (kvh * group + g) * hd;
            t.partial[i] = partial + (first + i) * qn_attn_partial_floats(hd);
            qn_attn_visible(a, a->pos0 + r, s, &t.lo[i], &t.hi[i]);
            if (t.lo[i] < t.hi[i]) {
                t.lo_all = t.lo[i] < t.lo_all ? t.lo[i] : t.lo_all;
                t.hi_all = t.hi[i] > t.hi_all ? t.hi[i] : t.hi_all;
            }
        }
        t.lo_all = t.lo_all < t.hi_all ? t.lo_all : t.hi_all;
        tile_scores(&t, a, type, kvh, s0);
        for (size_t i = 0; i < t.n; i++) {
            row_softmax(&t, a, i);
        }
        tile_values(&t, a, type, kvh, s0);
    }
}

static void span_f32(const struct qn_attn_args *a, size_t r0, size_t r1, size_t kvh, size_t s,
                     float *partial)
{
    span_any(a, QN_KV_F32, r0, r1, kvh, s, partial);
}

static void span_bf16(const struct qn_attn_args *a, size_t r0, size_t r1, size_t kvh, size_t s,
                      float *partial)
{
    span_any(a, QN_KV_BF16, r0, r1, kvh, s, partial);
}

static void merge(float *out, const float *partials, size_t ld, size_t n_spans, size_t head_dim,
                  const float *sink)
{
    float max = sink != NULL ? *sink : -INFINITY;
    for (size_t i = 0; i < n_spans; i++) {
        max = partials[i * ld] > max ? partials[i * ld] : max;
    }
    float sum = sink != NULL ? v_exp1(*sink - max) : 0.0f;
    for (size_t d = 0; d < head_dim; d += VW) {
        v_store(out + d, v_set1(0.0f));
    }
    for (size_t i = 0; i < n_spans; i++) {
        const float *p = partials + i * ld;
        if (p[1] == 0.0f) { // sees nothing of the span
            continue;
        }
        const float w = v_exp1(p[0] - max);
        sum = sum + w * p[1];
        for (size_t d = 0; d < head_dim; d += VW) {
            v_store(out + d, v_fma(v_set1(w), v_load(p + 2 + d), v_load(out + d)));
        }
    }
    const vf div = v_set1(sum);
    for (size_t d = 0; d < head_dim; d += VW) {
        v_store(out + d, v_div(v_load(out + d), div));
    }
}

#define QN_ATTN_VEC_IMPL(symbol, impl_name, kv_type, tier, write_fn, span_fn)                      \
    const struct qn_attn_impl symbol = {                                                           \
        .name = impl_name,                                                                         \
        .type = kv_type,                                                                           \
        .isa = tier,                                                                               \
        .head_dim_multiple = DIM_MULTIPLE,                                                         \
        .write = write_fn,                                                                         \
        .span = span_fn,                                                                           \
        .merge = merge,                                                                            \
    }

#endif
