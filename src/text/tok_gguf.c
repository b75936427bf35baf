#include <stdlib.h>
#include <string.h>

#include "text/tok.h"
#include "text/utf8.h"

// Token types of tokenizer.ggml.token_type.
enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN,
    TYPE_CONTROL,
    TYPE_USER_DEFINED,
    TYPE_UNUSED,
    TYPE_BYTE
};

static enum qn_status no_memory(struct qn_err *err)
{
    return qn_fail(err, QN_E_NOMEM, "could not allocate the tokenizer");
}

static enum qn_status put_token(struct qn_tok *t, const struct qn_tok_gguf *src, size_t i,
                                struct qn_err *err)
{
    const char *text;
    size_t n;
    int type = TYPE_NORMAL;
    if (!src->token(src->ctx, i, &text, &n)) {
        return qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.tokens[%zu]: could not be read", i);
    }
    if (src->token_type != NULL && !src->token_type(src->ctx, i, &type)) {
        return qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.token_type[%zu]: could not be read", i);
    }
    if (type < TYPE_NORMAL || type > TYPE_BYTE) {
        return qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.token_type[%zu]: %d, expected 1 to 6", i,
                       type);
    }
    if (n > 0 && qn_utf8_valid_prefix(text, n) != n) {
        return qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.tokens[%zu]: not valid UTF-8", i);
    }
    unsigned flags = QN_TF_DUP;
    bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    if (type == TYPE_NORMAL) {
        flags |= QN_TF_MODEL;
    } else if (special) {
        flags |= QN_TF_ADDED | QN_TF_SPECIAL;
    } else if (type == TYPE_USER_DEFINED) {
        flags |= QN_TF_ADDED;
    }
    enum qn_status rc = qn_tok_put(t, (int32_t)i, text, n, flags, err);
    if (rc == QN_OK && (flags & QN_TF_ADDED)) {
        rc = qn_tok_added_put(&t->added, text, n, (int32_t)i, special ? QN_TA_SPECIAL : 0, err);
    }
    return rc;
}

static enum qn_status put_merges(struct qn_tok *t, const struct qn_tok_gguf *src,
                                 struct qn_err *err)
{
    struct qn_buf scratch = {0};
    enum qn_status rc = QN_OK;
    if (src->n_merges == 0 || src->n_merges > QN_TOK_MAX_MERGES) {
        return qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.merges: %zu, expected 1 to %d",
                       src->n_merges, QN_TOK_MAX_MERGES);
    }
    if (!qn_tok_pairs_init(&t->pairs, src->n_merges)) {
        return no_memory(err);
    }
    for (size_t i = 0; i < src->n_merges && rc == QN_OK; i++) {
        const char *s;
        size_t n;
        struct qn_tok_merge m;
        bool ok = src->merge(src->ctx, i, &s, &n) && n >= 3;
        const char *blank = ok ? memchr(s + 1, ' ', n - 1) : NULL; // a part may begin with a blank
        if (blank == NULL) {
            rc = qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.merges[%zu]: expected two texts", i);
            break;
        }
        size_t left = (size_t)(blank - s);
        switch (qn_tok_find_merge(t, s, left, blank + 1, n - left - 1, &m, &scratch)) {
        case QN_MERGE_FOUND:
            m.rank = (uint32_t)i;
            qn_tok_pairs_put(&t->pairs, m, false); // of equal pairs the first one counts
            break;
        case QN_MERGE_NEVER:
            break; // text never makes a control token
        case QN_MERGE_NO_MEMORY:
            rc = no_memory(err);
            break;
        case QN_MERGE_MISSING:
            rc = qn_fail(err, QN_E_FORMAT,
                         "tokenizer.ggml.merges[%zu]: \"%.*s\", expected two tokens that make a "
                         "third",
                         i, (int)(n < 64 ? n : 64), s);
            break;
        }
    }
    qn_buf_done(&scratch);
    return rc;
}

