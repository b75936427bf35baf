#include "formats/gguf_arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf_priv.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct qn_gguf_name k_global[] = {
    {"token_embd", "model.embed_tokens", QN_NAME_PLAIN},
    {"output_norm", "model.norm", QN_NAME_NORM},
    {"output", "lm_head", QN_NAME_PLAIN},
    {"rope_freqs", "rope_freqs", QN_NAME_PLAIN},
};

static const struct qn_gguf_name k_common[] = {
    {"attn_norm", "input_layernorm", QN_NAME_NORM},
    {"attn_q", "self_attn.q_proj", QN_NAME_QK},
    {"attn_k", "self_attn.k_proj", QN_NAME_QK},
    {"attn_v", "self_attn.v_proj", QN_NAME_PLAIN},
    {"attn_qkv", NULL, QN_NAME_QKV},
    {"attn_output", "self_attn.o_proj", QN_NAME_PLAIN},
    {"ffn_norm", "post_attention_layernorm", QN_NAME_NORM},
    {"ffn_gate", "mlp.gate_proj", QN_NAME_PLAIN},
    {"ffn_up", "mlp.up_proj", QN_NAME_PLAIN},
    {"ffn_down", "mlp.down_proj", QN_NAME_PLAIN},
};

static const struct qn_gguf_name k_qwen3[] = {
    {"attn_q_norm", "self_attn.q_norm", QN_NAME_NORM},
    {"attn_k_norm", "self_attn.k_norm", QN_NAME_NORM},
};

static const struct qn_gguf_name k_gemma3[] = {
    {"attn_q_norm", "self_attn.q_norm", QN_NAME_NORM},
    {"attn_k_norm", "self_attn.k_norm", QN_NAME_NORM},
    {"post_attention_norm", "post_attention_layernorm", QN_NAME_NORM},
    {"ffn_norm", "pre_feedforward_layernorm", QN_NAME_NORM},
    {"post_ffw_norm", "post_feedforward_layernorm", QN_NAME_NORM},
};

static const struct qn_gguf_key k_keys[] = {
    {"context_length", "max_position_embeddings", QN_KEY_INT, true, 1, 0x1p31, 0},
    {"embedding_length", "hidden_size", QN_KEY_INT, true, 1, 0x1p24, 0},
    {"block_count", "num_hidden_layers", QN_KEY_INT, true, 1, QN_GGUF_MAX_LAYERS, 0},
    {"feed_forward_length", "intermediate_size", QN_KEY_UNIFORM, true, 1, 0x1p24, 0},
    {"attention.head_count", "num_attention_heads", QN_KEY_UNIFORM, true, 1, 65536, 0},
    {"attention.head_count_kv", "num_key_value_heads", QN_KEY_UNIFORM, false, 1, 65536, 0},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", QN_KEY_FLOAT, true, 0x1p-40, 1, 0},
};

static const struct qn_gguf_key k_theta[] = {
    {"rope.freq_base", "rope_theta", QN_KEY_FLOAT, false, 1, 1e12, 10000},
};

static const struct qn_gguf_key k_gemma3_keys[] = {
    {"rope.freq_base", "rope_theta", QN_KEY_FLOAT, true, 1, 1e12, 0},
    {"rope.freq_base_swa", "rope_local_base_freq", QN_KEY_FLOAT, false, 1, 1e12, 10000},
    {"attention.sliding_window", "sliding_window", QN_KEY_INT, true, 1, 0x1p31, 0},
    {"final_logit_softcapping", "final_logit_softcapping", QN_KEY_FLOAT, false, 0, 1e6, 0},
    {"attn_logit_softcapping", "attn_logit_softcapping", QN_KEY_FLOAT, false, 0, 1e6, 0},
};

static const char *const k_refused[] = {
    "expert_count",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "pooling_type",
    "use_parallel_residual",
    "attention.shared_kv_layers",
    "nextn_predict_layers",
    "embedding_length_per_layer_input",
    "rope.scale_linear",
};

// llama: a window in every layer is what Hugging Face calls mistral.
static enum qn_status extra_llama(const struct qn_gguf *g, json_t *config, struct qn_err *err)
{
    int64_t window = 0;
    if (!qn_gguf_int(g, "llama.attention.sliding_window", &window) || window <= 0) {
        return QN_OK;
    }
    enum qn_status rc = qn_config_set(config, "sliding_window", json_integer(window), err);
    if (rc == QN_OK) {
        rc = qn_config_set(config, "model_type", json_string("mistral"), err);
    }
    if (rc == QN_OK) {
        rc = qn_config_set(config, "architectures", json_pack("[s]", "MistralForCausalLM"), err);
    }
    return rc;
}

