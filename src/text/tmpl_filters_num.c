#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_rt.h"

/// Filters that give numbers, and default.

static bool to_float(struct qn_trt *rt, struct qn_tv v, double *out);

// Python's int(text, base): white space around, a sign, digits with single underscores.
static bool parse_int(struct qn_trt *rt, const struct qn_ts *text, int base, int64_t *out)
{
    const struct qn_ts *s = qn_ts_strip(rt, text, NULL, true, true);
    size_t at = 0;
    bool negative = s->n > 0 && s->p[0] == '-';
    at += s->n > 0 && (s->p[0] == '-' || s->p[0] == '+') ? 1 : 0;
    if (s->n - at > 2 && s->p[at] == '0') {
        char c = (char)(s->p[at + 1] | 0x20);
        int b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (b != 0 && (base == b || base == 0)) {
            base = b;
            at += 2;
        }
    }
    base = base == 0 ? 10 : base;
    int64_t n = 0;
    bool digit = false;
    for (; at < s->n; at++) {
        char c = s->p[at];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'z' ? c - 'a' + 10
                : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                       : 99;
        if (c == '_' && digit) {
            digit = false;
            continue;
        }
        if (d >= base || __builtin_mul_overflow(n, base, &n) ||
            (negative ? __builtin_sub_overflow(n, d, &n) : __builtin_add_overflow(n, d, &n))) {
            return false;
        }
        digit = true;
    }
    *out = n;
    return digit;
}

static bool to_float(struct qn_trt *rt, struct qn_tv v, double *out)
{
    if (qn_tv_is_num(v)) {
        *out = qn_tv_as_num(v);
        return true;
    }
    if (v.kind != QN_TV_STR) {
        return false;
    }
    const struct qn_ts *s = qn_ts_strip(rt, v.s, NULL, true, true);
    char text[256];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        char c = s->p[i];
        bool digits = i > 0 && i + 1 < s->n && s->p[i - 1] >= '0' && s->p[i - 1] <= '9' &&
                      s->p[i + 1] >= '0' && s->p[i + 1] <= '9';
        if (c == '_' && digits) {
            continue;
        }
        // strtod also takes hexadecimal and "nan(...)", which Python does not.
        if (n + 1 >= sizeof text || c == 'x' || c == 'X' || c == '(' || c == '\0') {
            return false;
        }
        text[n++] = c;
    }
    text[n] = '\0';
    char *end;
    *out = strtod(text, &end);
    return n > 0 && *end == '\0' && !qn_cp_is_space((unsigned char)text[0]);
}

static struct qn_tv f_int(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2];
    if (!qn_targs_bind(rt, "int", args, (const char *const[]){"default", "base"}, 2, 0, a)) {
        return qn_tv_undef();
    }
    struct qn_tv otherwise = qn_tv_is_given(a[0]) ? a[0] : qn_tv_int(0);
    int64_t i, base = 10;
    if (qn_tv_is_given(a[1])) {
        base = qn_tv_is_int(a[1]) ? qn_tv_as_int(a[1]) : -1;
        if (base < 0 || base == 1 || base > 36) {
            return qn_trt_fail(rt, QN_E_INVALID, "int: expected a base of 0 or 2 to 36");
        }
    }
    if (in.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, in);
    }
    if (qn_tv_is_int(in)) {
        return qn_tv_int(qn_tv_as_int(in));
    }
    if (in.kind == QN_TV_STR && parse_int(rt, in.s, (int)base, &i)) {
        return qn_tv_int(i);
    }
    double f;
    if (!to_float(rt, in, &f) || isnan(f) || isinf(f)) {
        return otherwise;
    }
    if (fabs(f) >= 9223372036854775808.0) {
        return qn_trt_fail(rt, QN_E_INVALID, "integer does not fit 64 bits");
    }
    return qn_tv_int((int64_t)f);
}

