#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/chat.h"
#include "text/template.h"

// Any bytes as a template, and behind a NUL byte as its context. What compiles must render, or
// fail, within small budgets, and give one mark for each byte.

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *context_of(const uint8_t *data, size_t size)
{
    static const char fallback[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"h\xC3\xA9 <|s|>\"},"
        "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}],"
        "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": "
        "1.5}\"}}]}],"
        "\"tools\": null, \"n\": 3, \"d\": {\"a\": 1, \"b\": [true, null]}}";
    json_t *root = NULL;
    if (size == 0 || qn_json_parse((const char *)data, size, 64, &root, NULL) != QN_OK ||
        !json_is_object(root)) {
        json_decref(root);
        root = NULL;
        (void)qn_json_parse(fallback, sizeof fallback - 1, 64, &root, NULL);
    }
    return root;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct qn_tmpl_limits limits = {
        .steps = 20000, .depth = 32, .output_bytes = 1 << 16, .memory_bytes = 1 << 22};
    const uint8_t *split = size > 0 ? memchr(data, 0, size) : NULL;
    size_t n = split != NULL ? (size_t)(split - data) : size;
    struct qn_tmpl *t = NULL;
    struct qn_err err;
    if (qn_tmpl_compile((const char *)data, n, &t, &err) != QN_OK) {
        return 0;
    }
    json_t *context =
        context_of(data + n + (split != NULL ? 1 : 0), split != NULL ? size - n - 1 : 0);
    json_t *messages = NULL;
    struct qn_buf text = {0}, plain = {0};
    if (qn_chat_normalise(json_object_get(context, "messages"), qn_tmpl_wants_parts(t), &messages,
                          NULL) == QN_OK) {
        json_object_set_new(context, "messages", messages);
    }
    if (context != NULL &&
        qn_tmpl_render(t, context, NULL, 1764540005, &limits, &text, &plain, &err) == QN_OK &&
        text.len != plain.len) {
        abort();
    }
    json_decref(context);
    qn_buf_done(&text);
    qn_buf_done(&plain);
    qn_tmpl_free(t);
    return 0;
}
