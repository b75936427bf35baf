#include "text/tok_norm.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

void qn_tok_norm_done(struct qn_tok_norm *norm)
{
    for (size_t i = 0; i < norm->n; i++) {
        free(norm->steps[i].from);
        free(norm->steps[i].to);
    }
    *norm = (struct qn_tok_norm){0};
}

static char *copy(const char *p, size_t n)
{
    char *q = malloc(n + 1);
    if (q != NULL) {
        if (n > 0) {
            memcpy(q, p, n);
        }
        q[n] = '\0';
    }
    return q;
}

enum qn_status qn_tok_norm_add(struct qn_tok_norm *norm, enum qn_tok_norm_kind kind,
                               const char *from, size_t n_from, const char *to, size_t n_to,
                               struct qn_err *err)
{
    if (norm->n == QN_TOK_MAX_NORMS) {
        return qn_fail(err, QN_E_LIMIT, "normalizer: more than %d steps", QN_TOK_MAX_NORMS);
    }
    if (kind == QN_NORM_REPLACE && n_from == 0) {
        return qn_fail(err, QN_E_FORMAT, "normalizer Replace: empty pattern, expected a text");
    }
    struct qn_tok_norm_step *s = &norm->steps[norm->n++];
    *s = (struct qn_tok_norm_step){.kind = kind, .n_from = n_from, .n_to = n_to};
    s->from = copy(from, n_from);
    s->to = copy(to, n_to);
    if (s->from == NULL || s->to == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate a normalizer step");
    }
    return QN_OK;
}

void qn_tok_norm_run_done(struct qn_tok_norm_run *r)
{
    for (int i = 0; i < 2; i++) {
        qn_buf_done(&r->text[i]);
        qn_buf_done(&r->plain[i]);
    }
    free(r->cps);
}

/// One step's result: text, and marks if the input has them.
struct sink {
    struct qn_buf *text, *plain;
    bool marked;
};

static bool add_marks(struct sink *s, size_t n, uint8_t mark)
{
    if (!s->marked || n == 0) {
        return true;
    }
    if (!qn_buf_reserve(s->plain, n)) {
        return false;
    }
    memset(s->plain->data + s->plain->len, mark, n);
    s->plain->len += n;
    return true;
}

static bool add_same(struct sink *s, const struct qn_tok_view *in, size_t from, size_t to)
{
    return qn_buf_add(s->text, in->p + from, to - from) &&
           (!s->marked || qn_buf_add(s->plain, in->plain + from, to - from));
}

/// 1 when a byte of [from, to) is marked.
static uint8_t any_mark(const struct qn_tok_view *in, size_t from, size_t to)
{
    return in->plain != NULL && memchr(in->plain + from, 1, to - from) != NULL;
}

static bool replace(struct sink *s, const struct qn_tok_norm_step *step,
                    const struct qn_tok_view *in)
{
    for (size_t i = 0; i < in->n;) {
        const char *hit = step->n_from == 1
                              ? memchr(in->p + i, step->from[0], in->n - i)
                              : memmem(in->p + i, in->n - i, step->from, step->n_from);
        size_t stop = hit == NULL ? in->n : (size_t)(hit - in->p);
        if (!add_same(s, in, i, stop)) {
            return false;
        }
        i = stop;
        if (hit != NULL) {
            i += step->n_from;
            if (!qn_buf_add(s->text, step->to, step->n_to) ||
                !add_marks(s, step->n_to, any_mark(in, stop, i))) {
                return false;
            }
        }
    }
    return true;
}

/// Characters before which text may be cut for normalising: they neither combine with what stands
/// before them nor move.
static bool starts_block(const char *p)
{
    unsigned char b = (unsigned char)p[0];
    return b < 0x80 || (b >= 0xE4 && b <= 0xE9); // ASCII; U+4000 to U+9FFF
}

static bool unicode_form(struct qn_tok_norm_run *r, struct sink *s, enum qn_tok_norm_kind form,
                         const struct qn_tok_view *in)
{
    size_t i = 0, len;
    while (i < in->n) {
        size_t stop = i; // a run of ASCII, the last one left out when more than ASCII follows
        while (stop < in->n && (unsigned char)in->p[stop] < 0x80) {
            stop++;
        }
        stop -= stop < in->n && stop > i ? 1 : 0;
        if (!add_same(s, in, i, stop)) {
            return false;
        }
        i = stop;
        if (i == in->n) {
            break;
        }
        qn_utf8_get(in->p + i, &len);
        stop = i + len;
        while (stop < in->n && !starts_block(in->p + stop)) {
            qn_utf8_get(in->p + stop, &len);
            stop += len;
        }
        size_t before = s->text->len;
        if (!qn_tok_form(form, r, in->p + i, stop - i, s->text) ||
            !add_marks(s, s->text->len - before, any_mark(in, i, stop))) {
            return false;
        }
        i = stop;
    }
    return true;
}

static bool all_ascii(const struct qn_tok_view *in)
{
    for (size_t i = 0; i < in->n; i++) {
        if ((unsigned char)in->p[i] >= 0x80) {
            return false;
        }
    }
    return true;
}

enum qn_status qn_tok_norm_text(const struct qn_tok_norm *norm, struct qn_tok_norm_run *r,
                                struct qn_tok_view in, struct qn_tok_view *out, struct qn_err *err)
{
    for (size_t k = 0; k < norm->n; k++) {
        const struct qn_tok_norm_step *step = &norm->steps[k];
        struct sink s = {
            .text = &r->text[k & 1], .plain = &r->plain[k & 1], .marked = in.plain != NULL};
        qn_buf_clear(s.text);
        qn_buf_clear(s.plain);
        bool ok = true;
        if (step->kind == QN_NORM_REPLACE) {
            ok = replace(&s, step, &in);
        } else if (step->kind == QN_NORM_PREPEND) {
            if (in.n > 0) {
                ok = qn_buf_add(s.text, step->to, step->n_to) &&
                     add_marks(&s, step->n_to, any_mark(&in, 0, 1)) && add_same(&s, &in, 0, in.n);
            }
        } else if (all_ascii(&in)) {
            continue; // no Unicode form changes it
        } else {
            ok = unicode_form(r, &s, step->kind, &in);
        }
        if (!ok || !qn_buf_add(s.text, "", 0) || !qn_buf_add(s.plain, "", 0)) {
            return qn_fail(err, QN_E_NOMEM, "could not allocate memory to tokenise");
        }
        in = (struct qn_tok_view){.p = s.text->data,
                                  .n = s.text->len,
                                  .plain = s.marked ? (const uint8_t *)s.plain->data : NULL};
    }
    *out = in;
    return QN_OK;
}
