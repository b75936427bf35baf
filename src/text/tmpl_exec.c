#include <string.h>

#include "text/tmpl_rt.h"

/// Statements, loops and macros.

struct qn_tscope *qn_tscope_new(struct qn_trt *rt, struct qn_tscope *parent)
{
    struct qn_tscope *sc = qn_trt_alloc(rt, 1, sizeof *sc);
    if (sc != NULL) {
        sc->parent = parent;
    }
    return sc;
}

void qn_tscope_set(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tsym *name,
                   struct qn_tv v)
{
    if (rt->status != QN_OK) {
        return;
    }
    for (size_t i = 0; i < sc->n; i++) {
        if (sc->slots[i].name == name) {
            sc->slots[i].val = v;
            return;
        }
    }
    if (sc->n == sc->cap) {
        size_t cap = sc->cap == 0 ? 4 : sc->cap * 2;
        struct qn_tslot *slots = qn_trt_alloc(rt, cap, sizeof *slots);
        if (slots == NULL) {
            return;
        }
        if (sc->n > 0) {
            memcpy(slots, sc->slots, sc->n * sizeof *slots);
        }
        sc->slots = slots;
        sc->cap = cap;
    }
    sc->slots[sc->n++] = (struct qn_tslot){.name = name, .val = v};
}

void qn_temit(struct qn_trt *rt, const struct qn_ts *s)
{
    if (rt->status != QN_OK || s->n == 0) {
        return;
    }
    struct qn_tsink *out = &rt->sink;
    if (out->capture != NULL) {
        qn_tsbuf_add_ts(rt, out->capture, s);
        return;
    }
    rt->n_output += s->n;
    if (rt->n_output > rt->max_output || !qn_trt_step(rt, s->n / 16)) {
        qn_trt_fail(rt, QN_E_LIMIT, "output longer than %zu bytes", rt->max_output);
        return;
    }
    bool ok = qn_buf_add(out->text, s->p, s->n);
    if (ok && out->plain != NULL) {
        if (s->marks != NULL) {
            ok = qn_buf_add(out->plain, s->marks, s->n);
        } else if ((ok = qn_buf_reserve(out->plain, s->n))) {
            memset(out->plain->data + out->plain->len, s->plain ? 1 : 0, s->n);
            out->plain->len += s->n;
            out->plain->data[out->plain->len] = '\0';
        }
    }
    if (!ok) {
        qn_trt_nomem(rt);
    }
}

// Run a body with its text going into a buffer of its own.
static struct qn_tv capture(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnodes *body)
{
    struct qn_tsink saved = rt->sink;
    rt->sink = (struct qn_tsink){.capture = qn_tsbuf_new(rt, 0)};
    if (rt->status == QN_OK) {
        qn_texec(rt, sc, body);
    }
    struct qn_tv v = qn_tv_of_ts(qn_tsbuf_ts(rt, rt->sink.capture));
    rt->sink = saved;
    return v;
}

static void assign(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *target,
                   struct qn_tv v)
{
    if (rt->status != QN_OK) {
        return;
    }
    if (target->kind == QN_TN_NAME) {
        qn_tscope_set(rt, sc, target->name, v);
        return;
    }
    rt->pos = target->pos;
    if (target->kind == QN_TN_NSREF) {
        struct qn_tv ns = qn_tscope_get(rt, sc, target->name);
        if (ns.kind != QN_TV_NS) {
            qn_trt_fail(rt, QN_E_INVALID, "cannot set an attribute of %s, expected a namespace",
                        qn_tv_kind_name(ns.kind));
        } else if (target->name2->s->p[0] == '_') {
            qn_trt_fail(rt, QN_E_INVALID, "namespace: names that begin with \"_\" are not allowed");
        } else {
            qn_tdict_put(rt, ns.dict, qn_tv_of_ts(target->name2->s), v);
        }
        return;
    }
    struct qn_tlist *list = qn_tlist_of(rt, v);
    if (rt->status == QN_OK && list->n != target->items.n) {
        qn_trt_fail(rt, QN_E_INVALID, "found %zu values to unpack, expected %zu", list->n,
                    target->items.n);
    }
    for (size_t i = 0; i < target->items.n && rt->status == QN_OK; i++) {
        assign(rt, sc, target->items.at[i], list->at[i]);
    }
}

// The next item that passes the loop's filter.
static bool pull(struct qn_trt *rt, struct qn_tloop *loop, struct qn_tv *out)
{
    while (qn_titer_next(rt, &loop->it, out)) {
        if (loop->node->c == NULL || loop->filtered) {
            return true;
        }
        struct qn_tscope *sc = qn_tscope_new(rt, loop->scope);
        if (sc == NULL) {
            return false;
        }
        assign(rt, sc, loop->node->a, *out);
        if (rt->status == QN_OK && qn_tv_truthy(qn_teval(rt, sc, loop->node->c))) {
            return rt->status == QN_OK;
        }
    }
    return false;
}

