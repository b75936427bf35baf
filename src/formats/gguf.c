#include "formats/gguf_priv.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_TENSORS = 1 << 20,
    MAX_KEYS = 1 << 16,
    MAX_KEY = 65535,
    MAX_TENSOR_NAME = 63,
    MAX_DIMS = 4,
    MAX_STRING = 64 << 20,
    MAX_COPIED_ARRAY = 32768, // bytes
    MIN_ALIGN = 8,
    MAX_ALIGN = 65536,
    DEFAULT_ALIGN = 32,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,       // key length, key, type, value
    MIN_INFO_BYTES = 8 + 1 + 4 + 4 + 8, // name length, name, n_dims, type, offset
};

// Tensor types by id; removed ids have no name, internal ones no bytes.
static const struct {
    const char *name;
    enum qn_dtype dtype;
    unsigned elems, bytes;
} k_types[] = {
    [0] = {"F32", QN_DT_F32, 1, 4},
    [1] = {"F16", QN_DT_F16, 1, 2},
    [2] = {"Q4_0", QN_DT_Q4_0, 32, 18},
    [3] = {"Q4_1", QN_DT_Q4_1, 32, 20},
    [6] = {"Q5_0", QN_DT_Q5_0, 32, 22},
    [7] = {"Q5_1", QN_DT_Q5_1, 32, 24},
    [8] = {"Q8_0", QN_DT_Q8_0, 32, 34},
    [9] = {"Q8_1", QN_DT_OTHER, 32, 0},
    [10] = {"Q2_K", QN_DT_Q2_K, 256, 84},
    [11] = {"Q3_K", QN_DT_Q3_K, 256, 110},
    [12] = {"Q4_K", QN_DT_Q4_K, 256, 144},
    [13] = {"Q5_K", QN_DT_Q5_K, 256, 176},
    [14] = {"Q6_K", QN_DT_Q6_K, 256, 210},
    [15] = {"Q8_K", QN_DT_OTHER, 256, 0},
    [16] = {"IQ2_XXS", QN_DT_OTHER, 256, 66},
    [17] = {"IQ2_XS", QN_DT_OTHER, 256, 74},
    [18] = {"IQ3_XXS", QN_DT_OTHER, 256, 98},
    [19] = {"IQ1_S", QN_DT_OTHER, 256, 50},
    [20] = {"IQ4_NL", QN_DT_IQ4_NL, 32, 18},
    [21] = {"IQ3_S", QN_DT_OTHER, 256, 110},
    [22] = {"IQ2_S", QN_DT_OTHER, 256, 82},
    [23] = {"IQ4_XS", QN_DT_IQ4_XS, 256, 136},
    [24] = {"I8", QN_DT_I8, 1, 1},
    [25] = {"I16", QN_DT_I16, 1, 2},
    [26] = {"I32", QN_DT_I32, 1, 4},
    [27] = {"I64", QN_DT_I64, 1, 8},
    [28] = {"F64", QN_DT_F64, 1, 8},
    [29] = {"IQ1_M", QN_DT_OTHER, 256, 56},
    [30] = {"BF16", QN_DT_BF16, 1, 2},
    [34] = {"TQ1_0", QN_DT_OTHER, 256, 54},
    [35] = {"TQ2_0", QN_DT_OTHER, 256, 66},
    [39] = {"MXFP4", QN_DT_MXFP4, 32, 17},
    [40] = {"NVFP4", QN_DT_OTHER, 64, 36},
    [41] = {"Q1_0", QN_DT_OTHER, 128, 18},
};

struct parse {
    struct qn_gguf *g;
    size_t at;
    enum qn_status rc;
    struct qn_err *err;
};

static enum qn_status no_memory(struct parse *p, const char *what)
{
    return qn_fail(p->err, QN_E_NOMEM, "could not allocate %s", what);
}

static size_t left(const struct parse *p)
{
    return p->g->n_bytes - p->at;
}

static enum qn_status take(struct parse *p, void *out, size_t n, const char *what)
{
    if (left(p) < n) {
        return qn_fail(p->err, QN_E_FORMAT, "%s at byte %zu: found the end of the file", what,
                       p->at);
    }
    memcpy(out, p->g->data + p->at, n);
    p->at += n;
    return QN_OK;
}

