#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "model/rows.h"

enum {
    NAME_MAX_BYTES = 160
};

struct binder {
    struct qn_model *m;
    const struct qn_ckpt *ckpt;
    const struct qn_model_opts *opts;
    bool lowered;         ///< some weights take other activations than asked for
    bool seen[QN_N_ACTS]; ///< what the weights take
    struct qn_err *err;
};

static void note(const struct binder *b, const char *text)
{
    if (b->opts->note != NULL) {
        b->opts->note(b->opts->note_user, text);
    }
}

static const char *shape_text(char *buf, size_t n, const uint64_t *shape, unsigned rank)
{
    size_t at = 0;
    buf[0] = '\0';
    for (unsigned i = 0; i < rank && at < n; i++) {
        int w =
            snprintf(buf + at, n - at, "%s%llu", i == 0 ? "[" : ", ", (unsigned long long)shape[i]);
        at += w > 0 ? (size_t)w : 0;
    }
    if (at < n) {
        snprintf(buf + at, n - at, "%s]", rank == 0 ? "[" : "");
    }
    return buf;
}

static const struct qn_tensor *lookup(const struct binder *b, const char *name)
{
    return qn_ckpt_find(b->ckpt, name);
}

// A tensor that has to be there, with its shape ([d0] or [d0, d1]).
static enum qn_status need(const struct binder *b, const char *name, uint64_t d0, uint64_t d1,
                           const struct qn_tensor **out)
{
    const uint64_t want[2] = {d0, d1};
    const unsigned rank = d1 > 0 ? 2 : 1;
    const struct qn_tensor *t = lookup(b, name);
    char expected[64], found[200];
    shape_text(expected, sizeof expected, want, rank);
    if (t == NULL) {
        return qn_fail(b->err, QN_E_FORMAT, "tensor \"%s\" is missing, expected shape %s", name,
                       expected);
    }
    if (t->rank != rank || t->shape[0] != d0 || (rank == 2 && t->shape[1] != d1)) {
        return qn_fail(b->err, QN_E_FORMAT, "tensor \"%s\": shape %s, expected %s", name,
                       shape_text(found, sizeof found, t->shape, t->rank), expected);
    }
    *out = t;
    return QN_OK;
}

static float *floats(const struct binder *b, size_t n)
{
    float *p = qn_arena_array(b->m->arena, n, sizeof *p);
    if (p == NULL) {
        qn_fail(b->err, QN_E_NOMEM, "could not allocate %zu weights", n);
    }
    return p;
}

// A vector as f32; block types and values that are not finite are refused by the reader.
static enum qn_status read_vector(const struct binder *b, const char *name, size_t n, float **out,
                                  unsigned *out_flags)
{
    const struct qn_tensor *t = NULL;
    enum qn_status rc = need(b, name, n, 0, &t);
    if (rc != QN_OK) {
        return rc;
    }
    float *v = floats(b, n);
    if (v == NULL) {
        return QN_E_NOMEM;
    }
    rc = qn_tensor_read_f32(t, 0, 0, n, v, b->err);
    for (size_t i = 0; rc == QN_OK && i < n; i++) {
        if (!(v[i] - v[i] == 0)) {
            rc = qn_fail(b->err, QN_E_FORMAT, "value %zu is %g, expected a finite number", i,
                         (double)v[i]);
        }
    }
    if (rc != QN_OK) {
        return qn_err_context(b->err, rc, "tensor \"%s\"", name);
    }
    *out = v;
    *out_flags = t->flags;
    return QN_OK;
}

static enum qn_status read_norm(const struct binder *b, const char *name, size_t n, float **out)
{
    unsigned flags = 0;
    enum qn_status rc = read_vector(b, name, n, out, &flags);
    if (rc == QN_OK && b->m->desc.norm_plus_one && (flags & QN_T_NORM_FOLDED) == 0) {
        for (size_t i = 0; i < n; i++) {
            (*out)[i] += 1.0f; // in f32: bf16 would lose bits
        }
    }
    return rc;
}

static enum qn_wkind kind_of(enum qn_canon canon)
{
    static const enum qn_wkind kinds[] = {[QN_CANON_F32] = QN_W_F32,
                                          [QN_CANON_BF16] = QN_W_BF16,
                                          [QN_CANON_I8] = QN_W_I8,
                                          [QN_CANON_I4] = QN_W_I4};
    return kinds[canon];
}

