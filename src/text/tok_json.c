#include "text/tok_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum {
    MAX_DEPTH = 64
};

enum qn_status qn_tok_json_text(const json_t *obj, const char *key, const char **out, size_t *out_n,
                                struct qn_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_string(v)) {
        return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %s, expected a string", key,
                       v == NULL ? "nothing" : qn_json_type_name(v));
    }
    *out = json_string_value(v);
    *out_n = json_string_length(v);
    return QN_OK;
}

static enum qn_status check_id(const json_t *v, const char *text, size_t *n_ids, struct qn_err *err)
{
    if (!json_is_integer(v)) {
        return qn_fail(err, QN_E_FORMAT, "token \"%.64s\": id is %s, expected an integer", text,
                       v == NULL ? "nothing" : qn_json_type_name(v));
    }
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= QN_TOK_MAX_IDS) {
        return qn_fail(err, QN_E_FORMAT, "token \"%.64s\": id %lld, expected 0 to %d", text,
                       (long long)id, QN_TOK_MAX_IDS - 1);
    }
    if ((size_t)id >= *n_ids) {
        *n_ids = (size_t)id + 1;
    }
    return QN_OK;
}

/// Ids of the vocabulary and of the added tokens: all in range, *n_ids is the largest + 1.
static enum qn_status count_ids(json_t *vocab, const json_t *added, size_t *n_ids,
                                struct qn_err *err)
{
    const char *key;
    json_t *v;
    size_t i;
    enum qn_status rc;
    *n_ids = 0;
    json_object_foreach(vocab, key, v)
    {
        if ((rc = check_id(v, key, n_ids, err)) != QN_OK) {
            return rc;
        }
    }
    json_array_foreach(added, i, v)
    {
        const char *text;
        size_t n;
        if (!json_is_object(v)) {
            return qn_fail(err, QN_E_FORMAT, "added_tokens[%zu]: found %s, expected an object", i,
                           qn_json_type_name(v));
        }
        if ((rc = qn_tok_json_text(v, "content", &text, &n, err)) != QN_OK ||
            (rc = check_id(json_object_get(v, "id"), text, n_ids, err)) != QN_OK) {
            return qn_err_context(err, rc, "added_tokens[%zu]", i);
        }
    }
    return QN_OK;
}

/// What the BPE model may not have; type and flags into t.
static enum qn_status model_flags(struct qn_tok *t, const json_t *model, struct qn_err *err)
{
    double dropout = 0;
    enum qn_status rc;
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *s = "";
        if ((rc = qn_json_get_str(model, affixes[i], &s, NULL, err)) != QN_OK) {
            return rc;
        }
        if (s[0] != '\0') {
            return qn_fail(err, QN_E_UNSUPPORTED,
                           "model: %s \"%.64s\" is not supported, expected none", affixes[i], s);
        }
    }
    if ((rc = qn_json_get_num(model, "dropout", &dropout, NULL, err)) != QN_OK) {
        return rc;
    }
    if (dropout != 0) {
        return qn_fail(err, QN_E_UNSUPPORTED, "model: dropout %g is not supported, expected none",
                       dropout);
    }
    if ((rc = qn_json_get_bool(model, "ignore_merges", &t->ignore_merges, NULL, err)) != QN_OK ||
        (rc = qn_json_get_bool(model, "byte_fallback", &t->byte_fallback, NULL, err)) != QN_OK) {
        return rc;
    }
    return qn_json_get_bool(model, "fuse_unk", &t->fuse_unk, NULL, err);
}

static enum qn_status put_vocab(struct qn_tok *t, json_t *vocab, struct qn_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(vocab, key, v)
    {
        enum qn_status rc =
            qn_tok_put(t, (int32_t)json_integer_value(v), key, strlen(key), QN_TF_MODEL, err);
        if (rc != QN_OK) {
            return rc;
        }
    }
    return QN_OK;
}

/// "a b" or ["a", "b"].
static bool merge_parts(const json_t *v, const char **left, size_t *n_left, const char **right,
                        size_t *n_right)
{
    if (json_is_string(v)) {
        const char *s = json_string_value(v);
        size_t n = json_string_length(v);
        const char *blank = memchr(s, ' ', n);
        if (blank == NULL) {
            return false;
        }
        *left = s;
        *n_left = (size_t)(blank - s);
        *right = blank + 1;
        *n_right = n - *n_left - 1;
        return memchr(*right, ' ', *n_right) == NULL;
    }
    const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_string(a) || !json_is_string(b)) {
        return false;
    }
    *left = json_string_value(a);
    *n_left = json_string_length(a);
    *right = json_string_value(b);
    *n_right = json_string_length(b);
    return true;
}

