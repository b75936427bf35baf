#include "formats/gguf_arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "formats/gguf_priv.h"

enum {
    MAX_ARCH = 64,
    MAX_EOS = 16
};

enum qn_status qn_config_set(json_t *config, const char *key, json_t *value, struct qn_err *err)
{
    if (json_object_set_new(config, key, value) != 0) { // takes NULL as a failure
        return qn_fail(err, QN_E_NOMEM, "could not allocate config key \"%s\"", key);
    }
    return QN_OK;
}

// "ARCH.suffix" in buf.
static const char *full_key(const struct qn_gguf_view *v, const char *suffix, char *buf, size_t n)
{
    snprintf(buf, n, "%s.%s", v->arch->arch, suffix);
    return buf;
}

static enum qn_status wrong(const char *key, const struct qn_gguf_kv *kv, const char *want,
                            struct qn_err *err)
{
    return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %s, expected %s", key,
                   qn_gguf_type_name(kv->type), want);
}

static enum qn_status get_int(const struct qn_gguf *g, const char *key, bool uniform, int64_t *out,
                              struct qn_err *err)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, key);
    if (qn_gguf_int(g, key, out)) {
        return QN_OK;
    }
    if (!uniform || kv->type != QN_GGUF_ARR || kv->n > QN_GGUF_MAX_LAYERS ||
        !qn_gguf_arr_int(g, key, 0, out)) {
        return wrong(key, kv, uniform ? "an integer or an array of integers" : "an integer", err);
    }
    for (size_t i = 1; i < kv->n; i++) {
        int64_t other;
        if (!qn_gguf_arr_int(g, key, i, &other) || other != *out) {
            return qn_fail(err, QN_E_UNSUPPORTED,
                           "key \"%s\": layer %zu differs from layer 0, expected one value for all",
                           key, i);
        }
    }
    return QN_OK;
}

static enum qn_status get_float(const struct qn_gguf *g, const char *key, double *out,
                                struct qn_err *err)
{
    int64_t i;
    if (qn_gguf_float(g, key, out)) {
        return QN_OK;
    }
    if (qn_gguf_int(g, key, &i)) {
        *out = (double)i;
        return QN_OK;
    }
    return wrong(key, qn_gguf_kv_find(g, key), "a number", err);
}

static enum qn_status set_key(const struct qn_gguf_view *v, const struct qn_gguf_key *k,
                              json_t *config, struct qn_err *err)
{
    char key[MAX_ARCH + 64];
    full_key(v, k->gguf, key, sizeof key);
    if (!qn_gguf_has(v->g, key)) {
        if (k->required) {
            return qn_fail(err, QN_E_FORMAT, "key \"%s\" is missing", key);
        }
        return k->fallback > 0 ? qn_config_set(config, k->hf, json_real(k->fallback), err) : QN_OK;
    }
    int64_t i = 0;
    double f = 0;
    enum qn_status rc;
    if (k->kind == QN_KEY_FLOAT) {
        rc = get_float(v->g, key, &f, err);
    } else {
        rc = get_int(v->g, key, k->kind == QN_KEY_UNIFORM, &i, err);
        f = (double)i;
    }
    if (rc != QN_OK) {
        return rc;
    }
    if (!(f >= k->min && f <= k->max)) {
        return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %g, expected %g to %g", key, f, k->min,
                       k->max);
    }
    if (k->kind == QN_KEY_FLOAT && f == 0) {
        return QN_OK; // off, as when absent
    }
    return qn_config_set(config, k->hf, k->kind == QN_KEY_FLOAT ? json_real(f) : json_integer(i),
                         err);
}

static enum qn_status refuse_keys(const struct qn_gguf_view *v, struct qn_err *err)
{
    size_t n;
    const char *const *keys = qn_gguf_refused_keys(&n);
    for (size_t i = 0; i < n; i++) {
        char key[MAX_ARCH + 64];
        int64_t whole = 0;
        double real = 0;
        bool flag = false;
        full_key(v, keys[i], key, sizeof key);
        if ((qn_gguf_int(v->g, key, &whole) && whole != 0) ||
            (qn_gguf_float(v->g, key, &real) && real != 0) ||
            (qn_gguf_bool(v->g, key, &flag) && flag)) {
            return qn_fail(err, QN_E_UNSUPPORTED,
                           "key \"%s\": architecture \"%s\" is supported without it only", key,
                           v->arch->arch);
        }
    }
    char key[MAX_ARCH + 64];
    bool causal = true;
    full_key(v, "attention.causal", key, sizeof key);
    if (qn_gguf_bool(v->g, key, &causal) && !causal) {
        return qn_fail(err, QN_E_UNSUPPORTED, "key \"%s\": found false, expected causal attention",
                       key);
    }
    return QN_OK;
}

