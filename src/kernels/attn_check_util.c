#include "kernels/attn_check.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"

static void fill(struct qn_check *c, float *x, size_t n, enum qn_kv_type type)
{
    for (size_t i = 0; i < n; i++) {
        const float f = (float)(qn_check_rand(c) >> 8) * 0x1p-23f - 1.0f;
        x[i] = type == QN_KV_F32 ? f : qn_bf16_to_f32(qn_f32_to_bf16(f));
    }
}

void attn_seq_make(struct qn_check *c, struct attn_seq *seq, const struct qn_attn_impl *impl,
                   const struct attn_shape *shape, size_t n_tokens)
{
    const size_t bt = shape->block_tokens, width = shape->n_kv_heads * shape->head_dim;
    const size_t n_blocks = (n_tokens + bt - 1) / bt, pool = n_blocks + 2;
    const uint32_t nan_pair = impl->type == QN_KV_F32 ? 0x7fc00000u : 0x7fc07fc0u;

    seq->kv.shape = (struct qn_kv_shape){.type = impl->type,
                                         .n_kv_heads = shape->n_kv_heads,
                                         .head_dim = shape->head_dim,
                                         .block_tokens = bt};
    seq->n_tokens = n_tokens;
    seq->kv.stride_bytes = qn_kv_block_bytes(&seq->kv.shape);
    seq->kv.base = qn_check_bytes(c, pool * seq->kv.stride_bytes);
    for (size_t i = 0; i < pool * seq->kv.stride_bytes; i += sizeof nan_pair) {
        memcpy(seq->kv.base + i, &nan_pair, sizeof nan_pair);
    }
    seq->blocks = qn_check_bytes(c, n_blocks * sizeof *seq->blocks);
    for (size_t i = 0; i < n_blocks; i++) {
        seq->blocks[i] = (int32_t)(pool - 1 - i); // the first block ends the pool
    }
    for (size_t i = n_blocks - 1; i > 0; i--) {
        const size_t j = qn_check_rand(c) % (i + 1);
        const int32_t t = seq->blocks[i];
        seq->blocks[i] = seq->blocks[j];
        seq->blocks[j] = t;
    }
    seq->k = qn_check_bytes(c, n_tokens * width * sizeof *seq->k);
    seq->v = qn_check_bytes(c, n_tokens * width * sizeof *seq->v);
    fill(c, seq->k, n_tokens * width, impl->type);
    fill(c, seq->v, n_tokens * width, impl->type);
    for (size_t p = 0; p < n_tokens; p++) {
        impl->write(&seq->kv, seq->blocks, p, seq->k + p * width, seq->v + p * width);
    }
}

void attn_seq_forget(struct attn_seq *seq, size_t first)
{
    for (size_t i = 0; i < first / seq->kv.shape.block_tokens; i++) {
        seq->blocks[i] = INT32_MAX;
    }
}

void attn_run(struct qn_check *c, const struct qn_attn_impl *impl, const struct qn_attn_args *a,
              size_t r0, size_t r1)
{
    const size_t n_kv = a->kv->shape.n_kv_heads, hd = a->kv->shape.head_dim;
    const size_t group = a->n_heads / n_kv, one = qn_attn_partial_floats(hd);
    const size_t ld = (r1 - r0) * group * one;
    size_t s0, s1;

    qn_attn_spans(a, r0, r1, &s0, &s1);
    for (size_t h = 0; h < n_kv; h++) {
        float *partials = qn_check_out(c, (s1 - s0) * ld);
        for (size_t s = s0; s < s1; s++) {
            impl->span(a, r0, r1, h, s, partials + (s - s0) * ld);
        }
        for (size_t i = 0; i < (r1 - r0) * group; i++) {
            const size_t head = h * group + i % group;
            impl->merge(a->out + (r0 + i / group) * a->ldo + head * hd, partials + i * one, ld,
                        s1 - s0, hd, a->sinks != NULL ? &a->sinks[head] : NULL);
        }
    }
}

void attn_dense(float *out, size_t ldo, const struct attn_seq *seq, const struct qn_attn_args *a)
{
    enum {
        MAX_TOKENS = 4096
    };
    const size_t n_kv = seq->kv.shape.n_kv_heads, hd = seq->kv.shape.head_dim;
    double weight[MAX_TOKENS];

    QN_ASSERT(seq->n_tokens <= MAX_TOKENS);
    for (size_t r = 0; r < a->n_rows; r++) {
        for (size_t h = 0; h < a->n_heads; h++) {
            const float *q = a->q + r * a->ldq + h * hd;
            const size_t p = a->pos0 + r, kvh = h / (a->n_heads / n_kv);
            double max = a->sinks != NULL ? (double)a->sinks[h] : -INFINITY, sum;

            for (size_t j = 0; j <= p; j++) {
                double s = 0.0;
                for (size_t d = 0; d < hd; d++) {
                    s += (double)q[d] * (double)seq->k[(j * n_kv + kvh) * hd + d];
                }
                s *= (double)a->scale;
                s = a->softcap > 0.0f ? (double)a->softcap * tanh(s / (double)a->softcap) : s;
                weight[j] = a->window == 0 || j + a->window > p ? s : -INFINITY;
                max = weight[j] > max ? weight[j] : max;
            }
            sum = a->sinks != NULL ? exp((double)a->sinks[h] - max) : 0.0;
            for (size_t j = 0; j <= p; j++) {
                weight[j] = exp(weight[j] - max);
                sum += weight[j];
            }
            for (size_t d = 0; d < hd; d++) {
                double o = 0.0;
                for (size_t j = 0; j <= p; j++) {
                    o += weight[j] * (double)seq->v[(j * n_kv + kvh) * hd + d];
                }
                out[r * ldo + h * hd + d] = (float)(o / sum);
            }
        }
    }
}