static bool peek(struct qn_trt *rt, struct qn_tloop *loop)
{
    if (!qn_tv_is_given(loop->after) && !loop->ended) {
        struct qn_tv x;
        if (pull(rt, loop, &x)) {
            loop->after = x;
        } else {
            loop->ended = true;
        }
    }
    return qn_tv_is_given(loop->after);
}

bool qn_tloop_next(struct qn_trt *rt, struct qn_tloop *loop, struct qn_tv *out)
{
    if (rt->status != QN_OK || !peek(rt, loop)) {
        return false;
    }
    *out = loop->after;
    loop->after = qn_tv_missing();
    loop->index0++;
    loop->before = loop->current;
    loop->current = *out;
    return true;
}

static int64_t loop_length(struct qn_trt *rt, struct qn_tloop *loop)
{
    size_t n;
    if (loop->length >= 0) {
        return loop->length;
    }
    if (loop->node->c == NULL && qn_tv_len(loop->items, &n)) {
        loop->length = (int64_t)n;
        return loop->length;
    }
    struct qn_tlist *rest = qn_tlist_new(rt, 0);
    struct qn_tv x;
    while (pull(rt, loop, &x)) {
        qn_tlist_add(rt, rest, x);
    }
    loop->it = (struct qn_titer){.v = qn_tv_of_list(QN_TV_LIST, rest)};
    loop->filtered = true;
    loop->length = (int64_t)rest->n + loop->index0 + 1 + (qn_tv_is_given(loop->after) ? 1 : 0);
    return loop->length;
}

struct qn_tv qn_tloop_attr(struct qn_trt *rt, struct qn_tloop *loop, const struct qn_ts *name)
{
    if (qn_ts_is(name, "last")) {
        return qn_tv_bool(!peek(rt, loop));
    }
    if (qn_ts_is(name, "first")) {
        return qn_tv_bool(loop->index0 == 0);
    }
    if (qn_ts_is(name, "index")) {
        return qn_tv_int(loop->index0 + 1);
    }
    if (qn_ts_is(name, "index0")) {
        return qn_tv_int(loop->index0);
    }
    if (qn_ts_is(name, "length")) {
        return qn_tv_int(loop_length(rt, loop));
    }
    if (qn_ts_is(name, "revindex")) {
        return qn_tv_int(loop_length(rt, loop) - loop->index0);
    }
    if (qn_ts_is(name, "revindex0")) {
        return qn_tv_int(loop_length(rt, loop) - loop->index0 - 1);
    }
    if (qn_ts_is(name, "previtem")) {
        return loop->index0 == 0 ? qn_trt_undef_hint(rt, "there is no previous item")
                                 : loop->before;
    }
    if (qn_ts_is(name, "nextitem")) {
        return peek(rt, loop) ? loop->after : qn_trt_undef_hint(rt, "there is no next item");
    }
    if (qn_ts_is(name, "depth")) {
        return qn_tv_int(loop->depth0 + 1);
    }
    if (qn_ts_is(name, "depth0")) {
        return qn_tv_int(loop->depth0);
    }
    return qn_tv_missing();
}

static void exec_for(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n,
                     struct qn_tv items, int64_t depth0)
{
    struct qn_tloop *loop = qn_trt_alloc(rt, 1, sizeof *loop);
    struct qn_tscope *body = qn_tscope_new(rt, sc);
    if (loop == NULL || body == NULL) {
        return;
    }
    *loop = (struct qn_tloop){.node = n,
                              .scope = sc,
                              .items = items,
                              .index0 = -1,
                              .depth0 = depth0,
                              .length = -1,
                              .before = qn_tv_missing(),
                              .current = qn_tv_missing(),
                              .after = qn_tv_missing(),
                              .changed = qn_tv_missing()};
    rt->pos = n->pos;
    if (!qn_titer_init(rt, &loop->it, items)) {
        return;
    }
    struct qn_tv item;
    while (qn_tloop_next(rt, loop, &item)) {
        if (n->closures && (body = qn_tscope_new(rt, sc)) == NULL) {
            return;
        }
        body->n = 0; // each turn starts with fresh variables
        qn_tscope_set(rt, body, rt->t->names.loop,
                      (struct qn_tv){.kind = QN_TV_LOOP, .loop = loop});
        assign(rt, body, n->a, item);
        if (qn_texec(rt, body, &n->body) == QN_FLOW_BREAK) {
            break;
        }
    }
    if (loop->index0 < 0 && n->other.n > 0 && rt->status == QN_OK) {
        body->n = 0;
        qn_texec(rt, body, &n->other);
    }
}