static enum qn_status extra_qwen(const struct qn_gguf *g, json_t *config, struct qn_err *err)
{
    (void)g;
    return qn_config_set(config, "use_sliding_window", json_false(), err);
}

static enum qn_status extra_smollm3(const struct qn_gguf *g, json_t *config, struct qn_err *err)
{
    (void)g; // no key for it: every fourth layer is without rotation in this architecture
    return qn_config_set(config, "no_rope_layer_interval", json_integer(4), err);
}

// Which layers slide: five of six, a period, or a flag per layer.
static enum qn_status gemma3_pattern(const struct qn_gguf *g, json_t *config, struct qn_err *err)
{
    static const char k_key[] = "gemma3.attention.sliding_window_pattern";
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, k_key);
    int64_t period = 6, n_layers = json_integer_value(json_object_get(config, "num_hidden_layers"));
    if (kv == NULL || qn_gguf_int(g, k_key, &period)) {
        if (period < 1 || period > QN_GGUF_MAX_LAYERS) {
            return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %lld, expected 1 to %d", k_key,
                           (long long)period, QN_GGUF_MAX_LAYERS);
        }
        return qn_config_set(config, "sliding_window_pattern", json_integer(period), err);
    }
    if (kv->type != QN_GGUF_ARR || kv->elem != QN_GGUF_BOOL || (int64_t)kv->n != n_layers) {
        return qn_fail(err, QN_E_FORMAT,
                       "key \"%s\": expected an integer or one bool for each of %lld layers", k_key,
                       (long long)n_layers);
    }
    json_t *types = json_array();
    for (size_t i = 0; types != NULL && i < kv->n; i++) {
        int64_t slides = 0;
        (void)qn_gguf_arr_int(g, k_key, i, &slides);
        const char *type = slides ? "sliding_attention" : "full_attention";
        if (json_array_append_new(types, json_string(type)) != 0) {
            json_decref(types);
            types = NULL;
        }
    }
    return qn_config_set(config, "layer_types", types, err);
}

// The query scale is query_pre_attn_scalar^-0.5. Published Gemma 3 models have head_dim there, but
// for the one with 62 layers (27B), where it is hidden_size / num_attention_heads.
static enum qn_status extra_gemma3(const struct qn_gguf *g, json_t *config, struct qn_err *err)
{
    int64_t layers = json_integer_value(json_object_get(config, "num_hidden_layers"));
    int64_t hidden = json_integer_value(json_object_get(config, "hidden_size"));
    int64_t heads = json_integer_value(json_object_get(config, "num_attention_heads"));
    double scale = 0;
    json_t *qpas;
    if (qn_gguf_float(g, "gemma3.attention.scale", &scale) && scale > 0 && isfinite(scale)) {
        qpas = json_real(1.0 / (scale * scale));
    } else if (layers == 62) {
        qpas = json_integer(hidden / heads);
    } else {
        qpas = json_integer(json_integer_value(json_object_get(config, "head_dim")));
    }
    enum qn_status rc = qn_config_set(config, "query_pre_attn_scalar", qpas, err);
    return rc == QN_OK ? gemma3_pattern(g, config, err) : rc;
}

