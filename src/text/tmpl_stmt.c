#include <string.h>

#include "text/tmpl_parse.h"
#include "text/tmpl_str.h"

static void body(struct qn_tparser *p, const char *const *ends, struct qn_tnodes *out)
{
    qn_tp_skip(p, QN_TT_COLON);
    qn_tp_expect(p, QN_TT_BLOCK_END);
    qn_tp_body(p, ends, out);
}

static bool is_end(const struct qn_ttok *t, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++) {
        if (qn_tp_is_name(t, *ends)) {
            return true;
        }
    }
    return false;
}

#define ENDS(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static struct qn_tnode *parse_for(struct qn_tparser *p, size_t pos)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_FOR, pos);
    if (n == NULL) {
        return NULL;
    }
    size_t closures = p->n_closures;
    bool soft = p->soft;
    p->soft = false;
    n->a = qn_tp_target(p, false, "in");
    if (!qn_tp_skip_name(p, "in")) {
        qn_tp_fail(p, QN_E_FORMAT, p->cur.pos, "for: expected \"in\" behind its names");
    }
    n->b = qn_tp_tuple(p, false, "recursive");
    if (qn_tp_skip_name(p, "if")) {
        n->c = qn_tp_expr(p, true);
    }
    n->flag = qn_tp_skip_name(p, "recursive");
    p->n_loops++;
    body(p, ENDS("endfor", "else"), &n->body);
    p->n_loops--;
    if (qn_tp_skip_name(p, "else")) {
        body(p, ENDS("endfor"), &n->other);
    }
    qn_tp_advance(p); // endfor
    p->soft = soft;
    n->closures = p->n_closures != closures;
    return n;
}

static struct qn_tnode *parse_if(struct qn_tparser *p, size_t pos)
{
    struct qn_tnode *first = qn_tp_node(p, QN_TN_IF, pos);
    bool soft = p->soft;
    p->soft = true;
    for (struct qn_tnode *n = first; n != NULL && p->status == QN_OK;) {
        n->a = qn_tp_tuple(p, false, NULL);
        body(p, ENDS("elif", "else", "endif"), &n->body);
        size_t at = p->cur.pos;
        if (qn_tp_skip_name(p, "elif")) {
            n = qn_tp_node(p, QN_TN_IF, at);
            qn_tp_push(p, &first->items, n);
            continue;
        }
        if (qn_tp_skip_name(p, "else")) {
            body(p, ENDS("endif"), &first->other);
        }
        qn_tp_advance(p); // endif
        break;
    }
    p->soft = soft;
    return first;
}

static struct qn_tnode *parse_set(struct qn_tparser *p, size_t pos)
{
    struct qn_tnode *target = qn_tp_target(p, true, NULL);
    if (qn_tp_skip(p, QN_TT_ASSIGN)) {
        struct qn_tnode *n = qn_tp_node(p, QN_TN_SET, pos);
        struct qn_tnode *value = qn_tp_tuple(p, true, NULL);
        if (n != NULL) {
            n->a = target;
            n->b = value;
        }
        return n;
    }
    struct qn_tnode *n = qn_tp_node(p, QN_TN_SETBLOCK, pos);
    if (n != NULL) {
        n->a = target;
        n->b = qn_tp_filters(p, NULL, false);
        body(p, ENDS("endset"), &n->body);
        qn_tp_advance(p);
    }
    return n;
}

static struct qn_tnode *parse_with(struct qn_tparser *p, size_t pos)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_WITH, pos);
    while (n != NULL && p->status == QN_OK && p->cur.type != QN_TT_BLOCK_END) {
        if (n->items.n > 0) {
            qn_tp_expect(p, QN_TT_COMMA);
        }
        qn_tp_push(p, &n->items, qn_tp_target(p, false, NULL));
        qn_tp_expect(p, QN_TT_ASSIGN);
        qn_tp_push(p, &n->items, qn_tp_expr(p, true));
    }
    if (n != NULL) {
        body(p, ENDS("endwith"), &n->body);
        qn_tp_advance(p);
    }
    return n;
}