// Length of a string, checked against the limit and the file; the bytes follow at p->at.
static enum qn_status take_len(struct parse *p, uint64_t limit, size_t *out, const char *what)
{
    uint64_t n = 0;
    enum qn_status rc = take(p, &n, sizeof n, what);
    if (rc != QN_OK) {
        return rc;
    }
    if (n > limit) {
        return qn_fail(p->err, QN_E_LIMIT, "%s: found %llu bytes, limit %llu", what,
                       (unsigned long long)n, (unsigned long long)limit);
    }
    if (n > left(p)) {
        return qn_fail(p->err, QN_E_FORMAT,
                       "%s: found %llu bytes, expected at most %zu, the rest of the file", what,
                       (unsigned long long)n, left(p));
    }
    *out = (size_t)n;
    return QN_OK;
}

static enum qn_status take_string(struct parse *p, uint64_t limit, const char **out, size_t *out_n,
                                  const char *what)
{
    size_t n = 0;
    enum qn_status rc = take_len(p, limit, &n, what);
    if (rc != QN_OK) {
        return rc;
    }
    char *s = qn_arena_strndup(p->g->arena, (const char *)p->g->data + p->at, n);
    if (s == NULL) {
        return no_memory(p, what);
    }
    p->at += n;
    *out = s;
    *out_n = n;
    return QN_OK;
}

// A key or tensor name: not empty, no control characters, not seen before.
static enum qn_status take_name(struct parse *p, uint64_t limit, struct qn_strmap *map,
                                uint32_t value, const char **out, const char *what)
{
    const char *s;
    size_t n = 0;
    enum qn_status rc = take_string(p, limit, &s, &n, what);
    if (rc != QN_OK) {
        return rc;
    }
    if (n == 0) {
        return qn_fail(p->err, QN_E_FORMAT, "%s: found an empty string", what);
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) {
            return qn_fail(p->err, QN_E_FORMAT, "%s: found control character 0x%02x", what,
                           (unsigned)(unsigned char)s[i]);
        }
    }
    bool existing = false;
    if (!qn_strmap_put(map, s, n, value, &existing)) {
        return existing ? qn_fail(p->err, QN_E_FORMAT, "%s \"%.200s\": found twice", what, s)
                        : no_memory(p, "the table of names");
    }
    *out = s;
    return QN_OK;
}

static enum qn_status check_type(struct parse *p, int32_t type, const char *what)
{
    if (type < QN_GGUF_U8 || type > QN_GGUF_F64) {
        return qn_fail(p->err, QN_E_FORMAT, "%s: found type %d, expected 0 to %d", what, type,
                       QN_GGUF_F64);
    }
    return QN_OK;
}

static enum qn_status take_scalar(struct parse *p, struct qn_gguf_kv *kv)
{
    unsigned char b[8] = {0};
    enum qn_status rc = take(p, b, qn_gguf_type_bytes(kv->type), "value");
    if (rc != QN_OK) {
        return rc;
    }
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    float f;
    memcpy(&u16, b, sizeof u16);
    memcpy(&u32, b, sizeof u32);
    memcpy(&u64, b, sizeof u64);
    memcpy(&f, b, sizeof f);
    switch (kv->type) {
    case QN_GGUF_U8:
        kv->v.i = b[0];
        break;
    case QN_GGUF_I8:
        kv->v.i = (int8_t)b[0];
        break;
    case QN_GGUF_U16:
        kv->v.i = u16;
        break;
    case QN_GGUF_I16:
        kv->v.i = (int16_t)u16;
        break;
    case QN_GGUF_U32:
        kv->v.i = u32;
        break;
    case QN_GGUF_I32:
        kv->v.i = (int32_t)u32;
        break;
    case QN_GGUF_I64:
        kv->v.i = (int64_t)u64;
        break;
    case QN_GGUF_U64:
        kv->v.u = u64;
        break;
    case QN_GGUF_F32:
        kv->v.f = (double)f;
        break;
    case QN_GGUF_F64:
        memcpy(&kv->v.f, b, sizeof kv->v.f);
        break;
    case QN_GGUF_BOOL:
        if (b[0] > 1) {
            return qn_fail(p->err, QN_E_FORMAT, "found bool %u, expected 0 or 1", b[0]);
        }
        kv->v.i = b[0];
        break;
    default:
        return qn_fail(p->err, QN_E_INTERNAL, "type %d is not a scalar", (int)kv->type);
    }
    return QN_OK;
}

