#include <stdlib.h>
#include <string.h>

#include "server/call.h"
#include "server/jsonw.h"

static bool check_names(const struct qn_call *call, struct qn_api_error *err)
{
    const json_t *model = qn_field(call->root, "model");
    if (model != NULL && !json_is_string(model)) {
        return qn_api_fail(err, 400, NULL, "model", "model: expected a string");
    }
    return qn_check_model(call->server, json_string_value(model), json_string_length(model), err);
}

static void write_tokens(const struct qn_server *s, const int32_t *ids, size_t n, bool strings,
                         struct qn_buf *out)
{
    qn_buf_printf(out, "{\"count\":%zu,\"max_model_len\":%zu,\"tokens\":[", n,
                  s->rules.max_model_len);
    for (size_t i = 0; i < n; i++) {
        qn_buf_printf(out, i > 0 ? ",%d" : "%d", (int)ids[i]);
    }
    qn_buf_puts(out, "],\"token_strs\":");
    if (!strings) {
        qn_buf_puts(out, "null}");
        return;
    }
    qn_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *piece = quern_token_piece(s->model, ids[i], &len);
        qn_buf_puts(out, i > 0 ? "," : "");
        qn_jw_str(out, piece != NULL ? piece : "", piece != NULL ? len : 0);
    }
    qn_buf_puts(out, "]}");
}

void qn_tokenize_work(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    struct qn_api_error *err = &call->err;
    bool strings = false;
    int32_t *ids = NULL;
    size_t n = 0;
    if (!qn_body_parse(call) || !check_names(call, err) ||
        !qn_field_bool(call->root, "return_token_strs", &strings, err)) {
        return;
    }
    const json_t *prompt = qn_field(call->root, "prompt");
    bool chat = qn_field(call->root, "messages") != NULL;
    bool special = !chat, add_generation = true, ok = false;
    if (!qn_field_bool(call->root, "add_special_tokens", &special, err)) {
        return;
    }
    if (chat) {
        ok = qn_chat_render(s, call->root, -1, &ids, &n, &add_generation, err);
    } else if (json_is_string(prompt)) {
        unsigned flags = QUERN_TOK_PARSE_SPECIAL | (special ? QUERN_TOK_ADD_SPECIAL : 0u);
        ok = qn_text_tokenize(s, json_string_value(prompt), json_string_length(prompt), flags, &ids,
                              &n, err);
    } else {
        char buf[64];
        qn_api_fail(err, 400, NULL, "prompt", "prompt: found %s, expected a string, or messages",
                    qn_value_text(prompt, buf));
    }
    if (ok) {
        write_tokens(s, ids, n, strings, &call->reply);
    }
    free(ids);
}

void qn_detokenize_work(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    int32_t *ids = NULL;
    size_t n = 0;
    if (!qn_body_parse(call) || !check_names(call, &call->err) ||
        !qn_ids_parse(qn_field(call->root, "tokens"), s->rules.vocab_size, "tokens", &ids, &n,
                      &call->err)) {
        return;
    }
    struct quern_error q = {0};
    char *text = NULL;
    size_t n_text = 0;
    if (quern_detokenize(s->model, ids, n, false, &text, &n_text, &q) != QUERN_OK) {
        qn_api_fail_quern(&call->err, &q, "tokens");
    } else {
        qn_buf_puts(&call->reply, "{\"prompt\":");
        qn_jw_str(&call->reply, text, n_text);
        qn_buf_putc(&call->reply, '}');
        quern_free(text);
    }
    free(ids);
}
