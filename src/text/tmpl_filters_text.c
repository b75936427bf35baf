#include <string.h>

#include "text/tmpl_rt.h"

/// Filters that give text.

static bool none(struct qn_trt *rt, const char *what, const struct qn_targs *args)
{
    return qn_targs_bind(rt, what, args, NULL, 0, 0, NULL);
}

static struct qn_tv f_upper(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return none(rt, "upper", args) ? qn_tv_of_ts(qn_ts_case(rt, qn_tv_str(rt, in), 'u'))
                                   : qn_tv_undef();
}

static struct qn_tv f_lower(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return none(rt, "lower", args) ? qn_tv_of_ts(qn_ts_case(rt, qn_tv_str(rt, in), 'l'))
                                   : qn_tv_undef();
}

static struct qn_tv f_capitalize(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return none(rt, "capitalize", args) ? qn_tv_of_ts(qn_ts_case(rt, qn_tv_str(rt, in), 'c'))
                                        : qn_tv_undef();
}

// Words begin behind white space and "-({[<", unlike the method of strings.
static struct qn_tv f_title(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (!none(rt, "title", args)) {
        return qn_tv_undef();
    }
    const struct qn_ts *s = qn_tv_str(rt, in);
    struct qn_tsbuf *b = qn_tsbuf_new(rt, s->n);
    bool start = true;
    for (size_t at = 0; at < s->n && rt->status == QN_OK;) {
        size_t len, end = at;
        bool sep = false;
        while (end < s->n) {
            uint32_t cp = qn_tcp_get(s->p + end, s->n - end, &len);
            bool is_sep =
                qn_cp_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) != NULL && cp != 0);
            if (end > at && (start || is_sep != sep)) {
                break;
            }
            sep = is_sep;
            end += len;
            if (start) {
                break;
            }
        }
        qn_tsbuf_add_ts(rt, b, qn_ts_case(rt, qn_ts_sub(rt, s, at, end - at), start ? 'u' : 'l'));
        start = sep;
        at = end;
    }
    return qn_tv_of_ts(qn_tsbuf_ts(rt, b));
}

static struct qn_tv f_trim(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv chars;
    if (!qn_targs_bind(rt, "trim", args, (const char *const[]){"chars"}, 1, 0, &chars)) {
        return qn_tv_undef();
    }
    bool given = qn_tv_is_given(chars) && chars.kind != QN_TV_NONE;
    if (given && chars.kind != QN_TV_STR) {
        return qn_trt_fail(rt, QN_E_INVALID, "trim: found %s, expected a string",
                           qn_tv_kind_name(chars.kind));
    }
    return qn_tv_of_ts(qn_ts_strip(rt, qn_tv_str(rt, in), given ? chars.s : NULL, true, true));
}

static struct qn_tv f_string(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return none(rt, "string", args) ? qn_tv_of_ts(qn_tv_str(rt, in)) : qn_tv_undef();
}

static struct qn_tv f_safe(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return none(rt, "safe", args) ? qn_tv_of_ts(qn_ts_with_markup(rt, qn_tv_str(rt, in), true))
                                  : qn_tv_undef();
}

static struct qn_tv f_escape(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return none(rt, "escape", args) ? qn_tv_of_ts(qn_ts_escape(rt, qn_tv_str(rt, in)))
                                    : qn_tv_undef();
}

static struct qn_tv f_forceescape(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return none(rt, "forceescape", args)
               ? qn_tv_of_ts(qn_ts_escape(rt, qn_ts_with_markup(rt, qn_tv_str(rt, in), false)))
               : qn_tv_undef();
}

static struct qn_tv f_replace(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[3];
    if (!qn_targs_bind(rt, "replace", args, (const char *const[]){"old", "new", "count"}, 3, 2,
                       a)) {
        return qn_tv_undef();
    }
    int64_t max = qn_tv_is_int(a[2]) ? qn_tv_as_int(a[2]) : -1;
    if (qn_tv_is_given(a[2]) && a[2].kind != QN_TV_NONE && !qn_tv_is_int(a[2])) {
        return qn_trt_fail(rt, QN_E_INVALID, "replace: found %s, expected an integer",
                           qn_tv_kind_name(a[2].kind));
    }
    const struct qn_ts *s = qn_ts_with_markup(rt, qn_tv_str(rt, in), false);
    return qn_tv_of_ts(qn_ts_replace(rt, s, qn_tv_str(rt, a[0]), qn_tv_str(rt, a[1]), max));
}

