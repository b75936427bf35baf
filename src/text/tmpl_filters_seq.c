#include <string.h>

#include "text/tmpl_rt.h"

/// Filters over sequences and mappings.

static struct qn_tv gen(struct qn_tlist *list)
{
    return qn_tv_of_list(QN_TV_GEN, list);
}

static struct qn_tv fold_case(struct qn_trt *rt, struct qn_tv v, struct qn_tv case_sensitive)
{
    return v.kind == QN_TV_STR && !qn_tv_truthy(case_sensitive)
               ? qn_tv_of_ts(qn_ts_case(rt, v.s, 'l'))
               : v;
}

static struct qn_tv f_first(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_titer it;
    struct qn_tv x;
    if (!qn_targs_bind(rt, "first", args, NULL, 0, 0, NULL) || !qn_titer_init(rt, &it, in)) {
        return qn_tv_undef();
    }
    return qn_titer_next(rt, &it, &x) ? x : qn_trt_undef_hint(rt, "no first item: it is empty");
}

static struct qn_tv f_last(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "last", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    if (in.kind == QN_TV_GEN || in.kind == QN_TV_LOOP) {
        return qn_trt_fail(rt, QN_E_INVALID, "last: %s cannot be reversed",
                           qn_tv_kind_name(in.kind));
    }
    struct qn_tlist *list = qn_tlist_of(rt, in);
    return list->n > 0 ? list->at[list->n - 1] : qn_trt_undef_hint(rt, "no last item: it is empty");
}

static struct qn_tv f_list(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return qn_targs_bind(rt, "list", args, NULL, 0, 0, NULL)
               ? qn_tv_of_list(QN_TV_LIST, qn_tlist_of(rt, in))
               : qn_tv_undef();
}

static void reverse_list(struct qn_tlist *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        struct qn_tv t = list->at[i];
        list->at[i] = list->at[list->n - 1 - i];
        list->at[list->n - 1 - i] = t;
    }
}

static struct qn_tv f_reverse(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "reverse", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    if (in.kind == QN_TV_STR) {
        return qn_tv_slice(rt, in, qn_tv_none(), qn_tv_none(), qn_tv_int(-1));
    }
    struct qn_tlist *list = qn_tlist_of(rt, in);
    if (rt->status == QN_OK) {
        reverse_list(list);
    }
    // What Python cannot read backwards becomes a list first.
    return qn_tv_of_list(in.kind == QN_TV_GEN ? QN_TV_LIST : QN_TV_GEN, list);
}

static struct qn_tv f_items(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "items", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    if (in.kind != QN_TV_DICT && in.kind != QN_TV_UNDEF) {
        return qn_trt_fail(rt, QN_E_INVALID, "items: found %s, expected a mapping",
                           qn_tv_kind_name(in.kind));
    }
    for (size_t i = 0; in.kind == QN_TV_DICT && i < in.dict->n && qn_trt_step(rt, 1); i++) {
        struct qn_tlist *pair = qn_tlist_new(rt, 2);
        qn_tlist_add(rt, pair, in.dict->at[i].key);
        qn_tlist_add(rt, pair, in.dict->at[i].val);
        qn_tlist_add(rt, list, qn_tv_of_list(QN_TV_TUPLE, pair));
    }
    return gen(list);
}

static struct qn_tv f_dictsort(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    static const char *const names[] = {"case_sensitive", "by", "reverse"};
    struct qn_tv a[3];
    if (!qn_targs_bind(rt, "dictsort", args, names, 3, 0, a)) {
        return qn_tv_undef();
    }
    bool by_value = a[1].kind == QN_TV_STR && qn_ts_is(a[1].s, "value");
    if (qn_tv_is_given(a[1]) && !by_value && !(a[1].kind == QN_TV_STR && qn_ts_is(a[1].s, "key"))) {
        return qn_trt_fail(rt, QN_E_INVALID, "dictsort: expected \"key\" or \"value\"");
    }
    if (in.kind != QN_TV_DICT) {
        return in.kind == QN_TV_UNDEF
                   ? qn_trt_fail_undef(rt, in)
                   : qn_trt_fail(rt, QN_E_INVALID, "dictsort: found %s, expected a mapping",
                                 qn_tv_kind_name(in.kind));
    }
    struct qn_tlist *keys = qn_tlist_new(rt, in.dict->n), *pairs = qn_tlist_new(rt, in.dict->n);
    for (size_t i = 0; i < in.dict->n; i++) {
        const struct qn_tdent *e = &in.dict->at[i];
        struct qn_tlist *pair = qn_tlist_new(rt, 2);
        qn_tlist_add(rt, pair, e->key);
        qn_tlist_add(rt, pair, e->val);
        qn_tlist_add(rt, pairs, qn_tv_of_list(QN_TV_TUPLE, pair));
        qn_tlist_add(rt, keys, fold_case(rt, by_value ? e->val : e->key, a[0]));
    }
    qn_tlist_sort(rt, keys, pairs, qn_tv_truthy(a[2]));
    return qn_tv_of_list(QN_TV_LIST, pairs);
}

