// Gemma 3, text: norms of 1 + w on both sides of each branch, q and k norms, two kinds of layers
// with rope sets of their own.
#include "model/desc.h"

#include <math.h>

#include "base/json.h"

enum qn_status qn_arch_gemma3(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);

static enum qn_status refuse_bidirectional(const struct qn_config *c, struct qn_err *err)
{
    const json_t *v = json_object_get(c->text, "use_bidirectional_attention");
    if (v != NULL && !json_is_null(v) && !json_is_false(v)) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "use_bidirectional_attention: found %s, expected false: quern runs causal "
                       "decoders",
                       qn_json_type_name(v));
    }
    return QN_OK;
}

// Which layers slide: layer_types, else all but every sliding_window_pattern-th.
static enum qn_status sliding_layers(const struct qn_config *c, const struct qn_desc *d,
                                     bool *kinds, struct qn_err *err)
{
    bool found = false, old = false;
    int64_t pattern = 6;
    enum qn_status rc = qn_desc_layer_types(c, d, kinds, &found, err);
    if (rc != QN_OK || found) {
        return rc;
    }
    rc = qn_json_get_int(c->text, "sliding_window_pattern", 1, QN_MAX_LAYERS, &pattern, &old, err);
    if (rc == QN_OK && !old) {
        rc = qn_json_get_int(c->text, "_sliding_window_pattern", 1, QN_MAX_LAYERS, &pattern, NULL,
                             err);
    }
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        kinds[i] = (int64_t)(i + 1) % pattern != 0;
    }
    return rc;
}

static enum qn_status rope_sets(const struct qn_config *c, struct qn_desc *d, int *full,
                                int *sliding, struct qn_err *err)
{
    size_t head_dim = d->layers[0].head_dim;
    bool per_type = qn_rope_is_per_type(c);
    double local = 1e4;
    enum qn_status rc = qn_json_get_num(c->text, "rope_local_base_freq", &local, NULL, err);
    if (rc == QN_OK) {
        rc = qn_rope_add(c, per_type ? "full_attention" : NULL, 1e6, false, head_dim, d, full, err);
    }
    if (rc == QN_OK) {
        rc = qn_rope_add(c, per_type ? "sliding_attention" : NULL, local, !per_type, head_dim, d,
                         sliding, err);
    }
    return rc;
}

enum qn_status qn_arch_gemma3(const struct qn_config *c, struct qn_desc *d, struct qn_err *err)
{
    static const struct qn_desc_defaults def = {.vocab_size = 262208,
                                                .hidden_size = 2304,
                                                .intermediate_size = 9216,
                                                .n_layers = 26,
                                                .n_heads = 8,
                                                .n_kv_heads = 4,
                                                .head_dim = 256,
                                                .max_position = 131072,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 1e6,
                                                .tied = true};
    d->glu = QN_GLU_GELU_TANH;
    d->norm_plus_one = true;
    d->norms = (struct qn_norm_names){.pre_attn = "input_layernorm",
                                      .post_attn = "post_attention_layernorm",
                                      .pre_ffn = "pre_feedforward_layernorm",
                                      .post_ffn = "post_feedforward_layernorm"};
    bool kinds[QN_MAX_LAYERS], bias = false;
    size_t window = 0;
    double scalar = 256, attn_cap = 0, final_cap = 0;
    int full = 0, sliding = 0;
    enum qn_status rc = qn_desc_common(c, &def, d, err);
    if (rc == QN_OK) {
        rc = refuse_bidirectional(c, err);
    }
    if (rc == QN_OK) {
        rc = sliding_layers(c, d, kinds, err);
    }
    if (rc == QN_OK) {
        rc = qn_desc_window(c, 4096, &window, err);
    }
    if (rc == QN_OK) {
        rc = rope_sets(c, d, &full, &sliding, err);
    }
    const struct {
        const char *key;
        double *out;
    } numbers[] = {{"query_pre_attn_scalar", &scalar},
                   {"attn_logit_softcapping", &attn_cap},
                   {"final_logit_softcapping", &final_cap}};
    for (size_t i = 0; rc == QN_OK && i < 3; i++) {
        rc = qn_json_get_num(c->text, numbers[i].key, numbers[i].out, NULL, err);
        if (rc == QN_OK && (!(*numbers[i].out >= 0) || (i == 0 && *numbers[i].out == 0))) {
            rc = qn_fail(err, QN_E_FORMAT, "%s: found %g, expected more than 0", numbers[i].key,
                         *numbers[i].out);
        }
    }
    if (rc == QN_OK) {
        rc = qn_json_get_bool(c->text, "attention_bias", &bias, NULL, err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    d->embed_scale = (float)sqrt((double)d->d_model);
    d->embed_scale_bf16 = true;
    d->final_softcap = (float)final_cap;
    for (size_t i = 0; i < d->n_layers; i++) {
        struct qn_desc_layer *l = &d->layers[i];
        l->qk_norm = true;
        l->bias = bias ? QN_BIAS_Q | QN_BIAS_K | QN_BIAS_V | QN_BIAS_O : 0;
        l->attn_scale = (float)(1.0 / sqrt(scalar));
        l->attn_softcap = (float)attn_cap;
        l->window = kinds[i] ? window : 0;
        l->rope_set = kinds[i] ? sliding : full;
    }
    return QN_OK;
}