// The activations that a kind of weights can take: int8 needs integer weights.
static enum qn_act act_for(struct binder *b, enum qn_wkind kind)
{
    enum qn_act act = b->opts->activations;
    if (act == QN_ACT_I8 && (kind == QN_W_BF16 || kind == QN_W_F32)) {
        b->lowered = true;
        act = kind == QN_W_BF16 ? QN_ACT_BF16 : QN_ACT_F32;
    }
    b->seen[act] = true;
    return act;
}

// Describe one linear over its parts, which have the same kind.
static enum qn_status describe(struct binder *b, struct qn_linear *l, size_t k, bool pair)
{
    struct qn_canon_desc c;
    const struct qn_tensor *t = l->parts[0].tensor;
    enum qn_status rc = qn_tensor_canon(t, &c, b->err);
    if (rc != QN_OK) {
        return qn_err_context(b->err, rc, "tensor \"%s\"", t->name);
    }
    size_t n = 0;
    for (size_t i = 0; i < l->n_parts; i++) {
        n += l->parts[i].n_rows;
    }
    l->w = (struct qn_wdesc){.kind = kind_of(c.kind),
                             .n = n,
                             .k = k,
                             .group = c.group,
                             .has_min = c.has_min,
                             .pair = pair};
    l->gemm = qn_gemm_select(&l->w, act_for(b, l->w.kind));
    if (l->gemm == NULL) {
        return qn_fail(b->err, QN_E_UNSUPPORTED,
                       "tensor \"%s\": no kernel for [%zu, %zu] %s in groups of %zu", t->name, n, k,
                       qn_dtype_name(t->dtype), c.group);
    }
    l->n_panels = qn_gemm_n_panels(l->gemm, &l->w);
    l->rhs_bytes = qn_gemm_rhs_bytes(l->gemm, &l->w);
    b->m->info.weight_bytes += l->rhs_bytes;
    b->m->info.n_params += (uint64_t)n * k;
    return QN_OK;
}

static bool same_kind(const struct qn_tensor *a, const struct qn_tensor *b)
{
    struct qn_canon_desc ca, cb;
    return qn_tensor_canon(a, &ca, NULL) == QN_OK && qn_tensor_canon(b, &cb, NULL) == QN_OK &&
           ca.kind == cb.kind && ca.group == cb.group && ca.has_min == cb.has_min;
}

static const char *layer_name(char *buf, size_t layer, const char *rest)
{
    snprintf(buf, NAME_MAX_BYTES, "model.layers.%zu.%s", layer, rest);
    return buf;
}

// One matrix "NAME.weight" [n, k] as a part.
static enum qn_status need_part(const struct binder *b, size_t layer, const char *module, size_t n,
                                size_t k, size_t head_dim, struct qn_part *out)
{
    char name[NAME_MAX_BYTES], rest[64];
    const struct qn_tensor *t = NULL;
    snprintf(rest, sizeof rest, "%s.weight", module);
    enum qn_status rc = need(b, layer_name(name, layer, rest), n, k, &t);
    if (rc == QN_OK) {
        bool interleaved = head_dim > 0 && (t->flags & QN_T_QK_INTERLEAVED) != 0;
        *out = (struct qn_part){.tensor = t, .n_rows = n, .head_dim = interleaved ? head_dim : 0};
    }
    return rc;
}

// A bias of one part into its place; where the model has none, zeros stay.
static enum qn_status read_bias(const struct binder *b, size_t layer, const char *module, size_t n,
                                size_t head_dim, float *out)
{
    char name[NAME_MAX_BYTES], rest[64];
    float *v = NULL;
    unsigned flags = 0;
    snprintf(rest, sizeof rest, "%s.bias", module);
    enum qn_status rc = read_vector(b, layer_name(name, layer, rest), n, &v, &flags);
    const size_t order = (flags & QN_T_QK_INTERLEAVED) != 0 ? head_dim : 0;
    for (size_t i = 0; rc == QN_OK && i < n; i++) {
        out[i] = v[qn_stored_row(order, i)];
    }
    b->m->info.n_params += rc == QN_OK ? n : 0;
    return rc;
}

