#ifndef QN_ENGINE_BACKEND_H
#define QN_ENGINE_BACKEND_H

#include "base/team.h"
#include "engine/kv.h"
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

/// What the engine needs of a model: its shape, and a forward pass. The real one is qn_run_…; tests
/// put a double in its place, so that everything above it can be tested without weights.

struct qn_backend_shape {
    size_t vocab_size;
    size_t n_groups;
    size_t window[QN_KV_MAX_GROUPS];      ///< 0: full attention
    size_t block_bytes[QN_KV_MAX_GROUPS]; ///< bytes of one KV block over the group's layers
};

/// A step: the ragged batch, and for each of its out rows how many tokens the answer already has
/// (the scripted double goes by it; a model does not look).
struct qn_backend_step {
    struct qn_batch batch;
    const size_t *out_positions; ///< [batch.n_out]
};

struct qn_backend_ops {
    /// The shape for a block size.
    void (*shape)(void *ctx, size_t block_tokens, struct qn_backend_shape *out);
    /// Bytes that _start will reserve, without the KV pools.
    uint64_t (*bytes)(void *ctx, const struct qn_run_opts *o);
    enum qn_status (*start)(void *ctx, const struct qn_run_opts *o, struct qn_err *err);
    /// The rules of qn_run_step and qn_run_copy_block hold for these.
    void (*step)(void *ctx, const struct qn_backend_step *s);
    void (*copy_block)(void *ctx, size_t group, int32_t dst, int32_t src);
    /// Free the context, started or not.
    void (*free)(void *ctx);
};

struct qn_backend {
    const struct qn_backend_ops *ops;
    void *ctx;
};

/// The model itself; it must outlive the backend.
enum qn_status qn_backend_model_new(const struct qn_model *model, struct qn_backend *out,
                                    struct qn_err *err);

/// Double that samples a list of ids: token i of every answer is id i of the list (which repeats),
/// whatever the prompt. Debug builds use it in a model's place when the environment variable
/// QUERN_TEST_SCRIPT is set to "1,2,3" or "1,2,3@MS" (then a step takes MS milliseconds); release
/// builds ignore the variable. QN_E_INVALID names what is wrong with the text.
enum qn_status qn_backend_script_new(const char *text, size_t vocab_size, struct qn_backend *out,
                                     struct qn_err *err);

#endif
