#include "server/gen.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/sse.h"

struct qn_gen *qn_gen_new(struct qn_call *call, bool chat, struct qn_params *p, size_t n_prompts)
{
    struct qn_gen *g = calloc(1, sizeof *g);
    if (g == NULL) {
        qn_params_done(p);
        qn_api_fail(&call->err, 503, NULL, NULL, "could not allocate the request");
        return NULL;
    }
    g->call = call;
    g->chat = chat;
    g->p = *p;
    *p = (struct qn_params){0};
    g->n_prompts = n_prompts;
    g->created = qn_clock_wall_s();
    g->prompts = calloc(n_prompts, sizeof *g->prompts);
    g->choices = calloc(n_prompts * g->p.best_of, sizeof *g->choices);
    const struct quern_sampling *s = &g->p.sampling;
    g->prompt_k = s->prompt_logprobs;
    if (!chat && g->p.echo && s->logprobs > g->prompt_k) {
        g->prompt_k = s->logprobs;
    }
    g->output_k = g->p.best_of > g->p.n && s->logprobs < 0 ? 0 : s->logprobs;
    if (g->prompts == NULL || g->choices == NULL) {
        qn_gen_free(g);
        qn_api_fail(&call->err, 503, NULL, NULL, "could not allocate the request");
        return NULL;
    }
    if (!call->id_from_header && g->p.request_id != NULL && g->p.request_id[0] != '\0') {
        snprintf(call->id, sizeof call->id, "%.128s", g->p.request_id);
    }
    snprintf(g->id, sizeof g->id, "%s-%s", chat ? "chatcmpl" : "cmpl", call->id);
    return g;
}

void qn_gen_free(struct qn_gen *g)
{
    if (g == NULL) {
        return;
    }
    for (size_t i = 0; g->prompts != NULL && i < g->n_prompts; i++) {
        if (g->prompts[i].request != NULL) {
            quern_request_free(g->call->server->engine, g->prompts[i].request);
        }
        free(g->prompts[i].ids);
        free(g->prompts[i].text);
    }
    for (size_t i = 0; g->choices != NULL && i < g->n_prompts * g->p.best_of; i++) {
        struct qn_gen_choice *c = &g->choices[i];
        qn_buf_done(&c->text);
        free(c->ids);
        free(c->rows);
        free(c->ends);
        free(c->stop_string);
    }
    if (g->ping != NULL) {
        event_free(g->ping);
    }
    free(g->prompts);
    free(g->choices);
    free(g->echo);
    qn_params_done(&g->p);
    free(g);
}

bool qn_gen_fit(struct qn_gen *g, struct qn_gen_prompt *prompt, const char *param,
                struct qn_api_error *err)
{
    const struct qn_params *p = &g->p;
    size_t limit = g->call->server->rules.max_model_len;
    if (p->has_truncate) {
        size_t output = p->has_max_tokens && p->max_tokens > 0 ? (size_t)p->max_tokens : 1;
        size_t keep = p->truncate >= 0 ? (size_t)p->truncate : output < limit ? limit - output : 1;
        if (prompt->n_ids > keep) {
            if (p->truncate_left) {
                memmove(prompt->ids, prompt->ids + (prompt->n_ids - keep),
                        keep * sizeof *prompt->ids);
            }
            prompt->n_ids = keep;
        }
    }
    if (prompt->n_ids == 0) {
        return qn_api_fail(err, 400, NULL, param, "%s: found no tokens, expected at least one",
                           param);
    }
    bool nothing = p->has_max_tokens && p->max_tokens == 0;
    if (prompt->n_ids > limit || (!nothing && prompt->n_ids == limit)) {
        unsigned long long output = p->has_max_tokens ? (unsigned long long)p->max_tokens : 0;
        return qn_api_fail(
            err, 400, "context_length_exceeded", "input_tokens",
            "This model's maximum context length is %zu tokens. However, you requested %llu output "
            "tokens and your prompt contains %zu input tokens, for a total of %llu tokens. Shorten "
            "the prompt or ask for fewer output tokens.",
            limit, output, prompt->n_ids, output + prompt->n_ids);
    }
    size_t room = limit - prompt->n_ids;
    prompt->max_tokens =
        p->has_max_tokens && (uint64_t)p->max_tokens < room ? (size_t)p->max_tokens : room;
    return true;
}

static void on_ping(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct qn_gen *g = arg;
    if (qn_http_is_drained(g->call->conn)) {
        qn_sse_open(g);
        qn_http_stream_send(g->call->conn, ": ping\n\n", 8);
    }
}

