// Llama and its relatives by data: Llama 2 and 3, SmolLM2, Mistral, Qwen 2 and 3, SmolLM3.
#include "model/desc.h"

#include "base/json.h"

static const struct qn_norm_names llama_norms = {.pre_attn = "input_layernorm",
                                                 .pre_ffn = "post_attention_layernorm"};

enum qn_status qn_arch_llama(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);
enum qn_status qn_arch_mistral(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);
enum qn_status qn_arch_qwen2(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);
enum qn_status qn_arch_qwen3(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);
enum qn_status qn_arch_smollm3(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);

// Sizes, the two norms, SwiGLU, and one rope set for all layers.
static enum qn_status base(const struct qn_config *c, const struct qn_desc_defaults *def,
                           struct qn_desc *d, struct qn_err *err)
{
    d->norms = llama_norms;
    d->glu = QN_GLU_SILU;
    enum qn_status rc = qn_desc_common(c, def, d, err);
    int set = 0;
    if (rc == QN_OK) {
        rc = qn_rope_add(c, NULL, def->rope_theta, false, d->layers[0].head_dim, d, &set, err);
    }
    return rc;
}

enum qn_status qn_arch_llama(const struct qn_config *c, struct qn_desc *d, struct qn_err *err)
{
    static const struct qn_desc_defaults def = {.vocab_size = 32000,
                                                .hidden_size = 4096,
                                                .intermediate_size = 11008,
                                                .n_layers = 32,
                                                .n_heads = 32,
                                                .max_position = 2048,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 1e4};
    enum qn_status rc = base(c, &def, d, err);
    return rc == QN_OK ? qn_desc_llama_biases(c, d, err) : rc;
}

// Windows on the layers that layer_types names, or on all when `all` and the key is absent.
static enum qn_status windows(const struct qn_config *c, int64_t absent, bool all, size_t first,
                              struct qn_desc *d, struct qn_err *err)
{
    bool kinds[QN_MAX_LAYERS], found = false;
    size_t window = 0;
    enum qn_status rc = qn_desc_window(c, absent, &window, err);
    if (rc == QN_OK) {
        rc = qn_desc_layer_types(c, d, kinds, &found, err);
    }
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        if (found ? kinds[i] : all && i >= first) {
            d->layers[i].window = window;
        }
    }
    return rc;
}

enum qn_status qn_arch_mistral(const struct qn_config *c, struct qn_desc *d, struct qn_err *err)
{
    static const struct qn_desc_defaults def = {.vocab_size = 32000,
                                                .hidden_size = 4096,
                                                .intermediate_size = 14336,
                                                .n_layers = 32,
                                                .n_heads = 32,
                                                .n_kv_heads = 8,
                                                .max_position = 131072,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 1e4};
    enum qn_status rc = base(c, &def, d, err);
    // The class default of a missing key is 4096; null means no window.
    return rc == QN_OK ? windows(c, 4096, true, 0, d, err) : rc;
}

// Qwen's windows count only with use_sliding_window, from layer max_window_layers on.
static enum qn_status qwen_windows(const struct qn_config *c, struct qn_desc *d, struct qn_err *err)
{
    bool use = false;
    int64_t first = 28;
    enum qn_status rc = qn_json_get_bool(c->text, "use_sliding_window", &use, NULL, err);
    if (rc == QN_OK) {
        rc = qn_json_get_int(c->text, "max_window_layers", 0, QN_MAX_LAYERS, &first, NULL, err);
    }
    if (rc != QN_OK || !use) {
        return rc;
    }
    return windows(c, 4096, true, (size_t)first, d, err);
}

enum qn_status qn_arch_qwen2(const struct qn_config *c, struct qn_desc *d, struct qn_err *err)
{
    static const struct qn_desc_defaults def = {.vocab_size = 151936,
                                                .hidden_size = 4096,
                                                .intermediate_size = 22016,
                                                .n_layers = 32,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .max_position = 32768,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 1e4};
    enum qn_status rc = base(c, &def, d, err);
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        d->layers[i].bias = QN_BIAS_Q | QN_BIAS_K | QN_BIAS_V;
    }
    return rc == QN_OK ? qwen_windows(c, d, err) : rc;
}

