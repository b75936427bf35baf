#include "engine/params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

enum quern_status qn_params_fail(struct quern_error *err, enum quern_status code, const char *param,
                                 const char *fmt, ...)
{
    if (err != NULL) {
        err->code = code;
        snprintf(err->param, sizeof err->param, "%s", param);
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->message, sizeof err->message, fmt, ap);
        va_end(ap);
    }
    return code;
}

enum quern_status qn_params_err(struct quern_error *err, const struct qn_err *from)
{
    return qn_params_fail(err, (enum quern_status)from->code, "", "%s", from->msg);
}

void quern_sampling_init(struct quern_sampling *s)
{
    *s = (struct quern_sampling){.temperature = 1,
                                 .top_p = 1,
                                 .repetition_penalty = 1,
                                 .max_tokens = 16,
                                 .skip_special_tokens = true,
                                 .logprobs = -1,
                                 .prompt_logprobs = -1};
}

static enum quern_status check_range(const char *name, double value, double min, double max,
                                     struct quern_error *err)
{
    if (value >= min && value <= max) { // false for NaN
        return QUERN_OK;
    }
    return qn_params_fail(err, QUERN_E_INVALID, name, "%s: found %g, expected %g to %g", name,
                          value, min, max);
}

static enum quern_status check_numbers(const struct quern_sampling *s, struct quern_error *err)
{
    const struct {
        const char *name;
        double value, min, max;
    } ranges[] = {
        {"temperature", s->temperature, 0, 2},
        {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},
        {"presence_penalty", s->presence_penalty, -2, 2},
        {"frequency_penalty", s->frequency_penalty, -2, 2},
        {"logprobs", s->logprobs, -1, QN_MAX_LOGPROBS},
        {"prompt_logprobs", s->prompt_logprobs, -1, QN_MAX_LOGPROBS},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        enum quern_status rc =
            check_range(ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max, err);
        if (rc != QUERN_OK) {
            return rc;
        }
    }
    if (!(s->repetition_penalty > 0) || !isfinite((float)s->repetition_penalty) ||
        !((float)s->repetition_penalty > 0)) {
        return qn_params_fail(err, QUERN_E_INVALID, "repetition_penalty",
                              "repetition_penalty: found %g, expected a finite number above 0",
                              s->repetition_penalty);
    }
    if (s->top_k < -1) {
        return qn_params_fail(err, QUERN_E_INVALID, "top_k",
                              "top_k: found %lld, expected at least 1, or 0 or -1 for none",
                              (long long)s->top_k);
    }
    if (s->min_tokens > s->max_tokens) {
        return qn_params_fail(err, QUERN_E_INVALID, "min_tokens",
                              "min_tokens: found %zu, expected at most max_tokens (%zu)",
                              s->min_tokens, s->max_tokens);
    }
    return QUERN_OK;
}

static enum quern_status check_ids(const char *name, const int32_t *ids, size_t n,
                                   size_t vocab_size, struct quern_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= vocab_size) {
            return qn_params_fail(err, QUERN_E_INVALID, name,
                                  "%s: found token id %d, expected 0 to %zu", name, ids[i],
                                  vocab_size - 1);
        }
    }
    return QUERN_OK;
}

static enum quern_status check_stop(const struct qn_request_env *env,
                                    const struct quern_sampling *s, struct quern_error *err)
{
    if (s->n_stop > QN_STOP_MAX_STRINGS) {
        return qn_params_fail(err, QUERN_E_INVALID, "stop",
                              "stop: found %zu strings, expected at most %d", s->n_stop,
                              QN_STOP_MAX_STRINGS);
    }
    if (s->n_stop > 0 && env->tok == NULL) {
        return qn_params_fail(err, QUERN_E_UNSUPPORTED, "stop",
                              "stop: this model has no tokenizer, so there is no text to search");
    }
    for (size_t i = 0; i < s->n_stop; i++) {
        size_t n = strlen(s->stop[i]);
        if (n == 0 || n > QN_STOP_MAX_BYTES) {
            return qn_params_fail(err, QUERN_E_INVALID, "stop",
                                  "stop: string %zu has %zu bytes, expected 1 to %d", i, n,
                                  QN_STOP_MAX_BYTES);
        }
        if (qn_utf8_valid_prefix(s->stop[i], n) != n) {
            return qn_params_fail(err, QUERN_E_INVALID, "stop", "stop: string %zu is not UTF-8", i);
        }
    }
    return QUERN_OK;
}

