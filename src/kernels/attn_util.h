#ifndef QN_KERNELS_ATTN_UTIL_H
#define QN_KERNELS_ATTN_UTIL_H

#include "kernels/attn.h"

/// What the attention variants share: the table's rows, addresses inside a block, visible ranges.

#define QN_ATTN_ROW(symbol) extern const struct qn_attn_impl symbol;
#include "kernels/attn.inc"
#undef QN_ATTN_ROW

/// Every variant writes alike (attn.c): one token is a scatter of n_kv_heads * head_dim values.
void qn_attn_write_f32(const struct qn_kv_view *kv, const int32_t *blocks, size_t pos,
                       const float *k, const float *v);
void qn_attn_write_bf16(const struct qn_kv_view *kv, const int32_t *blocks, size_t pos,
                        const float *k, const float *v);

/// First byte of K of a head in the block that holds position pos; V follows n = head_dim *
/// block_tokens elements later.
static inline unsigned char *qn_attn_head_base(const struct qn_kv_view *kv, const int32_t *blocks,
                                               size_t pos, size_t kvh, size_t elem_bytes)
{
    const struct qn_kv_shape *s = &kv->shape;
    return kv->base + (size_t)blocks[pos / s->block_tokens] * kv->stride_bytes +
           2 * kvh * s->head_dim * s->block_tokens * elem_bytes;
}

/// Keys of span s that the query at position p sees, counted from the span's start: [lo, hi), both
/// 0 when there are none.
static inline void qn_attn_visible(const struct qn_attn_args *a, size_t p, size_t s, size_t *out_lo,
                                   size_t *out_hi)
{
    const size_t s0 = s * QN_ATTN_SPAN;
    size_t lo = a->window != 0 && p + 1 > a->window ? p + 1 - a->window : 0;
    size_t hi = p + 1;

    lo = lo > s0 ? lo - s0 : 0;
    hi = hi > s0 ? hi - s0 : 0;
    hi = hi < QN_ATTN_SPAN ? hi : QN_ATTN_SPAN;
    *out_lo = lo < hi ? lo : 0;
    *out_hi = lo < hi ? hi : 0;
}

#endif
