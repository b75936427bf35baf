#include "server/server.h"

#include <errno.h>
#include <event2/event.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "server/gen.h"

enum {
    DRAIN_POLL_MS = 20
};

// What only the start and the end of a run need; the rest of the server sees struct qn_server.
struct run {
    struct qn_server s;
    pthread_t loader;
    bool loader_started;
    struct quern_error load_err;
    bool load_ok;
    int loaded_fd, notify_fd;
    struct event *ev_loaded, *ev_notify, *ev_term, *ev_int, *ev_drain;
    uint64_t drain_end_ns;
    enum qn_status result;
    struct qn_err *err;
};

void qn_server_options_init(struct qn_server_options *o)
{
    *o = (struct qn_server_options){
        .port = 8000,
        .max_head_bytes = 64 * 1024,
        .max_headers = 256,
        .max_conns = 4096,
        .max_body_bytes = 64ull * 1024 * 1024,
        .max_buffered_bytes = 256ull * 1024 * 1024,
        .keep_alive_ms = 75 * 1000,
        .head_ms = 30 * 1000,
        .body_ms = 120 * 1000,
        .write_ms = 300 * 1000,
        .shutdown_ms = 30 * 1000,
        .max_n = 128,
        .max_logprobs = 20,
        .metrics_legacy_names = true,
    };
}

static void wake(int fd)
{
    uint64_t one = 1;
    ssize_t k = write(fd, &one, sizeof one); // full means that it is already awake
    (void)k;
}

static void drain_fd(int fd)
{
    uint64_t n = 0;
    ssize_t k = read(fd, &n, sizeof n);
    (void)k;
}

static void on_engine_news(void *user) // on the engine's thread
{
    const struct run *r = user;
    wake(r->notify_fd);
}

static void *load(void *arg)
{
    struct run *r = arg;
    struct qn_server *s = &r->s;
    r->load_ok = quern_model_load(&s->opt->model, &s->model, &r->load_err) == QUERN_OK;
    if (r->load_ok) {
        struct quern_engine_options eo = s->opt->engine;
        eo.notify = on_engine_news;
        eo.user = r;
        r->load_ok = quern_engine_new(s->model, &eo, &s->engine, &r->load_err) == QUERN_OK;
    }
    if (r->load_ok) {
        s->info = quern_model_get_info(s->model);
        for (size_t i = 0; s->info->has_tokenizer && i < s->info->vocab_size; i++) {
            char buf[256];
            size_t n = quern_token_bytes(s->model, (int32_t)i, buf, sizeof buf);
            s->longest_token = n > s->longest_token ? n : s->longest_token;
        }
    }
    wake(r->loaded_fd);
    return NULL;
}

static void stop(struct run *r, enum qn_status result)
{
    r->result = result;
    event_base_loopbreak(r->s.base);
}

static void default_number(double *out, double v, double lo, double hi, const char *name)
{
    if (isnan(v)) {
        return;
    }
    if (!(v >= lo && v <= hi)) {
        qn_log(QN_LOG_WARN, "generation_config.json: %s: found %g, expected %g to %g; ignored",
               name, v, lo, hi);
        return;
    }
    *out = v;
}

static void model_defaults(struct qn_server *s)
{
    struct qn_rules *r = &s->rules;
    const struct quern_model_info *i = s->info;
    r->vocab_size = i->vocab_size;
    r->max_model_len = i->max_model_len;
    if (s->opt->ignore_generation_config) {
        return;
    }
    default_number(&r->temperature, i->temperature, 0, 2, "temperature");
    default_number(&r->top_p, i->top_p, 0, 1, "top_p");
    default_number(&r->min_p, i->min_p, 0, 1, "min_p");
    default_number(&r->repetition_penalty, i->repetition_penalty, 1e-9, 1e9, "repetition_penalty");
    r->top_k = i->top_k >= 0 ? i->top_k : r->top_k;
    r->max_new_tokens = i->max_new_tokens > 0 ? i->max_new_tokens : r->max_new_tokens;
}

