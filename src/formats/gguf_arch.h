#ifndef QN_FORMATS_GGUF_ARCH_H
#define QN_FORMATS_GGUF_ARCH_H

#include "base/status.h"
#include "formats/gguf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// GGUF architectures in Hugging Face terms: tables of tensor names and of metadata keys. An
/// architecture is a row of gguf_arch.c; what is not in a table is refused by name.

enum qn_gguf_name_kind {
    QN_NAME_PLAIN,
    QN_NAME_QK,   ///< rows are in adjacent-pair order if the architecture says so
    QN_NAME_NORM, ///< holds 1 + w if the architecture says so
    QN_NAME_QKV   ///< rows of q, k and v one after the other: becomes three tensors
};

/// One stem: "token_embd" or, per layer, what follows "blk.N.", without ".weight" or ".bias".
struct qn_gguf_name {
    const char *gguf;
    const char *hf; ///< after "model.layers.N." for layer tensors; QKV: unused
    enum qn_gguf_name_kind kind;
};

enum qn_gguf_key_kind {
    QN_KEY_INT,
    QN_KEY_UNIFORM, ///< an integer, or an array with one value for all layers
    QN_KEY_FLOAT
};

/// "ARCH.gguf" becomes config key `hf`. Absent: refused when required, left out when fallback is 0,
/// else the fallback.
struct qn_gguf_key {
    const char *gguf;
    const char *hf;
    enum qn_gguf_key_kind kind;
    bool required;
    double min, max;
    double fallback;
};

struct qn_gguf_arch {
    const char *arch;         ///< general.architecture
    const char *model_type;   ///< Hugging Face's
    const char *architecture; ///< Hugging Face's class
    bool qk_interleaved;      ///< QN_T_QK_INTERLEAVED for QN_NAME_QK tensors
    bool norm_folded;         ///< QN_T_NORM_FOLDED for QN_NAME_NORM tensors
    bool bias_keys;           ///< the config says attention_bias and mlp_bias
    const char *activation;   ///< hidden_act; Gemma: hidden_activation
    const char *activation_key;
    const struct qn_gguf_name *names; ///< before the common ones
    size_t n_names;
    const struct qn_gguf_key *keys; ///< beyond the common ones
    size_t n_keys;
    /// What tables cannot say, or NULL: adds to the config.
    enum qn_status (*extra)(const struct qn_gguf *g, json_t *config, struct qn_err *err);
};

/// NULL when the architecture has no row.
const struct qn_gguf_arch *qn_gguf_arch_find(const char *arch, size_t len);
/// Keys that every architecture has, and keys whose presence with a value other than 0 or false
/// means mathematics that no row has.
const struct qn_gguf_key *qn_gguf_common_keys(size_t *out_n);
const char *const *qn_gguf_refused_keys(size_t *out_n);

enum {
    QN_GGUF_MAX_LAYERS = 4096,
    QN_HF_NAME_MAX = 128
};

/// A tensor name translated. For QN_NAME_QKV `hf` holds "%s" where q, k or v goes.
struct qn_gguf_renamed {
    char hf[QN_HF_NAME_MAX];
    enum qn_gguf_name_kind kind;
    unsigned flags; ///< QN_T_…
};
/// QN_E_UNSUPPORTED naming a tensor that the tables do not have.
enum qn_status qn_gguf_rename(const struct qn_gguf_arch *a, const char *name, int64_t n_layers,
                              struct qn_gguf_renamed *out, struct qn_err *err);

/// config.json and generation_config.json of a GGUF file, as Hugging Face would write them. `g` is
/// the first file of a split one; `find` finds a tensor in any of them by its GGUF name.
struct qn_gguf_view {
    const struct qn_gguf *g;
    const struct qn_gguf_arch *arch;
    const struct qn_tensor *(*find)(void *ctx, const char *name);
    void *ctx;
};
enum qn_status qn_gguf_make_config(const struct qn_gguf_view *v, json_t **out, struct qn_err *err);
enum qn_status qn_gguf_make_generation(const struct qn_gguf *g, json_t **out, struct qn_err *err);

/// json_object_set_new that turns any failure into QN_E_NOMEM.
enum qn_status qn_config_set(json_t *config, const char *key, json_t *value, struct qn_err *err);

#endif