static enum qn_status bind_qkv(struct binder *b, size_t i)
{
    static const char *const modules[] = {"self_attn.q_proj", "self_attn.k_proj",
                                          "self_attn.v_proj"};
    static const unsigned bits[] = {QN_BIAS_Q, QN_BIAS_K, QN_BIAS_V};
    const struct qn_desc_layer *d = &b->m->desc.layers[i];
    struct qn_layer *l = &b->m->layers[i];
    struct qn_part parts[3];
    enum qn_status rc = QN_OK;
    for (size_t j = 0; j < 3; j++) {
        size_t n = (j == 0 ? d->n_heads : d->n_kv_heads) * d->head_dim;
        rc = need_part(b, i, modules[j], n, b->m->desc.d_model, j < 2 ? d->head_dim : 0, &parts[j]);
        if (rc != QN_OK) {
            return rc;
        }
        struct qn_linear *last = l->n_qkv > 0 ? &l->qkv[l->n_qkv - 1] : NULL;
        if (last == NULL || !same_kind(last->parts[0].tensor, parts[j].tensor)) {
            last = &l->qkv[l->n_qkv++];
        }
        last->parts[last->n_parts++] = parts[j];
    }
    size_t part = 0;
    for (size_t j = 0; j < l->n_qkv; j++) {
        struct qn_linear *lin = &l->qkv[j];
        rc = describe(b, lin, b->m->desc.d_model, false);
        size_t at = 0;
        for (size_t p = 0; rc == QN_OK && p < lin->n_parts; p++, part++) {
            if ((d->bias & bits[part]) != 0) {
                lin->bias = lin->bias != NULL ? lin->bias : floats(b, lin->w.n);
                rc = lin->bias == NULL ? QN_E_NOMEM
                                       : read_bias(b, i, modules[part], lin->parts[p].n_rows,
                                                   d->head_dim, lin->bias + at);
            }
            at += lin->parts[p].n_rows;
        }
        if (rc != QN_OK) {
            return rc;
        }
    }
    return QN_OK;
}

// A linear of one matrix with an optional bias.
static enum qn_status bind_single(struct binder *b, size_t i, const char *module, size_t n,
                                  size_t k, bool bias, struct qn_linear *l)
{
    enum qn_status rc = need_part(b, i, module, n, k, 0, &l->parts[0]);
    if (rc == QN_OK) {
        l->n_parts = 1;
        rc = describe(b, l, k, false);
    }
    if (rc == QN_OK && bias) {
        l->bias = floats(b, n);
        rc = l->bias == NULL ? QN_E_NOMEM : read_bias(b, i, module, n, 0, l->bias);
    }
    return rc;
}

static enum qn_status bind_mlp(struct binder *b, size_t i)
{
    const struct qn_desc_layer *d = &b->m->desc.layers[i];
    struct qn_layer *l = &b->m->layers[i];
    const size_t h = b->m->desc.d_model, ff = d->d_ff;
    const bool bias = (d->bias & QN_BIAS_GATE_UP) != 0;
    struct qn_part gate, up;
    enum qn_status rc = need_part(b, i, "mlp.gate_proj", ff, h, 0, &gate);
    rc = rc == QN_OK ? need_part(b, i, "mlp.up_proj", ff, h, 0, &up) : rc;
    if (rc != QN_OK) {
        return rc;
    }
    if (same_kind(gate.tensor, up.tensor)) {
        struct qn_linear *pair = &l->gate_up[0];
        l->n_gate_up = 1;
        pair->parts[0] = gate;
        pair->parts[1] = up;
        pair->n_parts = 2;
        rc = describe(b, pair, h, true);
        if (rc == QN_OK && bias) {
            pair->bias = floats(b, 2 * ff);
            rc = pair->bias == NULL ? QN_E_NOMEM
                                    : read_bias(b, i, "mlp.gate_proj", ff, 0, pair->bias);
            rc = rc == QN_OK ? read_bias(b, i, "mlp.up_proj", ff, 0, pair->bias + ff) : rc;
        }
    } else {
        l->n_gate_up = 2;
        rc = bind_single(b, i, "mlp.gate_proj", ff, h, bias, &l->gate_up[0]);
        rc = rc == QN_OK ? bind_single(b, i, "mlp.up_proj", ff, h, bias, &l->gate_up[1]) : rc;
    }
    return rc == QN_OK
               ? bind_single(b, i, "mlp.down_proj", h, ff, (d->bias & QN_BIAS_DOWN) != 0, &l->down)
               : rc;
}

