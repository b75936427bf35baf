#include <stdlib.h>
#include <string.h>

#include "text/tmpl_rt.h"

/// Attributes, subscripts and slices, as the sandboxed environment allows them.

static int64_t clamp_index(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0) {
        i += n;
    }
    return i < low ? low : i > high ? high : i;
}

static bool slice_bound(struct qn_tv v, int64_t *out)
{
    if (!qn_tv_is_int(v)) {
        return v.kind == QN_TV_NONE || v.kind == QN_TV_MISSING;
    }
    *out = qn_tv_as_int(v);
    return true;
}

static struct qn_tv slice_str(struct qn_trt *rt, const struct qn_ts *s, int64_t from, int64_t step,
                              int64_t count)
{
    if (count == 0) {
        return qn_tv_of_ts(qn_ts_empty());
    }
    if (step == 1) {
        size_t begin = qn_ts_offset(s, (size_t)from);
        size_t end = qn_ts_offset(s, (size_t)(from + count));
        return qn_tv_of_ts(qn_ts_sub(rt, s, begin, end - begin));
    }
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    size_t *offsets = NULL;
    if (s->n != s->n_cp) { // one pass instead of a walk per code point
        offsets = qn_trt_alloc(rt, s->n_cp + 1, sizeof *offsets);
        for (size_t i = 0, at = 0; offsets != NULL && i <= s->n_cp; i++) {
            size_t len = 0;
            offsets[i] = at;
            if (at < s->n) {
                (void)qn_tcp_get(s->p + at, s->n - at, &len);
            }
            at += len;
        }
        if (offsets == NULL) {
            return qn_tv_undef();
        }
    }
    for (int64_t i = 0; i < count && qn_trt_step(rt, 1); i++) {
        size_t cp = (size_t)(from + i * step);
        size_t at = offsets != NULL ? offsets[cp] : cp;
        qn_tsbuf_add_sub(rt, b, s, at, (offsets != NULL ? offsets[cp + 1] : cp + 1) - at);
    }
    return qn_tv_of_ts(qn_ts_with_markup(rt, qn_tsbuf_ts(rt, b), s->markup));
}

struct qn_tv qn_tv_slice(struct qn_trt *rt, struct qn_tv v, struct qn_tv from, struct qn_tv to,
                         struct qn_tv step)
{
    size_t len = 0;
    int64_t st = 1;
    if (v.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, v);
    }
    if ((v.kind != QN_TV_STR && v.kind != QN_TV_LIST && v.kind != QN_TV_TUPLE &&
         v.kind != QN_TV_RANGE) ||
        !qn_tv_len(v, &len) || !slice_bound(step, &st)) {
        return qn_trt_fail(rt, QN_E_INVALID, "%s cannot be sliced this way",
                           qn_tv_kind_name(v.kind));
    }
    if (st == 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "slice step is zero");
    }
    int64_t n = (int64_t)len;
    int64_t i = st > 0 ? 0 : INT64_MAX, j = st > 0 ? INT64_MAX : -1;
    if (!slice_bound(from, &i) || !slice_bound(to, &j)) {
        return qn_trt_fail(rt, QN_E_INVALID, "slice: expected integers or nothing as bounds");
    }
    int64_t low = st > 0 ? 0 : -1, high = st > 0 ? n : n - 1;
    i = clamp_index(i, n, low, high);
    // An absent end of a backward slice lies in front of index 0, not at -1 from the end.
    j = st < 0 && !qn_tv_is_int(to) ? -1 : clamp_index(j, n, low, high);
    int64_t count = 0;
    if (st > 0 && j > i) {
        count = 1 + (j - i - 1) / st;
    } else if (st < 0 && i > j) {
        count = st == INT64_MIN ? 1 : 1 + (i - j - 1) / -st;
    }
    if (v.kind == QN_TV_STR) {
        return slice_str(rt, v.s, i, st, count);
    }
    struct qn_tlist *list = qn_tlist_new(rt, count < 4096 ? (size_t)count : 0);
    for (int64_t k = 0; k < count && qn_trt_step(rt, 1); k++) {
        int64_t at = i + k * st;
        qn_tlist_add(rt, list,
                     v.kind == QN_TV_RANGE ? qn_tv_int(v.range->start + at * v.range->step)
                                           : v.list->at[at]);
    }
    // A slice of a range reads like a list; only printing it would show the difference.
    return qn_tv_of_list(v.kind == QN_TV_TUPLE ? QN_TV_TUPLE : QN_TV_LIST, list);
}