// head_dim, with the key, value and rotary sizes that must agree with it.
static enum qn_status set_head_dim(const struct qn_gguf_view *v, json_t *config, struct qn_err *err)
{
    static const char *const k_same[] = {"attention.key_length", "attention.value_length",
                                         "rope.dimension_count"};
    int64_t hidden = json_integer_value(json_object_get(config, "hidden_size"));
    int64_t heads = json_integer_value(json_object_get(config, "num_attention_heads"));
    int64_t head_dim = 0;
    for (size_t i = 0; i < sizeof k_same / sizeof k_same[0]; i++) {
        char key[MAX_ARCH + 64];
        int64_t n = 0;
        full_key(v, k_same[i], key, sizeof key);
        if (qn_gguf_has(v->g, key)) {
            enum qn_status rc = get_int(v->g, key, false, &n, err);
            if (rc != QN_OK) {
                return rc;
            }
            if (n < 1 || n > 65536) {
                return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %lld, expected 1 to 65536", key,
                               (long long)n);
            }
        } else if (i > 0) {
            continue;
        } else if (hidden % heads != 0) {
            return qn_fail(err, QN_E_FORMAT,
                           "key \"%s\" is missing and %lld heads do not divide %lld", key,
                           (long long)heads, (long long)hidden);
        } else {
            n = hidden / heads;
        }
        if (i > 0 && n != head_dim) {
            return qn_fail(err, QN_E_UNSUPPORTED,
                           "key \"%s\": found %lld, expected %lld, the size "
                           "of a head",
                           key, (long long)n, (long long)head_dim);
        }
        head_dim = n;
    }
    return qn_config_set(config, "head_dim", json_integer(head_dim), err);
}

static enum qn_status yarn(const struct qn_gguf_view *v, double factor, json_t *scaling,
                           struct qn_err *err)
{
    static const struct {
        const char *gguf, *hf;
    } k_betas[] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                   {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    char key[MAX_ARCH + 64];
    enum qn_status rc = QN_OK;
    for (size_t i = 0; i < 2 && rc == QN_OK; i++) {
        double beta;
        if (qn_gguf_has(v->g, full_key(v, k_betas[i].gguf, key, sizeof key))) {
            rc = get_float(v->g, key, &beta, err);
            if (rc == QN_OK && !(beta > 0 && beta < 1e6)) {
                rc =
                    qn_fail(err, QN_E_FORMAT, "key \"%s\": found %g, expected 0 to 1e6", key, beta);
            }
            rc = rc == QN_OK ? qn_config_set(scaling, k_betas[i].hf, json_real(beta), err) : rc;
        }
    }
    double ext = 1, attn = 1;
    if (rc == QN_OK &&
        qn_gguf_has(v->g, full_key(v, "rope.scaling.yarn_ext_factor", key, sizeof key))) {
        rc = get_float(v->g, key, &ext, err);
        if (rc == QN_OK && ext != 1 && ext >= 0) { // negative: the default, which is 1
            rc = qn_fail(err, QN_E_UNSUPPORTED, "key \"%s\": found %g, expected 1", key, ext);
        }
    }
    if (rc == QN_OK &&
        qn_gguf_has(v->g, full_key(v, "rope.scaling.yarn_attn_factor", key, sizeof key))) {
        rc = get_float(v->g, key, &attn, err);
        if (rc == QN_OK && !(attn > 0 && attn < 1e6)) {
            rc = qn_fail(err, QN_E_FORMAT, "key \"%s\": found %g, expected 0 to 1e6", key, attn);
        }
        // The key multiplies YaRN's own factor; Hugging Face's replaces it.
        double m = attn * (factor <= 1 ? 1.0 : 0.1 * log(factor) + 1.0);
        if (rc == QN_OK && attn != 1) {
            rc = qn_config_set(scaling, "attention_factor", json_real(m), err);
        }
    }
    return rc;
}

static enum qn_status scaling_of_type(const struct qn_gguf_view *v, const char *type,
                                      json_t *scaling, struct qn_err *err)
{
    char key[MAX_ARCH + 64];
    double factor = 0;
    int64_t original = 0;
    enum qn_status rc = QN_OK;
    if (qn_gguf_has(v->g, full_key(v, "rope.scaling.factor", key, sizeof key))) {
        rc = get_float(v->g, key, &factor, err);
    }
    if (rc == QN_OK && !(factor > 0 && factor < 1e6)) {
        rc = qn_fail(err, QN_E_FORMAT,
                     "key \"%s\": found %g, expected a factor above 0 for rope scaling type "
                     "\"%s\"",
                     key, factor, type);
    }
    rc = rc == QN_OK ? qn_config_set(scaling, "rope_type", json_string(type), err) : rc;
    rc = rc == QN_OK ? qn_config_set(scaling, "factor", json_real(factor), err) : rc;
    if (rc == QN_OK &&
        qn_gguf_has(v->g, full_key(v, "rope.scaling.original_context_length", key, sizeof key))) {
        rc = get_int(v->g, key, false, &original, err);
        if (rc == QN_OK && (original < 1 || original > INT32_MAX)) {
            rc = qn_fail(err, QN_E_FORMAT, "key \"%s\": found %lld, expected 1 to %d", key,
                         (long long)original, INT32_MAX);
        }
        rc = rc == QN_OK ? qn_config_set(scaling, "original_max_position_embeddings",
                                         json_integer(original), err)
                         : rc;
    }
    if (rc == QN_OK && strcmp(type, "yarn") == 0) {
        rc = yarn(v, factor, scaling, err);
    }
    return rc;
}

static enum qn_status set_rope_scaling(const struct qn_gguf_view *v, json_t *config,
                                       struct qn_err *err)
{
    char key[MAX_ARCH + 64];
    const char *type = "none";
    size_t len = 4;
    full_key(v, "rope.scaling.type", key, sizeof key);
    if (qn_gguf_has(v->g, key) && !qn_gguf_str(v->g, key, &type, &len)) {
        return wrong(key, qn_gguf_kv_find(v->g, key), "a string", err);
    }
    bool divisors = v->find(v->ctx, "rope_freqs.weight") != NULL;
    bool none = strcmp(type, "none") == 0;
    if (!none && ((strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0) || divisors)) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "key \"%s\": found \"%.40s\"%s, expected none, linear or yarn", key, type,
                       divisors ? " beside tensor \"rope_freqs.weight\"" : "");
    }
    if (none && !divisors) {
        return QN_OK;
    }
    json_t *scaling = json_object();
    enum qn_status rc = qn_config_set(config, "rope_scaling", scaling, err);
    if (rc != QN_OK) {
        return rc;
    }
    if (divisors) {
        return qn_config_set(scaling, "rope_type", json_string("freq_factors"), err);
    }
    return scaling_of_type(v, type, scaling, err);
}

