#include "text/tok.h"

#include <stdlib.h>
#include <string.h>

#include "text/uclass.h"
#include "text/utf8.h"

struct qn_tok *qn_tok_alloc(size_t n_ids)
{
    struct qn_tok *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return NULL;
    }
    t->n_ids = n_ids;
    t->n_syms = n_ids;
    t->unk = t->bos = t->eos = t->pad = -1;
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    memset(t->ascii_sym, 0xff, sizeof t->ascii_sym);
    size_t n = n_ids == 0 ? 1 : n_ids;
    t->piece = calloc(n, sizeof *t->piece);
    t->bytes = calloc(n, sizeof *t->bytes);
    t->flags = calloc(n, 1);
    t->uclass = malloc(QN_UC_FLAT);
    t->blob_cap = 1 << 12; // never NULL, so that an empty text has a place too
    t->blob = malloc(t->blob_cap);
    if (t->blob == NULL || t->piece == NULL || t->bytes == NULL || t->flags == NULL ||
        t->uclass == NULL || !qn_tok_keys_init(&t->spelled, n_ids)) {
        qn_tok_free(t);
        return NULL;
    }
    qn_uclass_fill(t->uclass);
    return t;
}

void qn_tok_free(struct qn_tok *t)
{
    if (t == NULL) {
        return;
    }
    qn_tok_added_done(&t->added);
    qn_tok_added_done(&t->added_norm);
    qn_tok_norm_done(&t->norm);
    qn_tok_split_done(&t->split);
    qn_tok_keys_done(&t->spelled);
    qn_tok_keys_done(&t->keys);
    qn_tok_pairs_done(&t->pairs);
    if (t->key != t->piece) {
        free(t->key);
    }
    free(t->piece);
    free(t->bytes);
    free(t->flags);
    free((void *)t->whole);
    free(t->uclass);
    free(t->blob);
    free(t);
}

enum qn_status qn_tok_put_text(struct qn_tok *t, const char *text, size_t n,
                               struct qn_tok_span *out, struct qn_err *err)
{
    if (n > QN_TOK_MAX_BLOB - t->blob_n) {
        return qn_fail(err, QN_E_LIMIT, "token texts: more than %d bytes, expected at most that",
                       QN_TOK_MAX_BLOB);
    }
    if (t->blob_n + n > t->blob_cap) {
        size_t cap = 2 * t->blob_cap;
        cap = cap < t->blob_n + n ? t->blob_n + n : cap;
        char *blob = realloc(t->blob, cap);
        if (blob == NULL) {
            return qn_fail(err, QN_E_NOMEM, "could not allocate %zu bytes of token texts", cap);
        }
        t->blob = blob;
        t->blob_cap = cap;
    }
    if (n > 0) {
        memcpy(t->blob + t->blob_n, text, n);
    }
    *out = (struct qn_tok_span){.off = (uint32_t)t->blob_n, .len = (uint32_t)n};
    t->blob_n += n;
    return QN_OK;
}

/// Enough of a text for a message.
static int shown(size_t n)
{
    return n > 64 ? 64 : (int)n;
}

enum qn_status qn_tok_put(struct qn_tok *t, int32_t id, const char *text, size_t n, unsigned flags,
                          struct qn_err *err)
{
    QN_ASSERT(id >= 0 && (size_t)id < t->n_ids);
    unsigned keep = flags & ~(unsigned)QN_TF_DUP;
    if (t->flags[id] & QN_TF_USED) {
        const struct qn_tok_span *s = &t->piece[id];
        if (s->len == n && memcmp(t->blob + s->off, text, n) == 0) {
            t->flags[id] = (uint8_t)(t->flags[id] | keep);
            return QN_OK;
        }
        return qn_fail(err, QN_E_FORMAT,
                       "token id %d: texts \"%.*s\" and \"%.*s\", expected one text per id", id,
                       shown(s->len), t->blob + s->off, shown(n), text);
    }
    enum qn_status rc = qn_tok_put_text(t, text, n, &t->piece[id], err);
    if (rc != QN_OK) {
        return rc;
    }
    int32_t old = qn_tok_keys_put(&t->spelled, t->blob, t->piece, id, true);
    if (old >= 0 && !(flags & QN_TF_DUP)) {
        return qn_fail(err, QN_E_FORMAT, "token \"%.*s\": ids %d and %d, expected one", shown(n),
                       text, old, id);
    }
    t->flags[id] = (uint8_t)(keep | QN_TF_USED);
    return QN_OK;
}