static bool is_dunder(const struct qn_ts *name)
{
    return name->n >= 2 && name->p[0] == '_' && name->p[1] == '_';
}

static bool is_mutation(enum qn_tv_kind kind, const struct qn_ts *name)
{
    static const char *const list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                       "sort",   "extend", "remove", NULL};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = kind == QN_TV_LIST ? list : kind == QN_TV_DICT ? dict : NULL;
    for (; names != NULL && *names != NULL; names++) {
        if (qn_ts_is(name, *names)) {
            return true;
        }
    }
    return false;
}

static struct qn_tv forbidden(struct qn_trt *rt, enum qn_tv_kind kind, const struct qn_ts *name)
{
    return qn_trt_fail(rt, QN_E_INVALID, "access to \"%.*s\" of %s is not allowed in a template",
                       (int)(name->n > 60 ? 60 : name->n), name->p, qn_tv_kind_name(kind));
}

static struct qn_tv group_attr(const struct qn_tlist *list, const struct qn_ts *name)
{
    if (list->what != NULL && list->n == 2) {
        if (qn_ts_is(name, "grouper")) {
            return list->at[0];
        }
        if (qn_ts_is(name, "list")) {
            return list->at[1];
        }
    }
    return qn_tv_missing();
}

static struct qn_tv macro_attr(struct qn_trt *rt, const struct qn_tmacro *m,
                               const struct qn_ts *name)
{
    const struct qn_tmacrodef *def = m->node->macro;
    if (qn_ts_is(name, "name")) {
        return def->name == NULL ? qn_tv_none() : qn_tv_of_ts(def->name->s);
    }
    if (qn_ts_is(name, "arguments")) {
        struct qn_tlist *list = qn_tlist_new(rt, def->n_params);
        for (size_t i = 0; i < def->n_params; i++) {
            qn_tlist_add(rt, list, qn_tv_of_ts(def->params[i]->s));
        }
        return qn_tv_of_list(QN_TV_TUPLE, list);
    }
    bool caller = qn_ts_is(name, "caller");
    if (caller || qn_ts_is(name, "catch_kwargs") || qn_ts_is(name, "catch_varargs")) {
        return qn_tv_bool(caller                           ? def->uses_caller
                          : qn_ts_is(name, "catch_kwargs") ? def->uses_kwargs
                                                           : def->uses_varargs);
    }
    return qn_tv_missing();
}

// The attribute alone, MISSING when there is none.
static struct qn_tv attribute(struct qn_trt *rt, struct qn_tv v, const struct qn_ts *name)
{
    if (v.kind == QN_TV_NS) {
        const struct qn_tv *hit = qn_tdict_find(rt, v.dict, qn_tv_of_ts(name));
        if (hit != NULL) {
            return *hit;
        }
    }
    if (is_dunder(name) || is_mutation(v.kind, name)) {
        return forbidden(rt, v.kind, name);
    }
    if (v.kind == QN_TV_LOOP) {
        struct qn_tv hit = qn_tloop_attr(rt, v.loop, name);
        if (qn_tv_is_given(hit)) {
            return hit;
        }
    }
    if (v.kind == QN_TV_MACRO) {
        return macro_attr(rt, v.macro, name);
    }
    if (v.kind == QN_TV_CYCLER && qn_ts_is(name, "current")) {
        return v.list->at[v.list->next];
    }
    if (v.kind == QN_TV_TUPLE) {
        struct qn_tv hit = group_attr(v.list, name);
        if (qn_tv_is_given(hit)) {
            return hit;
        }
    }
    const struct qn_tmethoddef *def = qn_tmethod_find(v.kind, name);
    if (def == NULL) {
        return qn_tv_missing();
    }
    struct qn_tmethod *m = qn_trt_alloc(rt, 1, sizeof *m);
    if (m == NULL) {
        return qn_tv_undef();
    }
    *m = (struct qn_tmethod){.def = def, .self = v};
    return (struct qn_tv){.kind = QN_TV_METHOD, .method = m};
}

