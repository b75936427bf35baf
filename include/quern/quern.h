#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

/// quern's embedding API: load a model, run an engine, submit requests, read what they produce.
///
/// Threads: model functions may be called from any thread. An engine owns one internal thread that
/// steps; submit, abort, next, wait and stats may be called from any thread, but one request's
/// read and free from one thread at a time.
/// Strings are UTF-8 and NUL-terminated unless a length goes with them. What a function returns
/// through `char **` or `int32_t **` is freed with quern_free.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QUERN_API __attribute__((visibility("default")))
#else
#define QUERN_API
#endif

/// Same values as every fallible function returns; 0 is success.
enum quern_status {
    QUERN_OK = 0,
    QUERN_E_INVALID,     ///< a value is wrong
    QUERN_E_FORMAT,      ///< a file is malformed
    QUERN_E_UNSUPPORTED, ///< a kind that quern does not have
    QUERN_E_NOT_FOUND,
    QUERN_E_IO,
    QUERN_E_NOMEM,
    QUERN_E_LIMIT,
    QUERN_E_CONTEXT, ///< the prompt does not fit the context
    QUERN_E_BUSY,    ///< the waiting queue is full
    QUERN_E_CANCELLED,
    QUERN_E_INTERNAL
};

struct quern_error {
    enum quern_status code;
    char message[1024];
    char param[64]; ///< request field at fault, or empty
};

QUERN_API const char *quern_version(void);
QUERN_API void quern_free(void *p);

/* ---- model ---------------------------------------------------------------------------------- */

enum quern_activations {
    QUERN_ACT_DEFAULT = 0, ///< int8 for integer weights, bf16 for the rest
    QUERN_ACT_F32,
    QUERN_ACT_BF16,
    QUERN_ACT_INT8
};

struct quern_model_options {
    const char *path;               ///< directory or .gguf file
    const char *chat_template_path; ///< NULL: the model's own
    enum quern_activations activations;
    size_t max_model_len;      ///< 0: the model's own
    size_t n_threads;          ///< 0: as many as cores and quota allow
    bool parse_special_tokens; ///< match special tokens in message content too
    bool no_weights;           ///< tokenizer, template and configuration only
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void (*note)(void *user, const char *text);
    void *user;
};

struct quern_model;

/// Load weights, tokenizer and template. A checkpoint without a tokenizer loads; text functions
/// then fail with QUERN_E_UNSUPPORTED.
QUERN_API enum quern_status quern_model_load(const struct quern_model_options *options,
                                             struct quern_model **out_model,
                                             struct quern_error *err);
QUERN_API void quern_model_free(struct quern_model *model); // takes NULL; engines first

struct quern_model_info {
    const char *name; ///< last component of the path, without .gguf
    const char *path;
    const char *format; ///< "safetensors" or "gguf"
    const char *architecture;
    const char *activations; ///< "f32", "bf16", "int8"
    const char *isa;
    size_t vocab_size, n_layers, d_model, max_model_len, n_threads;
    uint64_t n_params, weight_bytes;
    bool has_tokenizer, has_chat_template;
    const char *chat_template_error; ///< NULL, or why chat is disabled
    const char *resources;           ///< one line: cores, quota, memory seen at start
    const int32_t *eos_ids;
    size_t n_eos_ids;
    /// generation_config.json, NAN or -1 where absent
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, max_new_tokens;
};
QUERN_API const struct quern_model_info *quern_model_get_info(const struct quern_model *model);

/* ---- text ----------------------------------------------------------------------------------- */

enum {
    QUERN_TOK_ADD_SPECIAL = 1,
    QUERN_TOK_PARSE_SPECIAL = 2
};
QUERN_API enum quern_status quern_tokenize(const struct quern_model *model, const char *text,
                                           size_t n, unsigned flags, int32_t **out_ids,
                                           size_t *out_n, struct quern_error *err);