static enum qn_status put_merges(struct qn_tok *t, const json_t *merges, struct qn_err *err)
{
    struct qn_buf scratch = {0};
    enum qn_status rc = QN_OK;
    size_t i;
    json_t *v;
    if (json_array_size(merges) > QN_TOK_MAX_MERGES) {
        return qn_fail(err, QN_E_LIMIT, "merges: %zu, expected at most %d", json_array_size(merges),
                       QN_TOK_MAX_MERGES);
    }
    if (!qn_tok_pairs_init(&t->pairs, json_array_size(merges))) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the merges");
    }
    json_array_foreach(merges, i, v)
    {
        const char *left, *right;
        size_t n_left, n_right;
        struct qn_tok_merge m;
        if (!merge_parts(v, &left, &n_left, &right, &n_right)) {
            rc = qn_fail(err, QN_E_FORMAT, "merges[%zu]: expected two texts", i);
            break;
        }
        enum qn_tok_found found = qn_tok_find_merge(t, left, n_left, right, n_right, &m, &scratch);
        if (found == QN_MERGE_NO_MEMORY) {
            rc = qn_fail(err, QN_E_NOMEM, "could not allocate the merges");
            break;
        }
        if (found != QN_MERGE_FOUND) {
            rc = qn_fail(err, QN_E_FORMAT,
                         "merges[%zu]: \"%.64s\" and \"%.64s\", expected two texts of the "
                         "vocabulary that make a third",
                         i, left, right);
            break;
        }
        m.rank = (uint32_t)i;
        qn_tok_pairs_put(&t->pairs, m, true); // of equal pairs the last one counts
    }
    qn_buf_done(&scratch);
    return rc;
}

static enum qn_status put_added(struct qn_tok *t, const json_t *added, struct qn_err *err)
{
    static const struct {
        const char *key;
        unsigned flag;
    } bits[] = {{"lstrip", QN_TA_LSTRIP},
                {"rstrip", QN_TA_RSTRIP},
                {"single_word", QN_TA_SINGLE_WORD},
                {"special", QN_TA_SPECIAL}};
    enum qn_status rc = QN_OK;
    struct qn_tok_norm_run run = {0};
    size_t i;
    json_t *v;
    json_array_foreach(added, i, v)
    {
        const json_t *content = json_object_get(v, "content");
        int32_t id = (int32_t)json_integer_value(json_object_get(v, "id"));
        struct qn_tok_view text = {.p = json_string_value(content),
                                   .n = json_string_length(content)};
        unsigned flags = 0;
        bool on, normalized;
        for (size_t k = 0; k < sizeof bits / sizeof *bits && rc == QN_OK; k++) {
            on = false;
            rc = qn_json_get_bool(v, bits[k].key, &on, NULL, err);
            flags |= on ? bits[k].flag : 0;
        }
        normalized = !(flags & QN_TA_SPECIAL);
        if (rc == QN_OK) {
            rc = qn_json_get_bool(v, "normalized", &normalized, NULL, err);
        }
        if (rc == QN_OK) {
            rc = qn_tok_put(t, id, text.p, text.n,
                            QN_TF_ADDED | (flags & QN_TA_SPECIAL ? QN_TF_SPECIAL : 0u), err);
        }
        if (rc == QN_OK && normalized && t->norm.n > 0) {
            rc = qn_tok_norm_text(&t->norm, &run, text, &text, err);
            if (rc == QN_OK) { // the reference decodes such a token as it is found
                rc = qn_tok_put_text(t, text.p, text.n, &t->bytes[id], err);
                t->flags[id] |= QN_TF_FOUND_AS;
            }
        }
        if (rc == QN_OK) {
            rc = qn_tok_added_put(normalized ? &t->added_norm : &t->added, text.p, text.n, id,
                                  flags, err);
        }
        if (rc != QN_OK) {
            rc = qn_err_context(err, rc, "added_tokens[%zu]", i);
            break;
        }
    }
    qn_tok_norm_run_done(&run);
    return rc;
}

/// Id of the token that a key of tokenizer_config.json names (a text, or an object with one).
static enum qn_status config_token(const struct qn_tok *t, const json_t *config, const char *key,
                                   bool must_exist, int32_t *out, struct qn_err *err)
{
    const json_t *v = json_object_get(config, key);
    if (json_is_object(v)) {
        v = json_object_get(v, "content");
    }
    if (v == NULL || json_is_null(v)) {
        return QN_OK;
    }
    if (!json_is_string(v)) {
        return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %s, expected a string or an object",
                       key, qn_json_type_name(v));
    }
    int32_t id = qn_tok_find(t, json_string_value(v), json_string_length(v));
    if (id < 0 && must_exist) {
        return qn_fail(err, QN_E_FORMAT, "key \"%s\": \"%.64s\" is no token of the vocabulary", key,
                       json_string_value(v));
    }
    *out = id;
    return QN_OK;
}

