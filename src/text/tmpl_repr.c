#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_rt.h"

void qn_float_repr(double f, char *out)
{
    if (isnan(f) || isinf(f)) {
        snprintf(out, QN_FLOAT_REPR_MAX, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    char sci[40];
    for (int prec = 0; prec < 17; prec++) {
        snprintf(sci, sizeof sci, "%.*e", prec, f);
        if (strtod(sci, NULL) == f) {
            break;
        }
    }
    char digits[24];
    size_t n = 0;
    const char *p = sci;
    const char *sign = *p == '-' ? "-" : "";
    p += *p == '-' ? 1 : 0;
    for (; *p != 'e'; p++) {
        if (*p != '.') {
            digits[n++] = *p;
        }
    }
    digits[n] = '\0';
    int exp = (int)strtol(p + 1, NULL, 10); // -324 to 308
    if (exp < -4 || exp >= 16) {
        snprintf(out, QN_FLOAT_REPR_MAX, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                 digits + 1, exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        snprintf(out, QN_FLOAT_REPR_MAX, "%s0.%.*s%s", sign, -exp - 1, "0000", digits);
    } else if ((size_t)exp + 1 >= n) {
        snprintf(out, QN_FLOAT_REPR_MAX, "%s%s%.*s.0", sign, digits, exp + 1 - (int)n,
                 "0000000000000000");
    } else {
        snprintf(out, QN_FLOAT_REPR_MAX, "%s%.*s.%s", sign, exp + 1, digits, digits + exp + 1);
    }
}

static bool printable(uint32_t cp)
{
    if (cp == ' ') {
        return true;
    }
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static void escaped(struct qn_trt *rt, struct qn_tsbuf *b, const char *text, bool plain)
{
    qn_tsbuf_add(rt, b, text, strlen(text), plain);
}

static void repr_str(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s)
{
    bool single = memchr(s->p, '\'', s->n) != NULL;
    bool twice = memchr(s->p, '"', s->n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    bool plain = qn_ts_any_plain(s);
    qn_tsbuf_add(rt, b, &quote, 1, plain);
    for (size_t at = 0; at < s->n && rt->status == QN_OK;) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + at, s->n - at, &len);
        char esc[16];
        if (cp == '\\' || cp == (uint32_t)quote) {
            snprintf(esc, sizeof esc, "\\%c", (char)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            snprintf(esc, sizeof esc, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        } else if (printable(cp)) {
            memcpy(esc, s->p + at, len);
            esc[len] = '\0';
        } else {
            snprintf(esc, sizeof esc,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
        }
        escaped(rt, b, esc, plain);
        at += len;
    }
    qn_tsbuf_add(rt, b, &quote, 1, plain);
}

static void repr(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv v, size_t depth);

static void repr_items(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_tlist *list,
                       size_t depth)
{
    for (size_t i = 0; i < list->n && rt->status == QN_OK; i++) {
        if (i > 0) {
            qn_tsbuf_puts(rt, b, ", ");
        }
        repr(rt, b, list->at[i], depth + 1);
    }
}

static void repr_dict(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_tdict *d, size_t depth)
{
    qn_tsbuf_puts(rt, b, "{");
    for (size_t i = 0; i < d->n && rt->status == QN_OK; i++) {
        if (i > 0) {
            qn_tsbuf_puts(rt, b, ", ");
        }
        repr(rt, b, d->at[i].key, depth + 1);
        qn_tsbuf_puts(rt, b, ": ");
        repr(rt, b, d->at[i].val, depth + 1);
    }
    qn_tsbuf_puts(rt, b, "}");
}

static void repr_macro(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_tsym *name)
{
    qn_tsbuf_puts(rt, b, name != NULL ? "<Macro '" : "<Macro anonymous");
    if (name != NULL) {
        qn_tsbuf_add_ts(rt, b, name->s);
        qn_tsbuf_puts(rt, b, "'");
    }
    qn_tsbuf_puts(rt, b, ">");
}

static void repr_num(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv v)
{
    char text[64];
    if (v.kind == QN_TV_FLOAT) {
        qn_float_repr(v.f, text);
    } else if (v.kind == QN_TV_RANGE) {
        snprintf(text, sizeof text,
                 v.range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)v.range->start, (long long)v.range->stop, (long long)v.range->step);
    } else {
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    }
    qn_tsbuf_puts(rt, b, text);
}

static void repr(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv v, size_t depth)
{
    if (depth > QN_TV_MAX_DEPTH) {
        qn_trt_fail(rt, QN_E_LIMIT, "a value nested deeper than %d levels", QN_TV_MAX_DEPTH);
        return;
    }
    if (!qn_trt_step(rt, 1)) {
        return;
    }
    switch (v.kind) {
    case QN_TV_UNDEF:
    case QN_TV_MISSING:
        qn_tsbuf_puts(rt, b, "Undefined");
        return;
    case QN_TV_NONE:
        qn_tsbuf_puts(rt, b, "None");
        return;
    case QN_TV_BOOL:
        qn_tsbuf_puts(rt, b, v.b ? "True" : "False");
        return;
    case QN_TV_INT:
    case QN_TV_FLOAT:
    case QN_TV_RANGE:
        repr_num(rt, b, v);
        return;
    case QN_TV_STR:
        if (v.s->markup) {
            qn_tsbuf_puts(rt, b, "Markup(");
        }
        repr_str(rt, b, v.s);
        if (v.s->markup) {
            qn_tsbuf_puts(rt, b, ")");
        }
        return;
    case QN_TV_LIST:
        qn_tsbuf_puts(rt, b, "[");
        repr_items(rt, b, v.list, depth);
        qn_tsbuf_puts(rt, b, "]");
        return;
    case QN_TV_TUPLE:
        qn_tsbuf_puts(rt, b, "(");
        repr_items(rt, b, v.list, depth);
        qn_tsbuf_puts(rt, b, v.list->n == 1 ? ",)" : ")");
        return;
    case QN_TV_VIEW:
        qn_tsbuf_puts(rt, b, v.list->what);
        qn_tsbuf_puts(rt, b, "([");
        repr_items(rt, b, v.list, depth);
        qn_tsbuf_puts(rt, b, "])");
        return;
    case QN_TV_DICT:
        repr_dict(rt, b, v.dict, depth);
        return;
    case QN_TV_MACRO:
        repr_macro(rt, b, v.macro->node->macro->name);
        return;
    case QN_TV_NS:
        qn_tsbuf_puts(rt, b, "<Namespace ");
        repr_dict(rt, b, v.dict, depth);
        qn_tsbuf_puts(rt, b, ">");
        return;
    default:
        // Python prints an address here, which no output should depend on.
        qn_trt_fail(rt, QN_E_INVALID, "%s cannot be printed", qn_tv_kind_name(v.kind));
    }
}

const struct qn_ts *qn_tv_repr(struct qn_trt *rt, struct qn_tv v)
{
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    repr(rt, b, v, 0);
    return qn_tsbuf_ts_whole(rt, b);
}

const struct qn_ts *qn_tv_str(struct qn_trt *rt, struct qn_tv v)
{
    if (v.kind == QN_TV_STR) {
        return v.s;
    }
    if (v.kind == QN_TV_UNDEF || rt->status != QN_OK) {
        return qn_ts_empty();
    }
    return qn_tv_repr(rt, v);
}
