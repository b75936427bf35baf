#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "formats/scan.h"

enum {
    MAX_METADATA_KEY = 65536
};
static const uint64_t k_max_int = ((uint64_t)1 << 48) - 1;

static const struct {
    const char *name;
    enum qn_dtype dtype;
    unsigned bits;
} k_dtypes[] = {
    {"BF16", QN_DT_BF16, 16},
    {"F16", QN_DT_F16, 16},
    {"F32", QN_DT_F32, 32},
    {"I8", QN_DT_I8, 8},
    {"U8", QN_DT_U8, 8},
    {"I32", QN_DT_I32, 32},
    {"I64", QN_DT_I64, 64},
    {"F8_E4M3", QN_DT_E4M3, 8},
    {"F8_E8M0", QN_DT_E8M0, 8},
    {"I16", QN_DT_I16, 16},
    {"F64", QN_DT_F64, 64},
    {"BOOL", QN_DT_BOOL, 8},
    {"F4", QN_DT_OTHER, 4},
    {"F6_E2M3", QN_DT_OTHER, 6},
    {"F6_E3M2", QN_DT_OTHER, 6},
    {"F8_E5M2", QN_DT_OTHER, 8},
    {"F8_E4M3FNUZ", QN_DT_OTHER, 8},
    {"F8_E5M2FNUZ", QN_DT_OTHER, 8},
    {"U16", QN_DT_OTHER, 16},
    {"U32", QN_DT_OTHER, 32},
    {"U64", QN_DT_OTHER, 64},
    {"C64", QN_DT_OTHER, 64},
};

// A tensor while its place in the data is being checked.
struct entry {
    struct qn_tensor t;
    uint64_t begin, end;
};

struct qn_st {
    struct qn_map map; // empty when the memory is the caller's
    const unsigned char *data;
    size_t n_bytes;
    char *file;
    struct qn_arena *arena; // names
    struct entry *entries;
    size_t n, cap;
    struct qn_strmap by_name;
    struct qn_strmap meta_keys;
    struct qn_buf str;
};

struct parse {
    struct qn_st *st;
    struct qn_scan scan;
    enum qn_status rc;
    struct qn_err *err;
};

static enum qn_status no_memory(struct qn_err *err, const char *what)
{
    return qn_fail(err, QN_E_NOMEM, "could not allocate %s", what);
}

// Copies st->str into the arena and refuses a second occurrence.
static enum qn_status unique(struct qn_st *st, struct qn_strmap *map, uint32_t value,
                             const char *kind, const char **out, struct qn_err *err)
{
    char *copy = qn_arena_strndup(st->arena, st->str.data, st->str.len);
    bool existing = false;
    if (copy == NULL) {
        return no_memory(err, "a name");
    }
    if (!qn_strmap_put(map, copy, st->str.len, value, &existing)) {
        return existing ? qn_fail(err, QN_E_FORMAT, "%s \"%.200s\": found twice", kind, copy)
                        : no_memory(err, "the table of names");
    }
    *out = copy;
    return QN_OK;
}

static enum qn_status parse_metadata(struct parse *p)
{
    struct qn_st *st = p->st;
    enum qn_status rc = qn_scan_expect(&p->scan, '{', p->err);
    if (rc != QN_OK || qn_scan_take(&p->scan, '}')) {
        return rc;
    }
    do {
        const char *key;
        if ((rc = qn_scan_string(&p->scan, MAX_METADATA_KEY, &st->str, p->err)) != QN_OK ||
            (rc = unique(st, &st->meta_keys, 0, "key", &key, p->err)) != QN_OK ||
            (rc = qn_scan_expect(&p->scan, ':', p->err)) != QN_OK ||
            (rc = qn_scan_string(&p->scan, QN_ST_MAX_HEADER, &st->str, p->err)) != QN_OK) {
            return rc;
        }
    } while (qn_scan_take(&p->scan, ','));
    return qn_scan_expect(&p->scan, '}', p->err);
}

static enum qn_status parse_dtype(struct parse *p, struct entry *e, unsigned *out_bits)
{
    enum qn_status rc = qn_scan_string(&p->scan, 64, &p->st->str, p->err);
    if (rc != QN_OK) {
        return rc;
    }
    for (size_t i = 0; i < sizeof k_dtypes / sizeof k_dtypes[0]; i++) {
        if (strlen(k_dtypes[i].name) == p->st->str.len &&
            memcmp(k_dtypes[i].name, p->st->str.data, p->st->str.len) == 0) {
            e->t.dtype = k_dtypes[i].dtype;
            *out_bits = k_dtypes[i].bits;
            return QN_OK;
        }
    }
    return qn_fail(p->err, QN_E_FORMAT, "dtype \"%s\": not a type of the format",
                   p->st->str.len > 0 ? p->st->str.data : "");
}

