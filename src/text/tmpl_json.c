#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/tmpl_rt.h"

/// Values as json.dumps writes them.

static void json_str(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s,
                     const struct qn_tjson_opts *o)
{
    bool plain = qn_ts_any_plain(s);
    qn_tsbuf_add(rt, b, "\"", 1, plain);
    size_t run = 0; // start of bytes that go as they are
    for (size_t at = 0; at < s->n && rt->status == QN_OK;) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + at, s->n - at, &len);
        char esc[16];
        const char *named = cp == '"'    ? "\\\""
                            : cp == '\\' ? "\\\\"
                            : cp == '\n' ? "\\n"
                            : cp == '\r' ? "\\r"
                            : cp == '\t' ? "\\t"
                            : cp == '\f' ? "\\f"
                            : cp == '\b' ? "\\b"
                                         : NULL;
        if (named != NULL) {
            snprintf(esc, sizeof esc, "%s", named);
        } else if (cp < 0x20 || (o->ensure_ascii && cp >= 0x7f && cp < 0x10000)) {
            snprintf(esc, sizeof esc, "\\u%04x", cp);
        } else if (o->ensure_ascii && cp >= 0x10000) {
            snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                     0xdc00 + ((cp - 0x10000) & 0x3ff));
        } else {
            at += len;
            continue;
        }
        qn_tsbuf_add_sub(rt, b, s, run, at - run);
        qn_tsbuf_add(rt, b, esc, strlen(esc), plain);
        at += len;
        run = at;
    }
    qn_tsbuf_add_sub(rt, b, s, run, s->n - run);
    qn_tsbuf_add(rt, b, "\"", 1, plain);
}

static void json_num(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv v)
{
    char text[QN_FLOAT_REPR_MAX];
    if (v.kind == QN_TV_BOOL) {
        snprintf(text, sizeof text, "%s", v.b ? "true" : "false");
    } else if (v.kind == QN_TV_INT) {
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    } else if (isfinite(v.f)) {
        qn_float_repr(v.f, text);
    } else {
        snprintf(text, sizeof text, "%s", isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
    }
    qn_tsbuf_puts(rt, b, text);
}

static void line(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_tjson_opts *o, size_t depth)
{
    if (o->indented) {
        qn_tsbuf_puts(rt, b, "\n");
        for (size_t i = 0; i < depth && rt->status == QN_OK; i++) {
            qn_tsbuf_add_ts(rt, b, o->indent);
        }
    }
}

static void sep(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_tjson_opts *o, size_t depth)
{
    if (o->item_sep != NULL) {
        qn_tsbuf_add_ts(rt, b, o->item_sep);
    } else {
        qn_tsbuf_puts(rt, b, o->indented ? "," : ", ");
    }
    line(rt, b, o, depth);
}

static void json(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv v,
                 const struct qn_tjson_opts *o, size_t depth);

static void json_key(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv key,
                     const struct qn_tjson_opts *o)
{
    if (key.kind == QN_TV_STR) {
        json_str(rt, b, key.s, o);
    } else if (qn_tv_is_num(key) || key.kind == QN_TV_NONE) {
        qn_tsbuf_puts(rt, b, "\"");
        json(rt, b, key, o, 0);
        qn_tsbuf_puts(rt, b, "\"");
    } else {
        qn_trt_fail(rt, QN_E_INVALID, "tojson: found %s as a key, expected a string",
                    qn_tv_kind_name(key.kind));
    }
}

static void json_dict(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_tdict *d,
                      const struct qn_tjson_opts *o, size_t depth)
{
    struct qn_tlist *keys = qn_tlist_new(rt, d->n), *vals = qn_tlist_new(rt, d->n);
    for (size_t i = 0; i < d->n; i++) {
        qn_tlist_add(rt, keys, d->at[i].key);
        qn_tlist_add(rt, vals, d->at[i].val);
    }
    if (o->sort_keys) {
        struct qn_tlist *order = qn_tlist_of(rt, qn_tv_of_list(QN_TV_LIST, keys));
        qn_tlist_sort(rt, order, vals, false);
        keys = order;
    }
    qn_tsbuf_puts(rt, b, "{");
    for (size_t i = 0; i < keys->n && rt->status == QN_OK; i++) {
        if (i > 0) {
            sep(rt, b, o, depth + 1);
        } else {
            line(rt, b, o, depth + 1);
        }
        json_key(rt, b, keys->at[i], o);
        if (o->key_sep != NULL) {
            qn_tsbuf_add_ts(rt, b, o->key_sep);
        } else {
            qn_tsbuf_puts(rt, b, ": ");
        }
        json(rt, b, vals->at[i], o, depth + 1);
    }
    if (d->n > 0) {
        line(rt, b, o, depth);
    }
    qn_tsbuf_puts(rt, b, "}");
}

static void json(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv v,
                 const struct qn_tjson_opts *o, size_t depth)
{
    if (depth > QN_TV_MAX_DEPTH) {
        qn_trt_fail(rt, QN_E_LIMIT, "tojson: a value nested deeper than %d levels",
                    QN_TV_MAX_DEPTH);
        return;
    }
    if (!qn_trt_step(rt, 1)) {
        return;
    }
    switch (v.kind) {
    case QN_TV_NONE:
        qn_tsbuf_puts(rt, b, "null");
        return;
    case QN_TV_BOOL:
    case QN_TV_INT:
    case QN_TV_FLOAT:
        json_num(rt, b, v);
        return;
    case QN_TV_STR:
        json_str(rt, b, v.s, o);
        return;
    case QN_TV_LIST:
    case QN_TV_TUPLE:
        qn_tsbuf_puts(rt, b, "[");
        for (size_t i = 0; i < v.list->n && rt->status == QN_OK; i++) {
            if (i > 0) {
                sep(rt, b, o, depth + 1);
            } else {
                line(rt, b, o, depth + 1);
            }
            json(rt, b, v.list->at[i], o, depth + 1);
        }
        if (v.list->n > 0) {
            line(rt, b, o, depth);
        }
        qn_tsbuf_puts(rt, b, "]");
        return;
    case QN_TV_DICT:
        json_dict(rt, b, v.dict, o, depth);
        return;
    case QN_TV_UNDEF:
        qn_trt_fail_undef(rt, v);
        return;
    default:
        qn_trt_fail(rt, QN_E_INVALID, "tojson: %s has no JSON form", qn_tv_kind_name(v.kind));
    }
}

const struct qn_ts *qn_tv_json(struct qn_trt *rt, struct qn_tv v, const struct qn_tjson_opts *opts)
{
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    json(rt, b, v, opts, 0);
    return qn_tsbuf_ts_whole(rt, b);
}
