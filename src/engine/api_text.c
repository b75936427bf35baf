#include "engine/api.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "engine/params.h"
#include "text/chat.h"

enum {
    CHAT_MAX_DEPTH = 128
};

static enum quern_status no_tokenizer(struct quern_error *err)
{
    return qn_params_fail(err, QUERN_E_UNSUPPORTED, "",
                          "this model has no tokenizer: it takes and gives token ids alone");
}

enum quern_status quern_tokenize(const struct quern_model *m, const char *text, size_t n,
                                 unsigned flags, int32_t **out_ids, size_t *out_n,
                                 struct quern_error *err)
{
    _Static_assert((int)QUERN_TOK_ADD_SPECIAL == (int)QN_TOK_ADD_SPECIAL &&
                       (int)QUERN_TOK_PARSE_SPECIAL == (int)QN_TOK_PARSE_SPECIAL,
                   "the flags are passed on");
    if (m->tok == NULL) {
        return no_tokenizer(err);
    }
    struct qn_ids ids = {0};
    struct qn_err e = {0};
    if (qn_tok_encode(m->tok, text, n, NULL, flags, &ids, &e) != QN_OK) {
        qn_ids_done(&ids);
        return qn_params_err(err, &e);
    }
    *out_ids = ids.v;
    *out_n = ids.n;
    return QUERN_OK;
}

enum quern_status quern_detokenize(const struct quern_model *m, const int32_t *ids, size_t n,
                                   bool skip_special, char **out_text, size_t *out_n,
                                   struct quern_error *err)
{
    if (m->tok == NULL) {
        return no_tokenizer(err);
    }
    struct qn_buf text = {0};
    struct qn_err e = {0};
    if (qn_tok_decode(m->tok, ids, n, skip_special, &text, &e) != QN_OK) {
        qn_buf_done(&text);
        return qn_params_err(err, &e);
    }
    char *p = qn_buf_take(&text, out_n);
    if (p == NULL) {
        return qn_params_fail(err, QUERN_E_NOMEM, "", "could not allocate the text of %zu ids", n);
    }
    *out_text = p;
    return QUERN_OK;
}

size_t quern_token_bytes(const struct quern_model *m, int32_t id, char *buf, size_t n_buf)
{
    if (m->tok == NULL || id < 0) {
        return 0;
    }
    size_t most = qn_tok_max_bytes(m->tok);
    if (n_buf >= most) {
        return qn_tok_bytes(m->tok, id, buf);
    }
    char *bytes = malloc(most);
    if (bytes == NULL) {
        return 0;
    }
    size_t n = qn_tok_bytes(m->tok, id, bytes);
    memcpy(buf, bytes, n < n_buf ? n : n_buf);
    free(bytes);
    return n;
}

const char *quern_token_piece(const struct quern_model *m, int32_t id, size_t *out_len)
{
    return m->tok != NULL && id >= 0 ? qn_tok_piece(m->tok, id, out_len) : NULL;
}

/* ---- chat ---- */

/// What a conversation asks for beyond its text.
struct chat {
    json_t *context; ///< variables of the template
    bool continue_final;
};

