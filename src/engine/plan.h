#ifndef QN_ENGINE_PLAN_H
#define QN_ENGINE_PLAN_H

#include "engine/backend.h"

#include <stdint.h>

/// Every size of an engine, computed before anything is reserved.
struct qn_plan_opts {
    size_t max_num_seqs, max_num_batched_tokens, block_tokens;
    size_t max_model_len;
    size_t n_threads;
    uint64_t kv_cache_bytes;  ///< 0: by share
    uint64_t available_bytes; ///< memory that this process may still take
};

struct qn_plan {
    size_t n_groups;
    size_t window[QN_KV_MAX_GROUPS];
    size_t n_blocks[QN_KV_MAX_GROUPS];
    size_t max_out_rows;   ///< rows with logits in one step
    size_t max_seq_tokens; ///< longest sequence: max_model_len, or what the cache can hold
    size_t n_samplers;     ///< threads that sample, each with scratch memory
    uint64_t kv_bytes, run_bytes, logits_bytes, sampler_bytes, table_bytes;
    uint64_t total_bytes;
};

enum {
    /// Without kv_cache_bytes the KV cache takes at most this share of the memory that is left
    /// after everything else, and never more than max_num_seqs sequences of max_model_len need.
    QN_PLAN_KV_PERCENT = 50,
    /// Rows with logits beyond one per sequence; prompt logprobs go through them in chunks.
    QN_PLAN_PROMPT_ROWS = 32,
    QN_PLAN_MAX_SAMPLERS = 8
};

/// QN_E_LIMIT with needed and available bytes when it does not fit.
enum qn_status qn_plan_make(const struct qn_backend *b, const struct qn_plan_opts *o,
                            struct qn_plan *out, struct qn_err *err);

#endif
