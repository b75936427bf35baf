#ifndef QN_FORMATS_CKPT_H
#define QN_FORMATS_CKPT_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// One view of a checkpoint, whatever its container: a Hugging Face directory (safetensors, single
/// or sharded) or a GGUF file. Names, shapes and configuration are in Hugging Face terms; what a
/// container stores differently is said by flags of the tensor.

/// Element types as stored.
enum qn_dtype {
    QN_DT_F32,
    QN_DT_F16,
    QN_DT_BF16,
    QN_DT_F64,
    QN_DT_I8,
    QN_DT_U8,
    QN_DT_I16,
    QN_DT_I32,
    QN_DT_I64,
    QN_DT_BOOL,
    QN_DT_E4M3,
    QN_DT_E8M0,
    QN_DT_OTHER, ///< known to the container, not used by quern; size known
    QN_DT_Q4_0,  ///< GGUF block types from here
    QN_DT_Q4_1,
    QN_DT_Q5_0,
    QN_DT_Q5_1,
    QN_DT_Q8_0,
    QN_DT_Q2_K,
    QN_DT_Q3_K,
    QN_DT_Q4_K,
    QN_DT_Q5_K,
    QN_DT_Q6_K,
    QN_DT_IQ4_NL,
    QN_DT_IQ4_XS,
    QN_DT_MXFP4,
    QN_N_DTYPES
};

/// Elements and bytes of one block (1 element for plain types).
size_t qn_dtype_block_elems(enum qn_dtype t);
size_t qn_dtype_block_bytes(enum qn_dtype t);
const char *qn_dtype_name(enum qn_dtype t);

enum {
    QN_T_QK_INTERLEAVED =
        1, ///< q/k rows (or bias) in GGUF llama order: row 2j+t of a head is HF row t*d/2+j
    QN_T_NORM_FOLDED = 2, ///< norm weight already holds 1 + w
};

enum {
    QN_MAX_RANK = 8
};

/// A named tensor. Everything is owned by the checkpoint; `data` points into a read-only map with
/// no alignment promise.
struct qn_tensor {
    const char *name;
    enum qn_dtype dtype;
    unsigned rank;
    uint64_t shape[QN_MAX_RANK]; ///< outermost first, as Hugging Face writes it
    const unsigned char *data;
    uint64_t n_bytes;
    unsigned flags;
    const char *file; ///< base name, for messages
};

struct qn_ckpt;

/// Open a directory or a .gguf file (split files: the first). Validates everything that is in
/// headers; reads no weights. Errors name file, tensor, found and expected. A GGUF file without
/// tensors (a vocabulary) opens whatever its architecture; its config then has "model_type" alone.
enum qn_status qn_ckpt_open(const char *path, struct qn_ckpt **out_ckpt, struct qn_err *err);
/// The same for a checkpoint's tokenizer and templates alone: of a directory no weights are opened,
/// and tokenizer.json will do without config.json (the configuration is then an empty object).
enum qn_status qn_ckpt_open_text(const char *path, struct qn_ckpt **out_ckpt, struct qn_err *err);
void qn_ckpt_close(struct qn_ckpt *c); // takes NULL

/// config.json (GGUF: built from the metadata). Borrowed, never NULL. A GGUF config has
/// "architectures", "model_type" and the keys of models.md; llama-3 style frequency divisors come
/// as the tensor "rope_freqs.weight" and "rope_scaling": {"rope_type": "freq_factors"}.
const json_t *qn_ckpt_config(const struct qn_ckpt *c);
/// generation_config.json or NULL (GGUF: eos ids and the like from the metadata).
const json_t *qn_ckpt_generation_config(const struct qn_ckpt *c);
/// tokenizer_config.json or NULL.
const json_t *qn_ckpt_tokenizer_config(const struct qn_ckpt *c);
/// Chat template text or NULL: chat_template.jinja, else tokenizer_config.json's chat_template (a
/// string, or the entry named "default" of a list), else GGUF's tokenizer.chat_template.
const char *qn_ckpt_chat_template(const struct qn_ckpt *c);
/// Path of tokenizer.json, or NULL.
const char *qn_ckpt_tokenizer_path(const struct qn_ckpt *c);
/// The GGUF container, or NULL (gguf.h; the tokenizer reads its arrays).
struct qn_gguf;
const struct qn_gguf *qn_ckpt_gguf(const struct qn_ckpt *c);
/// "safetensors" or "gguf".
const char *qn_ckpt_format(const struct qn_ckpt *c);

/// Things worth a warning that do not stop a load (an unlisted tensor, a wrong total size), one
/// sentence each; NULL past the end.
const char *qn_ckpt_note(const struct qn_ckpt *c, size_t i);

size_t qn_ckpt_n_tensors(const struct qn_ckpt *c);
const struct qn_tensor *qn_ckpt_tensor(const struct qn_ckpt *c, size_t i);
/// By name, after prefix normalisation ("model.language_model." -> "model." and so on); NULL if
/// absent.
const struct qn_tensor *qn_ckpt_find(const struct qn_ckpt *c, const char *name);

/// Read n elements of row `row` (row-major, last dimension) as f32: exact for every float and 8- or
/// 16-bit plain type (F64 is rounded) and as ggml's decoder for every block type. `first` and n
/// must be multiples of the block size. Any thread. QN_E_UNSUPPORTED for types without a decoder,
/// QN_E_INVALID for elements that do not exist, QN_E_FORMAT for a block scale that is not finite.
enum qn_status qn_tensor_read_f32(const struct qn_tensor *t, uint64_t row, uint64_t first, size_t n,
                                  float *out, struct qn_err *err);

/// How a stored type maps onto the internal weight kinds, exactly (formats.md 12.1).
enum qn_canon {
    QN_CANON_F32,
    QN_CANON_BF16,
    QN_CANON_I8,
    QN_CANON_I4
};
struct qn_canon_desc {
    enum qn_canon kind;
    size_t group; ///< K per scale; 0 for float kinds
    bool has_min;
};
enum qn_status qn_tensor_canon(const struct qn_tensor *t, struct qn_canon_desc *out,
                               struct qn_err *err);
/// Decode row `row` into canonical form: q is float[k], uint16_t[k] or int8_t[k] as the kind says
/// (F32 also holds F16, and F64 rounded; I4 without minimum in [-8, 7], with one in [0, 15]); scale
/// and min [k / group] for integer kinds. scale * q (+ min), each step in f32, equals
/// qn_tensor_read_f32 bit for bit. A non-finite weight or scale is QN_E_FORMAT naming the tensor.
enum qn_status qn_tensor_read_canon(const struct qn_tensor *t, uint64_t row, void *q, float *scale,
                                    float *min, struct qn_err *err);

#endif