static enum qn_status bind_norms(struct binder *b, size_t i)
{
    const struct qn_desc *d = &b->m->desc;
    struct qn_layer *l = &b->m->layers[i];
    const size_t head = d->layers[i].head_dim;
    const bool qk = d->layers[i].qk_norm;
    const struct {
        const char *module;
        size_t n;
        float **out;
    } norms[] = {{d->norms.pre_attn, d->d_model, &l->pre_attn},
                 {d->norms.post_attn, d->d_model, &l->post_attn},
                 {d->norms.pre_ffn, d->d_model, &l->pre_ffn},
                 {d->norms.post_ffn, d->d_model, &l->post_ffn},
                 {qk ? "self_attn.q_norm" : NULL, head, &l->q_norm},
                 {qk ? "self_attn.k_norm" : NULL, head, &l->k_norm}};
    for (size_t j = 0; j < sizeof norms / sizeof norms[0]; j++) {
        char name[NAME_MAX_BYTES], rest[64];
        if (norms[j].module == NULL) {
            continue;
        }
        snprintf(rest, sizeof rest, "%s.weight", norms[j].module);
        enum qn_status rc = read_norm(b, layer_name(name, i, rest), norms[j].n, norms[j].out);
        if (rc != QN_OK) {
            return rc;
        }
        b->m->info.n_params += norms[j].n;
    }
    return QN_OK;
}

static bool is_plain(enum qn_dtype t)
{
    return t == QN_DT_F32 || t == QN_DT_F16 || t == QN_DT_BF16;
}

// Embedding and output matrix. A tied model may still hold a head of its own: one that differs is
// used, as current transformers does; one that is quantised apart (it comes with further tensors)
// is ignored.
static enum qn_status bind_ends(struct binder *b)
{
    struct qn_model *m = b->m;
    const struct qn_desc *d = &m->desc;
    static const char embed_name[] = "model.embed_tokens.weight", head_name[] = "lm_head.weight";
    const struct qn_tensor *head = lookup(b, head_name), *embed = lookup(b, embed_name);
    enum qn_status rc;
    if (d->tied && embed == NULL && head != NULL) { // only the head was saved: it is both
        rc = need(b, head_name, d->vocab_size, d->d_model, &m->embed);
    } else {
        rc = need(b, embed_name, d->vocab_size, d->d_model, &m->embed);
    }
    if (rc != QN_OK) {
        return rc;
    }
    struct qn_part part = {.tensor = m->embed, .n_rows = d->vocab_size};
    if (!d->tied) {
        rc = need(b, head_name, d->vocab_size, d->d_model, &part.tensor);
        if (rc != QN_OK) {
            return rc == QN_E_FORMAT && head == NULL
                       ? qn_err_context(b->err, rc, "tie_word_embeddings is false")
                       : rc;
        }
        m->info.n_params += (uint64_t)d->vocab_size * d->d_model;
    } else if (head != NULL && head != m->embed) {
        bool fits = head->rank == 2 && head->shape[0] == d->vocab_size &&
                    head->shape[1] == d->d_model && is_plain(head->dtype) &&
                    lookup(b, "lm_head.weight_scale") == NULL;
        bool equal = fits && head->dtype == m->embed->dtype && head->n_bytes == m->embed->n_bytes &&
                     memcmp(head->data, m->embed->data, head->n_bytes) == 0;
        if (fits && !equal) {
            note(
                b,
                "tie_word_embeddings is true, but the checkpoint's lm_head.weight differs from the "
                "embedding: using lm_head.weight");
            part.tensor = head;
        } else if (!fits) {
            note(b, "tie_word_embeddings is true: the checkpoint's lm_head tensors are ignored");
        }
    }
    m->head.parts[0] = part;
    m->head.n_parts = 1;
    rc = describe(b, &m->head, d->d_model, false);
    if (rc == QN_OK) {
        rc = read_norm(b, "model.norm.weight", d->d_model, &m->final_norm);
        m->info.n_params += d->d_model;
    }
    m->embed_scale = d->embed_scale;
    if (d->embed_scale_bf16 && m->embed->dtype == QN_DT_BF16 &&
        b->opts->activations != QN_ACT_F32) {
        m->embed_scale = qn_bf16_to_f32(qn_f32_to_bf16(d->embed_scale));
    }
    return rc;
}