// Short arrays (a value per layer) are copied, so that reading them cannot meet a file that shrank.
static enum qn_status copy_array(struct parse *p, struct qn_gguf_kv *kv, size_t n_bytes)
{
    unsigned char *copy = qn_arena_alloc(p->g->arena, n_bytes);
    if (copy == NULL) {
        return no_memory(p, "an array");
    }
    memcpy(copy, kv->data, n_bytes);
    kv->data = copy;
    return QN_OK;
}

static enum qn_status take_array(struct parse *p, struct qn_gguf_kv *kv)
{
    int32_t elem = 0;
    uint64_t n = 0;
    enum qn_status rc;
    if ((rc = take(p, &elem, sizeof elem, "element type")) != QN_OK ||
        (rc = check_type(p, elem, "element type")) != QN_OK ||
        (rc = take(p, &n, sizeof n, "count")) != QN_OK) {
        return rc;
    }
    if (elem == QN_GGUF_ARR) {
        return qn_fail(p->err, QN_E_UNSUPPORTED, "found an array of arrays");
    }
    kv->elem = (enum qn_gguf_type)elem;
    size_t bytes = elem == QN_GGUF_STR ? 8 : qn_gguf_type_bytes(kv->elem);
    if (n > left(p) / bytes) {
        return qn_fail(p->err, QN_E_FORMAT,
                       "found %llu elements, expected at most %zu in the rest of the file",
                       (unsigned long long)n, left(p) / bytes);
    }
    kv->n = (size_t)n;
    kv->data = p->g->data + p->at;
    if (elem != QN_GGUF_STR) {
        p->at += kv->n * bytes;
        return kv->n * bytes <= MAX_COPIED_ARRAY ? copy_array(p, kv, kv->n * bytes) : QN_OK;
    }
    const size_t start = p->at;
    uint64_t *offset = qn_arena_array(p->g->arena, kv->n + 1, sizeof *offset);
    if (offset == NULL) {
        return no_memory(p, "the offsets of an array");
    }
    for (size_t i = 0; i < kv->n; i++) {
        size_t len = 0;
        offset[i] = p->at - start;
        rc = take_len(p, MAX_STRING, &len, "string");
        if (rc != QN_OK) {
            return qn_err_context(p->err, rc, "element %zu", i);
        }
        p->at += len;
    }
    offset[kv->n] = p->at - start;
    kv->offset = offset;
    return QN_OK;
}

static enum qn_status take_kv(struct parse *p, size_t i)
{
    struct qn_gguf_kv *kv = &p->g->kv[i];
    int32_t type = 0;
    enum qn_status rc = take_name(p, MAX_KEY, &p->g->keys, (uint32_t)i, &kv->key, "key");
    if (rc != QN_OK) {
        return rc;
    }
    if ((rc = take(p, &type, sizeof type, "type")) == QN_OK) {
        rc = check_type(p, type, "value");
    }
    if (rc == QN_OK) {
        kv->type = (enum qn_gguf_type)type;
        rc = kv->type == QN_GGUF_ARR   ? take_array(p, kv)
             : kv->type == QN_GGUF_STR ? take_string(p, MAX_STRING, &kv->v.s, &kv->len, "string")
                                       : take_scalar(p, kv);
    }
    return rc == QN_OK ? QN_OK : qn_err_context(p->err, rc, "key \"%.200s\"", kv->key);
}

static enum qn_status take_dims(struct parse *p, struct qn_tensor *t)
{
    uint32_t n_dims = 0;
    enum qn_status rc = take(p, &n_dims, sizeof n_dims, "number of dimensions");
    if (rc != QN_OK) {
        return rc;
    }
    if (n_dims > MAX_DIMS) {
        return qn_fail(p->err, QN_E_FORMAT, "found %u dimensions, expected at most %d", n_dims,
                       MAX_DIMS);
    }
    t->rank = n_dims;
    for (unsigned i = 0; i < n_dims; i++) {
        int64_t d = 0;
        if ((rc = take(p, &d, sizeof d, "dimension")) != QN_OK) {
            return rc;
        }
        if (d <= 0) {
            return qn_fail(p->err, QN_E_FORMAT, "dimension %u: found %lld, expected at least 1", i,
                           (long long)d);
        }
        t->shape[n_dims - 1 - i] = (uint64_t)d; // the file writes the fastest first
    }
    return QN_OK;
}

