#include <string.h>

#include "text/chat.h"
#include "text/tmpl_ast.h"
#include "text/tmpl_str.h"

// What a template's variables hold, as far as it matters here. Scopes are ignored: a name means
// the same everywhere, which real templates keep to.
enum {
    IS_MESSAGES = 1, ///< the conversation
    IS_MESSAGE = 2,  ///< one turn of it
    IS_CONTENT = 4   ///< a turn's content
};

#define MAX_NAMES 128
#define MAX_DEPTH 1000

struct known {
    const struct qn_tsym *name;
    unsigned is;
};

struct walk {
    struct known names[MAX_NAMES];
    size_t n_names;
    const struct qn_tmacrodef *macros[MAX_NAMES];
    size_t n_macros;
    bool changed;
    bool found;
    size_t depth;
};

static unsigned get(const struct walk *w, const struct qn_tsym *name)
{
    for (size_t i = 0; i < w->n_names; i++) {
        if (w->names[i].name == name) {
            return w->names[i].is;
        }
    }
    return qn_ts_is(name->s, "messages") ? IS_MESSAGES : 0;
}

static void learn(struct walk *w, const struct qn_tnode *target, unsigned is)
{
    if (target == NULL || target->kind != QN_TN_NAME || is == 0) {
        return;
    }
    for (size_t i = 0; i < w->n_names; i++) {
        if (w->names[i].name == target->name) {
            w->changed |= (w->names[i].is | is) != w->names[i].is;
            w->names[i].is |= is;
            return;
        }
    }
    if (w->n_names < MAX_NAMES) {
        w->names[w->n_names++] = (struct known){.name = target->name, .is = is};
        w->changed = true;
    }
}

static bool is_content_key(const struct qn_tnode *key)
{
    return key != NULL && key->kind == QN_TN_CONST && key->value.kind == QN_TV_STR &&
           qn_ts_is(key->value.s, "content");
}

static unsigned classify(const struct walk *w, const struct qn_tnode *n, size_t depth)
{
    if (n == NULL || depth > MAX_DEPTH) {
        return 0;
    }
    unsigned of;
    switch (n->kind) {
    case QN_TN_NAME:
        return get(w, n->name);
    case QN_TN_FILTER:
        return classify(w, n->a, depth + 1) & IS_MESSAGES;
    case QN_TN_COND:
        return classify(w, n->a, depth + 1) | classify(w, n->c, depth + 1);
    case QN_TN_OR:
    case QN_TN_BINARY:
        return (classify(w, n->a, depth + 1) | classify(w, n->b, depth + 1)) &
               (n->kind == QN_TN_OR ? ~0u : IS_MESSAGES);
    case QN_TN_ATTR:
        of = classify(w, n->a, depth + 1);
        return (of & IS_MESSAGE) != 0 && qn_ts_is(n->name->s, "content") ? IS_CONTENT : 0;
    case QN_TN_ITEM:
        of = classify(w, n->a, depth + 1);
        if (n->b->kind == QN_TN_SLICE) {
            return of & IS_MESSAGES;
        }
        return ((of & IS_MESSAGE) != 0 && is_content_key(n->b) ? IS_CONTENT : 0) |
               ((of & IS_MESSAGES) != 0 ? IS_MESSAGE : 0);
    case QN_TN_CALL: // message.get("content")
        if (n->a->kind == QN_TN_ATTR && qn_ts_is(n->a->name->s, "get") && n->args != NULL &&
            n->args->pos.n > 0 && is_content_key(n->args->pos.at[0]) &&
            (classify(w, n->a->a, depth + 1) & IS_MESSAGE) != 0) {
            return IS_CONTENT;
        }
        return 0;
    default:
        return 0;
    }
}

static void learn_param(struct walk *w, const struct qn_tsym *param, const struct qn_tnode *value)
{
    const struct qn_tnode target = {.kind = QN_TN_NAME, .name = param};
    learn(w, &target, classify(w, value, 0));
}

static void learn_call(struct walk *w, const struct qn_tnode *call)
{
    if (call->a->kind != QN_TN_NAME || call->args == NULL) {
        return;
    }
    for (size_t i = 0; i < w->n_macros; i++) {
        const struct qn_tmacrodef *m = w->macros[i];
        if (m->name != call->a->name) {
            continue;
        }
        for (size_t j = 0; j < m->n_params && j < call->args->pos.n; j++) {
            learn_param(w, m->params[j], call->args->pos.at[j]);
        }
        for (size_t k = 0; k < call->args->kw.n; k++) {
            learn_param(w, call->args->kw_names[k], call->args->kw.at[k]);
        }
    }
}

static void visit(struct walk *w, const struct qn_tnode *n);

static void visit_all(struct walk *w, const struct qn_tnodes *list)
{
    for (size_t i = 0; i < list->n; i++) {
        visit(w, list->at[i]);
    }
}

static void visit(struct walk *w, const struct qn_tnode *n)
{
    if (n == NULL || w->depth > MAX_DEPTH) {
        return;
    }
    w->depth++;
    if (n->kind == QN_TN_SET) {
        learn(w, n->a, classify(w, n->b, 0));
    } else if (n->kind == QN_TN_FOR) {
        unsigned is = classify(w, n->b, 0);
        w->found |= (is & IS_CONTENT) != 0;
        learn(w, n->a, (is & IS_MESSAGES) != 0 ? IS_MESSAGE : 0);
    } else if (n->kind == QN_TN_CALL) {
        learn_call(w, n);
    } else if (n->kind == QN_TN_MACRO) {
        bool known = false;
        for (size_t i = 0; i < w->n_macros; i++) {
            known |= w->macros[i] == n->macro;
        }
        if (!known && w->n_macros < MAX_NAMES) {
            w->macros[w->n_macros++] = n->macro;
            w->changed = true;
        }
    }
    visit(w, n->a);
    visit(w, n->b);
    visit(w, n->c);
    visit_all(w, &n->items);
    visit_all(w, &n->body);
    visit_all(w, &n->other);
    if (n->args != NULL) {
        visit_all(w, &n->args->pos);
        visit_all(w, &n->args->kw);
    }
    w->depth--;
}

bool qn_tmpl_find_parts(const struct qn_tmpl *t)
{
    struct walk w = {0};
    // A name may get its meaning behind its first use; a few passes settle every real template.
    for (int pass = 0; pass < 8 && !w.found; pass++) {
        w.changed = false;
        visit_all(&w, &t->body);
        if (!w.changed) {
            break;
        }
    }
    return w.found;
}

bool qn_tmpl_wants_parts(const struct qn_tmpl *t)
{
    return t->wants_parts;
}