// Sort keys of an item for an attribute list such as "a,b.c".
static struct qn_tv sort_key(struct qn_trt *rt, struct qn_tv item, struct qn_tv attribute,
                             struct qn_tv case_sensitive)
{
    struct qn_tlist *keys = qn_tlist_new(rt, 1);
    if (attribute.kind != QN_TV_STR) {
        qn_tlist_add(rt, keys, fold_case(rt, qn_tv_path(rt, item, attribute), case_sensitive));
        return qn_tv_of_list(QN_TV_LIST, keys);
    }
    const struct qn_ts *s = attribute.s;
    for (size_t at = 0; at <= s->n && rt->status == QN_OK;) {
        const char *comma = memchr(s->p + at, ',', s->n - at);
        size_t end = comma != NULL ? (size_t)(comma - s->p) : s->n;
        struct qn_tv path = qn_tv_of_ts(qn_ts_sub(rt, s, at, end - at));
        qn_tlist_add(rt, keys, fold_case(rt, qn_tv_path(rt, item, path), case_sensitive));
        at = end + 1;
    }
    return qn_tv_of_list(QN_TV_LIST, keys);
}

static struct qn_tv f_sort(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute"};
    struct qn_tv a[3];
    if (!qn_targs_bind(rt, "sort", args, names, 3, 0, a)) {
        return qn_tv_undef();
    }
    struct qn_tlist *list = qn_tlist_of(rt, in), *keys = qn_tlist_new(rt, list->n);
    for (size_t i = 0; i < list->n && rt->status == QN_OK; i++) {
        qn_tlist_add(rt, keys, sort_key(rt, list->at[i], a[2], a[1]));
    }
    if (rt->status == QN_OK) {
        qn_tlist_sort(rt, keys, list, qn_tv_truthy(a[0]));
    }
    return qn_tv_of_list(QN_TV_LIST, list);
}

static struct qn_tv f_unique(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2], x;
    struct qn_titer it;
    if (!qn_targs_bind(rt, "unique", args, (const char *const[]){"case_sensitive", "attribute"}, 2,
                       0, a) ||
        !qn_titer_init(rt, &it, in)) {
        return qn_tv_undef();
    }
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    struct qn_tdict *seen = qn_tdict_new(rt, 0);
    while (qn_titer_next(rt, &it, &x)) {
        struct qn_tv key = fold_case(rt, qn_tv_path(rt, x, a[1]), a[0]);
        if (!qn_tv_hashable(key) || qn_tdict_find(rt, seen, key) == NULL) {
            qn_tdict_put(rt, seen, key, qn_tv_none());
            qn_tlist_add(rt, list, x);
        }
    }
    return gen(list);
}

static struct qn_tv extreme(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args,
                            const char *what, int wanted)
{
    struct qn_tv a[2], x, best = qn_tv_missing(), best_key = qn_tv_missing();
    struct qn_titer it;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"case_sensitive", "attribute"}, 2, 0,
                       a) ||
        !qn_titer_init(rt, &it, in)) {
        return qn_tv_undef();
    }
    while (qn_titer_next(rt, &it, &x)) {
        struct qn_tv key = fold_case(rt, qn_tv_path(rt, x, a[1]), a[0]);
        if (!qn_tv_is_given(best) || qn_tv_cmp(rt, key, best_key) == wanted) {
            best = x;
            best_key = key;
        }
    }
    return qn_tv_is_given(best) ? best : qn_trt_undef_hint(rt, "no item: the sequence was empty");
}

static struct qn_tv f_min(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return extreme(rt, in, args, "min", -1);
}

static struct qn_tv f_max(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    return extreme(rt, in, args, "max", 1);
}

static struct qn_tv f_sum(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2], x;
    struct qn_titer it;
    if (!qn_targs_bind(rt, "sum", args, (const char *const[]){"attribute", "start"}, 2, 0, a) ||
        !qn_titer_init(rt, &it, in)) {
        return qn_tv_undef();
    }
    struct qn_tv total = qn_tv_is_given(a[1]) ? a[1] : qn_tv_int(0);
    if (total.kind == QN_TV_STR) {
        return qn_trt_fail(rt, QN_E_INVALID, "sum: strings are joined with join");
    }
    while (qn_titer_next(rt, &it, &x)) {
        total = qn_tv_binary(rt, QN_OP_ADD, total, qn_tv_path(rt, x, a[0]));
    }
    return total;
}