static enum qn_status parse_shape(struct parse *p, struct entry *e)
{
    enum qn_status rc = qn_scan_expect(&p->scan, '[', p->err);
    if (rc != QN_OK || qn_scan_take(&p->scan, ']')) {
        return rc;
    }
    do {
        if (e->t.rank == QN_MAX_RANK) {
            return qn_fail(p->err, QN_E_LIMIT, "shape: more than %d dimensions", QN_MAX_RANK);
        }
        rc = qn_scan_uint(&p->scan, k_max_int, &e->t.shape[e->t.rank], p->err);
        if (rc != QN_OK) {
            return rc;
        }
        e->t.rank++;
    } while (qn_scan_take(&p->scan, ','));
    return qn_scan_expect(&p->scan, ']', p->err);
}

static enum qn_status parse_offsets(struct parse *p, struct entry *e)
{
    enum qn_status rc;
    if ((rc = qn_scan_expect(&p->scan, '[', p->err)) != QN_OK ||
        (rc = qn_scan_uint(&p->scan, k_max_int, &e->begin, p->err)) != QN_OK ||
        (rc = qn_scan_expect(&p->scan, ',', p->err)) != QN_OK ||
        (rc = qn_scan_uint(&p->scan, k_max_int, &e->end, p->err)) != QN_OK) {
        return rc;
    }
    return qn_scan_expect(&p->scan, ']', p->err);
}

static enum qn_status check_size(struct entry *e, unsigned bits, struct qn_err *err)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < e->t.rank; i++) {
        if (__builtin_mul_overflow(n, e->t.shape[i], &n)) {
            return qn_fail(err, QN_E_FORMAT, "shape: product does not fit 64 bits");
        }
    }
    if (__builtin_mul_overflow(n, (uint64_t)bits, &n)) {
        return qn_fail(err, QN_E_FORMAT, "shape: size does not fit 64 bits");
    }
    if (n % 8 != 0) {
        return qn_fail(err, QN_E_FORMAT, "size: found %llu bits, expected whole bytes",
                       (unsigned long long)n);
    }
    if (e->end < e->begin) {
        return qn_fail(err, QN_E_FORMAT, "data_offsets [%llu, %llu]: end before begin",
                       (unsigned long long)e->begin, (unsigned long long)e->end);
    }
    if (e->end - e->begin != n / 8) {
        return qn_fail(err, QN_E_FORMAT,
                       "data_offsets [%llu, %llu]: found %llu bytes, expected %llu from dtype and "
                       "shape",
                       (unsigned long long)e->begin, (unsigned long long)e->end,
                       (unsigned long long)(e->end - e->begin), (unsigned long long)(n / 8));
    }
    e->t.n_bytes = n / 8;
    return QN_OK;
}

static enum qn_status parse_entry(struct parse *p, struct entry *e)
{
    static const char *const k_fields[3] = {"dtype", "shape", "data_offsets"};
    unsigned seen = 0, bits = 0;
    enum qn_status rc = qn_scan_expect(&p->scan, '{', p->err);
    if (rc != QN_OK) {
        return rc;
    }
    do {
        rc = qn_scan_string(&p->scan, QN_ST_MAX_NAME, &p->st->str, p->err);
        if (rc != QN_OK) {
            return rc;
        }
        const char *key = p->st->str.len > 0 ? p->st->str.data : "";
        unsigned f = 0;
        while (f < 3 && (strcmp(key, k_fields[f]) != 0 || strlen(key) != p->st->str.len)) {
            f++;
        }
        if (f == 3 || (seen & 1u << f) != 0) {
            return qn_fail(p->err, QN_E_FORMAT,
                           "field \"%.64s\": found %s, expected dtype, shape "
                           "and data_offsets once each",
                           key, f == 3 ? "an unknown field" : "it twice");
        }
        seen |= 1u << f;
        if ((rc = qn_scan_expect(&p->scan, ':', p->err)) != QN_OK) {
            return rc;
        }
        rc = f == 0 ? parse_dtype(p, e, &bits) : f == 1 ? parse_shape(p, e) : parse_offsets(p, e);
        if (rc != QN_OK) {
            return rc;
        }
    } while (qn_scan_take(&p->scan, ','));
    if ((rc = qn_scan_expect(&p->scan, '}', p->err)) != QN_OK) {
        return rc;
    }
    for (unsigned f = 0; f < 3; f++) {
        if ((seen & 1u << f) == 0) {
            return qn_fail(p->err, QN_E_FORMAT, "field \"%s\" is missing", k_fields[f]);
        }
    }
    return check_size(e, bits, p->err);
}

