#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tok_split.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "text/uclass.h"
#include "text/utf8.h"

void qn_tok_split_done(struct qn_tok_split *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->steps[i].text);
        pcre2_code_free(s->steps[i].re);
    }
    *s = (struct qn_tok_split){0};
}

enum qn_status qn_tok_split_add(struct qn_tok_split *s, enum qn_tok_step_kind kind,
                                enum qn_tok_behavior behavior, bool invert, const char *text,
                                size_t n_text, struct qn_err *err)
{
    if (s->n == QN_TOK_MAX_STEPS) {
        return qn_fail(err, QN_E_LIMIT, "pre-tokenizer: more than %d steps", QN_TOK_MAX_STEPS);
    }
    if (n_text == 0 && (kind == QN_STEP_STRING || kind == QN_STEP_META)) {
        return qn_fail(err, QN_E_FORMAT, "pre-tokenizer: empty text, expected one to split at");
    }
    struct qn_tok_step step = {.kind = kind, .behavior = behavior, .invert = invert};
    if (text != NULL) {
        step.text = malloc(n_text + 1);
        if (step.text == NULL) {
            return qn_fail(err, QN_E_NOMEM, "could not allocate a pre-tokenizer step");
        }
        memcpy(step.text, text, n_text);
        step.text[n_text] = '\0';
        step.n_text = n_text;
    }
    s->steps[s->n++] = step;
    return QN_OK;
}

enum qn_status qn_tok_split_add_regex(struct qn_tok_split *s, enum qn_tok_behavior behavior,
                                      bool invert, const char *pattern, size_t n,
                                      struct qn_err *err)
{
    struct qn_tok_scan scan;
    if (!qn_tok_scan_find(pattern, n, &scan)) {
        return qn_tok_split_add_pcre(s, behavior, invert, pattern, n, err);
    }
    enum qn_status rc = qn_tok_split_add(s, QN_STEP_SCAN, behavior, invert, NULL, 0, err);
    if (rc == QN_OK) {
        s->steps[s->n - 1].scan = scan;
    }
    return rc;
}

/// White_Space, letters, marks, decimal numbers and connectors, as the reference's engine reads \s
/// and \w; PCRE2's own \s has U+180E besides, and its \w lacks the marks.
#define SPACE_SET                                                                                  \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define WORD_SET "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"

static enum qn_status refuse(const char *p, size_t n, const char *what, struct qn_err *err)
{
    return qn_fail(err, QN_E_UNSUPPORTED, "pre-tokenizer pattern \"%.*s\": cannot use %s", (int)n,
                   p, what);
}

/// The pattern in PCRE2's words. What means something else there is refused.
static enum qn_status translate(const char *p, size_t n, struct qn_buf *out, struct qn_err *err)
{
    bool in_set = false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '\\' || i + 1 == n) {
            if (in_set && (p[i] == '[' || (p[i] == '&' && i + 1 < n && p[i + 1] == '&'))) {
                return refuse(p, n, "a set within a set", err);
            }
            if (!in_set && (p[i] == '^' || p[i] == '$')) {
                return refuse(p, n, "line anchors", err);
            }
            if (!in_set && n - i >= 3 && memcmp(p + i, "(?m", 3) == 0) {
                return refuse(p, n, "the option m", err);
            }
            if (!in_set && n - i >= 2 && memcmp(p + i, "{,", 2) == 0) {
                return refuse(p, n, "a count without its lower bound", err);
            }
            qn_buf_putc(out, p[i]);
            if (!in_set && p[i] == '[') { // a caret or bracket that comes first is part of the set
                in_set = true;
                while (i + 1 < n && (p[i + 1] == '^' || p[i + 1] == ']')) {
                    qn_buf_putc(out, p[++i]);
                }
            } else if (p[i] == ']') {
                in_set = false;
            }
            continue;
        }
        char c = p[++i];
        const char *set = c == 's' || c == 'S' ? SPACE_SET : WORD_SET;
        if (strchr("hHRXKbBGyYoO", c) != NULL || (in_set && (c == 'S' || c == 'W'))) {
            char what[] = "the escape \\?";
            what[sizeof what - 2] = c;
            return refuse(p, n, what, err);
        }
        if (c == 's' || c == 'w') {
            qn_buf_printf(out, in_set ? "%s" : "[%s]", set);
        } else if (c == 'S' || c == 'W') {
            qn_buf_printf(out, "[^%s]", set);
        } else {
            qn_buf_putc(out, '\\');
            qn_buf_putc(out, c);
        }
    }
    return out->failed ? qn_fail(err, QN_E_NOMEM, "could not allocate a pattern") : QN_OK;
}

