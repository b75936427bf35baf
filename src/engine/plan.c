#include "engine/plan.h"

#include <string.h>

#include "engine/sampler.h"

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

// Blocks of group g when the full-attention groups hold n_full blocks. A windowed sequence needs
// what its window sees (it may begin inside a block) and the chunk being computed, and all chunks
// of a step together have at most max_num_batched_tokens rows.
static size_t group_blocks(const struct qn_plan_opts *o, size_t window, size_t n_full)
{
    if (window == 0) {
        return n_full;
    }
    size_t most = o->max_num_seqs * (div_up(window, o->block_tokens) + 2) +
                  div_up(o->max_num_batched_tokens, o->block_tokens);
    return n_full < most ? n_full : most;
}

static uint64_t kv_bytes(const struct qn_plan_opts *o, const struct qn_backend_shape *s,
                         size_t n_full)
{
    uint64_t sum = 0;
    for (size_t g = 0; g < s->n_groups; g++) {
        sum += (uint64_t)group_blocks(o, s->window[g], n_full) * s->block_bytes[g];
    }
    return sum;
}

// The most blocks of full attention whose pools fit the budget, at most `most`.
static size_t fit_blocks(const struct qn_plan_opts *o, const struct qn_backend_shape *s,
                         uint64_t budget, size_t most)
{
    size_t lo = 0, hi = most;
    while (lo < hi) {
        size_t mid = lo + (hi - lo + 1) / 2;
        if (kv_bytes(o, s, mid) <= budget) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    return lo;
}

enum qn_status qn_plan_make(const struct qn_backend *b, const struct qn_plan_opts *o,
                            struct qn_plan *out, struct qn_err *err)
{
    struct qn_backend_shape s;
    b->ops->shape(b->ctx, o->block_tokens, &s);
    struct qn_plan p = {.n_groups = s.n_groups, .max_out_rows = o->max_num_seqs};
    memcpy(p.window, s.window, sizeof p.window);
    p.max_out_rows += QN_PLAN_PROMPT_ROWS;
    size_t per_seq = div_up(o->max_model_len, o->block_tokens);
    p.n_samplers = o->n_threads < QN_PLAN_MAX_SAMPLERS ? o->n_threads : QN_PLAN_MAX_SAMPLERS;

    const struct qn_run_opts run = {.max_rows = o->max_num_batched_tokens,
                                    .max_seqs = o->max_num_seqs,
                                    .max_out_rows = p.max_out_rows,
                                    .block_tokens = o->block_tokens,
                                    .n_blocks = p.n_blocks,
                                    .n_threads = o->n_threads};
    p.run_bytes = b->ops->bytes(b->ctx, &run);
    p.logits_bytes = (uint64_t)p.max_out_rows * s.vocab_size * sizeof(float);
    p.sampler_bytes = (uint64_t)p.n_samplers * qn_sampler_scratch_bytes(s.vocab_size);
    p.table_bytes = (uint64_t)o->max_num_seqs * s.n_groups * per_seq * sizeof(int32_t);
    uint64_t fixed = p.run_bytes + p.logits_bytes + p.sampler_bytes + p.table_bytes;
    if (fixed >= o->available_bytes) {
        return qn_fail(err, QN_E_LIMIT,
                       "memory: needs %llu bytes for %zu sequences and %zu rows a step, available "
                       "%llu; lower max_num_seqs or max_num_batched_tokens",
                       (unsigned long long)fixed, o->max_num_seqs, o->max_num_batched_tokens,
                       (unsigned long long)o->available_bytes);
    }
    uint64_t left = o->available_bytes - fixed;
    uint64_t budget = o->kv_cache_bytes;
    if (budget > left) {
        return qn_fail(err, QN_E_LIMIT,
                       "KV cache: needs %llu bytes, available %llu after %llu for a step's "
                       "buffers; lower kv_cache_bytes",
                       (unsigned long long)budget, (unsigned long long)left,
                       (unsigned long long)fixed);
    }
    if (budget == 0) {
        budget = left / 100 * QN_PLAN_KV_PERCENT;
    }
    size_t n_full = fit_blocks(o, &s, budget, o->max_num_seqs * per_seq);
    if (n_full == 0) {
        return qn_fail(
            err, QN_E_LIMIT, "KV cache: one block of %zu tokens needs %llu bytes, available %llu",
            o->block_tokens, (unsigned long long)kv_bytes(o, &s, 1), (unsigned long long)budget);
    }
    for (size_t g = 0; g < s.n_groups; g++) {
        p.n_blocks[g] = group_blocks(o, s.window[g], n_full);
    }
    p.kv_bytes = kv_bytes(o, &s, n_full);
    size_t hold = n_full * o->block_tokens;
    p.max_seq_tokens = hold < o->max_model_len ? hold : o->max_model_len;
    p.total_bytes = fixed + p.kv_bytes;
    *out = p;
    return QN_OK;
}