static enum qn_status check_name(const struct qn_buf *s, struct qn_err *err)
{
    if (s->len == 0 || s->len > QN_ST_MAX_NAME) {
        return qn_fail(err, QN_E_FORMAT, "tensor name: found %zu bytes, expected 1 to %d", s->len,
                       QN_ST_MAX_NAME);
    }
    for (size_t i = 0; i < s->len; i++) {
        if ((unsigned char)s->data[i] < 0x20 || s->data[i] == 0x7f) {
            return qn_fail(err, QN_E_FORMAT, "tensor name: found control character 0x%02x",
                           (unsigned)(unsigned char)s->data[i]);
        }
    }
    return QN_OK;
}

static enum qn_status add_entry(struct parse *p)
{
    struct qn_st *st = p->st;
    if (st->n == QN_ST_MAX_TENSORS) {
        return qn_fail(p->err, QN_E_LIMIT, "more than %d tensors", QN_ST_MAX_TENSORS);
    }
    if (st->n == st->cap) {
        size_t cap = st->cap == 0 ? 64 : st->cap * 2;
        struct entry *entries = realloc(st->entries, cap * sizeof *entries);
        if (entries == NULL) {
            return no_memory(p->err, "the table of tensors");
        }
        st->entries = entries;
        st->cap = cap;
    }
    struct entry *e = &st->entries[st->n];
    *e = (struct entry){.t = {.file = st->file}};
    enum qn_status rc = check_name(&st->str, p->err);
    if (rc == QN_OK) {
        rc = unique(st, &st->by_name, 0, "tensor", &e->t.name, p->err);
    }
    if (rc == QN_OK) {
        rc = qn_scan_expect(&p->scan, ':', p->err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    rc = parse_entry(p, e);
    if (rc != QN_OK) {
        return qn_err_context(p->err, rc, "tensor \"%.200s\"", e->t.name);
    }
    st->n++;
    return QN_OK;
}

static enum qn_status parse_header(struct parse *p)
{
    struct qn_st *st = p->st;
    bool meta = false;
    enum qn_status rc = qn_scan_expect(&p->scan, '{', p->err);
    if (rc == QN_OK && !qn_scan_take(&p->scan, '}')) {
        do {
            // Longer than any name, so that check_name can say what is wrong with it.
            rc = qn_scan_string(&p->scan, MAX_METADATA_KEY, &st->str, p->err);
            if (rc != QN_OK) {
                return rc;
            }
            if (st->str.len == 12 && memcmp(st->str.data, "__metadata__", 12) == 0) {
                if (meta) {
                    return qn_fail(p->err, QN_E_FORMAT, "key \"__metadata__\": found twice");
                }
                meta = true;
                if ((rc = qn_scan_expect(&p->scan, ':', p->err)) == QN_OK) {
                    rc = parse_metadata(p);
                }
                rc = rc == QN_OK ? rc : qn_err_context(p->err, rc, "__metadata__");
            } else {
                rc = add_entry(p);
            }
            if (rc != QN_OK) {
                return rc;
            }
        } while (qn_scan_take(&p->scan, ','));
        rc = qn_scan_expect(&p->scan, '}', p->err);
    }
    if (rc == QN_OK && !qn_scan_done(&p->scan)) {
        rc = qn_fail(p->err, QN_E_FORMAT, "header byte %zu: found text after the object",
                     qn_scan_at(&p->scan));
    }
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

// Rules on the data as a whole: no hole, no overlap, nothing after the last tensor.
static enum qn_status check_layout(struct qn_st *st, const unsigned char *data, uint64_t n_data,
                                   struct qn_err *err)
{
    if (st->n > 1) {
        qsort(st->entries, st->n, sizeof st->entries[0], by_place);
    }
    uint64_t at = 0;
    for (size_t i = 0; i < st->n; i++) {
        struct entry *e = &st->entries[i];
        if (e->begin != at) {
            return qn_fail(err, QN_E_FORMAT,
                           "tensor \"%.200s\": data begins at %llu, expected %llu (%s)", e->t.name,
                           (unsigned long long)e->begin, (unsigned long long)at,
                           e->begin > at ? "a hole" : "an overlap");
        }
        if (e->end > n_data) {
            return qn_fail(
                err, QN_E_FORMAT,
                "tensor \"%.200s\": data ends at %llu, expected at most %llu, the end of "
                "the file",
                e->t.name, (unsigned long long)e->end, (unsigned long long)n_data);
        }
        e->t.data = data + e->begin;
        at = e->end;
    }
    if (at != n_data) {
        return qn_fail(err, QN_E_FORMAT,
                       "data: found %llu bytes, expected %llu, the end of the last tensor",
                       (unsigned long long)n_data, (unsigned long long)at);
    }
    return QN_OK;
}

// The names' values are places in the sorted table, so the map is built again after the sort.
static enum qn_status index_names(struct qn_st *st, struct qn_err *err)
{
    qn_strmap_done(&st->by_name);
    qn_strmap_init(&st->by_name);
    for (size_t i = 0; i < st->n; i++) {
        const char *name = st->entries[i].t.name;
        if (!qn_strmap_put(&st->by_name, name, strlen(name), (uint32_t)i, NULL)) {
            return no_memory(err, "the table of names");
        }
    }
    return QN_OK;
}

// Everything it allocates hangs on st, so a jump out of it (see qn_map_guard) leaks nothing.
static void parse_file(void *arg)
{
    struct parse *p = arg;
    struct qn_st *st = p->st;
    uint64_t n = 0;
    if (st->n_bytes < 8) {
        p->rc =
            qn_fail(p->err, QN_E_FORMAT, "file has %zu bytes, expected at least 8", st->n_bytes);
        return;
    }
    memcpy(&n, st->data, sizeof n);
    if (n > QN_ST_MAX_HEADER) {
        p->rc = qn_fail(p->err, QN_E_LIMIT, "header length %llu, limit %d", (unsigned long long)n,
                        QN_ST_MAX_HEADER);
        return;
    }
    if (n > st->n_bytes - 8) {
        p->rc = qn_fail(p->err, QN_E_FORMAT,
                        "header length %llu, expected at most %zu, the rest of the file",
                        (unsigned long long)n, st->n_bytes - 8);
        return;
    }
    qn_scan_init(&p->scan, st->data + 8, (size_t)n);
    p->rc = parse_header(p);
    if (p->rc == QN_OK) {
        p->rc = check_layout(st, st->data + 8 + n, st->n_bytes - 8 - n, p->err);
    }
    if (p->rc == QN_OK) {
        p->rc = index_names(st, p->err);
    }
}

static enum qn_status open_with(struct qn_map *map, const void *data, size_t n_bytes,
                                const char *file, struct qn_st **out_st, struct qn_err *err)
{
    struct qn_st *st = calloc(1, sizeof *st);
    if (st == NULL) {
        qn_map_close(map);
        return no_memory(err, "a checkpoint");
    }
    st->map = *map;
    st->data = data;
    st->n_bytes = n_bytes;
    qn_strmap_init(&st->by_name);
    qn_strmap_init(&st->meta_keys);
    qn_buf_init(&st->str, 0);
    struct parse p = {.st = st, .err = err};
    enum qn_status rc = qn_arena_new(QN_MEM_OTHER, 0, &st->arena, err);
    if (rc == QN_OK && (st->file = strdup(file)) == NULL) {
        rc = no_memory(err, "a name");
    }
    if (rc == QN_OK) {
        rc = qn_map_guard(parse_file, &p, err);
    }
    rc = rc == QN_OK ? p.rc : rc;
    if (rc != QN_OK) {
        qn_st_close(st);
        return qn_err_context(err, rc, "safetensors file \"%s\"", file);
    }
    qn_strmap_done(&st->meta_keys);
    qn_buf_done(&st->str);
    *out_st = st;
    return QN_OK;
}

enum qn_status qn_st_open(const char *path, struct qn_st **out_st, struct qn_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    struct qn_map map;
    enum qn_status rc = qn_map_open(path, &map, err);
    if (rc != QN_OK) {
        return qn_err_context(err, rc, "safetensors file \"%s\"", file);
    }
    return open_with(&map, map.data, map.n_bytes, file, out_st, err);
}

enum qn_status qn_st_open_mem(const void *data, size_t n_bytes, const char *file,
                              struct qn_st **out_st, struct qn_err *err)
{
    struct qn_map none = {0};
    return open_with(&none, data, n_bytes, file, out_st, err);
}

void qn_st_close(struct qn_st *st)
{
    if (st == NULL) {
        return;
    }
    qn_strmap_done(&st->by_name);
    qn_strmap_done(&st->meta_keys);
    qn_buf_done(&st->str);
    free(st->entries);
    free(st->file);
    qn_arena_free(st->arena);
    qn_map_close(&st->map);
    free(st);
}

size_t qn_st_n_tensors(const struct qn_st *st)
{
    return st->n;
}

const struct qn_tensor *qn_st_tensor(const struct qn_st *st, size_t i)
{
    QN_ASSERT(i < st->n);
    return &st->entries[i].t;
}

const struct qn_tensor *qn_st_find(const struct qn_st *st, const char *name)
{
    uint32_t i;
    return qn_strmap_get(&st->by_name, name, strlen(name), &i) ? &st->entries[i].t : NULL;
}
