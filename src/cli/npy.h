#ifndef QN_CLI_NPY_H
#define QN_CLI_NPY_H

#include "base/status.h"

#include <stddef.h>

/// Write a [rows][cols] float32 array as a NumPy .npy file (version 1.0, little-endian, C order).
/// Written to a temporary name and renamed, so a failure leaves no half file; a path that is there
/// and is not a regular file (a device, a pipe, a link) is written to directly.
enum qn_status qn_npy_write_f32(const char *path, const float *data, size_t rows, size_t cols,
                                struct qn_err *err);

#endif
