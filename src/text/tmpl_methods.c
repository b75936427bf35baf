#include <string.h>

#include "text/tmpl_rt.h"

/// Methods of mappings, lists, cyclers and loops.

static struct qn_tlist *dict_items(struct qn_trt *rt, const struct qn_tdict *d, bool keys,
                                   bool vals)
{
    struct qn_tlist *list = qn_tlist_new(rt, d->n);
    for (size_t i = 0; i < d->n && qn_trt_step(rt, 1); i++) {
        struct qn_tv v = keys ? d->at[i].key : d->at[i].val;
        if (keys && vals) {
            struct qn_tlist *pair = qn_tlist_new(rt, 2);
            qn_tlist_add(rt, pair, d->at[i].key);
            qn_tlist_add(rt, pair, d->at[i].val);
            v = qn_tv_of_list(QN_TV_TUPLE, pair);
        }
        qn_tlist_add(rt, list, v);
    }
    list->what = keys && vals ? "dict_items" : keys ? "dict_keys" : "dict_values";
    return list;
}

static struct qn_tv m_items(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "items", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    return qn_tv_of_list(QN_TV_VIEW, dict_items(rt, self.dict, true, true));
}

static struct qn_tv m_keys(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "keys", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    return qn_tv_of_list(QN_TV_VIEW, dict_items(rt, self.dict, true, false));
}

static struct qn_tv m_values(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "values", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    return qn_tv_of_list(QN_TV_VIEW, dict_items(rt, self.dict, false, true));
}

static struct qn_tv m_get(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    if (args->n_kw > 0 || args->n_pos < 1 || args->n_pos > 2) {
        return qn_trt_fail(rt, QN_E_INVALID, "get: expected a key and perhaps a default");
    }
    if (!qn_tv_hashable(args->pos[0])) {
        return qn_trt_fail(rt, QN_E_INVALID, "%s cannot be a key",
                           qn_tv_kind_name(args->pos[0].kind));
    }
    const struct qn_tv *hit = qn_tdict_find(rt, self.dict, args->pos[0]);
    return hit != NULL ? *hit : args->n_pos == 2 ? args->pos[1] : qn_tv_none();
}

static struct qn_tv m_dict_copy(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    // Nothing can change a value, so the copy is the value.
    return qn_targs_bind(rt, "copy", args, NULL, 0, 0, NULL) ? self : qn_tv_undef();
}

static struct qn_tv m_count(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    struct qn_tv item;
    int64_t n = 0;
    if (!qn_targs_bind(rt, "count", args, (const char *const[]){"value"}, 1, 1, &item)) {
        return qn_tv_undef();
    }
    for (size_t i = 0; i < self.list->n && rt->status == QN_OK; i++) {
        n += qn_tv_eq(rt, self.list->at[i], item) ? 1 : 0;
    }
    return qn_tv_int(n);
}

static struct qn_tv m_index(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    struct qn_tv item;
    if (!qn_targs_bind(rt, "index", args, (const char *const[]){"value"}, 1, 1, &item)) {
        return qn_tv_undef();
    }
    for (size_t i = 0; i < self.list->n && rt->status == QN_OK; i++) {
        if (qn_tv_eq(rt, self.list->at[i], item)) {
            return qn_tv_int((int64_t)i);
        }
    }
    return qn_trt_fail(rt, QN_E_INVALID, "index: the value is not in %s",
                       qn_tv_kind_name(self.kind));
}

static struct qn_tv m_cycler_next(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    if (!qn_targs_bind(rt, "next", args, NULL, 0, 0, NULL)) {
        return qn_tv_undef();
    }
    struct qn_tv v = self.list->at[self.list->next];
    self.list->next = (self.list->next + 1) % self.list->n;
    return v;
}

static struct qn_tv m_cycler_reset(struct qn_trt *rt, struct qn_tv self,
                                   const struct qn_targs *args)
{
    if (qn_targs_bind(rt, "reset", args, NULL, 0, 0, NULL)) {
        self.list->next = 0;
    }
    return qn_tv_none();
}

static struct qn_tv m_loop_cycle(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    if (args->n_pos == 0 || args->n_kw > 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "loop.cycle: expected values to cycle through");
    }
    return args->pos[(size_t)self.loop->index0 % args->n_pos];
}

static struct qn_tv m_loop_changed(struct qn_trt *rt, struct qn_tv self,
                                   const struct qn_targs *args)
{
    struct qn_tlist *now = qn_tlist_new(rt, args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++) {
        qn_tlist_add(rt, now, args->pos[i]);
    }
    struct qn_tv v = qn_tv_of_list(QN_TV_TUPLE, now);
    bool changed = !qn_tv_is_given(self.loop->changed) || !qn_tv_eq(rt, self.loop->changed, v);
    self.loop->changed = v;
    return qn_tv_bool(changed);
}

static const struct qn_tmethoddef g_dict[] = {{"items", m_items},    {"keys", m_keys},
                                              {"values", m_values},  {"get", m_get},
                                              {"copy", m_dict_copy}, {NULL, NULL}};
static const struct qn_tmethoddef g_list[] = {
    {"count", m_count}, {"index", m_index}, {"copy", m_dict_copy}, {NULL, NULL}};
static const struct qn_tmethoddef g_tuple[] = {
    {"count", m_count}, {"index", m_index}, {NULL, NULL}};
static const struct qn_tmethoddef g_cycler[] = {
    {"next", m_cycler_next}, {"reset", m_cycler_reset}, {NULL, NULL}};
static const struct qn_tmethoddef g_loop[] = {
    {"cycle", m_loop_cycle}, {"changed", m_loop_changed}, {NULL, NULL}};

const struct qn_tmethoddef *qn_tmethod_find(enum qn_tv_kind kind, const struct qn_ts *name)
{
    const struct qn_tmethoddef *table = kind == QN_TV_STR      ? qn_tmethods_str
                                        : kind == QN_TV_DICT   ? g_dict
                                        : kind == QN_TV_LIST   ? g_list
                                        : kind == QN_TV_TUPLE  ? g_tuple
                                        : kind == QN_TV_CYCLER ? g_cycler
                                        : kind == QN_TV_LOOP   ? g_loop
                                                               : NULL;
    for (; table != NULL && table->name != NULL; table++) {
        if (qn_ts_is(name, table->name)) {
            return table;
        }
    }
    return NULL;
}
