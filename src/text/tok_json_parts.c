#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tok_json.h"

/// Type of a part; the value must be an object with one.
static enum qn_status type_of(const json_t *v, const char *part, const char **out,
                              struct qn_err *err)
{
    size_t n;
    if (!json_is_object(v)) {
        return qn_fail(err, QN_E_FORMAT, "%s: found %s, expected an object", part,
                       qn_json_type_name(v));
    }
    enum qn_status rc = qn_tok_json_text(v, "type", out, &n, err);
    return rc == QN_OK ? rc : qn_err_context(err, rc, "%s", part);
}

static enum qn_status unsupported(const char *part, const char *type, const char *known,
                                  struct qn_err *err)
{
    return qn_fail(err, QN_E_UNSUPPORTED, "%s type \"%.64s\" is not supported, expected one of %s",
                   part, type, known);
}

/// The steps of a Sequence, each through fn.
typedef enum qn_status part_fn(struct qn_tok *t, const json_t *v, void *arg, struct qn_err *err);

static enum qn_status each(struct qn_tok *t, const json_t *v, const char *key, part_fn *fn,
                           void *arg, struct qn_err *err)
{
    const json_t *list = json_object_get(v, key);
    size_t i;
    json_t *item;
    if (!json_is_array(list)) {
        return qn_fail(err, QN_E_FORMAT, "Sequence: expected an array \"%s\"", key);
    }
    json_array_foreach(list, i, item)
    {
        enum qn_status rc = fn(t, item, arg, err);
        if (rc != QN_OK) {
            return rc;
        }
    }
    return QN_OK;
}

/// {"String": …} or {"Regex": …}.
static enum qn_status pattern_of(const json_t *v, const char **out, size_t *out_n, bool *out_regex,
                                 struct qn_err *err)
{
    const json_t *p = json_object_get(v, "pattern");
    const json_t *s = json_object_get(p, "String"), *r = json_object_get(p, "Regex");
    const json_t *text = s != NULL ? s : r;
    if (!json_is_string(text)) {
        return qn_fail(err, QN_E_FORMAT,
                       "pattern: expected an object with \"String\" or \"Regex\"");
    }
    *out = json_string_value(text);
    *out_n = json_string_length(text);
    *out_regex = s == NULL;
    return QN_OK;
}

static enum qn_status normalizer(struct qn_tok *t, const json_t *v, void *arg, struct qn_err *err)
{
    static const struct {
        const char *name;
        enum qn_tok_norm_kind kind;
    } forms[] = {
        {"NFC", QN_NORM_NFC}, {"NFD", QN_NORM_NFD}, {"NFKC", QN_NORM_NFKC}, {"NFKD", QN_NORM_NFKD}};
    const char *type, *from, *to;
    size_t n_from, n_to;
    bool regex;
    enum qn_status rc = type_of(v, "normalizer", &type, err);
    if (rc != QN_OK) {
        return rc;
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(type, forms[i].name) == 0) {
            return qn_tok_norm_add(&t->norm, forms[i].kind, "", 0, "", 0, err);
        }
    }
    if (strcmp(type, "Sequence") == 0) {
        return each(t, v, "normalizers", normalizer, arg, err);
    }
    if (strcmp(type, "Prepend") == 0) {
        rc = qn_tok_json_text(v, "prepend", &to, &n_to, err);
        return rc != QN_OK ? rc : qn_tok_norm_add(&t->norm, QN_NORM_PREPEND, "", 0, to, n_to, err);
    }
    if (strcmp(type, "Replace") == 0) {
        if ((rc = pattern_of(v, &from, &n_from, &regex, err)) != QN_OK ||
            (rc = qn_tok_json_text(v, "content", &to, &n_to, err)) != QN_OK) {
            return qn_err_context(err, rc, "normalizer Replace");
        }
        if (regex) {
            return qn_fail(err, QN_E_UNSUPPORTED,
                           "normalizer Replace: pattern Regex is not supported, expected String");
        }
        return qn_tok_norm_add(&t->norm, QN_NORM_REPLACE, from, n_from, to, n_to, err);
    }
    return unsupported("normalizer", type, "NFC, NFD, NFKC, NFKD, Replace, Prepend, Sequence", err);
}