enum qn_status qn_tok_split_add_pcre(struct qn_tok_split *s, enum qn_tok_behavior behavior,
                                     bool invert, const char *pattern, size_t n, struct qn_err *err)
{
    if (n > QN_TOK_MAX_PATTERN) {
        return qn_fail(err, QN_E_LIMIT, "pre-tokenizer pattern: %zu bytes, expected at most %d", n,
                       QN_TOK_MAX_PATTERN);
    }
    struct qn_buf buf = {0};
    enum qn_status rc = translate(pattern, n, &buf, err);
    if (rc == QN_OK) {
        rc = qn_tok_split_add(s, QN_STEP_REGEX, behavior, invert, pattern, n, err);
    }
    if (rc == QN_OK) {
        int code;
        PCRE2_SIZE at;
        pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
        if (ctx != NULL) {
            pcre2_set_parens_nest_limit(ctx, 64);
        }
        pcre2_code *re =
            pcre2_compile((PCRE2_SPTR)(buf.data == NULL ? "" : buf.data), buf.len,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, ctx);
        pcre2_compile_context_free(ctx);
        if (re == NULL) {
            PCRE2_UCHAR msg[128];
            pcre2_get_error_message(code, msg, sizeof msg);
            rc = qn_fail(err, QN_E_FORMAT, "pre-tokenizer pattern \"%.*s\": %s", (int)n, pattern,
                         (const char *)msg);
        } else {
            pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); // without it the interpreter serves
            s->steps[s->n - 1].re = re;
        }
    }
    qn_buf_done(&buf);
    return rc;
}

void qn_tok_split_run_done(struct qn_tok_split_run *r)
{
    pcre2_match_data_free(r->match);
    for (size_t i = 0; i < QN_TOK_MAX_STEPS; i++) {
        qn_buf_done(&r->bufs[i]);
    }
}

/// Next match at or after pos: *out_start == n when there is none.
static enum qn_status next_regex(const struct qn_tok_step *step, struct qn_tok_split_run *r,
                                 const char *text, size_t n, size_t pos, size_t *out_start,
                                 size_t *out_end, struct qn_err *err)
{
    if (r->match == NULL && (r->match = pcre2_match_data_create(1, NULL)) == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate match data");
    }
    // The whole text was found valid before: checking it on each call would be quadratic.
    int rc = pcre2_match(step->re, (PCRE2_SPTR)text, n, pos, PCRE2_NO_UTF_CHECK, r->match, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(step->re, (PCRE2_SPTR)text, n, pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         r->match, NULL);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        *out_start = *out_end = n;
        return QN_OK;
    }
    if (rc < 0) {
        PCRE2_UCHAR msg[128];
        pcre2_get_error_message(rc, msg, sizeof msg);
        return qn_fail(err, QN_E_LIMIT, "pre-tokenizer pattern \"%s\" at byte %zu: %s", step->text,
                       pos, (const char *)msg);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->match);
    *out_start = at[0];
    *out_end = at[1] < at[0] ? at[0] : at[1];
    return QN_OK;
}

static enum qn_status next_match(const struct qn_tok_step *step, struct qn_tok_split_run *r,
                                 const char *text, size_t n, size_t pos, size_t *out_start,
                                 size_t *out_end, struct qn_err *err)
{
    size_t len;
    *out_start = *out_end = n;
    switch (step->kind) {
    case QN_STEP_STRING: {
        const char *hit = memmem(text + pos, n - pos, step->text, step->n_text);
        if (hit != NULL) {
            *out_start = (size_t)(hit - text);
            *out_end = *out_start + step->n_text;
        }
        return QN_OK;
    }
    case QN_STEP_NUMBER:
        for (size_t i = pos; i < n; i += len) {
            if (qn_uclass(r->uclass, qn_utf8_get(text + i, &len)) & QN_UC_NUMBER) {
                *out_start = i;
                *out_end = i + len;
                break;
            }
        }
        return QN_OK;
    case QN_STEP_SCAN:
        *out_start = pos;
        *out_end = qn_tok_scan_next(&step->scan, r->uclass, text, n, pos);
        return QN_OK;
    default:
        return next_regex(step, r, text, n, pos, out_start, out_end, err);
    }
}

static enum qn_status run_step(const struct qn_tok_split *s, struct qn_tok_split_run *r, size_t k,
                               const char *text, size_t n, bool at_start, struct qn_err *err);

/// Segments of one text on their way through a step's behaviour.
struct folder {
    const struct qn_tok_split *split;
    struct qn_tok_split_run *run;
    size_t step;
    const char *text;
    bool at_start;
    bool have, prev_match; // the segment that waits for its neighbour
    size_t start, end;
};

