#ifndef QN_TEXT_TMPL_AST_H
#define QN_TEXT_TMPL_AST_H

#include "text/tmpl_value.h"

/// The compiled form of a template: a tree in the template's arena, immutable after parsing.

/// An interned name; two uses of one name have the same address.
struct qn_tsym {
    const struct qn_ts *s;
    struct qn_tsym *next; ///< of the interning chain
};

enum qn_tn_kind {
    // expressions
    QN_TN_CONST,
    QN_TN_NAME,
    QN_TN_LIST,
    QN_TN_TUPLE,
    QN_TN_DICT, ///< items: key, value, key, value, …
    QN_TN_AND,
    QN_TN_OR,
    QN_TN_NOT,
    QN_TN_NEG,
    QN_TN_POS,
    QN_TN_BINARY,  ///< op, a, b
    QN_TN_CONCAT,  ///< items
    QN_TN_COMPARE, ///< a, then items with their op
    QN_TN_OPERAND, ///< op, a
    QN_TN_COND,    ///< a if b else c (may be NULL)
    QN_TN_ATTR,    ///< a . name
    QN_TN_ITEM,    ///< a [ b ]
    QN_TN_SLICE,   ///< a : b : c, each may be NULL; only as the b of QN_TN_ITEM
    QN_TN_CALL,    ///< a ( args )
    QN_TN_FILTER,  ///< a | name ( args ); a NULL in filter and set blocks
    QN_TN_TEST,    ///< a is name ( args )
    QN_TN_NSREF,   ///< name . name2, a target only
    // statements
    QN_TN_DATA,   ///< value
    QN_TN_OUTPUT, ///< items
    QN_TN_FOR,    ///< target a in b if c: body else other
    QN_TN_IF,     ///< a: body; items are the elifs (QN_TN_IF); other is else
    QN_TN_SET,    ///< a = b
    QN_TN_SETBLOCK,
    QN_TN_WITH, ///< items: target, value, …; body
    QN_TN_MACRO,
    QN_TN_CALLBLOCK,   ///< a is the QN_TN_CALL; params, body
    QN_TN_FILTERBLOCK, ///< b is the filter chain; body
    QN_TN_GENERATION,  ///< body
    QN_TN_BREAK,
    QN_TN_CONTINUE
};

enum qn_tn_op {
    QN_OP_NONE,
    QN_OP_ADD,
    QN_OP_SUB,
    QN_OP_MUL,
    QN_OP_DIV,
    QN_OP_FLOORDIV,
    QN_OP_MOD,
    QN_OP_POW,
    QN_OP_EQ,
    QN_OP_NE,
    QN_OP_LT,
    QN_OP_LE,
    QN_OP_GT,
    QN_OP_GE,
    QN_OP_IN,
    QN_OP_NOTIN
};

struct qn_tnodes {
    struct qn_tnode **at;
    size_t n;
    size_t cap;
};

/// Arguments of a call, filter or test.
struct qn_tcallargs {
    struct qn_tnodes pos;
    struct qn_tnodes kw; ///< values; names in kw_names
    const struct qn_tsym **kw_names;
    struct qn_tnode *dyn_pos; ///< *expr or NULL
    struct qn_tnode *dyn_kw;  ///< **expr or NULL
};

/// Parameters and body of a macro or call block.
struct qn_tmacrodef {
    const struct qn_tsym *name; ///< NULL: a caller
    const struct qn_tsym **params;
    struct qn_tnode **defaults; ///< NULL where a parameter has none
    size_t n_params;
    bool uses_varargs;
    bool uses_kwargs;
    bool uses_caller;
};

struct qn_tnode {
    enum qn_tn_kind kind;
    enum qn_tn_op op;
    uint32_t pos;  ///< offset in the source, for line and column
    bool flag;     ///< FOR: recursive
    bool closures; ///< FOR: the body defines macros or callers, so scopes outlive a turn
    const struct qn_tsym *name;
    const struct qn_tsym *name2;
    struct qn_tv value;
    struct qn_tnode *a;
    struct qn_tnode *b;
    struct qn_tnode *c;
    struct qn_tnodes items;
    struct qn_tnodes body;
    struct qn_tnodes other;
    struct qn_tcallargs *args;
    struct qn_tmacrodef *macro;
    const void *fn; ///< FILTER: struct qn_tfilter, TEST: struct qn_ttest; NULL if unknown
};

#define QN_TSYM_BUCKETS 256

/// Names that the interpreter itself binds.
struct qn_twell_known {
    const struct qn_tsym *loop;
    const struct qn_tsym *caller;
    const struct qn_tsym *varargs;
    const struct qn_tsym *kwargs;
};

struct qn_tmpl {
    struct qn_arena *arena;
    const char *source; ///< newlines normalised, the last one dropped
    size_t n_source;
    struct qn_tnodes body;
    struct qn_tsym *syms[QN_TSYM_BUCKETS];
    struct qn_twell_known names;
    bool wants_parts; ///< qn_tmpl_wants_parts
};

/// Line and column (in code points, both from 1) of an offset.
void qn_tmpl_where(const struct qn_tmpl *t, size_t pos, size_t *out_line, size_t *out_col);

/// Parse t->source into t->body.
enum qn_status qn_tmpl_parse(struct qn_tmpl *t, struct qn_err *err);

/// What qn_tmpl_wants_parts answers, from the tree.
bool qn_tmpl_find_parts(const struct qn_tmpl *t);

#endif
