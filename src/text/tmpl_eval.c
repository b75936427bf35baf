#include <string.h>

#include "text/tmpl_rt.h"

/// Expressions.

struct qn_tv qn_tscope_get(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tsym *name)
{
    for (; sc != NULL; sc = sc->parent) {
        for (size_t i = 0; i < sc->n; i++) {
            if (sc->slots[i].name == name) {
                return sc->slots[i].val;
            }
        }
    }
    struct qn_tv key = qn_tv_of_ts(name->s);
    const struct qn_tv *hit = qn_tdict_find(rt, rt->context, key);
    if (hit == NULL && rt->trusted != NULL) {
        hit = qn_tdict_find(rt, rt->trusted, key);
    }
    if (hit != NULL) {
        return *hit;
    }
    const struct qn_tfunc *f = qn_tfunc_find(name->s);
    if (f != NULL) {
        return (struct qn_tv){.kind = QN_TV_FUNC, .func = f};
    }
    return qn_trt_undef(rt, QN_TV_MISSING, name->s);
}

// Evaluate a call's arguments into *out; false after a failure.
static bool eval_args(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tcallargs *a,
                      struct qn_tv caller, struct qn_targs *out)
{
    *out = (struct qn_targs){0};
    if (a == NULL) {
        return rt->status == QN_OK;
    }
    struct qn_tlist *pos = qn_tlist_new(rt, a->pos.n), *kw = qn_tlist_new(rt, a->kw.n);
    struct qn_tlist *names = qn_tlist_new(rt, a->kw.n);
    for (size_t i = 0; i < a->pos.n && rt->status == QN_OK; i++) {
        qn_tlist_add(rt, pos, qn_teval(rt, sc, a->pos.at[i]));
    }
    for (size_t i = 0; i < a->kw.n && rt->status == QN_OK; i++) {
        qn_tlist_add(rt, names, qn_tv_of_ts(a->kw_names[i]->s));
        qn_tlist_add(rt, kw, qn_teval(rt, sc, a->kw.at[i]));
    }
    if (a->dyn_pos != NULL && rt->status == QN_OK) {
        struct qn_titer it;
        struct qn_tv x;
        if (qn_titer_init(rt, &it, qn_teval(rt, sc, a->dyn_pos))) {
            while (qn_titer_next(rt, &it, &x)) {
                qn_tlist_add(rt, pos, x);
            }
        }
    }
    if (a->dyn_kw != NULL && rt->status == QN_OK) {
        struct qn_tv more = qn_teval(rt, sc, a->dyn_kw);
        if (more.kind != QN_TV_DICT) {
            qn_trt_fail(rt, QN_E_INVALID, "found %s behind \"**\", expected a mapping",
                        qn_tv_kind_name(more.kind));
            return false;
        }
        for (size_t i = 0; i < more.dict->n && rt->status == QN_OK; i++) {
            if (more.dict->at[i].key.kind != QN_TV_STR) {
                qn_trt_fail(rt, QN_E_INVALID, "found a keyword that is not a string behind \"**\"");
            }
            for (size_t j = 0; j < names->n && rt->status == QN_OK; j++) {
                if (qn_ts_eq(names->at[j].s, more.dict->at[i].key.s)) {
                    qn_trt_fail(rt, QN_E_INVALID, "a keyword argument given twice");
                }
            }
            qn_tlist_add(rt, names, more.dict->at[i].key);
            qn_tlist_add(rt, kw, more.dict->at[i].val);
        }
    }
    if (qn_tv_is_given(caller)) {
        qn_tlist_add(rt, names, qn_tv_of_ts(rt->t->names.caller->s));
        qn_tlist_add(rt, kw, caller);
    }
    const struct qn_ts **kw_names =
        names->n > 0 ? qn_trt_alloc(rt, names->n, sizeof *kw_names) : NULL;
    if (rt->status != QN_OK) {
        return false;
    }
    for (size_t i = 0; i < names->n; i++) {
        kw_names[i] = names->at[i].s;
    }
    *out = (struct qn_targs){
        .pos = pos->at, .n_pos = pos->n, .kw_names = kw_names, .kw = kw->at, .n_kw = kw->n};
    return true;
}

bool qn_targs_bind(struct qn_trt *rt, const char *what, const struct qn_targs *args,
                   const char *const *names, size_t n_names, size_t n_required, struct qn_tv *out)
{
    for (size_t i = 0; i < n_names; i++) {
        out[i] = qn_tv_missing();
    }
    if (rt->status != QN_OK) {
        return false;
    }
    if (args->n_pos > n_names) {
        qn_trt_fail(rt, QN_E_INVALID, "%s: found %zu arguments, expected at most %zu", what,
                    args->n_pos, n_names);
        return false;
    }
    for (size_t i = 0; i < args->n_pos; i++) {
        out[i] = args->pos[i];
    }
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct qn_ts *name = args->kw_names[i];
        size_t at = 0;
        while (at < n_names && !qn_ts_is(name, names[at])) {
            at++;
        }
        if (at == n_names || qn_tv_is_given(out[at])) {
            qn_trt_fail(rt, QN_E_INVALID, "%s: argument \"%.*s\" %s", what,
                        (int)(name->n > 60 ? 60 : name->n), name->p,
                        at == n_names ? "is not known" : "is given twice");
            return false;
        }
        out[at] = args->kw[i];
    }
    for (size_t i = 0; i < n_required; i++) {
        if (!qn_tv_is_given(out[i])) {
            qn_trt_fail(rt, QN_E_INVALID, "%s: argument \"%s\" is missing", what, names[i]);
            return false;
        }
    }
    return true;
}

