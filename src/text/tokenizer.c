#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tok.h"
#include "text/utf8.h"

size_t qn_tok_n_tokens(const struct qn_tok *t)
{
    return t->n_ids;
}

int32_t qn_tok_bos(const struct qn_tok *t)
{
    return t->bos;
}

int32_t qn_tok_eos(const struct qn_tok *t)
{
    return t->eos;
}

int32_t qn_tok_pad(const struct qn_tok *t)
{
    return t->pad;
}

bool qn_tok_adds_bos(const struct qn_tok *t)
{
    return t->n_prefix > 0 && t->prefix[0] == t->bos;
}

size_t qn_tok_stops(const struct qn_tok *t, const int32_t **out)
{
    *out = t->stops;
    return t->n_stops;
}

static bool known(const struct qn_tok *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_ids && (t->flags[id] & QN_TF_USED);
}

int32_t qn_tok_find(const struct qn_tok *t, const char *content, size_t n)
{
    return qn_tok_keys_get(&t->spelled, t->blob, t->piece, content, n);
}

bool qn_tok_is_special(const struct qn_tok *t, int32_t id)
{
    return known(t, id) && (t->flags[id] & QN_TF_SPECIAL);
}

const char *qn_tok_piece(const struct qn_tok *t, int32_t id, size_t *out_len)
{
    if (!known(t, id)) {
        *out_len = 0;
        return NULL;
    }
    *out_len = t->piece[id].len;
    return t->blob + t->piece[id].off;
}

size_t qn_tok_bytes(const struct qn_tok *t, int32_t id, char *buf)
{
    if (!known(t, id)) {
        return 0;
    }
    memcpy(buf, t->blob + t->bytes[id].off, t->bytes[id].len);
    return t->bytes[id].len;
}

size_t qn_tok_max_bytes(const struct qn_tok *t)
{
    return t->max_bytes;
}

void qn_ids_done(struct qn_ids *ids)
{
    free(ids->v);
    *ids = (struct qn_ids){0};
}

/// One call of encode.
struct job {
    const struct qn_tok *t;
    struct qn_ids *out;
    bool special;
    struct qn_tok_scratch scratch;
    struct qn_tok_split_run split;
    struct qn_tok_norm_run norm;
};

static enum qn_status encode_piece(void *arg, const char *text, size_t n, struct qn_err *err)
{
    struct job *j = arg;
    const struct qn_tok *t = j->t;
    enum qn_status rc = QN_OK;
    size_t start = 0;
    for (size_t i = 1; t->cuts && i < n && rc == QN_OK; i++) {
        const char *hit = memchr(text + i, QN_TOK_BLANK[0], n - i);
        i = hit == NULL ? n : (size_t)(hit - text);
        if (n - i >= 3 && memcmp(text + i, QN_TOK_BLANK, 3) == 0 &&
            !t->joins[(unsigned char)text[i - 1]]) {
            rc = qn_tok_bpe(t, &j->scratch, text + start, i - start, j->out, err);
            start = i;
        }
    }
    return rc == QN_OK ? qn_tok_bpe(t, &j->scratch, text + start, n - start, j->out, err) : rc;
}

/// Text between two matches of tokens that are found before normalising.
static enum qn_status encode_between(struct job *j, struct qn_tok_view in, bool at_start,
                                     struct qn_err *err)
{
    const struct qn_tok *t = j->t;
    struct qn_tok_match m = {0};
    struct qn_tok_view v;
    if (t->added_norm.n_tokens == 0) {
        in.plain = NULL; // no token is left that the marks could concern
    }
    enum qn_status rc = qn_tok_norm_text(&t->norm, &j->norm, in, &v, err);
    size_t done = 0;
    while (rc == QN_OK && done < v.n) {
        bool hit = qn_tok_added_find(&t->added_norm, t->uclass, v.p, v.n, v.plain, j->special, &m);
        size_t stop = hit ? m.start : v.n;
        if (stop > done) {
            rc = qn_tok_split_text(&t->split, &j->split, v.p + done, stop - done,
                                   at_start && done == 0, err);
        }
        done = hit ? m.end : v.n;
        if (rc == QN_OK && hit && !qn_ids_push(j->out, m.id)) {
            rc = qn_fail(err, QN_E_NOMEM, "could not allocate token ids");
        }
    }
    return rc;
}

static enum qn_status encode_text(struct job *j, struct qn_tok_view in, struct qn_err *err)
{
    const struct qn_tok *t = j->t;
    struct qn_tok_match m = {0};
    enum qn_status rc = QN_OK;
    size_t done = 0;
    while (rc == QN_OK && done < in.n) {
        bool hit = qn_tok_added_find(&t->added, t->uclass, in.p, in.n, in.plain, j->special, &m);
        size_t stop = hit ? m.start : in.n;
        if (stop > done) {
            struct qn_tok_view part = {.p = in.p + done,
                                       .n = stop - done,
                                       .plain = in.plain == NULL ? NULL : in.plain + done};
            rc = encode_between(j, part, done == 0, err);
        }
        done = hit ? m.end : in.n;
        if (rc == QN_OK && hit && !qn_ids_push(j->out, m.id)) {
            rc = qn_fail(err, QN_E_NOMEM, "could not allocate token ids");
        }
    }
    return rc;
}

static bool push_all(struct qn_ids *out, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!qn_ids_push(out, ids[i])) {
            return false;
        }
    }
    return true;
}

enum qn_status qn_tok_encode(const struct qn_tok *t, const char *text, size_t n,
                             const uint8_t *plain, unsigned flags, struct qn_ids *out,
                             struct qn_err *err)
{
    if (n > QN_TOK_MAX_TEXT) {
        return qn_fail(err, QN_E_LIMIT, "text: %zu bytes, expected at most %d", n, QN_TOK_MAX_TEXT);
    }
    size_t valid = n == 0 ? 0 : qn_utf8_valid_prefix(text, n);
    if (valid < n) {
        return qn_fail(err, QN_E_INVALID, "text: byte %zu is 0x%02x, expected valid UTF-8", valid,
                       (unsigned char)text[valid]);
    }
    struct job j = {.t = t, .out = out, .special = (flags & QN_TOK_PARSE_SPECIAL) != 0};
    j.split.uclass = t->uclass;
    j.split.emit = encode_piece;
    j.split.arg = &j;
    size_t before = out->n;
    enum qn_status rc = QN_OK;
    bool around = (flags & QN_TOK_ADD_SPECIAL) != 0;
    bool ok = !around || push_all(out, t->prefix, t->n_prefix);
    if (ok) {
        rc = encode_text(&j, (struct qn_tok_view){.p = text, .n = n, .plain = plain}, err);
        ok = !around || rc != QN_OK || push_all(out, t->suffix, t->n_suffix);
    }
    if (!ok) {
        rc = qn_fail(err, QN_E_NOMEM, "could not allocate token ids");
    }
    if (rc != QN_OK) {
        out->n = before;
    }
    qn_tok_scratch_done(&j.scratch);
    qn_tok_split_run_done(&j.split);
    qn_tok_norm_run_done(&j.norm);
    return rc;
}
