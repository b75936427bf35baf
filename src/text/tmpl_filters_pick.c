#include <string.h>

#include "text/tmpl_rt.h"

/// map, select and their kin: filters that apply other filters and tests by name.

const struct qn_tfilter *qn_tfilter_find(const struct qn_ts *name)
{
    static const struct qn_tfilter *const tables[] = {qn_tfilters_text, qn_tfilters_num,
                                                      qn_tfilters_seq, qn_tfilters_pick};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        for (const struct qn_tfilter *f = tables[i]; f->name != NULL; f++) {
            if (qn_ts_is(name, f->name)) {
                return f;
            }
        }
    }
    return NULL;
}

// The arguments behind the first n.
static struct qn_targs rest(const struct qn_targs *args, size_t n)
{
    struct qn_targs r = *args;
    n = n > r.n_pos ? r.n_pos : n;
    r.pos = r.n_pos > n ? r.pos + n : NULL;
    r.n_pos -= n;
    return r;
}

static struct qn_tv f_map(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_titer it;
    struct qn_tv x, a[2];
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    if (args->n_pos == 0 && args->n_kw > 0 && qn_ts_is(args->kw_names[0], "attribute")) {
        if (!qn_targs_bind(rt, "map", args, (const char *const[]){"attribute", "default"}, 2, 1,
                           a) ||
            !qn_titer_init(rt, &it, in)) {
            return qn_tv_undef();
        }
        while (qn_titer_next(rt, &it, &x)) {
            qn_tlist_add(rt, list, qn_tv_path_or(rt, x, a[0], a[1]));
        }
        return qn_tv_of_list(QN_TV_GEN, list);
    }
    if (args->n_pos == 0 && args->n_kw == 2 && qn_ts_is(args->kw_names[1], "attribute")) {
        struct qn_tv kw[2] = {args->kw[1], args->kw[0]};
        const struct qn_ts *names[2] = {args->kw_names[1], args->kw_names[0]};
        return f_map(rt, in, &(struct qn_targs){.kw_names = names, .kw = kw, .n_kw = 2});
    }
    if (args->n_pos == 0 || args->pos[0].kind != QN_TV_STR) {
        return qn_trt_fail(rt, QN_E_INVALID, "map: expected a filter's name or attribute=");
    }
    const struct qn_tfilter *f = qn_tfilter_find(args->pos[0].s);
    if (f == NULL) {
        return qn_trt_fail(rt, QN_E_UNSUPPORTED, "filter \"%.*s\": there is no such filter",
                           (int)(args->pos[0].s->n > 60 ? 60 : args->pos[0].s->n),
                           args->pos[0].s->p);
    }
    struct qn_targs more = rest(args, 1);
    if (qn_titer_init(rt, &it, in)) {
        while (qn_titer_next(rt, &it, &x)) {
            qn_tlist_add(rt, list, f->fn(rt, x, &more));
        }
    }
    return qn_tv_of_list(QN_TV_GEN, list);
}

// by_attr: the first argument is the attribute that is tested.
static struct qn_tv pick(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args,
                         bool by_attr, bool keep)
{
    struct qn_tv path = qn_tv_missing(), x;
    const struct qn_ttest *test = NULL;
    size_t skip = by_attr ? 1 : 0;
    struct qn_titer it;
    if (by_attr) {
        if (args->n_pos == 0) {
            return qn_trt_fail(rt, QN_E_INVALID, "selectattr, rejectattr: expected an attribute");
        }
        path = args->pos[0];
    }
    if (args->n_pos > skip) {
        struct qn_tv name = args->pos[skip];
        test = name.kind == QN_TV_STR ? qn_ttest_find(name.s) : NULL;
        if (test == NULL) {
            const struct qn_ts *s = qn_tv_str(rt, name);
            return qn_trt_fail(rt, QN_E_UNSUPPORTED, "test \"%.*s\": there is no such test",
                               (int)(s->n > 60 ? 60 : s->n), s->p);
        }
    }
    struct qn_targs more = rest(args, skip + 1);
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    if (qn_titer_init(rt, &it, in)) {
        while (qn_titer_next(rt, &it, &x)) {
            struct qn_tv v = qn_tv_path(rt, x, path);
            bool hit = test != NULL ? test->fn(rt, v, &more) : qn_tv_truthy(v);
            if (hit == keep) {
                qn_tlist_add(rt, list, x);
            }
        }
    }
    return qn_tv_of_list(QN_TV_GEN, list);
}

static struct qn_tv f_select(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return pick(rt, in, args, false, true);
}

static struct qn_tv f_reject(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return pick(rt, in, args, false, false);
}

static struct qn_tv f_selectattr(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return pick(rt, in, args, true, true);
}

static struct qn_tv f_rejectattr(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return pick(rt, in, args, true, false);
}

static struct qn_tv f_attr(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv name;
    if (!qn_targs_bind(rt, "attr", args, (const char *const[]){"name"}, 1, 1, &name)) {
        return qn_tv_undef();
    }
    return qn_tv_attr_only(rt, in, qn_tv_str(rt, name));
}

const struct qn_tfilter qn_tfilters_pick[] = {{"map", f_map},
                                              {"select", f_select},
                                              {"reject", f_reject},
                                              {"selectattr", f_selectattr},
                                              {"rejectattr", f_rejectattr},
                                              {"attr", f_attr},
                                              {NULL, NULL}};
