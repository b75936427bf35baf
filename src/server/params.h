#ifndef QN_SERVER_PARAMS_H
#define QN_SERVER_PARAMS_H

#include "quern/quern.h"
#include "server/errors.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// What requests are held against: the model's sizes, the operator's limits and defaults.
struct qn_rules {
    size_t vocab_size, max_model_len;
    int64_t max_n;        ///< choices per prompt
    int64_t max_logprobs; ///< -1: the whole vocabulary may be asked for
    /// Defaults for absent fields, already resolved from the model and the operator.
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
    int64_t max_new_tokens; ///< chat's default, -1: the rest of the context
    int64_t cap_new_tokens; ///< the operator's upper limit, -1: none
    bool force_usage, tokens_as_ids;
};
/// API defaults and no model; sizes are the caller's to set.
void qn_rules_init(struct qn_rules *r);

enum {
    QN_MAX_STOPS = 128,
    QN_MAX_STOP_BYTES = 4096,
    QN_MAX_PROMPTS = 1024, ///< prompts of one completions request
    QN_MAX_SEQS = 2048     ///< prompts times choices
};

/// The fields that chat and completions share, checked. Strings and lists borrow from the body,
/// which must outlive this.
struct qn_params {
    struct quern_sampling sampling; ///< max_tokens is set later, from the prompt's length
    bool has_max_tokens;
    int64_t max_tokens;
    size_t n, best_of;
    int64_t priority;
    bool stream, include_usage, continuous_usage;
    size_t stream_interval; ///< tokens per chunk, at least 1
    bool return_token_ids, tokens_as_ids, echo;
    bool has_truncate, truncate_left;
    int64_t truncate; ///< tokens kept, -1: all that fit
    bool has_add_special, add_special;
    const char *model; ///< or NULL
    size_t n_model;
    const char *request_id;                     ///< or NULL
    int32_t *stop_ids, *allowed_ids, *bias_ids; // owned
    float *bias;
    const char **stop;
};

/// Check the shared fields of a request body, an object. Absent and null are the same; unknown
/// fields are ignored; fields that ask for something quern does not have are refused by name.
/// @return false with the error set (status, param, message).
bool qn_params_parse(const json_t *body, bool chat, const struct qn_rules *rules,
                     struct qn_params *out, struct qn_api_error *err);
void qn_params_done(struct qn_params *p);

/* Typed access with API errors: `key` is looked up in obj, `param` names it in errors. */
bool qn_field_bool(const json_t *obj, const char *key, bool *out, struct qn_api_error *err);
bool qn_field_int(const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                  bool *out_found, struct qn_api_error *err);
/// NULL when absent or null.
const json_t *qn_field(const json_t *obj, const char *key);
/// "3", "\"text\"", "an object": a value in a message, shortened.
const char *qn_value_text(const json_t *v, char buf[64]);
/// A list of token ids, each below n_vocab. *out is the caller's, free().
bool qn_ids_parse(const json_t *list, size_t n_vocab, const char *param, int32_t **out,
                  size_t *out_n, struct qn_api_error *err);

#endif
