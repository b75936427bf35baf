#include "text/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "text/tmpl_rt.h"
#include "text/utf8.h"

#define MAX_SOURCE ((size_t)1 << 20)

void qn_tmpl_where(const struct qn_tmpl *t, size_t pos, size_t *out_line, size_t *out_col)
{
    size_t line = 1, start = 0;
    pos = pos > t->n_source ? t->n_source : pos;
    for (size_t i = 0; i < pos; i++) {
        if (t->source[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    *out_line = line;
    *out_col = 1 + qn_tcp_count(t->source + start, pos - start);
}

// The source with "\n" line ends alone and without its last one.
static enum qn_status copy_source(struct qn_tmpl *t, const char *text, size_t n, struct qn_err *err)
{
    char *s = qn_arena_alloc(t->arena, n + 1);
    if (s == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the chat template");
    }
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r') {
            i += i + 1 < n && text[i + 1] == '\n' ? 1 : 0;
            s[out++] = '\n';
        } else {
            s[out++] = text[i];
        }
    }
    out -= out > 0 && s[out - 1] == '\n' ? 1 : 0;
    s[out] = '\0';
    t->source = s;
    t->n_source = out;
    return QN_OK;
}

enum qn_status qn_tmpl_compile(const char *text, size_t n, struct qn_tmpl **out_tmpl,
                               struct qn_err *err)
{
    if (n > MAX_SOURCE) {
        return qn_fail(err, QN_E_LIMIT, "chat template: found %zu bytes, expected at most %zu", n,
                       MAX_SOURCE);
    }
    size_t bad = qn_utf8_valid_prefix(text, n);
    if (bad < n) {
        return qn_fail(err, QN_E_FORMAT, "chat template: byte %zu is not UTF-8", bad);
    }
    struct qn_tmpl *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the chat template");
    }
    enum qn_status rc = qn_arena_new(QN_MEM_TEXT, (size_t)1 << 30, &t->arena, err);
    if (rc == QN_OK) {
        rc = copy_source(t, text, n, err);
    }
    if (rc == QN_OK) {
        rc = qn_tmpl_parse(t, err);
    }
    if (rc != QN_OK) {
        qn_tmpl_free(t);
        return rc;
    }
    t->wants_parts = qn_tmpl_find_parts(t);
    *out_tmpl = t;
    return QN_OK;
}

void qn_tmpl_free(struct qn_tmpl *t)
{
    if (t != NULL) {
        qn_arena_free(t->arena);
        free(t);
    }
}

struct qn_tv qn_trt_fail(struct qn_trt *rt, enum qn_status code, const char *fmt, ...)
{
    if (rt->status != QN_OK) {
        return qn_tv_undef();
    }
    size_t line, col;
    char msg[512];
    qn_tmpl_where(rt->t, rt->pos, &line, &col);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    rt->status = qn_fail(rt->err, code, "chat template line %zu column %zu: %s", line, col, msg);
    return qn_tv_undef();
}

void qn_trt_nomem(struct qn_trt *rt)
{
    qn_trt_fail(rt, QN_E_LIMIT, "memory of the render is used up");
}

bool qn_trt_step(struct qn_trt *rt, uint64_t n)
{
    if (rt->status != QN_OK) {
        return false;
    }
    rt->steps += n;
    if (rt->steps > rt->max_steps) {
        qn_trt_fail(rt, QN_E_LIMIT, "more than %llu steps", (unsigned long long)rt->max_steps);
        return false;
    }
    return true;
}

void *qn_trt_alloc(struct qn_trt *rt, size_t n, size_t size)
{
    if (rt->status != QN_OK) {
        return NULL;
    }
    void *p = qn_arena_array(rt->arena, n, size);
    if (p == NULL) {
        qn_trt_nomem(rt);
    }
    return p;
}

struct qn_tv qn_trt_undef(struct qn_trt *rt, enum qn_tv_kind owner, const struct qn_ts *name)
{
    struct qn_tundef *u = qn_trt_alloc(rt, 1, sizeof *u);
    if (u != NULL) {
        *u = (struct qn_tundef){.name = name, .owner = owner};
    }
    return (struct qn_tv){.kind = QN_TV_UNDEF, .undef = u};
}

struct qn_tv qn_trt_undef_hint(struct qn_trt *rt, const char *hint)
{
    struct qn_tundef *u = qn_trt_alloc(rt, 1, sizeof *u);
    if (u != NULL) {
        *u = (struct qn_tundef){.hint = hint};
    }
    return (struct qn_tv){.kind = QN_TV_UNDEF, .undef = u};
}

