// The reader's side of a request: text is made from ids here, on the reader's thread, so that the
// engine only decodes what it must search for stop strings.
#include "engine/request.h"

#include <string.h>

#include "base/status.h"

static const char no_memory[] = "could not allocate the text of the answer";

// Text of tokens [n_decoded, n) of the log.
static bool decode(struct qn_seq *s, size_t n, enum quern_finish finish)
{
    const struct quern_request *r = s->request;
    for (size_t i = s->n_decoded; i < n; i++) {
        // The token that ended the answer is no part of its text.
        bool hidden = finish == QUERN_FINISH_STOP && i + 1 == n && s->stop_id >= 0 &&
                      !r->sampling.include_stop;
        if (r->tok != NULL && !hidden) {
            if (!qn_buf_reserve(&s->text, qn_detok_max_out(r->tok))) {
                return false;
            }
            s->text.len += qn_detok_push(&s->reader_detok, s->ids[i], s->text.data + s->text.len);
        }
        size_t end = s->text.len;
        if (i + 1 == n && finish != QUERN_FINISH_NONE) {
            break; // its end is known after the flush
        }
        if (!qn_buf_add(&s->text_end, &end, sizeof end)) {
            return false;
        }
    }
    if (finish == QUERN_FINISH_NONE) {
        return true;
    }
    if (r->tok != NULL && s->cut == SIZE_MAX) {
        if (!qn_buf_reserve(&s->text, qn_detok_max_out(r->tok))) {
            return false;
        }
        s->text.len += qn_detok_finish(&s->reader_detok, s->text.data + s->text.len);
    }
    size_t end = s->text.len;
    return n == s->n_decoded || qn_buf_add(&s->text_end, &end, sizeof end);
}

static bool read_seq(struct qn_seq *s, struct quern_delta *out)
{
    const struct quern_request *r = s->request;
    if (s->finish_sent) {
        return false;
    }
    // Acquire; partner: publish() in request.c. `released` may be newer, which does no harm.
    uint64_t progress = atomic_load_explicit(&s->progress, memory_order_acquire);
    size_t n = (size_t)(progress >> 3);
    enum quern_finish finish = (enum quern_finish)(progress & 7);
    size_t first = s->n_read, k = 1 + (size_t)(r->sampling.logprobs < 0 ? 0 : r->sampling.logprobs);
    if (n == first && finish == QUERN_FINISH_NONE) {
        return false;
    }
    *out = (struct quern_delta){.choice = s->choice, .text = "", .finish = finish, .stop_id = -1};
    if (!decode(s, n, finish)) {
        out->finish = QUERN_FINISH_ERROR;
        out->error = no_memory;
        s->finish_sent = true;
        return true;
    }
    s->n_decoded = n;
    size_t limit = s->text.len;
    size_t *ends = (size_t *)(void *)s->text_end.data;
    if (finish != QUERN_FINISH_NONE) {
        limit = s->cut < limit ? s->cut : limit;
        for (size_t i = first; i < n; i++) {
            ends[i] = ends[i] < limit ? ends[i] : limit;
        }
    } else if (r->sampling.n_stop > 0) {
        // Text that may become a stop string is held, and its tokens with it.
        size_t released = atomic_load_explicit(&s->released, memory_order_relaxed);
        limit = released < limit ? released : limit;
        while (n > first && ends[n - 1] > limit) {
            n--;
        }
        if (n == first && limit <= s->n_sent) {
            return false;
        }
    }
    s->n_read = n;
    if (limit > s->n_sent) {
        out->text = s->text.data + s->n_sent;
        out->n_text = limit - s->n_sent;
        s->n_sent = limit;
    }
    if (n > first) {
        out->ids = s->ids + first;
        out->n_ids = n - first;
        out->logprobs = s->logprobs != NULL ? s->logprobs + first * k : NULL;
        out->text_end = ends + first;
    }
    if (finish != QUERN_FINISH_NONE) {
        s->finish_sent = true;
        out->stop_id = s->stop_id;
        out->stop_was_eos = s->stop_was_eos;
        out->stop_string = s->stop_index != SIZE_MAX ? r->sampling.stop[s->stop_index] : NULL;
        out->error = s->error;
    }
    return true;
}

bool quern_request_read(struct quern_request *r, struct quern_delta *out)
{
    for (size_t i = 0; i < r->n_choices; i++) {
        size_t at = (r->cursor + i) % r->n_choices;
        if (read_seq(&r->seqs[at], out)) {
            r->cursor = at + 1; // the others' turn
            return true;
        }
    }
    return false;
}

bool quern_request_finished(const struct quern_request *r)
{
    for (size_t i = 0; i < r->n_choices; i++) {
        if (!r->seqs[i].finish_sent) {
            return false;
        }
    }
    return true;
}

void *quern_request_user(const struct quern_request *r)
{
    return r->user;
}

const struct quern_logprob *quern_request_prompt_logprobs(const struct quern_request *r)
{
    bool done = atomic_load_explicit(&r->prompt_done, memory_order_acquire);
    return done ? r->prompt_logprobs : NULL;
}

static double seconds(uint64_t from_ns, const _Atomic uint64_t *to)
{
    uint64_t to_ns = atomic_load_explicit(to, memory_order_relaxed);
    return from_ns == 0 || to_ns <= from_ns ? 0 : (double)(to_ns - from_ns) * 1e-9;
}

void quern_request_usage(const struct quern_request *r, struct quern_usage *out)
{
    *out = (struct quern_usage){.prompt_tokens = r->n_prompt};
    for (size_t i = 0; i < r->n_choices; i++) {
        out->completion_tokens +=
            (size_t)(atomic_load_explicit(&r->seqs[i].progress, memory_order_acquire) >> 3);
    }
    uint64_t first = atomic_load_explicit(&r->first_token_ns, memory_order_relaxed);
    out->queue_s = seconds(r->arrival_ns, &r->first_scheduled_ns);
    out->ttft_s = seconds(r->arrival_ns, &r->first_token_ns);
    out->decode_s = seconds(first, &r->last_token_ns);
    out->e2e_s = seconds(r->arrival_ns, &r->finished_ns);
}
