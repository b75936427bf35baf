#include "server/http_conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

const char *qn_http_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {100, "Continue"},
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) {
            return reasons[i].text;
        }
    }
    return "Status";
}

size_t qn_conn_pending(const struct qn_http_conn *c)
{
    return c->out.len - c->out_pos;
}

void qn_http_cut(struct qn_http_conn *c)
{
    c->broken = true;
    event_active(c->ev_timer, EV_TIMEOUT, 0);
}

// Errors are noted and acted upon from the loop, so that callers never lose their connection under
// their feet.
static size_t try_send(struct qn_http_conn *c, const char *data, size_t n)
{
    size_t done = 0;
    while (done < n && !c->broken) {
        ssize_t k = send(c->fd, data + done, n - done, MSG_NOSIGNAL);
        if (k > 0) {
            done += (size_t)k;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            qn_http_cut(c);
        }
    }
    if (done > 0) {
        c->progress_ns = qn_clock_ns();
    }
    return done;
}

void qn_conn_send(struct qn_http_conn *c, const void *data, size_t n)
{
    if (c->dead || c->broken || c->shut) {
        return;
    }
    c->bytes_out += n;
    size_t done = qn_conn_pending(c) == 0 ? try_send(c, data, n) : 0;
    if (done == n || c->broken) {
        return;
    }
    if (qn_conn_pending(c) == 0) {
        qn_buf_clear(&c->out);
        c->out_pos = 0;
        c->progress_ns = qn_clock_ns();
    }
    if (!qn_buf_add(&c->out, (const char *)data + done, n - done)) {
        qn_http_cut(c); // no memory: a cut answer must not look whole
        return;
    }
    event_add(c->ev_write, NULL);
}

void qn_conn_flush(struct qn_http_conn *c)
{
    size_t left = qn_conn_pending(c);
    c->out_pos += try_send(c, c->out.data + c->out_pos, left);
    if (qn_conn_pending(c) > 0 || c->broken) {
        return;
    }
    event_del(c->ev_write);
    qn_buf_done(&c->out);
    c->out_pos = 0;
}

static void finish(struct qn_http_conn *c)
{
    if (!c->active || c->dead) {
        return;
    }
    struct qn_http *http = c->http;
    bool unread = c->state != QN_CONN_BUSY;
    c->active = false;
    http->on.on_end(http->user, c, !c->broken);
    c->data = NULL;
    http->buffered_bytes -= c->body_in;
    qn_buf_done(&c->body);
    c->body_in = 0;
    c->since_ns = qn_clock_ns();
    c->scan = 0;
    bool keep = c->keep_alive && !unread && !http->draining && !c->eof;
    c->state = keep ? QN_CONN_HEAD : QN_CONN_CLOSING;
    if (!c->in_process) {
        qn_conn_process(c);
    }
}

static void send_head(struct qn_http_conn *c, int status, const char *headers,
                      const char *content_type, const char *framing, struct qn_buf *out)
{
    time_t now = (time_t)qn_clock_wall_s();
    struct tm tm;
    char date[64] = "";
    if (gmtime_r(&now, &tm) != NULL) {
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    }
    if (c->http->draining || c->state == QN_CONN_BODY || c->eof) {
        c->keep_alive = false;
    }
    c->status = status;
    c->bytes_out = 0;
    qn_buf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: quern\r\n", status,
                  qn_http_reason(status), date);
    if (content_type != NULL) {
        qn_buf_printf(out, "Content-Type: %s\r\n", content_type);
    }
    if (!c->keep_alive) {
        qn_buf_puts(out, "Connection: close\r\n");
    } else if (!c->http11) {
        qn_buf_puts(out, "Connection: keep-alive\r\n");
    }
    qn_buf_puts(out, headers != NULL ? headers : "");
    qn_buf_puts(out, framing);
    qn_buf_puts(out, "\r\n");
}

void qn_http_reply(struct qn_http_conn *c, int status, const char *headers,
                   const char *content_type, const void *body, size_t n)
{
    struct qn_buf out = {0};
    char framing[64] = "";
    if (status != 204) {
        snprintf(framing, sizeof framing, "Content-Length: %zu\r\n", n);
    }
    send_head(c, status, headers, content_type, framing, &out);
    if (!c->head_only && n > 0) {
        qn_buf_add(&out, body, n);
    }
    if (out.failed) {
        qn_http_cut(c);
    } else {
        qn_conn_send(c, out.data, out.len);
    }
    qn_buf_done(&out);
    finish(c);
}

void qn_http_stream_start(struct qn_http_conn *c, int status, const char *headers,
                          const char *content_type)
{
    struct qn_buf out = {0};
    c->chunked_reply = c->http11;
    if (!c->http11) {
        c->keep_alive = false; // the end of the connection is the end of the answer
    }
    send_head(c, status, headers, content_type,
              c->chunked_reply ? "Transfer-Encoding: chunked\r\n" : "", &out);
    if (out.failed) {
        qn_http_cut(c);
    } else {
        qn_conn_send(c, out.data, out.len);
    }
    qn_buf_done(&out);
}

static void send_piece(struct qn_http_conn *c, const void *data, size_t n, bool last)
{
    struct qn_buf piece = {0};
    if (n > 0 && !c->head_only) {
        if (c->chunked_reply) {
            qn_buf_printf(&piece, "%zx\r\n", n);
        }
        qn_buf_add(&piece, data, n);
        qn_buf_puts(&piece, c->chunked_reply ? "\r\n" : "");
    }
    if (last && c->chunked_reply && !c->head_only) {
        qn_buf_puts(&piece, "0\r\n\r\n");
    }
    if (piece.failed) {
        qn_http_cut(c);
    } else if (piece.len > 0) {
        qn_conn_send(c, piece.data, piece.len);
    }
    qn_buf_done(&piece);
}

void qn_http_stream_send(struct qn_http_conn *c, const void *data, size_t n)
{
    send_piece(c, data, n, false);
    if (!c->in_process) {
        qn_conn_arm(c);
    }
}

void qn_http_stream_end(struct qn_http_conn *c, const void *data, size_t n)
{
    send_piece(c, data, n, true);
    finish(c);
}

bool qn_http_is_drained(const struct qn_http_conn *c)
{
    return qn_conn_pending(c) == 0;
}

int qn_http_status(const struct qn_http_conn *c)
{
    return c->status;
}

uint64_t qn_http_bytes_out(const struct qn_http_conn *c)
{
    return c->bytes_out;
}

uint64_t qn_http_body_in(const struct qn_http_conn *c)
{
    return c->body_in;
}

void qn_http_set_data(struct qn_http_conn *c, void *data)
{
    c->data = data;
}

void *qn_http_get_data(const struct qn_http_conn *c)
{
    return c->data;
}

void qn_http_abort_on_eof(struct qn_http_conn *c)
{
    c->abort_on_eof = true;
    if (c->eof) {
        qn_http_cut(c);
    }
}