static enum qn_status take_tensor_type(struct parse *p, struct qn_tensor *t)
{
    int32_t id = 0;
    enum qn_status rc = take(p, &id, sizeof id, "type");
    if (rc != QN_OK) {
        return rc;
    }
    if (id < 0 || (size_t)id >= sizeof k_types / sizeof k_types[0] || k_types[id].name == NULL) {
        return qn_fail(p->err, QN_E_UNSUPPORTED, "found type %d, which is unknown or removed", id);
    }
    if (k_types[id].bytes == 0) {
        return qn_fail(p->err, QN_E_UNSUPPORTED, "found type %s, which has no place in files",
                       k_types[id].name);
    }
    t->dtype = k_types[id].dtype;
    uint64_t elems = k_types[id].elems, n = 1;
    uint64_t row = t->rank == 0 ? 1 : t->shape[t->rank - 1];
    if (row % elems != 0) {
        return qn_fail(p->err, QN_E_FORMAT,
                       "row of %llu elements, expected a multiple of %llu for type %s",
                       (unsigned long long)row, (unsigned long long)elems, k_types[id].name);
    }
    for (unsigned i = 0; i < t->rank; i++) {
        if (__builtin_mul_overflow(n, t->shape[i], &n)) {
            return qn_fail(p->err, QN_E_FORMAT, "shape: product does not fit 64 bits");
        }
    }
    if (__builtin_mul_overflow(n / elems, (uint64_t)k_types[id].bytes, &t->n_bytes)) {
        return qn_fail(p->err, QN_E_FORMAT, "shape: size does not fit 64 bits");
    }
    return QN_OK;
}

// One tensor info. *at is where its data must lie in the data section: tensors follow each other in
// the order of their infos, each padded to the alignment.
static enum qn_status take_info(struct parse *p, size_t i, uint64_t align, uint64_t *at,
                                uint64_t *offset)
{
    struct qn_tensor *t = &p->g->tensors[i];
    t->file = p->g->file;
    enum qn_status rc =
        take_name(p, MAX_TENSOR_NAME, &p->g->names, (uint32_t)i, &t->name, "tensor name");
    if (rc != QN_OK) {
        return rc;
    }
    if ((rc = take_dims(p, t)) == QN_OK && (rc = take_tensor_type(p, t)) == QN_OK) {
        rc = take(p, offset, sizeof *offset, "offset");
    }
    if (rc == QN_OK && *offset != *at) {
        rc = qn_fail(p->err, QN_E_FORMAT, "offset %llu, expected %llu, the end of the one before",
                     (unsigned long long)*offset, (unsigned long long)*at);
    }
    // A size past the file ends the sum here: later ones cannot wrap it.
    if (rc == QN_OK && (t->n_bytes > p->g->n_bytes || *at > p->g->n_bytes)) {
        rc = qn_fail(p->err, QN_E_FORMAT,
                     "data of %llu bytes at %llu, expected it within a file "
                     "of %zu bytes",
                     (unsigned long long)t->n_bytes, (unsigned long long)*at, p->g->n_bytes);
    }
    if (rc != QN_OK) {
        return qn_err_context(p->err, rc, "tensor \"%s\"", t->name);
    }
    *at += (t->n_bytes + align - 1) / align * align;
    return QN_OK;
}

static enum qn_status alignment(struct parse *p, uint64_t *out)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(p->g, "general.alignment");
    *out = DEFAULT_ALIGN;
    if (kv == NULL) {
        return QN_OK;
    }
    if (kv->type != QN_GGUF_U32) {
        return qn_fail(p->err, QN_E_FORMAT, "key \"general.alignment\": found %s, expected u32",
                       qn_gguf_type_name(kv->type));
    }
    *out = (uint64_t)kv->v.i;
    if (*out < MIN_ALIGN || *out > MAX_ALIGN || (*out & (*out - 1)) != 0) {
        return qn_fail(p->err, QN_E_FORMAT,
                       "key \"general.alignment\": found %llu, expected a power of two from %d to "
                       "%d",
                       (unsigned long long)*out, MIN_ALIGN, MAX_ALIGN);
    }
    return QN_OK;
}

