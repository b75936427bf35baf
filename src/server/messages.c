#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/call.h"
#include "server/jsonw.h"

// A text part, a list of text parts (joined by newlines, as templates of text models want one
// string), a string, or null.
static json_t *content_string(const json_t *content, size_t message, struct qn_api_error *err)
{
    char param[96];
    if (content == NULL || json_is_null(content)) {
        return json_string("");
    }
    if (json_is_string(content)) {
        return json_incref((json_t *)content);
    }
    snprintf(param, sizeof param, "messages[%zu].content", message);
    if (!json_is_array(content)) {
        char buf[64];
        qn_api_fail(err, 400, NULL, param, "%s: found %s, expected a string or a list of parts",
                    param, qn_value_text(content, buf));
        return NULL;
    }
    struct qn_buf text = {0};
    json_t *result = NULL;
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const json_t *type = json_object_get(part, "type");
        const json_t *value = json_object_get(part, "text");
        snprintf(param, sizeof param, "messages[%zu].content[%zu]", message, i);
        if (json_is_string(part)) {
            value = part;
        } else if (!json_is_string(type)) {
            qn_api_fail(err, 400, NULL, param, "%s: expected an object with a \"type\"", param);
            goto done;
        } else if (strcmp(json_string_value(type), "text") != 0 &&
                   strcmp(json_string_value(type), "input_text") != 0 &&
                   strcmp(json_string_value(type), "output_text") != 0 &&
                   strcmp(json_string_value(type), "refusal") != 0) {
            qn_api_fail(err, 400, NULL, param,
                        "%s: found a part of type \"%.40s\", expected text: this model reads "
                        "text only",
                        param, json_string_value(type));
            goto done;
        } else if (strcmp(json_string_value(type), "refusal") == 0) {
            value = json_object_get(part, "refusal");
        }
        if (!json_is_string(value)) {
            qn_api_fail(err, 400, NULL, param, "%s: expected \"text\" to be a string", param);
            goto done;
        }
        if (i > 0) {
            qn_buf_putc(&text, '\n');
        }
        qn_buf_add(&text, json_string_value(value), json_string_length(value));
    }
    if (!text.failed) {
        result = json_stringn(text.data != NULL ? text.data : "", text.len);
    }
done:
    if (result == NULL) {
        qn_api_fail(err, 503, NULL, NULL, "could not allocate a message");
    }
    qn_buf_done(&text);
    return result;
}

static bool check_tool_calls(const json_t *calls, size_t message, struct qn_api_error *err)
{
    char param[96];
    snprintf(param, sizeof param, "messages[%zu].tool_calls", message);
    if (calls == NULL || json_is_null(calls)) {
        return true;
    }
    if (!json_is_array(calls)) {
        return qn_api_fail(err, 400, NULL, param, "%s: expected a list", param);
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        if (!json_is_object(function) || !json_is_string(json_object_get(function, "name"))) {
            snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu].function", message, i);
            return qn_api_fail(err, 400, NULL, param, "%s: expected an object with a \"name\"",
                               param);
        }
    }
    return true;
}

static json_t *one_message(const json_t *m, size_t i, size_t *bytes, struct qn_api_error *err)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    char param[64], buf[64];
    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!json_is_object(m)) {
        qn_api_fail(err, 400, NULL, param, "%s: found %s, expected an object", param,
                    qn_value_text(m, buf));
        return NULL;
    }
    const json_t *role = json_object_get(m, "role");
    bool known = false;
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
        known = known || (json_is_string(role) && strcmp(json_string_value(role), roles[k]) == 0);
    }
    if (!known) {
        snprintf(param, sizeof param, "messages[%zu].role", i);
        qn_api_fail(err, 400, NULL, param,
                    "%s: found %s, expected system, developer, user, assistant or tool", param,
                    qn_value_text(role, buf));
        return NULL;
    }
    const json_t *content = json_object_get(m, "content");
    if (content == NULL && strcmp(json_string_value(role), "assistant") != 0) {
        snprintf(param, sizeof param, "messages[%zu].content", i);
        qn_api_fail(err, 400, NULL, param, "%s: missing, expected a string", param);
        return NULL;
    }
    if (!check_tool_calls(json_object_get(m, "tool_calls"), i, err)) {
        return NULL;
    }
    json_t *text = content_string(content, i, err);
    json_t *copy = text != NULL ? json_copy((json_t *)m) : NULL;
    // jansson leaves out what it has no memory for
    bool ok = copy != NULL && json_object_size(copy) == json_object_size(m);
    *bytes += json_string_length(text);
    ok = json_object_set_new(copy, "content", text) == 0 && ok;
    if (ok && qn_field(copy, "tool_calls") == NULL) {
        json_object_del(copy, "tool_calls");
    }
    // half of the templates read one name, half the other
    json_t *thought = json_object_get(copy, "reasoning_content");
    json_t *other = json_object_get(copy, "reasoning");
    if (json_is_string(thought)) {
        ok = ok && json_object_set(copy, "reasoning", thought) == 0;
    } else if (json_is_string(other)) {
        ok = ok && json_object_set(copy, "reasoning_content", other) == 0;
    }
    if (!ok) {
        qn_api_fail(err, 503, NULL, NULL, "could not allocate a message");
        json_decref(copy);
        return NULL;
    }
    return copy;
}

