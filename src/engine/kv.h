#ifndef QN_ENGINE_KV_H
#define QN_ENGINE_KV_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_KV_MAX_GROUPS = 8
};

/// Block pools, one per KV group (layers whose KV lives as long), and the block tables of running
/// sequences. Only numbers: the memory of the blocks belongs to the forward pass. Engine thread
/// alone; after _new nothing is allocated.
struct qn_kv;

struct qn_kv_opts {
    size_t n_groups;
    size_t n_blocks[QN_KV_MAX_GROUPS]; ///< blocks of each pool
    size_t window[QN_KV_MAX_GROUPS];   ///< 0: full attention
    size_t block_tokens;               ///< power of two
    size_t n_slots;                    ///< block tables
    size_t max_tokens;                 ///< of one sequence
};

enum qn_status qn_kv_new(const struct qn_kv_opts *o, struct qn_kv **out_kv, struct qn_err *err);
void qn_kv_free(struct qn_kv *kv); // takes NULL

/// Block tables of a slot: [n_groups] pointers, entry i for positions from i * block_tokens; -1
/// where there is no block (behind a window, or not yet needed).
const int32_t *const *qn_kv_tables(const struct qn_kv *kv, size_t slot);
/// Blocks that the slot holds; shared ones count.
size_t qn_kv_slot_blocks(const struct qn_kv *kv, size_t slot, size_t group);

/// Give the slot blocks for positions up to n_tokens - 1. All or nothing; false when a pool lacks
/// blocks.
bool qn_kv_extend(struct qn_kv *kv, size_t slot, size_t n_tokens);
/// Most tokens that qn_kv_extend would grant now.
size_t qn_kv_extendable(const struct qn_kv *kv, size_t slot);
/// Give back blocks that no query at n_computed or later can see.
void qn_kv_trim(struct qn_kv *kv, size_t slot, size_t n_computed);
/// Give back everything.
void qn_kv_release(struct qn_kv *kv, size_t slot);

/// Make the empty slot dst hold the first n_tokens tokens of src: full blocks are shared, a partly
/// filled last one gets a block of its own, to be copied by the caller:
/// out_dst[g], out_src[g] are that pair, -1 where there is none. False when blocks are lacking.
bool qn_kv_fork(struct qn_kv *kv, size_t dst, size_t src, size_t n_tokens, int32_t *out_dst,
                int32_t *out_src);

size_t qn_kv_n_groups(const struct qn_kv *kv);
size_t qn_kv_window(const struct qn_kv *kv, size_t group);
size_t qn_kv_n_blocks(const struct qn_kv *kv, size_t group);
size_t qn_kv_n_free(const struct qn_kv *kv, size_t group);
/// Number of tables that hold the block; for tests.
size_t qn_kv_refs(const struct qn_kv *kv, size_t group, int32_t block);

#endif
