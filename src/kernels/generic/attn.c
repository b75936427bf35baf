#include "kernels/attn_util.h"

#include <math.h>

#include "base/dtype.h"

static double kv_at(const unsigned char *base, size_t i, enum qn_kv_type type)
{
    if (type == QN_KV_F32) {
        return (double)((const float *)(const void *)base)[i];
    }
    return (double)qn_bf16_to_f32(((const uint16_t *)(const void *)base)[i]);
}

/// One query row and head against keys [lo, hi) of a span: partial = m, l, head_dim sums.
static void span_one(const struct qn_attn_args *a, enum qn_kv_type type, const float *q, size_t kvh,
                     size_t s0, size_t lo, size_t hi, float *partial)
{
    const size_t hd = a->kv->shape.head_dim, bt = a->kv->shape.block_tokens;
    const size_t elem = type == QN_KV_F32 ? sizeof(float) : sizeof(uint16_t);
    double s[QN_ATTN_SPAN], m = -INFINITY, l = 0.0;

    for (size_t j = lo; j < hi; j++) {
        const unsigned char *k = qn_attn_head_base(a->kv, a->blocks, s0 + j, kvh, elem);
        double dot = 0.0;
        for (size_t d = 0; d < hd; d++) {
            dot += (double)q[d] * kv_at(k, d * bt + (s0 + j) % bt, type);
        }
        s[j] = dot * (double)a->scale;
        if (a->softcap > 0.0f) {
            s[j] = (double)a->softcap * tanh(s[j] / (double)a->softcap);
        }
        m = s[j] > m ? s[j] : m;
    }
    m = (double)(float)m; // what the partial can hold is what the terms are relative to
    for (size_t j = lo; j < hi; j++) {
        s[j] = exp(s[j] - m);
        l += s[j];
    }
    partial[0] = (float)m;
    partial[1] = (float)l;
    for (size_t d = 0; d < hd; d++) {
        double sum = 0.0;
        for (size_t j = lo; j < hi; j++) {
            const unsigned char *k = qn_attn_head_base(a->kv, a->blocks, s0 + j, kvh, elem);
            sum += s[j] * kv_at(k, (bt + (s0 + j) % bt) * hd + d, type);
        }
        partial[2 + d] = (float)sum;
    }
}

static void span(const struct qn_attn_args *a, enum qn_kv_type type, size_t r0, size_t r1,
                 size_t kvh, size_t s, float *partial)
{
    const size_t hd = a->kv->shape.head_dim, group = a->n_heads / a->kv->shape.n_kv_heads;

    for (size_t r = r0; r < r1; r++) {
        size_t lo, hi;
        qn_attn_visible(a, a->pos0 + r, s, &lo, &hi);
        for (size_t g = 0; g < group; g++, partial += qn_attn_partial_floats(hd)) {
            span_one(a, type, a->q + r * a->ldq + (kvh * group + g) * hd, kvh, s * QN_ATTN_SPAN, lo,
                     hi, partial);
        }
    }
}

static void span_f32(const struct qn_attn_args *a, size_t r0, size_t r1, size_t kvh, size_t s,
                     float *partial)
{
    span(a, QN_KV_F32, r0, r1, kvh, s, partial);
}

static void span_bf16(const struct qn_attn_args *a, size_t r0, size_t r1, size_t kvh, size_t s,
                      float *partial)
{
    span(a, QN_KV_BF16, r0, r1, kvh, s, partial);
}

static void merge(float *out, const float *partials, size_t ld, size_t n_spans, size_t head_dim,
                  const float *sink)
{
    double max = sink != NULL ? (double)*sink : -INFINITY;
    double sum;

    for (size_t i = 0; i < n_spans; i++) {
        max = (double)partials[i * ld] > max ? (double)partials[i * ld] : max;
    }
    sum = sink != NULL ? exp((double)*sink - max) : 0.0;
    for (size_t i = 0; i < n_spans; i++) {
        const float *p = partials + i * ld;
        sum += p[1] == 0.0f ? 0.0 : exp((double)p[0] - max) * (double)p[1];
    }
    for (size_t d = 0; d < head_dim; d++) {
        double o = 0.0;
        for (size_t i = 0; i < n_spans; i++) {
            const float *p = partials + i * ld;
            o += p[1] == 0.0f ? 0.0 : exp((double)p[0] - max) * (double)p[2 + d];
        }
        out[d] = (float)(o / sum);
    }
}

const struct qn_attn_impl qn_attn_f32_generic = {
    .name = "attn_f32_generic",
    .type = QN_KV_F32,
    .isa = QN_ISA_GENERIC,
    .head_dim_multiple = 1,
    .write = qn_attn_write_f32,
    .span = span_f32,
    .merge = merge,
};

const struct qn_attn_impl qn_attn_bf16_generic = {
    .name = "attn_bf16_generic",
    .type = QN_KV_BF16,
    .isa = QN_ISA_GENERIC,
    .head_dim_multiple = 1,
    .write = qn_attn_write_bf16,
    .span = span_bf16,
    .merge = merge,
};
