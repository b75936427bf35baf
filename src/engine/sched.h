#ifndef QN_ENGINE_SCHED_H
#define QN_ENGINE_SCHED_H

#include "engine/backend.h"
#include "engine/kv.h"
#include "engine/request.h"

/// First come, first served, with continuous batching: each step holds one row of every sequence
/// that decodes, then as many prompt rows as the token budget leaves, oldest sequence first. When
/// KV blocks run out the youngest running sequence is preempted: it gives everything back and is
/// computed again later, to the same bits. Engine thread alone; after _new nothing is allocated.
struct qn_sched_opts {
    size_t max_num_seqs;
    size_t max_rows;     ///< at least max_num_seqs
    size_t max_out_rows; ///< above max_num_seqs: the excess is for prompt logprobs
    size_t block_tokens;
    struct qn_kv *kv; ///< max_num_seqs slots
};

/// What an out row of a step is for.
struct qn_sched_out {
    struct qn_seq *seq;
    size_t position; ///< of the row in the sequence
    bool is_prompt;  ///< logprobs of the prompt's next token; otherwise a token is sampled
};

struct qn_sched {
    struct qn_sched_opts o;
    size_t next_order;
    struct qn_seq **running; ///< [max_num_seqs], oldest first
    size_t n_running;
    size_t *free_slots;
    size_t n_free_slots;
    struct qn_seq *waiting_head, *waiting_tail; ///< oldest first
    size_t n_waiting;
    uint64_t n_preemptions;
    // The step being made.
    int32_t *tokens;
    struct qn_batch_seq *batch_seqs;
    struct qn_seq **stepped; ///< [n_seqs] the sequence of each batch entry
    int32_t *out_rows;
    size_t *out_positions;
    struct qn_sched_out *outs;
};

enum qn_status qn_sched_init(struct qn_sched *s, const struct qn_sched_opts *o, struct qn_err *err);
void qn_sched_done(struct qn_sched *s); // takes a zeroed one

/// A new sequence, behind all others.
void qn_sched_add(struct qn_sched *s, struct qn_seq *seq);
/// Take a sequence out, whatever its state, and free its blocks and slot.
void qn_sched_remove(struct qn_sched *s, struct qn_seq *seq);
/// Choose the rows of the next step. batch.logits is left to the caller; n_rows is 0 when there is
/// nothing to do.
void qn_sched_make(struct qn_sched *s, struct qn_backend_step *out);
/// After the forward pass: rows count as computed, blocks behind windows are freed.
void qn_sched_computed(struct qn_sched *s, const struct qn_backend_step *step);
/// Give a sequence in QN_SEQ_FORK the prompt that `from` has computed: it runs when a slot and
/// blocks are there, and is left to compute the prompt itself otherwise (false).
bool qn_sched_fork(struct qn_sched *s, struct qn_seq *seq, const struct qn_seq *from,
                   const struct qn_backend *backend);

#endif