// Layers with the same heads, head size and window share a KV group.
static enum qn_status group_kv(struct binder *b)
{
    struct qn_model *m = b->m;
    const struct qn_desc *d = &m->desc;
    m->groups = qn_arena_array(m->arena, d->n_layers, sizeof *m->groups);
    if (m->groups == NULL) {
        return qn_fail(b->err, QN_E_NOMEM, "could not allocate %zu KV groups", d->n_layers);
    }
    for (size_t i = 0; i < d->n_layers; i++) {
        const struct qn_desc_layer *l = &d->layers[i];
        size_t g = 0;
        while (g < m->n_groups &&
               (m->groups[g].shape.n_kv_heads != l->n_kv_heads ||
                m->groups[g].shape.head_dim != l->head_dim || m->groups[g].window != l->window)) {
            g++;
        }
        if (g == m->n_groups) {
            m->groups[m->n_groups++] = (struct qn_kv_group){.shape = {.type = m->info.kv_type,
                                                                      .n_kv_heads = l->n_kv_heads,
                                                                      .head_dim = l->head_dim},
                                                            .window = l->window};
        }
        m->layers[i].kv_group = g;
        m->layers[i].kv_index = m->groups[g].n_layers++;
    }
    return QN_OK;
}

enum qn_status qn_bind(struct qn_model *m, const struct qn_ckpt *ckpt,
                       const struct qn_model_opts *opts, struct qn_err *err)
{
    struct binder b = {.m = m, .ckpt = ckpt, .opts = opts, .err = err};
    const struct qn_desc *d = &m->desc;
    m->layers = qn_arena_array(m->arena, d->n_layers, sizeof *m->layers);
    if (m->layers == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate %zu layers", d->n_layers);
    }
    enum qn_status rc = bind_ends(&b);
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        const size_t q = d->layers[i].n_heads * d->layers[i].head_dim;
        rc = bind_norms(&b, i);
        rc = rc == QN_OK ? bind_qkv(&b, i) : rc;
        rc = rc == QN_OK ? bind_single(&b, i, "self_attn.o_proj", d->d_model, q,
                                       (d->layers[i].bias & QN_BIAS_O) != 0, &m->layers[i].o)
                         : rc;
        rc = rc == QN_OK ? bind_mlp(&b, i) : rc;
    }
    if (rc == QN_OK && b.lowered && !opts->activations_auto) {
        note(&b,
             "int8 activations need integer weights: float weights of this checkpoint take bf16 or "
             "f32 activations");
    }
    if (!b.seen[m->info.activations]) { // no integer weights at all
        m->info.activations = b.seen[QN_ACT_BF16] ? QN_ACT_BF16 : QN_ACT_F32;
    }
    return rc == QN_OK ? group_kv(&b) : rc;
}

enum qn_status qn_each_linear(struct qn_model *m, qn_linear_fn *fn, void *arg, struct qn_err *err)
{
    enum qn_status rc = QN_OK;
    for (size_t i = 0; i < m->desc.n_layers; i++) {
        struct qn_layer *l = &m->layers[i];
        for (size_t j = 0; rc == QN_OK && j < l->n_qkv; j++) {
            rc = fn(&l->qkv[j], arg, err);
        }
        rc = rc == QN_OK ? fn(&l->o, arg, err) : rc;
        for (size_t j = 0; rc == QN_OK && j < l->n_gate_up; j++) {
            rc = fn(&l->gate_up[j], arg, err);
        }
        rc = rc == QN_OK ? fn(&l->down, arg, err) : rc;
        if (rc != QN_OK) {
            return rc;
        }
    }
    return fn(&m->head, arg, err);
}
