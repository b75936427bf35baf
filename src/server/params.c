#include "server/params.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

void qn_rules_init(struct qn_rules *r)
{
    *r = (struct qn_rules){
        .max_n = 128,
        .max_logprobs = 20,
        .temperature = 1,
        .top_p = 1,
        .repetition_penalty = 1,
        .max_new_tokens = -1,
        .cap_new_tokens = -1,
    };
}

const json_t *qn_field(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return v != NULL && !json_is_null(v) ? v : NULL;
}

const char *qn_value_text(const json_t *v, char buf[64])
{
    if (json_is_integer(v)) {
        snprintf(buf, 64, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        snprintf(buf, 64, "%g", json_real_value(v));
    } else if (json_is_string(v)) {
        size_t n = json_string_length(v);
        snprintf(buf, 64, n > 40 ? "\"%.40s…\"" : "\"%.40s\"", json_string_value(v));
    } else {
        return qn_json_type_name(v);
    }
    return buf;
}

static bool wrong(const json_t *v, const char *param, const char *expected,
                  struct qn_api_error *err)
{
    char buf[64];
    return qn_api_fail(err, 400, NULL, param, "%s: found %s, expected %s", param,
                       qn_value_text(v, buf), expected);
}

bool qn_field_bool(const json_t *obj, const char *key, bool *out, struct qn_api_error *err)
{
    const json_t *v = qn_field(obj, key);
    if (v == NULL) {
        return true;
    }
    if (!json_is_boolean(v)) {
        return wrong(v, key, "true or false", err);
    }
    *out = json_is_true(v);
    return true;
}

bool qn_field_int(const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                  bool *out_found, struct qn_api_error *err)
{
    const json_t *v = qn_field(obj, key);
    if (out_found != NULL) {
        *out_found = v != NULL;
    }
    if (v == NULL) {
        return true;
    }
    int64_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < lo || i > hi) {
        char expected[96];
        if (hi == INT64_MAX) {
            snprintf(expected, sizeof expected, "an integer of at least %lld", (long long)lo);
        } else {
            snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)lo,
                     (long long)hi);
        }
        return wrong(v, key, lo == INT64_MIN ? "an integer" : expected, err);
    }
    *out = i;
    return true;
}

struct num_rule {
    const char *name;
    size_t offset; ///< of the double in struct quern_sampling
    double lo, hi;
    const char *expected;
};

// clang-format off
static const struct num_rule num_rules[] = {
    {"temperature", offsetof(struct quern_sampling, temperature), 0, 2, "a number from 0 to 2"},
    {"top_p", offsetof(struct quern_sampling, top_p), 0, 1, "a number from 0 to 1"},
    {"min_p", offsetof(struct quern_sampling, min_p), 0, 1, "a number from 0 to 1"},
    {"presence_penalty", offsetof(struct quern_sampling, presence_penalty), -2, 2,
     "a number from -2 to 2"},
    {"frequency_penalty", offsetof(struct quern_sampling, frequency_penalty), -2, 2,
     "a number from -2 to 2"},
    {"repetition_penalty", offsetof(struct quern_sampling, repetition_penalty), DBL_MIN, FLT_MAX,
     "a number above 0"},
};

// Constraints and features that must not be dropped silently: refused unless they are neutral.
static const char *const refused[] = {
    "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "repetition_detection", "logprob_token_ids", "prompt_embeds",
};
// clang-format on

static bool parse_numbers(const json_t *body, struct quern_sampling *s, struct qn_api_error *err)
{
    for (size_t i = 0; i < sizeof num_rules / sizeof num_rules[0]; i++) {
        const struct num_rule *r = &num_rules[i];
        const json_t *v = qn_field(body, r->name);
        if (v == NULL) {
            continue;
        }
        double d = json_number_value(v);
        if (!json_is_number(v) || !(d >= r->lo && d <= r->hi)) {
            return wrong(v, r->name, r->expected, err);
        }
        memcpy((char *)s + r->offset, &d, sizeof d);
    }
    if (s->temperature < 1e-5) {
        s->temperature = 0;
    } else if (s->temperature < 0.01) {
        s->temperature = 0.01; // smaller ones overflow the scaled logits for nothing
    }
    int64_t top_k = s->top_k, seed = -1;
    if (!qn_field_int(body, "top_k", -1, INT64_MAX, &top_k, NULL, err) ||
        !qn_field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, NULL, err)) {
        return false;
    }
    s->top_k = top_k;
    s->has_seed = seed != -1;
    s->seed = (uint64_t)seed;
    return true;
}

