#include "formats/ckpt.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "formats/blocks.h"

static enum qn_status in_tensor(enum qn_status rc, const struct qn_tensor *t, struct qn_err *err)
{
    return qn_err_context(err, rc, "file \"%s\": tensor \"%s\"", t->file, t->name);
}

static uint64_t row_elems(const struct qn_tensor *t)
{
    return t->rank == 0 ? 1 : t->shape[t->rank - 1];
}

// Start of a row, or NULL when there is no such row. Types of unknown size have no rows.
static const unsigned char *row_data(const struct qn_tensor *t, uint64_t row)
{
    uint64_t row_bytes =
        row_elems(t) / qn_dtype_block_elems(t->dtype) * qn_dtype_block_bytes(t->dtype);
    if (row_bytes == 0 || row >= t->n_bytes / row_bytes) {
        return NULL;
    }
    return t->data + row * row_bytes;
}

// n elements of a plain type from p, any alignment.
static bool read_plain(enum qn_dtype dtype, const unsigned char *p, size_t n, float *out)
{
    switch (dtype) {
    case QN_DT_F32:
        memcpy(out, p, n * sizeof *out);
        return true;
    case QN_DT_F16:
    case QN_DT_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, p + 2 * i, sizeof h);
            out[i] = dtype == QN_DT_F16 ? qn_f16_to_f32(h) : qn_bf16_to_f32(h);
        }
        return true;
    case QN_DT_F64:
        for (size_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, p + 8 * i, sizeof d);
            out[i] = (float)d;
        }
        return true;
    case QN_DT_I8:
        for (size_t i = 0; i < n; i++) {
            out[i] = (float)(int8_t)p[i];
        }
        return true;
    case QN_DT_U8:
        for (size_t i = 0; i < n; i++) {
            out[i] = (float)p[i];
        }
        return true;
    case QN_DT_BOOL:
        for (size_t i = 0; i < n; i++) {
            out[i] = p[i] != 0 ? 1.0f : 0.0f;
        }
        return true;
    case QN_DT_I16:
        for (size_t i = 0; i < n; i++) {
            int16_t v;
            memcpy(&v, p + 2 * i, sizeof v);
            out[i] = (float)v;
        }
        return true;
    case QN_DT_E4M3:
        for (size_t i = 0; i < n; i++) {
            out[i] = qn_e4m3_to_f32(p[i]);
        }
        return true;
    case QN_DT_E8M0:
        for (size_t i = 0; i < n; i++) {
            out[i] = qn_e8m0_to_f32(p[i]);
        }
        return true;
    default:
        return false;
    }
}

static enum qn_status bad_scale(const struct qn_tensor *t, uint64_t row, uint64_t col,
                                struct qn_err *err)
{
    return in_tensor(qn_fail(err, QN_E_FORMAT,
                             "row %llu, columns from %llu: scale or minimum is not finite",
                             (unsigned long long)row, (unsigned long long)col),
                     t, err);
}

static bool all_finite(const float *v, size_t n)
{
    // x - x is 0 for finite x, NaN otherwise; the sum of zeros vectorises, isfinite does not.
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        sum += v[i] - v[i];
    }
    return sum == 0.0f;
}

enum qn_status qn_tensor_read_f32(const struct qn_tensor *t, uint64_t row, uint64_t first, size_t n,
                                  float *out, struct qn_err *err)
{
    const size_t elems = qn_dtype_block_elems(t->dtype);
    const uint64_t k = row_elems(t);
    if (first % elems != 0 || n % elems != 0 || first > k || n > k - first) {
        return in_tensor(qn_fail(err, QN_E_INVALID,
                                 "elements %llu + %zu of a row: expected multiples of %zu within "
                                 "%llu",
                                 (unsigned long long)first, n, elems, (unsigned long long)k),
                         t, err);
    }
    if (n == 0) {
        return QN_OK;
    }
    const struct qn_block_type *bt = qn_block_type(t->dtype);
    const unsigned char *p = row_data(t, row);
    if (p == NULL && t->dtype != QN_DT_OTHER) {
        return in_tensor(
            qn_fail(err, QN_E_INVALID, "row %llu: past the last row", (unsigned long long)row), t,
            err);
    }
    if (bt == NULL) {
        if (p != NULL && read_plain(t->dtype, p + first * qn_dtype_block_bytes(t->dtype), n, out)) {
            return QN_OK;
        }
        return in_tensor(qn_fail(err, QN_E_UNSUPPORTED,
                                 "type %s cannot be read as weights, expected a float, an 8-bit "
                                 "or a block type",
                                 qn_dtype_name(t->dtype)),
                         t, err);
    }
    const size_t bytes = qn_dtype_block_bytes(t->dtype), groups = elems / bt->group;
    int8_t q[QN_BLOCK_MAX_ELEMS];
    float scale[QN_BLOCK_MAX_GROUPS], min[QN_BLOCK_MAX_GROUPS] = {0};
    p += first / elems * bytes;
    for (size_t i = 0; i < n; i += elems, p += bytes) {
        bt->unpack(p, q, scale, min);
        if (!all_finite(scale, groups) || !all_finite(min, groups)) {
            return bad_scale(t, row, first + i, err);
        }
        for (size_t g = 0; g < groups; g++) {
            const int8_t *qg = q + g * bt->group;
            float *o = out + i + g * bt->group;
            for (size_t j = 0; j < bt->group; j++) {
                float w = scale[g] * (float)qg[j];
                o[j] = bt->has_min ? w + min[g] : w;
            }
        }
    }
    return QN_OK;
}

