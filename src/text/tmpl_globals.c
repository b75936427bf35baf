#include <string.h>
#include <time.h>

#include "text/tmpl_rt.h"

/// Functions that every template can call.

#define MAX_RANGE 100000

static bool range_arg(struct qn_trt *rt, struct qn_tv v, int64_t *out)
{
    if (!qn_tv_is_int(v)) {
        if (v.kind == QN_TV_UNDEF) {
            qn_trt_fail_undef(rt, v);
        } else {
            qn_trt_fail(rt, QN_E_INVALID, "range: found %s, expected an integer",
                        qn_tv_kind_name(v.kind));
        }
        return false;
    }
    *out = qn_tv_as_int(v);
    return true;
}

static struct qn_tv g_range(struct qn_trt *rt, const struct qn_targs *args)
{
    int64_t from = 0, to = 0, step = 1;
    if (args->n_kw > 0 || args->n_pos < 1 || args->n_pos > 3) {
        return qn_trt_fail(rt, QN_E_INVALID, "range: expected one to three integers");
    }
    if (!range_arg(rt, args->pos[0], &to)) {
        return qn_tv_undef();
    }
    if (args->n_pos > 1) {
        from = to;
        if (!range_arg(rt, args->pos[1], &to) ||
            (args->n_pos > 2 && !range_arg(rt, args->pos[2], &step))) {
            return qn_tv_undef();
        }
    }
    if (step == 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "range: the step is zero");
    }
    uint64_t span = 0;
    if (step > 0 ? to > from : to < from) {
        uint64_t width = step > 0 ? (uint64_t)to - (uint64_t)from : (uint64_t)from - (uint64_t)to;
        uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
        span = (width - 1) / by + 1;
    }
    if (span > MAX_RANGE) {
        return qn_trt_fail(rt, QN_E_LIMIT, "range: found more than %d items", MAX_RANGE);
    }
    struct qn_trange *r = qn_trt_alloc(rt, 1, sizeof *r);
    if (r == NULL) {
        return qn_tv_undef();
    }
    *r = (struct qn_trange){.start = from, .step = step, .n = (int64_t)span, .stop = to};
    return (struct qn_tv){.kind = QN_TV_RANGE, .range = r};
}

// Python's dict(mapping or pairs, **keywords).
static struct qn_tdict *make_dict(struct qn_trt *rt, const char *what, const struct qn_targs *args)
{
    struct qn_tdict *d = qn_tdict_new(rt, args->n_kw);
    if (args->n_pos > 1) {
        qn_trt_fail(rt, QN_E_INVALID, "%s: expected at most one mapping", what);
    }
    if (args->n_pos == 1 && args->pos[0].kind == QN_TV_DICT) {
        const struct qn_tdict *from = args->pos[0].dict;
        for (size_t i = 0; i < from->n && qn_trt_step(rt, 1); i++) {
            qn_tdict_put(rt, d, from->at[i].key, from->at[i].val);
        }
    } else if (args->n_pos == 1) {
        struct qn_titer it;
        struct qn_tv pair;
        if (qn_titer_init(rt, &it, args->pos[0])) {
            while (qn_titer_next(rt, &it, &pair)) {
                struct qn_tlist *kv = qn_tlist_of(rt, pair);
                if (kv->n != 2) {
                    qn_trt_fail(rt, QN_E_INVALID, "%s: expected pairs of a key and a value", what);
                    break;
                }
                qn_tdict_put(rt, d, kv->at[0], kv->at[1]);
            }
        }
    }
    for (size_t i = 0; i < args->n_kw && rt->status == QN_OK; i++) {
        qn_tdict_put(rt, d, qn_tv_of_ts(args->kw_names[i]), args->kw[i]);
    }
    return d;
}

static struct qn_tv g_dict(struct qn_trt *rt, const struct qn_targs *args)
{
    return (struct qn_tv){.kind = QN_TV_DICT, .dict = make_dict(rt, "dict", args)};
}

