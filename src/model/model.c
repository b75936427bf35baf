#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/weights.h"

static enum qn_status free_linear(struct qn_linear *l, void *arg, struct qn_err *err)
{
    (void)arg;
    (void)err;
    qn_pages_free(l->rhs, l->rhs_bytes, QN_MEM_WEIGHTS);
    return QN_OK;
}

void qn_model_free(struct qn_model *m)
{
    if (m == NULL) {
        return;
    }
    if (m->layers != NULL) {
        qn_each_linear(m, free_linear, NULL, NULL);
    }
    qn_arena_free(m->arena);
    free(m);
}

static void fill_info(struct qn_model *m, const struct qn_model_opts *opts, size_t max_model_len)
{
    const struct qn_desc *d = &m->desc;
    const struct qn_desc_layer *l = &d->layers[0];
    m->info = (struct qn_model_info){
        .arch = d->arch,
        .vocab_size = d->vocab_size,
        .d_model = d->d_model,
        .n_layers = d->n_layers,
        .n_heads = l->n_heads,
        .n_kv_heads = l->n_kv_heads,
        .head_dim = l->head_dim,
        .d_ff = l->d_ff,
        .max_position = d->max_position,
        .max_model_len = max_model_len,
        .activations = opts->activations,
        .kv_type = opts->kv_type,
        .eos_ids = d->eos_ids,
        .n_eos_ids = d->n_eos_ids,
        .bos_id = d->bos_id,
        .suppress_ids = d->suppress_ids,
        .n_suppress_ids = d->n_suppress_ids,
    };
}

// Binding reads norms and biases from the map; what it allocates is the model's.
struct bind_job {
    struct qn_model *m;
    const struct qn_ckpt *ckpt;
    const struct qn_model_opts *opts;
    struct qn_err *err;
    enum qn_status rc;
};

static void bind_guarded(void *arg)
{
    struct bind_job *j = arg;
    j->rc = qn_bind(j->m, j->ckpt, j->opts, j->err);
}

enum qn_status qn_model_load(const struct qn_ckpt *ckpt, const struct qn_model_opts *opts,
                             struct qn_model **out_model, struct qn_err *err)
{
    struct qn_model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate a model");
    }
    enum qn_status rc = qn_cpu_init(getenv("QUERN_ISA"), err);
    if (rc == QN_OK) {
        rc = qn_arena_new(QN_MEM_WEIGHTS, 0, &m->arena, err);
    }
    if (rc == QN_OK) {
        rc = qn_desc_from_ckpt(ckpt, m->arena, &m->desc, err);
    }
    if (rc != QN_OK) {
        goto fail;
    }
    size_t max_model_len = opts->max_model_len > 0 ? opts->max_model_len : m->desc.max_position;
    if (max_model_len > m->desc.max_position) {
        rc = qn_fail(err, QN_E_INVALID,
                     "max_model_len: found %zu, the model's limit is %zu (max_position_embeddings)",
                     max_model_len, m->desc.max_position);
        goto fail;
    }
    fill_info(m, opts, max_model_len);
    struct bind_job bind = {.m = m, .ckpt = ckpt, .opts = opts, .err = err};
    rc = qn_map_guard(bind_guarded, &bind, err);
    rc = rc == QN_OK ? bind.rc : rc;
    if (rc == QN_OK) {
        rc = qn_pack_all(m, opts, err);
    }
    if (rc != QN_OK) {
        goto fail;
    }
    *out_model = m;
    return QN_OK;
fail:
    qn_model_free(m);
    return rc;
}

const struct qn_model_info *qn_model_info(const struct qn_model *m)
{
    return &m->info;
}

size_t qn_model_n_kv_groups(const struct qn_model *m, size_t block_tokens)
{
    (void)block_tokens;
    return m->n_groups;
}

void qn_model_kv_group(const struct qn_model *m, size_t block_tokens, size_t g,
                       struct qn_kv_group *out)
{
    *out = m->groups[g];
    out->shape.block_tokens = block_tokens;
    out->block_bytes = out->n_layers * qn_kv_block_bytes(&out->shape);
}
