#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/tmpl_rt.h"

/// Formatting of strings: the "%" operator and str.format.

#define MAX_WIDTH 65536

struct spec {
    char fill[5];
    char align; ///< '<', '>', '^', '=' or 0
    bool plus;
    bool space;
    bool alt;
    bool zero;
    char group; ///< ',' or '_' or 0
    int64_t width;
    int64_t prec; ///< -1: none
    char type;    ///< 0: none
};

static struct qn_tv bad(struct qn_trt *rt, const char *what)
{
    return qn_trt_fail(rt, QN_E_INVALID, "string format: %s", what);
}

// Write text with its sign in front of padding or behind, as the spec says.
static void put_padded(struct qn_trt *rt, struct qn_tsbuf *b, const struct spec *sp,
                       const char *sign, const struct qn_ts *text, char default_align)
{
    int64_t have = (int64_t)(strlen(sign) + text->n_cp);
    int64_t missing = sp->width > have ? sp->width - have : 0;
    char align = sp->align != 0 ? sp->align : sp->zero ? '=' : default_align;
    const char *fill = sp->fill[0] != '\0' ? sp->fill : sp->zero && align == '=' ? "0" : " ";
    int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    if (align == '=') {
        qn_tsbuf_puts(rt, b, sign);
    }
    for (int64_t i = 0; i < left && rt->status == QN_OK; i++) {
        qn_tsbuf_puts(rt, b, fill);
    }
    if (align != '=') {
        qn_tsbuf_puts(rt, b, sign);
    }
    qn_tsbuf_add_ts(rt, b, text);
    for (int64_t i = left; i < missing && rt->status == QN_OK; i++) {
        qn_tsbuf_puts(rt, b, fill);
    }
}

// Thousands separators into the digits in front of a point.
static void group_digits(char *text, size_t cap, char group)
{
    size_t n = strlen(text), whole = strspn(text, "0123456789");
    for (size_t at = whole; at > 3; at -= 3) {
        if (n + 2 > cap) {
            return;
        }
        memmove(text + at - 2, text + at - 3, n - (at - 3) + 1);
        text[at - 3] = group;
        n++;
    }
}

static const char *sign_of(const struct spec *sp, bool negative)
{
    return negative ? "-" : sp->plus ? "+" : sp->space ? " " : "";
}

static void put_int(struct qn_trt *rt, struct qn_tsbuf *b, const struct spec *sp, int64_t v)
{
    char text[160];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    const char *prefix = "";
    if (sp->type == 'x' || sp->type == 'X') {
        snprintf(text, sizeof text, sp->type == 'x' ? "%llx" : "%llX", (unsigned long long)u);
        prefix = sp->type == 'x' ? "0x" : "0X";
    } else if (sp->type == 'o') {
        snprintf(text, sizeof text, "%llo", (unsigned long long)u);
        prefix = "0o";
    } else if (sp->type == 'b') {
        size_t n = 0;
        for (int bit = 63; bit >= 0; bit--) {
            if (n > 0 || (u >> bit & 1) != 0 || bit == 0) {
                text[n++] = (u >> bit & 1) != 0 ? '1' : '0';
            }
        }
        text[n] = '\0';
        prefix = "0b";
    } else {
        snprintf(text, sizeof text, "%llu", (unsigned long long)u);
        if (sp->group != 0) {
            group_digits(text, sizeof text, sp->group);
        }
    }
    char sign[8];
    snprintf(sign, sizeof sign, "%s%s", sign_of(sp, v < 0), sp->alt ? prefix : "");
    put_padded(rt, b, sp, sign, qn_ts_lit(rt, text), '>');
}

