#include "text/tmpl_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "text/tmpl_rt.h"

void qn_tp_fail(struct qn_tparser *p, enum qn_status code, size_t pos, const char *fmt, ...)
{
    if (p->status != QN_OK) {
        return;
    }
    size_t line, col;
    qn_tmpl_where(p->t, pos, &line, &col);
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    p->status = qn_fail(p->err, code, "chat template line %zu column %zu: %s", line, col, msg);
    p->cur.type = QN_TT_ERROR;
}

static struct qn_ttok read_token(struct qn_tparser *p)
{
    struct qn_ttok t = qn_tlex_next(&p->lx);
    if (t.type == QN_TT_ERROR) {
        qn_tp_fail(p, p->lx.status, p->lx.err_pos, "%s", p->lx.err);
    }
    return t;
}

void qn_tp_advance(struct qn_tparser *p)
{
    if (p->status != QN_OK) {
        p->cur.type = QN_TT_ERROR;
        return;
    }
    struct qn_ttok t = p->has_ahead ? p->ahead : read_token(p);
    p->has_ahead = false;
    if (p->status == QN_OK) {
        p->cur = t;
    }
}

enum qn_tt qn_tp_ahead(struct qn_tparser *p, struct qn_ttok *out)
{
    if (!p->has_ahead && p->status == QN_OK) {
        p->ahead = read_token(p);
        p->has_ahead = true;
    }
    if (p->status != QN_OK) {
        p->ahead.type = QN_TT_ERROR;
    }
    if (out != NULL) {
        *out = p->ahead;
    }
    return p->ahead.type;
}

bool qn_tp_is_name(const struct qn_ttok *t, const char *name)
{
    size_t n = strlen(name);
    return t->type == QN_TT_NAME && t->n == n && memcmp(t->p, name, n) == 0;
}

bool qn_tp_skip_name(struct qn_tparser *p, const char *name)
{
    if (!qn_tp_is_name(&p->cur, name)) {
        return false;
    }
    qn_tp_advance(p);
    return true;
}

bool qn_tp_skip(struct qn_tparser *p, enum qn_tt type)
{
    if (p->cur.type != type) {
        return false;
    }
    qn_tp_advance(p);
    return true;
}

static void unexpected(struct qn_tparser *p, const char *want)
{
    if (p->cur.type == QN_TT_NAME) {
        qn_tp_fail(p, QN_E_FORMAT, p->cur.pos, "found \"%.*s\", expected %s",
                   (int)(p->cur.n > 60 ? 60 : p->cur.n), p->cur.p, want);
    } else {
        qn_tp_fail(p, QN_E_FORMAT, p->cur.pos, "found %s, expected %s", qn_tt_name(p->cur.type),
                   want);
    }
}

bool qn_tp_expect(struct qn_tparser *p, enum qn_tt type)
{
    if (p->cur.type != type) {
        unexpected(p, qn_tt_name(type));
        return false;
    }
    qn_tp_advance(p);
    return p->status == QN_OK;
}

static void nomem(struct qn_tparser *p)
{
    qn_tp_fail(p, QN_E_NOMEM, p->cur.pos, "could not allocate the compiled template");
}

static const struct qn_ts *constant(struct qn_tparser *p, const char *s, size_t n)
{
    struct qn_ts *ts = qn_arena_alloc(p->t->arena, sizeof *ts);
    if (ts == NULL) {
        nomem(p);
        return qn_ts_empty();
    }
    *ts = (struct qn_ts){.p = s, .n = n, .n_cp = qn_tcp_count(s, n)};
    return ts;
}

const struct qn_tsym *qn_tp_sym(struct qn_tparser *p, const char *s, size_t n)
{
    struct qn_tsym **bucket = &p->t->syms[qn_hash64(s, n, 0) % QN_TSYM_BUCKETS];
    for (const struct qn_tsym *sym = *bucket; sym != NULL; sym = sym->next) {
        if (sym->s->n == n && memcmp(sym->s->p, s, n) == 0) {
            return sym;
        }
    }
    struct qn_tsym *sym = qn_arena_alloc(p->t->arena, sizeof *sym);
    if (sym == NULL) {
        nomem(p);
        return NULL;
    }
    sym->s = constant(p, s, n);
    sym->next = *bucket;
    *bucket = sym;
    return sym;
}