static void start_ping(struct qn_gen *g)
{
    const struct qn_server *s = g->call->server;
    if (!g->p.stream || s->opt->sse_ping_s == 0) {
        return;
    }
    if (g->ping == NULL) {
        g->ping = event_new(s->base, -1, EV_PERSIST, on_ping, g);
    }
    struct timeval tv = {.tv_sec = (time_t)s->opt->sse_ping_s};
    if (g->ping != NULL) {
        event_add(g->ping, &tv); // put off by every event that is sent
    }
}

void qn_gen_start(struct qn_gen *g)
{
    struct qn_call *call = g->call;
    struct qn_server *s = call->server;
    qn_http_abort_on_eof(call->conn);
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct qn_gen_prompt *prompt = &g->prompts[i];
        struct quern_request_params params = {
            .prompt = prompt->ids,
            .n_prompt = prompt->n_ids,
            .n = g->p.best_of,
            .priority = g->p.priority,
            .sampling = g->p.sampling,
            .user = g,
        };
        struct quern_sampling *sampling = &params.sampling;
        sampling->max_tokens = prompt->max_tokens;
        if (sampling->min_tokens > sampling->max_tokens) {
            sampling->min_tokens = sampling->max_tokens;
        }
        sampling->logprobs = g->output_k;
        sampling->prompt_logprobs = g->prompt_k;
        struct quern_error err = {0};
        if (quern_engine_submit(s->engine, &params, &prompt->request, &err) != QUERN_OK) {
            prompt->request = NULL;
            qn_api_fail_quern(&call->err, &err, NULL);
            qn_call_fail(call); // frees g, and with it the prompts already handed over
            return;
        }
        qn_metrics_hist(&s->metrics.n_choices, (double)g->p.n);
        qn_metrics_hist(&s->metrics.max_tokens, (double)prompt->max_tokens);
    }
    start_ping(g);
}

void qn_gen_ready(struct qn_gen *g, const struct quern_request *request)
{
    for (size_t i = 0; i < g->n_prompts; i++) {
        if (g->prompts[i].request == request) {
            g->prompts[i].ready = true;
            return;
        }
    }
}

static bool reserve_ids(const struct qn_gen *g, struct qn_gen_choice *c, size_t extra)
{
    size_t need = c->n_ids + extra, row = 1 + (size_t)(g->output_k > 0 ? g->output_k : 0);
    if (need <= c->cap_ids) {
        return true;
    }
    size_t cap = c->cap_ids * 2 > need ? c->cap_ids * 2 : need + 16;
    int32_t *ids = realloc(c->ids, cap * sizeof *ids);
    c->ids = ids != NULL ? ids : c->ids;
    size_t *ends = realloc(c->ends, cap * sizeof *ends);
    c->ends = ends != NULL ? ends : c->ends;
    struct quern_logprob *rows = NULL;
    if (g->p.sampling.logprobs >= 0) {
        rows = realloc(c->rows, cap * row * sizeof *rows);
        c->rows = rows != NULL ? rows : c->rows;
    }
    if (ids == NULL || ends == NULL || (g->p.sampling.logprobs >= 0 && rows == NULL)) {
        return false;
    }
    c->cap_ids = cap;
    return true;
}

// Take over what the engine tells of a choice.
static bool absorb(const struct qn_gen *g, struct qn_gen_choice *c, const struct quern_delta *d)
{
    size_t row = 1 + (size_t)(g->output_k > 0 ? g->output_k : 0);
    c->n_tokens += d->n_ids;
    c->n_pending += d->n_ids;
    if (g->p.best_of > g->p.n && d->logprobs != NULL) {
        for (size_t i = 0; i < d->n_ids; i++) {
            c->sum_logprob += (double)d->logprobs[i * row].logprob;
        }
    }
    bool want_rows = g->p.sampling.logprobs >= 0;
    if ((g->p.return_token_ids || want_rows) && d->n_ids > 0) {
        if (!reserve_ids(g, c, d->n_ids) || (want_rows && d->logprobs == NULL)) {
            return false;
        }
        memcpy(c->ids + c->n_ids, d->ids, d->n_ids * sizeof *d->ids);
        for (size_t i = 0; i < d->n_ids; i++) {
            c->ends[c->n_ids + i] = d->text_end != NULL ? d->text_end[i] : 0;
        }
        if (want_rows) {
            memcpy(c->rows + c->n_ids * row, d->logprobs, d->n_ids * row * sizeof *d->logprobs);
        }
        c->n_ids += d->n_ids;
    }
    if (d->finish != QUERN_FINISH_NONE) {
        c->finish = d->finish;
        c->stop_id = d->stop_id;
        c->stop_was_eos = d->stop_was_eos;
        if (d->stop_string != NULL && (c->stop_string = strdup(d->stop_string)) == NULL) {
            return false;
        }
    }
    return d->n_text == 0 || qn_buf_add(&c->text, d->text, d->n_text);
}

