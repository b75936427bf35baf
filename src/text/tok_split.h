#ifndef QN_TEXT_TOK_SPLIT_H
#define QN_TEXT_TOK_SPLIT_H

#include "base/buf.h"
#include "base/status.h"
#include "text/tok_scan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Pre-tokenizers: steps that cut text into the pieces that BPE sees one by one.

enum qn_tok_behavior {
    QN_SPLIT_REMOVED,
    QN_SPLIT_ISOLATED,
    QN_SPLIT_CONTIGUOUS,
    QN_SPLIT_WITH_PREVIOUS,
    QN_SPLIT_WITH_NEXT
};

enum qn_tok_step_kind {
    QN_STEP_STRING, ///< split at a text
    QN_STEP_NUMBER, ///< split at single numbers
    QN_STEP_SCAN,   ///< split by a built-in matcher
    QN_STEP_REGEX,  ///< split by PCRE2
    QN_STEP_PREFIX, ///< put `text` in front unless it is there
    QN_STEP_META    ///< blank -> `text`, and `text` in front as `prepend` says
};

enum qn_tok_prepend {
    QN_PREPEND_NEVER,
    QN_PREPEND_FIRST, ///< at the start of the whole text only
    QN_PREPEND_ALWAYS
};

enum {
    QN_TOK_MAX_STEPS = 12,
    QN_TOK_MAX_PATTERN = 8192 ///< bytes of a regular expression
};

struct qn_tok_step {
    enum qn_tok_step_kind kind;
    enum qn_tok_behavior behavior;
    bool invert;
    enum qn_tok_prepend prepend;
    char *text; ///< owned
    size_t n_text;
    struct qn_tok_scan scan;
    struct pcre2_real_code_8 *re; ///< owned
};

struct qn_tok_split {
    struct qn_tok_step steps[QN_TOK_MAX_STEPS];
    size_t n;
};

void qn_tok_split_done(struct qn_tok_split *s);
/// Append a step; `text` is copied. The message of a failure names no file.
enum qn_status qn_tok_split_add(struct qn_tok_split *s, enum qn_tok_step_kind kind,
                                enum qn_tok_behavior behavior, bool invert, const char *text,
                                size_t n_text, struct qn_err *err);
/// Append a step that splits by a regular expression: a built-in matcher when it is a known one,
/// else PCRE2 with the reference's meaning of \s, \S and \w.
enum qn_status qn_tok_split_add_regex(struct qn_tok_split *s, enum qn_tok_behavior behavior,
                                      bool invert, const char *pattern, size_t n,
                                      struct qn_err *err);
/// The same, always by PCRE2 (tests).
enum qn_status qn_tok_split_add_pcre(struct qn_tok_split *s, enum qn_tok_behavior behavior,
                                     bool invert, const char *pattern, size_t n,
                                     struct qn_err *err);

/// What a run needs besides the steps; zero it, keep it between runs of one thread.
struct qn_tok_split_run {
    const uint8_t *uclass;
    enum qn_status (*emit)(void *arg, const char *text, size_t n, struct qn_err *err);
    void *arg;
    struct pcre2_real_match_data_8 *match;
    struct qn_buf bufs[QN_TOK_MAX_STEPS];
};
void qn_tok_split_run_done(struct qn_tok_split_run *r);
/// Calls emit for each piece in order (never an empty one). at_start: text begins the whole input.
enum qn_status qn_tok_split_text(const struct qn_tok_split *s, struct qn_tok_split_run *r,
                                 const char *text, size_t n, bool at_start, struct qn_err *err);

#endif
