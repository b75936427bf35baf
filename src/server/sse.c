#include "server/sse.h"

static const char done[] = "data: [DONE]\n\n";

void qn_sse_open(struct qn_gen *g)
{
    if (g->head_sent) {
        return;
    }
    g->head_sent = true;
    struct qn_buf headers = {0};
    qn_buf_puts(&headers, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    qn_buf_puts(&headers, g->call->headers.data != NULL ? g->call->headers.data : "");
    qn_http_stream_start(g->call->conn, 200, headers.data, "text/event-stream; charset=utf-8");
    qn_buf_done(&headers);
}

void qn_sse_send(struct qn_gen *g, const struct qn_buf *json)
{
    struct qn_buf event = {0};
    qn_buf_puts(&event, "data: ");
    qn_buf_add(&event, json->data != NULL ? json->data : "", json->len);
    qn_buf_puts(&event, "\n\n");
    if (json->failed || event.failed) {
        qn_http_cut(g->call->conn);
    } else {
        qn_http_stream_send(g->call->conn, event.data, event.len);
    }
    qn_buf_done(&event);
}

void qn_sse_close(struct qn_gen *g)
{
    qn_http_stream_end(g->call->conn, done, sizeof done - 1);
}

void qn_sse_fail(struct qn_gen *g)
{
    struct qn_buf json = {0};
    qn_api_error_write(&g->call->err, &json);
    qn_sse_send(g, &json);
    qn_buf_done(&json);
    qn_sse_close(g);
}