static bool add_param(struct qn_tparser *p, struct qn_tmacrodef *m, size_t *cap,
                      const struct qn_tsym *name, struct qn_tnode *value)
{
    if (m->n_params == *cap) {
        size_t more = *cap == 0 ? 4 : *cap * 2;
        const struct qn_tsym **params = qn_arena_array(p->t->arena, more, sizeof *params);
        struct qn_tnode **defaults = qn_arena_array(p->t->arena, more, sizeof *defaults);
        if (params == NULL || defaults == NULL) {
            qn_tp_fail(p, QN_E_NOMEM, p->cur.pos, "could not allocate the compiled template");
            return false;
        }
        if (m->n_params > 0) {
            memcpy(params, m->params, m->n_params * sizeof *params);
            memcpy(defaults, m->defaults, m->n_params * sizeof *defaults);
        }
        m->params = params;
        m->defaults = defaults;
        *cap = more;
    }
    m->params[m->n_params] = name;
    m->defaults[m->n_params] = value;
    m->n_params++;
    return true;
}

static void parse_signature(struct qn_tparser *p, struct qn_tmacrodef *m)
{
    size_t cap = 0;
    bool defaults = false;
    qn_tp_expect(p, QN_TT_LPAREN);
    while (p->status == QN_OK && p->cur.type != QN_TT_RPAREN) {
        if (m->n_params > 0) {
            qn_tp_expect(p, QN_TT_COMMA);
        }
        size_t pos = p->cur.pos;
        const struct qn_tsym *name = qn_tp_expect_sym(p);
        struct qn_tnode *value = NULL;
        if (qn_tp_skip(p, QN_TT_ASSIGN)) {
            value = qn_tp_expr(p, true);
            defaults = true;
        } else if (defaults) {
            qn_tp_fail(p, QN_E_FORMAT, pos, "parameter without default behind one with a default");
        }
        for (size_t i = 0; i < m->n_params; i++) {
            if (m->params[i] == name) {
                qn_tp_fail(p, QN_E_FORMAT, pos, "parameter given twice");
            }
        }
        if (p->status != QN_OK || !add_param(p, m, &cap, name, value)) {
            return;
        }
    }
    qn_tp_expect(p, QN_TT_RPAREN);
}

// Signature and body of a macro or of a call block.
static void parse_macro_def(struct qn_tparser *p, struct qn_tnode *n, bool is_call)
{
    struct qn_tmacrodef *m = qn_arena_alloc(p->t->arena, sizeof *m);
    if (m == NULL) {
        qn_tp_fail(p, QN_E_NOMEM, n->pos, "could not allocate the compiled template");
        return;
    }
    struct qn_tpmacro frame = {.def = m, .outer = p->macros};
    size_t loops = p->n_loops;
    bool soft = p->soft;
    p->n_closures++;
    n->macro = m;
    m->name = is_call ? NULL : qn_tp_expect_sym(p);
    p->macros = &frame;
    p->n_loops = 0;
    p->soft = false;
    if (!is_call || p->cur.type == QN_TT_LPAREN) {
        parse_signature(p, m);
    }
    if (is_call) {
        p->macros = frame.outer; // the call itself belongs outside
        size_t pos = p->cur.pos;
        n->a = qn_tp_expr(p, true);
        if (n->a != NULL && n->a->kind != QN_TN_CALL) {
            qn_tp_fail(p, QN_E_FORMAT, pos, "call block: expected a call");
        }
        p->macros = &frame;
    }
    body(p, is_call ? ENDS("endcall") : ENDS("endmacro"), &n->body);
    qn_tp_advance(p);
    for (size_t i = 0; i < m->n_params && m->uses_caller; i++) {
        if (m->params[i] == p->t->names.caller && m->defaults[i] == NULL) {
            qn_tp_fail(p, QN_E_FORMAT, n->pos, "parameter \"caller\" needs a default");
        }
    }
    p->macros = frame.outer;
    p->n_loops = loops;
    p->soft = soft;
}