const struct qn_tsym *qn_tp_expect_sym(struct qn_tparser *p)
{
    if (p->cur.type != QN_TT_NAME) {
        unexpected(p, "a name");
        return NULL;
    }
    const struct qn_tsym *sym = qn_tp_sym(p, p->cur.p, p->cur.n);
    qn_tp_advance(p);
    return sym;
}

struct qn_tnode *qn_tp_node(struct qn_tparser *p, enum qn_tn_kind kind, size_t pos)
{
    if (p->status != QN_OK) {
        return NULL;
    }
    struct qn_tnode *n = qn_arena_alloc(p->t->arena, sizeof *n);
    if (n == NULL) {
        nomem(p);
        return NULL;
    }
    n->kind = kind;
    n->pos = (uint32_t)pos;
    return n;
}

void qn_tp_push(struct qn_tparser *p, struct qn_tnodes *list, struct qn_tnode *n)
{
    if (p->status != QN_OK) {
        return;
    }
    if (list->n == list->cap) {
        size_t cap = list->cap == 0 ? 4 : list->cap * 2;
        struct qn_tnode **at = qn_arena_array(p->t->arena, cap, sizeof *at);
        if (at == NULL) {
            nomem(p);
            return;
        }
        if (list->n > 0) {
            memcpy(at, list->at, list->n * sizeof *at);
        }
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = n;
}

bool qn_tp_enter(struct qn_tparser *p)
{
    if (++p->depth > QN_TPARSE_MAX_DEPTH) {
        qn_tp_fail(p, QN_E_LIMIT, p->cur.pos, "nested deeper than %d levels", QN_TPARSE_MAX_DEPTH);
        return false;
    }
    return true;
}

void qn_tp_leave(struct qn_tparser *p)
{
    p->depth--;
}

static struct qn_tnode *unary_node(struct qn_tparser *p, enum qn_tn_kind kind, size_t pos,
                                   struct qn_tnode *a)
{
    struct qn_tnode *n = qn_tp_node(p, kind, pos);
    if (n != NULL) {
        n->a = a;
    }
    return n;
}

static struct qn_tnode *binary_node(struct qn_tparser *p, enum qn_tn_kind kind, enum qn_tn_op op,
                                    size_t pos, struct qn_tnode *a, struct qn_tnode *b)
{
    struct qn_tnode *n = unary_node(p, kind, pos, a);
    if (n != NULL) {
        n->op = op;
        n->b = b;
    }
    return n;
}

static struct qn_tnode *const_node(struct qn_tparser *p, size_t pos, struct qn_tv v)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_CONST, pos);
    if (n != NULL) {
        n->value = v;
    }
    return n;
}

// varargs, kwargs and caller exist only in macros that mention them.
static void note_name(struct qn_tparser *p, const struct qn_tsym *name)
{
    for (struct qn_tpmacro *m = p->macros; m != NULL; m = m->outer) {
        m->def->uses_varargs |= name == p->t->names.varargs;
        m->def->uses_kwargs |= name == p->t->names.kwargs;
        m->def->uses_caller |= name == p->t->names.caller;
    }
}

static struct qn_tnode *parse_string(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    const char *s = p->cur.p;
    size_t n = p->cur.n;
    qn_tp_advance(p);
    while (p->cur.type == QN_TT_STRING) { // adjacent literals join, as in Python
        size_t total = n + p->cur.n;
        char *both = qn_arena_alloc(p->t->arena, total + 1);
        if (both == NULL) {
            nomem(p);
            return NULL;
        }
        memcpy(both, s, n);
        memcpy(both + n, p->cur.p, p->cur.n);
        s = both;
        n = total;
        qn_tp_advance(p);
    }
    return const_node(p, pos, qn_tv_of_ts(constant(p, s, n)));
}

static struct qn_tnode *parse_name(struct qn_tparser *p, bool with_ns)
{
    struct qn_ttok t = p->cur;
    qn_tp_advance(p);
    if (qn_tp_is_name(&t, "true") || qn_tp_is_name(&t, "True")) {
        return const_node(p, t.pos, qn_tv_bool(true));
    }
    if (qn_tp_is_name(&t, "false") || qn_tp_is_name(&t, "False")) {
        return const_node(p, t.pos, qn_tv_bool(false));
    }
    if (qn_tp_is_name(&t, "none") || qn_tp_is_name(&t, "None")) {
        return const_node(p, t.pos, qn_tv_none());
    }
    bool ns = with_ns && qn_tp_skip(p, QN_TT_DOT);
    struct qn_tnode *n = qn_tp_node(p, ns ? QN_TN_NSREF : QN_TN_NAME, t.pos);
    if (n != NULL) {
        n->name = qn_tp_sym(p, t.p, t.n);
        n->name2 = ns ? qn_tp_expect_sym(p) : NULL;
    }
    return n;
}

