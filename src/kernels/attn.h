#ifndef QN_KERNELS_ATTN_H
#define QN_KERNELS_ATTN_H

#include "kernels/cpu.h"

#include <stddef.h>
#include <stdint.h>

/// Paged attention over a KV pool.
///
/// A KV block holds `block_tokens` (power of two, 16 … 256) consecutive positions of one sequence
/// for one layer: for each KV head first K as [head_dim][block_tokens] (so that q.k runs along
/// tokens), then V as [block_tokens][head_dim]. Position p lives in block table entry
/// p / block_tokens, slot p % block_tokens.
///
/// The keys of a query are cut into spans of QN_ATTN_SPAN positions at fixed multiples. A span
/// yields a partial (max, sum, weighted values); partials merge in ascending span order. The span
/// is a constant, so a query's bits depend neither on threads nor on how its prompt was chunked.
enum {
    QN_ATTN_SPAN = 512
};

enum qn_kv_type {
    QN_KV_F32,
    QN_KV_BF16,
    QN_N_KV_TYPES
};

struct qn_kv_shape {
    enum qn_kv_type type;
    size_t n_kv_heads, head_dim, block_tokens;
};

/// Bytes of one block of one layer (K and V, all KV heads), a multiple of 64.
size_t qn_kv_block_bytes(const struct qn_kv_shape *s);

/// One layer's pool: block b of this layer starts at base + b * stride.
struct qn_kv_view {
    struct qn_kv_shape shape;
    unsigned char *base;
    size_t stride_bytes;
};

/// Write K and V rows of one token per row: k, v are [n_kv_heads * head_dim] f32 (K already
/// rotated), to position pos through the sequence's block table. Slots of a block that were never
/// written must be finite: the pool is zeroed when reserved.
typedef void qn_kv_write_fn(const struct qn_kv_view *kv, const int32_t *blocks, size_t pos,
                            const float *k, const float *v);

/// Queries of one sequence.
struct qn_attn_args {
    const struct qn_kv_view *kv;
    const int32_t *blocks; ///< block table of the sequence
    size_t pos0;           ///< position of query row 0; row r is at pos0 + r
    const float *q;        ///< [n_rows][ldq] f32, rotated, head h at h * head_dim
    size_t ldq, n_rows, n_heads;
    float *out; ///< [n_rows][ldo] f32
    size_t ldo;
    float scale;
    float softcap; ///< 0: off; s = c * tanh(s / c) after scaling
    size_t window; ///< 0: full; W: keys j > p - W
    const float
        *sinks; ///< [n_heads] or NULL: extra logit without a value (arXiv:2309.17453 as in gpt-oss)
};

/// Partial result of one (row, query head, span): m, l, then head_dim accumulators.
/// floats per partial:
static inline size_t qn_attn_partial_floats(size_t head_dim)
{
    return 2 + head_dim;
}

/// Spans that rows [r0, r1) can see: [*out_s0, *out_s1).
void qn_attn_spans(const struct qn_attn_args *a, size_t r0, size_t r1, size_t *out_s0,
                   size_t *out_s1);

/// Partials of rows [r0, r1), all query heads of KV head `kvh`, span `s`. `partial` is indexed
/// [(r - r0)][head in group]; rows that see nothing of the span get m = -inf, l = 0 and zeros.
/// The same bits whatever r0, r1.
typedef void qn_attn_span_fn(const struct qn_attn_args *a, size_t r0, size_t r1, size_t kvh,
                             size_t s, float *partial);

/// Merge n_spans partials (ascending; partial of span i at partials + i * ld) of one row and head
/// and write head_dim outputs. sink: the head's sink logit or NULL.
typedef void qn_attn_merge_fn(float *out, const float *partials, size_t ld, size_t n_spans,
                              size_t head_dim, const float *sink);

/// Selected by tier and shape; generic takes every head_dim >= 1.
struct qn_attn_impl {
    const char *name;
    enum qn_kv_type type;
    enum qn_isa isa;
    size_t head_dim_multiple; ///< head_dim and block_tokens must divide by this
    qn_kv_write_fn *write;
    qn_attn_span_fn *span;
    qn_attn_merge_fn *merge;
};
const struct qn_attn_impl *qn_attn_select(const struct qn_kv_shape *s);
const struct qn_attn_impl *const *qn_attn_impls(size_t *out_n);

#endif