QUERN_API enum quern_status quern_detokenize(const struct quern_model *model, const int32_t *ids,
                                             size_t n, bool skip_special, char **out_text,
                                             size_t *out_n, struct quern_error *err);
/// Raw bytes of one token (may be half a character); buf holds at least 256 bytes or the call
/// returns the needed size.
QUERN_API size_t quern_token_bytes(const struct quern_model *model, int32_t id, char *buf,
                                   size_t n_buf);
/// Vocabulary spelling of a token, NULL for ids without one. Borrowed.
QUERN_API const char *quern_token_piece(const struct quern_model *model, int32_t id,
                                        size_t *out_len);

/// Render and tokenise a conversation.
/// @param chat_json object with "messages" and, as the template wants them, "tools",
///        "add_generation_prompt" (default true), "continue_final_message",
///        "chat_template_kwargs", "documents".
/// @param out_text rendered prompt, or NULL if not wanted.
QUERN_API enum quern_status quern_chat_prompt(const struct quern_model *model,
                                              const char *chat_json, size_t n, char **out_text,
                                              int32_t **out_ids, size_t *out_n,
                                              struct quern_error *err);

/* ---- engine --------------------------------------------------------------------------------- */

struct quern_engine_options {
    size_t max_num_seqs;           ///< sequences in one step; 0: 32
    size_t max_num_batched_tokens; ///< rows of one step; 0: 512
    size_t max_waiting;            ///< waiting requests before QUERN_E_BUSY; 0: 1024
    size_t block_tokens;           ///< tokens per KV block; 0: 16
    uint64_t kv_cache_bytes;       ///< 0: a stated share of what memory is left
    uint64_t seed;                 ///< base of seeds for requests without one; 0: random
    /// Called on the engine's thread when a request has something to read; must be quick and must
    /// not call back into the engine. NULL: use quern_engine_wait.
    void (*notify)(void *user);
    void *user;
};

struct quern_engine;
struct quern_request;

QUERN_API enum quern_status quern_engine_new(struct quern_model *model,
                                             const struct quern_engine_options *options,
                                             struct quern_engine **out_engine,
                                             struct quern_error *err);
/// Stops after the running step. Every request must have been freed before.
QUERN_API void quern_engine_free(struct quern_engine *engine); // takes NULL

struct quern_sampling {
    double temperature;                         ///< 0 or below 1e-5: greedy
    double top_p;                               ///< 0..1; 0 is greedy
    int64_t top_k;                              ///< 0 or -1: off
    double min_p;                               ///< 0..1
    double presence_penalty, frequency_penalty; ///< output tokens only
    double repetition_penalty;                  ///< prompt and output
    bool has_seed;
    uint64_t seed;
    size_t max_tokens; ///< 0 allowed: the prompt alone
    size_t min_tokens;
    bool ignore_eos;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    const char *const *stop; ///< stop strings
    size_t n_stop;
    bool include_stop; ///< keep the stop string in the text
    bool skip_special_tokens;
    const int32_t *bias_ids; ///< logit_bias
    const float *bias;
    size_t n_bias;
    const int32_t *allowed_ids; ///< when n_allowed > 0: nothing else can be sampled
    size_t n_allowed;
    int logprobs;        ///< -1: none; k: the sampled token and the k likeliest
    int prompt_logprobs; ///< -1: none
};
/// Neutral values: temperature 1, top_p 1, penalties off, max_tokens 16.
QUERN_API void quern_sampling_init(struct quern_sampling *s);

struct quern_request_params {
    const int32_t *prompt;
    size_t n_prompt;
    size_t n;         ///< choices, at least 1
    int64_t priority; ///< accepted, FCFS today
    struct quern_sampling sampling;
    void *user; ///< handed back by quern_request_user
};

/// Everything is copied. Checks every value and id (QUERN_E_INVALID with err->param) and the length
/// (QUERN_E_CONTEXT) before any work; max_tokens is cut to what the context leaves.
QUERN_API enum quern_status quern_engine_submit(struct quern_engine *engine,
                                                const struct quern_request_params *params,
                                                struct quern_request **out_request,
                                                struct quern_error *err);