// The operator's sampling defaults, as a request body would give them; max_new_tokens is a cap.
static enum qn_status override_defaults(struct qn_server *s, struct qn_err *err)
{
    if (s->opt->override_generation_config == NULL) {
        return QN_OK;
    }
    json_t *v = NULL;
    enum qn_status rc = qn_json_parse(s->opt->override_generation_config,
                                      strlen(s->opt->override_generation_config), 16, &v, err);
    if (rc != QN_OK) {
        return qn_err_context(err, QN_E_INVALID, "--override-generation-config");
    }
    struct qn_params p;
    struct qn_api_error api = {0};
    struct qn_rules *r = &s->rules;
    int64_t cap = -1;
    if (!json_is_object(v)) {
        rc = qn_fail(err, QN_E_INVALID, "--override-generation-config: expected a JSON object");
    } else if (!qn_field_int(v, "max_new_tokens", 1, INT64_MAX, &cap, NULL, &api) ||
               !qn_params_parse(v, true, r, &p, &api)) {
        rc = qn_fail(err, QN_E_INVALID, "--override-generation-config: %s", api.message);
    } else {
        r->temperature = p.sampling.temperature;
        r->top_p = p.sampling.top_p;
        r->min_p = p.sampling.min_p;
        r->top_k = p.sampling.top_k;
        r->repetition_penalty = p.sampling.repetition_penalty;
        r->cap_new_tokens = cap;
        qn_params_done(&p);
    }
    json_decref(v);
    return rc;
}

