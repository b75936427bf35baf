#include "formats/gguf_priv.h"

#include <string.h>

static const struct {
    const char *name;
    unsigned bytes;
} k_types[] = {
    [QN_GGUF_U8] = {"u8", 1},     [QN_GGUF_I8] = {"i8", 1},     [QN_GGUF_U16] = {"u16", 2},
    [QN_GGUF_I16] = {"i16", 2},   [QN_GGUF_U32] = {"u32", 4},   [QN_GGUF_I32] = {"i32", 4},
    [QN_GGUF_F32] = {"f32", 4},   [QN_GGUF_BOOL] = {"bool", 1}, [QN_GGUF_STR] = {"string", 0},
    [QN_GGUF_ARR] = {"array", 0}, [QN_GGUF_U64] = {"u64", 8},   [QN_GGUF_I64] = {"i64", 8},
    [QN_GGUF_F64] = {"f64", 8},
};

size_t qn_gguf_type_bytes(enum qn_gguf_type t)
{
    return k_types[t].bytes;
}

const char *qn_gguf_type_name(enum qn_gguf_type t)
{
    return k_types[t].name;
}

const struct qn_gguf_kv *qn_gguf_kv_find(const struct qn_gguf *g, const char *key)
{
    uint32_t i;
    return qn_strmap_get(&g->keys, key, strlen(key), &i) ? &g->kv[i] : NULL;
}

bool qn_gguf_has(const struct qn_gguf *g, const char *key)
{
    return qn_gguf_kv_find(g, key) != NULL;
}

bool qn_gguf_int(const struct qn_gguf *g, const char *key, int64_t *out)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, key);
    if (kv == NULL) {
        return false;
    }
    switch (kv->type) {
    case QN_GGUF_U8:
    case QN_GGUF_I8:
    case QN_GGUF_U16:
    case QN_GGUF_I16:
    case QN_GGUF_U32:
    case QN_GGUF_I32:
    case QN_GGUF_I64:
        *out = kv->v.i;
        return true;
    case QN_GGUF_U64:
        if (kv->v.u > INT64_MAX) {
            return false;
        }
        *out = (int64_t)kv->v.u;
        return true;
    default:
        return false;
    }
}

bool qn_gguf_float(const struct qn_gguf *g, const char *key, double *out)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, key);
    if (kv == NULL || (kv->type != QN_GGUF_F32 && kv->type != QN_GGUF_F64)) {
        return false;
    }
    *out = kv->v.f;
    return true;
}

bool qn_gguf_bool(const struct qn_gguf *g, const char *key, bool *out)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, key);
    if (kv == NULL || kv->type != QN_GGUF_BOOL) {
        return false;
    }
    *out = kv->v.i != 0;
    return true;
}

bool qn_gguf_str(const struct qn_gguf *g, const char *key, const char **out, size_t *out_len)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, key);
    if (kv == NULL || kv->type != QN_GGUF_STR) {
        return false;
    }
    *out = kv->v.s;
    *out_len = kv->len;
    return true;
}

bool qn_gguf_arr(const struct qn_gguf *g, const char *key, enum qn_gguf_type *out_type,
                 size_t *out_n)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, key);
    if (kv == NULL || kv->type != QN_GGUF_ARR) {
        return false;
    }
    *out_type = kv->elem;
    *out_n = kv->n;
    return true;
}

// The array under key when it has an element i, else NULL.
static const struct qn_gguf_kv *element(const struct qn_gguf *g, const char *key, size_t i)
{
    const struct qn_gguf_kv *kv = qn_gguf_kv_find(g, key);
    return kv != NULL && kv->type == QN_GGUF_ARR && i < kv->n ? kv : NULL;
}

bool qn_gguf_arr_str(const struct qn_gguf *g, const char *key, size_t i, const char **out,
                     size_t *out_len)
{
    const struct qn_gguf_kv *kv = element(g, key, i);
    if (kv == NULL || kv->elem != QN_GGUF_STR) {
        return false;
    }
    // The parser saw every length, but a file may change under the map: check against the offsets.
    const unsigned char *p = kv->data + kv->offset[i];
    uint64_t len, room = kv->offset[i + 1] - kv->offset[i] - 8;
    memcpy(&len, p, sizeof len);
    *out = (const char *)p + 8;
    *out_len = (size_t)(len < room ? len : room);
    return true;
}

bool qn_gguf_arr_int(const struct qn_gguf *g, const char *key, size_t i, int64_t *out)
{
    const struct qn_gguf_kv *kv = element(g, key, i);
    if (kv == NULL) {
        return false;
    }
    const unsigned char *p = kv->data + i * qn_gguf_type_bytes(kv->elem);
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (kv->elem) {
    case QN_GGUF_U8:
    case QN_GGUF_I8:
        memcpy(&u8, p, sizeof u8);
        *out = kv->elem == QN_GGUF_U8 ? (int64_t)u8 : (int64_t)(int8_t)u8;
        return true;
    case QN_GGUF_U16:
    case QN_GGUF_I16:
        memcpy(&u16, p, sizeof u16);
        *out = kv->elem == QN_GGUF_U16 ? (int64_t)u16 : (int64_t)(int16_t)u16;
        return true;
    case QN_GGUF_U32:
    case QN_GGUF_I32:
        memcpy(&u32, p, sizeof u32);
        *out = kv->elem == QN_GGUF_U32 ? (int64_t)u32 : (int64_t)(int32_t)u32;
        return true;
    case QN_GGUF_BOOL:
        memcpy(&u8, p, sizeof u8);
        *out = u8 != 0;
        return true;
    case QN_GGUF_U64:
    case QN_GGUF_I64:
        memcpy(&u64, p, sizeof u64);
        if (kv->elem == QN_GGUF_U64 && u64 > INT64_MAX) {
            return false;
        }
        *out = (int64_t)u64;
        return true;
    default:
        return false;
    }
}

bool qn_gguf_arr_float(const struct qn_gguf *g, const char *key, size_t i, double *out)
{
    const struct qn_gguf_kv *kv = element(g, key, i);
    if (kv == NULL || (kv->elem != QN_GGUF_F32 && kv->elem != QN_GGUF_F64)) {
        return false;
    }
    if (kv->elem == QN_GGUF_F64) {
        memcpy(out, kv->data + 8 * i, sizeof *out);
        return true;
    }
    float f;
    memcpy(&f, kv->data + 4 * i, sizeof f);
    *out = (double)f;
    return true;
}

size_t qn_gguf_n_keys(const struct qn_gguf *g)
{
    return g->n_kv;
}

const char *qn_gguf_key(const struct qn_gguf *g, size_t i, enum qn_gguf_type *out_type)
{
    QN_ASSERT(i < g->n_kv);
    if (out_type != NULL) {
        *out_type = g->kv[i].type;
    }
    return g->kv[i].key;
}

size_t qn_gguf_n_tensors(const struct qn_gguf *g)
{
    return g->n_tensors;
}

const struct qn_tensor *qn_gguf_tensor(const struct qn_gguf *g, size_t i)
{
    QN_ASSERT(i < g->n_tensors);
    return &g->tensors[i];
}

const struct qn_tensor *qn_gguf_find(const struct qn_gguf *g, const char *name)
{
    uint32_t i;
    return qn_strmap_get(&g->names, name, strlen(name), &i) ? &g->tensors[i] : NULL;
}
