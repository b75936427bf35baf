#ifndef QN_FORMATS_GGUF_PRIV_H
#define QN_FORMATS_GGUF_PRIV_H

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "formats/gguf.h"

/// What the reader (gguf.c) leaves for the getters (gguf_get.c). Scalars and strings are copied
/// while the file is parsed, and arrays of up to 32 KiB; longer arrays and those of strings stay in
/// the map.
struct qn_gguf_kv {
    const char *key;
    enum qn_gguf_type type;
    union {
        int64_t i; ///< every integer type but u64, and bool
        uint64_t u;
        double f;
        const char *s; ///< NUL-terminated copy; may hold NULs itself
    } v;
    size_t len;                ///< of a string
    enum qn_gguf_type elem;    ///< arrays: element type,
    size_t n;                  ///< count,
    const unsigned char *data; ///< first element
    const uint64_t *offset;    ///< arrays of strings: byte offset of each length field from data
};

struct qn_gguf {
    struct qn_map map; ///< empty when the memory is the caller's
    const unsigned char *data;
    size_t n_bytes;
    char *file;
    struct qn_arena *arena;
    struct qn_gguf_kv *kv;
    size_t n_kv;
    struct qn_strmap keys;
    struct qn_tensor *tensors;
    size_t n_tensors;
    struct qn_strmap names;
};

/// Bytes of a scalar, 0 for strings and arrays.
size_t qn_gguf_type_bytes(enum qn_gguf_type t);
const char *qn_gguf_type_name(enum qn_gguf_type t);
/// NULL if absent.
const struct qn_gguf_kv *qn_gguf_kv_find(const struct qn_gguf *g, const char *key);

#endif