static enum qn_status use_config(struct qn_tok *t, const json_t *config, struct qn_err *err)
{
    enum qn_status rc;
    bool add_bos = false, found = false;
    if ((rc = config_token(t, config, "bos_token", true, &t->bos, err)) != QN_OK ||
        (rc = config_token(t, config, "eos_token", true, &t->eos, err)) != QN_OK ||
        // a padding token may be a name that training code adds to the vocabulary later
        (rc = config_token(t, config, "pad_token", false, &t->pad, err)) != QN_OK ||
        (rc = qn_json_get_bool(config, "add_bos_token", &add_bos, &found, err)) != QN_OK) {
        return rc;
    }
    if (t->eos >= 0) {
        t->stops[t->n_stops++] = t->eos;
    }
    bool has = qn_tok_adds_bos(t) && t->bos >= 0;
    if (found && add_bos && !has && t->bos >= 0 && t->n_prefix < QN_TOK_MAX_TEMPLATE_IDS) {
        memmove(t->prefix + 1, t->prefix, t->n_prefix * sizeof *t->prefix);
        t->prefix[0] = t->bos;
        t->n_prefix++;
    } else if (found && !add_bos && has) {
        t->n_prefix--;
        memmove(t->prefix, t->prefix + 1, t->n_prefix * sizeof *t->prefix);
    }
    return QN_OK;
}

static enum qn_status check_type(const json_t *model, struct qn_err *err)
{
    const char *type = "BPE"; // absent in old files, which then have vocab and merges
    enum qn_status rc = qn_json_get_str(model, "type", &type, NULL, err);
    if (rc == QN_OK && strcmp(type, "BPE") != 0) {
        rc = qn_fail(err, QN_E_UNSUPPORTED,
                     "tokenizer model type \"%.64s\" is not supported, expected \"BPE\"", type);
    }
    return rc;
}

static enum qn_status build(const json_t *root, const json_t *config, struct qn_tok **out,
                            struct qn_err *err)
{
    const json_t *model = json_object_get(root, "model"), *unk;
    const json_t *added = json_object_get(root, "added_tokens");
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    enum qn_status rc;
    size_t n_ids;
    if (!json_is_object(model)) {
        return qn_fail(err, QN_E_FORMAT, "key \"model\": expected an object");
    }
    if ((rc = check_type(model, err)) != QN_OK) {
        return rc;
    }
    if (!json_is_object(vocab) || !json_is_array(merges)) {
        return qn_fail(err, QN_E_FORMAT,
                       "model: expected an object \"vocab\" and an array \"merges\"");
    }
    if (added != NULL && !json_is_null(added) && !json_is_array(added)) {
        return qn_fail(err, QN_E_FORMAT, "key \"added_tokens\": found %s, expected an array",
                       qn_json_type_name(added));
    }
    if ((rc = count_ids(vocab, added, &n_ids, err)) != QN_OK) {
        return rc;
    }
    struct qn_tok *t = qn_tok_alloc(n_ids);
    if (t == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate %zu tokens", n_ids);
    }
    *out = t; // the caller frees it on failure
    if ((rc = model_flags(t, model, err)) != QN_OK ||
        (rc = qn_tok_json_normalizer(t, json_object_get(root, "normalizer"), err)) != QN_OK ||
        (rc = qn_tok_json_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err)) != QN_OK ||
        (rc = put_vocab(t, vocab, err)) != QN_OK || (rc = put_merges(t, merges, err)) != QN_OK ||
        (rc = put_added(t, added, err)) != QN_OK || (rc = qn_tok_make_keys(t, err)) != QN_OK) {
        return rc;
    }
    unk = json_object_get(model, "unk_token");
    if (json_is_string(unk)) {
        t->unk = qn_tok_find(t, json_string_value(unk), json_string_length(unk));
        if (t->unk < 0 || !(t->flags[t->unk] & QN_TF_MODEL)) {
            return qn_fail(err, QN_E_FORMAT, "unk_token \"%.64s\": not in the vocabulary",
                           json_string_value(unk));
        }
    }
    if ((rc = qn_tok_json_post_processor(t, json_object_get(root, "post_processor"), err)) !=
            QN_OK ||
        (rc = qn_tok_json_decoder(t, json_object_get(root, "decoder"), err)) != QN_OK) {
        return rc;
    }
    if (t->n_prefix > 0) {
        t->bos = t->prefix[0];
    }
    if (json_is_object(config)) {
        rc = use_config(t, config, err);
        return rc == QN_OK ? rc : qn_err_context(err, rc, "tokenizer_config.json");
    }
    return QN_OK;
}

enum qn_status qn_tok_from_json(const char *text, size_t n, const json_t *config,
                                struct qn_tok **out_tok, struct qn_err *err)
{
    json_t *root = NULL;
    struct qn_tok *t = NULL;
    enum qn_status rc = qn_json_parse(text, n, MAX_DEPTH, &root, err);
    if (rc == QN_OK && !json_is_object(root)) {
        rc = qn_fail(err, QN_E_FORMAT, "found %s, expected an object", qn_json_type_name(root));
    }
    if (rc == QN_OK) {
        rc = build(root, config, &t, err);
    }
    json_decref(root);
    if (rc != QN_OK) {
        qn_tok_free(t);
        return qn_err_context(err, rc, "tokenizer.json");
    }
    *out_tok = t;
    return QN_OK;
}
