#include "formats/ckpt_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "formats/gguf_arch.h"

enum {
    MAX_TEMPLATE_BYTES = 1 << 20,
    SPLIT_SUFFIX = 20 // "-00001-of-00003.gguf"
};

static enum qn_status open_file(struct qn_ckpt *c, const char *path, struct qn_err *err)
{
    struct qn_gguf **ggufs = realloc(c->ggufs, (c->n_ggufs + 1) * sizeof(struct qn_gguf *));
    if (ggufs == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the table of files");
    }
    c->ggufs = ggufs;
    enum qn_status rc = qn_gguf_open(path, &c->ggufs[c->n_ggufs], err);
    if (rc == QN_OK) {
        c->n_ggufs++;
    }
    return rc;
}

static enum qn_status check_part(const struct qn_gguf *g, int64_t no, int64_t count,
                                 struct qn_err *err)
{
    int64_t found_no = -1, found_count = -1;
    (void)qn_gguf_int(g, "split.no", &found_no);
    (void)qn_gguf_int(g, "split.count", &found_count);
    if (found_no != no || found_count != count) {
        return qn_fail(err, QN_E_FORMAT, "split.no %lld of %lld, expected %lld of %lld",
                       (long long)found_no, (long long)found_count, (long long)no,
                       (long long)count);
    }
    return QN_OK;
}

// The other files of a split model, NAME-00002-of-0000N.gguf and so on.
static enum qn_status open_parts(struct qn_ckpt *c, const char *path, struct qn_err *err)
{
    int64_t count = 1, no = 0, n_tensors = -1;
    const struct qn_gguf *first = c->ggufs[0];
    (void)qn_gguf_int(first, "split.count", &count);
    (void)qn_gguf_int(first, "split.no", &no);
    if (count <= 1 && no == 0) {
        return QN_OK;
    }
    size_t len = strlen(path);
    char suffix[SPLIT_SUFFIX + 16], want[SPLIT_SUFFIX + 16];
    if (count < 1 || count > QN_CKPT_MAX_FILES || no < 0 || no >= count) {
        return qn_fail(err, QN_E_FORMAT, "split.no %lld of split.count %lld, expected 0 of 1 to %d",
                       (long long)no, (long long)count, QN_CKPT_MAX_FILES);
    }
    snprintf(want, sizeof want, "-%05d-of-%05d.gguf", 1, (int)count);
    if (no != 0) {
        return qn_fail(err, QN_E_INVALID,
                       "found part %lld of a split model, expected the first, \"…%s\"",
                       (long long)no + 1, want);
    }
    if (len < SPLIT_SUFFIX || strcmp(path + len - SPLIT_SUFFIX, want) != 0) {
        return qn_fail(err, QN_E_FORMAT,
                       "split.count %lld: expected a file name that ends in "
                       "\"%s\"",
                       (long long)count, want);
    }
    char *part = strdup(path);
    if (part == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate a path");
    }
    enum qn_status rc = QN_OK;
    for (int i = 1; i < (int)count && rc == QN_OK; i++) {
        snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", i + 1, (int)count);
        memcpy(part + len - SPLIT_SUFFIX, suffix, SPLIT_SUFFIX);
        rc = open_file(c, part, err);
        if (rc == QN_OK && (rc = check_part(c->ggufs[i], i, count, err)) != QN_OK) {
            rc = qn_err_context(err, rc, "GGUF file \"%s\"", part);
        }
    }
    free(part);
    if (rc == QN_OK && qn_gguf_int(first, "split.tensors.count", &n_tensors)) {
        size_t have = 0;
        for (size_t i = 0; i < c->n_ggufs; i++) {
            have += qn_gguf_n_tensors(c->ggufs[i]);
        }
        if (n_tensors < 0 || (uint64_t)n_tensors != have) {
            rc = qn_fail(err, QN_E_FORMAT,
                         "split.tensors.count: found %zu tensors in %lld files, "
                         "expected %lld",
                         have, (long long)count, (long long)n_tensors);
        }
    }
    return rc;
}

// Tensors of all parts under their GGUF names, for the config.
static const struct qn_tensor *find_raw(void *ctx, const char *name)
{
    const struct qn_ckpt *c = ctx;
    for (size_t i = 0; i < c->n_ggufs; i++) {
        const struct qn_tensor *t = qn_gguf_find(c->ggufs[i], name);
        if (t != NULL) {
            return t;
        }
    }
    return NULL;
}

static int64_t config_int(const struct qn_ckpt *c, const char *key)
{
    return json_integer_value(json_object_get(c->config, key));
}