static void put_float(struct qn_trt *rt, struct qn_tsbuf *b, const struct spec *sp, double v)
{
    char text[512];
    double a = fabs(v);
    int prec = sp->prec < 0 ? 6 : sp->prec > 100 ? 100 : (int)sp->prec;
    switch (sp->type) {
    case 'e':
        snprintf(text, sizeof text, sp->alt ? "%#.*e" : "%.*e", prec, a);
        break;
    case 'E':
        snprintf(text, sizeof text, sp->alt ? "%#.*E" : "%.*E", prec, a);
        break;
    case 'g':
        snprintf(text, sizeof text, sp->alt ? "%#.*g" : "%.*g", prec, a);
        break;
    case 'G':
        snprintf(text, sizeof text, sp->alt ? "%#.*G" : "%.*G", prec, a);
        break;
    case '%':
        snprintf(text, sizeof text, "%.*f%%", prec, a * 100);
        break;
    case 'f':
    case 'F':
        snprintf(text, sizeof text, sp->alt ? "%#.*f" : "%.*f", prec, a);
        break;
    default:
        if (sp->prec < 0) {
            qn_float_repr(a, text);
        } else {
            snprintf(text, sizeof text, "%.*g", prec == 0 ? 1 : prec, a);
            if (strpbrk(text, ".eni") == NULL && strlen(text) < (size_t)prec) {
                memcpy(text + strlen(text), ".0", 3);
            }
        }
    }
    if (sp->group != 0) {
        group_digits(text, sizeof text, sp->group);
    }
    put_padded(rt, b, sp, sign_of(sp, signbit(v) != 0 && !isnan(v)), qn_ts_lit(rt, text), '>');
}

static void put_str(struct qn_trt *rt, struct qn_tsbuf *b, const struct spec *sp,
                    const struct qn_ts *s, char default_align)
{
    if (sp->prec >= 0 && (uint64_t)sp->prec < s->n_cp) {
        s = qn_ts_sub(rt, s, 0, qn_ts_offset(s, (size_t)sp->prec));
    }
    put_padded(rt, b, sp, "", s, default_align);
}

static bool read_number(const struct qn_ts *s, size_t *at, int64_t *out)
{
    int64_t n = 0;
    while (*at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9') {
        n = n * 10 + (s->p[(*at)++] - '0');
        if (n > MAX_WIDTH) {
            return false;
        }
    }
    *out = n;
    return true;
}

// One conversion of "%": v by sp->type.
static void percent_one(struct qn_trt *rt, struct qn_tsbuf *b, struct spec *sp, struct qn_tv v)
{
    switch (sp->type) {
    case 's':
    case 'r':
    case 'a':
        put_str(rt, b, sp, sp->type == 's' ? qn_tv_str(rt, v) : qn_tv_repr(rt, v), '>');
        return;
    case 'c':
        if (v.kind == QN_TV_STR && v.s->n_cp == 1) {
            put_str(rt, b, sp, v.s, '>');
        } else {
            bad(rt, "\"%c\" takes one character");
        }
        return;
    case 'd':
    case 'i':
    case 'u':
        if (v.kind == QN_TV_FLOAT && fabs(v.f) < 9e18) {
            v = qn_tv_int((int64_t)v.f);
        }
        sp->type = 'd';
        break;
    case 'x':
    case 'X':
    case 'o':
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!qn_tv_is_num(v)) {
            bad(rt, "expected a number");
            return;
        }
        put_float(rt, b, sp, qn_tv_as_num(v));
        return;
    default:
        bad(rt, "unknown conversion behind \"%\"");
        return;
    }
    if (!qn_tv_is_int(v)) {
        bad(rt, "expected an integer");
        return;
    }
    put_int(rt, b, sp, qn_tv_as_int(v));
}

