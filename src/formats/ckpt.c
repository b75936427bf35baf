#include "formats/ckpt_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static enum qn_status open_ckpt(const char *path, bool text_only, struct qn_ckpt **out_ckpt,
                                struct qn_err *err)
{
    struct qn_ckpt *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate a checkpoint");
    }
    c->text_only = text_only;
    qn_strmap_init(&c->names);
    enum qn_status rc = qn_arena_new(QN_MEM_OTHER, 0, &c->arena, err);
    if (rc == QN_OK) {
        if (qn_dir_exists(path)) {
            rc = qn_ckpt_open_dir(c, path, err);
        } else if (ends_with(path, ".safetensors")) {
            rc = qn_fail(err, QN_E_INVALID,
                         "found a single safetensors file, expected the directory that holds it "
                         "and config.json");
        } else {
            rc = qn_ckpt_open_gguf(c, path, err);
        }
    }
    if (rc != QN_OK) {
        qn_ckpt_close(c);
        return qn_err_context(err, rc, "model \"%s\"", path);
    }
    *out_ckpt = c;
    return QN_OK;
}

enum qn_status qn_ckpt_open(const char *path, struct qn_ckpt **out_ckpt, struct qn_err *err)
{
    return open_ckpt(path, false, out_ckpt, err);
}

enum qn_status qn_ckpt_open_text(const char *path, struct qn_ckpt **out_ckpt, struct qn_err *err)
{
    return open_ckpt(path, true, out_ckpt, err);
}

void qn_ckpt_close(struct qn_ckpt *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n_shards; i++) {
        qn_st_close(c->shards[i]);
    }
    for (size_t i = 0; i < c->n_ggufs; i++) {
        qn_gguf_close(c->ggufs[i]);
    }
    free(c->shards);
    free(c->ggufs);
    json_decref(c->config);
    json_decref(c->generation);
    json_decref(c->tokenizer_config);
    free(c->chat_template);
    free(c->tokenizer_path);
    free(c->tensors);
    qn_strmap_done(&c->names);
    qn_arena_free(c->arena);
    free(c);
}

const json_t *qn_ckpt_config(const struct qn_ckpt *c)
{
    return c->config;
}

const json_t *qn_ckpt_generation_config(const struct qn_ckpt *c)
{
    return c->generation;
}

const json_t *qn_ckpt_tokenizer_config(const struct qn_ckpt *c)
{
    return c->tokenizer_config;
}

const char *qn_ckpt_chat_template(const struct qn_ckpt *c)
{
    return c->chat_template;
}

const char *qn_ckpt_tokenizer_path(const struct qn_ckpt *c)
{
    return c->tokenizer_path;
}

const struct qn_gguf *qn_ckpt_gguf(const struct qn_ckpt *c)
{
    return c->n_ggufs > 0 ? c->ggufs[0] : NULL;
}

const char *qn_ckpt_format(const struct qn_ckpt *c)
{
    return c->format;
}

const char *qn_ckpt_note(const struct qn_ckpt *c, size_t i)
{
    return i < c->n_notes ? c->notes[i] : NULL;
}

size_t qn_ckpt_n_tensors(const struct qn_ckpt *c)
{
    return c->n_tensors;
}

const struct qn_tensor *qn_ckpt_tensor(const struct qn_ckpt *c, size_t i)
{
    QN_ASSERT(i < c->n_tensors);
    return &c->tensors[i];
}

const struct qn_tensor *qn_ckpt_find(const struct qn_ckpt *c, const char *name)
{
    uint32_t i;
    return qn_strmap_get(&c->names, name, strlen(name), &i) ? &c->tensors[i] : NULL;
}

enum qn_status qn_ckpt_add(struct qn_ckpt *c, const struct qn_tensor *t, const char *name,
                           struct qn_err *err)
{
    if (c->n_tensors == c->cap_tensors) {
        size_t cap = c->cap_tensors == 0 ? 256 : c->cap_tensors * 2;
        struct qn_tensor *tensors = realloc(c->tensors, cap * sizeof *tensors);
        if (tensors == NULL) {
            return qn_fail(err, QN_E_NOMEM, "could not allocate the table of tensors");
        }
        c->tensors = tensors;
        c->cap_tensors = cap;
    }
    char *copy = qn_arena_strdup(c->arena, name);
    bool existing = false;
    if (copy == NULL ||
        !qn_strmap_put(&c->names, copy, strlen(copy), (uint32_t)c->n_tensors, &existing)) {
        return existing ? qn_fail(err, QN_E_FORMAT,
                                  "tensor \"%.200s\": found in file \"%s\" and, under the same "
                                  "name, in file \"%s\"",
                                  name, qn_ckpt_find(c, name)->file, t->file)
                        : qn_fail(err, QN_E_NOMEM, "could not allocate the table of names");
    }
    struct qn_tensor *mine = &c->tensors[c->n_tensors++];
    *mine = *t;
    mine->name = copy;
    return QN_OK;
}

void qn_ckpt_add_note(struct qn_ckpt *c, const char *fmt, ...)
{
    if (c->n_notes == QN_CKPT_MAX_NOTES) {
        return;
    }
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *copy = qn_arena_strdup(c->arena, text);
    if (copy != NULL) {
        c->notes[c->n_notes++] = copy;
    }
}