enum qn_status qn_tok_json_normalizer(struct qn_tok *t, const json_t *v, struct qn_err *err)
{
    return v == NULL || json_is_null(v) ? QN_OK : normalizer(t, v, NULL, err);
}

static enum qn_status split(struct qn_tok *t, const json_t *v, struct qn_err *err)
{
    static const char *const names[] = {"Removed", "Isolated", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"}; // as enum qn_tok_behavior
    const char *text, *behavior;
    size_t n, n_behavior, i = 0;
    bool regex, invert = false;
    enum qn_status rc;
    if ((rc = pattern_of(v, &text, &n, &regex, err)) != QN_OK ||
        (rc = qn_tok_json_text(v, "behavior", &behavior, &n_behavior, err)) != QN_OK ||
        (rc = qn_json_get_bool(v, "invert", &invert, NULL, err)) != QN_OK) {
        return rc;
    }
    while (i < 5 && strcmp(behavior, names[i]) != 0) {
        i++;
    }
    if (i == 5) {
        return unsupported("behavior", behavior,
                           "Removed, Isolated, Contiguous, MergedWithPrevious, MergedWithNext",
                           err);
    }
    enum qn_tok_behavior b = (enum qn_tok_behavior)i;
    return regex ? qn_tok_split_add_regex(&t->split, b, invert, text, n, err)
                 : qn_tok_split_add(&t->split, QN_STEP_STRING, b, invert, text, n, err);
}

static enum qn_status byte_level(struct qn_tok *t, const json_t *v, struct qn_err *err)
{
    const char *gpt2 = qn_tok_scan_pattern(0);
    bool prefix = true, regex = true;
    enum qn_status rc;
    if ((rc = qn_json_get_bool(v, "add_prefix_space", &prefix, NULL, err)) != QN_OK ||
        (rc = qn_json_get_bool(v, "use_regex", &regex, NULL, err)) != QN_OK) {
        return rc;
    }
    t->byte_level = true;
    if (prefix) {
        rc = qn_tok_split_add(&t->split, QN_STEP_PREFIX, QN_SPLIT_ISOLATED, false, " ", 1, err);
    }
    if (rc == QN_OK && regex) {
        rc = qn_tok_split_add_regex(&t->split, QN_SPLIT_ISOLATED, false, gpt2, strlen(gpt2), err);
    }
    return rc;
}

/// Letter and prepend scheme of Metaspace, in the pre-tokenizer and the decoder alike.
static enum qn_status metaspace_of(const json_t *v, const char **letter, size_t *n_letter,
                                   enum qn_tok_prepend *prepend, struct qn_err *err)
{
    const char *scheme = NULL;
    bool old = true; // key of older files
    enum qn_status rc;
    if ((rc = qn_tok_json_text(v, "replacement", letter, n_letter, err)) != QN_OK ||
        (rc = qn_json_get_str(v, "prepend_scheme", &scheme, NULL, err)) != QN_OK ||
        (rc = qn_json_get_bool(v, "add_prefix_space", &old, NULL, err)) != QN_OK) {
        return rc;
    }
    if (*n_letter == 0 || *n_letter > 4) {
        return qn_fail(err, QN_E_FORMAT, "replacement: \"%.16s\", expected one character", *letter);
    }
    if (scheme == NULL) {
        *prepend = old ? QN_PREPEND_ALWAYS : QN_PREPEND_NEVER;
    } else if (strcmp(scheme, "always") == 0) {
        *prepend = QN_PREPEND_ALWAYS;
    } else if (strcmp(scheme, "first") == 0) {
        *prepend = QN_PREPEND_FIRST;
    } else if (strcmp(scheme, "never") == 0) {
        *prepend = QN_PREPEND_NEVER;
    } else {
        return unsupported("prepend_scheme", scheme, "always, first, never", err);
    }
    return QN_OK;
}

static enum qn_status metaspace(struct qn_tok *t, const json_t *v, struct qn_err *err)
{
    const char *letter;
    size_t n;
    enum qn_tok_prepend prepend;
    bool cut = true;
    enum qn_status rc;
    if ((rc = metaspace_of(v, &letter, &n, &prepend, err)) != QN_OK ||
        (rc = qn_json_get_bool(v, "split", &cut, NULL, err)) != QN_OK ||
        (rc = qn_tok_split_add(&t->split, QN_STEP_META, QN_SPLIT_ISOLATED, false, letter, n,
                               err)) != QN_OK) {
        return rc;
    }
    t->split.steps[t->split.n - 1].prepend = prepend;
    return cut ? qn_tok_split_add(&t->split, QN_STEP_STRING, QN_SPLIT_WITH_NEXT, false, letter, n,
                                  err)
               : QN_OK;
}

static enum qn_status pre_tokenizer(struct qn_tok *t, const json_t *v, void *arg,
                                    struct qn_err *err)
{
    const char *type;
    enum qn_status rc = type_of(v, "pre_tokenizer", &type, err);
    if (rc != QN_OK) {
        return rc;
    }
    if (strcmp(type, "Sequence") == 0) {
        return each(t, v, "pretokenizers", pre_tokenizer, arg, err);
    }
    if (t->byte_level) {
        return qn_fail(
            err, QN_E_UNSUPPORTED,
            "pre_tokenizer \"%.64s\" after ByteLevel is not supported, expected ByteLevel "
            "last",
            type);
    }
    if (strcmp(type, "Split") == 0) {
        rc = split(t, v, err);
    } else if (strcmp(type, "ByteLevel") == 0) {
        rc = byte_level(t, v, err);
    } else if (strcmp(type, "Metaspace") == 0) {
        rc = metaspace(t, v, err);
    } else if (strcmp(type, "Digits") == 0) {
        bool single = false;
        rc = qn_json_get_bool(v, "individual_digits", &single, NULL, err);
        if (rc == QN_OK) {
            rc = qn_tok_split_add(&t->split, QN_STEP_NUMBER,
                                  single ? QN_SPLIT_ISOLATED : QN_SPLIT_CONTIGUOUS, false, NULL, 0,
                                  err);
        }
    } else {
        return unsupported("pre_tokenizer", type, "Split, ByteLevel, Digits, Metaspace, Sequence",
                           err);
    }
    return rc == QN_OK ? rc : qn_err_context(err, rc, "pre_tokenizer %s", type);
}

enum qn_status qn_tok_json_pre_tokenizer(struct qn_tok *t, const json_t *v, struct qn_err *err)
{
    return v == NULL || json_is_null(v) ? QN_OK : pre_tokenizer(t, v, NULL, err);
}

/// Append the ids of one special token of a template.
static enum qn_status template_ids(const struct qn_tok *t, const json_t *tokens, const json_t *item,
                                   int32_t *ids, size_t *n, struct qn_err *err)
{
    const char *name;
    size_t n_name, i;
    json_t *v;
    enum qn_status rc = qn_tok_json_text(item, "id", &name, &n_name, err);
    if (rc != QN_OK) {
        return rc;
    }
    const json_t *list = json_object_get(json_object_get(tokens, name), "ids");
    if (!json_is_array(list)) {
        return qn_fail(err, QN_E_FORMAT, "special_tokens: no ids for \"%.64s\"", name);
    }
    json_array_foreach(list, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || (size_t)id >= t->n_ids || !(t->flags[id] & QN_TF_USED)) {
            return qn_fail(err, QN_E_FORMAT, "special_tokens \"%.64s\": id %lld is no token", name,
                           (long long)id);
        }
        if (*n == QN_TOK_MAX_TEMPLATE_IDS) {
            return qn_fail(err, QN_E_LIMIT, "template: more than %d ids", QN_TOK_MAX_TEMPLATE_IDS);
        }
        ids[(*n)++] = (int32_t)id;
    }
    return QN_OK;
}

