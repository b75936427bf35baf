#include <math.h>
#include <string.h>

#include "text/tmpl_rt.h"

/// Operators: Python's arithmetic, with integers bounded to 64 bits.

static const char *op_text(enum qn_tn_op op)
{
    static const char *const names[] = {
        [QN_OP_NONE] = "?", [QN_OP_ADD] = "+",       [QN_OP_SUB] = "-", [QN_OP_MUL] = "*",
        [QN_OP_DIV] = "/",  [QN_OP_FLOORDIV] = "//", [QN_OP_MOD] = "%", [QN_OP_POW] = "**",
        [QN_OP_EQ] = "==",  [QN_OP_NE] = "!=",       [QN_OP_LT] = "<",  [QN_OP_LE] = "<=",
        [QN_OP_GT] = ">",   [QN_OP_GE] = ">=",       [QN_OP_IN] = "in", [QN_OP_NOTIN] = "not in"};
    return names[op];
}

static struct qn_tv overflow(struct qn_trt *rt)
{
    return qn_trt_fail(rt, QN_E_INVALID, "integer does not fit 64 bits");
}

static struct qn_tv int_pow(struct qn_trt *rt, int64_t base, int64_t exp)
{
    if (exp < 0) {
        return base == 0 ? qn_trt_fail(rt, QN_E_INVALID, "zero to a negative power")
                         : qn_tv_float(pow((double)base, (double)exp));
    }
    int64_t r = 1;
    while (exp > 0) {
        if ((exp & 1) != 0 && __builtin_mul_overflow(r, base, &r)) {
            return overflow(rt);
        }
        exp >>= 1;
        if (exp > 0 && __builtin_mul_overflow(base, base, &base)) {
            return overflow(rt);
        }
    }
    return qn_tv_int(r);
}

static struct qn_tv int_binary(struct qn_trt *rt, enum qn_tn_op op, int64_t a, int64_t b)
{
    int64_t r;
    switch (op) {
    case QN_OP_ADD:
        return __builtin_add_overflow(a, b, &r) ? overflow(rt) : qn_tv_int(r);
    case QN_OP_SUB:
        return __builtin_sub_overflow(a, b, &r) ? overflow(rt) : qn_tv_int(r);
    case QN_OP_MUL:
        return __builtin_mul_overflow(a, b, &r) ? overflow(rt) : qn_tv_int(r);
    case QN_OP_POW:
        return int_pow(rt, a, b);
    default:
        break;
    }
    if (b == 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "division by zero");
    }
    if (op == QN_OP_DIV) {
        return qn_tv_float((double)((long double)a / (long double)b));
    }
    if (b == -1) {
        if (op == QN_OP_MOD) {
            return qn_tv_int(0);
        }
        return __builtin_sub_overflow((int64_t)0, a, &r) ? overflow(rt) : qn_tv_int(r);
    }
    int64_t q = a / b, m = a % b;
    if (m != 0 && (m < 0) != (b < 0)) { // Python rounds down
        q--;
        m += b;
    }
    return qn_tv_int(op == QN_OP_FLOORDIV ? q : m);
}

static struct qn_tv float_binary(struct qn_trt *rt, enum qn_tn_op op, double a, double b)
{
    switch (op) {
    case QN_OP_ADD:
        return qn_tv_float(a + b);
    case QN_OP_SUB:
        return qn_tv_float(a - b);
    case QN_OP_MUL:
        return qn_tv_float(a * b);
    case QN_OP_POW: {
        if (a == 0 && b < 0) {
            return qn_trt_fail(rt, QN_E_INVALID, "zero to a negative power");
        }
        double r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b)) {
            return qn_trt_fail(rt, QN_E_INVALID, "a power that is not a real number");
        }
        if (isinf(r) && !isinf(a) && !isinf(b)) {
            return qn_trt_fail(rt, QN_E_INVALID, "a power too large for a number");
        }
        return qn_tv_float(r);
    }
    default:
        break;
    }
    if (b == 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "division by zero");
    }
    if (op == QN_OP_DIV) {
        return qn_tv_float(a / b);
    }
    double m = fmod(a, b);
    double q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) {
        m += b;
        q -= 1;
    } else if (m == 0) {
        m = copysign(0, b);
    }
    if (op == QN_OP_MOD) {
        return qn_tv_float(m);
    }
    if (q == 0) {
        return qn_tv_float(copysign(0, a / b));
    }
    double down = floor(q);
    return qn_tv_float(q - down > 0.5 ? down + 1 : down);
}