struct qn_tv qn_tcall(struct qn_trt *rt, struct qn_tv callee, const struct qn_targs *args)
{
    if (rt->status != QN_OK) {
        return qn_tv_undef();
    }
    switch (callee.kind) {
    case QN_TV_MACRO:
        return qn_tcall_macro(rt, callee.macro, args);
    case QN_TV_FUNC:
        return callee.func->fn(rt, args);
    case QN_TV_METHOD:
        return callee.method->def->fn(rt, callee.method->self, args);
    case QN_TV_LOOP:
        return qn_tcall_loop(rt, callee.loop, args);
    case QN_TV_JOINER:
        if (callee.list->next++ == 0) {
            return qn_tv_of_ts(qn_ts_empty());
        }
        return callee.list->at[0];
    case QN_TV_UNDEF:
        return qn_trt_fail_undef(rt, callee);
    default:
        return qn_trt_fail(rt, QN_E_INVALID, "%s cannot be called", qn_tv_kind_name(callee.kind));
    }
}

struct qn_tv qn_teval_call(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n,
                           struct qn_tv caller)
{
    struct qn_targs args;
    struct qn_tv callee = qn_teval(rt, sc, n->a);
    if (!eval_args(rt, sc, n->args, caller, &args)) {
        return qn_tv_undef();
    }
    rt->pos = n->pos;
    return qn_tcall(rt, callee, &args);
}

static struct qn_tv apply_filter(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n,
                                 struct qn_tv in)
{
    struct qn_targs args;
    rt->pos = n->pos;
    if (n->fn == NULL) {
        return qn_trt_fail(rt, QN_E_UNSUPPORTED, "filter \"%.*s\": there is no such filter",
                           (int)(n->name->s->n > 60 ? 60 : n->name->s->n), n->name->s->p);
    }
    if (!eval_args(rt, sc, n->args, qn_tv_missing(), &args)) {
        return qn_tv_undef();
    }
    rt->pos = n->pos;
    return ((const struct qn_tfilter *)n->fn)->fn(rt, in, &args);
}

struct qn_tv qn_teval_filters(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n,
                              struct qn_tv in)
{
    if (n == NULL) {
        return in;
    }
    return apply_filter(rt, sc, n, qn_teval_filters(rt, sc, n->a, in));
}

static struct qn_tv eval_test(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    struct qn_targs args;
    struct qn_tv in = qn_teval(rt, sc, n->a);
    rt->pos = n->pos;
    if (n->fn == NULL) {
        return qn_trt_fail(rt, QN_E_UNSUPPORTED, "test \"%.*s\": there is no such test",
                           (int)(n->name->s->n > 60 ? 60 : n->name->s->n), n->name->s->p);
    }
    if (!eval_args(rt, sc, n->args, qn_tv_missing(), &args)) {
        return qn_tv_undef();
    }
    rt->pos = n->pos;
    return qn_tv_bool(((const struct qn_ttest *)n->fn)->fn(rt, in, &args));
}

static struct qn_tv eval_compare(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    struct qn_tv left = qn_teval(rt, sc, n->a);
    for (size_t i = 0; i < n->items.n; i++) {
        const struct qn_tnode *operand = n->items.at[i];
        struct qn_tv right = qn_teval(rt, sc, operand->a);
        rt->pos = operand->pos;
        if (!qn_tv_compare(rt, operand->op, left, right)) {
            return qn_tv_bool(false);
        }
        left = right;
    }
    return qn_tv_bool(true);
}

static struct qn_tv eval_concat(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    const struct qn_ts *s = qn_ts_empty();
    for (size_t i = 0; i < n->items.n && rt->status == QN_OK; i++) {
        s = qn_ts_concat(rt, s, qn_tv_str(rt, qn_teval(rt, sc, n->items.at[i])));
    }
    return qn_tv_of_ts(s);
}

