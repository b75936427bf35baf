#ifndef QN_SERVER_HTTP_CONN_H
#define QN_SERVER_HTTP_CONN_H

#include "base/buf.h"
#include "server/http.h"

#include <event2/event.h>

/// Private to http.c, http_out.c and http_listen.c.

enum qn_conn_state {
    QN_CONN_HEAD,   ///< waiting for a head, or idle
    QN_CONN_BODY,   ///< reading a body
    QN_CONN_BUSY,   ///< the request is whole; its answer is not
    QN_CONN_CLOSING ///< answered; send the rest, then wait shortly for the peer's close
};

struct qn_http_listener {
    int fd;
    struct event *ev;
    struct qn_http *http;
    char *unlink_path;
};

enum {
    QN_HTTP_MAX_LISTENERS = 8
};

struct qn_http {
    struct event_base *base;
    struct qn_http_limits limits;
    struct qn_http_handlers on;
    void *user;
    struct qn_http_listener listeners[QN_HTTP_MAX_LISTENERS];
    size_t n_listeners;
    struct event *resume; ///< accept again after a shortage of descriptors
    struct event *reap;
    struct qn_http_conn *conns;
    struct qn_http_conn *dead;
    size_t n_conns;
    uint64_t buffered_bytes;
    bool draining;
};

struct qn_http_conn {
    struct qn_http *http;
    struct qn_http_conn *next, *prev;
    int fd;
    struct event *ev_read, *ev_write, *ev_timer;
    enum qn_conn_state state;
    bool active;     ///< between on_head (or on_error) and on_end
    bool dead;       ///< closed; freed by the reaper
    bool broken;     ///< a write failed; closed by the timer
    bool in_process; ///< the parsing loop is on the stack
    bool reading;    ///< ev_read is added
    bool eof;        ///< the peer sends no more
    bool shut;       ///< our sending side is closed
    bool abort_on_eof;
    bool keep_alive, http11, head_only, chunked_reply, expect_continue;
    void *data;
    struct qn_buf in; ///< received, from in_pos on not yet consumed
    size_t in_pos, scan;
    struct qn_buf body;
    enum qn_http_framing framing;
    struct qn_http_chunks chunks;
    uint64_t body_left, body_in;
    struct qn_buf out; ///< unsent, from out_pos on
    size_t out_pos;
    int status;
    uint64_t bytes_out;
    uint64_t since_ns; ///< start of the current phase (idle, head, body, closing)
    uint64_t progress_ns;
};

size_t qn_conn_pending(const struct qn_http_conn *c); // bytes not sent yet
void qn_conn_flush(struct qn_http_conn *c);
void qn_conn_process(struct qn_http_conn *c);
void qn_conn_accept(struct qn_http *http, int fd); // takes the descriptor
void qn_conn_close(struct qn_http_conn *c);
void qn_conn_arm(struct qn_http_conn *c); // timer and read interest for the present state
void qn_conn_send(struct qn_http_conn *c, const void *data, size_t n);

#endif