enum qn_status qn_tensor_canon(const struct qn_tensor *t, struct qn_canon_desc *out,
                               struct qn_err *err)
{
    const struct qn_block_type *bt = qn_block_type(t->dtype);
    if (bt != NULL) {
        *out = (struct qn_canon_desc){bt->kind, bt->group, bt->has_min};
        return QN_OK;
    }
    switch (t->dtype) {
    case QN_DT_BF16:
        *out = (struct qn_canon_desc){QN_CANON_BF16, 0, false};
        return QN_OK;
    case QN_DT_F32:
    case QN_DT_F16: // has more mantissa bits than bf16: only f32 holds it exactly
    case QN_DT_F64:
        *out = (struct qn_canon_desc){QN_CANON_F32, 0, false};
        return QN_OK;
    default:
        return in_tensor(qn_fail(err, QN_E_UNSUPPORTED,
                                 "type %s, expected F32, F16, BF16 or a GGUF block type",
                                 qn_dtype_name(t->dtype)),
                         t, err);
    }
}

static enum qn_status bad_weight(const struct qn_tensor *t, uint64_t row, uint64_t col,
                                 struct qn_err *err)
{
    return in_tensor(qn_fail(err, QN_E_FORMAT, "row %llu, column %llu: weight is not finite",
                             (unsigned long long)row, (unsigned long long)col),
                     t, err);
}

static enum qn_status canon_bf16(const struct qn_tensor *t, uint64_t row, const unsigned char *p,
                                 size_t k, uint16_t *q, struct qn_err *err)
{
    memcpy(q, p, k * sizeof *q);
    unsigned bad = 0;
    for (size_t i = 0; i < k; i++) {
        bad |= (q[i] & 0x7f80u) == 0x7f80u;
    }
    for (size_t i = 0; bad && i < k; i++) {
        if ((q[i] & 0x7f80u) == 0x7f80u) {
            return bad_weight(t, row, i, err);
        }
    }
    return QN_OK;
}

static enum qn_status canon_f32(const struct qn_tensor *t, uint64_t row, const unsigned char *p,
                                size_t k, float *q, struct qn_err *err)
{
    read_plain(t->dtype, p, k, q);
    bool ok = all_finite(q, k);
    for (size_t i = 0; !ok && i < k; i++) {
        if (!isfinite(q[i])) {
            return bad_weight(t, row, i, err);
        }
    }
    return QN_OK;
}

enum qn_status qn_tensor_read_canon(const struct qn_tensor *t, uint64_t row, void *q, float *scale,
                                    float *min, struct qn_err *err)
{
    struct qn_canon_desc desc;
    enum qn_status rc = qn_tensor_canon(t, &desc, err);
    if (rc != QN_OK) {
        return rc;
    }
    const size_t k = (size_t)row_elems(t);
    if (k == 0) {
        return QN_OK;
    }
    const unsigned char *p = row_data(t, row);
    if (p == NULL) {
        return in_tensor(
            qn_fail(err, QN_E_INVALID, "row %llu: past the last row", (unsigned long long)row), t,
            err);
    }
    if (desc.kind == QN_CANON_BF16) {
        return canon_bf16(t, row, p, k, q, err);
    }
    if (desc.kind == QN_CANON_F32) {
        return canon_f32(t, row, p, k, q, err);
    }
    const struct qn_block_type *bt = qn_block_type(t->dtype);
    const size_t elems = qn_dtype_block_elems(t->dtype), bytes = qn_dtype_block_bytes(t->dtype);
    const size_t groups = elems / bt->group;
    int8_t *out = q;
    float unused[QN_BLOCK_MAX_GROUPS] = {0};
    for (size_t i = 0, g = 0; i < k; i += elems, g += groups, p += bytes) {
        float *m = bt->has_min ? min + g : unused;
        bt->unpack(p, out + i, scale + g, m);
        if (!all_finite(scale + g, groups) || !all_finite(m, groups)) {
            return bad_scale(t, row, i, err);
        }
    }
    return QN_OK;
}