enum qn_status qn_arch_qwen3(const struct qn_config *c, struct qn_desc *d, struct qn_err *err)
{
    static const struct qn_desc_defaults def = {.vocab_size = 151936,
                                                .hidden_size = 4096,
                                                .intermediate_size = 22016,
                                                .n_layers = 32,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .head_dim = 128,
                                                .max_position = 32768,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 1e4};
    enum qn_status rc = base(c, &def, d, err);
    if (rc == QN_OK) {
        rc = qn_desc_llama_biases(c, d, err);
    }
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        d->layers[i].qk_norm = true;
        d->layers[i].bias &= ~(unsigned)(QN_BIAS_GATE_UP | QN_BIAS_DOWN);
    }
    return rc == QN_OK ? qwen_windows(c, d, err) : rc;
}

// Despite the key's name, 1 in no_rope_layers means that the layer is rotated.
static enum qn_status rotated_layers(const struct qn_config *c, const struct qn_desc *d,
                                     size_t interval, bool *out, struct qn_err *err)
{
    const json_t *list = json_object_get(c->text, "no_rope_layers");
    if (list == NULL || json_is_null(list)) {
        for (size_t i = 0; i < d->n_layers; i++) {
            out[i] = (i + 1) % interval != 0;
        }
        return QN_OK;
    }
    if (!json_is_array(list) || json_array_size(list) != d->n_layers) {
        return qn_fail(err, QN_E_FORMAT, "no_rope_layers: found %s of %zu entries, expected %zu",
                       qn_json_type_name(list), json_array_size(list), d->n_layers);
    }
    for (size_t i = 0; i < d->n_layers; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || (json_integer_value(v) != 0 && json_integer_value(v) != 1)) {
            return qn_fail(err, QN_E_FORMAT, "no_rope_layers[%zu]: found %s, expected 0 or 1", i,
                           json_is_integer(v) ? "another integer" : qn_json_type_name(v));
        }
        out[i] = json_integer_value(v) == 1;
    }
    return QN_OK;
}

enum qn_status qn_arch_smollm3(const struct qn_config *c, struct qn_desc *d, struct qn_err *err)
{
    static const struct qn_desc_defaults def = {.vocab_size = 128256,
                                                .hidden_size = 2048,
                                                .intermediate_size = 11008,
                                                .n_layers = 36,
                                                .n_heads = 16,
                                                .n_kv_heads = 4,
                                                .max_position = 32768,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 2e6,
                                                .tied = true};
    enum qn_status rc = base(c, &def, d, err);
    int64_t interval = 4;
    bool use_window = false;
    if (rc == QN_OK) {
        rc = qn_desc_llama_biases(c, d, err);
    }
    if (rc == QN_OK) {
        rc = qn_json_get_int(c->text, "no_rope_layer_interval", 1, QN_MAX_LAYERS, &interval, NULL,
                             err);
    }
    if (rc == QN_OK) {
        rc = qn_json_get_bool(c->text, "use_sliding_window", &use_window, NULL, err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    bool rotated[QN_MAX_LAYERS];
    rc = rotated_layers(c, d, (size_t)interval, rotated, err);
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        d->layers[i].rope_set = rotated[i] ? 0 : -1;
    }
    if (rc != QN_OK || !use_window) {
        return rc;
    }
    bool kinds[QN_MAX_LAYERS], found = false;
    size_t window = 0;
    rc = qn_desc_window(c, 0, &window, err);
    if (rc == QN_OK) {
        rc = qn_desc_layer_types(c, d, kinds, &found, err);
    }
    for (size_t i = 0; rc == QN_OK && i < d->n_layers; i++) {
        d->layers[i].window = (found ? kinds[i] : !rotated[i]) ? window : 0;
    }
    return rc;
}
