#include <stdlib.h>

#include "server/gen.h"
#include "server/jsonw.h"

// Answers are written as text: the members and their order are part of the interface.

static const char *finish_name(enum quern_finish f)
{
    switch (f) {
    case QUERN_FINISH_STOP:
        return "stop";
    case QUERN_FINISH_LENGTH:
        return "length";
    case QUERN_FINISH_ABORT:
    case QUERN_FINISH_ERROR:
        return "abort";
    case QUERN_FINISH_NONE:
        break;
    }
    return NULL;
}

static void write_ids(const int32_t *ids, size_t n, struct qn_buf *out)
{
    qn_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        qn_buf_printf(out, i > 0 ? ",%d" : "%d", (int)ids[i]);
    }
    qn_buf_putc(out, ']');
}

static void write_opening(const struct qn_gen *g, const char *object, struct qn_buf *out)
{
    const struct qn_server *s = g->call->server;
    qn_buf_puts(out, "{\"id\":");
    qn_jw_cstr(out, g->id);
    qn_buf_printf(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
                  (long long)g->created);
    qn_jw_cstr(out, s->names[0]);
    qn_buf_puts(out, ",\"choices\":[");
}

static const char *chunk_object(const struct qn_gen *g)
{
    return g->chat ? "chat.completion.chunk" : "text_completion";
}

// Counts what the client was told, the chunk of `now` included; with `all`, everything.
static void write_usage(const struct qn_gen *g, const struct qn_gen_choice *now, bool all,
                        struct qn_buf *out)
{
    size_t prompt = 0, completion = 0, cached = 0;
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct quern_usage u = {0};
        quern_request_usage(g->prompts[i].request, &u);
        prompt += g->prompts[i].n_ids;
        cached += u.cached_tokens;
    }
    for (size_t i = 0; i < g->n_prompts * g->p.best_of; i++) {
        const struct qn_gen_choice *c = &g->choices[i];
        completion += c->n_tokens - (all || c == now ? 0 : c->n_pending);
    }
    qn_buf_printf(out,
                  "{\"prompt_tokens\":%zu,\"total_tokens\":%zu,\"completion_tokens\":%zu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}",
                  prompt, prompt + completion, completion, cached);
}

// finish_reason and stop_reason; the latter only names what a request asked to stop at.
static void write_finish(const struct qn_gen_choice *c, struct qn_buf *out)
{
    qn_buf_puts(out, ",\"finish_reason\":");
    qn_jw_cstr(out, finish_name(c->finish));
    qn_buf_puts(out, ",\"stop_reason\":");
    if (c->stop_string != NULL) {
        qn_jw_cstr(out, c->stop_string);
    } else if (c->finish == QUERN_FINISH_STOP && c->stop_id >= 0 && !c->stop_was_eos) {
        qn_buf_printf(out, "%d", (int)c->stop_id);
    } else {
        qn_buf_puts(out, "null");
    }
}

static void write_text(const struct qn_gen_choice *c, const char *before, size_t n_before,
                       struct qn_buf *out)
{
    struct qn_buf joined = {0};
    const char *text = c->text.data != NULL ? c->text.data : "";
    if (n_before == 0) {
        qn_jw_str(out, text, c->text.len);
        return;
    }
    qn_buf_add(&joined, before, n_before);
    qn_buf_add(&joined, text, c->text.len);
    qn_jw_str(out, joined.data, joined.len);
    out->failed = out->failed || joined.failed;
    qn_buf_done(&joined);
}

static void write_logprobs(const struct qn_gen *g, const struct qn_gen_prompt *p,
                           const struct qn_gen_choice *c, bool with_prompt, struct qn_buf *out)
{
    qn_buf_puts(out, ",\"logprobs\":");
    if (g->p.sampling.logprobs < 0) {
        qn_buf_puts(out, "null");
    } else if (g->chat) {
        qn_logprobs_chat(g, c, out);
    } else {
        qn_logprobs_completions(g, p, c, with_prompt, out);
    }
}

static void write_choice(const struct qn_gen *g, size_t index, const struct qn_gen_prompt *p,
                         const struct qn_gen_choice *c, struct qn_buf *out)
{
    qn_buf_printf(out, "{\"index\":%zu", index);
    if (g->chat) {
        qn_buf_puts(out, ",\"message\":{\"role\":");
        qn_jw_cstr(out, g->role);
        qn_buf_puts(out, ",\"content\":");
        write_text(c, g->echo, g->n_echo, out);
        qn_buf_puts(out, ",\"reasoning\":null,\"refusal\":null,\"annotations\":null,"
                         "\"audio\":null,\"function_call\":null}");
    } else {
        qn_buf_puts(out, ",\"text\":");
        write_text(c, p->text, g->p.echo ? p->n_text : 0, out);
    }
    write_logprobs(g, p, c, g->p.echo, out);
    write_finish(c, out);
    if (!g->chat) {
        qn_buf_puts(out, ",\"prompt_logprobs\":");
        qn_logprobs_prompt(g, p, out);
    }
    qn_buf_puts(out, ",\"token_ids\":");
    if (g->p.return_token_ids) {
        write_ids(c->ids, c->n_ids, out);
    } else {
        qn_buf_puts(out, "null");
    }
    if (!g->chat) {
        qn_buf_puts(out, ",\"prompt_token_ids\":");
        if (g->p.return_token_ids) {
            write_ids(p->ids, p->n_ids, out);
        } else {
            qn_buf_puts(out, "null");
        }
    }
    qn_buf_putc(out, '}');
}

static double mean_logprob(const struct qn_gen_choice *c)
{
    return c->n_tokens > 0 ? c->sum_logprob / (double)c->n_tokens : 0;
}

