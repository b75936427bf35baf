#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/gen.h"
#include "server/jsonw.h"
#include "server/origin.h"

struct route {
    const char *path;
    enum qn_route id;
    bool get, post;
    bool inference; ///< needs a model; counted by /load
};

static const struct route routes[] = {
    {"/v1/chat/completions", QN_ROUTE_CHAT, false, true, true},
    {"/v1/completions", QN_ROUTE_COMPLETIONS, false, true, true},
    {"/tokenize", QN_ROUTE_TOKENIZE, false, true, true},
    {"/detokenize", QN_ROUTE_DETOKENIZE, false, true, true},
    {"/v1/models", QN_ROUTE_MODELS, true, false, false},
    {"/health", QN_ROUTE_HEALTH, true, false, false},
    {"/ping", QN_ROUTE_PING, true, true, false},
    {"/version", QN_ROUTE_VERSION, true, false, false},
    {"/metrics", QN_ROUTE_METRICS, true, false, false},
    {"/load", QN_ROUTE_LOAD, true, false, false},
};
static const struct route model_route = {"/v1/models/", QN_ROUTE_MODEL, true, false, false};

static const struct route *find_route(const char *path, size_t n)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strlen(routes[i].path) == n && memcmp(routes[i].path, path, n) == 0) {
            return &routes[i];
        }
    }
    size_t prefix = strlen(model_route.path);
    return n > prefix && memcmp(path, model_route.path, prefix) == 0 ? &model_route : NULL;
}

static const struct route *route_by_id(enum qn_route id)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (routes[i].id == id) {
            return &routes[i];
        }
    }
    return NULL;
}

static bool is_inference(enum qn_route id)
{
    const struct route *r = route_by_id(id);
    return r != NULL && r->inference;
}

static void call_free(struct qn_call *call)
{
    if (call == NULL) {
        return;
    }
    if (is_inference(call->route)) {
        call->server->n_load--;
    }
    qn_gen_free(call->gen);
    json_decref(call->root);
    qn_buf_done(&call->headers);
    qn_buf_done(&call->reply);
    free(call->model_path);
    free(call->body);
    free(call);
}

void qn_call_fail(struct qn_call *call)
{
    struct qn_buf body = {0}, headers = {0};
    qn_buf_puts(&headers, call->headers.data != NULL ? call->headers.data : "");
    if (call->err.retry_after_s > 0) {
        qn_buf_printf(&headers, "Retry-After: %d\r\n", call->err.retry_after_s);
    }
    if (call->err.status == 401) {
        qn_buf_puts(&headers, "WWW-Authenticate: Bearer\r\n");
    }
    qn_api_error_write(&call->err, &body);
    qn_http_reply(call->conn, call->err.status, headers.data, "application/json", body.data,
                  body.len);
    qn_buf_done(&body);
    qn_buf_done(&headers);
}

void qn_call_reply_json(struct qn_call *call, const struct qn_buf *body)
{
    if (body->failed) {
        qn_api_fail(&call->err, 503, NULL, NULL, "could not allocate memory for the answer");
        qn_call_fail(call);
        return;
    }
    qn_http_reply(call->conn, 200, call->headers.data, "application/json", body->data, body->len);
}

bool qn_check_model(const struct qn_server *s, const char *name, size_t n, struct qn_api_error *err)
{
    for (size_t i = 0; i < s->n_names; i++) {
        if (n == 0 || (strlen(s->names[i]) == n && memcmp(s->names[i], name, n) == 0)) {
            return true;
        }
    }
    return qn_api_fail(err, 404, "model_not_found", "model",
                       "The model \"%.200s\" does not exist; see /v1/models for what is served.",
                       name != NULL ? name : "");
}

static void write_card(const struct qn_server *s, const char *name, struct qn_buf *out)
{
    qn_buf_puts(out, "{\"id\":");
    qn_jw_cstr(out, name);
    qn_buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"quern\",\"root\":",
                  (long long)s->created);
    qn_jw_cstr(out, s->info->path);
    qn_buf_printf(out, ",\"parent\":null,\"max_model_len\":%zu,\"permission\":[]}",
                  s->rules.max_model_len);
}