// A fused matrix is the rows of q, k and v one after the other: three views of its bytes.
static enum qn_status add_qkv(struct qn_ckpt *c, const struct qn_tensor *t,
                              const struct qn_gguf_arch *a, const char *hf, struct qn_err *err)
{
    static const char k_letter[3] = {'q', 'k', 'v'};
    const char *slot = strstr(hf, "%s");
    QN_ASSERT(slot != NULL);
    uint64_t head_dim = (uint64_t)config_int(c, "head_dim");
    uint64_t kv_rows = (uint64_t)config_int(c, "num_key_value_heads") * head_dim;
    uint64_t rows[3] = {(uint64_t)config_int(c, "num_attention_heads") * head_dim, kv_rows,
                        kv_rows};
    uint64_t total = rows[0] + 2 * kv_rows;
    if (t->rank < 1 || t->rank > 2 || t->shape[0] != total) {
        return qn_fail(err, QN_E_FORMAT, "tensor \"%s\": found %llu rows, expected %llu", t->name,
                       (unsigned long long)(t->rank == 0 ? 0 : t->shape[0]),
                       (unsigned long long)total);
    }
    uint64_t row_bytes = t->n_bytes / total, at = 0;
    if (row_bytes * total != t->n_bytes) {
        return qn_fail(err, QN_E_FORMAT, "tensor \"%s\": %llu bytes do not split into rows",
                       t->name, (unsigned long long)t->n_bytes);
    }
    for (int i = 0; i < 3; i++) {
        char name[QN_HF_NAME_MAX];
        snprintf(name, sizeof name, "%.*s%c%s", (int)(slot - hf), hf, k_letter[i], slot + 2);
        struct qn_tensor part = *t;
        part.shape[0] = rows[i];
        part.data = t->data + at * row_bytes;
        part.n_bytes = rows[i] * row_bytes;
        part.flags = i < 2 && a->qk_interleaved ? QN_T_QK_INTERLEAVED : 0;
        at += rows[i];
        enum qn_status rc = qn_ckpt_add(c, &part, name, err);
        if (rc != QN_OK) {
            return rc;
        }
    }
    return QN_OK;
}

static enum qn_status add_tensors(struct qn_ckpt *c, const struct qn_gguf_arch *a,
                                  struct qn_err *err)
{
    int64_t n_layers = config_int(c, "num_hidden_layers");
    for (size_t f = 0; f < c->n_ggufs; f++) {
        for (size_t i = 0; i < qn_gguf_n_tensors(c->ggufs[f]); i++) {
            const struct qn_tensor *t = qn_gguf_tensor(c->ggufs[f], i);
            struct qn_gguf_renamed to;
            enum qn_status rc = qn_gguf_rename(a, t->name, n_layers, &to, err);
            if (rc == QN_OK && to.kind == QN_NAME_QKV) {
                rc = add_qkv(c, t, a, to.hf, err);
            } else if (rc == QN_OK) {
                struct qn_tensor mine = *t;
                mine.flags = to.flags;
                rc = qn_ckpt_add(c, &mine, to.hf, err);
            }
            if (rc != QN_OK) {
                return qn_err_context(err, rc, "GGUF file \"%s\"", t->file);
            }
        }
    }
    return QN_OK;
}

static enum qn_status read_template(struct qn_ckpt *c, struct qn_err *err)
{
    static const char k_key[] = "tokenizer.chat_template";
    const char *s;
    size_t n;
    if (!qn_gguf_has(c->ggufs[0], k_key)) {
        return QN_OK;
    }
    if (!qn_gguf_str(c->ggufs[0], k_key, &s, &n) || n > MAX_TEMPLATE_BYTES ||
        memchr(s, '\0', n) != NULL) {
        return qn_fail(err, QN_E_FORMAT,
                       "key \"%s\": expected a string of at most %d bytes without NUL", k_key,
                       MAX_TEMPLATE_BYTES);
    }
    c->chat_template = strndup(s, n);
    return c->chat_template != NULL ? QN_OK
                                    : qn_fail(err, QN_E_NOMEM, "could not allocate a template");
}

// A file without tensors is a vocabulary: its architecture does not matter yet.
static enum qn_status vocabulary_config(struct qn_ckpt *c, const char *arch, size_t len,
                                        struct qn_err *err)
{
    const struct qn_gguf_arch *a = qn_gguf_arch_find(arch, len);
    c->config = json_object();
    return qn_config_set(c->config, "model_type",
                         a != NULL ? json_string(a->model_type) : json_stringn(arch, len), err);
}

enum qn_status qn_ckpt_open_gguf(struct qn_ckpt *c, const char *path, struct qn_err *err)
{
    const char *s = NULL;
    size_t n = 0, n_tensors = 0;
    c->format = "gguf";
    enum qn_status rc = open_file(c, path, err);
    if (rc != QN_OK || (rc = open_parts(c, path, err)) != QN_OK) {
        return rc;
    }
    const struct qn_gguf *g = c->ggufs[0];
    if (qn_gguf_str(g, "general.type", &s, &n) && (n != 5 || memcmp(s, "model", 5) != 0)) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "key \"general.type\": found \"%.40s\", expected \"model\"", s);
    }
    if (!qn_gguf_str(g, "general.architecture", &s, &n) || n == 0 || n > 64) {
        return qn_fail(err, QN_E_FORMAT,
                       "key \"general.architecture\": expected a string of 1 to 64 bytes");
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 0x21 || (unsigned char)s[i] > 0x7e) {
            return qn_fail(err, QN_E_FORMAT,
                           "key \"general.architecture\": found byte 0x%02x, expected printable "
                           "ASCII",
                           (unsigned)(unsigned char)s[i]);
        }
    }
    for (size_t i = 0; i < c->n_ggufs; i++) {
        n_tensors += qn_gguf_n_tensors(c->ggufs[i]);
    }
    if (n_tensors == 0) {
        rc = vocabulary_config(c, s, n, err);
    } else {
        struct qn_gguf_view v = {g, qn_gguf_arch_find(s, n), find_raw, c};
        if (v.arch == NULL) {
            return qn_fail(err, QN_E_UNSUPPORTED, "architecture \"%s\" is not supported", s);
        }
        rc = qn_gguf_make_config(&v, &c->config, err);
        rc = rc == QN_OK ? add_tensors(c, v.arch, err) : rc;
    }
    rc = rc == QN_OK ? qn_gguf_make_generation(g, &c->generation, err) : rc;
    return rc == QN_OK ? read_template(c, err) : rc;
}