/// End a request within one step and free its blocks. Its choices finish as aborted.
QUERN_API void quern_engine_abort(struct quern_engine *engine, struct quern_request *request);
/// A request with something to read, or NULL. Each is returned once until more arrives.
QUERN_API struct quern_request *quern_engine_next(struct quern_engine *engine);
/// The same, waiting at most timeout_ms (-1: for ever).
QUERN_API struct quern_request *quern_engine_wait(struct quern_engine *engine, int timeout_ms);

enum quern_finish {
    QUERN_FINISH_NONE = 0, ///< still running
    QUERN_FINISH_STOP,
    QUERN_FINISH_LENGTH,
    QUERN_FINISH_ABORT,
    QUERN_FINISH_ERROR
};

struct quern_logprob {
    int32_t id;
    float logprob;
    int32_t rank; ///< 1 is the likeliest
};

/// What one choice produced since the last read. Text that may still become a stop string is held
/// back, and the ids that it came from with it. Pointers are valid until the next read of the
/// request.
struct quern_delta {
    size_t choice;
    const char *text; ///< whole characters only; not NUL-terminated
    size_t n_text;
    const int32_t *ids;
    size_t n_ids;
    const struct quern_logprob *logprobs; ///< [n_ids][1 + k], the sampled token first; NULL: none
    const size_t *text_end; ///< [n_ids] length of the choice's whole text after that token
    enum quern_finish finish;
    const char *stop_string; ///< the stop string that ended it, or NULL
    int32_t stop_id;         ///< the id that ended it (EOS too), or -1
    bool stop_was_eos;
    const char *error; ///< with QUERN_FINISH_ERROR
};
/// Fills `out` for the next choice with news; false when there is none left.
QUERN_API bool quern_request_read(struct quern_request *request, struct quern_delta *out);
/// Every choice has ended and its end has been read.
QUERN_API bool quern_request_finished(const struct quern_request *request);
QUERN_API void *quern_request_user(const struct quern_request *request);
/// Logprobs of the prompt, [n_prompt][1 + k], row 0 unset (id -1); NULL until known.
QUERN_API const struct quern_logprob *
quern_request_prompt_logprobs(const struct quern_request *request);
struct quern_usage {
    size_t prompt_tokens, cached_tokens, completion_tokens;
    double queue_s, ttft_s, decode_s, e2e_s; ///< seconds; 0 while unknown
};
QUERN_API void quern_request_usage(const struct quern_request *request, struct quern_usage *out);
/// Aborts if needed. The request must not be used afterwards.
QUERN_API void quern_request_free(struct quern_engine *engine, struct quern_request *request);

enum {
    QUERN_HIST_MAX = 32
};
struct quern_hist {
    size_t n; ///< buckets without the last (+Inf)
    double le[QUERN_HIST_MAX];
    uint64_t count[QUERN_HIST_MAX + 1]; ///< per bucket, not cumulative
    double sum;
};
struct quern_stats {
    size_t running, waiting, kv_blocks_total, kv_blocks_free, block_tokens;
    double kv_usage; ///< 0..1
    uint64_t prompt_tokens, generation_tokens, preemptions, steps;
    uint64_t finished_stop, finished_length, finished_abort, finished_error;
    struct quern_hist ttft_s, itl_s, tpot_s, e2e_s, queue_s, prefill_s, decode_s, inference_s,
        step_tokens, step_s, prompt_len, generation_len;
};
QUERN_API void quern_engine_stats(struct quern_engine *engine, struct quern_stats *out);

/* ---- evaluation ----------------------------------------------------------------------------- */

/// Teacher-forced logits of a token list: out is [n][vocab_size] float32.
QUERN_API enum quern_status quern_logits(struct quern_model *model, const int32_t *tokens, size_t n,
                                         float *out, struct quern_error *err);

#ifdef __cplusplus
}
#endif

#endif