static void reply_models(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    struct qn_buf out = {0};
    if (call->model_path != NULL) {
        if (!qn_check_model(s, call->model_path, call->n_model_path, &call->err)) {
            qn_call_fail(call);
            return;
        }
        write_card(s, call->model_path, &out);
    } else {
        qn_buf_puts(&out, "{\"object\":\"list\",\"data\":[");
        for (size_t i = 0; i < s->n_names; i++) {
            qn_buf_puts(&out, i > 0 ? "," : "");
            write_card(s, s->names[i], &out);
        }
        qn_buf_puts(&out, "]}");
    }
    qn_call_reply_json(call, &out);
    qn_buf_done(&out);
}

static void reply_metrics(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    struct qn_buf out = {0};
    struct quern_stats stats;
    struct qn_metrics_labels labels = {
        .model_name = s->n_names > 0 ? s->names[0] : "",
        .version = quern_version(),
        .legacy_names = s->opt->metrics_legacy_names,
    };
    if (s->engine != NULL) {
        quern_engine_stats(s->engine, &stats);
        labels.isa = s->info->isa;
        labels.n_threads = s->info->n_threads;
        labels.weight_bytes = s->info->weight_bytes;
    }
    qn_metrics_write(&s->metrics, s->engine != NULL ? &stats : NULL, &labels, &out);
    if (out.failed) {
        qn_api_fail(&call->err, 503, NULL, NULL, "could not allocate memory for the answer");
        qn_call_fail(call);
    } else {
        qn_http_reply(call->conn, 200, call->headers.data,
                      "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    }
    qn_buf_done(&out);
}

static void reply_health(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    struct qn_buf headers = {0};
    bool ok = s->phase == QN_READY;
    qn_buf_puts(&headers, call->headers.data != NULL ? call->headers.data : "");
    qn_buf_puts(&headers, ok ? "" : "Retry-After: 1\r\n");
    qn_http_reply(call->conn, ok ? 200 : 503, headers.data, NULL, NULL, 0);
    qn_buf_done(&headers);
}

static void reply_small(struct qn_call *call)
{
    struct qn_buf out = {0};
    if (call->route == QN_ROUTE_VERSION) {
        qn_buf_puts(&out, "{\"version\":");
        qn_jw_cstr(&out, quern_version());
        qn_buf_putc(&out, '}');
    } else {
        const struct qn_server *s = call->server;
        qn_buf_printf(&out, "{\"server_load\":%zu}", s->opt->track_load ? s->n_load : 0);
    }
    qn_call_reply_json(call, &out);
    qn_buf_done(&out);
}

// Requests that need the model wait outside until it is there, and stay outside from SIGTERM on.
static bool check_phase(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    bool needs = is_inference(call->route) || call->route == QN_ROUTE_MODELS ||
                 call->route == QN_ROUTE_MODEL;
    if (!needs || s->phase == QN_READY) {
        return true;
    }
    return qn_api_fail(&call->err, 503, NULL, NULL,
                       s->phase == QN_LOADING ? "the model is still loading; try again shortly"
                                              : "the server is shutting down");
}

// Ids come from clients: only visible ASCII of a sane length is repeated in headers and answers.
static void take_request_id(struct qn_call *call, const struct qn_http_head *head)
{
    const struct qn_slice *v = qn_http_header_get(head, "x-request-id");
    bool usable = v != NULL && v->n > 0 && v->n < QN_ID_BYTES - 16;
    for (size_t i = 0; usable && i < v->n; i++) {
        usable = v->p[i] > 0x20 && v->p[i] < 0x7f;
    }
    if (usable) {
        memcpy(call->id, v->p, v->n);
        call->id[v->n] = '\0';
        call->id_from_header = true;
    } else {
        unsigned char raw[16] = {0};
        if (getrandom(raw, sizeof raw, GRND_NONBLOCK) != (ssize_t)sizeof raw) {
            uint64_t now = qn_clock_ns(); // early boot: ids need to differ, not to be secret
            memcpy(raw, &now, sizeof now);
        }
        for (size_t i = 0; i < sizeof raw; i++) {
            snprintf(call->id + 2 * i, 3, "%02x", raw[i]);
        }
    }
    qn_buf_printf(&call->headers, "X-Request-Id: %s\r\n", call->id);
}

// The path without --root-path, decoded. NULL when it cannot be a path of ours.
static const char *own_path(const struct qn_server *s, const struct qn_http_head *head, char *buf,
                            size_t *out_n)
{
    size_t n = qn_http_percent_decode(head->path.p, head->path.n, buf);
    if (n == SIZE_MAX || memchr(buf, '\0', n) != NULL) {
        return NULL;
    }
    const char *root = s->opt->root_path;
    size_t n_root = root != NULL ? strlen(root) : 0;
    while (n_root > 0 && root[n_root - 1] == '/') {
        n_root--;
    }
    if (n_root > 0 && n > n_root && memcmp(buf, root, n_root) == 0 && buf[n_root] == '/') {
        buf += n_root;
        n -= n_root;
    }
    *out_n = n;
    return buf;
}

static bool has_json_type(const struct qn_http_head *head)
{
    static const char want[] = "application/json";
    const struct qn_slice *v = qn_http_header_get(head, "content-type");
    if (v == NULL || v->n < sizeof want - 1) {
        return false;
    }
    struct qn_slice type = {v->p, sizeof want - 1};
    char after = v->n > type.n ? v->p[type.n] : ';';
    return qn_slice_is_nocase(type, want) && (after == ';' || after == ' ' || after == '\t');
}

static bool check_route(struct qn_call *call, const struct qn_http_head *head)
{
    struct qn_server *s = call->server;
    char *buf = malloc(head->path.n + 1);
    size_t n = 0;
    if (buf == NULL) {
        return qn_api_fail(&call->err, 503, NULL, NULL, "could not allocate the path");
    }
    const char *path = own_path(s, head, buf, &n);
    const struct route *r = path != NULL ? find_route(path, n) : NULL;
    bool ok = true;
    if (!qn_origin_allows_key(s->opt, head, path != NULL ? path : "/v1")) {
        ok = qn_api_fail(&call->err, 401, "invalid_api_key", NULL,
                         "missing or wrong API key: expected \"Authorization: Bearer KEY\"");
    } else if (r == NULL) {
        ok = qn_api_fail(&call->err, 404, NULL, NULL, "unknown path \"%.200s\"",
                         path != NULL ? path : "");
    } else if (!(r->get && (call->method == QN_HTTP_GET || call->method == QN_HTTP_HEAD)) &&
               !(r->post && call->method == QN_HTTP_POST)) {
        qn_buf_printf(&call->headers, "Allow: %s%s%s\r\n", r->get ? "GET, HEAD" : "",
                      r->get && r->post ? ", " : "", r->post ? "POST" : "");
        ok = qn_api_fail(&call->err, 405, NULL, NULL, "method %.*s: not for this path",
                         (int)(head->method_text.n < 32 ? head->method_text.n : 32),
                         head->method_text.p);
    }
    if (ok && r->id == QN_ROUTE_MODEL) {
        size_t skip = strlen(model_route.path);
        call->n_model_path = n - skip;
        call->model_path = strdup(path + skip);
        ok = call->model_path != NULL ||
             qn_api_fail(&call->err, 503, NULL, NULL, "could not allocate the model's name");
    }
    if (r != NULL) {
        call->route = r->id;
        s->n_load += r->inference;
    }
    free(buf);
    return ok;
}

static void on_head(void *user, struct qn_http_conn *c, const struct qn_http_head *head)
{
    struct qn_server *s = user;
    struct qn_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        qn_http_reply(c, 503, NULL, NULL, NULL, 0);
        return;
    }
    call->server = s;
    call->conn = c;
    call->route = QN_ROUTE_NONE;
    call->method = head->method;
    call->start_ns = qn_clock_ns();
    call->is_json = has_json_type(head);
    qn_http_set_data(c, call);
    take_request_id(call, head);
    qn_origin_headers(s->opt, head, &call->headers);
    if (head->method == QN_HTTP_OPTIONS) {
        qn_http_reply(c, 204, call->headers.data, NULL, NULL, 0);
    } else if (!check_route(call, head) || !check_phase(call)) {
        qn_call_fail(call);
    }
}

static void on_body(void *user, struct qn_http_conn *c, char *body, size_t n)
{
    struct qn_server *s = user;
    struct qn_call *call = qn_http_get_data(c);
    call->body = body;
    call->n_body = n;
    switch (call->route) {
    case QN_ROUTE_CHAT:
    case QN_ROUTE_COMPLETIONS:
    case QN_ROUTE_TOKENIZE:
    case QN_ROUTE_DETOKENIZE:
        call->in_work = true;
        qn_work_push(s->work, call);
        break;
    case QN_ROUTE_MODELS:
    case QN_ROUTE_MODEL:
        reply_models(call);
        break;
    case QN_ROUTE_HEALTH:
    case QN_ROUTE_PING:
        reply_health(call);
        break;
    case QN_ROUTE_METRICS:
        reply_metrics(call);
        break;
    case QN_ROUTE_VERSION:
    case QN_ROUTE_LOAD:
    case QN_ROUTE_NONE:
    case QN_N_ROUTES:
        reply_small(call);
        break;
    }
}

static void on_error(void *user, struct qn_http_conn *c, int status, const char *why)
{
    (void)user;
    struct qn_call *call = qn_http_get_data(c);
    struct qn_api_error e = {0};
    if (call != NULL) {
        qn_api_fail(&call->err, status, NULL, NULL, "%s", why);
        qn_call_fail(call);
        return;
    }
    struct qn_buf body = {0};
    qn_api_fail(&e, status, NULL, NULL, "%s", why);
    qn_api_error_write(&e, &body);
    qn_http_reply(c, status, status == 503 ? "Retry-After: 1\r\n" : NULL, "application/json",
                  body.data, body.len);
    qn_buf_done(&body);
}

static void on_drained(void *user, struct qn_http_conn *c)
{
    (void)user;
    struct qn_call *call = qn_http_get_data(c);
    if (call != NULL && call->gen != NULL && !call->in_work) {
        qn_gen_pump(call->gen);
    }
}

static void on_end(void *user, struct qn_http_conn *c, bool complete)
{
    struct qn_server *s = user;
    struct qn_call *call = qn_http_get_data(c);
    int status = qn_http_status(c);
    if (call == NULL) {
        qn_metrics_http(&s->metrics, QN_ROUTE_NONE, 2, status, 0, 0, qn_http_bytes_out(c));
        return;
    }
    int method = call->method == QN_HTTP_GET ? 0 : call->method == QN_HTTP_POST ? 1 : 2;
    double seconds = (double)(qn_clock_ns() - call->start_ns) * 1e-9;
    // a peer that left before its answer counts among the client errors
    qn_metrics_http(&s->metrics, call->route, method, status != 0 ? status : 499, seconds,
                    qn_http_body_in(c), qn_http_bytes_out(c));
    if (s->opt->access_log) {
        qn_log(QN_LOG_INFO, "%s %s: %d%s, %.1f ms", call->id,
               route_by_id(call->route) != NULL ? route_by_id(call->route)->path : "other", status,
               complete ? "" : " (cut)", seconds * 1e3);
    }
    call->conn = NULL;
    if (!call->in_work) {
        call_free(call);
    }
}

void qn_call_work(struct qn_call *call)
{
    switch (call->route) {
    case QN_ROUTE_CHAT:
        qn_chat_prepare(call);
        break;
    case QN_ROUTE_COMPLETIONS:
        qn_completions_prepare(call);
        break;
    case QN_ROUTE_TOKENIZE:
        qn_tokenize_work(call);
        break;
    default:
        qn_detokenize_work(call);
        break;
    }
}

void qn_call_done(struct qn_call *call)
{
    call->in_work = false;
    if (call->conn == NULL) {
        call_free(call);
    } else if (call->err.status != 0) {
        qn_call_fail(call);
    } else if (call->gen != NULL) {
        qn_gen_start(call->gen);
    } else {
        qn_call_reply_json(call, &call->reply);
    }
}

const struct qn_http_handlers qn_route_handlers = {
    .on_head = on_head,
    .on_body = on_body,
    .on_error = on_error,
    .on_drained = on_drained,
    .on_end = on_end,
};
