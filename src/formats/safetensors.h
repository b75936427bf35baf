#ifndef QN_FORMATS_SAFETENSORS_H
#define QN_FORMATS_SAFETENSORS_H

#include "base/status.h"
#include "formats/ckpt.h"

#include <stddef.h>
#include <stdint.h>

/// One safetensors file, mapped read-only and validated whole: header length, JSON, types, shapes,
/// offsets without hole or overlap up to the end of the file, no duplicate names.
struct qn_st;

enum {
    QN_ST_MAX_HEADER = 100000000, ///< bytes
    QN_ST_MAX_TENSORS = 4000000,
    QN_ST_MAX_NAME = 1024 ///< bytes
};

/// QN_E_FORMAT, QN_E_LIMIT, QN_E_IO, QN_E_NOMEM; the message names the file and the tensor.
enum qn_status qn_st_open(const char *path, struct qn_st **out_st, struct qn_err *err);
/// The same over memory that outlives the object. `file` is the name for messages, borrowed.
enum qn_status qn_st_open_mem(const void *data, size_t n_bytes, const char *file,
                              struct qn_st **out_st, struct qn_err *err);
void qn_st_close(struct qn_st *st); // takes NULL

/// Tensors in the order of their data. Owned by the object.
size_t qn_st_n_tensors(const struct qn_st *st);
const struct qn_tensor *qn_st_tensor(const struct qn_st *st, size_t i);
/// NULL if absent.
const struct qn_tensor *qn_st_find(const struct qn_st *st, const char *name);

#endif