static struct qn_tnode *parse_list(struct qn_tparser *p)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_LIST, p->cur.pos);
    qn_tp_advance(p);
    while (p->status == QN_OK && p->cur.type != QN_TT_RBRACKET) {
        if (n->items.n > 0 && !qn_tp_expect(p, QN_TT_COMMA)) {
            return NULL;
        }
        if (p->cur.type == QN_TT_RBRACKET) {
            break;
        }
        qn_tp_push(p, &n->items, qn_tp_expr(p, true));
    }
    return qn_tp_expect(p, QN_TT_RBRACKET) ? n : NULL;
}

static struct qn_tnode *parse_dict(struct qn_tparser *p)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_DICT, p->cur.pos);
    qn_tp_advance(p);
    while (p->status == QN_OK && p->cur.type != QN_TT_RBRACE) {
        if (n->items.n > 0 && !qn_tp_expect(p, QN_TT_COMMA)) {
            return NULL;
        }
        if (p->cur.type == QN_TT_RBRACE) {
            break;
        }
        qn_tp_push(p, &n->items, qn_tp_expr(p, true));
        qn_tp_expect(p, QN_TT_COLON);
        qn_tp_push(p, &n->items, qn_tp_expr(p, true));
    }
    return qn_tp_expect(p, QN_TT_RBRACE) ? n : NULL;
}

enum tuple_mode {
    TUPLE_EXPR,
    TUPLE_EXPR_NO_COND,
    TUPLE_TARGET,
    TUPLE_TARGET_NS
};

static struct qn_tnode *parse_primary(struct qn_tparser *p, bool with_ns);

static struct qn_tnode *parse_tuple(struct qn_tparser *p, enum tuple_mode mode,
                                    const char *end_name, bool brackets)
{
    size_t pos = p->cur.pos;
    struct qn_tnodes items = {0};
    bool is_tuple = false;
    while (p->status == QN_OK) {
        if (items.n > 0 && !qn_tp_expect(p, QN_TT_COMMA)) {
            return NULL;
        }
        enum qn_tt t = p->cur.type;
        if (t == QN_TT_VAR_END || t == QN_TT_BLOCK_END || t == QN_TT_RPAREN ||
            (end_name != NULL && qn_tp_is_name(&p->cur, end_name))) {
            break;
        }
        struct qn_tnode *item = mode == TUPLE_TARGET      ? parse_primary(p, false)
                                : mode == TUPLE_TARGET_NS ? parse_primary(p, true)
                                                          : qn_tp_expr(p, mode == TUPLE_EXPR);
        qn_tp_push(p, &items, item);
        if (p->cur.type != QN_TT_COMMA) {
            break;
        }
        is_tuple = true;
    }
    if (p->status != QN_OK) {
        return NULL;
    }
    if (!is_tuple && items.n > 0) {
        return items.at[0];
    }
    if (!is_tuple && !brackets) {
        unexpected(p, "an expression");
        return NULL;
    }
    struct qn_tnode *n = qn_tp_node(p, QN_TN_TUPLE, pos);
    if (n != NULL) {
        n->items = items;
    }
    return n;
}

struct qn_tnode *qn_tp_tuple(struct qn_tparser *p, bool with_cond, const char *end_name)
{
    return parse_tuple(p, with_cond ? TUPLE_EXPR : TUPLE_EXPR_NO_COND, end_name, false);
}

static bool check_target(struct qn_tparser *p, const struct qn_tnode *n)
{
    if (n->kind == QN_TN_TUPLE) {
        for (size_t i = 0; i < n->items.n; i++) {
            if (!check_target(p, n->items.at[i])) {
                return false;
            }
        }
        return true;
    }
    if (n->kind != QN_TN_NAME && n->kind != QN_TN_NSREF) {
        qn_tp_fail(p, QN_E_FORMAT, n->pos, "cannot assign to this expression, expected a name");
        return false;
    }
    return true;
}