bool qn_ids_parse(const json_t *list, size_t n_vocab, const char *param, int32_t **out,
                  size_t *out_n, struct qn_api_error *err)
{
    if (!json_is_array(list)) {
        return wrong(list, param, "a list of token ids", err);
    }
    size_t n = json_array_size(list);
    int32_t *ids = malloc((n > 0 ? n : 1) * sizeof *ids);
    if (ids == NULL) {
        return qn_api_fail(err, 503, NULL, param, "%s: could not allocate %zu ids", param, n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || (uint64_t)id >= n_vocab) {
            char name[128], expected[64];
            snprintf(name, sizeof name, "%s[%zu]", param, i);
            snprintf(expected, sizeof expected, "a token id from 0 to %zu", n_vocab - 1);
            free(ids);
            return wrong(v, name, expected, err);
        }
        ids[i] = (int32_t)id;
    }
    *out = ids;
    *out_n = n;
    return true;
}

static bool parse_stop(const json_t *body, struct qn_params *p, struct qn_api_error *err)
{
    const json_t *v = qn_field(body, "stop");
    if (v == NULL) {
        return true;
    }
    bool one = json_is_string(v);
    if (!one && !json_is_array(v)) {
        return wrong(v, "stop", "a string or a list of strings", err);
    }
    size_t n = one ? 1 : json_array_size(v);
    if (n > QN_MAX_STOPS) {
        return qn_api_fail(err, 400, NULL, "stop", "stop: found %zu strings, expected at most %d",
                           n, QN_MAX_STOPS);
    }
    p->stop = calloc(n > 0 ? n : 1, sizeof *p->stop);
    if (p->stop == NULL) {
        return qn_api_fail(err, 503, NULL, "stop", "stop: could not allocate %zu strings", n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *s = one ? v : json_array_get(v, i);
        char name[32] = "stop";
        if (!one) {
            snprintf(name, sizeof name, "stop[%zu]", i);
        }
        size_t len = json_string_length(s);
        if (!json_is_string(s) || len == 0 || len > QN_MAX_STOP_BYTES ||
            memchr(json_string_value(s), '\0', len) != NULL) {
            return wrong(s, name, "a string of 1 to 4096 bytes without NUL", err);
        }
        p->stop[i] = json_string_value(s);
    }
    p->sampling.stop = p->stop;
    p->sampling.n_stop = n;
    return true;
}

static bool parse_bias(const json_t *body, const struct qn_rules *rules, struct qn_params *p,
                       struct qn_api_error *err)
{
    const json_t *map = qn_field(body, "logit_bias");
    if (map == NULL) {
        return true;
    }
    size_t n = json_object_size(map), used = 0;
    if (!json_is_object(map) || n > rules->vocab_size) {
        return wrong(map, "logit_bias", "an object from token ids to numbers", err);
    }
    p->bias_ids = malloc((n > 0 ? n : 1) * sizeof *p->bias_ids);
    p->bias = malloc((n > 0 ? n : 1) * sizeof *p->bias);
    if (p->bias_ids == NULL || p->bias == NULL) {
        return qn_api_fail(err, 503, NULL, "logit_bias", "logit_bias: could not allocate it");
    }
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach((json_t *)map, key, v)
    {
        char *end = NULL;
        size_t len = strlen(key);
        bool digits = len > 0 && len <= 10 && strspn(key, "0123456789") == len;
        long long id = digits ? strtoll(key, &end, 10) : -1;
        if (id < 0 || (uint64_t)id >= rules->vocab_size || (len > 1 && key[0] == '0')) {
            return qn_api_fail(err, 400, NULL, "logit_bias",
                               "logit_bias: found key \"%.40s\", expected a token id from 0 to %zu",
                               key, rules->vocab_size - 1);
        }
        if (!json_is_number(v)) {
            return wrong(v, "logit_bias", "numbers as values", err);
        }
        p->bias_ids[used] = (int32_t)id;
        p->bias[used++] = (float)fmin(fmax(json_number_value(v), -100), 100);
    }
    p->sampling.bias_ids = p->bias_ids;
    p->sampling.bias = p->bias;
    p->sampling.n_bias = used;
    return true;
}

static bool parse_lists(const json_t *body, const struct qn_rules *rules, struct qn_params *p,
                        struct qn_api_error *err)
{
    struct quern_sampling *s = &p->sampling;
    const json_t *v = qn_field(body, "stop_token_ids");
    if (v != NULL &&
        !qn_ids_parse(v, rules->vocab_size, "stop_token_ids", &p->stop_ids, &s->n_stop_ids, err)) {
        return false;
    }
    s->stop_ids = p->stop_ids;
    v = qn_field(body, "allowed_token_ids");
    if (v != NULL) {
        if (!qn_ids_parse(v, rules->vocab_size, "allowed_token_ids", &p->allowed_ids, &s->n_allowed,
                          err)) {
            return false;
        }
        if (s->n_allowed == 0) {
            return qn_api_fail(err, 400, NULL, "allowed_token_ids",
                               "allowed_token_ids: found an empty list, expected at least one id");
        }
    }
    s->allowed_ids = p->allowed_ids;
    return parse_stop(body, p, err) && parse_bias(body, rules, p, err);
}

static bool parse_counts(const json_t *body, bool chat, const struct qn_rules *rules,
                         struct qn_params *p, struct qn_api_error *err)
{
    int64_t n = 1, best_of = 0, min_tokens = 0;
    bool has_best = false, has_completion = false;
    if (!qn_field_int(body, "n", 1, rules->max_n, &n, NULL, err) ||
        !qn_field_int(body, "best_of", 1, rules->max_n, &best_of, &has_best, err) ||
        !qn_field_int(body, "max_tokens", chat ? 1 : 0, INT64_MAX, &p->max_tokens,
                      &p->has_max_tokens, err) ||
        (chat && !qn_field_int(body, "max_completion_tokens", 1, INT64_MAX, &p->max_tokens,
                               &has_completion, err)) ||
        !qn_field_int(body, "min_tokens", 0, INT64_MAX, &min_tokens, NULL, err) ||
        !qn_field_int(body, "priority", INT64_MIN, INT64_MAX, &p->priority, NULL, err)) {
        return false;
    }
    p->has_max_tokens = p->has_max_tokens || has_completion;
    if (!p->has_max_tokens) {
        p->max_tokens = chat ? rules->max_new_tokens : 16;
        p->has_max_tokens = p->max_tokens >= 0;
    }
    if (rules->cap_new_tokens >= 0 &&
        (!p->has_max_tokens || p->max_tokens > rules->cap_new_tokens)) {
        p->max_tokens = rules->cap_new_tokens;
        p->has_max_tokens = true;
    }
    if (min_tokens > 0 && p->has_max_tokens && min_tokens > p->max_tokens) {
        return qn_api_fail(err, 400, NULL, "min_tokens",
                           "min_tokens: found %lld, expected at most max_tokens (%lld)",
                           (long long)min_tokens, (long long)p->max_tokens);
    }
    if (min_tokens > (int64_t)rules->max_model_len) {
        return qn_api_fail(err, 400, NULL, "min_tokens",
                           "min_tokens: found %lld, expected at most the context (%zu)",
                           (long long)min_tokens, rules->max_model_len);
    }
    if (has_best && best_of < n) {
        return qn_api_fail(err, 400, NULL, "best_of",
                           "best_of: found %lld, expected at least n (%lld)", (long long)best_of,
                           (long long)n);
    }
    if (has_best && best_of > n && (chat || p->stream)) {
        return qn_api_fail(err, 400, NULL, "best_of", "best_of: found %lld, expected n (%lld) %s",
                           (long long)best_of, (long long)n, chat ? "in chat" : "in a stream");
    }
    p->n = (size_t)n;
    p->best_of = has_best ? (size_t)best_of : (size_t)n;
    p->sampling.min_tokens = (size_t)min_tokens;
    return true;
}

static bool parse_stream(const json_t *body, const struct qn_rules *rules, struct qn_params *p,
                         struct qn_api_error *err)
{
    int64_t interval = 1;
    if (!qn_field_bool(body, "stream", &p->stream, err) ||
        !qn_field_int(body, "stream_interval", 1, INT64_MAX, &interval, NULL, err)) {
        return false;
    }
    p->stream_interval = (size_t)interval;
    const json_t *options = qn_field(body, "stream_options");
    if (options != NULL) {
        if (!json_is_object(options)) {
            return wrong(options, "stream_options", "an object", err);
        }
        if (!p->stream) {
            return qn_api_fail(err, 400, NULL, "stream_options",
                               "stream_options: given without \"stream\": true");
        }
        if (!qn_field_bool(options, "include_usage", &p->include_usage, err) ||
            !qn_field_bool(options, "continuous_usage_stats", &p->continuous_usage, err)) {
            return false;
        }
    }
    if (rules->force_usage) {
        p->include_usage = p->continuous_usage = true;
    }
    p->continuous_usage = p->continuous_usage && p->include_usage;
    return true;
}

// k of "the k likeliest", -1 standing for the whole vocabulary.
static bool parse_top(const json_t *body, const char *key, const struct qn_rules *rules, int *out,
                      struct qn_api_error *err)
{
    int64_t k = 0;
    bool found = false;
    bool all = rules->max_logprobs < 0;
    int64_t max = all ? (int64_t)rules->vocab_size : rules->max_logprobs;
    if (!qn_field_int(body, key, all ? -1 : 0, max, &k, &found, err)) {
        return false;
    }
    if (found) {
        *out = k < 0 ? (int)rules->vocab_size : (int)k;
    }
    return true;
}

static bool parse_logprobs(const json_t *body, bool chat, const struct qn_rules *rules,
                           struct qn_params *p, struct qn_api_error *err)
{
    struct quern_sampling *s = &p->sampling;
    if (chat) {
        bool want = false;
        int top = -1;
        if (!qn_field_bool(body, "logprobs", &want, err) ||
            !parse_top(body, "top_logprobs", rules, &top, err)) {
            return false;
        }
        if (top > 0 && !want) {
            return qn_api_fail(err, 400, NULL, "top_logprobs",
                               "top_logprobs: given without \"logprobs\": true");
        }
        s->logprobs = !want ? -1 : top < 0 ? 0 : top;
    } else if (!parse_top(body, "logprobs", rules, &s->logprobs, err)) {
        return false;
    }
    if (!parse_top(body, "prompt_logprobs", rules, &s->prompt_logprobs, err)) {
        return false;
    }
    if (p->stream && s->prompt_logprobs > 0) {
        return qn_api_fail(err, 400, NULL, "prompt_logprobs",
                           "prompt_logprobs: not available with \"stream\": true");
    }
    return true;
}

static bool parse_truncation(const json_t *body, const struct qn_rules *rules, struct qn_params *p,
                             struct qn_api_error *err)
{
    p->truncate_left = true;
    const json_t *side = qn_field(body, "truncation_side");
    if (side != NULL) {
        const char *text = json_is_string(side) ? json_string_value(side) : "";
        if (strcmp(text, "left") != 0 && strcmp(text, "right") != 0) {
            return wrong(side, "truncation_side", "\"left\" or \"right\"", err);
        }
        p->truncate_left = strcmp(text, "left") == 0;
    }
    return qn_field_int(body, "truncate_prompt_tokens", -1, (int64_t)rules->max_model_len,
                        &p->truncate, &p->has_truncate, err);
}

static bool is_neutral(const json_t *v)
{
    return (json_is_array(v) && json_array_size(v) == 0) || json_is_false(v);
}

static bool parse_refused(const json_t *body, struct qn_api_error *err)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (qn_field(body, refused[i]) != NULL) {
            return qn_api_fail(err, 400, NULL, refused[i],
                               "%s: not supported by this server; leave it out", refused[i]);
        }
    }
    const json_t *v = qn_field(body, "response_format");
    const json_t *type = qn_field(v, "type");
    if (v != NULL && (!json_is_object(v) || !json_is_string(type))) {
        return wrong(v, "response_format", "an object with a \"type\"", err);
    }
    if (v != NULL && strcmp(json_string_value(type), "text") != 0) {
        return qn_api_fail(err, 400, NULL, "response_format",
                           "response_format: type \"%.40s\" is not supported by this server, "
                           "expected \"text\"",
                           json_string_value(type));
    }
    bool beam = false;
    int64_t budget = -1;
    if (!qn_field_bool(body, "use_beam_search", &beam, err) ||
        !qn_field_int(body, "thinking_token_budget", -1, INT64_MAX, &budget, NULL, err)) {
        return false;
    }
    if (beam) {
        return qn_api_fail(err, 400, NULL, "use_beam_search",
                           "use_beam_search: beam search is not supported");
    }
    if (budget >= 0) {
        return qn_api_fail(err, 400, NULL, "thinking_token_budget",
                           "thinking_token_budget: not supported by this server; leave it out");
    }
    v = qn_field(body, "length_penalty");
    if (v != NULL && (!json_is_number(v) || json_number_value(v) != 1.0)) {
        return wrong(v, "length_penalty", "1, as beam search is not supported", err);
    }
    v = qn_field(body, "bad_words");
    if (v != NULL && !is_neutral(v)) {
        return qn_api_fail(err, 400, NULL, "bad_words",
                           "bad_words: not supported by this server; use logit_bias");
    }
    return true;
}