struct qn_tv qn_trt_fail_undef(struct qn_trt *rt, struct qn_tv v)
{
    const struct qn_tundef *u = v.undef;
    if (u == NULL || u->name == NULL) {
        return qn_trt_fail(rt, QN_E_INVALID, "an undefined value is used%s%s",
                           u != NULL ? ": " : "", u != NULL ? u->hint : "");
    }
    int n = (int)(u->name->n > 100 ? 100 : u->name->n);
    if (u->owner == QN_TV_MISSING) {
        return qn_trt_fail(rt, QN_E_INVALID, "\"%.*s\" is undefined", n, u->name->p);
    }
    return qn_trt_fail(rt, QN_E_INVALID, "%s has no \"%.*s\"", qn_tv_kind_name(u->owner), n,
                       u->name->p);
}

static struct qn_tv from_json(struct qn_trt *rt, const json_t *j, bool plain, size_t depth)
{
    if (depth > QN_TV_MAX_DEPTH) {
        return qn_trt_fail(rt, QN_E_LIMIT, "a value nested deeper than %d levels", QN_TV_MAX_DEPTH);
    }
    if (j == NULL || rt->status != QN_OK) {
        return qn_tv_none();
    }
    switch (json_typeof(j)) {
    case JSON_OBJECT: {
        struct qn_tdict *d = qn_tdict_new(rt, json_object_size(j));
        json_t *obj = (json_t *)j; // jansson's iterators take no const; nothing is changed
        for (void *it = json_object_iter(obj); it != NULL; it = json_object_iter_next(obj, it)) {
            const struct qn_ts *key =
                qn_ts_new(rt, json_object_iter_key(it), json_object_iter_key_len(it), plain);
            qn_tdict_put(rt, d, qn_tv_of_ts(key),
                         from_json(rt, json_object_iter_value(it), plain, depth + 1));
        }
        return (struct qn_tv){.kind = QN_TV_DICT, .dict = d};
    }
    case JSON_ARRAY: {
        struct qn_tlist *list = qn_tlist_new(rt, json_array_size(j));
        for (size_t i = 0; i < json_array_size(j) && rt->status == QN_OK; i++) {
            qn_tlist_add(rt, list, from_json(rt, json_array_get(j, i), plain, depth + 1));
        }
        return qn_tv_of_list(QN_TV_LIST, list);
    }
    case JSON_STRING:
        return qn_tv_of_ts(qn_ts_new(rt, json_string_value(j), json_string_length(j), plain));
    case JSON_INTEGER:
        return qn_tv_int(json_integer_value(j));
    case JSON_REAL:
        return qn_tv_float(json_real_value(j));
    case JSON_TRUE:
        return qn_tv_bool(true);
    case JSON_FALSE:
        return qn_tv_bool(false);
    case JSON_NULL:
        break;
    }
    return qn_tv_none();
}

static size_t or_default(size_t v, size_t otherwise)
{
    return v != 0 ? v : otherwise;
}

enum qn_status qn_tmpl_render(const struct qn_tmpl *t, const json_t *context, const json_t *trusted,
                              int64_t now_s, const struct qn_tmpl_limits *limits,
                              struct qn_buf *out, struct qn_buf *plain, struct qn_err *err)
{
    const struct qn_tmpl_limits none = {0};
    const struct qn_tmpl_limits *l = limits != NULL ? limits : &none;
    if (!json_is_object(context) || (trusted != NULL && !json_is_object(trusted))) {
        return qn_fail(err, QN_E_INVALID, "chat template context: expected an object");
    }
    struct qn_trt rt = {.t = t,
                        .err = err,
                        .max_steps = l->steps != 0 ? l->steps : 20000000,
                        .max_calls = or_default(l->depth, 128),
                        .max_output = or_default(l->output_bytes, (size_t)16 << 20),
                        .now_s = now_s,
                        .hash_seed = qn_hash_seed(),
                        .sink = {.text = out, .plain = plain}};
    rt.max_levels = rt.max_calls > 128 ? 128 * 16 : rt.max_calls * 16;
    enum qn_status rc =
        qn_arena_new(QN_MEM_TEXT, or_default(l->memory_bytes, (size_t)128 << 20), &rt.arena, err);
    if (rc != QN_OK) {
        return rc;
    }
    rt.context = from_json(&rt, context, true, 0).dict;
    rt.trusted = trusted != NULL ? from_json(&rt, trusted, false, 0).dict : NULL;
    struct qn_tscope *root = qn_tscope_new(&rt, NULL);
    if (root != NULL) {
        qn_texec(&rt, root, &t->body);
    }
    qn_arena_free(rt.arena);
    return rt.status;
}