static bool add_name(struct qn_server *s, const char *name)
{
    char **grown = realloc(s->names, (s->n_names + 1) * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    s->names = grown;
    s->names[s->n_names] = strdup(name);
    return s->names[s->n_names] != NULL && ++s->n_names > 0;
}

static bool name_model(struct qn_server *s)
{
    const struct qn_server_options *o = s->opt;
    const struct quern_model_info *i = s->info;
    bool ok = true;
    for (size_t k = 0; k < o->n_served_names; k++) {
        ok = ok && add_name(s, o->served_names[k]);
    }
    if (o->n_served_names == 0) {
        ok = add_name(s, i->name) && (strcmp(i->name, i->path) == 0 || add_name(s, i->path));
    }
    char what[512];
    int n = snprintf(what, sizeof what, "%s|%s|%s|%llu|%llu|%zu", i->name, i->architecture,
                     i->activations, (unsigned long long)i->n_params,
                     (unsigned long long)i->weight_bytes, i->max_model_len);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof what ? (size_t)n : sizeof what - 1;
    snprintf(s->fingerprint, sizeof s->fingerprint, "quern-%s-%s-%08x", quern_version(), i->isa,
             (unsigned)(qn_hash64(what, len, 1) & 0xffffffffu));
    return ok;
}

static void on_loaded(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct run *r = arg;
    struct qn_server *s = &r->s;
    drain_fd(fd);
    pthread_join(r->loader, NULL);
    r->loader_started = false;
    if (!r->load_ok) {
        static const enum qn_status codes[] = {
            [QUERN_E_INVALID] = QN_E_INVALID,
            [QUERN_E_FORMAT] = QN_E_FORMAT,
            [QUERN_E_UNSUPPORTED] = QN_E_UNSUPPORTED,
            [QUERN_E_NOT_FOUND] = QN_E_NOT_FOUND,
            [QUERN_E_IO] = QN_E_IO,
            [QUERN_E_NOMEM] = QN_E_NOMEM,
            [QUERN_E_LIMIT] = QN_E_LIMIT,
        };
        unsigned code = (unsigned)r->load_err.code;
        bool known = code < sizeof codes / sizeof codes[0] && codes[code] != QN_OK;
        stop(r, qn_fail(r->err, known ? codes[code] : QN_E_INTERNAL, "%s", r->load_err.message));
        return;
    }
    struct quern_error q = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    if (quern_tokenize(s->model, "", 0, QUERN_TOK_ADD_SPECIAL, &ids, &n, &q) == QUERN_OK) {
        s->adds_bos = n > 0;
        quern_free(ids);
    }
    model_defaults(s);
    enum qn_status rc = override_defaults(s, r->err);
    if (rc == QN_OK && !name_model(s)) {
        rc = qn_fail(r->err, QN_E_NOMEM, "could not allocate the model's names");
    }
    if (rc != QN_OK) {
        stop(r, rc);
        return;
    }
    qn_metrics_init(&s->metrics, s->rules.max_model_len);
    if (s->info->chat_template_error != NULL) {
        qn_log(QN_LOG_WARN, "chat is not available: %s", s->info->chat_template_error);
    }
    s->created = qn_clock_wall_s();
    s->phase = QN_READY;
    if (s->opt->on_ready != NULL) {
        s->opt->on_ready(s->opt->user, s->model);
    }
}

static void on_notify(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct run *r = arg;
    struct quern_request *request = NULL;
    drain_fd(fd);
    while (r->s.engine != NULL && (request = quern_engine_next(r->s.engine)) != NULL) {
        struct qn_gen *g = quern_request_user(request);
        qn_gen_ready(g, request);
        qn_gen_pump(g);
    }
}

static void on_drain_poll(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct run *r = arg;
    size_t busy = qn_http_n_busy(r->s.http);
    if (busy == 0) {
        stop(r, QN_OK);
    } else if (qn_clock_ns() >= r->drain_end_ns) {
        stop(r, qn_fail(r->err, QN_E_CANCELLED, "%zu requests were cut off by the shutdown", busy));
    }
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct run *r = arg;
    if (r->s.phase == QN_LOADING) {
        stop(r, qn_fail(r->err, QN_E_CANCELLED, "stopped while loading"));
        return;
    }
    if (r->s.phase == QN_DRAINING) {
        stop(r, qn_fail(r->err, QN_E_CANCELLED, "%zu requests were cut off by a second signal",
                        qn_http_n_busy(r->s.http)));
        return;
    }
    r->s.phase = QN_DRAINING;
    qn_http_drain(r->s.http);
    size_t busy = qn_http_n_busy(r->s.http);
    qn_log(QN_LOG_INFO, "shutting down: %zu requests run, up to %u s for them", busy,
           r->s.opt->shutdown_ms / 1000);
    r->drain_end_ns = qn_clock_ns() + r->s.opt->shutdown_ms * 1000000ull;
    struct timeval tv = {.tv_usec = DRAIN_POLL_MS * 1000};
    event_add(r->ev_drain, &tv);
    on_drain_poll(-1, 0, r);
}

static enum qn_status listen_on(struct run *r, struct qn_err *err)
{
    const struct qn_server_options *o = r->s.opt;
    char address[512];
    enum qn_status rc = QN_OK;
    if (o->uds != NULL) {
        rc = qn_http_listen_unix(r->s.http, o->uds, err);
        snprintf(address, sizeof address, "unix:%s", o->uds);
    } else {
        unsigned port = 0;
        rc = qn_http_listen_tcp(r->s.http, o->host, o->port, &port, err);
        const char *host = o->host != NULL ? o->host : "0.0.0.0";
        snprintf(address, sizeof address, strchr(host, ':') ? "http://[%s]:%u" : "http://%s:%u",
                 host, port);
    }
    if (rc == QN_OK && o->on_listening != NULL) {
        o->on_listening(o->user, address);
    }
    return rc;
}

static enum qn_status parse_kwargs(struct qn_server *s, struct qn_err *err)
{
    const char *text = s->opt->default_chat_template_kwargs;
    if (text == NULL) {
        return QN_OK;
    }
    enum qn_status rc = qn_json_parse(text, strlen(text), 64, &s->chat_kwargs, err);
    if (rc != QN_OK) {
        return qn_err_context(err, QN_E_INVALID, "--default-chat-template-kwargs");
    }
    if (!json_is_object(s->chat_kwargs)) {
        return qn_fail(err, QN_E_INVALID, "--default-chat-template-kwargs: expected a JSON object");
    }
    return QN_OK;
}

// Every open stream is a descriptor: use what the hard limit allows.
static void raise_fd_limit(void)
{
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
        rl.rlim_cur = rl.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &rl);
    }
}