static enum qn_status letter_keys(struct qn_tok *t, struct qn_err *err)
{
    struct qn_buf tmp = {0};
    enum qn_status rc = QN_OK;
    t->key = calloc(t->n_syms == 0 ? 1 : t->n_syms, sizeof *t->key);
    if (t->key == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate token keys");
    }
    for (size_t i = 0; i < t->n_ids && rc == QN_OK; i++) {
        size_t n = t->piece[i].len, n_bytes;
        if (!(t->flags[i] & QN_TF_MODEL)) {
            continue;
        }
        qn_buf_clear(&tmp);
        if (!qn_buf_reserve(&tmp, n)) {
            rc = qn_fail(err, QN_E_NOMEM, "could not allocate token keys");
        } else if (qn_tok_letters_to_bytes(t->blob + t->piece[i].off, n, tmp.data, &n_bytes)) {
            rc = qn_tok_put_text(t, tmp.data, n_bytes, &t->key[i], err);
        }
    }
    qn_buf_done(&tmp);
    return rc;
}

/// Where no token reaches across the start of a word, words can be encoded one by one. Unknown
/// characters must not fuse across it either: all bytes have a token.
static void find_cuts(struct qn_tok *t)
{
    t->cuts = !t->byte_level && !t->ignore_merges && t->byte_fallback;
    for (unsigned b = 0; b < 256; b++) {
        t->cuts = t->cuts && t->byte_id[b] >= 0;
    }
    for (size_t i = 0; i < t->n_syms && t->cuts; i++) {
        const char *p = t->blob + t->key[i].off;
        for (size_t k = 1; (t->flags[i] & QN_TF_MODEL) && k + 3 <= t->key[i].len; k++) {
            if (memcmp(p + k, QN_TOK_BLANK, 3) == 0) {
                t->joins[(unsigned char)p[k - 1]] = true;
            }
        }
    }
}

enum qn_status qn_tok_make_keys(struct qn_tok *t, struct qn_err *err)
{
    enum qn_status rc = QN_OK;
    if (t->byte_level) {
        rc = letter_keys(t, err);
        if (rc != QN_OK) {
            return rc;
        }
    } else {
        t->key = t->piece;
    }
    t->whole = calloc(t->n_syms == 0 ? 1 : t->n_syms, sizeof *t->whole);
    if (!qn_tok_keys_init(&t->keys, t->n_syms) || t->whole == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the token map");
    }
    for (size_t i = 0; i < t->n_syms; i++) {
        if ((t->flags[i] & QN_TF_MODEL) && t->key[i].len > 0) {
            qn_tok_keys_put(&t->keys, t->blob, t->key, (int32_t)i, true);
            t->max_key = t->key[i].len > t->max_key ? t->key[i].len : t->max_key;
        }
    }
    for (unsigned b = 0; b < 256; b++) {
        char c = (char)b, name[8];
        if (t->byte_level) {
            t->byte_id[b] = qn_tok_keys_get(&t->keys, t->blob, t->key, &c, 1);
        } else {
            static const char hex[] = "0123456789ABCDEF";
            memcpy(name, "<0x", 3);
            name[3] = hex[b >> 4];
            name[4] = hex[b & 15];
            name[5] = '>';
            t->byte_id[b] = qn_tok_keys_get(&t->spelled, t->blob, t->piece, name, 6);
            if (b < 128) {
                t->ascii_sym[b] = qn_tok_keys_get(&t->keys, t->blob, t->key, &c, 1);
            }
        }
    }
    find_cuts(t);
    return QN_OK;
}

enum qn_tok_found qn_tok_find_merge(const struct qn_tok *t, const char *left, size_t n_left,
                                    const char *right, size_t n_right, struct qn_tok_merge *out,
                                    struct qn_buf *scratch)
{
    int32_t l = qn_tok_keys_get(&t->spelled, t->blob, t->piece, left, n_left);
    int32_t r = qn_tok_keys_get(&t->spelled, t->blob, t->piece, right, n_right);
    if (l < 0 || r < 0) {
        return QN_MERGE_MISSING;
    }
    qn_buf_clear(scratch);
    if (!qn_buf_add(scratch, left, n_left) || !qn_buf_add(scratch, right, n_right)) {
        return QN_MERGE_NO_MEMORY;
    }
    int32_t id = qn_tok_keys_get(&t->spelled, t->blob, t->piece, scratch->data, scratch->len);
    if (id < 0) {
        return QN_MERGE_MISSING;
    }
    if (!(t->flags[l] & t->flags[r] & t->flags[id] & QN_TF_MODEL)) {
        return QN_MERGE_NEVER;
    }
    *out = (struct qn_tok_merge){.left = (uint32_t)l, .right = (uint32_t)r, .id = id};
    return QN_MERGE_FOUND;
}