// The n best of a prompt's choices by mean logprob; all of them, in order, without best_of.
static void pick(const struct qn_gen *g, size_t prompt, size_t *out)
{
    const struct qn_gen_choice *c = g->choices + prompt * g->p.best_of;
    for (size_t i = 0; i < g->p.n; i++) {
        out[i] = i;
    }
    if (g->p.best_of == g->p.n) {
        return;
    }
    for (size_t i = 0; i < g->p.n; i++) {
        size_t best = SIZE_MAX;
        for (size_t j = 0; j < g->p.best_of; j++) {
            bool taken = false;
            for (size_t t = 0; t < i; t++) {
                taken = taken || out[t] == j;
            }
            if (!taken && (best == SIZE_MAX || mean_logprob(&c[j]) > mean_logprob(&c[best]))) {
                best = j;
            }
        }
        out[i] = best;
    }
}

void qn_respond_whole(const struct qn_gen *g, struct qn_buf *out)
{
    write_opening(g, g->chat ? "chat.completion" : "text_completion", out);
    size_t *order = calloc(g->p.n, sizeof *order);
    if (order == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < g->n_prompts; i++) {
        pick(g, i, order);
        for (size_t j = 0; j < g->p.n; j++) {
            qn_buf_puts(out, i + j > 0 ? "," : "");
            write_choice(g, i * g->p.n + j, &g->prompts[i],
                         &g->choices[i * g->p.best_of + order[j]], out);
        }
    }
    free(order);
    qn_buf_puts(out, "],\"usage\":");
    write_usage(g, NULL, true, out);
    qn_buf_puts(out, ",\"service_tier\":null,\"system_fingerprint\":");
    qn_jw_cstr(out, g->call->server->fingerprint);
    if (g->chat) {
        qn_buf_puts(out, ",\"prompt_logprobs\":");
        qn_logprobs_prompt(g, &g->prompts[0], out);
        qn_buf_puts(out, ",\"prompt_token_ids\":");
        if (g->p.return_token_ids) {
            write_ids(g->prompts[0].ids, g->prompts[0].n_ids, out);
        } else {
            qn_buf_puts(out, "null");
        }
    }
    qn_buf_puts(out, ",\"kv_transfer_params\":null}");
}

// What follows the choices of a chunk.
static void close_chunk(const struct qn_gen *g, const struct qn_gen_choice *now, bool last,
                        struct qn_buf *out)
{
    qn_buf_putc(out, ']');
    if (g->chat && !g->first_chunk_sent && g->p.return_token_ids) {
        qn_buf_puts(out, ",\"prompt_token_ids\":");
        write_ids(g->prompts[0].ids, g->prompts[0].n_ids, out);
    }
    if (g->p.continuous_usage) {
        qn_buf_puts(out, ",\"usage\":");
        write_usage(g, now, false, out);
    } else if (!g->chat || g->p.include_usage) {
        qn_buf_puts(out, ",\"usage\":null");
    }
    if (last && !g->p.include_usage) {
        qn_buf_puts(out, ",\"system_fingerprint\":");
        qn_jw_cstr(out, g->call->server->fingerprint);
    }
    qn_buf_putc(out, '}');
}

void qn_respond_open(const struct qn_gen *g, size_t index, bool echo, struct qn_buf *out)
{
    write_opening(g, chunk_object(g), out);
    qn_buf_printf(out, "{\"index\":%zu,\"delta\":{", index);
    if (echo) {
        qn_buf_puts(out, "\"content\":");
        qn_jw_str(out, g->echo, g->n_echo);
    } else {
        qn_buf_puts(out, "\"role\":");
        qn_jw_cstr(out, g->role);
        qn_buf_puts(out, ",\"content\":\"\"");
    }
    qn_buf_puts(out, "},\"logprobs\":null,\"finish_reason\":null}");
    close_chunk(g, NULL, false, out);
}

void qn_respond_chunk(const struct qn_gen *g, size_t index, bool last, struct qn_buf *out)
{
    const struct qn_gen_choice *c = &g->choices[index];
    const struct qn_gen_prompt *p = &g->prompts[index / g->p.best_of];
    bool done = c->finish != QUERN_FINISH_NONE;
    bool first = !c->opened;
    write_opening(g, chunk_object(g), out);
    qn_buf_printf(out, "{\"index\":%zu", index);
    if (g->chat) {
        qn_buf_puts(out, ",\"delta\":{\"content\":");
        write_text(c, NULL, 0, out);
        qn_buf_putc(out, '}');
    } else {
        qn_buf_puts(out, ",\"text\":");
        write_text(c, p->text, g->p.echo && first ? p->n_text : 0, out);
    }
    write_logprobs(g, p, c, g->p.echo && first, out);
    if (done || !g->chat) {
        write_finish(c, out);
    } else {
        qn_buf_puts(out, ",\"finish_reason\":null");
    }
    if (g->p.return_token_ids) {
        if (!g->chat && first) {
            qn_buf_puts(out, ",\"prompt_token_ids\":");
            write_ids(p->ids, p->n_ids, out);
        }
        qn_buf_puts(out, ",\"token_ids\":");
        write_ids(c->ids, c->n_ids, out);
    } else if (!g->chat) {
        qn_buf_puts(out, ",\"prompt_token_ids\":null,\"token_ids\":null");
    }
    qn_buf_putc(out, '}');
    close_chunk(g, c, last, out);
}

void qn_respond_usage_chunk(const struct qn_gen *g, struct qn_buf *out)
{
    write_opening(g, chunk_object(g), out);
    qn_buf_puts(out, "],\"usage\":");
    write_usage(g, NULL, true, out);
    qn_buf_puts(out, ",\"system_fingerprint\":");
    qn_jw_cstr(out, g->call->server->fingerprint);
    qn_buf_putc(out, '}');
}