static struct qn_tv f_float(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a;
    double f;
    if (!qn_targs_bind(rt, "float", args, (const char *const[]){"default"}, 1, 0, &a)) {
        return qn_tv_undef();
    }
    if (in.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, in);
    }
    return to_float(rt, in, &f) ? qn_tv_float(f) : qn_tv_is_given(a) ? a : qn_tv_float(0);
}

static struct qn_tv f_abs(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "abs", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    if (in.kind == QN_TV_FLOAT) {
        return qn_tv_float(fabs(in.f));
    }
    return qn_tv_is_int(in) && qn_tv_as_int(in) >= 0 ? qn_tv_int(qn_tv_as_int(in))
                                                     : qn_tv_negate(rt, in);
}

static struct qn_tv f_round(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2];
    if (!qn_targs_bind(rt, "round", args, (const char *const[]){"precision", "method"}, 2, 0, a)) {
        return qn_tv_undef();
    }
    int64_t prec = 0;
    if (qn_tv_is_given(a[0])) {
        prec = qn_tv_is_int(a[0]) ? qn_tv_as_int(a[0]) : 999;
    }
    if (prec < -300 || prec > 300) {
        return qn_trt_fail(rt, QN_E_INVALID, "round: expected a precision of -300 to 300");
    }
    if (!qn_tv_is_num(in)) {
        return in.kind == QN_TV_UNDEF
                   ? qn_trt_fail_undef(rt, in)
                   : qn_trt_fail(rt, QN_E_INVALID, "round: found %s, expected a number",
                                 qn_tv_kind_name(in.kind));
    }
    bool ceiling = a[1].kind == QN_TV_STR && qn_ts_is(a[1].s, "ceil");
    bool flooring = a[1].kind == QN_TV_STR && qn_ts_is(a[1].s, "floor");
    if (ceiling || flooring) {
        double scale = pow(10, (double)prec), v = qn_tv_as_num(in) * scale;
        return qn_tv_float((ceiling ? ceil(v) : floor(v)) / scale);
    }
    if (qn_tv_is_given(a[1]) && !(a[1].kind == QN_TV_STR && qn_ts_is(a[1].s, "common"))) {
        return qn_trt_fail(rt, QN_E_INVALID, "round: expected \"common\", \"ceil\" or \"floor\"");
    }
    if (qn_tv_is_int(in) && prec >= 0) {
        return qn_tv_int(qn_tv_as_int(in));
    }
    double f = qn_tv_as_num(in);
    if (prec >= 0 && isfinite(f)) {
        char text[700]; // exact decimal rounding, ties to even
        snprintf(text, sizeof text, "%.*f", (int)prec, f);
        return qn_tv_float(strtod(text, NULL));
    }
    if (isfinite(f)) {
        double scale = pow(10, (double)-prec);
        f = nearbyint(f / scale) * scale;
    }
    return qn_tv_is_int(in) ? qn_tv_int((int64_t)f) : qn_tv_float(f);
}

static struct qn_tv f_length(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    size_t n;
    if (!qn_targs_bind(rt, "length", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    if (!qn_tv_len(in, &n)) {
        return qn_trt_fail(rt, QN_E_INVALID, "length: %s has none", qn_tv_kind_name(in.kind));
    }
    return qn_tv_int((int64_t)n);
}

static struct qn_tv f_default(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2];
    if (!qn_targs_bind(rt, "default", args, (const char *const[]){"default_value", "boolean"}, 2, 0,
                       a)) {
        return qn_tv_undef();
    }
    if (in.kind == QN_TV_UNDEF || (qn_tv_truthy(a[1]) && !qn_tv_truthy(in))) {
        return qn_tv_is_given(a[0]) ? a[0] : qn_tv_of_ts(qn_ts_empty());
    }
    return in;
}

const struct qn_tfilter qn_tfilters_num[] = {
    {"length", f_length}, {"count", f_length}, {"default", f_default},
    {"d", f_default},     {"int", f_int},      {"float", f_float},
    {"abs", f_abs},       {"round", f_round},  {NULL, NULL}};
