#include "model/desc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

typedef enum qn_status fill_fn(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);
#define QN_ARCH(name, type, fn) fill_fn fn;
#include "model/archs.inc"
#undef QN_ARCH

static const struct qn_arch archs[] = {
#define QN_ARCH(name, type, fn) {name, type, fn},
#include "model/archs.inc"
#undef QN_ARCH
};

enum {
    N_ARCHS = sizeof archs / sizeof archs[0],
    MAX_WIDTH = 1 << 24
};

static enum qn_status find_arch(const json_t *config, const struct qn_arch **out,
                                struct qn_err *err)
{
    const char *name =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    const char *type = json_string_value(json_object_get(config, "model_type"));
    for (size_t i = 0; i < N_ARCHS; i++) {
        bool same = name != NULL ? strcmp(name, archs[i].name) == 0
                                 : type != NULL && strcmp(type, archs[i].model_type) == 0;
        if (same) {
            *out = &archs[i];
            return QN_OK;
        }
    }
    char known[512];
    size_t n = 0;
    for (size_t i = 0; i < N_ARCHS; i++) {
        int w = snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", archs[i].name);
        n += w > 0 && (size_t)w < sizeof known - n ? (size_t)w : 0;
    }
    if (name == NULL && type == NULL) {
        return qn_fail(
            err, QN_E_FORMAT,
            "config has neither \"architectures\" nor \"model_type\", expected one of %s", known);
    }
    return qn_fail(err, QN_E_UNSUPPORTED,
                   "architecture \"%s\" is not supported, expected one of %s",
                   name != NULL ? name : type, known);
}

// An id or a list of ids, added to a set without repeats.
static enum qn_status add_ids(const json_t *obj, const char *key, int32_t *ids, size_t *n,
                              struct qn_err *err)
{
    const json_t *v = json_object_get(obj, key);
    size_t count = json_is_array(v) ? json_array_size(v) : (v != NULL && !json_is_null(v) ? 1 : 0);
    for (size_t i = 0; i < count; i++) {
        const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(e) || json_integer_value(e) < 0 || json_integer_value(e) > INT32_MAX) {
            return qn_fail(err, QN_E_FORMAT,
                           "key \"%s\": found %s, expected a token id or a list of ids", key,
                           qn_json_type_name(e));
        }
        int32_t id = (int32_t)json_integer_value(e);
        bool seen = false;
        for (size_t j = 0; j < *n; j++) {
            seen = seen || ids[j] == id;
        }
        if (!seen && *n == QN_MAX_STOP_IDS) {
            return qn_fail(err, QN_E_LIMIT, "key \"%s\": more than %d ids", key, QN_MAX_STOP_IDS);
        }
        if (!seen) {
            ids[(*n)++] = id;
        }
    }
    return QN_OK;
}

static enum qn_status read_stop_ids(const struct qn_config *c, struct qn_desc *d,
                                    struct qn_err *err)
{
    const json_t *gen = qn_ckpt_generation_config(c->ckpt);
    enum qn_status rc = add_ids(gen, "eos_token_id", d->eos_ids, &d->n_eos_ids, err);
    if (rc == QN_OK) {
        rc = add_ids(c->outer, "eos_token_id", d->eos_ids, &d->n_eos_ids, err);
    }
    if (rc == QN_OK && c->text != c->outer) {
        rc = add_ids(c->text, "eos_token_id", d->eos_ids, &d->n_eos_ids, err);
    }
    if (rc == QN_OK) {
        rc = add_ids(gen, "suppress_tokens", d->suppress_ids, &d->n_suppress_ids, err);
    }
    return rc;
}

enum qn_status qn_desc_from_ckpt(const struct qn_ckpt *ckpt, struct qn_arena *arena,
                                 struct qn_desc *out, struct qn_err *err)
{
    const json_t *outer = qn_ckpt_config(ckpt);
    const json_t *text = json_object_get(outer, "text_config");
    struct qn_config c = {
        .outer = outer, .text = json_is_object(text) ? text : outer, .ckpt = ckpt, .arena = arena};
    const struct qn_arch *arch = NULL;
    enum qn_status rc = find_arch(outer, &arch, err);
    if (rc != QN_OK) {
        return rc;
    }
    c.arch = arch->name;
    *out = (struct qn_desc){.arch = arch->name, .embed_scale = 1.0f};
    rc = arch->fill(&c, out, err);
    if (rc == QN_OK) {
        rc = read_stop_ids(&c, out, err);
    }
    if (rc != QN_OK) {
        return qn_err_context(err, rc, "config of %s", arch->name);
    }
    return QN_OK;
}

static enum qn_status read_activation(const struct qn_config *c, struct qn_desc *d,
                                      struct qn_err *err)
{
    const char *act = NULL;
    enum qn_status rc = qn_json_get_str(c->text, "hidden_activation", &act, NULL, err);
    if (rc == QN_OK && act == NULL) {
        rc = qn_json_get_str(c->text, "hidden_act", &act, NULL, err);
    }
    if (rc != QN_OK || act == NULL) {
        return rc; // the family's default stands
    }
    if (strcmp(act, "silu") == 0) {
        d->glu = QN_GLU_SILU;
    } else if (strcmp(act, "gelu_pytorch_tanh") == 0) {
        d->glu = QN_GLU_GELU_TANH;
    } else {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "activation \"%s\" is not supported, expected silu or gelu_pytorch_tanh",
                       act);
    }
    return QN_OK;
}

