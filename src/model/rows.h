#ifndef QN_MODEL_ROWS_H
#define QN_MODEL_ROWS_H

#include <stddef.h>

/// Stored row of logical (half-split) row r of q or k, when rows are kept in interleaved-pair order
/// inside heads of head_dim: stored row 2j + t of a head is logical row t * head_dim / 2 + j.
/// head_dim 0: stored as it is.
static inline size_t qn_stored_row(size_t head_dim, size_t r)
{
    if (head_dim == 0) {
        return r;
    }
    size_t head = r / head_dim, i = r % head_dim, half = head_dim / 2;
    return head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

#endif