/// TemplateProcessing: what stands before and after the text, around what is there already.
static enum qn_status template(struct qn_tok *t, const json_t *v, struct qn_err *err) {
    const json_t *single = json_object_get(v, "single");
        const json_t *tokens = json_object_get(v, "special_tokens");
        int32_t before[QN_TOK_MAX_TEMPLATE_IDS]; size_t n_before = 0,
    i; bool seen = false; json_t * item; enum qn_status rc = QN_OK; if (!json_is_array(single)){
        return qn_fail(err, QN_E_FORMAT, "expected an array \"single\"");
}
json_array_foreach(single, i, item)
{
    const json_t *special = json_object_get(item, "SpecialToken");
    const json_t *sequence = json_object_get(item, "Sequence");
    if (special != NULL) {
        rc = seen ? template_ids(t, tokens, special, t->suffix, &t->n_suffix, err)
                  : template_ids(t, tokens, special, before, &n_before, err);
    } else {
        const char *name = "";
        size_t n;
        rc = qn_tok_json_text(sequence, "id", &name, &n, err);
        if (rc == QN_OK && (seen || strcmp(name, "A") != 0)) {
            rc = qn_fail(err, QN_E_FORMAT, "single[%zu]: sequence \"%.16s\", expected A, once", i,
                         name);
        }
        seen = true;
    }
    if (rc != QN_OK) {
        return rc;
    }
}
if (!seen || n_before + t->n_prefix > QN_TOK_MAX_TEMPLATE_IDS) {
    return qn_fail(err, QN_E_FORMAT, "single: expected the sequence A among at most %d tokens",
                   QN_TOK_MAX_TEMPLATE_IDS);
}
memmove(t->prefix + n_before, t->prefix, t->n_prefix * sizeof *t->prefix);
memcpy(t->prefix, before, n_before * sizeof *before);
t->n_prefix += n_before;
return QN_OK;
}