enum qn_status qn_desc_common(const struct qn_config *c, const struct qn_desc_defaults *def,
                              struct qn_desc *d, struct qn_err *err)
{
    int64_t vocab = def->vocab_size, hidden = def->hidden_size, ff = def->intermediate_size,
            layers = def->n_layers, heads = def->n_heads, kv = 0, head_dim = def->head_dim,
            position = def->max_position, bos = -1;
    double eps = def->rms_eps;
    bool found = false;
    const struct {
        const char *key;
        int64_t max, *out;
    } ints[] = {
        {"vocab_size", 1 << 24, &vocab},       {"hidden_size", MAX_WIDTH, &hidden},
        {"intermediate_size", MAX_WIDTH, &ff}, {"num_hidden_layers", QN_MAX_LAYERS, &layers},
        {"num_attention_heads", 4096, &heads}, {"num_key_value_heads", 4096, &kv},
        {"head_dim", 4096, &head_dim},         {"max_position_embeddings", 1 << 28, &position},
    };
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        enum qn_status rc =
            qn_json_get_int(c->text, ints[i].key, 1, ints[i].max, ints[i].out, NULL, err);
        if (rc != QN_OK) {
            return rc;
        }
    }
    enum qn_status rc = qn_json_get_num(c->text, "rms_norm_eps", &eps, NULL, err);
    if (rc == QN_OK) {
        rc = qn_json_get_int(c->text, "bos_token_id", 0, INT32_MAX, &bos, NULL, err);
    }
    bool tied = def->tied;
    if (rc == QN_OK) {
        rc = qn_json_get_bool(c->text, "tie_word_embeddings", &tied, &found, err);
    }
    if (rc == QN_OK && !found) {
        rc = qn_json_get_bool(c->outer, "tie_word_embeddings", &tied, NULL, err);
    }
    if (rc == QN_OK) {
        rc = read_activation(c, d, err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    if (kv == 0) { // absent or null: as many as query heads, unless the class says otherwise
        kv = json_object_get(c->text, "num_key_value_heads") == NULL && def->n_kv_heads > 0
                 ? def->n_kv_heads
                 : heads;
    }
    if (head_dim == 0) {
        if (hidden % heads != 0) {
            return qn_fail(err, QN_E_FORMAT,
                           "hidden_size %lld is not a multiple of num_attention_heads %lld, and "
                           "head_dim is missing",
                           (long long)hidden, (long long)heads);
        }
        head_dim = hidden / heads;
    }
    if (heads % kv != 0) {
        return qn_fail(err, QN_E_FORMAT,
                       "num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                       (long long)heads, (long long)kv);
    }
    if (!(eps > 0 && eps < 1)) {
        return qn_fail(err, QN_E_FORMAT, "rms_norm_eps: found %g, expected more than 0", eps);
    }
    d->vocab_size = (size_t)vocab;
    d->d_model = (size_t)hidden;
    d->n_layers = (size_t)layers;
    d->max_position = (size_t)position;
    d->rms_eps = (float)eps;
    d->tied = tied;
    d->bos_id = (int32_t)bos;
    d->layers = qn_arena_array(c->arena, d->n_layers, sizeof *d->layers);
    if (d->layers == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate %zu layers", d->n_layers);
    }
    for (size_t i = 0; i < d->n_layers; i++) {
        d->layers[i] = (struct qn_desc_layer){
            .n_heads = (size_t)heads,
            .n_kv_heads = (size_t)kv,
            .head_dim = (size_t)head_dim,
            .d_ff = (size_t)ff,
            .attn_scale = (float)(1.0 / sqrt((double)head_dim)),
        };
    }
    return QN_OK;
}

enum qn_status qn_desc_layer_types(const struct qn_config *c, const struct qn_desc *d, bool *kinds,
                                   bool *out_found, struct qn_err *err)
{
    const json_t *types = json_object_get(c->text, "layer_types");
    *out_found = types != NULL && !json_is_null(types);
    if (!*out_found) {
        return QN_OK;
    }
    if (!json_is_array(types)) {
        return qn_fail(err, QN_E_FORMAT, "layer_types: found %s, expected a list",
                       qn_json_type_name(types));
    }
    if (json_array_size(types) != d->n_layers) {
        return qn_fail(err, QN_E_FORMAT, "layer_types: found %zu entries, expected %zu",
                       json_array_size(types), d->n_layers);
    }
    for (size_t i = 0; i < d->n_layers; i++) {
        const char *t = json_string_value(json_array_get(types, i));
        if (t == NULL ||
            (strcmp(t, "full_attention") != 0 && strcmp(t, "sliding_attention") != 0)) {
            return qn_fail(err, QN_E_UNSUPPORTED,
                           "layer_types[%zu]: found \"%s\", expected full_attention or "
                           "sliding_attention",
                           i, t != NULL ? t : "no string");
        }
        kinds[i] = t[0] == 's';
    }
    return QN_OK;
}

enum qn_status qn_desc_llama_biases(const struct qn_config *c, struct qn_desc *d,
                                    struct qn_err *err)
{
    bool attn = false, mlp = false;
    enum qn_status rc = qn_json_get_bool(c->text, "attention_bias", &attn, NULL, err);
    if (rc == QN_OK) {
        rc = qn_json_get_bool(c->text, "mlp_bias", &mlp, NULL, err);
    }
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        d->layers[i].bias = (attn ? QN_BIAS_Q | QN_BIAS_K | QN_BIAS_V | QN_BIAS_O : 0u) |
                            (mlp ? QN_BIAS_GATE_UP | QN_BIAS_DOWN : 0u);
    }
    return rc;
}

enum qn_status qn_desc_window(const struct qn_config *c, int64_t absent, size_t *out,
                              struct qn_err *err)
{
    int64_t w = json_object_get(c->text, "sliding_window") == NULL ? absent : 0;
    enum qn_status rc = qn_json_get_int(c->text, "sliding_window", 0, 1 << 28, &w, NULL, err);
    if (rc == QN_OK) {
        *out = (size_t)w;
    }
    return rc;
}