static enum qn_status use_pre(struct qn_tok *t, const struct qn_tok_gguf *src, bool *add_bos,
                              struct qn_err *err)
{
    if (src->pre == NULL) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "tokenizer.ggml.pre: not there, expected the name of a pre-tokenizer");
    }
    const struct qn_tok_pre *pre = qn_tok_pre_find(src->pre);
    if (pre == NULL) {
        return qn_fail(err, QN_E_UNSUPPORTED, "tokenizer.ggml.pre \"%.64s\" is not supported",
                       src->pre);
    }
    enum qn_status rc = QN_OK;
    t->ignore_merges = pre->ignore_merges;
    *add_bos = pre->add_bos;
    if (pre->nfc) {
        rc = qn_tok_norm_add(&t->norm, QN_NORM_NFC, "", 0, "", 0, err);
    }
    if (rc == QN_OK && pre->digits_apart) {
        rc = qn_tok_split_add(&t->split, QN_STEP_NUMBER, QN_SPLIT_ISOLATED, false, NULL, 0, err);
    }
    for (size_t i = 0; i < 4 && pre->patterns[i] != NULL && rc == QN_OK; i++) {
        rc = qn_tok_split_add_regex(&t->split, QN_SPLIT_ISOLATED, false, pre->patterns[i],
                                    strlen(pre->patterns[i]), err);
    }
    return rc;
}

static enum qn_status make_scored(struct qn_tok *t, const struct qn_tok_gguf *src,
                                  struct qn_err *err)
{
    if (src->score == NULL) {
        return qn_fail(err, QN_E_FORMAT,
                       "tokenizer.ggml.scores: not there, expected one per token");
    }
    float *scores = malloc((src->n_tokens + 1) * sizeof *scores);
    if (scores == NULL) {
        return no_memory(err);
    }
    enum qn_status rc = QN_OK;
    for (size_t i = 0; i < src->n_tokens && rc == QN_OK; i++) {
        if (!src->score(src->ctx, i, &scores[i])) {
            rc = qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.scores[%zu]: could not be read", i);
        }
    }
    if (rc == QN_OK) {
        rc = qn_tok_make_scored(t, scores, err);
    }
    free(scores);
    return rc;
}

/// The families that spell a blank as U+2581 and fall back to byte tokens.
static enum qn_status blank_family(struct qn_tok *t, const struct qn_tok_gguf *src, bool scored,
                                   struct qn_err *err)
{
    bool prefix = scored && src->add_space_prefix != 0;
    enum qn_status rc = QN_OK;
    t->byte_fallback = true;
    t->fuse_unk = true;
    t->decoder = QN_TD_FALLBACK;
    t->strip_blank = prefix;
    if (prefix) {
        rc = qn_tok_norm_add(&t->norm, QN_NORM_PREPEND, "", 0, QN_TOK_BLANK, 3, err);
    }
    if (rc == QN_OK) {
        rc = qn_tok_norm_add(&t->norm, QN_NORM_REPLACE, " ", 1, QN_TOK_BLANK, 3, err);
    }
    if (rc == QN_OK && scored) {
        rc = make_scored(t, src, err);
    } else if (rc == QN_OK && (rc = put_merges(t, src, err)) == QN_OK) {
        rc = qn_tok_make_keys(t, err);
    }
    if (rc == QN_OK) {
        const struct qn_tok_replace blank = {QN_TOK_BLANK, " ", 3, 1};
        rc = qn_tok_make_bytes(t, &blank, 1, err);
    }
    return rc;
}

/// Range check of an id key; -1 stays -1.
static enum qn_status id_key(const struct qn_tok *t, const char *key, int64_t id, int32_t *out,
                             struct qn_err *err)
{
    if (id < -1 || id >= (int64_t)t->n_ids) {
        return qn_fail(err, QN_E_FORMAT, "%s: %lld, expected 0 to %zu", key, (long long)id,
                       t->n_ids - 1);
    }
    *out = (int32_t)id;
    return QN_OK;
}

