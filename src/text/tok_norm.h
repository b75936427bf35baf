#ifndef QN_TEXT_TOK_NORM_H
#define QN_TEXT_TOK_NORM_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Normalisers: steps that rewrite text before it is split.
enum qn_tok_norm_kind {
    QN_NORM_NFC,
    QN_NORM_NFD,
    QN_NORM_NFKC,
    QN_NORM_NFKD,
    QN_NORM_REPLACE, ///< every `from` by `to`
    QN_NORM_PREPEND  ///< `to` in front of text that is not empty
};

enum {
    QN_TOK_MAX_NORMS = 8
};

struct qn_tok_norm_step {
    enum qn_tok_norm_kind kind;
    char *from, *to; ///< owned
    size_t n_from, n_to;
};

struct qn_tok_norm {
    struct qn_tok_norm_step steps[QN_TOK_MAX_NORMS];
    size_t n;
};

void qn_tok_norm_done(struct qn_tok_norm *norm);
enum qn_status qn_tok_norm_add(struct qn_tok_norm *norm, enum qn_tok_norm_kind kind,
                               const char *from, size_t n_from, const char *to, size_t n_to,
                               struct qn_err *err);

/// Text with a mark per byte, or without marks (NULL).
struct qn_tok_view {
    const char *p;
    size_t n;
    const uint8_t *plain;
};

/// Memory of a run: results alternate between the two halves.
struct qn_tok_norm_run {
    struct qn_buf text[2], plain[2];
    uint32_t *cps; ///< of the Unicode forms
    size_t cps_cap;
};
void qn_tok_norm_run_done(struct qn_tok_norm_run *r);

/// Normalise `in` (valid UTF-8). *out is `in` itself or lies in r until the next run. A byte that
/// came from several has the mark of any of them.
enum qn_status qn_tok_norm_text(const struct qn_tok_norm *norm, struct qn_tok_norm_run *r,
                                struct qn_tok_view in, struct qn_tok_view *out, struct qn_err *err);

/// tok_form.c: one Unicode form of n code points' worth of UTF-8, appended to out. Linear but for
/// the sort of long runs of combining marks, which is n log n.
bool qn_tok_form(enum qn_tok_norm_kind form, struct qn_tok_norm_run *r, const char *text, size_t n,
                 struct qn_buf *out);

#endif
