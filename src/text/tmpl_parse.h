#ifndef QN_TEXT_TMPL_PARSE_H
#define QN_TEXT_TMPL_PARSE_H

#include "text/tmpl_ast.h"
#include "text/tmpl_lex.h"

/// The parser's state. A failure is sticky: the current token becomes QN_TT_ERROR, loops end, and
/// nodes may be NULL.

/// The macros and callers that enclose the current position.
struct qn_tpmacro {
    struct qn_tmacrodef *def;
    struct qn_tpmacro *outer;
};

struct qn_tparser {
    struct qn_tmpl *t;
    struct qn_tlex lx;
    struct qn_ttok cur;
    struct qn_ttok ahead;
    bool has_ahead;
    enum qn_status status;
    struct qn_err *err;
    size_t depth;
    bool soft; ///< inside an if: unknown filters and tests fail only when reached
    const struct qn_tsym *unknown; ///< first one outside, which an inline if may still excuse
    const char *unknown_kind;      ///< "filter" or "test"
    size_t unknown_pos;
    size_t n_loops; ///< for statements around, within the current macro
    size_t n_closures;
    struct qn_tpmacro *macros;
};

/// Statements and expressions together may not nest deeper.
#define QN_TPARSE_MAX_DEPTH 100

void qn_tp_fail(struct qn_tparser *p, enum qn_status code, size_t pos, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void qn_tp_advance(struct qn_tparser *p);
enum qn_tt qn_tp_ahead(struct qn_tparser *p, struct qn_ttok *out);
bool qn_tp_is_name(const struct qn_ttok *t, const char *name);
/// Skip the token if it is that name / that type.
bool qn_tp_skip_name(struct qn_tparser *p, const char *name);
bool qn_tp_skip(struct qn_tparser *p, enum qn_tt type);
/// Skip it or fail.
bool qn_tp_expect(struct qn_tparser *p, enum qn_tt type);
const struct qn_tsym *qn_tp_sym(struct qn_tparser *p, const char *s, size_t n);
/// The current token as a name, skipped.
const struct qn_tsym *qn_tp_expect_sym(struct qn_tparser *p);
struct qn_tnode *qn_tp_node(struct qn_tparser *p, enum qn_tn_kind kind, size_t pos);
void qn_tp_push(struct qn_tparser *p, struct qn_tnodes *list, struct qn_tnode *n);
/// Fail if an unknown filter or test was seen.
void qn_tp_check_unknown(struct qn_tparser *p);
bool qn_tp_enter(struct qn_tparser *p);
void qn_tp_leave(struct qn_tparser *p);

/// Expressions (tmpl_parse.c).
struct qn_tnode *qn_tp_expr(struct qn_tparser *p, bool with_cond);
/// One expression, or a tuple without brackets that ends at the tag's end or at `end_name`.
struct qn_tnode *qn_tp_tuple(struct qn_tparser *p, bool with_cond, const char *end_name);
/// An assignment target: a name, a tuple of them and, if asked, name.attribute.
struct qn_tnode *qn_tp_target(struct qn_tparser *p, bool with_ns, const char *end_name);
/// "| f | g" behind `in`; with `start`, the first filter has no bar.
struct qn_tnode *qn_tp_filters(struct qn_tparser *p, struct qn_tnode *in, bool start);

/// Statements (tmpl_stmt.c).
void qn_tp_body(struct qn_tparser *p, const char *const *ends, struct qn_tnodes *out);

#endif