static struct qn_tv f_indent(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[3];
    if (!qn_targs_bind(rt, "indent", args, (const char *const[]){"width", "first", "blank"}, 3, 0,
                       a)) {
        return qn_tv_undef();
    }
    if (in.kind != QN_TV_STR) {
        return qn_trt_fail(rt, QN_E_INVALID, "indent: found %s, expected a string",
                           qn_tv_kind_name(in.kind));
    }
    const struct qn_ts *pad = NULL;
    if (a[0].kind == QN_TV_STR) {
        pad = a[0].s;
    } else if (!qn_tv_is_given(a[0]) || qn_tv_is_int(a[0])) {
        struct qn_tv space = qn_tv_of_ts(qn_ts_lit(rt, " "));
        struct qn_tv n = qn_tv_is_given(a[0]) ? a[0] : qn_tv_int(4);
        struct qn_tv v = qn_tv_binary(rt, QN_OP_MUL, space, n);
        pad = v.kind == QN_TV_STR ? v.s : qn_ts_empty();
    } else {
        return qn_trt_fail(rt, QN_E_INVALID, "indent: found %s, expected a width or a string",
                           qn_tv_kind_name(a[0].kind));
    }
    // The reference adds a line end first, so that a last empty line counts.
    const struct qn_ts *text = qn_ts_concat(rt, in.s, qn_ts_lit(rt, "\n"));
    struct qn_tlist *lines = qn_ts_splitlines(rt, text, false);
    struct qn_tsbuf *b = qn_tsbuf_new(rt, text->n);
    for (size_t i = 0; i < lines->n && qn_trt_step(rt, 1); i++) {
        const struct qn_ts *line = lines->at[i].s;
        if (i > 0) {
            qn_tsbuf_puts(rt, b, "\n");
        }
        if (i == 0 ? qn_tv_truthy(a[1]) : qn_tv_truthy(a[2]) || line->n > 0) {
            qn_tsbuf_add_ts(rt, b, pad);
        }
        qn_tsbuf_add_ts(rt, b, line);
    }
    return qn_tv_of_ts(qn_tsbuf_ts(rt, b));
}

static struct qn_tv f_tojson(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    struct qn_tv a[4];
    if (!qn_targs_bind(rt, "tojson", args, names, 4, 0, a)) {
        return qn_tv_undef();
    }
    struct qn_tjson_opts o = {.ensure_ascii = qn_tv_truthy(a[0]), .sort_keys = qn_tv_truthy(a[3])};
    if (qn_tv_is_int(a[1]) || a[1].kind == QN_TV_STR) {
        o.indented = true;
        struct qn_tv v = a[1].kind == QN_TV_STR
                             ? a[1]
                             : qn_tv_binary(rt, QN_OP_MUL, qn_tv_of_ts(qn_ts_lit(rt, " ")), a[1]);
        o.indent = v.kind == QN_TV_STR ? v.s : qn_ts_empty();
    } else if (qn_tv_is_given(a[1]) && a[1].kind != QN_TV_NONE) {
        return qn_trt_fail(rt, QN_E_INVALID, "tojson: found %s as indent, expected an integer",
                           qn_tv_kind_name(a[1].kind));
    }
    if (qn_tv_is_given(a[2]) && a[2].kind != QN_TV_NONE) {
        if ((a[2].kind != QN_TV_TUPLE && a[2].kind != QN_TV_LIST) || a[2].list->n != 2 ||
            a[2].list->at[0].kind != QN_TV_STR || a[2].list->at[1].kind != QN_TV_STR) {
            return qn_trt_fail(rt, QN_E_INVALID, "tojson: separators, expected two strings");
        }
        o.item_sep = a[2].list->at[0].s;
        o.key_sep = a[2].list->at[1].s;
    }
    return qn_tv_of_ts(qn_tv_json(rt, in, &o));
}

static struct qn_tv f_join(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2], x;
    struct qn_titer it;
    if (!qn_targs_bind(rt, "join", args, (const char *const[]){"d", "attribute"}, 2, 0, a) ||
        !qn_titer_init(rt, &it, in)) {
        return qn_tv_undef();
    }
    const struct qn_ts *sep = qn_tv_is_given(a[0]) ? qn_tv_str(rt, a[0]) : qn_ts_empty();
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    for (size_t i = 0; qn_titer_next(rt, &it, &x); i++) {
        if (i > 0) {
            qn_tsbuf_add_ts(rt, b, sep);
        }
        qn_tsbuf_add_ts(rt, b, qn_tv_str(rt, qn_tv_path(rt, x, a[1])));
    }
    return qn_tv_of_ts(qn_tsbuf_ts(rt, b));
}

