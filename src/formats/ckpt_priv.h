#ifndef QN_FORMATS_CKPT_PRIV_H
#define QN_FORMATS_CKPT_PRIV_H

#include "base/hash.h"
#include "base/mem.h"
#include "formats/ckpt.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

enum {
    QN_CKPT_MAX_FILES = 10000,
    QN_CKPT_MAX_NOTES = 32
};

struct qn_ckpt {
    const char *format;
    bool text_only; ///< opened by qn_ckpt_open_text
    json_t *config;
    json_t *generation;
    json_t *tokenizer_config;
    char *chat_template;
    char *tokenizer_path;
    struct qn_st **shards; ///< safetensors files
    size_t n_shards;
    struct qn_gguf **ggufs; ///< GGUF files, the first holds the metadata
    size_t n_ggufs;
    struct qn_arena *arena; ///< names and notes
    struct qn_tensor *tensors;
    size_t n_tensors, cap_tensors;
    struct qn_strmap names;
    const char *notes[QN_CKPT_MAX_NOTES];
    size_t n_notes;
};

/// Fill an empty checkpoint; on failure the caller closes it.
enum qn_status qn_ckpt_open_dir(struct qn_ckpt *c, const char *path, struct qn_err *err);
enum qn_status qn_ckpt_open_gguf(struct qn_ckpt *c, const char *path, struct qn_err *err);

/// Add a copy of t under `name` (copied); a name twice is QN_E_FORMAT.
enum qn_status qn_ckpt_add(struct qn_ckpt *c, const struct qn_tensor *t, const char *name,
                           struct qn_err *err);
/// Notes beyond QN_CKPT_MAX_NOTES, and those that memory is lacking for, are dropped.
void qn_ckpt_add_note(struct qn_ckpt *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

enum {
    QN_CKPT_NAME_MAX = QN_ST_MAX_NAME + 16
};
/// The name that quern knows a stored tensor by, without the prefixes of multimodal files; false
/// for tensors that no text decoder has (vision, audio, rotary tables, multi-token prediction).
bool qn_ckpt_normal_name(const char *stored, char out[QN_CKPT_NAME_MAX]);

#endif