struct qn_tnode *qn_tp_target(struct qn_tparser *p, bool with_ns, const char *end_name)
{
    struct qn_tnode *n = parse_tuple(p, with_ns ? TUPLE_TARGET_NS : TUPLE_TARGET, end_name, false);
    return n != NULL && check_target(p, n) ? n : NULL;
}

static struct qn_tnode *parse_primary(struct qn_tparser *p, bool with_ns)
{
    if (!qn_tp_enter(p)) {
        return NULL;
    }
    struct qn_tnode *n = NULL;
    struct qn_ttok t = p->cur;
    switch (t.type) {
    case QN_TT_NAME:
        n = parse_name(p, with_ns);
        if (n != NULL && n->kind == QN_TN_NAME) {
            note_name(p, n->name);
        }
        break;
    case QN_TT_STRING:
        n = parse_string(p);
        break;
    case QN_TT_INT:
        qn_tp_advance(p);
        n = const_node(p, t.pos, qn_tv_int(t.i));
        break;
    case QN_TT_FLOAT:
        qn_tp_advance(p);
        n = const_node(p, t.pos, qn_tv_float(t.f));
        break;
    case QN_TT_LPAREN:
        qn_tp_advance(p);
        n = parse_tuple(p, TUPLE_EXPR, NULL, true);
        qn_tp_expect(p, QN_TT_RPAREN);
        break;
    case QN_TT_LBRACKET:
        n = parse_list(p);
        break;
    case QN_TT_LBRACE:
        n = parse_dict(p);
        break;
    default:
        unexpected(p, "an expression");
    }
    qn_tp_leave(p);
    return n;
}

static struct qn_tcallargs *parse_args(struct qn_tparser *p)
{
    struct qn_tcallargs *a = qn_arena_alloc(p->t->arena, sizeof *a);
    if (a == NULL) {
        nomem(p);
        return NULL;
    }
    size_t cap = 0;
    size_t pos = p->cur.pos;
    bool bad = false;
    qn_tp_expect(p, QN_TT_LPAREN);
    for (bool first = true; p->status == QN_OK && p->cur.type != QN_TT_RPAREN; first = false) {
        if (!first && (!qn_tp_expect(p, QN_TT_COMMA) || p->cur.type == QN_TT_RPAREN)) {
            break; // a trailing comma is fine
        }
        if (qn_tp_skip(p, QN_TT_MUL)) {
            bad |= a->dyn_pos != NULL || a->dyn_kw != NULL;
            a->dyn_pos = qn_tp_expr(p, true);
        } else if (qn_tp_skip(p, QN_TT_POW)) {
            bad |= a->dyn_kw != NULL;
            a->dyn_kw = qn_tp_expr(p, true);
        } else if (p->cur.type == QN_TT_NAME && qn_tp_ahead(p, NULL) == QN_TT_ASSIGN) {
            bad |= a->dyn_kw != NULL;
            const struct qn_tsym *name = qn_tp_expect_sym(p);
            qn_tp_advance(p);
            if (a->kw.n == cap) {
                cap = cap == 0 ? 4 : cap * 2;
                const struct qn_tsym **names = qn_arena_array(p->t->arena, cap, sizeof *names);
                if (names == NULL) {
                    nomem(p);
                    return NULL;
                }
                if (a->kw.n > 0) {
                    memcpy(names, a->kw_names, a->kw.n * sizeof *names);
                }
                a->kw_names = names;
            }
            for (size_t i = 0; i < a->kw.n; i++) {
                bad |= a->kw_names[i] == name;
            }
            a->kw_names[a->kw.n] = name;
            qn_tp_push(p, &a->kw, qn_tp_expr(p, true));
        } else {
            bad |= a->dyn_pos != NULL || a->dyn_kw != NULL || a->kw.n > 0;
            qn_tp_push(p, &a->pos, qn_tp_expr(p, true));
        }
        if (bad) {
            qn_tp_fail(p, QN_E_FORMAT, pos, "arguments out of order or given twice");
        }
    }
    return qn_tp_expect(p, QN_TT_RPAREN) ? a : NULL;
}

static struct qn_tnode *parse_call(struct qn_tparser *p, struct qn_tnode *callee)
{
    struct qn_tnode *n = unary_node(p, QN_TN_CALL, p->cur.pos, callee);
    struct qn_tcallargs *args = parse_args(p);
    if (n != NULL) {
        n->args = args;
    }
    return n;
}