static struct qn_tv repeat(struct qn_trt *rt, struct qn_tv v, int64_t n)
{
    n = n < 0 ? 0 : n;
    if (v.kind == QN_TV_STR) {
        if (v.s->n == 0 || n == 0) {
            return qn_tv_of_ts(qn_ts_empty());
        }
        if ((uint64_t)n > rt->max_output / v.s->n) {
            return qn_trt_fail(rt, QN_E_LIMIT, "a string longer than %zu bytes", rt->max_output);
        }
        struct qn_tsbuf *b = qn_tsbuf_new(rt, v.s->n * (size_t)n);
        for (int64_t i = 0; i < n && qn_tsbuf_add_ts(rt, b, v.s); i++) {
        }
        return qn_tv_of_ts(qn_ts_with_markup(rt, qn_tsbuf_ts(rt, b), v.s->markup));
    }
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    for (int64_t i = 0; i < n && v.list->n > 0 && rt->status == QN_OK; i++) {
        for (size_t j = 0; j < v.list->n && qn_trt_step(rt, 1); j++) {
            qn_tlist_add(rt, list, v.list->at[j]);
        }
    }
    return qn_tv_of_list(v.kind, list);
}

static bool is_seq(struct qn_tv v)
{
    return v.kind == QN_TV_LIST || v.kind == QN_TV_TUPLE;
}

static struct qn_tv add(struct qn_trt *rt, struct qn_tv a, struct qn_tv b)
{
    if (a.kind == QN_TV_STR && b.kind == QN_TV_STR) {
        bool markup = a.s->markup || b.s->markup;
        const struct qn_ts *x = markup ? qn_ts_escape(rt, a.s) : a.s;
        const struct qn_ts *y = markup ? qn_ts_escape(rt, b.s) : b.s;
        return qn_tv_of_ts(qn_ts_with_markup(rt, qn_ts_concat(rt, x, y), markup));
    }
    struct qn_tlist *list = qn_tlist_new(rt, a.list->n + b.list->n);
    for (size_t i = 0; i < a.list->n && qn_trt_step(rt, 1); i++) {
        qn_tlist_add(rt, list, a.list->at[i]);
    }
    for (size_t i = 0; i < b.list->n && qn_trt_step(rt, 1); i++) {
        qn_tlist_add(rt, list, b.list->at[i]);
    }
    return qn_tv_of_list(a.kind, list);
}

struct qn_tv qn_tv_binary(struct qn_trt *rt, enum qn_tn_op op, struct qn_tv a, struct qn_tv b)
{
    if (rt->status != QN_OK) {
        return qn_tv_undef();
    }
    if (qn_tv_is_int(a) && qn_tv_is_int(b)) {
        return int_binary(rt, op, qn_tv_as_int(a), qn_tv_as_int(b));
    }
    if (qn_tv_is_num(a) && qn_tv_is_num(b)) {
        return float_binary(rt, op, qn_tv_as_num(a), qn_tv_as_num(b));
    }
    if (op == QN_OP_MOD && a.kind == QN_TV_STR) {
        return qn_tv_percent(rt, a.s, b);
    }
    if (a.kind == QN_TV_UNDEF || b.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, a.kind == QN_TV_UNDEF ? a : b);
    }
    if (op == QN_OP_ADD && a.kind == b.kind && (a.kind == QN_TV_STR || is_seq(a))) {
        return add(rt, a, b);
    }
    if (op == QN_OP_MUL && (a.kind == QN_TV_STR || is_seq(a)) && qn_tv_is_int(b)) {
        return repeat(rt, a, qn_tv_as_int(b));
    }
    if (op == QN_OP_MUL && (b.kind == QN_TV_STR || is_seq(b)) && qn_tv_is_int(a)) {
        return repeat(rt, b, qn_tv_as_int(a));
    }
    return qn_trt_fail(rt, QN_E_INVALID, "operator \"%s\": found %s and %s", op_text(op),
                       qn_tv_kind_name(a.kind), qn_tv_kind_name(b.kind));
}

struct qn_tv qn_tv_negate(struct qn_trt *rt, struct qn_tv v)
{
    if (v.kind == QN_TV_FLOAT) {
        return qn_tv_float(-v.f);
    }
    if (qn_tv_is_int(v)) {
        return int_binary(rt, QN_OP_SUB, 0, qn_tv_as_int(v));
    }
    if (v.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, v);
    }
    return qn_trt_fail(rt, QN_E_INVALID, "operator \"-\": found %s, expected a number",
                       qn_tv_kind_name(v.kind));
}

bool qn_tv_compare(struct qn_trt *rt, enum qn_tn_op op, struct qn_tv a, struct qn_tv b)
{
    if (rt->status != QN_OK) {
        return false;
    }
    switch (op) {
    case QN_OP_EQ:
        return qn_tv_eq(rt, a, b);
    case QN_OP_NE:
        return !qn_tv_eq(rt, a, b);
    case QN_OP_IN:
        return qn_tv_contains(rt, b, a);
    case QN_OP_NOTIN:
        return !qn_tv_contains(rt, b, a);
    default:
        break;
    }
    int c = qn_tv_cmp(rt, a, b);
    return op == QN_OP_LT   ? c == -1
           : op == QN_OP_LE ? c == -1 || c == 0
           : op == QN_OP_GT ? c == 1
                            : c == 1 || c == 0;
}