static enum qn_status use_ids(struct qn_tok *t, const struct qn_tok_gguf *src, struct qn_err *err)
{
    enum qn_status rc;
    if ((rc = id_key(t, "tokenizer.ggml.bos_token_id", src->bos, &t->bos, err)) != QN_OK ||
        (rc = id_key(t, "tokenizer.ggml.eos_token_id", src->eos, &t->eos, err)) != QN_OK ||
        (rc = id_key(t, "tokenizer.ggml.padding_token_id", src->pad, &t->pad, err)) != QN_OK ||
        (rc = id_key(t, "tokenizer.ggml.unknown_token_id", src->unk, &t->unk, err)) != QN_OK) {
        return rc;
    }
    if (t->eos >= 0) {
        t->stops[t->n_stops++] = t->eos;
    }
    for (size_t i = 0; i < src->n_more_eos; i++) {
        int32_t id = -1;
        rc = id_key(t, "end-of-turn token id", src->more_eos[i], &id, err);
        if (rc != QN_OK) {
            return rc;
        }
        bool known = id < 0;
        for (size_t k = 0; k < t->n_stops; k++) {
            known = known || t->stops[k] == id;
        }
        if (!known && t->n_stops == QN_TOK_MAX_STOPS) {
            return qn_fail(err, QN_E_LIMIT, "stop ids: more than %d", QN_TOK_MAX_STOPS);
        }
        if (!known) {
            t->stops[t->n_stops++] = id;
        }
    }
    return QN_OK;
}

static enum qn_status build(const struct qn_tok_gguf *src, struct qn_tok *t, struct qn_err *err)
{
    bool gpt2 = strcmp(src->model, "gpt2") == 0, llama = strcmp(src->model, "llama") == 0;
    bool add_bos = !gpt2;
    enum qn_status rc = use_ids(t, src, err);
    if (rc != QN_OK) {
        return rc;
    }
    if (gpt2) {
        t->unk = -1; // bytes always have a token, or are dropped as the reference does
        t->byte_level = true;
        t->decoder = QN_TD_BYTE_LEVEL;
        rc = use_pre(t, src, &add_bos, err);
    }
    for (size_t i = 0; i < src->n_tokens && rc == QN_OK; i++) {
        rc = put_token(t, src, i, err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    if (!gpt2) {
        rc = blank_family(t, src, llama, err);
    } else if ((rc = put_merges(t, src, err)) == QN_OK &&
               (rc = qn_tok_make_keys(t, err)) == QN_OK) {
        rc = qn_tok_make_bytes(t, NULL, 0, err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    add_bos = src->add_bos >= 0 ? src->add_bos != 0 : add_bos;
    if (add_bos && t->bos >= 0) {
        t->prefix[t->n_prefix++] = t->bos;
    }
    if (src->add_eos > 0 && t->eos >= 0) {
        t->suffix[t->n_suffix++] = t->eos;
    }
    return QN_OK;
}

enum qn_status qn_tok_from_gguf(const struct qn_tok_gguf *src, struct qn_tok **out_tok,
                                struct qn_err *err)
{
    if (src->model == NULL ||
        (strcmp(src->model, "gpt2") != 0 && strcmp(src->model, "llama") != 0 &&
         strcmp(src->model, "gemma4") != 0)) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "tokenizer.ggml.model \"%.64s\" is not supported, expected gpt2, llama or "
                       "gemma4",
                       src->model == NULL ? "" : src->model);
    }
    if (src->n_tokens == 0 || src->n_tokens > QN_TOK_MAX_IDS) {
        return qn_fail(err, QN_E_FORMAT, "tokenizer.ggml.tokens: %zu, expected 1 to %d",
                       src->n_tokens, QN_TOK_MAX_IDS);
    }
    struct qn_tok *t = qn_tok_alloc(src->n_tokens);
    if (t == NULL) {
        return no_memory(err);
    }
    enum qn_status rc = build(src, t, err);
    if (rc != QN_OK) {
        qn_tok_free(t);
        return rc;
    }
    *out_tok = t;
    return QN_OK;
}
