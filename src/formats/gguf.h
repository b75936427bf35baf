#ifndef QN_FORMATS_GGUF_H
#define QN_FORMATS_GGUF_H

#include "base/status.h"
#include "formats/ckpt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// GGUF v3 container (formats.md 8): metadata and tensor infos over a read-only map.
struct qn_gguf;

enum qn_gguf_type {
    QN_GGUF_U8,
    QN_GGUF_I8,
    QN_GGUF_U16,
    QN_GGUF_I16,
    QN_GGUF_U32,
    QN_GGUF_I32,
    QN_GGUF_F32,
    QN_GGUF_BOOL,
    QN_GGUF_STR,
    QN_GGUF_ARR,
    QN_GGUF_U64,
    QN_GGUF_I64,
    QN_GGUF_F64
};

enum qn_status qn_gguf_open(const char *path, struct qn_gguf **out_gguf, struct qn_err *err);
/// The same over memory that outlives the object (fuzzing, tests).
enum qn_status qn_gguf_open_mem(const void *data, size_t n_bytes, struct qn_gguf **out_gguf,
                                struct qn_err *err);
void qn_gguf_close(struct qn_gguf *g); // takes NULL

/// Typed metadata; false when the key is absent or has another type. Integers of any stored width
/// are accepted when they fit. Strings are not NUL-terminated.
bool qn_gguf_has(const struct qn_gguf *g, const char *key);
bool qn_gguf_int(const struct qn_gguf *g, const char *key, int64_t *out);
bool qn_gguf_float(const struct qn_gguf *g, const char *key, double *out);
bool qn_gguf_bool(const struct qn_gguf *g, const char *key, bool *out);
bool qn_gguf_str(const struct qn_gguf *g, const char *key, const char **out, size_t *out_len);
/// Arrays: element type and count; elements of strings by index in O(1).
bool qn_gguf_arr(const struct qn_gguf *g, const char *key, enum qn_gguf_type *out_type,
                 size_t *out_n);
bool qn_gguf_arr_str(const struct qn_gguf *g, const char *key, size_t i, const char **out,
                     size_t *out_len);
bool qn_gguf_arr_int(const struct qn_gguf *g, const char *key, size_t i, int64_t *out);
bool qn_gguf_arr_float(const struct qn_gguf *g, const char *key, size_t i, double *out);

/// Keys in file order, for `inspect`.
size_t qn_gguf_n_keys(const struct qn_gguf *g);
const char *qn_gguf_key(const struct qn_gguf *g, size_t i, enum qn_gguf_type *out_type);

/// Tensors under their GGUF names, shapes outermost first.
size_t qn_gguf_n_tensors(const struct qn_gguf *g);
const struct qn_tensor *qn_gguf_tensor(const struct qn_gguf *g, size_t i);
/// NULL if absent.
const struct qn_tensor *qn_gguf_find(const struct qn_gguf *g, const char *name);

#endif