/// One Replace step of a decoder on the text in `in`.
static bool replace_all(const struct qn_tok_replace *r, const struct qn_buf *in, struct qn_buf *out)
{
    qn_buf_clear(out);
    size_t i = 0;
    while (i < in->len) {
        const char *hit = memmem(in->data + i, in->len - i, r->from, r->n_from);
        size_t stop = hit == NULL ? in->len : (size_t)(hit - in->data);
        if (!qn_buf_add(out, in->data + i, stop - i) ||
            (hit != NULL && !qn_buf_add(out, r->to, r->n_to))) {
            return false;
        }
        i = hit == NULL ? in->len : stop + r->n_from;
    }
    return qn_buf_add(out, "", 0);
}

/// Bytes of one token text in bufs[0] (bufs[1] is spare); *is_byte for <0xHH>.
static bool decoded(const struct qn_tok *t, const char *text, size_t n,
                    const struct qn_tok_replace *replace, size_t n_replace, struct qn_buf *bufs,
                    bool *is_byte)
{
    *is_byte = false;
    for (int i = 0; i < 2; i++) {
        qn_buf_clear(&bufs[i]);
        if (!qn_buf_reserve(&bufs[i], n)) {
            return false;
        }
    }
    if (t->decoder == QN_TD_BYTE_LEVEL) {
        size_t n_bytes;
        if (qn_tok_letters_to_bytes(text, n, bufs[0].data, &n_bytes)) {
            bufs[0].len = n_bytes;
            return true;
        }
        return qn_buf_add(&bufs[0], text, n);
    }
    if (!qn_buf_add(&bufs[0], text, n)) {
        return false;
    }
    for (size_t i = 0; i < n_replace; i++) {
        if (!replace_all(&replace[i], &bufs[0], &bufs[1])) {
            return false;
        }
        struct qn_buf swap = bufs[0];
        bufs[0] = bufs[1];
        bufs[1] = swap;
    }
    int b = qn_tok_byte_value(bufs[0].data, bufs[0].len);
    if (t->decoder == QN_TD_FALLBACK && b >= 0) {
        bufs[0].data[0] = (char)b;
        bufs[0].len = 1;
        *is_byte = true;
    }
    return true;
}

enum qn_status qn_tok_make_bytes(struct qn_tok *t, const struct qn_tok_replace *replace,
                                 size_t n_replace, struct qn_err *err)
{
    struct qn_buf bufs[2] = {0};
    enum qn_status rc = QN_OK;
    t->max_bytes = 1;
    for (size_t i = 0; i < t->n_ids && rc == QN_OK; i++) {
        if (!(t->flags[i] & QN_TF_USED)) {
            continue;
        }
        struct qn_tok_span s = t->flags[i] & QN_TF_FOUND_AS ? t->bytes[i] : t->piece[i];
        bool is_byte;
        if (!decoded(t, t->blob + s.off, s.len, replace, n_replace, bufs, &is_byte)) {
            rc = qn_fail(err, QN_E_NOMEM, "could not allocate token texts");
            break;
        }
        if (is_byte) {
            t->flags[i] |= QN_TF_BYTE;
        }
        if (bufs[0].len == s.len && memcmp(bufs[0].data, t->blob + s.off, s.len) == 0) {
            t->bytes[i] = s;
        } else {
            rc = qn_tok_put_text(t, bufs[0].data, bufs[0].len, &t->bytes[i], err);
        }
        t->max_bytes = t->bytes[i].len > t->max_bytes ? t->bytes[i].len : t->max_bytes;
        t->max_bytes = s.len > t->max_bytes ? s.len : t->max_bytes; // Metaspace's first token
    }
    qn_buf_done(&bufs[0]);
    qn_buf_done(&bufs[1]);
    return rc;
}