static struct qn_tv g_namespace(struct qn_trt *rt, const struct qn_targs *args)
{
    struct qn_tdict *d = make_dict(rt, "namespace", args);
    for (size_t i = 0; i < d->n; i++) {
        struct qn_tv key = d->at[i].key;
        if (key.kind == QN_TV_STR && key.s->n > 0 && key.s->p[0] == '_') {
            return qn_trt_fail(rt, QN_E_INVALID,
                               "namespace: names that begin with \"_\" are not allowed");
        }
    }
    return (struct qn_tv){.kind = QN_TV_NS, .dict = d};
}

static struct qn_tv g_raise(struct qn_trt *rt, const struct qn_targs *args)
{
    struct qn_tv message;
    if (!qn_targs_bind(rt, "raise_exception", args, (const char *const[]){"message"}, 1, 1,
                       &message)) {
        return qn_tv_undef();
    }
    const struct qn_ts *s = qn_tv_str(rt, message);
    if (rt->status == QN_OK) {
        rt->status = qn_fail(rt->err, QN_E_INVALID, "chat template: %.*s",
                             (int)(s->n > 900 ? 900 : s->n), s->p);
    }
    return qn_tv_undef();
}

static struct qn_tv g_strftime(struct qn_trt *rt, const struct qn_targs *args)
{
    struct qn_tv format;
    if (!qn_targs_bind(rt, "strftime_now", args, (const char *const[]){"format"}, 1, 1, &format)) {
        return qn_tv_undef();
    }
    if (format.kind != QN_TV_STR || format.s->n > 1024 ||
        memchr(format.s->p, '\0', format.s->n) != NULL) {
        return qn_trt_fail(rt, QN_E_INVALID,
                           "strftime_now: expected a format string of at most "
                           "1024 bytes");
    }
    char *fmt = qn_trt_alloc(rt, format.s->n + 2, 1);
    size_t cap = 16384;
    char *out = qn_trt_alloc(rt, cap, 1);
    time_t now = (time_t)rt->now_s;
    struct tm tm;
    if (fmt == NULL || out == NULL) {
        return qn_tv_undef();
    }
    if (gmtime_r(&now, &tm) == NULL) {
        return qn_trt_fail(rt, QN_E_INVALID, "strftime_now: the clock is out of range");
    }
    memcpy(fmt, format.s->p, format.s->n);
    fmt[format.s->n] = '.'; // an empty result would look like a result that did not fit
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(out, cap, fmt, &tm); // the template's format is strftime's own language
#pragma GCC diagnostic pop
    if (n == 0) {
        return qn_trt_fail(rt, QN_E_LIMIT, "strftime_now: longer than %zu bytes", cap);
    }
    return qn_tv_of_ts(qn_ts_new(rt, out, n - 1, qn_ts_any_plain(format.s)));
}

static struct qn_tv g_cycler(struct qn_trt *rt, const struct qn_targs *args)
{
    if (args->n_pos == 0 || args->n_kw > 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "cycler: expected at least one value");
    }
    struct qn_tlist *list = qn_tlist_new(rt, args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++) {
        qn_tlist_add(rt, list, args->pos[i]);
    }
    return qn_tv_of_list(QN_TV_CYCLER, list);
}

static struct qn_tv g_joiner(struct qn_trt *rt, const struct qn_targs *args)
{
    struct qn_tv sep;
    if (!qn_targs_bind(rt, "joiner", args, (const char *const[]){"sep"}, 1, 0, &sep)) {
        return qn_tv_undef();
    }
    struct qn_tlist *list = qn_tlist_new(rt, 1);
    qn_tlist_add(rt, list, qn_tv_is_given(sep) ? sep : qn_tv_of_ts(qn_ts_lit(rt, ", ")));
    return qn_tv_of_list(QN_TV_JOINER, list);
}

const struct qn_tfunc *qn_tfunc_find(const struct qn_ts *name)
{
    static const struct qn_tfunc table[] = {
        {"range", g_range},           {"namespace", g_namespace},   {"dict", g_dict},
        {"raise_exception", g_raise}, {"strftime_now", g_strftime}, {"cycler", g_cycler},
        {"joiner", g_joiner}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (qn_ts_is(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}