static struct qn_tnode *parse_macro(struct qn_tparser *p, size_t pos, bool is_call)
{
    struct qn_tnode *n = qn_tp_node(p, is_call ? QN_TN_CALLBLOCK : QN_TN_MACRO, pos);
    if (n != NULL) {
        parse_macro_def(p, n, is_call);
    }
    return n;
}

static struct qn_tnode *parse_filter_block(struct qn_tparser *p, size_t pos)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_FILTERBLOCK, pos);
    if (n != NULL) {
        n->b = qn_tp_filters(p, NULL, true);
        body(p, ENDS("endfilter"), &n->body);
        qn_tp_advance(p);
    }
    return n;
}

static struct qn_tnode *parse_generation(struct qn_tparser *p, size_t pos)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_GENERATION, pos);
    size_t loops = p->n_loops;
    bool soft = p->soft;
    if (n != NULL) {
        p->n_closures++;
        p->n_loops = 0; // the reference runs the body as a function: break cannot leave it
        p->soft = false;
        body(p, ENDS("endgeneration"), &n->body);
        qn_tp_advance(p);
    }
    p->n_loops = loops;
    p->soft = soft;
    return n;
}

static struct qn_tnode *parse_print(struct qn_tparser *p, size_t pos)
{
    struct qn_tnode *n = qn_tp_node(p, QN_TN_OUTPUT, pos);
    while (n != NULL && p->status == QN_OK && p->cur.type != QN_TT_BLOCK_END) {
        if (n->items.n > 0) {
            qn_tp_expect(p, QN_TT_COMMA);
        }
        qn_tp_push(p, &n->items, qn_tp_expr(p, true));
    }
    return n;
}

static struct qn_tnode *parse_loop_control(struct qn_tparser *p, size_t pos, enum qn_tn_kind kind)
{
    if (p->n_loops == 0) {
        qn_tp_fail(p, QN_E_FORMAT, pos, "%s outside of a for statement",
                   kind == QN_TN_BREAK ? "break" : "continue");
    }
    return qn_tp_node(p, kind, pos);
}

static struct qn_tnode *unknown_statement(struct qn_tparser *p, const struct qn_ttok *t,
                                          const char *const *ends)
{
    static const char *const refused[] = {"include",    "import", "from",  "extends", "block",
                                          "autoescape", "do",     "trans", "debug"};
    int n = (int)(t->n > 60 ? 60 : t->n);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (qn_tp_is_name(t, refused[i])) {
            qn_tp_fail(p, QN_E_UNSUPPORTED, t->pos, "statement \"%.*s\" is not supported", n, t->p);
            return NULL;
        }
    }
    qn_tp_fail(p, QN_E_FORMAT, t->pos, "unknown statement \"%.*s\"%s%s%s", n, t->p,
               ends != NULL ? ", expected one with \"" : "", ends != NULL ? ends[0] : "",
               ends != NULL ? "\" at the end" : "");
    return NULL;
}