static enum quern_status check_bias(const struct quern_sampling *s, struct quern_error *err)
{
    for (size_t i = 0; i < s->n_bias; i++) {
        if (!(s->bias[i] >= -100 && s->bias[i] <= 100)) {
            return qn_params_fail(err, QUERN_E_INVALID, "logit_bias",
                                  "logit_bias: found %g for token id %d, expected -100 to 100",
                                  (double)s->bias[i], s->bias_ids[i]);
        }
    }
    return QUERN_OK;
}

// The wording of the first error is what clients look for when they trim a conversation.
static enum quern_status check_length(const struct qn_request_env *env,
                                      const struct quern_request_params *params,
                                      size_t *out_max_tokens, struct quern_error *err)
{
    size_t want = params->sampling.max_tokens, room = want > 0 ? 1 : 0;
    if (params->n_prompt + room > env->max_model_len) {
        return qn_params_fail(
            err, QUERN_E_CONTEXT, "input_tokens",
            "This model's maximum context length is %zu tokens. However, you requested %zu output "
            "tokens and your prompt contains %zu input tokens, for a total of at least %zu "
            "tokens. Shorten the input or ask for fewer output tokens.",
            env->max_model_len, want, params->n_prompt, params->n_prompt + room);
    }
    if (params->n_prompt > env->max_seq_tokens) {
        return qn_params_fail(err, QUERN_E_CONTEXT, "input_tokens",
                              "prompt of %zu tokens does not fit the KV cache, which holds %zu; "
                              "give it more memory",
                              params->n_prompt, env->max_seq_tokens);
    }
    // The last token of an answer needs no place in the cache.
    size_t left = env->max_model_len - params->n_prompt;
    size_t left_cache = env->max_seq_tokens - params->n_prompt + 1;
    left = left_cache < left ? left_cache : left;
    *out_max_tokens = want < left ? want : left;
    return QUERN_OK;
}

enum quern_status qn_params_check(const struct qn_request_env *env,
                                  const struct quern_request_params *params, size_t *out_max_tokens,
                                  struct quern_error *err)
{
    const struct quern_sampling *s = &params->sampling;
    if (params->n < 1 || params->n > QN_REQUEST_MAX_CHOICES) {
        return qn_params_fail(err, QUERN_E_INVALID, "n", "n: found %zu, expected 1 to %d",
                              params->n, QN_REQUEST_MAX_CHOICES);
    }
    if (params->n_prompt == 0) {
        return qn_params_fail(err, QUERN_E_INVALID, "prompt",
                              "prompt: found no tokens, expected at least one");
    }
    enum quern_status rc = check_numbers(s, err);
    if (rc == QUERN_OK) {
        rc = check_ids("prompt", params->prompt, params->n_prompt, env->vocab_size, err);
    }
    if (rc == QUERN_OK) {
        rc = check_ids("stop_token_ids", s->stop_ids, s->n_stop_ids, env->vocab_size, err);
    }
    if (rc == QUERN_OK) {
        rc = check_ids("logit_bias", s->bias_ids, s->n_bias, env->vocab_size, err);
    }
    if (rc == QUERN_OK) {
        rc = check_ids("allowed_token_ids", s->allowed_ids, s->n_allowed, env->vocab_size, err);
    }
    if (rc == QUERN_OK) {
        rc = check_bias(s, err);
    }
    if (rc == QUERN_OK) {
        rc = check_stop(env, s, err);
    }
    if (rc == QUERN_OK) {
        rc = check_length(env, params, out_max_tokens, err);
    }
    return rc;
}
