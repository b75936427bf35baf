#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok.h"
#include "text/utf8.h"

// SentencePiece's BPE joins the two neighbours whose joint text has the best score, leftmost first.
// That is BPE with one merge for each way to cut a token in two, ranked by the token's score. A
// character that occurs inside tokens but is none itself gets a symbol past the ids, so that it can
// take part; left alone it becomes its byte tokens.

enum {
    MAX_TOKEN_BYTES = 1024, // cuts cost the square of the length
    N_CODE_POINTS = 0x110000
};

struct list {
    struct qn_tok_merge *v;
    size_t n, cap;
};

static bool add(struct list *l, struct qn_tok_merge m)
{
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 4096 : 2 * l->cap;
        struct qn_tok_merge *p = realloc(l->v, cap * sizeof *p);
        if (p == NULL) {
            return false;
        }
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = m;
    return true;
}

static enum qn_status no_memory(struct qn_err *err)
{
    return qn_fail(err, QN_E_NOMEM, "could not allocate the merges");
}

static bool test_and_set(uint8_t *bits, uint32_t cp)
{
    bool was = (bits[cp >> 3] >> (cp & 7)) & 1;
    bits[cp >> 3] = (uint8_t)(bits[cp >> 3] | (1u << (cp & 7)));
    return was;
}

/// Symbols for characters that are no token.
static enum qn_status add_characters(struct qn_tok *t, struct qn_err *err)
{
    uint8_t *seen = calloc(N_CODE_POINTS / 8, 1);
    uint32_t *extra = NULL;
    size_t n = 0, cap = 0, len;
    enum qn_status rc = seen == NULL ? no_memory(err) : QN_OK;
    for (int pass = 0; pass < 2 && rc == QN_OK; pass++) {
        for (size_t i = 0; i < t->n_ids && rc == QN_OK; i++) {
            const char *p = t->blob + t->piece[i].off;
            size_t k = t->piece[i].len;
            if (!(t->flags[i] & QN_TF_MODEL) || k == 0) {
                continue;
            }
            uint32_t cp = qn_utf8_get(p, &len);
            if ((len == k) != (pass == 0)) {
                continue; // single characters first, then those inside longer tokens
            }
            for (size_t at = 0; at < k; at += len) {
                cp = qn_utf8_get(p + at, &len);
                if (test_and_set(seen, cp) || pass == 0) {
                    continue;
                }
                if (n == cap) {
                    cap = cap == 0 ? 256 : 2 * cap;
                    uint32_t *more = realloc(extra, cap * sizeof *more);
                    if (more == NULL) {
                        rc = no_memory(err);
                        break;
                    }
                    extra = more;
                }
                extra[n++] = cp;
            }
        }
    }
    if (rc == QN_OK && n > 0) {
        struct qn_tok_span *piece = realloc(t->piece, (t->n_ids + n) * sizeof *piece);
        t->piece = piece == NULL ? t->piece : piece;
        uint8_t *flags = realloc(t->flags, t->n_ids + n);
        t->flags = flags == NULL ? t->flags : flags;
        rc = piece == NULL || flags == NULL ? no_memory(err) : QN_OK;
        for (size_t i = 0; i < n && rc == QN_OK; i++) {
            char c[4];
            t->flags[t->n_ids + i] = QN_TF_MODEL;
            rc = qn_tok_put_text(t, c, qn_utf8_put(extra[i], c), &t->piece[t->n_ids + i], err);
        }
        t->n_syms = rc == QN_OK ? t->n_ids + n : t->n_syms;
    }
    free(extra);
    free(seen);
    return rc;
}

struct ranked {
    float score;
    uint32_t id;
};

static int by_score(const void *a, const void *b)
{
    float x = ((const struct ranked *)a)->score, y = ((const struct ranked *)b)->score;
    return (x < y) - (x > y); // best first
}

/// Rank of each id: equal scores share one, so that position decides between them.
static enum qn_status rank_scores(const struct qn_tok *t, const float *scores, uint32_t *rank,
                                  struct qn_err *err)
{
    struct ranked *order = malloc((t->n_ids + 1) * sizeof *order);
    if (order == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < t->n_ids; i++) {
        if (isnan(scores[i])) {
            free(order);
            return qn_fail(err, QN_E_FORMAT, "score of token %zu: not a number", i);
        }
        order[i] = (struct ranked){.score = scores[i], .id = (uint32_t)i};
    }
    qsort(order, t->n_ids, sizeof *order, by_score);
    uint32_t r = 0;
    for (size_t i = 0; i < t->n_ids; i++) {
        r += i > 0 && order[i].score != order[i - 1].score ? 1 : 0;
        rank[order[i].id] = r;
    }
    free(order);
    return QN_OK;
}

static enum qn_status cut_tokens(const struct qn_tok *t, const uint32_t *rank, struct list *l,
                                 struct qn_err *err)
{
    for (size_t i = 0; i < t->n_ids; i++) {
        const char *p = t->blob + t->piece[i].off;
        size_t n = t->piece[i].len, len;
        if (!(t->flags[i] & QN_TF_MODEL) || n == 0) {
            continue;
        }
        if (n > MAX_TOKEN_BYTES) {
            return qn_fail(err, QN_E_LIMIT, "token %zu: %zu bytes, expected at most %d", i, n,
                           MAX_TOKEN_BYTES);
        }
        qn_utf8_get(p, &len);
        for (size_t at = len; at < n; at += len) {
            int32_t left = qn_tok_keys_get(&t->keys, t->blob, t->key, p, at);
            int32_t right = qn_tok_keys_get(&t->keys, t->blob, t->key, p + at, n - at);
            qn_utf8_get(p + at, &len);
            if (left < 0 || right < 0) {
                continue;
            }
            if (l->n == QN_TOK_MAX_MERGES) {
                return qn_fail(err, QN_E_LIMIT, "merges: more than %d", QN_TOK_MAX_MERGES);
            }
            if (!add(l, (struct qn_tok_merge){.left = (uint32_t)left,
                                              .right = (uint32_t)right,
                                              .rank = rank[i],
                                              .id = (int32_t)i})) {
                return no_memory(err);
            }
        }
    }
    return QN_OK;
}

enum qn_status qn_tok_make_scored(struct qn_tok *t, const float *scores, struct qn_err *err)
{
    struct list l = {0};
    uint32_t *rank = malloc((t->n_ids + 1) * sizeof *rank);
    enum qn_status rc = rank == NULL ? no_memory(err) : QN_OK;
    if (rc == QN_OK && (rc = rank_scores(t, scores, rank, err)) == QN_OK &&
        (rc = add_characters(t, err)) == QN_OK && (rc = qn_tok_make_keys(t, err)) == QN_OK) {
        rc = cut_tokens(t, rank, &l, err);
    }
    if (rc == QN_OK && !qn_tok_pairs_init(&t->pairs, l.n)) {
        rc = no_memory(err);
    }
    for (size_t i = 0; i < l.n && rc == QN_OK; i++) {
        qn_tok_pairs_put(&t->pairs, l.v[i], true);
    }
    free(l.v);
    free(rank);
    return rc;
}