static struct qn_tv f_format(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (args->n_pos > 0 && args->n_kw > 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "format: positional and keyword arguments at once");
    }
    struct qn_tv v;
    if (args->n_kw > 0) {
        struct qn_tdict *d = qn_tdict_new(rt, args->n_kw);
        for (size_t i = 0; i < args->n_kw; i++) {
            qn_tdict_put(rt, d, qn_tv_of_ts(args->kw_names[i]), args->kw[i]);
        }
        v = (struct qn_tv){.kind = QN_TV_DICT, .dict = d};
    } else {
        struct qn_tlist *list = qn_tlist_new(rt, args->n_pos);
        for (size_t i = 0; i < args->n_pos; i++) {
            qn_tlist_add(rt, list, args->pos[i]);
        }
        v = qn_tv_of_list(QN_TV_TUPLE, list);
    }
    return qn_tv_percent(rt, qn_tv_str(rt, in), v);
}

static struct qn_tv f_center(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv width;
    if (!qn_targs_bind(rt, "center", args, (const char *const[]){"width"}, 1, 0, &width)) {
        return qn_tv_undef();
    }
    struct qn_tv self = qn_tv_of_ts(qn_tv_str(rt, in));
    struct qn_tv w = qn_tv_is_given(width) ? width : qn_tv_int(80);
    const struct qn_ts *name = qn_ts_lit(rt, "center");
    const struct qn_targs one = {.pos = &w, .n_pos = 1};
    return qn_tmethod_find(QN_TV_STR, name)->fn(rt, self, &one);
}

static bool is_word(uint32_t cp)
{
    return (cp >= '0' && cp <= '9') || (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') ||
           cp == '_';
}

static struct qn_tv f_wordcount(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (!none(rt, "wordcount", args)) {
        return qn_tv_undef();
    }
    const struct qn_ts *s = qn_tv_str(rt, in);
    int64_t n = 0;
    bool inside = false;
    for (size_t at = 0; at < s->n && qn_trt_step(rt, 1);) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + at, s->n - at, &len);
        bool word = is_word(cp);
        if (cp >= 0x80) { // letters and digits of all scripts count as words
            struct qn_tv one = qn_tv_of_ts(qn_ts_sub(rt, s, at, len));
            const struct qn_tmethoddef *def = qn_tmethod_find(QN_TV_STR, qn_ts_lit(rt, "isalnum"));
            word = qn_tv_truthy(def->fn(rt, one, &(struct qn_targs){0}));
        }
        n += word && !inside ? 1 : 0;
        inside = word;
        at += len;
    }
    return qn_tv_int(n);
}

static void quote_url(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s, bool query)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t at = 0; at < s->n && rt->status == QN_OK; at++) {
        unsigned char c = (unsigned char)s->p[at];
        if (is_word(c) || c == '-' || c == '.' || c == '~' || (c == '/' && !query)) {
            qn_tsbuf_add_sub(rt, b, s, at, 1);
            continue;
        }
        char esc[3] = {'%', hex[c >> 4], hex[c & 15]};
        bool plus = query && c == ' ';
        qn_tsbuf_add(rt, b, plus ? "+" : esc, plus ? 1 : 3, qn_ts_any_plain(s));
    }
}

static struct qn_tv f_urlencode(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (!none(rt, "urlencode", args)) {
        return qn_tv_undef();
    }
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    if (in.kind != QN_TV_DICT) {
        quote_url(rt, b, qn_tv_str(rt, in), false);
        return qn_tv_of_ts(qn_tsbuf_ts(rt, b));
    }
    for (size_t i = 0; i < in.dict->n && rt->status == QN_OK; i++) {
        qn_tsbuf_puts(rt, b, i > 0 ? "&" : "");
        quote_url(rt, b, qn_tv_str(rt, in.dict->at[i].key), true);
        qn_tsbuf_puts(rt, b, "=");
        quote_url(rt, b, qn_tv_str(rt, in.dict->at[i].val), true);
    }
    return qn_tv_of_ts(qn_tsbuf_ts(rt, b));
}

const struct qn_tfilter qn_tfilters_text[] = {{"trim", f_trim},
                                              {"tojson", f_tojson},
                                              {"join", f_join},
                                              {"upper", f_upper},
                                              {"lower", f_lower},
                                              {"string", f_string},
                                              {"capitalize", f_capitalize},
                                              {"title", f_title},
                                              {"safe", f_safe},
                                              {"escape", f_escape},
                                              {"e", f_escape},
                                              {"forceescape", f_forceescape},
                                              {"replace", f_replace},
                                              {"indent", f_indent},
                                              {"format", f_format},
                                              {"center", f_center},
                                              {"wordcount", f_wordcount},
                                              {"urlencode", f_urlencode},
                                              {NULL, NULL}};