static enum qn_status read_chat(const json_t *root, bool wants_parts, struct chat *c,
                                struct qn_err *err)
{
    static const char *const known[] = {"messages",
                                        "tools",
                                        "add_generation_prompt",
                                        "documents",
                                        "continue_final_message",
                                        "chat_template_kwargs"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        bool ok = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            ok = ok || strcmp(key, known[i]) == 0;
        }
        if (!ok) {
            return qn_fail(err, QN_E_INVALID, "conversation: unknown member \"%.64s\"", key);
        }
    }
    const json_t *messages = json_object_get(root, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        return qn_fail(err, QN_E_INVALID, "messages: found %s, expected a list of at least one",
                       json_is_array(messages) ? "an empty list" : qn_json_type_name(messages));
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!json_is_object(json_array_get(messages, i))) {
            return qn_fail(err, QN_E_INVALID, "messages[%zu]: found %s, expected an object", i,
                           qn_json_type_name(json_array_get(messages, i)));
        }
    }
    enum qn_status rc =
        qn_json_get_bool(root, "continue_final_message", &c->continue_final, NULL, err);
    bool add = !c->continue_final;
    if (rc == QN_OK) {
        rc = qn_json_get_bool(root, "add_generation_prompt", &add, NULL, err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    if (add && c->continue_final) {
        return qn_fail(err, QN_E_INVALID,
                       "continue_final_message: cannot be true with add_generation_prompt");
    }
    const json_t *kwargs = json_object_get(root, "chat_template_kwargs");
    if (kwargs != NULL && !json_is_null(kwargs) && !json_is_object(kwargs)) {
        return qn_fail(err, QN_E_INVALID, "chat_template_kwargs: found %s, expected an object",
                       qn_json_type_name(kwargs));
    }
    // Variables of the request's own go first, so that they cannot replace these.
    bool ok = (c->context = json_object()) != NULL;
    ok = ok && (!json_is_object(kwargs) ||
                json_object_update(c->context, (json_t *)(uintptr_t)kwargs) == 0);
    const char *const members[] = {"messages", "tools", "documents"};
    for (size_t i = 0; i < 3 && ok; i++) {
        json_t *v = json_object_get(root, members[i]);
        ok = json_object_set_new(c->context, members[i],
                                 v != NULL ? json_incref(v) : json_null()) == 0;
    }
    ok = ok && json_object_set_new(c->context, "add_generation_prompt", json_boolean(add)) == 0;
    json_t *normal = NULL;
    rc = ok ? qn_chat_normalise(messages, wants_parts, &normal, err)
            : qn_fail(err, QN_E_NOMEM, "could not allocate the conversation");
    if (rc == QN_OK && json_object_set_new(c->context, "messages", normal) != 0) {
        rc = qn_fail(err, QN_E_NOMEM, "could not allocate the conversation");
    }
    if (rc == QN_OK && c->continue_final) {
        rc = qn_chat_mark_final(normal, err);
    }
    return rc;
}

static enum qn_status chat_prompt(const struct quern_model *m, const char *chat_json, size_t n,
                                  struct qn_buf *text, struct qn_ids *ids, struct qn_err *err)
{
    json_t *root = NULL;
    struct chat c = {0};
    struct qn_buf plain = {0};
    enum qn_status rc = qn_json_parse(chat_json, n, CHAT_MAX_DEPTH, &root, err);
    if (rc == QN_OK && !json_is_object(root)) {
        rc = qn_fail(err, QN_E_INVALID, "conversation: found %s, expected an object",
                     qn_json_type_name(root));
    }
    if (rc == QN_OK) {
        rc = read_chat(root, qn_tmpl_wants_parts(m->tmpl), &c, err);
    }
    if (rc == QN_OK) {
        rc = qn_tmpl_render(m->tmpl, c.context, m->trusted, qn_clock_wall_s(), NULL, text, &plain,
                            err);
    }
    if (rc == QN_OK && !qn_buf_reserve(text, 0)) {
        rc = qn_fail(err, QN_E_NOMEM, "could not allocate the prompt");
    }
    if (rc == QN_OK && c.continue_final) {
        rc = qn_chat_cut_final(text, &plain, err);
    }
    if (rc == QN_OK) {
        // The template writes what the model wants in front, so nothing is added; special tokens
        // are matched in the template's own text.
        const uint8_t *mask = m->parse_special_tokens ? NULL : (const uint8_t *)plain.data;
        rc = qn_tok_encode(m->tok, text->data, text->len, mask, QN_TOK_PARSE_SPECIAL, ids, err);
    }
    qn_buf_done(&plain);
    json_decref(c.context);
    json_decref(root);
    return rc;
}

enum quern_status quern_chat_prompt(const struct quern_model *m, const char *chat_json, size_t n,
                                    char **out_text, int32_t **out_ids, size_t *out_n,
                                    struct quern_error *err)
{
    if (m->tok == NULL) {
        return no_tokenizer(err);
    }
    if (m->tmpl == NULL) {
        return qn_params_fail(err, QUERN_E_UNSUPPORTED, "", "chat template: %s",
                              m->template_error != NULL ? m->template_error
                                                        : "this model has none; give one");
    }
    struct qn_buf text = {0};
    struct qn_ids ids = {0};
    struct qn_err e = {0};
    if (chat_prompt(m, chat_json, n, &text, &ids, &e) != QN_OK) {
        qn_buf_done(&text);
        qn_ids_done(&ids);
        (void)qn_params_err(err, &e);
        if (err != NULL && e.code == QN_E_INVALID) {
            memcpy(err->param, "messages", sizeof "messages");
        }
        return (enum quern_status)e.code;
    }
    if (out_text != NULL) {
        *out_text = qn_buf_take(&text, NULL);
    }
    qn_buf_done(&text);
    *out_ids = ids.v;
    *out_n = ids.n;
    return QUERN_OK;
}
