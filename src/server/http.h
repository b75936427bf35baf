#ifndef QN_SERVER_HTTP_H
#define QN_SERVER_HTTP_H

#include "base/status.h"
#include "server/http_parse.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;

/// HTTP/1.1 server over one libevent loop: strict parsing, keep-alive, pipelining in order, bounded
/// buffers, one deadline for a head and one for a body, prompt notice of a peer that went away.
/// Everything here runs on the loop's thread.
struct qn_http;
struct qn_http_conn;

struct qn_http_limits {
    size_t max_head_bytes;
    size_t max_headers;
    uint64_t max_body_bytes;
    uint64_t max_buffered_bytes; ///< bodies of all connections together
    size_t max_conns;
    unsigned keep_alive_ms; ///< an idle connection is closed after this
    unsigned head_ms;       ///< from a head's first byte to its last
    unsigned body_ms;       ///< from the head to the body's last byte
    unsigned write_ms;      ///< a peer that takes no byte for so long is cut off
};

/// One exchange: on_head, then on_body or on_error, then on_end. The handlers answer with
/// qn_http_reply or qn_http_stream_*, at once or later, until on_end.
struct qn_http_handlers {
    /// The head is complete; it is valid during the call only. May reply already: the body is then
    /// not read.
    void (*on_head)(void *user, struct qn_http_conn *c, const struct qn_http_head *head);
    /// The body is complete; `body` (NUL-terminated, NULL if empty) is the callee's, free().
    void (*on_body)(void *user, struct qn_http_conn *c, char *body, size_t n);
    /// The message is refused; must reply with that status. May come without on_head.
    void (*on_error)(void *user, struct qn_http_conn *c, int status, const char *why);
    /// Everything given to a stream so far was taken by the system.
    void (*on_drained)(void *user, struct qn_http_conn *c);
    /// The exchange is over: its answer is complete, or the peer is gone (`complete` false).
    void (*on_end)(void *user, struct qn_http_conn *c, bool complete);
};

enum qn_status qn_http_new(struct event_base *base, const struct qn_http_limits *limits,
                           const struct qn_http_handlers *handlers, void *user,
                           struct qn_http **out_http, struct qn_err *err);
/// Closes every connection (their on_end is called) and all listeners.
void qn_http_free(struct qn_http *http); // takes NULL

/// host NULL: all interfaces. port 0: any; *out_port has the port in use.
enum qn_status qn_http_listen_tcp(struct qn_http *http, const char *host, unsigned port,
                                  unsigned *out_port, struct qn_err *err);
/// A stale socket file is replaced, one that answers is an error; removed again by qn_http_free.
enum qn_status qn_http_listen_unix(struct qn_http *http, const char *path, struct qn_err *err);

/// Close idle connections, and each other one after its answer.
void qn_http_drain(struct qn_http *http);
/// Connections that have an exchange or unsent bytes.
size_t qn_http_n_busy(const struct qn_http *http);

void qn_http_set_data(struct qn_http_conn *c, void *data);
void *qn_http_get_data(const struct qn_http_conn *c);
/// From now on the peer's closing its sending side ends the exchange too.
void qn_http_abort_on_eof(struct qn_http_conn *c);

/// A whole answer. `headers`: further header lines, each ended by CR LF, or NULL.
void qn_http_reply(struct qn_http_conn *c, int status, const char *headers,
                   const char *content_type, const void *body, size_t n);
/// An answer in pieces; each send is one piece in one write, if the peer keeps up.
void qn_http_stream_start(struct qn_http_conn *c, int status, const char *headers,
                          const char *content_type);
void qn_http_stream_send(struct qn_http_conn *c, const void *data, size_t n);
/// The last piece (n may be 0) and the end.
void qn_http_stream_end(struct qn_http_conn *c, const void *data, size_t n);
/// Give the exchange up without an end that looks whole: the connection is closed from the loop.
void qn_http_cut(struct qn_http_conn *c);
/// Nothing is waiting for the peer.
bool qn_http_is_drained(const struct qn_http_conn *c);

int qn_http_status(const struct qn_http_conn *c); ///< of the current answer, 0 before it
uint64_t qn_http_bytes_out(const struct qn_http_conn *c);
uint64_t qn_http_body_in(const struct qn_http_conn *c);
const char *qn_http_reason(int status);

#endif