static bool parse_names(const json_t *body, struct qn_params *p, struct qn_api_error *err)
{
    const json_t *v = qn_field(body, "model");
    if (v != NULL && !json_is_string(v)) {
        return wrong(v, "model", "a string", err);
    }
    if (json_string_length(v) > 0) {
        p->model = json_string_value(v);
        p->n_model = json_string_length(v);
    }
    v = qn_field(body, "request_id");
    if (v != NULL && !json_is_string(v)) {
        return wrong(v, "request_id", "a string", err);
    }
    p->request_id = json_string_value(v);
    v = qn_field(body, "cache_salt");
    if (v != NULL) {
        size_t n = json_string_length(v);
        const char *s = json_string_value(v);
        if (!json_is_string(v) || n == 0 || n > 128 || strlen(s) != n ||
            strpbrk(s, "@/\\") != NULL) {
            return wrong(v, "cache_salt", "1 to 128 bytes without @, /, backslash and NUL", err);
        }
    }
    return true;
}

bool qn_params_parse(const json_t *body, bool chat, const struct qn_rules *rules,
                     struct qn_params *out, struct qn_api_error *err)
{
    struct qn_params *p = out;
    *p = (struct qn_params){.stream_interval = 1, .tokens_as_ids = rules->tokens_as_ids};
    struct quern_sampling *s = &p->sampling;
    quern_sampling_init(s);
    s->temperature = rules->temperature;
    s->top_p = rules->top_p;
    s->min_p = rules->min_p;
    s->top_k = rules->top_k;
    s->repetition_penalty = rules->repetition_penalty;
    s->logprobs = -1;
    s->prompt_logprobs = -1;
    s->skip_special_tokens = true;
    bool spaces = true;
    p->has_add_special = qn_field(body, "add_special_tokens") != NULL;
    return parse_names(body, p, err) && parse_numbers(body, s, err) &&
           parse_stream(body, rules, p, err) && parse_counts(body, chat, rules, p, err) &&
           parse_lists(body, rules, p, err) && parse_logprobs(body, chat, rules, p, err) &&
           parse_truncation(body, rules, p, err) && parse_refused(body, err) &&
           qn_field_bool(body, "include_stop_str_in_output", &s->include_stop, err) &&
           qn_field_bool(body, "ignore_eos", &s->ignore_eos, err) &&
           qn_field_bool(body, "skip_special_tokens", &s->skip_special_tokens, err) &&
           qn_field_bool(body, "spaces_between_special_tokens", &spaces, err) &&
           qn_field_bool(body, "add_special_tokens", &p->add_special, err) &&
           qn_field_bool(body, "return_token_ids", &p->return_token_ids, err) &&
           qn_field_bool(body, "return_tokens_as_token_ids", &p->tokens_as_ids, err) &&
           qn_field_bool(body, "echo", &p->echo, err);
}

void qn_params_done(struct qn_params *p)
{
    free(p->stop_ids);
    free(p->allowed_ids);
    free(p->bias_ids);
    free(p->bias);
    free(p->stop);
    *p = (struct qn_params){0};
}