static json_t *all_messages(const json_t *body, size_t *bytes, struct qn_api_error *err)
{
    const json_t *list = qn_field(body, "messages");
    char buf[64];
    if (!json_is_array(list) || json_array_size(list) == 0) {
        qn_api_fail(err, 400, NULL, "messages", "messages: found %s, expected a list of messages",
                    json_is_array(list) ? "an empty list" : qn_value_text(list, buf));
        return NULL;
    }
    json_t *out = json_array();
    for (size_t i = 0; out != NULL && i < json_array_size(list); i++) {
        json_t *m = one_message(json_array_get(list, i), i, bytes, err);
        if (m == NULL || json_array_append_new(out, m) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    if (out == NULL) {
        qn_api_fail(err, 503, NULL, NULL, "could not allocate the messages");
    }
    return out;
}

// The server's defaults, then what reasoning_effort means, then the request's own.
static json_t *template_kwargs(const struct qn_server *s, const json_t *body,
                               struct qn_api_error *err)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    char buf[64];
    json_t *out = s->chat_kwargs != NULL ? json_copy(s->chat_kwargs) : json_object();
    const json_t *own = qn_field(body, "chat_template_kwargs");
    const json_t *effort = qn_field(body, "reasoning_effort");
    if (out == NULL || json_object_size(out) != json_object_size(s->chat_kwargs)) {
        goto no_memory;
    }
    if (effort != NULL) {
        bool known = false;
        for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
            known = known ||
                    (json_is_string(effort) && strcmp(json_string_value(effort), efforts[i]) == 0);
        }
        if (!known) {
            qn_api_fail(err, 400, NULL, "reasoning_effort",
                        "reasoning_effort: found %s, expected none, minimal, low, medium, high, "
                        "xhigh or max",
                        qn_value_text(effort, buf));
            goto fail;
        }
        bool think = strcmp(json_string_value(effort), "none") != 0;
        if (json_object_set(out, "reasoning_effort", (json_t *)effort) != 0 ||
            json_object_set_new(out, "enable_thinking", json_boolean(think)) != 0) {
            goto no_memory;
        }
    }
    if (own != NULL) {
        if (!json_is_object(own)) {
            qn_api_fail(err, 400, NULL, "chat_template_kwargs",
                        "chat_template_kwargs: found %s, expected an object",
                        qn_value_text(own, buf));
            goto fail;
        }
        static const char *const reserved[] = {"chat_template", "messages", "tokenize", "tools"};
        for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
            if (json_object_get(own, reserved[i]) != NULL) {
                qn_api_fail(err, 400, NULL, "chat_template_kwargs",
                            "chat_template_kwargs: \"%s\" may not be set from a request",
                            reserved[i]);
                goto fail;
            }
        }
        if (json_object_update(out, (json_t *)own) != 0) {
            goto no_memory;
        }
    }
    return out;
no_memory:
    qn_api_fail(err, 503, NULL, NULL, "could not allocate chat_template_kwargs");
fail:
    json_decref(out);
    return NULL;
}

static bool tool_exists(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *have = json_string_value(json_object_get(f, "name"));
        if (have != NULL && strcmp(have, name) == 0) {
            return true;
        }
    }
    return false;
}