// Vocabulary arrays: what a reader may rely on, whatever it asks for first.
static enum qn_status check_vocabulary(struct parse *p)
{
    static const struct {
        const char *key;
        enum qn_gguf_type elem;
        bool per_token;
    } k_arrays[] = {
        {"tokenizer.ggml.tokens", QN_GGUF_STR, true},
        {"tokenizer.ggml.scores", QN_GGUF_F32, true},
        {"tokenizer.ggml.token_type", QN_GGUF_I32, true},
        {"tokenizer.ggml.merges", QN_GGUF_STR, false},
    };
    const struct qn_gguf_kv *tokens = qn_gguf_kv_find(p->g, k_arrays[0].key);
    for (size_t i = 0; i < sizeof k_arrays / sizeof k_arrays[0]; i++) {
        const struct qn_gguf_kv *kv = qn_gguf_kv_find(p->g, k_arrays[i].key);
        if (kv == NULL) {
            continue;
        }
        if (kv->type != QN_GGUF_ARR || kv->elem != k_arrays[i].elem) {
            return qn_fail(p->err, QN_E_FORMAT, "key \"%s\": found %s%s, expected an array of %s",
                           kv->key, kv->type == QN_GGUF_ARR ? "an array of " : "",
                           qn_gguf_type_name(kv->type == QN_GGUF_ARR ? kv->elem : kv->type),
                           qn_gguf_type_name(k_arrays[i].elem));
        }
        if (k_arrays[i].per_token && (tokens == NULL || kv->n != tokens->n)) {
            return qn_fail(p->err, QN_E_FORMAT,
                           "key \"%s\": found %zu elements, expected %zu, one for each token",
                           kv->key, kv->n, tokens == NULL ? (size_t)0 : tokens->n);
        }
    }
    return QN_OK;
}

static enum qn_status take_counts(struct parse *p, uint64_t *n_tensors, uint64_t *n_kv)
{
    unsigned char magic[4];
    uint32_t version = 0;
    enum qn_status rc = take(p, magic, sizeof magic, "magic");
    if (rc != QN_OK) {
        return rc;
    }
    if (memcmp(magic, "GGUF", 4) != 0) {
        return qn_fail(p->err, QN_E_FORMAT,
                       "magic: found %02x %02x %02x %02x, expected 47 47 55 46", magic[0], magic[1],
                       magic[2], magic[3]);
    }
    if ((rc = take(p, &version, sizeof version, "version")) != QN_OK) {
        return rc;
    }
    if ((version & 0xffffu) == 0) {
        return qn_fail(p->err, QN_E_UNSUPPORTED,
                       "version 0x%08x: the file is big-endian, expected little-endian", version);
    }
    if (version != 2 && version != 3) {
        return qn_fail(p->err, QN_E_UNSUPPORTED, "version: found %u, expected 2 or 3", version);
    }
    if ((rc = take(p, n_tensors, sizeof *n_tensors, "number of tensors")) != QN_OK ||
        (rc = take(p, n_kv, sizeof *n_kv, "number of keys")) != QN_OK) {
        return rc;
    }
    // Negative counts are huge here.
    if (*n_tensors > MAX_TENSORS) {
        return qn_fail(p->err, QN_E_LIMIT, "number of tensors: found %lld, expected 0 to %d",
                       (long long)*n_tensors, MAX_TENSORS);
    }
    if (*n_kv > MAX_KEYS) {
        return qn_fail(p->err, QN_E_LIMIT, "number of keys: found %lld, expected 0 to %d",
                       (long long)*n_kv, MAX_KEYS);
    }
    if (*n_kv * MIN_KV_BYTES + *n_tensors * MIN_INFO_BYTES > left(p)) {
        return qn_fail(p->err, QN_E_FORMAT,
                       "%llu keys and %llu tensors do not fit a file of %zu bytes",
                       (unsigned long long)*n_kv, (unsigned long long)*n_tensors, p->g->n_bytes);
    }
    return QN_OK;
}