static bool enter_call(struct qn_trt *rt)
{
    if (++rt->n_calls > rt->max_calls) {
        qn_trt_fail(rt, QN_E_LIMIT, "calls nested deeper than %zu levels", rt->max_calls);
        return false;
    }
    return true;
}

struct qn_tv qn_tcall_loop(struct qn_trt *rt, const struct qn_tloop *loop,
                           const struct qn_targs *args)
{
    struct qn_tv items;
    if (!loop->node->flag) {
        return qn_trt_fail(rt, QN_E_INVALID, "loop can be called only when it is \"recursive\"");
    }
    if (!qn_targs_bind(rt, "loop", args, (const char *const[]){"iterable"}, 1, 1, &items)) {
        return qn_tv_undef();
    }
    struct qn_tsink saved = rt->sink;
    rt->sink = (struct qn_tsink){.capture = qn_tsbuf_new(rt, 0)};
    if (enter_call(rt)) {
        exec_for(rt, loop->scope, loop->node, items, loop->depth0 + 1);
    }
    rt->n_calls--;
    struct qn_tv v = qn_tv_of_ts(qn_tsbuf_ts(rt, rt->sink.capture));
    rt->sink = saved;
    return v;
}

static bool has_param(const struct qn_tmacrodef *def, const struct qn_tsym *name)
{
    for (size_t i = 0; i < def->n_params; i++) {
        if (def->params[i] == name) {
            return true;
        }
    }
    return false;
}

// Keyword arguments that no parameter takes: kwargs, caller, or an error.
static void bind_rest(struct qn_trt *rt, const struct qn_tmacrodef *def, struct qn_tscope *sc,
                      const struct qn_targs *args, const bool *used)
{
    const struct qn_twell_known *names = &rt->t->names;
    struct qn_tv caller = qn_tv_missing();
    bool own_varargs = def->uses_varargs && !has_param(def, names->varargs);
    struct qn_tdict *kwargs =
        def->uses_kwargs && !has_param(def, names->kwargs) ? qn_tdict_new(rt, 0) : NULL;
    for (size_t i = 0; i < args->n_kw && rt->status == QN_OK; i++) {
        if (used[i]) {
            continue;
        }
        if (def->uses_caller && qn_ts_is(args->kw_names[i], "caller")) {
            caller = args->kw[i];
        } else if (kwargs != NULL) {
            qn_tdict_put(rt, kwargs, qn_tv_of_ts(args->kw_names[i]), args->kw[i]);
        } else {
            qn_trt_fail(rt, QN_E_INVALID, "macro takes no argument \"%.*s\"",
                        (int)(args->kw_names[i]->n > 60 ? 60 : args->kw_names[i]->n),
                        args->kw_names[i]->p);
        }
    }
    if (def->uses_caller && !has_param(def, names->caller)) {
        qn_tscope_set(rt, sc, names->caller,
                      qn_tv_is_given(caller) ? caller : qn_trt_undef_hint(rt, "no caller defined"));
    }
    if (kwargs != NULL) {
        qn_tscope_set(rt, sc, names->kwargs, (struct qn_tv){.kind = QN_TV_DICT, .dict = kwargs});
    }
    if (own_varargs) {
        struct qn_tlist *more = qn_tlist_new(rt, 0);
        for (size_t i = def->n_params; i < args->n_pos; i++) {
            qn_tlist_add(rt, more, args->pos[i]);
        }
        qn_tscope_set(rt, sc, names->varargs, qn_tv_of_list(QN_TV_TUPLE, more));
    } else if (args->n_pos > def->n_params) {
        qn_trt_fail(rt, QN_E_INVALID, "macro: found %zu arguments, expected at most %zu",
                    args->n_pos, def->n_params);
    }
}

struct qn_tv qn_tcall_macro(struct qn_trt *rt, const struct qn_tmacro *m,
                            const struct qn_targs *args)
{
    const struct qn_tmacrodef *def = m->node->macro;
    struct qn_tscope *sc = qn_tscope_new(rt, m->scope);
    bool *used = qn_trt_alloc(rt, args->n_kw + 1, sizeof *used);
    if (sc == NULL || used == NULL) {
        return qn_tv_undef();
    }
    for (size_t i = 0; i < def->n_params && rt->status == QN_OK; i++) {
        struct qn_tv v = i < args->n_pos ? args->pos[i] : qn_tv_missing();
        for (size_t j = 0; j < args->n_kw && !qn_tv_is_given(v); j++) {
            if (qn_ts_eq(args->kw_names[j], def->params[i]->s)) {
                v = args->kw[j];
                used[j] = true;
            }
        }
        if (!qn_tv_is_given(v)) {
            v = def->defaults[i] != NULL ? qn_teval(rt, sc, def->defaults[i])
                                         : qn_trt_undef(rt, QN_TV_MISSING, def->params[i]->s);
        }
        qn_tscope_set(rt, sc, def->params[i], v);
    }
    bind_rest(rt, def, sc, args, used);
    struct qn_tv v = qn_tv_undef();
    if (enter_call(rt) && rt->status == QN_OK) {
        v = capture(rt, sc, &m->node->body);
    }
    rt->n_calls--;
    return v;
}

