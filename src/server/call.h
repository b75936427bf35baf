#ifndef QN_SERVER_CALL_H
#define QN_SERVER_CALL_H

#include "base/buf.h"
#include "server/errors.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/params.h"
#include "server/server.h"

#include <jansson.h>
#include <stdbool.h>

/// Private to the server: the process-wide state and one API call.

enum qn_phase {
    QN_LOADING,
    QN_READY,
    QN_DRAINING
};

struct qn_gen;
struct qn_work;

struct qn_server {
    const struct qn_server_options *opt;
    struct event_base *base;
    struct qn_http *http;
    struct qn_work *work;
    enum qn_phase phase;
    bool dead; ///< the engine could not be had or is gone
    struct quern_model *model;
    struct quern_engine *engine;
    const struct quern_model_info *info;
    struct qn_rules rules;
    json_t *chat_kwargs; ///< defaults for chat_template_kwargs, or NULL
    char **names;        ///< served names
    size_t n_names;
    bool adds_bos;        ///< tokenising nothing gives at least one token
    size_t longest_token; ///< bytes
    int64_t created;
    char fingerprint[128];
    struct qn_metrics metrics;
    size_t n_load; ///< inference calls under way
};

enum {
    QN_ID_BYTES = 160
};

/// One HTTP exchange. The loop's thread owns it; while `in_work` the worker fills root, err, gen
/// and reply alone.
struct qn_call {
    struct qn_server *server;
    struct qn_http_conn *conn; ///< NULL once the peer is gone
    enum qn_route route;
    enum qn_http_method method;
    bool in_work;
    bool is_json;         ///< Content-Type says application/json
    char id[QN_ID_BYTES]; ///< the request id
    bool id_from_header;
    char *model_path; ///< the rest of /v1/models/…, decoded; or NULL
    size_t n_model_path;
    struct qn_buf headers; ///< lines for every answer: request id, CORS
    char *body;
    size_t n_body;
    json_t *root;
    struct qn_api_error err;
    struct qn_buf reply; ///< a JSON answer that the worker made
    struct qn_gen *gen;
    uint64_t start_ns;
    struct qn_call *next; ///< in the worker's queues
};

/// Look a model name up in the served names; absent is the first.
bool qn_check_model(const struct qn_server *s, const char *name, size_t n,
                    struct qn_api_error *err);

/* Work on the worker's thread: body -> root -> gen or reply; errors go to call->err. */
void qn_chat_prepare(struct qn_call *call);
void qn_completions_prepare(struct qn_call *call);
void qn_tokenize_work(struct qn_call *call);
void qn_detokenize_work(struct qn_call *call);

/// The chat form of a body: check the messages, render and tokenise them. *out_ids is the caller's,
/// free(). *out_add_generation is the flag in force.
bool qn_chat_render(const struct qn_server *s, const json_t *body, int64_t max_tokens,
                    int32_t **out_ids, size_t *out_n, bool *out_add_generation,
                    struct qn_api_error *err);
/// Tokenise text; flags as in quern.h. *out_ids is the caller's, free().
bool qn_text_tokenize(const struct qn_server *s, const char *text, size_t n, unsigned flags,
                      int32_t **out_ids, size_t *out_n, struct qn_api_error *err);
/// Copy ids that quern.h returned (and free them) to memory of ours.
bool qn_ids_own(int32_t *ids, size_t n, int32_t **out_ids, size_t *out_n, struct qn_api_error *err);
/// Refuse text that cannot fit what max_tokens (-1: not given) leaves of the context, before it is
/// tokenised.
bool qn_text_check(const struct qn_server *s, size_t n_bytes, int64_t max_tokens,
                   struct qn_api_error *err);
/// Parse the call's body into call->root: one JSON object.
bool qn_body_parse(struct qn_call *call);

/// The handlers that routes.c gives to the HTTP layer; their user is the server.
extern const struct qn_http_handlers qn_route_handlers;
/// Back on the loop's thread: answer, or start the generation.
void qn_call_done(struct qn_call *call);
/// On the worker's thread.
void qn_call_work(struct qn_call *call);

/// Answer an error or a JSON value; the call may be gone afterwards.
void qn_call_fail(struct qn_call *call);
void qn_call_reply_json(struct qn_call *call, const struct qn_buf *body);

/// The worker thread: calls go in, run in order, come back on the loop's thread.
typedef void qn_work_fn(struct qn_call *call);
enum qn_status qn_work_new(struct event_base *base, qn_work_fn *run, qn_work_fn *done,
                           struct qn_work **out_work, struct qn_err *err);
void qn_work_push(struct qn_work *w, struct qn_call *call);
/// Waits for the running call; calls still queued come back through `done`.
void qn_work_free(struct qn_work *w); // takes NULL

#endif
