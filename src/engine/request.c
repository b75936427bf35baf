#include "engine/request.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/params.h"

/// Parts of the request's mapping, one after another. The first pass has no memory and only adds
/// up.
struct carve {
    char *base;
    size_t at;
    bool overflow;
};

static void *take(struct carve *c, size_t n, size_t size)
{
    size_t bytes, end;
    if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(c->at, bytes, &end) ||
        end > SIZE_MAX / 2) {
        c->overflow = true;
        return NULL;
    }
    void *p = c->base != NULL ? c->base + c->at : NULL;
    c->at = (end + 63) / 64 * 64;
    return p;
}

static void *take_copy(struct carve *c, const void *from, size_t n, size_t size)
{
    void *p = take(c, n, size);
    if (p != NULL && n > 0) {
        memcpy(p, from, n * size);
    }
    return p;
}

static void lay_out_seq(struct carve *c, struct quern_request *r, struct qn_seq *s, size_t choice,
                        const struct quern_sampling *p, size_t longest_stop)
{
    size_t n = r->max_tokens;
    int32_t *ids = take(c, n, sizeof *ids);
    struct quern_logprob *logprobs = NULL;
    if (p->logprobs >= 0) {
        logprobs = take(c, n * (1 + (size_t)p->logprobs), sizeof *logprobs);
    }
    void *seen = NULL;
    bool penalty = qn_sampling_has_penalty(p);
    if (penalty) {
        seen = take(c, qn_seen_bytes(r->n_prompt + n), 1);
    }
    char *tail = NULL;
    if (p->n_stop > 0) {
        tail = take(c, qn_stop_tail_bytes(longest_stop, qn_seq_piece_bytes(r->tok)), 1);
    }
    if (c->base == NULL || c->overflow) {
        return;
    }
    *s = (struct qn_seq){.request = r,
                         .choice = choice,
                         .state = choice == 0 ? QN_SEQ_WAITING : QN_SEQ_FORK,
                         .n_tokens = r->n_prompt,
                         .ids = ids,
                         .logprobs = logprobs,
                         .cut = SIZE_MAX,
                         .stop_index = SIZE_MAX,
                         .stop_id = -1};
    s->stop = (struct qn_stop){.strings = r->sampling.stop,
                               .lens = r->stop_lens,
                               .n = p->n_stop,
                               .longest = longest_stop,
                               .include = p->include_stop,
                               .tail = tail};
    if (penalty) {
        qn_seen_init(&s->seen, seen, r->n_prompt + n);
    }
    if (r->tok != NULL) {
        qn_detok_init(&s->detok, r->tok, p->skip_special_tokens);
        qn_detok_init(&s->reader_detok, r->tok, p->skip_special_tokens);
    }
}

// Place everything; with memory, also fill it. Without, `dry` stands in for the request.
static void lay_out(struct carve *c, struct quern_request *dry, const struct qn_request_env *env,
                    const struct quern_request_params *params, size_t max_tokens)
{
    const struct quern_sampling *p = &params->sampling;
    struct quern_request *r = take(c, 1, sizeof *r);
    if (r == NULL) {
        r = dry;
    }
    memset(r, 0, sizeof *r);
    r->n_prompt = params->n_prompt;
    r->n_choices = params->n;
    r->max_tokens = max_tokens;
    r->user = params->user;
    r->tok = env->tok;
    r->sampling = *p;
    r->prompt = take_copy(c, params->prompt, params->n_prompt, sizeof *params->prompt);
    r->sampling.stop_ids = take_copy(c, p->stop_ids, p->n_stop_ids, sizeof *p->stop_ids);
    r->sampling.bias_ids = take_copy(c, p->bias_ids, p->n_bias, sizeof *p->bias_ids);
    r->sampling.bias = take_copy(c, p->bias, p->n_bias, sizeof *p->bias);
    r->sampling.allowed_ids = take_copy(c, p->allowed_ids, p->n_allowed, sizeof *p->allowed_ids);
    const char **stop = take(c, p->n_stop, sizeof *stop);
    r->sampling.stop = stop;
    r->stop_lens = take(c, p->n_stop, sizeof *r->stop_lens);
    size_t longest = 0;
    for (size_t i = 0; i < p->n_stop; i++) {
        size_t n = strlen(p->stop[i]);
        longest = n > longest ? n : longest;
        const char *copy = take_copy(c, p->stop[i], n + 1, 1);
        if (c->base != NULL && !c->overflow) {
            stop[i] = copy;
            r->stop_lens[i] = n;
        }
    }
    if (p->prompt_logprobs >= 0) {
        r->prompt_logprobs = take(c, params->n_prompt * (1 + (size_t)p->prompt_logprobs),
                                  sizeof *r->prompt_logprobs);
    }
    r->seqs = take(c, params->n, sizeof *r->seqs);
    for (size_t i = 0; i < params->n; i++) {
        lay_out_seq(c, r, c->base != NULL ? &r->seqs[i] : NULL, i, p, longest);
    }
}