static struct qn_tnode *parse_statement(struct qn_tparser *p, const char *const *ends)
{
    struct qn_ttok t = p->cur;
    if (t.type != QN_TT_NAME) {
        qn_tp_fail(p, QN_E_FORMAT, t.pos, "found %s, expected a statement", qn_tt_name(t.type));
        return NULL;
    }
    qn_tp_advance(p);
    if (qn_tp_is_name(&t, "for")) {
        return parse_for(p, t.pos);
    }
    if (qn_tp_is_name(&t, "if")) {
        return parse_if(p, t.pos);
    }
    if (qn_tp_is_name(&t, "set")) {
        return parse_set(p, t.pos);
    }
    if (qn_tp_is_name(&t, "with")) {
        return parse_with(p, t.pos);
    }
    if (qn_tp_is_name(&t, "macro") || qn_tp_is_name(&t, "call")) {
        return parse_macro(p, t.pos, t.n == 4);
    }
    if (qn_tp_is_name(&t, "filter")) {
        return parse_filter_block(p, t.pos);
    }
    if (qn_tp_is_name(&t, "generation")) {
        return parse_generation(p, t.pos);
    }
    if (qn_tp_is_name(&t, "print")) {
        return parse_print(p, t.pos);
    }
    if (qn_tp_is_name(&t, "break")) {
        return parse_loop_control(p, t.pos, QN_TN_BREAK);
    }
    if (qn_tp_is_name(&t, "continue")) {
        return parse_loop_control(p, t.pos, QN_TN_CONTINUE);
    }
    return unknown_statement(p, &t, ends);
}

static void add_data(struct qn_tparser *p, struct qn_tnodes *out)
{
    struct qn_ts *s = qn_arena_alloc(p->t->arena, sizeof *s);
    struct qn_tnode *n = qn_tp_node(p, QN_TN_DATA, p->cur.pos);
    if (s == NULL || n == NULL) {
        qn_tp_fail(p, QN_E_NOMEM, p->cur.pos, "could not allocate the compiled template");
        return;
    }
    *s = (struct qn_ts){.p = p->cur.p, .n = p->cur.n, .n_cp = qn_tcp_count(p->cur.p, p->cur.n)};
    n->value = qn_tv_of_ts(s);
    qn_tp_push(p, out, n);
}

void qn_tp_body(struct qn_tparser *p, const char *const *ends, struct qn_tnodes *out)
{
    if (!qn_tp_enter(p)) {
        return;
    }
    for (; p->status == QN_OK; qn_tp_check_unknown(p)) {
        size_t pos = p->cur.pos;
        if (p->cur.type == QN_TT_DATA) {
            if (p->cur.n > 0) {
                add_data(p, out);
            }
            qn_tp_advance(p);
        } else if (qn_tp_skip(p, QN_TT_VAR_BEGIN)) {
            struct qn_tnode *n = qn_tp_node(p, QN_TN_OUTPUT, pos);
            struct qn_tnode *value = qn_tp_tuple(p, true, NULL);
            if (n != NULL) {
                qn_tp_push(p, &n->items, value);
            }
            qn_tp_push(p, out, n);
            qn_tp_expect(p, QN_TT_VAR_END);
        } else if (qn_tp_skip(p, QN_TT_BLOCK_BEGIN)) {
            if (is_end(&p->cur, ends)) {
                qn_tp_leave(p);
                return;
            }
            qn_tp_push(p, out, parse_statement(p, ends));
            qn_tp_expect(p, QN_TT_BLOCK_END);
        } else if (p->cur.type == QN_TT_EOF) {
            if (ends != NULL) {
                qn_tp_fail(p, QN_E_FORMAT, pos, "template ended, expected \"%s\"", ends[0]);
            }
            break;
        } else {
            qn_tp_fail(p, QN_E_FORMAT, pos, "found %s, expected text or a tag",
                       qn_tt_name(p->cur.type));
        }
    }
    qn_tp_leave(p);
}

enum qn_status qn_tmpl_parse(struct qn_tmpl *t, struct qn_err *err)
{
    struct qn_tparser p = {.t = t, .err = err};
    qn_tlex_init(&p.lx, t->source, t->n_source, t->arena);
    t->names.loop = qn_tp_sym(&p, "loop", 4);
    t->names.caller = qn_tp_sym(&p, "caller", 6);
    t->names.varargs = qn_tp_sym(&p, "varargs", 7);
    t->names.kwargs = qn_tp_sym(&p, "kwargs", 6);
    qn_tp_advance(&p);
    qn_tp_body(&p, NULL, &t->body);
    return p.status;
}
