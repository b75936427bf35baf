#include "text/chat.h"

#include <string.h>

#include "base/json.h"

#define ARGUMENTS_MAX_DEPTH 100

// The blank at the end tells whether the template trims the text.
static const char g_mark[] = "QUERN_THE_ANSWER_CONTINUES_HERE ";

static enum qn_status nomem(struct qn_err *err)
{
    return qn_fail(err, QN_E_NOMEM, "could not allocate the conversation");
}

static bool parse_arguments(json_t *call)
{
    json_t *function = json_object_get(call, "function");
    json_t *holder = json_is_object(function) ? function : call;
    const json_t *text = json_object_get(holder, "arguments");
    json_t *parsed = NULL;
    if (!json_is_string(text)) {
        return true;
    }
    enum qn_status rc = qn_json_parse(json_string_value(text), json_string_length(text),
                                      ARGUMENTS_MAX_DEPTH, &parsed, NULL);
    if (rc != QN_OK) {
        return rc != QN_E_NOMEM; // not JSON: a string like any other
    }
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return true;
    }
    return json_object_set_new(holder, "arguments", parsed) == 0;
}

static const json_t *part_text(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    return type != NULL && strcmp(type, "text") == 0 && json_is_string(text) ? text : NULL;
}

static bool join_parts(json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    if (!json_is_array(content) || json_array_size(content) == 0) {
        return true;
    }
    struct qn_buf joined = {0};
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *text = part_text(json_array_get(content, i));
        if (text == NULL) {
            qn_buf_done(&joined);
            return true; // something else than text: the template says what it makes of it
        }
        if (i > 0) {
            qn_buf_putc(&joined, '\n');
        }
        qn_buf_add(&joined, json_string_value(text), json_string_length(text));
    }
    json_t *s = joined.failed ? NULL : json_stringn(joined.data, joined.len);
    qn_buf_done(&joined);
    return json_object_set_new(message, "content", s) == 0;
}

static bool mirror_reasoning(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    json_t *from = NULL;
    for (size_t i = 0; i < 3 && from == NULL; i++) {
        json_t *v = json_object_get(message, names[i]);
        from = json_is_string(v) ? v : NULL;
    }
    for (size_t i = 0; i < 3 && from != NULL; i++) {
        const json_t *v = json_object_get(message, names[i]);
        if ((v == NULL || json_is_null(v)) && json_object_set(message, names[i], from) != 0) {
            return false;
        }
    }
    return true;
}

static bool normalise(json_t *message, bool wants_parts)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i);
        if (json_is_object(call) && !parse_arguments(call)) {
            return false;
        }
    }
    return (wants_parts || join_parts(message)) && mirror_reasoning(message);
}

enum qn_status qn_chat_normalise(const json_t *messages, bool wants_parts, json_t **out_messages,
                                 struct qn_err *err)
{
    if (!json_is_array(messages)) {
        return qn_fail(err, QN_E_INVALID, "messages: found %s, expected a list",
                       qn_json_type_name(messages));
    }
    json_t *copy = json_deep_copy(messages);
    if (copy == NULL || !json_equal(copy, messages)) { // jansson leaves out what it cannot allocate
        json_decref(copy);
        return nomem(err);
    }
    for (size_t i = 0; i < json_array_size(copy); i++) {
        json_t *message = json_array_get(copy, i);
        enum qn_status rc = QN_OK;
        if (!json_is_object(message)) {
            rc = qn_fail(err, QN_E_INVALID, "messages[%zu]: found %s, expected an object", i,
                         qn_json_type_name(message));
        } else if (!normalise(message, wants_parts)) {
            rc = nomem(err);
        }
        if (rc != QN_OK) {
            json_decref(copy);
            return rc;
        }
    }
    *out_messages = copy;
    return QN_OK;
}

static enum qn_status mark_member(json_t *holder, const char *name, struct qn_err *err)
{
    const json_t *text = json_object_get(holder, name);
    struct qn_buf marked = {0};
    qn_buf_add(&marked, json_string_value(text), json_string_length(text));
    qn_buf_add(&marked, g_mark, sizeof g_mark - 1);
    json_t *s = marked.failed ? NULL : json_stringn(marked.data, marked.len);
    qn_buf_done(&marked);
    return json_object_set_new(holder, name, s) == 0 ? QN_OK : nomem(err);
}

enum qn_status qn_chat_mark_final(json_t *messages, struct qn_err *err)
{
    size_t n = json_array_size(messages);
    json_t *last = n > 0 ? json_array_get(messages, n - 1) : NULL;
    const json_t *content = json_object_get(last, "content");
    if (json_is_string(content)) {
        return mark_member(last, "content", err);
    }
    for (size_t i = json_array_size(content); i-- > 0;) {
        if (part_text(json_array_get(content, i)) != NULL) {
            return mark_member(json_array_get(content, i), "text", err);
        }
    }
    return qn_fail(err, QN_E_INVALID,
                   "continue_final_message: the last message has no text to continue");
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

enum qn_status qn_chat_cut_final(struct qn_buf *text, struct qn_buf *plain, struct qn_err *err)
{
    size_t n = sizeof g_mark - 2; // without the blank
    for (size_t at = text->len >= n ? text->len - n + 1 : 0; at-- > 0;) {
        if (memcmp(text->data + at, g_mark, n) != 0) {
            continue;
        }
        bool kept = at + n < text->len && text->data[at + n] == ' ';
        size_t end = at;
        while (!kept && end > 0 && is_blank(text->data[end - 1])) {
            end--;
        }
        text->len = end;
        text->data[end] = '\0';
        if (plain != NULL && plain->len > end) {
            plain->len = end;
            plain->data[end] = '\0';
        }
        return QN_OK;
    }
    return qn_fail(err, QN_E_INVALID,
                   "continue_final_message: the chat template does not write the last message");
}
