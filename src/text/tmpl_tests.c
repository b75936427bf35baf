#include "text/tmpl_rt.h"

/// What can stand behind "is".

#define KIND_TEST(fn, cond)                                                                        \
    static bool fn(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)                \
    {                                                                                              \
        return qn_targs_bind(rt, "test", args, NULL, 0, 0, NULL) && (cond);                        \
    }

static bool is_sequence(struct qn_tv v)
{
    return v.kind == QN_TV_STR || v.kind == QN_TV_LIST || v.kind == QN_TV_TUPLE ||
           v.kind == QN_TV_DICT || v.kind == QN_TV_RANGE || v.kind == QN_TV_UNDEF;
}

static bool method_true(struct qn_trt *rt, struct qn_tv v, const char *name)
{
    const struct qn_tmethoddef *def = qn_tmethod_find(QN_TV_STR, qn_ts_lit(rt, name));
    return qn_tv_truthy(def->fn(rt, qn_tv_of_ts(qn_tv_str(rt, v)), &(struct qn_targs){0}));
}

KIND_TEST(t_defined, in.kind != QN_TV_UNDEF)
KIND_TEST(t_undefined, in.kind == QN_TV_UNDEF)
KIND_TEST(t_none, in.kind == QN_TV_NONE)
KIND_TEST(t_boolean, in.kind == QN_TV_BOOL)
KIND_TEST(t_true, in.kind == QN_TV_BOOL && in.b)
KIND_TEST(t_false, in.kind == QN_TV_BOOL && !in.b)
KIND_TEST(t_integer, in.kind == QN_TV_INT)
KIND_TEST(t_float, in.kind == QN_TV_FLOAT)
KIND_TEST(t_number, qn_tv_is_num(in))
KIND_TEST(t_string, in.kind == QN_TV_STR)
KIND_TEST(t_mapping, in.kind == QN_TV_DICT)
KIND_TEST(t_sequence, is_sequence(in))
KIND_TEST(t_iterable, qn_titer_able(in))
KIND_TEST(t_callable, qn_tv_callable(in))
KIND_TEST(t_escaped, in.kind == QN_TV_STR && in.s->markup)
KIND_TEST(t_lower, method_true(rt, in, "islower"))
KIND_TEST(t_upper, method_true(rt, in, "isupper"))
KIND_TEST(t_filter, in.kind == QN_TV_STR && qn_tfilter_find(in.s) != NULL)
KIND_TEST(t_test, in.kind == QN_TV_STR && qn_ttest_find(in.s) != NULL)

static bool modulo_is(struct qn_trt *rt, struct qn_tv in, struct qn_tv by, int64_t want)
{
    struct qn_tv m = qn_tv_binary(rt, QN_OP_MOD, in, by);
    return rt->status == QN_OK && qn_tv_eq(rt, m, qn_tv_int(want));
}

static bool t_odd(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return qn_targs_bind(rt, "odd", args, NULL, 0, 0, NULL) && modulo_is(rt, in, qn_tv_int(2), 1);
}

static bool t_even(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return qn_targs_bind(rt, "even", args, NULL, 0, 0, NULL) && modulo_is(rt, in, qn_tv_int(2), 0);
}

static bool t_divisibleby(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv num;
    return qn_targs_bind(rt, "divisibleby", args, (const char *const[]){"num"}, 1, 1, &num) &&
           modulo_is(rt, in, num, 0);
}

static bool t_sameas(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv other;
    return qn_targs_bind(rt, "sameas", args, (const char *const[]){"other"}, 1, 1, &other) &&
           qn_tv_same(in, other);
}

static bool t_in(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv seq;
    return qn_targs_bind(rt, "in", args, (const char *const[]){"seq"}, 1, 1, &seq) &&
           qn_tv_contains(rt, seq, in);
}

#define COMPARE_TEST(fn, name, op)                                                                 \
    static bool fn(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)                \
    {                                                                                              \
        struct qn_tv other;                                                                        \
        return qn_targs_bind(rt, name, args, (const char *const[]){"other"}, 1, 1, &other) &&      \
               qn_tv_compare(rt, op, in, other);                                                   \
    }
COMPARE_TEST(t_eq, "eq", QN_OP_EQ)
COMPARE_TEST(t_ne, "ne", QN_OP_NE)
COMPARE_TEST(t_lt, "lt", QN_OP_LT)
COMPARE_TEST(t_le, "le", QN_OP_LE)
COMPARE_TEST(t_gt, "gt", QN_OP_GT)
COMPARE_TEST(t_ge, "ge", QN_OP_GE)

static const struct qn_ttest g_tests[] = {{"defined", t_defined},
                                          {"undefined", t_undefined},
                                          {"none", t_none},
                                          {"string", t_string},
                                          {"mapping", t_mapping},
                                          {"sequence", t_sequence},
                                          {"iterable", t_iterable},
                                          {"number", t_number},
                                          {"integer", t_integer},
                                          {"float", t_float},
                                          {"boolean", t_boolean},
                                          {"true", t_true},
                                          {"false", t_false},
                                          {"in", t_in},
                                          {"eq", t_eq},
                                          {"==", t_eq},
                                          {"equalto", t_eq},
                                          {"ne", t_ne},
                                          {"!=", t_ne},
                                          {"lt", t_lt},
                                          {"<", t_lt},
                                          {"lessthan", t_lt},
                                          {"le", t_le},
                                          {"<=", t_le},
                                          {"gt", t_gt},
                                          {">", t_gt},
                                          {"greaterthan", t_gt},
                                          {"ge", t_ge},
                                          {">=", t_ge},
                                          {"odd", t_odd},
                                          {"even", t_even},
                                          {"divisibleby", t_divisibleby},
                                          {"callable", t_callable},
                                          {"sameas", t_sameas},
                                          {"escaped", t_escaped},
                                          {"lower", t_lower},
                                          {"upper", t_upper},
                                          {"filter", t_filter},
                                          {"test", t_test}};

const struct qn_ttest *qn_ttest_find(const struct qn_ts *name)
{
    for (size_t i = 0; i < sizeof g_tests / sizeof g_tests[0]; i++) {
        if (qn_ts_is(name, g_tests[i].name)) {
            return &g_tests[i];
        }
    }
    return NULL;
}