// Everything pending of the choice was told.
static void settle(struct qn_gen_choice *c)
{
    if (c->n_ids > 0) {
        c->last_end = c->ends[c->n_ids - 1];
    }
    if (c->text.len > 0) {
        c->told_chars += qn_utf8_count(c->text.data, c->text.len);
        c->told_bytes += c->text.len;
    }
    qn_buf_clear(&c->text);
    c->n_ids = 0;
    c->n_pending = 0;
    c->opened = true;
}

// A failure after submission: an HTTP error as long as none of the answer is out.
static void fail_gen(struct qn_gen *g, const char *message)
{
    struct qn_call *call = g->call;
    const char *code = strstr(message, "nonfinite") != NULL ? "nonfinite_logits" : NULL;
    qn_api_fail(&call->err, 500, code, NULL, "%s", message);
    if (g->head_sent) {
        qn_sse_fail(g);
    } else {
        qn_call_fail(call);
    }
}

static bool worth_telling(const struct qn_gen *g, const struct qn_gen_choice *c)
{
    bool done = c->finish != QUERN_FINISH_NONE;
    bool tokens = c->n_ids > 0; // kept only when the client asked for them
    if (!done && c->text.len == 0 && !tokens) {
        return false;
    }
    return done || !c->opened || c->n_pending >= g->p.stream_interval;
}

static void tell(struct qn_gen *g, size_t index, bool last)
{
    struct qn_gen_choice *c = &g->choices[index];
    if (!worth_telling(g, c)) {
        return;
    }
    qn_sse_open(g);
    struct qn_buf json = {0};
    if (g->chat && !c->opened) {
        qn_respond_open(g, index, false, &json);
        qn_sse_send(g, &json);
        g->first_chunk_sent = true;
        if (g->n_echo > 0) {
            qn_buf_clear(&json);
            qn_respond_open(g, index, true, &json);
            qn_sse_send(g, &json);
        }
        qn_buf_clear(&json);
    }
    qn_respond_chunk(g, index, last, &json);
    qn_sse_send(g, &json);
    qn_buf_done(&json);
    g->first_chunk_sent = true;
    settle(c);
    start_ping(g);
}

static void complete(struct qn_gen *g)
{
    struct qn_call *call = g->call;
    struct qn_buf json = {0};
    if (!g->p.stream) {
        qn_respond_whole(g, &json);
        qn_call_reply_json(call, &json); // frees g
        qn_buf_done(&json);
        return;
    }
    if (g->p.include_usage) {
        qn_respond_usage_chunk(g, &json);
        qn_sse_send(g, &json);
    }
    qn_buf_done(&json);
    qn_sse_close(g);
}

static void prompt_finished(struct qn_gen *g, const struct qn_gen_prompt *p)
{
    struct qn_metrics *m = &g->call->server->metrics;
    struct quern_usage u = {0};
    size_t longest = 0, first = (size_t)(p - g->prompts) * g->p.best_of;
    quern_request_usage(p->request, &u);
    for (size_t i = 0; i < g->p.best_of; i++) {
        size_t n = g->choices[first + i].n_tokens;
        longest = n > longest ? n : longest;
    }
    size_t cached = u.cached_tokens < p->n_ids ? u.cached_tokens : p->n_ids;
    m->cached_tokens += cached;
    m->computed_tokens += p->n_ids - cached;
    qn_metrics_hist(&m->max_generated, (double)longest);
    qn_metrics_hist(&m->prefill_computed, (double)(p->n_ids - cached));
    g->n_done++;
}

void qn_gen_pump(struct qn_gen *g)
{
    struct qn_http_conn *conn = g->call->conn;
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct qn_gen_prompt *p = &g->prompts[i];
        struct quern_delta d = {0};
        while (p->ready && p->n_finished < g->p.best_of) {
            // A client that does not keep up leaves the news with the engine, where it is merged.
            if (g->p.stream && !qn_http_is_drained(conn)) {
                return;
            }
            if (!quern_request_read(p->request, &d)) {
                break;
            }
            size_t index = i * g->p.best_of + d.choice;
            QN_ASSERT(d.choice < g->p.best_of);
            if (d.finish == QUERN_FINISH_ERROR) {
                fail_gen(g, d.error != NULL ? d.error : "the engine could not go on");
                return;
            }
            if (!absorb(g, &g->choices[index], &d)) {
                fail_gen(g, "could not allocate memory for the answer");
                return;
            }
            if (d.finish != QUERN_FINISH_NONE && ++p->n_finished == g->p.best_of) {
                prompt_finished(g, p);
            }
            if (g->p.stream) {
                tell(g, index, g->n_done == g->n_prompts);
            }
        }
        p->ready = false;
    }
    if (g->n_done == g->n_prompts) {
        complete(g);
    }
}
