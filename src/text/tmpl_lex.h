#ifndef QN_TEXT_TMPL_LEX_H
#define QN_TEXT_TMPL_LEX_H

#include "base/mem.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Tokens of a template: text between tags, and the words inside them. White space around tags is
/// handled here: trim_blocks, lstrip_blocks and the signs "-" and "+".

enum qn_tt {
    QN_TT_EOF,
    QN_TT_ERROR, ///< the lexer's err is set
    QN_TT_DATA,
    QN_TT_BLOCK_BEGIN,
    QN_TT_BLOCK_END,
    QN_TT_VAR_BEGIN,
    QN_TT_VAR_END,
    QN_TT_NAME,
    QN_TT_STRING, ///< p, n: unescaped text
    QN_TT_INT,
    QN_TT_FLOAT,
    QN_TT_ADD,
    QN_TT_SUB,
    QN_TT_MUL,
    QN_TT_DIV,
    QN_TT_FLOORDIV,
    QN_TT_MOD,
    QN_TT_POW,
    QN_TT_TILDE,
    QN_TT_LPAREN,
    QN_TT_RPAREN,
    QN_TT_LBRACKET,
    QN_TT_RBRACKET,
    QN_TT_LBRACE,
    QN_TT_RBRACE,
    QN_TT_EQ,
    QN_TT_NE,
    QN_TT_LT,
    QN_TT_LE,
    QN_TT_GT,
    QN_TT_GE,
    QN_TT_ASSIGN,
    QN_TT_DOT,
    QN_TT_COLON,
    QN_TT_COMMA,
    QN_TT_PIPE,
    QN_TT_SEMICOLON
};

struct qn_ttok {
    enum qn_tt type;
    uint32_t pos; ///< offset in the source
    const char *p;
    size_t n;
    int64_t i;
    double f;
};

#define QN_TLEX_MAX_BRACKETS 128

struct qn_tlex {
    const char *src;
    size_t n;
    size_t at;
    struct qn_arena *arena; ///< for unescaped strings
    enum qn_tt state;       ///< DATA, BLOCK_BEGIN or VAR_BEGIN: where the lexer is
    bool begun;             ///< a tag's beginning was seen and its token is still to come
    uint32_t begin_pos;
    bool line_start; ///< the last tag swallowed a line end, or this is the beginning
    char brackets[QN_TLEX_MAX_BRACKETS];
    size_t n_brackets;
    enum qn_status status;
    uint32_t err_pos;
    char err[160];
};

void qn_tlex_init(struct qn_tlex *lx, const char *src, size_t n, struct qn_arena *arena);
/// The next token; after ERROR or EOF the same again. DATA tokens may be empty.
struct qn_ttok qn_tlex_next(struct qn_tlex *lx);
/// A token type in words, for messages.
const char *qn_tt_name(enum qn_tt type);

#endif