static struct qn_tv make_macro(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    struct qn_tmacro *m = qn_trt_alloc(rt, 1, sizeof *m);
    if (m == NULL) {
        return qn_tv_undef();
    }
    *m = (struct qn_tmacro){.node = n, .scope = sc};
    return (struct qn_tv){.kind = QN_TV_MACRO, .macro = m};
}

static enum qn_tflow exec_if(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    if (qn_tv_truthy(qn_teval(rt, sc, n->a))) {
        return qn_texec(rt, sc, &n->body);
    }
    for (size_t i = 0; i < n->items.n && rt->status == QN_OK; i++) {
        if (qn_tv_truthy(qn_teval(rt, sc, n->items.at[i]->a))) {
            return qn_texec(rt, sc, &n->items.at[i]->body);
        }
    }
    return qn_texec(rt, sc, &n->other);
}

static void exec_with(struct qn_trt *rt, struct qn_tscope *sc, struct qn_tscope *inner,
                      const struct qn_tnode *n)
{
    for (size_t i = 0; i + 1 < n->items.n && rt->status == QN_OK; i += 2) {
        assign(rt, inner, n->items.at[i], qn_teval(rt, sc, n->items.at[i + 1]));
    }
}

// Statements whose body has variables of its own.
static enum qn_tflow exec_scoped(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    struct qn_tscope *inner = qn_tscope_new(rt, sc);
    if (inner == NULL) {
        return QN_FLOW_ON;
    }
    switch (n->kind) {
    case QN_TN_WITH:
        exec_with(rt, sc, inner, n);
        return qn_texec(rt, inner, &n->body);
    case QN_TN_GENERATION:
        return qn_texec(rt, inner, &n->body);
    case QN_TN_SETBLOCK: {
        struct qn_tv v = capture(rt, inner, &n->body);
        assign(rt, sc, n->a, qn_teval_filters(rt, inner, n->b, v));
        return QN_FLOW_ON;
    }
    default: { // QN_TN_FILTERBLOCK
        struct qn_tv v = capture(rt, inner, &n->body);
        qn_temit(rt, qn_tv_str(rt, qn_teval_filters(rt, inner, n->b, v)));
        return QN_FLOW_ON;
    }
    }
}

static enum qn_tflow exec_one(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n)
{
    switch (n->kind) {
    case QN_TN_DATA:
        qn_temit(rt, n->value.s);
        return QN_FLOW_ON;
    case QN_TN_OUTPUT:
        for (size_t i = 0; i < n->items.n && rt->status == QN_OK; i++) {
            struct qn_tv v = qn_teval(rt, sc, n->items.at[i]);
            qn_temit(rt, qn_tv_str(rt, v));
        }
        return QN_FLOW_ON;
    case QN_TN_FOR:
        exec_for(rt, sc, n, qn_teval(rt, sc, n->b), 0);
        return QN_FLOW_ON;
    case QN_TN_IF:
        return exec_if(rt, sc, n);
    case QN_TN_SET:
        assign(rt, sc, n->a, qn_teval(rt, sc, n->b));
        return QN_FLOW_ON;
    case QN_TN_MACRO:
        qn_tscope_set(rt, sc, n->macro->name, make_macro(rt, sc, n));
        return QN_FLOW_ON;
    case QN_TN_CALLBLOCK: {
        struct qn_tv caller = make_macro(rt, sc, n);
        qn_temit(rt, qn_tv_str(rt, qn_teval_call(rt, sc, n->a, caller)));
        return QN_FLOW_ON;
    }
    case QN_TN_BREAK:
        return QN_FLOW_BREAK;
    case QN_TN_CONTINUE:
        return QN_FLOW_CONTINUE;
    default:
        return exec_scoped(rt, sc, n);
    }
}

enum qn_tflow qn_texec(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnodes *body)
{
    enum qn_tflow flow = QN_FLOW_ON;
    if (++rt->n_levels > rt->max_levels) {
        qn_trt_fail(rt, QN_E_LIMIT, "evaluation nested deeper than %zu levels", rt->max_levels);
    }
    for (size_t i = 0; i < body->n && flow == QN_FLOW_ON && qn_trt_step(rt, 1); i++) {
        flow = exec_one(rt, sc, body->at[i]);
    }
    rt->n_levels--;
    return flow;
}