static const struct qn_gguf_arch k_archs[] = {
    {
        .arch = "llama",
        .model_type = "llama",
        .architecture = "LlamaForCausalLM",
        .qk_interleaved = true,
        .bias_keys = true,
        .activation = "silu",
        .activation_key = "hidden_act",
        .keys = k_theta,
        .n_keys = COUNT(k_theta),
        .extra = extra_llama,
    },
    {
        .arch = "qwen2",
        .model_type = "qwen2",
        .architecture = "Qwen2ForCausalLM",
        .activation = "silu",
        .activation_key = "hidden_act",
        .keys = k_theta,
        .n_keys = COUNT(k_theta),
        .extra = extra_qwen,
    },
    {
        .arch = "qwen3",
        .model_type = "qwen3",
        .architecture = "Qwen3ForCausalLM",
        .bias_keys = true,
        .activation = "silu",
        .activation_key = "hidden_act",
        .names = k_qwen3,
        .n_names = COUNT(k_qwen3),
        .keys = k_theta,
        .n_keys = COUNT(k_theta),
        .extra = extra_qwen,
    },
    {
        .arch = "gemma3",
        .model_type = "gemma3_text",
        .architecture = "Gemma3ForCausalLM",
        .norm_folded = true,
        .activation = "gelu_pytorch_tanh",
        .activation_key = "hidden_activation",
        .names = k_gemma3,
        .n_names = COUNT(k_gemma3),
        .keys = k_gemma3_keys,
        .n_keys = COUNT(k_gemma3_keys),
        .extra = extra_gemma3,
    },
    {
        .arch = "smollm3",
        .model_type = "smollm3",
        .architecture = "SmolLM3ForCausalLM",
        .qk_interleaved = true,
        .bias_keys = true,
        .activation = "silu",
        .activation_key = "hidden_act",
        .keys = k_theta,
        .n_keys = COUNT(k_theta),
        .extra = extra_smollm3,
    },
};

const struct qn_gguf_arch *qn_gguf_arch_find(const char *arch, size_t len)
{
    for (size_t i = 0; i < COUNT(k_archs); i++) {
        if (strlen(k_archs[i].arch) == len && memcmp(k_archs[i].arch, arch, len) == 0) {
            return &k_archs[i];
        }
    }
    return NULL;
}

const struct qn_gguf_key *qn_gguf_common_keys(size_t *out_n)
{
    *out_n = COUNT(k_keys);
    return k_keys;
}

const char *const *qn_gguf_refused_keys(size_t *out_n)
{
    *out_n = COUNT(k_refused);
    return k_refused;
}

static const struct qn_gguf_name *lookup(const struct qn_gguf_name *names, size_t n,
                                         const char *stem, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(names[i].gguf) == len && memcmp(names[i].gguf, stem, len) == 0) {
            return &names[i];
        }
    }
    return NULL;
}

// "blk.N." at the start of a name: N, and where the rest begins. -1 when it is not a layer's.
static int64_t layer_of(const char *name, const char **out_rest)
{
    if (strncmp(name, "blk.", 4) != 0) {
        return -1;
    }
    const char *p = name + 4;
    int64_t n = 0;
    while (*p >= '0' && *p <= '9' && n < QN_GGUF_MAX_LAYERS) {
        n = n * 10 + (*p - '0');
        p++;
    }
    if (p == name + 4 || *p != '.' || (name[4] == '0' && p > name + 5)) {
        return -1;
    }
    *out_rest = p + 1;
    return n;
}

enum qn_status qn_gguf_rename(const struct qn_gguf_arch *a, const char *name, int64_t n_layers,
                              struct qn_gguf_renamed *out, struct qn_err *err)
{
    const char *stem = name;
    int64_t layer = layer_of(name, &stem);
    const char *dot = strrchr(stem, '.');
    const struct qn_gguf_name *row = NULL;
    if (dot != NULL && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0)) {
        size_t len = (size_t)(dot - stem);
        if (layer < 0) {
            row = lookup(k_global, COUNT(k_global), stem, len);
        } else if (layer < n_layers) {
            row = lookup(a->names, a->n_names, stem, len);
            row = row != NULL ? row : lookup(k_common, COUNT(k_common), stem, len);
        }
    }
    if (row == NULL) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "tensor \"%s\": not a tensor of architecture \"%s\" with %lld layers", name,
                       a->arch, (long long)n_layers);
    }
    const char *hf = row->kind == QN_NAME_QKV ? "self_attn.%s_proj" : row->hf;
    int n = layer < 0 ? snprintf(out->hf, sizeof out->hf, "%s%s", hf, dot)
                      : snprintf(out->hf, sizeof out->hf, "model.layers.%lld.%s%s",
                                 (long long)layer, hf, dot);
    QN_ASSERT(n > 0 && (size_t)n < sizeof out->hf);
    out->kind = row->kind;
    out->flags = 0;
    if (row->kind == QN_NAME_QK && a->qk_interleaved) {
        out->flags |= QN_T_QK_INTERLEAVED;
    }
    if (row->kind == QN_NAME_NORM && a->norm_folded) {
        out->flags |= QN_T_NORM_FOLDED;
    }
    return QN_OK;
}