static enum qn_status parse_all(struct parse *p)
{
    struct qn_gguf *g = p->g;
    uint64_t n_tensors, n_kv, align, at = 0;
    enum qn_status rc = take_counts(p, &n_tensors, &n_kv);
    if (rc != QN_OK) {
        return rc;
    }
    g->kv = qn_arena_array(g->arena, (size_t)n_kv, sizeof *g->kv);
    g->tensors = qn_arena_array(g->arena, (size_t)n_tensors, sizeof *g->tensors);
    uint64_t *offsets = qn_arena_array(g->arena, (size_t)n_tensors, sizeof *offsets);
    if (g->kv == NULL || g->tensors == NULL || offsets == NULL) {
        return no_memory(p, "the tables of keys and tensors");
    }
    for (size_t i = 0; i < n_kv; i++) {
        if ((rc = take_kv(p, i)) != QN_OK) {
            return rc;
        }
        g->n_kv++;
    }
    if ((rc = alignment(p, &align)) != QN_OK || (rc = check_vocabulary(p)) != QN_OK) {
        return rc;
    }
    for (size_t i = 0; i < n_tensors; i++) {
        if ((rc = take_info(p, i, align, &at, &offsets[i])) != QN_OK) {
            return rc;
        }
    }
    if (n_tensors == 0) {
        return QN_OK;
    }
    uint64_t data = (p->at + align - 1) / align * align;
    for (size_t i = 0; i < n_tensors; i++) {
        struct qn_tensor *t = &g->tensors[i];
        // Each term is at most the file's size, so the sum does not wrap.
        if (data + offsets[i] + t->n_bytes > g->n_bytes) {
            return qn_fail(p->err, QN_E_FORMAT,
                           "tensor \"%s\": data ends at byte %llu, expected at most %zu, the end "
                           "of the file",
                           t->name, (unsigned long long)(data + offsets[i] + t->n_bytes),
                           g->n_bytes);
        }
        t->data = g->data + data + offsets[i];
        g->n_tensors++;
    }
    return QN_OK;
}

// Everything it allocates hangs on g, so a jump out of it (see qn_map_guard) leaks nothing.
static void parse_file(void *arg)
{
    struct parse *p = arg;
    p->rc = parse_all(p);
}

static enum qn_status open_with(struct qn_map *map, const void *data, size_t n_bytes,
                                const char *file, struct qn_gguf **out_gguf, struct qn_err *err)
{
    struct qn_gguf *g = calloc(1, sizeof *g);
    struct parse p = {.g = g, .err = err};
    if (g == NULL) {
        qn_map_close(map);
        return no_memory(&p, "a checkpoint");
    }
    g->map = *map;
    g->data = data;
    g->n_bytes = n_bytes;
    qn_strmap_init(&g->keys);
    qn_strmap_init(&g->names);
    enum qn_status rc = qn_arena_new(QN_MEM_OTHER, 0, &g->arena, err);
    if (rc == QN_OK && (g->file = strdup(file)) == NULL) {
        rc = no_memory(&p, "a name");
    }
    if (rc == QN_OK) {
        rc = qn_map_guard(parse_file, &p, err);
    }
    rc = rc == QN_OK ? p.rc : rc;
    if (rc != QN_OK) {
        qn_gguf_close(g);
        return qn_err_context(err, rc, "GGUF file \"%s\"", file);
    }
    *out_gguf = g;
    return QN_OK;
}

enum qn_status qn_gguf_open(const char *path, struct qn_gguf **out_gguf, struct qn_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    struct qn_map map;
    enum qn_status rc = qn_map_open(path, &map, err);
    if (rc != QN_OK) {
        return qn_err_context(err, rc, "GGUF file \"%s\"", file);
    }
    return open_with(&map, map.data, map.n_bytes, file, out_gguf, err);
}

enum qn_status qn_gguf_open_mem(const void *data, size_t n_bytes, struct qn_gguf **out_gguf,
                                struct qn_err *err)
{
    struct qn_map none = {0};
    return open_with(&none, data, n_bytes, "memory", out_gguf, err);
}

void qn_gguf_close(struct qn_gguf *g)
{
    if (g == NULL) {
        return;
    }
    qn_strmap_done(&g->keys);
    qn_strmap_done(&g->names);
    qn_arena_free(g->arena);
    free(g->file);
    qn_map_close(&g->map);
    free(g);
}
