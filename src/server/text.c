#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/call.h"

enum {
    MAX_JSON_DEPTH = 64
};

bool qn_body_parse(struct qn_call *call)
{
    if (!call->is_json) {
        return qn_api_fail(&call->err, 400, NULL, NULL,
                           "header Content-Type: expected application/json");
    }
    if (call->body == NULL) {
        return qn_api_fail(&call->err, 400, NULL, NULL, "body: found nothing, expected an object");
    }
    struct qn_err err = {0};
    enum qn_status rc = qn_json_parse(call->body, call->n_body, MAX_JSON_DEPTH, &call->root, &err);
    if (rc != QN_OK) {
        return qn_api_fail(&call->err, rc == QN_E_NOMEM ? 503 : 400, NULL, NULL, "body: %.400s",
                           err.msg);
    }
    free(call->body); // the tree holds copies
    call->body = NULL;
    if (!json_is_object(call->root)) {
        char buf[64];
        return qn_api_fail(&call->err, 400, NULL, NULL, "body: found %s, expected an object",
                           qn_value_text(call->root, buf));
    }
    return true;
}

bool qn_text_check(const struct qn_server *s, size_t n_bytes, int64_t max_tokens,
                   struct qn_api_error *err)
{
    size_t limit = s->rules.max_model_len;
    if (s->longest_token == 0 || n_bytes / s->longest_token <= limit) {
        return true;
    }
    size_t at_least = n_bytes / s->longest_token;
    unsigned long long output = max_tokens > 0 ? (unsigned long long)max_tokens : 0;
    return qn_api_fail(
        err, 400, "context_length_exceeded", "input_text",
        "This model's maximum context length is %zu tokens. However, you requested %llu output "
        "tokens and your prompt contains at least %zu input tokens, for a total of at least %llu "
        "tokens. Shorten the prompt or ask for fewer output tokens.",
        limit, output, at_least, output + at_least);
}

bool qn_ids_own(int32_t *ids, size_t n, int32_t **out_ids, size_t *out_n, struct qn_api_error *err)
{
    int32_t *copy = malloc((n > 0 ? n : 1) * sizeof *copy);
    if (copy == NULL) {
        quern_free(ids);
        return qn_api_fail(err, 503, NULL, NULL, "could not allocate %zu token ids", n);
    }
    if (n > 0) {
        memcpy(copy, ids, n * sizeof *copy);
    }
    quern_free(ids);
    *out_ids = copy;
    *out_n = n;
    return true;
}

bool qn_text_tokenize(const struct qn_server *s, const char *text, size_t n, unsigned flags,
                      int32_t **out_ids, size_t *out_n, struct qn_api_error *err)
{
    struct quern_error q = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (quern_tokenize(s->model, text, n, flags, &ids, &n_ids, &q) != QUERN_OK) {
        return qn_api_fail_quern(err, &q, NULL);
    }
    return qn_ids_own(ids, n_ids, out_ids, out_n, err);
}