static const char *source_dtype(enum qn_dtype t)
{
    return t == QN_DT_BF16 ? "bfloat16" : t == QN_DT_F16 ? "float16" : "float32";
}

// What the tensors say: vocabulary size, tied head, biases, the dtype of plain weights.
static enum qn_status set_from_tensors(const struct qn_gguf_view *v, json_t *config,
                                       struct qn_err *err)
{
    const struct qn_tensor *embed = v->find(v->ctx, "token_embd.weight");
    if (embed == NULL || embed->rank != 2) {
        return qn_fail(err, QN_E_FORMAT,
                       "tensor \"token_embd.weight\": found %s, expected a matrix",
                       embed == NULL ? "nothing" : "another rank");
    }
    enum qn_gguf_type type;
    size_t n_tokens = 0;
    if (qn_gguf_arr(v->g, "tokenizer.ggml.tokens", &type, &n_tokens) &&
        n_tokens > embed->shape[0]) {
        return qn_fail(err, QN_E_FORMAT,
                       "tensor \"token_embd.weight\": found %llu rows, expected at least %zu, one "
                       "for each token",
                       (unsigned long long)embed->shape[0], n_tokens);
    }
    bool tied = v->find(v->ctx, "output.weight") == NULL;
    enum qn_status rc =
        qn_config_set(config, "vocab_size", json_integer((json_int_t)embed->shape[0]), err);
    rc = rc == QN_OK ? qn_config_set(config, "tie_word_embeddings", json_boolean(tied), err) : rc;
    rc = rc == QN_OK ? qn_config_set(config, "dtype", json_string(source_dtype(embed->dtype)), err)
                     : rc;
    if (rc == QN_OK && v->arch->bias_keys) {
        bool attn = v->find(v->ctx, "blk.0.attn_q.bias") != NULL ||
                    v->find(v->ctx, "blk.0.attn_qkv.bias") != NULL;
        bool mlp = v->find(v->ctx, "blk.0.ffn_gate.bias") != NULL;
        rc = qn_config_set(config, "attention_bias", json_boolean(attn), err);
        rc = rc == QN_OK ? qn_config_set(config, "mlp_bias", json_boolean(mlp), err) : rc;
    }
    return rc;
}