// The item alone, MISSING when there is none or v has no items.
static struct qn_tv item(struct qn_trt *rt, struct qn_tv v, struct qn_tv key)
{
    if (v.kind == QN_TV_DICT) {
        const struct qn_tv *hit = qn_tv_hashable(key) ? qn_tdict_find(rt, v.dict, key) : NULL;
        return hit != NULL ? *hit : qn_tv_missing();
    }
    size_t len;
    if (!qn_tv_is_int(key) || (v.kind != QN_TV_LIST && v.kind != QN_TV_TUPLE &&
                               v.kind != QN_TV_STR && v.kind != QN_TV_RANGE)) {
        return qn_tv_missing();
    }
    (void)qn_tv_len(v, &len);
    int64_t n = (int64_t)len, i = qn_tv_as_int(key);
    i = i < 0 ? i + n : i;
    if (i < 0 || i >= n) {
        return qn_tv_missing();
    }
    if (v.kind == QN_TV_STR) {
        if (!qn_trt_step(rt, v.s->n == v.s->n_cp ? 1 : (uint64_t)i / 16)) {
            return qn_tv_undef();
        }
        return slice_str(rt, v.s, i, 1, 1);
    }
    return v.kind == QN_TV_RANGE ? qn_tv_int(v.range->start + i * v.range->step) : v.list->at[i];
}

struct qn_tv qn_tv_attr_only(struct qn_trt *rt, struct qn_tv v, const struct qn_ts *name)
{
    if (v.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, v);
    }
    struct qn_tv hit = attribute(rt, v, name);
    return qn_tv_is_given(hit) ? hit : qn_trt_undef(rt, v.kind, name);
}

struct qn_tv qn_tv_attr(struct qn_trt *rt, struct qn_tv v, const struct qn_ts *name)
{
    if (v.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, v);
    }
    struct qn_tv hit = attribute(rt, v, name);
    if (!qn_tv_is_given(hit) && rt->status == QN_OK) {
        hit = item(rt, v, qn_tv_of_ts(name));
    }
    return qn_tv_is_given(hit) ? hit : qn_trt_undef(rt, v.kind, name);
}

struct qn_tv qn_tv_item(struct qn_trt *rt, struct qn_tv v, struct qn_tv key)
{
    if (v.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, v);
    }
    struct qn_tv hit = item(rt, v, key);
    if (!qn_tv_is_given(hit) && key.kind == QN_TV_STR && rt->status == QN_OK) {
        hit = attribute(rt, v, key.s);
    }
    if (qn_tv_is_given(hit)) {
        return hit;
    }
    return key.kind == QN_TV_STR ? qn_trt_undef(rt, v.kind, key.s)
                                 : qn_trt_undef_hint(rt, "an item that does not exist");
}

static struct qn_tv or_else(struct qn_tv v, struct qn_tv otherwise)
{
    return v.kind == QN_TV_UNDEF && qn_tv_is_given(otherwise) ? otherwise : v;
}

struct qn_tv qn_tv_path(struct qn_trt *rt, struct qn_tv v, struct qn_tv path)
{
    return qn_tv_path_or(rt, v, path, qn_tv_missing());
}

struct qn_tv qn_tv_path_or(struct qn_trt *rt, struct qn_tv v, struct qn_tv path,
                           struct qn_tv otherwise)
{
    if (path.kind == QN_TV_NONE || path.kind == QN_TV_MISSING) {
        return v;
    }
    if (path.kind != QN_TV_STR) {
        return or_else(qn_tv_item(rt, v, path), otherwise);
    }
    for (size_t at = 0; at <= path.s->n && rt->status == QN_OK;) {
        size_t end = at;
        bool digits = true;
        while (end < path.s->n && path.s->p[end] != '.') {
            digits &= path.s->p[end] >= '0' && path.s->p[end] <= '9';
            end++;
        }
        const struct qn_ts *part = qn_ts_sub(rt, path.s, at, end - at);
        if (digits && part->n > 0 && part->n < 18) {
            int64_t i = 0;
            for (size_t k = 0; k < part->n; k++) {
                i = i * 10 + (part->p[k] - '0');
            }
            v = qn_tv_item(rt, v, qn_tv_int(i));
        } else {
            v = qn_tv_item(rt, v, qn_tv_of_ts(part));
        }
        v = or_else(v, otherwise);
        at = end + 1;
    }
    return v;
}
