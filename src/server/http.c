#include "server/http_conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    READ_CHUNK = 64 * 1024,
    PIPELINE_BYTES = 64 * 1024, // received while an answer is under way; more waits in the kernel
    LINGER_MS = 2000,           // for the peer to read a refusal before the socket goes
    PAUSED_POLL_MS = 100        // a peer that we do not read from is asked whether it is there
};

static size_t available(const struct qn_http_conn *c)
{
    return c->in.len - c->in_pos;
}

static void consume(struct qn_http_conn *c, size_t n)
{
    c->in_pos += n;
}

static void begin(struct qn_http_conn *c)
{
    c->active = true;
    c->status = 0;
    c->bytes_out = 0;
    c->abort_on_eof = false;
    c->chunked_reply = false;
}

static void refuse(struct qn_http_conn *c, int status, const char *why)
{
    if (!c->active) {
        begin(c);
        c->head_only = false;
        c->http11 = true;
    }
    c->keep_alive = false;
    c->state = QN_CONN_BODY; // the rest of the message is not read: answer and close
    c->http->on.on_error(c->http->user, c, status, why);
}

static void body_complete(struct qn_http_conn *c)
{
    size_t n = 0;
    char *body = c->body.len > 0 ? qn_buf_take(&c->body, &n) : NULL;
    c->state = QN_CONN_BUSY;
    c->http->on.on_body(c->http->user, c, body, n);
}

static bool take_body(struct qn_http_conn *c, const char *data, size_t n)
{
    struct qn_http *http = c->http;
    if (n > http->limits.max_body_bytes || c->body_in > http->limits.max_body_bytes - n) {
        refuse(c, 413, "body: longer than the limit (--max-request-body-bytes)");
        return false;
    }
    if (http->buffered_bytes + n > http->limits.max_buffered_bytes ||
        !qn_buf_add(&c->body, data, n)) {
        refuse(c, 503, "could not buffer the body: too many large requests at once");
        return false;
    }
    c->body_in += n;
    http->buffered_bytes += n;
    return true;
}

