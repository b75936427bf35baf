#include "engine/backend.h"

#include <stdlib.h>

struct ctx {
    const struct qn_model *model;
    struct qn_run *run;
};

static void shape(void *ctx, size_t block_tokens, struct qn_backend_shape *out)
{
    const struct ctx *b = ctx;
    *out = (struct qn_backend_shape){.vocab_size = qn_model_info(b->model)->vocab_size,
                                     .n_groups = qn_model_n_kv_groups(b->model, block_tokens)};
    QN_ASSERT(out->n_groups <= QN_KV_MAX_GROUPS);
    for (size_t g = 0; g < out->n_groups; g++) {
        struct qn_kv_group group;
        qn_model_kv_group(b->model, block_tokens, g, &group);
        out->window[g] = group.window;
        out->block_bytes[g] = group.block_bytes;
    }
}

static uint64_t bytes(void *ctx, const struct qn_run_opts *o)
{
    const struct ctx *b = ctx;
    return qn_run_bytes(b->model, o);
}

static enum qn_status start(void *ctx, const struct qn_run_opts *o, struct qn_err *err)
{
    struct ctx *b = ctx;
    return qn_run_new(b->model, o, &b->run, err);
}

static void step(void *ctx, const struct qn_backend_step *s)
{
    const struct ctx *b = ctx;
    qn_run_step(b->run, &s->batch);
}

static void copy_block(void *ctx, size_t group, int32_t dst, int32_t src)
{
    const struct ctx *b = ctx;
    qn_run_copy_block(b->run, group, dst, src);
}

static void free_ctx(void *ctx)
{
    struct ctx *b = ctx;
    qn_run_free(b->run);
    free(b);
}

enum qn_status qn_backend_model_new(const struct qn_model *model, struct qn_backend *out,
                                    struct qn_err *err)
{
    static const struct qn_backend_ops ops = {.shape = shape,
                                              .bytes = bytes,
                                              .start = start,
                                              .step = step,
                                              .copy_block = copy_block,
                                              .free = free_ctx};
    struct ctx *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the forward pass");
    }
    b->model = model;
    *out = (struct qn_backend){.ops = &ops, .ctx = b};
    return QN_OK;
}
