#include "kernels/attn.h"

#include <string.h>

#include "base/dtype.h"
#include "kernels/attn_util.h"

static const struct qn_attn_impl *const impls[] = {
#define QN_ATTN_ROW(symbol) &symbol,
#include "kernels/attn.inc"
#undef QN_ATTN_ROW
};

enum {
    N_IMPLS = sizeof impls / sizeof impls[0]
};

size_t qn_kv_block_bytes(const struct qn_kv_shape *s)
{
    const size_t elem = s->type == QN_KV_F32 ? sizeof(float) : sizeof(uint16_t);
    const size_t n = 2 * s->n_kv_heads * s->head_dim * s->block_tokens * elem;

    return (n + 63) / 64 * 64;
}

void qn_attn_spans(const struct qn_attn_args *a, size_t r0, size_t r1, size_t *out_s0,
                   size_t *out_s1)
{
    const size_t first = a->pos0 + r0 + 1; // keys that row r0 would see without a window
    const size_t lo = a->window != 0 && first > a->window ? first - a->window : 0;

    *out_s0 = lo / QN_ATTN_SPAN;
    *out_s1 = (a->pos0 + r1 - 1) / QN_ATTN_SPAN + 1;
}

void qn_attn_write_f32(const struct qn_kv_view *kv, const int32_t *blocks, size_t pos,
                       const float *k, const float *v)
{
    const size_t hd = kv->shape.head_dim, bt = kv->shape.block_tokens, slot = pos % bt;

    for (size_t h = 0; h < kv->shape.n_kv_heads; h++, k += hd, v += hd) {
        float *kp = (float *)(void *)qn_attn_head_base(kv, blocks, pos, h, sizeof *kp);
        for (size_t d = 0; d < hd; d++) {
            kp[d * bt + slot] = k[d];
        }
        memcpy(kp + (bt + slot) * hd, v, hd * sizeof *v);
    }
}

void qn_attn_write_bf16(const struct qn_kv_view *kv, const int32_t *blocks, size_t pos,
                        const float *k, const float *v)
{
    const size_t hd = kv->shape.head_dim, bt = kv->shape.block_tokens, slot = pos % bt;

    for (size_t h = 0; h < kv->shape.n_kv_heads; h++, k += hd, v += hd) {
        uint16_t *kp = (uint16_t *)(void *)qn_attn_head_base(kv, blocks, pos, h, sizeof *kp);
        uint16_t *vp = kp + (bt + slot) * hd;
        for (size_t d = 0; d < hd; d++) {
            kp[d * bt + slot] = qn_f32_to_bf16(k[d]);
            vp[d] = qn_f32_to_bf16(v[d]);
        }
    }
}

const struct qn_attn_impl *qn_attn_select(const struct qn_kv_shape *s)
{
    for (size_t i = N_IMPLS; i-- > 0;) {
        const struct qn_attn_impl *f = impls[i];
        if (f->type == s->type && qn_cpu_has(f->isa) && s->head_dim % f->head_dim_multiple == 0 &&
            s->block_tokens % f->head_dim_multiple == 0) {
            return f;
        }
    }
    return NULL;
}

const struct qn_attn_impl *const *qn_attn_impls(size_t *out_n)
{
    *out_n = N_IMPLS;
    return impls;
}
