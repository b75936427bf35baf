#ifndef QN_MODEL_DESC_H
#define QN_MODEL_DESC_H

#include "base/mem.h"
#include "base/status.h"
#include "formats/ckpt.h"
#include "kernels/gemm.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// An architecture as data. A family's file fills this from config.json; the forward pass reads
/// nothing else and never asks for a name.

enum {
    QN_MAX_ROPE_SETS = 4,
    QN_MAX_LAYERS = 512,
    QN_MAX_STOP_IDS = 64
};

/// Rotary frequencies of some layers. Pair i is dims (i, i + pair_distance) and turns by
/// position * w[i]; cos and sin are multiplied by m.
struct qn_rope_set {
    size_t n_pairs, pair_distance;
    float *w; ///< [n_pairs], in the model's arena
    float m;
};

enum {
    QN_BIAS_Q = 1,
    QN_BIAS_K = 2,
    QN_BIAS_V = 4,
    QN_BIAS_O = 8,
    QN_BIAS_GATE_UP = 16,
    QN_BIAS_DOWN = 32
};

struct qn_desc_layer {
    size_t n_heads, n_kv_heads, head_dim;
    unsigned bias; ///< QN_BIAS_…
    bool qk_norm;  ///< RMSNorm over each head of q and k, before the rotation
    int rope_set;  ///< index, or -1: no rotation
    size_t window; ///< 0: full; W: the last W keys, the token's own counted
    float attn_scale;
    float attn_softcap; ///< 0: off
    size_t d_ff;
};

/// Names of a layer's norm weights, after "model.layers.N." and before ".weight". The two post
/// norms are on the branch, before the residual add; NULL: none.
struct qn_norm_names {
    const char *pre_attn, *post_attn, *pre_ffn, *post_ffn;
};

struct qn_desc {
    const char *arch; ///< "LlamaForCausalLM", …
    size_t vocab_size, d_model, n_layers, max_position;
    bool tied;
    bool norm_plus_one; ///< checkpoints store w of 1 + w (unless already folded)
    struct qn_norm_names norms;
    float rms_eps;
    float embed_scale;     ///< multiplies embedding rows, before any rounding
    bool embed_scale_bf16; ///< the scale is rounded to bf16 in runs of bf16 weights
    float final_softcap;   ///< 0: off
    enum qn_glu glu;
    struct qn_rope_set rope[QN_MAX_ROPE_SETS];
    size_t n_rope_sets;
    struct qn_desc_layer *layers; ///< [n_layers]
    int32_t eos_ids[QN_MAX_STOP_IDS];
    size_t n_eos_ids;
    int32_t suppress_ids[QN_MAX_STOP_IDS];
    size_t n_suppress_ids;
    int32_t bos_id;
};

/// What a family's file reads: the decoder's part of config.json and what lies around it.
struct qn_config {
    const json_t *text;  ///< text_config, or the whole object
    const json_t *outer; ///< the whole object
    const struct qn_ckpt *ckpt;
    struct qn_arena *arena;
    const char *arch;
};

struct qn_arch {
    const char *name;       ///< entry of "architectures"
    const char *model_type; ///< what counts when "architectures" is absent
    enum qn_status (*fill)(const struct qn_config *c, struct qn_desc *d, struct qn_err *err);
};

/// Fill a descriptor from a checkpoint's configuration. Unknown architectures, rope types,
/// activations and the like are errors that name what was found and what is supported.
enum qn_status qn_desc_from_ckpt(const struct qn_ckpt *ckpt, struct qn_arena *arena,
                                 struct qn_desc *out, struct qn_err *err);

// ---- for the families' files --------------------------------------------------------------------

/// Class defaults: what a key means when it is missing. 0 in n_kv_heads: n_heads; in head_dim:
/// hidden_size / n_heads.
struct qn_desc_defaults {
    int64_t vocab_size, hidden_size, intermediate_size, n_layers, n_heads, n_kv_heads, head_dim,
        max_position;
    double rms_eps, rope_theta;
    bool tied;
};

/// The fields that every family shares: sizes, head counts, eps, tied, activation, bos. Allocates
/// the layers and gives all of them the same plan: full attention, scale head_dim^-0.5, no biases,
/// rope set 0 (which the family adds).
enum qn_status qn_desc_common(const struct qn_config *c, const struct qn_desc_defaults *def,
                              struct qn_desc *d, struct qn_err *err);
/// layer_types, if present: kinds[i] is true for "sliding_attention"; anything but that and
/// "full_attention" is refused. *out_found tells whether the key was there.
enum qn_status qn_desc_layer_types(const struct qn_config *c, const struct qn_desc *d, bool *kinds,
                                   bool *out_found, struct qn_err *err);
/// attention_bias (q k v o) and mlp_bias (gate up down) of Llama-like families, on every layer.
enum qn_status qn_desc_llama_biases(const struct qn_config *c, struct qn_desc *d,
                                    struct qn_err *err);
/// The window of layers that slide, from sliding_window; 0 when the key is null. `absent` is what a
/// missing key means.
enum qn_status qn_desc_window(const struct qn_config *c, int64_t absent, size_t *out,
                              struct qn_err *err);

/// Add the rope set of a layer type (models that have one set give NULL): normalises rope_scaling
/// and rope_parameters, old and new style, and computes the frequencies.
/// @param theta  what a missing rope_theta means.
/// @param only_default  ignore any scaling (Gemma 3's sliding layers in the old style).
enum qn_status qn_rope_add(const struct qn_config *c, const char *layer_type, double theta,
                           bool only_default, size_t head_dim, struct qn_desc *d, int *out_set,
                           struct qn_err *err);
/// Whether rope_parameters is a map from layer types.
bool qn_rope_is_per_type(const struct qn_config *c);

#endif
