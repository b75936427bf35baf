#ifndef QN_TESTS_MODEL_ST_EDIT_H
#define QN_TESTS_MODEL_ST_EDIT_H

#include "base/buf.h"

#include <jansson.h>
#include <stddef.h>

/// A changed copy of a small Hugging Face directory. Everything aborts when it cannot go on.
struct st_edit {
    json_t *config, *header; ///< change config freely
    struct qn_buf data;
};
void st_edit_open(struct st_edit *e, const char *dir);
/// Leave a tensor out.
void st_edit_drop(struct st_edit *e, const char *name);
/// Add a tensor of n_bytes; data may be NULL for zeros. rows 0: rank 1.
void st_edit_add(struct st_edit *e, const char *name, const char *dtype, size_t rows, size_t cols,
                 const void *data, size_t n_bytes);
/// Bytes of a tensor, to be read or changed; valid until the next add.
unsigned char *st_edit_bytes(struct st_edit *e, const char *name, size_t *out_n);
/// Claim another dtype of the same size.
void st_edit_dtype(struct st_edit *e, const char *name, const char *dtype);
/// Write the directory (its path into out; qn_tf_rmdir removes it) and forget the edit.
void st_edit_write(struct st_edit *e, char out[256]);

#endif