static enum qn_status set_up(struct run *r, struct qn_err *err)
{
    struct qn_server *s = &r->s;
    const struct qn_server_options *o = s->opt;
    const struct qn_http_limits limits = {
        .max_head_bytes = o->max_head_bytes,
        .max_headers = o->max_headers,
        .max_body_bytes = o->max_body_bytes,
        .max_buffered_bytes = o->max_buffered_bytes,
        .max_conns = o->max_conns,
        .keep_alive_ms = o->keep_alive_ms,
        .head_ms = o->head_ms,
        .body_ms = o->body_ms,
        .write_ms = o->write_ms,
    };
    qn_rules_init(&s->rules);
    s->rules.max_n = o->max_n;
    s->rules.max_logprobs = o->max_logprobs;
    s->rules.force_usage = o->force_include_usage;
    s->rules.tokens_as_ids = o->tokens_as_token_ids;
    qn_metrics_init(&s->metrics, 0);
    r->loaded_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r->notify_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->base = event_base_new();
    if (s->base == NULL || r->loaded_fd < 0 || r->notify_fd < 0) {
        return qn_fail(err, QN_E_IO, "could not set up the event loop: %s", strerror(errno));
    }
    r->ev_loaded = event_new(s->base, r->loaded_fd, EV_READ | EV_PERSIST, on_loaded, r);
    r->ev_notify = event_new(s->base, r->notify_fd, EV_READ | EV_PERSIST, on_notify, r);
    r->ev_term = evsignal_new(s->base, SIGTERM, on_signal, r);
    r->ev_int = evsignal_new(s->base, SIGINT, on_signal, r);
    r->ev_drain = event_new(s->base, -1, EV_PERSIST, on_drain_poll, r);
    if (r->ev_loaded == NULL || r->ev_notify == NULL || r->ev_term == NULL || r->ev_int == NULL ||
        r->ev_drain == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the event loop");
    }
    event_add(r->ev_loaded, NULL);
    event_add(r->ev_notify, NULL);
    event_add(r->ev_term, NULL);
    event_add(r->ev_int, NULL);
    enum qn_status rc = parse_kwargs(s, err);
    if (rc == QN_OK) {
        rc = qn_work_new(s->base, qn_call_work, qn_call_done, &s->work, err);
    }
    if (rc == QN_OK) {
        rc = qn_http_new(s->base, &limits, &qn_route_handlers, s, &s->http, err);
    }
    if (rc == QN_OK) {
        rc = listen_on(r, err);
    }
    return rc;
}

static void tear_down(struct run *r)
{
    struct qn_server *s = &r->s;
    qn_http_free(s->http); // ends every exchange, and with it its requests
    qn_work_free(s->work);
    struct event *events[] = {r->ev_loaded, r->ev_notify, r->ev_term, r->ev_int, r->ev_drain};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i] != NULL) {
            event_free(events[i]);
        }
    }
    if (r->loader_started) {
        // A load cannot be interrupted and nothing waits for it: nothing of it may be touched any
        // more, and the process is about to end anyway.
        qn_log(QN_LOG_INFO, "stopped while loading");
        _exit(1);
    }
    quern_engine_free(s->engine);
    quern_model_free(s->model);
    if (s->base != NULL) {
        event_base_free(s->base);
    }
    if (r->loaded_fd >= 0) {
        close(r->loaded_fd);
    }
    if (r->notify_fd >= 0) {
        close(r->notify_fd);
    }
    for (size_t i = 0; i < s->n_names; i++) {
        free(s->names[i]);
    }
    free(s->names);
    json_decref(s->chat_kwargs);
}

enum qn_status qn_server_run(const struct qn_server_options *o, struct qn_err *err)
{
    struct run *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the server");
    }
    json_object_seed(0); // before threads share it
    raise_fd_limit();
    r->s.opt = o;
    r->loaded_fd = r->notify_fd = -1;
    r->err = err;
    enum qn_status rc = set_up(r, err);
    if (rc == QN_OK) {
        int failed = pthread_create(&r->loader, NULL, load, r);
        r->loader_started = failed == 0;
        if (failed != 0) {
            rc = qn_fail(err, QN_E_IO, "could not start the loading thread: %s", strerror(failed));
        }
    }
    if (rc == QN_OK) {
        event_base_loop(r->s.base, 0);
        rc = r->result;
    }
    tear_down(r);
    free(r);
    return rc;
}