// Tools reach the template when no call may come back; calls themselves cannot be parsed out of
// the answer, and dropping them silently would be worse than refusing.
static bool check_tools(const json_t *body, const json_t **out_tools, struct qn_api_error *err)
{
    const json_t *tools = qn_field(body, "tools"), *choice = qn_field(body, "tool_choice");
    char buf[64];
    *out_tools = NULL;
    if (tools != NULL && (!json_is_array(tools) || json_array_size(tools) == 0)) {
        return qn_api_fail(err, 400, NULL, "tools", "tools: expected a list of at least one tool");
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (!json_is_string(json_object_get(f, "name"))) {
            return qn_api_fail(err, 400, NULL, "tools",
                               "tools[%zu]: expected {\"type\": \"function\", \"function\": "
                               "{\"name\": …}}",
                               i);
        }
    }
    const char *word =
        choice == NULL ? (tools != NULL ? "auto" : "none") : json_string_value(choice);
    if (tools == NULL && choice != NULL && (word == NULL || strcmp(word, "none") != 0)) {
        return qn_api_fail(err, 400, NULL, "tool_choice", "tool_choice: given without tools");
    }
    if (word != NULL && strcmp(word, "none") == 0) {
        *out_tools = tools;
        return true;
    }
    if (word != NULL) {
        if (strcmp(word, "auto") != 0 && strcmp(word, "required") != 0) {
            return qn_api_fail(err, 400, NULL, "tool_choice",
                               "tool_choice: found %s, expected none, auto, required or a named "
                               "function",
                               qn_value_text(choice, buf));
        }
        return qn_api_fail(err, 400, NULL, "tool_choice",
                           "tool_choice: \"%s\" needs tool calls to be read out of the answer "
                           "(--enable-auto-tool-choice, --tool-call-parser), which this server "
                           "cannot do; send \"none\"",
                           word);
    }
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (name == NULL || !tool_exists(tools, name)) {
        return qn_api_fail(err, 400, NULL, "tool_choice",
                           "tool_choice: expected the name of one of the tools");
    }
    return qn_api_fail(err, 400, NULL, "tool_choice",
                       "tool_choice: a named function needs --tool-call-parser, which this server "
                       "does not have; send \"none\"");
}

bool qn_chat_render(const struct qn_server *s, const json_t *body, int64_t max_tokens,
                    int32_t **out_ids, size_t *out_n, bool *out_add_generation,
                    struct qn_api_error *err)
{
    bool add = true, final = false;
    const json_t *tools = NULL;
    json_t *messages = NULL, *kwargs = NULL, *chat = NULL;
    struct qn_buf text = {0};
    size_t bytes = 0;
    bool ok = false;
    if (s->info->has_tokenizer && !s->info->has_chat_template &&
        s->info->chat_template_error == NULL) {
        return qn_api_fail(err, 400, NULL, "messages",
                           "chat template: the model has none; start the server with "
                           "--chat-template FILE, or use /v1/completions");
    }
    if (qn_field(body, "chat_template") != NULL) {
        return qn_api_fail(err, 400, NULL, "chat_template",
                           "chat_template: templates come from the model or --chat-template, not "
                           "from requests");
    }
    if (!qn_field_bool(body, "continue_final_message", &final, err)) {
        return false;
    }
    add = !final;
    if (!qn_field_bool(body, "add_generation_prompt", &add, err)) {
        return false;
    }
    if (add && final) {
        return qn_api_fail(err, 400, NULL, "continue_final_message",
                           "continue_final_message: cannot be true together with "
                           "add_generation_prompt");
    }
    if (!check_tools(body, &tools, err) || (messages = all_messages(body, &bytes, err)) == NULL ||
        !qn_text_check(s, bytes, max_tokens, err) ||
        (kwargs = template_kwargs(s, body, err)) == NULL) {
        goto done;
    }
    chat =
        json_pack("{s:O, s:b, s:b, s:O, s:O*, s:O*}", "messages", messages, "add_generation_prompt",
                  add, "continue_final_message", final, "chat_template_kwargs", kwargs, "tools",
                  tools, "documents", qn_field(body, "documents"));
    if (chat != NULL) {
        qn_jw_value(&text, chat);
    }
    if (chat == NULL || text.failed) {
        qn_api_fail(err, 503, NULL, NULL, "could not allocate the conversation");
        goto done;
    }
    struct quern_error q = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    if (quern_chat_prompt(s->model, text.data, text.len, NULL, &ids, &n, &q) != QUERN_OK) {
        qn_api_fail_quern(err, &q, "messages");
        goto done;
    }
    *out_add_generation = add;
    ok = qn_ids_own(ids, n, out_ids, out_n, err);
done:
    qn_buf_done(&text);
    json_decref(chat);
    json_decref(kwargs);
    json_decref(messages);
    return ok;
}