static bool step_head(struct qn_http_conn *c)
{
    struct qn_http *http = c->http;
    if (qn_conn_pending(c) > 0 || c->in.data == NULL) {
        return false; // answers go out before the next request is looked at
    }
    while (available(c) >= 2 && memcmp(c->in.data + c->in_pos, "\r\n", 2) == 0) {
        consume(c, 2); // empty lines before a request are to be ignored
    }
    size_t n = available(c);
    if (n == 0) {
        return false;
    }
    const char *p = c->in.data + c->in_pos;
    size_t head_bytes = qn_http_head_end(p, n, &c->scan);
    if ((head_bytes == 0 ? n : head_bytes) > http->limits.max_head_bytes) {
        refuse(c, 431, "request head: longer than the limit (--h11-max-incomplete-event-size)");
        return true;
    }
    if (head_bytes == 0) {
        return false;
    }
    struct qn_http_head *head = malloc(sizeof *head);
    const char *why = "could not allocate memory for the request head";
    int status = head == NULL
                     ? 503
                     : qn_http_head_parse(p, head_bytes, http->limits.max_headers, head, &why);
    consume(c, head_bytes);
    c->scan = 0;
    c->since_ns = qn_clock_ns();
    if (status != 0) {
        refuse(c, status, why);
        free(head);
        return true;
    }
    begin(c);
    c->state = QN_CONN_BODY;
    c->http11 = head->minor == 1;
    c->head_only = head->method == QN_HTTP_HEAD;
    c->keep_alive = head->keep_alive;
    c->framing = head->framing;
    c->body_left = head->content_length;
    c->chunks = (struct qn_http_chunks){0};
    bool expect = head->expect_continue && head->framing != QN_HTTP_NO_BODY;
    bool no_body = head->framing == QN_HTTP_NO_BODY ||
                   (head->framing == QN_HTTP_LENGTH && head->content_length == 0);
    if (no_body) {
        c->state = QN_CONN_BUSY;
    }
    http->on.on_head(http->user, c, head);
    free(head);
    if (!c->active || c->dead) {
        return true;
    }
    if (no_body) {
        body_complete(c);
    } else if (c->framing == QN_HTTP_LENGTH && c->body_left > http->limits.max_body_bytes) {
        refuse(c, 413, "body: longer than the limit (--max-request-body-bytes)");
    } else if (expect && available(c) == 0) {
        qn_conn_send(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    }
    return true;
}

static bool step_body(struct qn_http_conn *c)
{
    size_t n = available(c);
    if (n == 0) {
        return false;
    }
    const char *p = c->in.data + c->in_pos;
    if (c->framing == QN_HTTP_LENGTH) {
        size_t take = n < c->body_left ? n : (size_t)c->body_left;
        consume(c, take);
        c->body_left -= take;
        if (take_body(c, p, take) && c->body_left == 0) {
            body_complete(c);
        }
        return true;
    }
    size_t used = 0;
    struct qn_slice data = {0};
    switch (qn_http_chunks_next(&c->chunks, p, n, &used, &data)) {
    case QN_HTTP_CHUNK_MORE:
        consume(c, used);
        break;
    case QN_HTTP_CHUNK_DATA:
        consume(c, used);
        take_body(c, data.p, data.n);
        break;
    case QN_HTTP_CHUNK_END:
        consume(c, used);
        body_complete(c);
        break;
    case QN_HTTP_CHUNK_ERROR:
        refuse(c, 400, "body: malformed chunked coding");
        break;
    }
    return true;
}

static bool step(struct qn_http_conn *c)
{
    switch (c->state) {
    case QN_CONN_HEAD:
        return step_head(c);
    case QN_CONN_BODY:
        return step_body(c);
    case QN_CONN_BUSY:
        return false;
    case QN_CONN_CLOSING:
        consume(c, available(c));
        if (qn_conn_pending(c) == 0 && !c->shut) {
            c->shut = true;
            shutdown(c->fd, SHUT_WR);
        }
        return false;
    }
    return false;
}

void qn_conn_process(struct qn_http_conn *c)
{
    if (c->in_process) {
        return;
    }
    c->in_process = true;
    while (!c->dead && !c->broken && step(c)) {
    }
    c->in_process = false;
    if (c->dead) {
        return;
    }
    if (c->in_pos == c->in.len) {
        qn_buf_done(&c->in);
        c->in_pos = 0;
    } else if (c->in_pos > READ_CHUNK) {
        memmove(c->in.data, c->in.data + c->in_pos, available(c));
        c->in.len -= c->in_pos;
        c->in_pos = 0;
    }
    bool waits_for_more = c->state == QN_CONN_HEAD || c->state == QN_CONN_BODY;
    bool can_close = qn_conn_pending(c) == 0;
    if (c->eof && can_close && (waits_for_more || c->state == QN_CONN_CLOSING)) {
        qn_conn_close(c);
        return;
    }
    qn_conn_arm(c);
}

void qn_conn_close(struct qn_http_conn *c)
{
    if (c->dead) {
        return;
    }
    struct qn_http *http = c->http;
    c->dead = true;
    event_del(c->ev_read);
    event_del(c->ev_write);
    event_del(c->ev_timer);
    close(c->fd);
    c->fd = -1;
    if (c->active) {
        c->active = false;
        http->on.on_end(http->user, c, false);
        c->data = NULL;
    }
    http->buffered_bytes -= c->body_in;
    c->body_in = 0;
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        http->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
    http->n_conns--;
    c->next = http->dead;
    http->dead = c;
    event_active(http->reap, EV_TIMEOUT, 0);
}

static void free_conn(struct qn_http_conn *c)
{
    if (c->ev_read != NULL) {
        event_free(c->ev_read);
    }
    if (c->ev_write != NULL) {
        event_free(c->ev_write);
    }
    if (c->ev_timer != NULL) {
        event_free(c->ev_timer);
    }
    qn_buf_done(&c->in);
    qn_buf_done(&c->body);
    qn_buf_done(&c->out);
    free(c);
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct qn_http *http = arg;
    while (http->dead != NULL) {
        struct qn_http_conn *c = http->dead;
        http->dead = c->next;
        free_conn(c);
    }
}

// When something must happen without the peer's doing; 0: nothing must.
static uint64_t deadline_ns(const struct qn_http_conn *c)
{
    const struct qn_http_limits *l = &c->http->limits;
    uint64_t ms = 1000000;
    switch (c->state) {
    case QN_CONN_HEAD:
        if (qn_conn_pending(c) > 0) {
            return c->progress_ns + l->write_ms * ms;
        }
        return c->since_ns + (available(c) == 0 ? l->keep_alive_ms : l->head_ms) * ms;
    case QN_CONN_BODY:
        return c->since_ns + l->body_ms * ms;
    case QN_CONN_BUSY:
        return qn_conn_pending(c) > 0 ? c->progress_ns + l->write_ms * ms : 0;
    case QN_CONN_CLOSING:
        return qn_conn_pending(c) > 0 ? c->progress_ns + l->write_ms * ms
                                      : c->since_ns + LINGER_MS * ms;
    }
    return 0;
}

static bool is_paused(const struct qn_http_conn *c)
{
    return (c->state == QN_CONN_BUSY || qn_conn_pending(c) > 0) && c->state != QN_CONN_CLOSING &&
           available(c) >= PIPELINE_BYTES;
}

void qn_conn_arm(struct qn_http_conn *c)
{
    if (c->dead || c->broken) {
        return;
    }
    bool want_read = !c->eof && !is_paused(c);
    if (want_read != c->reading) {
        c->reading = want_read;
        if (want_read) {
            event_add(c->ev_read, NULL);
        } else {
            event_del(c->ev_read);
        }
    }
    uint64_t at = deadline_ns(c), now = qn_clock_ns();
    bool watch = c->state == QN_CONN_BUSY && !want_read;
    uint64_t wait_ns = at == 0 ? UINT64_MAX : at > now ? at - now : 1;
    if (watch && wait_ns > PAUSED_POLL_MS * 1000000ull) {
        wait_ns = PAUSED_POLL_MS * 1000000ull;
    }
    if (wait_ns == UINT64_MAX) {
        event_del(c->ev_timer);
        return;
    }
    uint64_t us = wait_ns / 1000 + 1;
    struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    event_add(c->ev_timer, &tv);
}

static bool peer_gone(const struct qn_http_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    short gone = POLLERR | POLLHUP;
    if (c->abort_on_eof) {
        gone |= POLLRDHUP;
    }
    return poll(&p, 1, 0) > 0 && (p.revents & gone) != 0;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct qn_http_conn *c = arg;
    if (c->broken || (c->state == QN_CONN_BUSY && !c->reading && peer_gone(c))) {
        qn_conn_close(c);
        return;
    }
    uint64_t at = deadline_ns(c);
    if (at == 0 || at > qn_clock_ns()) {
        qn_conn_arm(c);
        return;
    }
    bool partial = (c->state == QN_CONN_HEAD && available(c) > 0) || c->state == QN_CONN_BODY;
    if (partial && qn_conn_pending(c) == 0) {
        c->in_process = true;
        refuse(c, 408,
               c->state == QN_CONN_HEAD ? "the request head took too long"
                                        : "the request body took too long");
        c->in_process = false;
        qn_conn_process(c);
        return;
    }
    qn_conn_close(c);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct qn_http_conn *c = arg;
    qn_conn_flush(c);
    if (c->broken) {
        qn_conn_close(c);
        return;
    }
    if (qn_conn_pending(c) > 0) {
        qn_conn_arm(c);
        return;
    }
    if (c->active) {
        c->http->on.on_drained(c->http->user, c);
    }
    if (!c->dead) {
        qn_conn_process(c);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct qn_http_conn *c = arg;
    size_t want = READ_CHUNK;
    if (!qn_buf_reserve(&c->in, want)) {
        qn_conn_close(c);
        return;
    }
    ssize_t k = recv(fd, c->in.data + c->in.len, want, 0);
    if (k < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            qn_conn_close(c);
        } else if (c->in.len == 0) {
            qn_buf_done(&c->in);
        }
        return;
    }
    if (k == 0) {
        c->eof = true;
        if (c->active && (c->abort_on_eof || c->state == QN_CONN_BODY)) {
            qn_conn_close(c);
            return;
        }
    } else {
        if (available(c) == 0 && c->state == QN_CONN_HEAD) {
            c->since_ns = qn_clock_ns(); // the head's deadline starts with its first byte
        }
        c->in.len += (size_t)k;
        c->in.data[c->in.len] = '\0';
    }
    qn_conn_process(c);
}

void qn_conn_accept(struct qn_http *http, int fd)
{
    struct qn_http_conn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return;
    }
    c->http = http;
    c->fd = fd;
    c->since_ns = c->progress_ns = qn_clock_ns();
    c->ev_read = event_new(http->base, fd, EV_READ | EV_PERSIST, on_readable, c);
    c->ev_write = event_new(http->base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
    c->ev_timer = event_new(http->base, -1, 0, on_timer, c);
    if (c->ev_read == NULL || c->ev_write == NULL || c->ev_timer == NULL) {
        close(fd);
        free_conn(c);
        return;
    }
    c->next = http->conns;
    if (c->next != NULL) {
        c->next->prev = c;
    }
    http->conns = c;
    http->n_conns++;
    if (http->n_conns > http->limits.max_conns) {
        refuse(c, 503, "too many connections");
    }
    if (!c->dead) {
        qn_conn_process(c);
    }
}

enum qn_status qn_http_new(struct event_base *base, const struct qn_http_limits *limits,
                           const struct qn_http_handlers *handlers, void *user,
                           struct qn_http **out_http, struct qn_err *err)
{
    struct qn_http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the HTTP server");
    }
    http->base = base;
    http->limits = *limits;
    http->on = *handlers;
    http->user = user;
    http->reap = event_new(base, -1, 0, on_reap, http);
    if (http->reap == NULL) {
        free(http);
        return qn_fail(err, QN_E_NOMEM, "could not allocate the HTTP server");
    }
    *out_http = http;
    return QN_OK;
}

void qn_http_free(struct qn_http *http)
{
    if (http == NULL) {
        return;
    }
    while (http->conns != NULL) {
        qn_conn_close(http->conns);
    }
    on_reap(-1, 0, http);
    for (size_t i = 0; i < http->n_listeners; i++) {
        struct qn_http_listener *l = &http->listeners[i];
        event_free(l->ev);
        close(l->fd);
        if (l->unlink_path != NULL) {
            unlink(l->unlink_path);
            free(l->unlink_path);
        }
    }
    if (http->resume != NULL) {
        event_free(http->resume);
    }
    event_free(http->reap);
    free(http);
}

void qn_http_drain(struct qn_http *http)
{
    http->draining = true;
    struct qn_http_conn *next = NULL;
    for (struct qn_http_conn *c = http->conns; c != NULL; c = next) {
        next = c->next;
        if (c->state == QN_CONN_HEAD && available(c) == 0 && qn_conn_pending(c) == 0) {
            qn_conn_close(c);
        }
    }
}

size_t qn_http_n_busy(const struct qn_http *http)
{
    size_t n = 0;
    for (const struct qn_http_conn *c = http->conns; c != NULL; c = c->next) {
        n += c->active || qn_conn_pending(c) > 0;
    }
    return n;
}
