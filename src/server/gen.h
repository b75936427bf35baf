#ifndef QN_SERVER_GEN_H
#define QN_SERVER_GEN_H

#include "server/call.h"

/// A generation: the prompts of one request, their choices, and how they are told to the client.

struct qn_gen_prompt {
    int32_t *ids; // owned
    size_t n_ids;
    char *text; ///< the prompt as text, for echo; owned, or NULL
    size_t n_text;
    size_t max_tokens; ///< what the context leaves
    struct quern_request *request;
    bool ready;        ///< the engine has news
    size_t n_finished; ///< choices
};

struct qn_gen_choice {
    struct qn_buf text;         ///< not told yet
    int32_t *ids;               ///< [n_ids] tokens not told yet; kept only if asked for
    struct quern_logprob *rows; ///< [n_ids][1 + k]
    size_t *ends;               ///< [n_ids] length of the whole text after the token
    size_t n_ids, cap_ids;
    size_t n_pending; ///< tokens not told yet
    size_t n_tokens;  ///< sampled so far
    size_t told_bytes, told_chars;
    size_t last_end; ///< the last told token's end
    double sum_logprob;
    enum quern_finish finish;
    char *stop_string; // owned
    int32_t stop_id;
    bool stop_was_eos;
    bool opened; ///< its first chunk is out
};

struct qn_gen {
    struct qn_call *call;
    bool chat;
    struct qn_params p;
    int prompt_k; ///< alternatives per prompt token asked of the engine, -1: none
    int output_k; ///< the same for sampled tokens
    struct qn_gen_prompt *prompts;
    size_t n_prompts, n_done;
    struct qn_gen_choice *choices; ///< [n_prompts][best_of]
    char id[QN_ID_BYTES + 16];
    int64_t created;
    const char *role; ///< of chat answers
    char *echo;       ///< chat: the last message, to be repeated first; or NULL
    size_t n_echo;
    bool head_sent;
    bool first_chunk_sent;
    struct event *ping;
};

/// An empty generation of n prompts for the call; p is moved in. NULL with call->err set.
struct qn_gen *qn_gen_new(struct qn_call *call, bool chat, struct qn_params *p, size_t n_prompts);
/// Truncate and check a prompt's length, and set max_tokens. `param` names the prompt in errors.
bool qn_gen_fit(struct qn_gen *g, struct qn_gen_prompt *prompt, const char *param,
                struct qn_api_error *err);
/// Hand the prompts to the engine. On failure the call is answered.
void qn_gen_start(struct qn_gen *g);
/// The engine has news of that request.
void qn_gen_ready(struct qn_gen *g, const struct quern_request *request);
/// Tell the client what there is, as far as it keeps up. The generation may be gone afterwards.
void qn_gen_pump(struct qn_gen *g);
/// Ends its requests and frees everything; takes NULL.
void qn_gen_free(struct qn_gen *g);

/* respond.c: the objects of answers. */
void qn_respond_whole(const struct qn_gen *g, struct qn_buf *out);
/// The chunk that opens a chat choice; with echo text if `echo`.
void qn_respond_open(const struct qn_gen *g, size_t index, bool echo, struct qn_buf *out);
/// A chunk with everything that choice has and was not told.
void qn_respond_chunk(const struct qn_gen *g, size_t index, bool last, struct qn_buf *out);
void qn_respond_usage_chunk(const struct qn_gen *g, struct qn_buf *out);

/* logprobs.c */
/// {"content":[…]} of n tokens.
void qn_logprobs_chat(const struct qn_gen *g, const struct qn_gen_choice *c, struct qn_buf *out);
/// Parallel lists; the prompt's first if `with_prompt`.
void qn_logprobs_completions(const struct qn_gen *g, const struct qn_gen_prompt *p,
                             const struct qn_gen_choice *c, bool with_prompt, struct qn_buf *out);
/// List of null or maps for the prompt, or null.
void qn_logprobs_prompt(const struct qn_gen *g, const struct qn_gen_prompt *p, struct qn_buf *out);

#endif