enum quern_status qn_request_new(const struct qn_request_env *env,
                                 const struct quern_request_params *params, uint64_t default_seed,
                                 struct quern_request **out_request, struct quern_error *err)
{
    size_t max_tokens = 0;
    enum quern_status rc = qn_params_check(env, params, &max_tokens, err);
    if (rc != QUERN_OK) {
        return rc;
    }
    struct carve size = {0};
    struct quern_request dry;
    lay_out(&size, &dry, env, params, max_tokens);
    char *memory = size.overflow ? NULL : qn_pages_alloc(size.at, QN_MEM_REQUEST);
    if (memory == NULL) {
        return qn_params_fail(err, QUERN_E_NOMEM, "", "could not reserve %zu bytes for a request",
                              size.at);
    }
    // Most of it is never touched: whole huge pages would cost far more than the answer needs.
    (void)madvise(memory, size.at, MADV_NOHUGEPAGE);
    struct carve carve = {.base = memory};
    struct quern_request *r = (struct quern_request *)(void *)memory; // the first thing placed
    lay_out(&carve, &dry, env, params, max_tokens);
    QN_ASSERT(carve.at == size.at);
    r->n_bytes = size.at;
    r->seed = params->sampling.has_seed ? params->sampling.seed : default_seed;
    r->arrival_ns = qn_clock_ns();
    atomic_init(&r->refs, 2); // the submitter and the engine
    atomic_init(&r->n_live, params->n);
    if (r->prompt_logprobs != NULL) {
        size_t k = 1 + (size_t)params->sampling.prompt_logprobs;
        for (size_t i = 0; i < k; i++) {
            r->prompt_logprobs[i] = (struct quern_logprob){.id = -1};
        }
    }
    for (size_t i = 0; i < r->n_choices && r->seqs[0].seen.n_slots > 0; i++) {
        for (size_t j = 0; j < r->n_prompt; j++) {
            qn_seen_add(&r->seqs[i].seen, r->prompt[j], false);
        }
    }
    *out_request = r;
    return QUERN_OK;
}

void qn_request_unref(struct quern_request *r)
{
    // Release what this owner did; acquire what the others did before the memory goes.
    if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; i < r->n_choices; i++) {
        qn_buf_done(&r->seqs[i].text);
        qn_buf_done(&r->seqs[i].text_end);
    }
    qn_pages_free(r, r->n_bytes, QN_MEM_REQUEST);
}

size_t qn_seq_piece_bytes(const struct qn_tok *tok)
{
    return tok != NULL ? qn_detok_max_out(tok) : 0;
}

static bool contains(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

static void publish(struct qn_seq *s, enum quern_finish finish)
{
    uint64_t n = s->n_tokens - s->request->n_prompt;
    // Release; partner: quern_request_read.
    atomic_store_explicit(&s->progress, n << 3 | (uint64_t)finish, memory_order_release);
}

enum quern_finish qn_seq_append(struct qn_seq *s, int32_t id, const int32_t *eos_ids,
                                size_t n_eos_ids, char *piece)
{
    const struct quern_request *r = s->request;
    const struct quern_sampling *p = &r->sampling;
    size_t n = s->n_tokens - r->n_prompt;
    s->ids[n++] = id;
    s->n_tokens++;
    if (s->seen.n_slots > 0) {
        qn_seen_add(&s->seen, id, true);
    }
    enum quern_finish finish = QUERN_FINISH_NONE;
    bool eos = !p->ignore_eos && contains(eos_ids, n_eos_ids, id);
    if (eos || contains(p->stop_ids, p->n_stop_ids, id)) {
        s->stop_id = id;
        s->stop_was_eos = eos;
        finish = QUERN_FINISH_STOP;
    } else if (p->n_stop > 0) {
        size_t len = qn_detok_push(&s->detok, id, piece), safe = 0;
        if (qn_stop_push(&s->stop, piece, len, n > p->min_tokens, &s->stop_index, &s->cut, &safe)) {
            finish = QUERN_FINISH_STOP;
            safe = s->cut;
        }
        // Relaxed: published by the progress word.
        atomic_store_explicit(&s->released, safe, memory_order_relaxed);
    }
    if (finish == QUERN_FINISH_NONE && n == r->max_tokens) {
        finish = QUERN_FINISH_LENGTH;
    }
    if (finish == QUERN_FINISH_NONE) {
        publish(s, finish);
    }
    return finish;
}

void qn_seq_finish(struct qn_seq *s, enum quern_finish finish, const char *error)
{
    s->state = QN_SEQ_DONE;
    s->error = error;
    publish(s, finish);
    atomic_fetch_sub_explicit(&s->request->n_live, 1, memory_order_release);
}