static struct qn_tv f_batch(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2], x;
    struct qn_titer it;
    if (!qn_targs_bind(rt, "batch", args, (const char *const[]){"linecount", "fill_with"}, 2, 1,
                       a) ||
        !qn_titer_init(rt, &it, in)) {
        return qn_tv_undef();
    }
    if (!qn_tv_is_int(a[0])) {
        return qn_trt_fail(rt, QN_E_INVALID, "batch: found %s, expected an integer",
                           qn_tv_kind_name(a[0].kind));
    }
    int64_t size = qn_tv_as_int(a[0]);
    struct qn_tlist *rows = qn_tlist_new(rt, 0), *row = qn_tlist_new(rt, 0);
    while (qn_titer_next(rt, &it, &x)) {
        if ((int64_t)row->n == size) {
            qn_tlist_add(rt, rows, qn_tv_of_list(QN_TV_LIST, row));
            row = qn_tlist_new(rt, 0);
        }
        qn_tlist_add(rt, row, x);
    }
    if (row->n > 0) {
        while (qn_tv_is_given(a[1]) && a[1].kind != QN_TV_NONE && (int64_t)row->n < size &&
               qn_trt_step(rt, 1)) {
            qn_tlist_add(rt, row, a[1]);
        }
        qn_tlist_add(rt, rows, qn_tv_of_list(QN_TV_LIST, row));
    }
    return gen(rows);
}

static struct qn_tv f_slice(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    struct qn_tv a[2];
    if (!qn_targs_bind(rt, "slice", args, (const char *const[]){"slices", "fill_with"}, 2, 1, a)) {
        return qn_tv_undef();
    }
    int64_t n = qn_tv_is_int(a[0]) ? qn_tv_as_int(a[0]) : 0;
    if (n < 1) {
        return qn_trt_fail(rt, QN_E_INVALID, "slice: expected a number of at least 1");
    }
    struct qn_tlist *list = qn_tlist_of(rt, in), *rows = qn_tlist_new(rt, 0);
    size_t per = list->n / (size_t)n, more = list->n % (size_t)n, at = 0;
    for (size_t i = 0; i < (size_t)n && qn_trt_step(rt, 1); i++) {
        struct qn_tlist *row = qn_tlist_new(rt, 0);
        size_t end = at + per + (i < more ? 1 : 0);
        for (; at < end; at++) {
            qn_tlist_add(rt, row, list->at[at]);
        }
        if (qn_tv_is_given(a[1]) && a[1].kind != QN_TV_NONE && i >= more) {
            qn_tlist_add(rt, row, a[1]);
        }
        qn_tlist_add(rt, rows, qn_tv_of_list(QN_TV_LIST, row));
    }
    return gen(rows);
}

static struct qn_tv group_key(struct qn_trt *rt, struct qn_tv item, const struct qn_tv a[3],
                              bool fold)
{
    struct qn_tv key = qn_tv_path_or(rt, item, a[0], a[1]);
    return fold ? fold_case(rt, key, a[2]) : key;
}

static struct qn_tv f_groupby(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args)
{
    static const char *const names[] = {"attribute", "default", "case_sensitive"};
    struct qn_tv a[3];
    if (!qn_targs_bind(rt, "groupby", args, names, 3, 1, a)) {
        return qn_tv_undef();
    }
    struct qn_tlist *list = qn_tlist_of(rt, in), *keys = qn_tlist_new(rt, list->n);
    for (size_t i = 0; i < list->n && rt->status == QN_OK; i++) {
        qn_tlist_add(rt, keys, group_key(rt, list->at[i], a, true));
    }
    if (rt->status != QN_OK) {
        return qn_tv_undef();
    }
    qn_tlist_sort(rt, keys, list, false);
    struct qn_tlist *groups = qn_tlist_new(rt, 0), *members = NULL;
    for (size_t i = 0; i < list->n && qn_trt_step(rt, 1); i++) {
        if (i == 0 || !qn_tv_eq(rt, keys->at[i], keys->at[i - 1])) {
            struct qn_tlist *group = qn_tlist_new(rt, 2);
            members = qn_tlist_new(rt, 0);
            qn_tlist_add(rt, group, group_key(rt, list->at[i], a, false));
            qn_tlist_add(rt, group, qn_tv_of_list(QN_TV_LIST, members));
            if (rt->status == QN_OK) {
                group->what = "group";
            }
            qn_tlist_add(rt, groups, qn_tv_of_list(QN_TV_TUPLE, group));
        }
        qn_tlist_add(rt, members, list->at[i]);
    }
    return qn_tv_of_list(QN_TV_LIST, groups);
}

const struct qn_tfilter qn_tfilters_seq[] = {
    {"first", f_first},       {"last", f_last},       {"list", f_list},     {"reverse", f_reverse},
    {"items", f_items},       {"sort", f_sort},       {"unique", f_unique}, {"min", f_min},
    {"dictsort", f_dictsort}, {"max", f_max},         {"sum", f_sum},       {"batch", f_batch},
    {"slice", f_slice},       {"groupby", f_groupby}, {NULL, NULL}};
