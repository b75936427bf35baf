#include <stdlib.h>
#include <string.h>

#include "text/tok.h"
#include "text/utf8.h"

void qn_detok_init(struct qn_detok *d, const struct qn_tok *t, bool skip_special)
{
    *d = (struct qn_detok){.tok = t, .skip_special = skip_special};
}

size_t qn_detok_max_out(const struct qn_tok *t)
{
    return 3 * (t->max_bytes + QN_DETOK_HELD);
}

/// Give out n bytes of text at out + k; returns the new k.
static size_t put(struct qn_detok *d, char *out, size_t k, const void *text, size_t n)
{
    const char *p = text;
    if (n > 0 && !d->wrote) {
        d->wrote = true;
        if (d->tok->strip_blank && p[0] == ' ') {
            p++;
            n--;
        }
    }
    memcpy(out + k, p, n);
    return k + n;
}

static size_t put_replacements(struct qn_detok *d, char *out, size_t k, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        k = put(d, out, k, QN_UTF8_REPLACEMENT, 3);
    }
    return k;
}

/// Byte-level: bytes of tokens joined, each maximal invalid part one U+FFFD. Up to three bytes
/// wait.
static size_t push_bytes(struct qn_detok *d, const unsigned char *p, size_t n, char *out)
{
    size_t k = 0;
    while (n > 0 || d->n_held > 0) {
        unsigned char head[8]; // the held bytes and what follows them
        const unsigned char *at = p;
        size_t have = n, len;
        if (d->n_held > 0) {
            size_t take = n < 4 ? n : 4;
            memcpy(head, d->held, d->n_held);
            memcpy(head + d->n_held, p, take);
            at = head;
            have = d->n_held + take;
        }
        enum qn_utf8_kind kind = qn_utf8_next(at, have, &len);
        if (kind == QN_UTF8_PARTIAL) { // all that is left
            memmove(d->held, at, have);
            d->n_held = (unsigned)have;
            break;
        }
        k = kind == QN_UTF8_CHAR ? put(d, out, k, at, len) : put_replacements(d, out, k, 1);
        size_t from_held = len < d->n_held ? len : d->n_held;
        memmove(d->held, d->held + from_held, d->n_held - from_held);
        d->n_held -= (unsigned)from_held;
        p += len - from_held;
        n -= len - from_held;
    }
    return k;
}

/// End of a run of byte tokens: its text if that is whole, one U+FFFD for each byte if not.
static size_t end_run(struct qn_detok *d, char *out)
{
    size_t n = d->n_held, k;
    if (n > 0 && qn_utf8_valid_prefix((const char *)d->held, n) == n) {
        k = put(d, out, 0, d->held, n);
    } else {
        k = put_replacements(d, out, 0, n);
    }
    d->n_held = 0;
    d->bad_run = false;
    return k;
}

/// One byte token of a run.
static size_t push_run(struct qn_detok *d, unsigned char b, char *out)
{
    size_t k = 0, len;
    if (d->bad_run) {
        return put_replacements(d, out, 0, 1);
    }
    if (d->n_held == QN_DETOK_HELD) { // let the complete characters go
        size_t whole = qn_utf8_valid_prefix((const char *)d->held, d->n_held);
        k = put(d, out, 0, d->held, whole);
        memmove(d->held, d->held + whole, d->n_held - whole);
        d->n_held -= (unsigned)whole;
    }
    d->held[d->n_held++] = b;
    size_t whole = qn_utf8_valid_prefix((const char *)d->held, d->n_held);
    if (whole < d->n_held &&
        qn_utf8_next(d->held + whole, d->n_held - whole, &len) == QN_UTF8_INVALID) {
        k += put_replacements(d, out + k, 0, d->n_held); // nothing can mend it
        d->n_held = 0;
        d->bad_run = true;
    }
    return k;
}

/// The first token under a Metaspace decoder: without the letters that stand for blanks.
static size_t push_first(struct qn_detok *d, int32_t id, char *out)
{
    const struct qn_tok *t = d->tok;
    const char *p = t->blob + t->piece[id].off;
    size_t k = 0, n = t->piece[id].len;
    for (size_t i = 0; i < n;) {
        if (n - i >= t->n_meta && memcmp(p + i, t->meta, t->n_meta) == 0) {
            i += t->n_meta;
        } else {
            k = put(d, out, k, p + i++, 1);
        }
    }
    return k;
}

size_t qn_detok_push(struct qn_detok *d, int32_t id, char *out)
{
    const struct qn_tok *t = d->tok;
    if (id < 0 || (size_t)id >= t->n_ids || !(t->flags[id] & QN_TF_USED) ||
        (d->skip_special && (t->flags[id] & QN_TF_SPECIAL))) {
        return 0;
    }
    const unsigned char *p = (const unsigned char *)t->blob + t->bytes[id].off;
    size_t n = t->bytes[id].len;
    bool first = !d->started;
    d->started = true;
    if (t->decoder == QN_TD_BYTE_LEVEL) {
        return push_bytes(d, p, n, out);
    }
    if (t->flags[id] & QN_TF_BYTE) {
        return push_run(d, p[0], out);
    }
    size_t k = end_run(d, out);
    if (first && t->n_meta > 0) {
        return k + push_first(d, id, out + k);
    }
    return put(d, out, k, p, n);
}

size_t qn_detok_finish(struct qn_detok *d, char *out)
{
    if (d->tok->decoder == QN_TD_BYTE_LEVEL) { // an unfinished character is one U+FFFD
        size_t k = put_replacements(d, out, 0, d->n_held > 0 ? 1 : 0);
        d->n_held = 0;
        return k;
    }
    return end_run(d, out);
}

enum qn_status qn_tok_decode(const struct qn_tok *t, const int32_t *ids, size_t n,
                             bool skip_special, struct qn_buf *out, struct qn_err *err)
{
    struct qn_detok d;
    qn_detok_init(&d, t, skip_special);
    char *text = malloc(qn_detok_max_out(t));
    if (text == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the decoded text");
    }
    bool ok = true;
    for (size_t i = 0; i <= n && ok; i++) {
        ok = qn_buf_add(out, text,
                        i < n ? qn_detok_push(&d, ids[i], text) : qn_detok_finish(&d, text));
    }
    free(text);
    if (!ok) {
        return out->limit != 0
                   ? qn_fail(err, QN_E_LIMIT, "decoded text: more than %zu bytes", out->limit)
                   : qn_fail(err, QN_E_NOMEM, "could not allocate the decoded text");
    }
    return QN_OK;
}