static struct qn_tnode *parse_subscript(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *parts[3] = {NULL, NULL, NULL};
    if (p->cur.type != QN_TT_COLON) {
        parts[0] = qn_tp_expr(p, true);
        if (p->cur.type != QN_TT_COLON) {
            return parts[0];
        }
    }
    qn_tp_advance(p);
    for (size_t i = 1; i < 3; i++) {
        enum qn_tt t = p->cur.type;
        if (t != QN_TT_COLON && t != QN_TT_RBRACKET && t != QN_TT_COMMA) {
            parts[i] = qn_tp_expr(p, true);
        }
        if (i == 1 && !qn_tp_skip(p, QN_TT_COLON)) {
            break;
        }
    }
    struct qn_tnode *n = binary_node(p, QN_TN_SLICE, QN_OP_NONE, pos, parts[0], parts[1]);
    if (n != NULL) {
        n->c = parts[2];
    }
    return n;
}

static struct qn_tnode *parse_access(struct qn_tparser *p, struct qn_tnode *of)
{
    size_t pos = p->cur.pos;
    if (qn_tp_skip(p, QN_TT_DOT)) {
        if (p->cur.type == QN_TT_INT) {
            struct qn_tnode *index = const_node(p, p->cur.pos, qn_tv_int(p->cur.i));
            qn_tp_advance(p);
            return binary_node(p, QN_TN_ITEM, QN_OP_NONE, pos, of, index);
        }
        struct qn_tnode *n = unary_node(p, QN_TN_ATTR, pos, of);
        if (n != NULL) {
            n->name = qn_tp_expect_sym(p);
        }
        return n;
    }
    qn_tp_advance(p);
    struct qn_tnode *first = parse_subscript(p);
    if (p->cur.type == QN_TT_COMMA) {
        struct qn_tnode *tuple = qn_tp_node(p, QN_TN_TUPLE, pos);
        while (p->status == QN_OK) {
            if (first != NULL && first->kind == QN_TN_SLICE) {
                qn_tp_fail(p, QN_E_UNSUPPORTED, first->pos, "a slice inside a tuple of subscripts");
                return NULL;
            }
            qn_tp_push(p, &tuple->items, first);
            if (!qn_tp_skip(p, QN_TT_COMMA)) {
                break;
            }
            first = parse_subscript(p);
        }
        first = tuple;
    }
    qn_tp_expect(p, QN_TT_RBRACKET);
    return binary_node(p, QN_TN_ITEM, QN_OP_NONE, pos, of, first);
}