static struct qn_tv eval_items(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    if (n->kind == QN_TN_DICT) {
        struct qn_tdict *d = qn_tdict_new(rt, n->items.n / 2);
        for (size_t i = 0; i + 1 < n->items.n && rt->status == QN_OK; i += 2) {
            struct qn_tv key = qn_teval(rt, sc, n->items.at[i]);
            qn_tdict_put(rt, d, key, qn_teval(rt, sc, n->items.at[i + 1]));
        }
        return (struct qn_tv){.kind = QN_TV_DICT, .dict = d};
    }
    struct qn_tlist *list = qn_tlist_new(rt, n->items.n);
    for (size_t i = 0; i < n->items.n && rt->status == QN_OK; i++) {
        qn_tlist_add(rt, list, qn_teval(rt, sc, n->items.at[i]));
    }
    return qn_tv_of_list(n->kind == QN_TN_LIST ? QN_TV_LIST : QN_TV_TUPLE, list);
}

static struct qn_tv eval_item(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    struct qn_tv of = qn_teval(rt, sc, n->a);
    if (n->b->kind != QN_TN_SLICE) {
        struct qn_tv key = qn_teval(rt, sc, n->b);
        rt->pos = n->pos;
        return qn_tv_item(rt, of, key);
    }
    struct qn_tv bounds[3];
    const struct qn_tnode *parts[3] = {n->b->a, n->b->b, n->b->c};
    for (size_t i = 0; i < 3; i++) {
        bounds[i] = parts[i] != NULL ? qn_teval(rt, sc, parts[i]) : qn_tv_none();
    }
    rt->pos = n->pos;
    return qn_tv_slice(rt, of, bounds[0], bounds[1], bounds[2]);
}

static struct qn_tv eval_unary(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    struct qn_tv v = qn_teval(rt, sc, n->a);
    rt->pos = n->pos;
    if (n->kind == QN_TN_NEG) {
        return qn_tv_negate(rt, v);
    }
    if (v.kind == QN_TV_UNDEF) {
        return qn_trt_fail_undef(rt, v);
    }
    if (!qn_tv_is_num(v)) {
        return qn_trt_fail(rt, QN_E_INVALID, "operator \"+\": found %s, expected a number",
                           qn_tv_kind_name(v.kind));
    }
    return v.kind == QN_TV_BOOL ? qn_tv_int(qn_tv_as_int(v)) : v;
}

static struct qn_tv eval(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    struct qn_tv v;
    switch (n->kind) {
    case QN_TN_CONST:
        return n->value;
    case QN_TN_NAME:
        rt->pos = n->pos;
        return qn_tscope_get(rt, sc, n->name);
    case QN_TN_LIST:
    case QN_TN_TUPLE:
    case QN_TN_DICT:
        return eval_items(rt, sc, n);
    case QN_TN_AND:
        v = qn_teval(rt, sc, n->a);
        return qn_tv_truthy(v) ? qn_teval(rt, sc, n->b) : v;
    case QN_TN_OR:
        v = qn_teval(rt, sc, n->a);
        return qn_tv_truthy(v) ? v : qn_teval(rt, sc, n->b);
    case QN_TN_NOT:
        return qn_tv_bool(!qn_tv_truthy(qn_teval(rt, sc, n->a)));
    case QN_TN_NEG:
    case QN_TN_POS:
        return eval_unary(rt, sc, n);
    case QN_TN_BINARY: {
        struct qn_tv a = qn_teval(rt, sc, n->a);
        struct qn_tv b = qn_teval(rt, sc, n->b);
        rt->pos = n->pos;
        return qn_tv_binary(rt, n->op, a, b);
    }
    case QN_TN_CONCAT:
        return eval_concat(rt, sc, n);
    case QN_TN_COMPARE:
        return eval_compare(rt, sc, n);
    case QN_TN_COND:
        if (qn_tv_truthy(qn_teval(rt, sc, n->b))) {
            return qn_teval(rt, sc, n->a);
        }
        return n->c != NULL ? qn_teval(rt, sc, n->c)
                            : qn_trt_undef_hint(rt, "an inline if that was false has no else");
    case QN_TN_ATTR:
        v = qn_teval(rt, sc, n->a);
        rt->pos = n->pos;
        return qn_tv_attr(rt, v, n->name->s);
    case QN_TN_ITEM:
        return eval_item(rt, sc, n);
    case QN_TN_CALL:
        return qn_teval_call(rt, sc, n, qn_tv_missing());
    case QN_TN_FILTER:
        return apply_filter(rt, sc, n, qn_teval(rt, sc, n->a));
    case QN_TN_TEST:
        return eval_test(rt, sc, n);
    default:
        return qn_trt_fail(rt, QN_E_INTERNAL, "statement in an expression");
    }
}

struct qn_tv qn_teval(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    if (!qn_trt_step(rt, 1)) {
        return qn_tv_undef();
    }
    if (++rt->n_levels > rt->max_levels) {
        qn_trt_fail(rt, QN_E_LIMIT, "evaluation nested deeper than %zu levels", rt->max_levels);
    }
    struct qn_tv v = rt->status == QN_OK ? eval(rt, sc, n) : qn_tv_undef();
    rt->n_levels--;
    return rt->status == QN_OK ? v : qn_tv_undef();
}
