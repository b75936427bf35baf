#ifndef QN_KERNELS_ATTN_CHECK_H
#define QN_KERNELS_ATTN_CHECK_H

#include "kernels/attn.h"
#include "kernels/check.h"

/// One sequence for the attention checks: a paged pool and, beside it, its keys and values as plain
/// matrices for the dense reference.
struct attn_seq {
    struct qn_kv_view kv;
    int32_t *blocks;
    size_t n_tokens;
    float *k, *v; ///< [n_tokens][n_kv_heads * head_dim], rounded as the pool's type rounds
};

struct attn_shape {
    size_t n_heads, n_kv_heads, head_dim, block_tokens;
};

/// A pool that holds n_tokens of random keys and values at shuffled blocks. Never-written slots and
/// the blocks between hold NaN, so that reading one shows.
void attn_seq_make(struct qn_check *c, struct attn_seq *seq, const struct qn_attn_impl *impl,
                   const struct attn_shape *shape, size_t n_tokens);

/// Make the table's entries below position `first` point nowhere, as after freeing behind a window.
void attn_seq_forget(struct attn_seq *seq, size_t first);

/// All spans and heads of rows [r0, r1), merged into a->out.
void attn_run(struct qn_check *c, const struct qn_attn_impl *impl, const struct qn_attn_args *a,
              size_t r0, size_t r1);

/// The same from the formula: dense softmax over the visible keys in double, without pages.
void attn_dense(float *out, size_t ldo, const struct attn_seq *seq, const struct qn_attn_args *a);

#endif