static struct qn_tnode *parse_postfix(struct qn_tparser *p, struct qn_tnode *n)
{
    while (p->status == QN_OK) {
        enum qn_tt t = p->cur.type;
        if (t == QN_TT_DOT || t == QN_TT_LBRACKET) {
            n = parse_access(p, n);
        } else if (t == QN_TT_LPAREN) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

// Jinja2 refuses unknown filters and tests when it compiles, but not inside an if.
static void note_unknown(struct qn_tparser *p, bool unknown, const struct qn_tsym *name,
                         const char *kind, size_t pos)
{
    if (unknown && !p->soft && p->unknown == NULL) {
        p->unknown = name;
        p->unknown_kind = kind;
        p->unknown_pos = pos;
    }
}

void qn_tp_check_unknown(struct qn_tparser *p)
{
    if (p->unknown != NULL) {
        const struct qn_ts *s = p->unknown->s;
        qn_tp_fail(p, QN_E_UNSUPPORTED, p->unknown_pos, "%s \"%.*s\": there is no such %s",
                   p->unknown_kind, (int)(s->n > 60 ? 60 : s->n), s->p, p->unknown_kind);
    }
}

// The name of a filter or test; dotted names belong to extensions, which there are none of.
static const struct qn_tsym *parse_function_name(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    const struct qn_tsym *name = qn_tp_expect_sym(p);
    if (p->cur.type == QN_TT_DOT) {
        qn_tp_fail(p, QN_E_UNSUPPORTED, pos, "dotted filter and test names are not supported");
    }
    return name;
}

struct qn_tnode *qn_tp_filters(struct qn_tparser *p, struct qn_tnode *in, bool start)
{
    while (start || p->cur.type == QN_TT_PIPE) {
        if (!start) {
            qn_tp_advance(p);
        }
        start = false;
        size_t pos = p->cur.pos;
        const struct qn_tsym *name = parse_function_name(p);
        struct qn_tnode *n = unary_node(p, QN_TN_FILTER, pos, in);
        if (n == NULL || name == NULL) {
            return NULL;
        }
        n->name = name;
        n->fn = qn_tfilter_find(name->s);
        note_unknown(p, n->fn == NULL, name, "filter", pos);
        n->args = p->cur.type == QN_TT_LPAREN ? parse_args(p) : NULL;
        in = n;
    }
    return in;
}

static struct qn_tnode *parse_test(struct qn_tparser *p, struct qn_tnode *in)
{
    qn_tp_advance(p); // is
    size_t pos = p->cur.pos;
    bool negated = qn_tp_skip_name(p, "not");
    const struct qn_tsym *name = parse_function_name(p);
    struct qn_tnode *n = unary_node(p, QN_TN_TEST, pos, in);
    if (n == NULL || name == NULL) {
        return NULL;
    }
    n->name = name;
    n->fn = qn_ttest_find(name->s);
    note_unknown(p, n->fn == NULL, name, "test", pos);
    enum qn_tt t = p->cur.type;
    if (t == QN_TT_LPAREN) {
        n->args = parse_args(p);
    } else if ((t == QN_TT_NAME && !qn_tp_is_name(&p->cur, "else") &&
                !qn_tp_is_name(&p->cur, "or") && !qn_tp_is_name(&p->cur, "and")) ||
               t == QN_TT_STRING || t == QN_TT_INT || t == QN_TT_FLOAT || t == QN_TT_LBRACKET ||
               t == QN_TT_LBRACE) {
        if (qn_tp_is_name(&p->cur, "is")) {
            qn_tp_fail(p, QN_E_FORMAT, p->cur.pos, "tests with \"is\" cannot be chained");
        }
        n->args = qn_arena_alloc(p->t->arena, sizeof *n->args);
        if (n->args == NULL) {
            nomem(p);
            return NULL;
        }
        qn_tp_push(p, &n->args->pos, parse_postfix(p, parse_primary(p, false)));
    }
    return negated ? unary_node(p, QN_TN_NOT, pos, n) : n;
}

static struct qn_tnode *parse_unary(struct qn_tparser *p, bool with_filter)
{
    if (!qn_tp_enter(p)) {
        return NULL;
    }
    size_t pos = p->cur.pos;
    struct qn_tnode *n;
    if (qn_tp_skip(p, QN_TT_SUB)) {
        n = unary_node(p, QN_TN_NEG, pos, parse_unary(p, false));
    } else if (qn_tp_skip(p, QN_TT_ADD)) {
        n = unary_node(p, QN_TN_POS, pos, parse_unary(p, false));
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    while (with_filter && p->status == QN_OK) {
        if (p->cur.type == QN_TT_PIPE) {
            n = qn_tp_filters(p, n, false);
        } else if (qn_tp_is_name(&p->cur, "is")) {
            n = parse_test(p, n);
        } else if (p->cur.type == QN_TT_LPAREN) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    qn_tp_leave(p);
    return n;
}

static struct qn_tnode *parse_pow(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *n = parse_unary(p, true);
    while (qn_tp_skip(p, QN_TT_POW)) { // left to right, unlike Python
        n = binary_node(p, QN_TN_BINARY, QN_OP_POW, pos, n, parse_unary(p, true));
    }
    return n;
}

static enum qn_tn_op product_op(enum qn_tt t)
{
    return t == QN_TT_MUL        ? QN_OP_MUL
           : t == QN_TT_DIV      ? QN_OP_DIV
           : t == QN_TT_FLOORDIV ? QN_OP_FLOORDIV
           : t == QN_TT_MOD      ? QN_OP_MOD
                                 : QN_OP_NONE;
}

static struct qn_tnode *parse_product(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *n = parse_pow(p);
    for (enum qn_tn_op op; (op = product_op(p->cur.type)) != QN_OP_NONE;) {
        qn_tp_advance(p);
        n = binary_node(p, QN_TN_BINARY, op, pos, n, parse_pow(p));
    }
    return n;
}

static struct qn_tnode *parse_concat(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *first = parse_product(p);
    if (p->cur.type != QN_TT_TILDE) {
        return first;
    }
    struct qn_tnode *n = qn_tp_node(p, QN_TN_CONCAT, pos);
    if (n != NULL) {
        qn_tp_push(p, &n->items, first);
        while (qn_tp_skip(p, QN_TT_TILDE)) {
            qn_tp_push(p, &n->items, parse_product(p));
        }
    }
    return n;
}

static struct qn_tnode *parse_sum(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *n = parse_concat(p);
    while (p->cur.type == QN_TT_ADD || p->cur.type == QN_TT_SUB) {
        enum qn_tn_op op = p->cur.type == QN_TT_ADD ? QN_OP_ADD : QN_OP_SUB;
        qn_tp_advance(p);
        n = binary_node(p, QN_TN_BINARY, op, pos, n, parse_concat(p));
    }
    return n;
}

static enum qn_tn_op compare_op(struct qn_tparser *p)
{
    switch (p->cur.type) {
    case QN_TT_EQ:
        return QN_OP_EQ;
    case QN_TT_NE:
        return QN_OP_NE;
    case QN_TT_LT:
        return QN_OP_LT;
    case QN_TT_LE:
        return QN_OP_LE;
    case QN_TT_GT:
        return QN_OP_GT;
    case QN_TT_GE:
        return QN_OP_GE;
    default:
        break;
    }
    if (qn_tp_is_name(&p->cur, "in")) {
        return QN_OP_IN;
    }
    struct qn_ttok next;
    if (qn_tp_is_name(&p->cur, "not") && qn_tp_ahead(p, &next) == QN_TT_NAME &&
        qn_tp_is_name(&next, "in")) {
        return QN_OP_NOTIN;
    }
    return QN_OP_NONE;
}

static struct qn_tnode *parse_compare(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *first = parse_sum(p);
    struct qn_tnode *n = NULL;
    for (enum qn_tn_op op; (op = compare_op(p)) != QN_OP_NONE;) {
        size_t at = p->cur.pos;
        qn_tp_advance(p);
        if (op == QN_OP_NOTIN) {
            qn_tp_advance(p);
        }
        struct qn_tnode *operand = unary_node(p, QN_TN_OPERAND, at, parse_sum(p));
        n = n != NULL ? n : unary_node(p, QN_TN_COMPARE, pos, first);
        if (operand == NULL || n == NULL) {
            return NULL;
        }
        operand->op = op;
        qn_tp_push(p, &n->items, operand);
    }
    return n != NULL ? n : first;
}

static struct qn_tnode *parse_not(struct qn_tparser *p)
{
    if (!qn_tp_enter(p)) {
        return NULL;
    }
    size_t pos = p->cur.pos;
    struct qn_tnode *n =
        qn_tp_skip_name(p, "not") ? unary_node(p, QN_TN_NOT, pos, parse_not(p)) : parse_compare(p);
    qn_tp_leave(p);
    return n;
}

static struct qn_tnode *parse_and(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *n = parse_not(p);
    while (qn_tp_skip_name(p, "and")) {
        n = binary_node(p, QN_TN_AND, QN_OP_NONE, pos, n, parse_not(p));
    }
    return n;
}

static struct qn_tnode *parse_or(struct qn_tparser *p)
{
    size_t pos = p->cur.pos;
    struct qn_tnode *n = parse_and(p);
    while (qn_tp_skip_name(p, "or")) {
        n = binary_node(p, QN_TN_OR, QN_OP_NONE, pos, n, parse_and(p));
    }
    return n;
}

struct qn_tnode *qn_tp_expr(struct qn_tparser *p, bool with_cond)
{
    if (!qn_tp_enter(p)) {
        return NULL;
    }
    size_t pos = p->cur.pos;
    struct qn_tnode *n = parse_or(p);
    bool soft = p->soft;
    while (with_cond && qn_tp_skip_name(p, "if")) {
        if (p->unknown != NULL && p->unknown_pos >= pos) {
            p->unknown = NULL;
        }
        p->soft = true;
        struct qn_tnode *test = parse_or(p);
        n = binary_node(p, QN_TN_COND, QN_OP_NONE, pos, n, test);
        if (n != NULL && qn_tp_skip_name(p, "else")) {
            n->c = qn_tp_expr(p, true);
        }
        p->soft = soft;
    }
    qn_tp_leave(p);
    return n;
}