static enum qn_status post_processor(struct qn_tok *t, const json_t *v, void *arg,
                                     struct qn_err *err)
{
    const char *type;
    enum qn_status rc = type_of(v, "post_processor", &type, err);
    if (rc != QN_OK) {
        return rc;
    }
    if (strcmp(type, "Sequence") == 0) {
        return each(t, v, "processors", post_processor, arg, err);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return QN_OK; // it concerns offsets alone
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        rc = template(t, v, err);
        return rc == QN_OK ? rc : qn_err_context(err, rc, "post_processor TemplateProcessing");
    }
    return unsupported("post_processor", type, "TemplateProcessing, ByteLevel, Sequence", err);
}

enum qn_status qn_tok_json_post_processor(struct qn_tok *t, const json_t *v, struct qn_err *err)
{
    return v == NULL || json_is_null(v) ? QN_OK : post_processor(t, v, NULL, err);
}

/// A decoder's steps; only orders that work on one token at a time are taken.
struct decoder_steps {
    struct qn_tok_replace replace[QN_TOK_MAX_DECODER_REPLACE];
    size_t n_replace, n_steps;
    bool fallback, fused, byte_level;
};

static enum qn_status decoder_replace(struct decoder_steps *d, const char *from, size_t n_from,
                                      const char *to, size_t n_to, struct qn_err *err)
{
    if (d->n_replace == QN_TOK_MAX_DECODER_REPLACE || n_from == 0 || d->fallback || d->fused) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "Replace is supported at most %d times, of a text that is not empty, before "
                       "ByteFallback and Fuse",
                       QN_TOK_MAX_DECODER_REPLACE);
    }
    d->replace[d->n_replace++] =
        (struct qn_tok_replace){.from = from, .n_from = n_from, .to = to, .n_to = n_to};
    return QN_OK;
}