static enum qn_status fill(const struct qn_gguf_view *v, json_t *config, struct qn_err *err)
{
    const struct qn_gguf_arch *a = v->arch;
    enum qn_status rc = qn_config_set(config, "model_type", json_string(a->model_type), err);
    rc = rc == QN_OK
             ? qn_config_set(config, "architectures", json_pack("[s]", a->architecture), err)
             : rc;
    rc = rc == QN_OK ? qn_config_set(config, a->activation_key, json_string(a->activation), err)
                     : rc;
    rc = rc == QN_OK ? refuse_keys(v, err) : rc;
    size_t n;
    const struct qn_gguf_key *common = qn_gguf_common_keys(&n);
    for (size_t i = 0; i < n && rc == QN_OK; i++) {
        rc = set_key(v, &common[i], config, err);
    }
    for (size_t i = 0; i < a->n_keys && rc == QN_OK; i++) {
        rc = set_key(v, &a->keys[i], config, err);
    }
    if (rc == QN_OK && json_object_get(config, "num_key_value_heads") == NULL) {
        rc = qn_config_set(config, "num_key_value_heads",
                           json_incref(json_object_get(config, "num_attention_heads")), err);
    }
    rc = rc == QN_OK ? set_head_dim(v, config, err) : rc;
    rc = rc == QN_OK ? set_rope_scaling(v, config, err) : rc;
    rc = rc == QN_OK ? set_from_tensors(v, config, err) : rc;
    return rc == QN_OK && a->extra != NULL ? a->extra(v->g, config, err) : rc;
}

enum qn_status qn_gguf_make_config(const struct qn_gguf_view *v, json_t **out, struct qn_err *err)
{
    json_t *config = json_object();
    if (config == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate a config");
    }
    enum qn_status rc = fill(v, config, err);
    if (rc != QN_OK) {
        json_decref(config);
        return rc;
    }
    *out = config;
    return QN_OK;
}

struct eos {
    const struct qn_gguf *g;
    int64_t ids[MAX_EOS];
    size_t n;
};

static void add_eos(struct eos *e, int64_t id)
{
    for (size_t i = 0; i < e->n; i++) {
        if (e->ids[i] == id) {
            return;
        }
    }
    if (id >= 0 && e->n < MAX_EOS) {
        e->ids[e->n++] = id;
    }
}

// Chat models often lack the key for the end of a turn: the control token that spells it counts.
static void scan_turn_ends(void *arg)
{
    static const char *const k_ends[] = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<turn|>"};
    struct eos *e = arg;
    enum qn_gguf_type type;
    size_t n = 0;
    (void)qn_gguf_arr(e->g, "tokenizer.ggml.tokens", &type, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t kind = 0;
        const char *s;
        size_t len;
        if (!qn_gguf_arr_int(e->g, "tokenizer.ggml.token_type", i, &kind) || kind != 3 ||
            !qn_gguf_arr_str(e->g, "tokenizer.ggml.tokens", i, &s, &len)) {
            continue;
        }
        for (size_t k = 0; k < sizeof k_ends / sizeof k_ends[0]; k++) {
            if (strlen(k_ends[k]) == len && memcmp(k_ends[k], s, len) == 0) {
                add_eos(e, (int64_t)i);
            }
        }
    }
}

enum qn_status qn_gguf_make_generation(const struct qn_gguf *g, json_t **out, struct qn_err *err)
{
    static const char *const k_eos[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    struct eos e = {.g = g};
    for (size_t i = 0; i < sizeof k_eos / sizeof k_eos[0]; i++) {
        int64_t id;
        if (qn_gguf_int(g, k_eos[i], &id)) {
            add_eos(&e, id);
        }
    }
    enum qn_status rc = QN_OK;
    if (qn_gguf_has(g, "tokenizer.chat_template") &&
        !qn_gguf_has(g, "tokenizer.ggml.eot_token_id")) {
        rc = qn_map_guard(scan_turn_ends, &e, err);
        if (rc != QN_OK) {
            return rc;
        }
    }
    json_t *gen = json_object(), *ids = json_array();
    for (size_t i = 0; ids != NULL && i < e.n; i++) {
        if (json_array_append_new(ids, json_integer(e.ids[i])) != 0) {
            json_decref(ids);
            ids = NULL;
        }
    }
    rc = qn_config_set(gen, "eos_token_id", ids, err);
    static const struct {
        const char *gguf, *hf;
    } k_ids[] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                 {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    for (size_t i = 0; rc == QN_OK && i < 2; i++) {
        int64_t id;
        if (qn_gguf_int(g, k_ids[i].gguf, &id) && id >= 0) {
            rc = qn_config_set(gen, k_ids[i].hf, json_integer(id), err);
        }
    }
    if (rc != QN_OK) {
        json_decref(gen);
        return rc;
    }
    *out = gen;
    return QN_OK;
}
