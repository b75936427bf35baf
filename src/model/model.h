#ifndef QN_MODEL_MODEL_H
#define QN_MODEL_MODEL_H

#include "base/status.h"
#include "base/team.h"
#include "formats/ckpt.h"
#include "kernels/attn.h"
#include "kernels/gemm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// A bound, packed model: a descriptor (data) plus weights. Immutable after load.
struct qn_model;

struct qn_model_opts {
    enum qn_act
        activations;       ///< GEMM inputs; QN_ACT_I8 applies to integer weights, bf16 to the rest
    bool activations_auto; ///< nobody asked for these activations: no note where weights differ
    enum qn_kv_type kv_type; ///< QN_KV_F32 goes with QN_ACT_F32
    size_t max_model_len;    ///< 0: the model's own limit
    struct qn_team *team;    ///< packs in parallel; NULL: this thread alone
    /// Progress of packing, called from one thread; NULL: none.
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_user;
    /// Notes a user should see once ("tie_word_embeddings is true but …"); NULL: dropped.
    void (*note)(void *user, const char *text);
    void *note_user;
};

/// Bind every tensor that the descriptor names (missing, misshapen or unexpected kinds are errors
/// that name the tensor, found and expected), pack, and keep what the forward pass needs. The
/// checkpoint must outlive the model (embedding rows are gathered from its map).
enum qn_status qn_model_load(const struct qn_ckpt *ckpt, const struct qn_model_opts *opts,
                             struct qn_model **out_model, struct qn_err *err);
void qn_model_free(struct qn_model *m); // takes NULL

/// Layers whose KV lives as long: one group per (n_kv_heads, head_dim, window). A sequence has one
/// block table per group; blocks wholly behind a group's window may be recycled.
struct qn_kv_group {
    size_t n_layers; ///< layers that own KV in this group
    struct qn_kv_shape shape;
    size_t window;      ///< 0: full
    size_t block_bytes; ///< bytes of one block over all layers of the group
};

struct qn_model_info {
    const char *arch; ///< "LlamaForCausalLM", …
    size_t vocab_size, d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff;
    size_t max_position; ///< the model's own limit
    size_t max_model_len;
    uint64_t n_params, weight_bytes; ///< packed bytes
    enum qn_act activations;
    enum qn_kv_type kv_type;
    const int32_t *eos_ids; ///< union of config.json and generation_config.json
    size_t n_eos_ids;
    int32_t bos_id;              ///< -1: none
    const int32_t *suppress_ids; ///< generation_config.json suppress_tokens
    size_t n_suppress_ids;
};
const struct qn_model_info *qn_model_info(const struct qn_model *m);

size_t qn_model_n_kv_groups(const struct qn_model *m, size_t block_tokens);
/// Group g for a block size of block_tokens.
void qn_model_kv_group(const struct qn_model *m, size_t block_tokens, size_t g,
                       struct qn_kv_group *out);

/// Reserved state of a forward pass: KV pools and every buffer that a step needs. One step at a
/// time. After _new nothing is allocated any more.
struct qn_run;
struct qn_run_opts {
    size_t max_rows;        ///< rows of one step
    size_t max_seqs;        ///< sequences of one step
    size_t max_out_rows;    ///< rows with logits per step
    size_t block_tokens;    ///< 16 … 256, power of two
    const size_t *n_blocks; ///< [n_groups] KV blocks of each group's pool
    struct qn_team *team;   ///< borrowed; its size is the thread count
    size_t n_threads;       ///< for qn_run_bytes without a team: the size it will have
};
/// Bytes that qn_run_new will reserve, without the KV pools. team may be NULL when n_threads is
/// given.
size_t qn_run_bytes(const struct qn_model *m, const struct qn_run_opts *o);
enum qn_status qn_run_new(const struct qn_model *m, const struct qn_run_opts *o,
                          struct qn_run **out_run, struct qn_err *err);
void qn_run_free(struct qn_run *r); // takes NULL

/// Rows of one sequence: consecutive positions pos0 …; its KV up to pos0 is already written.
struct qn_batch_seq {
    size_t row0, n_rows;
    size_t pos0;
    const int32_t *const *blocks; ///< [n_groups] block tables; entry i holds positions from
                                  ///< i * block_tokens; entries behind a window may be -1
};

/// A ragged batch. Rows of all sequences stand one after another.
struct qn_batch {
    size_t n_rows, n_seqs, n_out;
    const int32_t *tokens; ///< [n_rows], each in [0, vocab_size)
    const struct qn_batch_seq *seqs;
    const int32_t *out_rows; ///< [n_out] ascending rows whose logits are wanted
    float *logits;           ///< [n_out][vocab_size]
};

/// One step: one fork of the team. Allocates, locks and looks up by name nothing. A row's logits
/// have the same bits whatever else is in the batch, the thread count and the chunking.
void qn_run_step(struct qn_run *r, const struct qn_batch *b);

/// Copy block contents inside a group's pool (forking a sequence).
void qn_run_copy_block(struct qn_run *r, size_t group, int32_t dst, int32_t src);

#endif