static enum qn_status decoder_strip(struct qn_tok *t, const json_t *v,
                                    const struct decoder_steps *d, struct qn_err *err)
{
    const char *content;
    size_t n;
    int64_t start = 0, stop = 0;
    enum qn_status rc;
    if ((rc = qn_tok_json_text(v, "content", &content, &n, err)) != QN_OK ||
        (rc = qn_json_get_int(v, "start", 0, INT32_MAX, &start, NULL, err)) != QN_OK ||
        (rc = qn_json_get_int(v, "stop", 0, INT32_MAX, &stop, NULL, err)) != QN_OK) {
        return rc;
    }
    if (strcmp(content, " ") != 0 || start > 1 || stop != 0 || !d->fused || t->strip_blank) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "Strip of \"%.16s\" (start %lld, stop %lld) is not supported, expected one "
                       "leading blank after Fuse",
                       content, (long long)start, (long long)stop);
    }
    t->strip_blank = start == 1;
    return QN_OK;
}

static enum qn_status decoder(struct qn_tok *t, const json_t *v, void *arg, struct qn_err *err)
{
    struct decoder_steps *d = arg;
    const char *type, *from, *to;
    size_t n_from, n_to;
    bool regex;
    enum qn_status rc = type_of(v, "decoder", &type, err);
    if (rc != QN_OK) {
        return rc;
    }
    if (strcmp(type, "Sequence") == 0) {
        return each(t, v, "decoders", decoder, arg, err);
    }
    if (d->byte_level || (d->n_steps > 0 && strcmp(type, "ByteLevel") == 0)) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "ByteLevel beside another decoder is not supported, expected it alone");
    }
    d->n_steps++;
    if (strcmp(type, "ByteLevel") == 0) {
        d->byte_level = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        if (d->fused) {
            return qn_fail(err, QN_E_UNSUPPORTED, "ByteFallback after Fuse is not supported");
        }
        d->fallback = true;
    } else if (strcmp(type, "Fuse") == 0) {
        d->fused = true;
    } else if (strcmp(type, "Strip") == 0) {
        rc = decoder_strip(t, v, d, err);
    } else if (strcmp(type, "Replace") == 0) {
        if ((rc = pattern_of(v, &from, &n_from, &regex, err)) == QN_OK && regex) {
            rc = qn_fail(err, QN_E_UNSUPPORTED,
                         "Replace: pattern Regex is not supported, expected String");
        }
        if (rc == QN_OK && (rc = qn_tok_json_text(v, "content", &to, &n_to, err)) == QN_OK) {
            rc = decoder_replace(d, from, n_from, to, n_to, err);
        }
    } else if (strcmp(type, "Metaspace") == 0) {
        enum qn_tok_prepend prepend;
        rc = metaspace_of(v, &from, &n_from, &prepend, err);
        if (rc == QN_OK && d->n_steps > 1) {
            rc =
                qn_fail(err, QN_E_UNSUPPORTED, "Metaspace is supported as the first decoder alone");
        }
        if (rc == QN_OK) {
            rc = decoder_replace(d, from, n_from, " ", 1, err);
        }
        if (rc == QN_OK && prepend != QN_PREPEND_NEVER) {
            memcpy(t->meta, from, n_from);
            t->n_meta = n_from;
        }
    } else {
        return unsupported("decoder", type,
                           "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence",
                           err);
    }
    return rc;
}

enum qn_status qn_tok_json_decoder(struct qn_tok *t, const json_t *v, struct qn_err *err)
{
    struct decoder_steps d = {0};
    if (v == NULL || json_is_null(v)) {
        return qn_fail(err, QN_E_UNSUPPORTED, "decoder: found none, expected one");
    }
    enum qn_status rc = decoder(t, v, &d, err);
    if (rc == QN_OK && t->n_meta > 0 && d.n_replace > 1) {
        rc = qn_fail(err, QN_E_UNSUPPORTED, "Metaspace beside Replace is not supported");
    }
    if (rc != QN_OK) {
        return qn_err_context(err, rc, "decoder");
    }
    t->decoder = d.byte_level ? QN_TD_BYTE_LEVEL : d.fallback ? QN_TD_FALLBACK : QN_TD_PLAIN;
    return qn_tok_make_bytes(t, d.replace, d.n_replace, err);
}
