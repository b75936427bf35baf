#ifndef QN_SERVER_SERVER_H
#define QN_SERVER_SERVER_H

#include "base/status.h"
#include "quern/quern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// The OpenAI-compatible HTTP server that `quern serve` runs.

struct qn_server_options {
    struct quern_model_options model;   ///< path is required
    struct quern_engine_options engine; ///< notify and its user are the server's
    const char *host;                   ///< NULL: all interfaces
    unsigned port;                      ///< 0: any free one
    const char *uds;                    ///< path of a Unix socket, instead of host and port
    const char *root_path;              ///< prefix that a proxy leaves on paths, or NULL
    /// Names clients may ask for; the first is echoed. None: the model's name and its path.
    const char *const *served_names;
    size_t n_served_names;
    const char *const *api_keys; ///< none: open
    size_t n_api_keys;
    bool api_key_all; ///< guard every path, not only /v1, /v2 and /inference
    const char *const *allowed_origins, *const *allowed_methods, *const *allowed_headers;
    size_t n_allowed_origins, n_allowed_methods, n_allowed_headers; ///< 0: any
    bool allow_credentials;
    size_t max_head_bytes, max_headers, max_conns;
    uint64_t max_body_bytes, max_buffered_bytes;
    unsigned keep_alive_ms, head_ms, body_ms, write_ms;
    unsigned shutdown_ms; ///< how long running answers may take after SIGTERM; 0: cut at once
    unsigned sse_ping_s;  ///< a comment line in streams that are silent so long; 0: none
    int64_t max_n, max_logprobs;   ///< choices; alternatives per token (-1: the whole vocabulary)
    bool ignore_generation_config; ///< leave the model's sampling defaults aside
    const char *override_generation_config;   ///< JSON object with sampling defaults, or NULL
    const char *default_chat_template_kwargs; ///< JSON object, or NULL
    const char *response_role;                ///< NULL: "assistant"
    bool force_include_usage, tokens_as_token_ids;
    bool track_load;           ///< /load counts requests
    bool metrics_legacy_names; ///< old vLLM names too
    bool access_log;
    /// Called on the server's thread; NULL allowed.
    void (*on_listening)(void *user, const char *address); ///< "http://HOST:PORT" or "unix:PATH"
    void (*on_ready)(void *user, const struct quern_model *model);
    void *user;
};

/// Defaults of every limit; model.path stays NULL.
void qn_server_options_init(struct qn_server_options *o);

/// Listen, load the model (answering 503 meanwhile), serve until SIGTERM or SIGINT, drain.
/// Only one server runs in a process at a time; its signal handlers are in place meanwhile.
/// @return QN_OK after a clean drain; QN_E_CANCELLED if requests were cut off by the drain's time
///         limit, a second signal or a signal while loading; else why it could not start.
enum qn_status qn_server_run(const struct qn_server_options *o, struct qn_err *err);

#endif
