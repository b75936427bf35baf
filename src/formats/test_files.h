#ifndef QN_FORMATS_TEST_FILES_H
#define QN_FORMATS_TEST_FILES_H

#include "base/buf.h"
#include "formats/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Builders of small checkpoint files for tests and fuzz seeds. They abort when memory is lacking.

/// A safetensors file: header length, header, then n_data bytes 0, 1, 2, …
void qn_tf_st(struct qn_buf *out, const char *header, size_t n_data);

/// A GGUF file in the making: keys and infos may come in any order; finish puts them together.
struct qn_tf_gguf {
    struct qn_buf kv, info, data;
    uint64_t n_kv, n_tensors;
    uint64_t align;
};
void qn_tf_init(struct qn_tf_gguf *g);
void qn_tf_done(struct qn_tf_gguf *g);
void qn_tf_u16(struct qn_tf_gguf *g, const char *key, uint16_t v);
void qn_tf_u32(struct qn_tf_gguf *g, const char *key, uint32_t v);
void qn_tf_f32(struct qn_tf_gguf *g, const char *key, float v);
void qn_tf_bool(struct qn_tf_gguf *g, const char *key, bool v);
void qn_tf_str(struct qn_tf_gguf *g, const char *key, const char *v);
/// An array of `type` from raw little-endian bytes.
void qn_tf_arr(struct qn_tf_gguf *g, const char *key, enum qn_gguf_type type, size_t n,
               const void *data, size_t n_bytes);
void qn_tf_strs(struct qn_tf_gguf *g, const char *key, const char *const *v, size_t n);
/// A key whose value is the raw bytes given, type included.
void qn_tf_raw(struct qn_tf_gguf *g, const char *key, const void *data, size_t n_bytes);
/// A tensor of rank 1 or 2 (ne1 = 0: rank 1) with zero data. `type` is the file's type id.
void qn_tf_tensor(struct qn_tf_gguf *g, const char *name, unsigned type, uint64_t ne0,
                  uint64_t ne1);
/// An info with nothing computed; adds no data.
void qn_tf_info(struct qn_tf_gguf *g, const char *name, uint32_t n_dims, const uint64_t *ne,
                uint32_t type, uint64_t offset);
void qn_tf_finish(const struct qn_tf_gguf *g, struct qn_buf *out);
/// Every key and tensor of a one-layer model: hidden 32, 2 heads of 16, 1 KV head, 64 inner,
/// vocabulary 8, tied, F32.
void qn_tf_model(struct qn_tf_gguf *g, const char *arch);

/// A fresh directory under TMPDIR or /tmp, and files in it. qn_tf_rmdir removes both.
void qn_tf_mkdir(char out[256]);
void qn_tf_write(const char *dir, const char *name, const void *data, size_t n);
void qn_tf_puts(const char *dir, const char *name, const char *text);
void qn_tf_rmdir(const char *dir);

#endif