struct qn_tv qn_tv_percent(struct qn_trt *rt, const struct qn_ts *fmt, struct qn_tv args)
{
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    size_t next = 0, n_args = args.kind == QN_TV_TUPLE ? args.list->n : 1;
    bool mapped = false;
    for (size_t at = 0; at < fmt->n && rt->status == QN_OK;) {
        size_t run = at;
        while (at < fmt->n && fmt->p[at] != '%') {
            at++;
        }
        qn_tsbuf_add_sub(rt, b, fmt, run, at - run);
        if (at >= fmt->n) {
            break;
        }
        at++;
        struct spec sp = {.prec = -1};
        struct qn_tv v = qn_tv_missing();
        if (at < fmt->n && fmt->p[at] == '(') {
            size_t end = at + 1;
            while (end < fmt->n && fmt->p[end] != ')') {
                end++;
            }
            if (end >= fmt->n || args.kind != QN_TV_DICT) {
                return bad(rt, "\"%(name)\" needs a mapping");
            }
            v = qn_tv_item(rt, args, qn_tv_of_ts(qn_ts_sub(rt, fmt, at + 1, end - at - 1)));
            if (v.kind == QN_TV_UNDEF) {
                return qn_trt_fail_undef(rt, v);
            }
            mapped = true;
            at = end + 1;
        }
        for (; at < fmt->n && strchr("-+ #0", fmt->p[at]) != NULL && fmt->p[at] != '\0'; at++) {
            sp.align = fmt->p[at] == '-' ? '<' : sp.align;
            sp.plus |= fmt->p[at] == '+';
            sp.space |= fmt->p[at] == ' ';
            sp.alt |= fmt->p[at] == '#';
            sp.zero |= fmt->p[at] == '0';
        }
        if (!read_number(fmt, &at, &sp.width)) {
            return bad(rt, "width too large");
        }
        if (at < fmt->n && fmt->p[at] == '.') {
            at++;
            if (!read_number(fmt, &at, &sp.prec)) {
                return bad(rt, "precision too large");
            }
        }
        if (at >= fmt->n) {
            return bad(rt, "incomplete conversion at the end");
        }
        sp.type = fmt->p[at++];
        if (sp.type == '%') {
            qn_tsbuf_puts(rt, b, "%");
            continue;
        }
        if (!qn_tv_is_given(v)) {
            if (next >= n_args) {
                return bad(rt, "not enough arguments");
            }
            v = args.kind == QN_TV_TUPLE ? args.list->at[next] : args;
            next++;
        }
        if (fmt->markup) {
            v = qn_tv_is_num(v) ? v : qn_tv_of_ts(qn_ts_escape(rt, qn_tv_str(rt, v)));
        }
        sp.zero = sp.zero && strchr("sr", sp.type) == NULL && sp.align == 0;
        percent_one(rt, b, &sp, v);
    }
    bool all = next >= n_args || mapped || args.kind == QN_TV_DICT || args.kind == QN_TV_LIST;
    if (!all && rt->status == QN_OK) {
        return bad(rt, "more arguments than conversions");
    }
    return qn_tv_of_ts(qn_ts_with_markup(rt, qn_tsbuf_ts(rt, b), fmt->markup));
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool parse_spec(const struct qn_ts *s, struct spec *sp)
{
    size_t at = 0, len = 1;
    if (s->n > 0) {
        (void)qn_tcp_get(s->p, s->n, &len);
    }
    if (s->n > len && is_align(s->p[len])) {
        memcpy(sp->fill, s->p, len);
        sp->align = s->p[len];
        at = len + 1;
    } else if (s->n > 0 && is_align(s->p[0])) {
        sp->align = s->p[0];
        at = 1;
    }
    if (at < s->n && (s->p[at] == '+' || s->p[at] == '-' || s->p[at] == ' ')) {
        sp->plus = s->p[at] == '+';
        sp->space = s->p[at] == ' ';
        at++;
    }
    if (at < s->n && s->p[at] == '#') {
        sp->alt = true;
        at++;
    }
    if (at < s->n && s->p[at] == '0') {
        sp->zero = true;
        at++;
    }
    if (!read_number(s, &at, &sp->width)) {
        return false;
    }
    if (at < s->n && (s->p[at] == ',' || s->p[at] == '_')) {
        sp->group = s->p[at++];
    }
    if (at < s->n && s->p[at] == '.') {
        at++;
        size_t digits = at;
        if (!read_number(s, &at, &sp->prec) || at == digits) {
            return false;
        }
    }
    sp->type = at < s->n ? s->p[at++] : '\0';
    return at == s->n;
}

static void format_one(struct qn_trt *rt, struct qn_tsbuf *b, struct qn_tv v,
                       const struct qn_ts *spec_text)
{
    struct spec sp = {.prec = -1};
    if (!parse_spec(spec_text, &sp)) {
        bad(rt, "invalid format specification");
        return;
    }
    if (spec_text->n == 0) {
        qn_tsbuf_add_ts(rt, b, qn_tv_str(rt, v));
    } else if (v.kind == QN_TV_STR && (sp.type == 0 || sp.type == 's') && sp.align != '=' &&
               !sp.plus && !sp.space && !sp.alt && sp.group == 0) {
        if (sp.zero && sp.align == 0) {
            sp.align = '<';
            sp.fill[0] = '0';
        }
        put_str(rt, b, &sp, v.s, '<');
    } else if (qn_tv_is_int(v) && (sp.type == 0 || strchr("dxXob", sp.type) != NULL) &&
               sp.prec < 0) {
        put_int(rt, b, &sp, qn_tv_as_int(v));
    } else if (qn_tv_is_num(v) && ((v.kind == QN_TV_FLOAT && sp.type == 0) ||
                                   (sp.type != 0 && strchr("eEfFgG%", sp.type) != NULL))) {
        put_float(rt, b, &sp, qn_tv_as_num(v));
    } else {
        bad(rt, "the specification does not fit the value");
    }
}

// The value of a field such as "0", "name", "x.y" or "x[key]".
static struct qn_tv field_value(struct qn_trt *rt, const struct qn_ts *name,
                                const struct qn_targs *args, size_t *next)
{
    size_t end = 0;
    bool digits = true;
    while (end < name->n && name->p[end] != '.' && name->p[end] != '[') {
        digits &= name->p[end] >= '0' && name->p[end] <= '9';
        end++;
    }
    struct qn_tv v = qn_tv_missing();
    if (digits) {
        int64_t i = (int64_t)*next;
        size_t at = 0;
        if (end > 0 && !read_number(name, &at, &i)) {
            return bad(rt, "field number too large");
        }
        *next += end == 0 ? 1 : 0;
        if ((size_t)i < args->n_pos) {
            v = args->pos[i];
        }
    } else {
        const struct qn_ts *key = qn_ts_sub(rt, name, 0, end);
        for (size_t i = 0; i < args->n_kw; i++) {
            if (qn_ts_eq(args->kw_names[i], key)) {
                v = args->kw[i];
            }
        }
    }
    if (!qn_tv_is_given(v)) {
        return bad(rt, "a field without its argument");
    }
    while (end < name->n && rt->status == QN_OK) {
        size_t from = end + 1;
        bool sub = name->p[end] == '[';
        for (end = from; end < name->n && (sub ? name->p[end] != ']'
                                               : name->p[end] != '.' && name->p[end] != '[');) {
            end++;
        }
        struct qn_tv key = qn_tv_of_ts(qn_ts_sub(rt, name, from, end - from));
        if (sub) {
            if (end >= name->n || end == from) {
                return bad(rt, "field with an open or empty bracket");
            }
            end++;
            v = qn_tv_path(rt, v, key);
        } else {
            v = qn_tv_attr(rt, v, key.s);
        }
    }
    return v;
}

struct qn_tv qn_tv_format(struct qn_trt *rt, const struct qn_ts *fmt, const struct qn_targs *args)
{
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    size_t next = 0;
    for (size_t at = 0; at < fmt->n && rt->status == QN_OK;) {
        char c = fmt->p[at];
        if (c != '{' && c != '}') {
            qn_tsbuf_add_sub(rt, b, fmt, at++, 1);
            continue;
        }
        if (at + 1 < fmt->n && fmt->p[at + 1] == c) {
            qn_tsbuf_add_sub(rt, b, fmt, at, 1);
            at += 2;
            continue;
        }
        size_t end = at + 1, name_end = 0, spec = 0;
        char conv = '\0';
        for (; end < fmt->n && fmt->p[end] != '}'; end++) {
            if (fmt->p[end] == '{') {
                return bad(rt, "nested fields are not supported");
            }
            if (spec == 0 && fmt->p[end] == '!' && end + 1 < fmt->n) {
                name_end = name_end == 0 ? end : name_end;
                conv = fmt->p[end + 1];
            } else if (spec == 0 && fmt->p[end] == ':') {
                name_end = name_end == 0 ? end : name_end;
                spec = end + 1;
            }
        }
        if (c == '}' || end >= fmt->n) {
            return bad(rt, "a single brace");
        }
        name_end = name_end == 0 ? end : name_end;
        spec = spec == 0 ? end : spec;
        struct qn_tv v =
            field_value(rt, qn_ts_sub(rt, fmt, at + 1, name_end - at - 1), args, &next);
        if (conv != '\0' && conv != 's' && conv != 'r') {
            return bad(rt, "unknown conversion behind \"!\"");
        }
        if (conv != '\0') {
            v = qn_tv_of_ts(conv == 's' ? qn_tv_str(rt, v) : qn_tv_repr(rt, v));
        }
        format_one(rt, b, v, qn_ts_sub(rt, fmt, spec, end - spec));
        at = end + 1;
    }
    return qn_tv_of_ts(qn_tsbuf_ts(rt, b));
}