static enum qn_status pass_on(struct folder *f, size_t start, size_t end, struct qn_err *err)
{
    return run_step(f->split, f->run, f->step + 1, f->text + start, end - start,
                    f->at_start && start == 0, err);
}

static enum qn_status fold(struct folder *f, size_t start, size_t end, bool is_match,
                           struct qn_err *err)
{
    const struct qn_tok_step *step = &f->split->steps[f->step];
    is_match = is_match != step->invert;
    bool join = false;
    switch (step->behavior) {
    case QN_SPLIT_REMOVED:
        return is_match ? QN_OK : pass_on(f, start, end, err);
    case QN_SPLIT_ISOLATED:
        return pass_on(f, start, end, err);
    case QN_SPLIT_CONTIGUOUS:
        join = f->prev_match == is_match;
        break;
    case QN_SPLIT_WITH_PREVIOUS:
        join = is_match && !f->prev_match;
        break;
    case QN_SPLIT_WITH_NEXT:
        join = !is_match && f->prev_match;
        break;
    }
    enum qn_status rc = QN_OK;
    if (f->have && join) {
        f->end = end;
    } else {
        rc = f->have ? pass_on(f, f->start, f->end, err) : QN_OK;
        f->start = start;
        f->end = end;
    }
    f->have = true;
    f->prev_match = is_match;
    return rc;
}

static enum qn_status split_step(const struct qn_tok_split *s, struct qn_tok_split_run *r, size_t k,
                                 const char *text, size_t n, bool at_start, struct qn_err *err)
{
    struct folder f = {.split = s, .run = r, .step = k, .text = text, .at_start = at_start};
    enum qn_status rc = QN_OK;
    size_t done = 0, pos = 0, start, end;
    while (pos < n && rc == QN_OK) {
        rc = next_match(&s->steps[k], r, text, n, pos, &start, &end, err);
        if (rc != QN_OK || start == n) {
            break;
        }
        if (start > done) {
            rc = fold(&f, done, start, false, err);
        }
        if (rc == QN_OK) {
            rc = fold(&f, start, end, true, err);
        }
        done = pos = end;
        if (end == start) { // an empty match: look on after the next character
            size_t len;
            qn_utf8_get(text + pos, &len);
            pos += len;
        }
    }
    if (rc == QN_OK && done < n) {
        rc = fold(&f, done, n, false, err);
    }
    if (rc == QN_OK && f.have) {
        rc = pass_on(&f, f.start, f.end, err);
    }
    return rc;
}

/// Steps that change the text work in a buffer of their own.
static enum qn_status rewrite_step(const struct qn_tok_split *s, struct qn_tok_split_run *r,
                                   size_t k, const char *text, size_t n, bool at_start,
                                   struct qn_err *err)
{
    const struct qn_tok_step *step = &s->steps[k];
    struct qn_buf *buf = &r->bufs[k];
    qn_buf_clear(buf);
    bool meta = step->kind == QN_STEP_META;
    bool front = n >= step->n_text && memcmp(text, step->text, step->n_text) == 0;
    if (meta) {
        front = front || text[0] == ' ' || step->prepend == QN_PREPEND_NEVER ||
                (step->prepend == QN_PREPEND_FIRST && !at_start);
    }
    if (!front) {
        qn_buf_add(buf, step->text, step->n_text);
    }
    for (size_t i = 0; i < n;) {
        const char *blank = meta ? memchr(text + i, ' ', n - i) : NULL;
        size_t stop = blank == NULL ? n : (size_t)(blank - text);
        qn_buf_add(buf, text + i, stop - i);
        if (blank != NULL) {
            qn_buf_add(buf, step->text, step->n_text);
            stop++;
        }
        i = stop;
    }
    if (buf->failed) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate memory to tokenise");
    }
    return run_step(s, r, k + 1, buf->data, buf->len, at_start, err);
}

static enum qn_status run_step(const struct qn_tok_split *s, struct qn_tok_split_run *r, size_t k,
                               const char *text, size_t n, bool at_start, struct qn_err *err)
{
    if (n == 0) {
        return QN_OK;
    }
    if (k == s->n) {
        return r->emit(r->arg, text, n, err);
    }
    const struct qn_tok_step *step = &s->steps[k];
    if (step->kind == QN_STEP_PREFIX || step->kind == QN_STEP_META) {
        return rewrite_step(s, r, k, text, n, at_start, err);
    }
    return split_step(s, r, k, text, n, at_start, err);
}

enum qn_status qn_tok_split_text(const struct qn_tok_split *s, struct qn_tok_split_run *r,
                                 const char *text, size_t n, bool at_start, struct qn_err *err)
{
    return run_step(s, r, 0, text, n, at_start, err);
}
