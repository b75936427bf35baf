#include "engine/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/team.h"
#include "engine/params.h"
#include "engine/ready.h"
#include "engine/sampler.h"
#include "engine/sched.h"
#include "engine/stats.h"

enum {
    DEFAULT_SEQS = 32,
    DEFAULT_BATCHED_TOKENS = 512,
    DEFAULT_WAITING = 1024,
    DEFAULT_BLOCK_TOKENS = 16,
    MAX_SEQS = 4096,
    MAX_BATCHED_TOKENS = 1 << 16
};

/// One row of logits to look at after the forward pass.
struct job {
    struct qn_sched_out out;
    const float *row;
    int32_t id; // sampled, -1: every token is excluded
    bool finite;
};

struct quern_engine {
    struct qn_engine_setup setup;
    struct quern_engine_options o;
    struct qn_request_env env;
    struct qn_plan plan;
    struct qn_backend backend;
    struct qn_team *team;
    struct qn_kv *kv;
    struct qn_sched sched;
    struct qn_stats stats;
    float *logits;
    char *scratch; // [plan.n_samplers] of scratch_bytes
    size_t scratch_bytes;
    char *piece; // text of one token
    struct job *jobs;
    size_t n_jobs;
    struct qn_claim claim;
    uint64_t seed;
    pthread_t thread;
    bool thread_started;
    bool news; // something was put on the ready list

    struct qn_park park; // the idle engine
    struct qn_submit_queue submitted;
    struct qn_ready_list ready;
    _Atomic bool stop, abort_pending;
    _Atomic uint64_t n_submitted;
    // Gauges, stored by the engine's thread; n_waiting counts requests not yet scheduled.
    _Atomic size_t n_waiting, n_running, blocks_free;
};

/* ---- ends ---- */

static double elapsed(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

static void leave_waiting(struct quern_engine *e, struct quern_request *r, uint64_t now)
{
    if (atomic_load_explicit(&r->first_scheduled_ns, memory_order_relaxed) == 0) {
        atomic_store_explicit(&r->first_scheduled_ns, now, memory_order_relaxed);
        atomic_fetch_sub_explicit(&e->n_waiting, 1, memory_order_relaxed);
    }
}

static void count_end(struct quern_engine *e, const struct qn_seq *s, enum quern_finish finish,
                      uint64_t now)
{
    qn_stats_count(&e->stats.finished[finish], 1);
    if (finish == QUERN_FINISH_ABORT || finish == QUERN_FINISH_ERROR) {
        return;
    }
    size_t n = s->n_tokens - s->request->n_prompt;
    qn_hist_add(&e->stats.e2e_s, elapsed(s->request->arrival_ns, now));
    qn_hist_add(&e->stats.inference_s, elapsed(s->scheduled_ns, now));
    qn_hist_add(&e->stats.decode_s, elapsed(s->first_ns, s->last_ns));
    qn_hist_add(&e->stats.generation_len, (double)n);
    if (n > 1) {
        qn_hist_add(&e->stats.tpot_s, elapsed(s->first_ns, s->last_ns) / (double)(n - 1));
    }
}

static void end_seq(struct quern_engine *e, struct qn_seq *s, enum quern_finish finish,
                    const char *error, uint64_t now)
{
    struct quern_request *r = s->request;
    qn_sched_remove(&e->sched, s);
    leave_waiting(e, r, now);
    count_end(e, s, finish, now);
    for (size_t i = 0; i < e->n_jobs; i++) {
        if (e->jobs[i].out.seq == s) { // rows of it that this step has yet to look at
            e->jobs[i].out.seq = NULL;
        }
    }
    for (size_t i = 1; i < r->n_choices && s->choice == 0; i++) {
        if (r->seqs[i].state == QN_SEQ_FORK) { // there is nothing to share any more
            r->seqs[i].state = QN_SEQ_WAITING;
        }
    }
    bool last = atomic_load_explicit(&r->n_live, memory_order_relaxed) == 1;
    if (last) {
        atomic_store_explicit(&r->finished_ns, now, memory_order_relaxed);
    }
    qn_seq_finish(s, finish, error);
    e->news |= qn_ready_push(&e->ready, r);
    if (last) {
        qn_request_unref(r); // the engine's part
    }
}

static void end_request(struct quern_engine *e, struct quern_request *r, enum quern_finish finish,
                        const char *error, uint64_t now)
{
    size_t live = atomic_load_explicit(&r->n_live, memory_order_relaxed);
    for (size_t i = 0; live > 0; i++) {
        if (r->seqs[i].state != QN_SEQ_DONE) {
            live--; // the last one may be the end of r itself
            end_seq(e, &r->seqs[i], finish, error, now);
        }
    }
}

static void take_submitted(struct quern_engine *e)
{
    struct quern_request *r = qn_submit_take(&e->submitted), *next;
    for (; r != NULL; r = next) {
        next = r->submit_next;
        for (size_t i = 0; i < r->n_choices; i++) {
            qn_sched_add(&e->sched, &r->seqs[i]);
        }
        if (r->max_tokens == 0 && r->prompt_logprobs == NULL) {
            end_request(e, r, QUERN_FINISH_LENGTH, NULL, qn_clock_ns());
        }
    }
}

static struct quern_request *find_aborted(struct quern_engine *e, bool all)
{
    for (size_t i = 0; i < e->sched.n_running; i++) {
        struct quern_request *r = e->sched.running[i]->request;
        if (all || atomic_load_explicit(&r->abort, memory_order_acquire)) {
            return r;
        }
    }
    for (struct qn_seq *s = e->sched.waiting_head; s != NULL; s = s->next) {
        if (all || atomic_load_explicit(&s->request->abort, memory_order_acquire)) {
            return s->request;
        }
    }
    return NULL;
}

static void take_aborts(struct quern_engine *e, bool all)
{
    // Cleared before looking: an abort that comes meanwhile is found now or in the next round.
    if (!all && !atomic_exchange_explicit(&e->abort_pending, false, memory_order_acq_rel)) {
        return;
    }
    struct quern_request *r;
    while ((r = find_aborted(e, all)) != NULL) {
        end_request(e, r, QUERN_FINISH_ABORT, NULL, qn_clock_ns());
    }
}

/* ---- the step ---- */

static void run_job(struct quern_engine *e, struct job *j, void *scratch)
{
    struct qn_seq *s = j->out.seq;
    const struct quern_request *r = s->request;
    size_t vocab_size = e->env.vocab_size;
    j->id = -1;
    j->finite = qn_logits_finite(j->row, vocab_size);
    if (!j->finite) {
        return;
    }
    if (j->out.is_prompt) {
        size_t k = (size_t)r->sampling.prompt_logprobs, next = j->out.position + 1;
        qn_logprobs(j->row, vocab_size, r->prompt[next], k, r->prompt_logprobs + next * (1 + k));
        return;
    }
    if (r->max_tokens == 0) {
        return;
    }
    size_t n = s->n_tokens - r->n_prompt;
    const struct qn_sample_params p = {.sampling = &r->sampling,
                                       .seed = r->seed,
                                       .seen = s->seen.n_slots > 0 ? &s->seen : NULL,
                                       .suppress_ids = e->setup.suppress_ids,
                                       .n_suppress_ids = e->setup.n_suppress_ids,
                                       .eos_ids = e->env.eos_ids,
                                       .n_eos_ids = e->env.n_eos_ids,
                                       .choice = s->choice,
                                       .position = n};
    j->id = qn_sample(j->row, vocab_size, &p, scratch);
    if (j->id >= 0 && s->logprobs != NULL) {
        size_t k = (size_t)r->sampling.logprobs;
        qn_logprobs(j->row, vocab_size, j->id, k, s->logprobs + n * (1 + k));
    }
}

// Rows are independent: any worker may take any.
static void run_jobs(void *arg, size_t worker, size_t n_workers)
{
    (void)n_workers;
    struct quern_engine *e = arg;
    if (worker >= e->plan.n_samplers) {
        return;
    }
    void *scratch = e->scratch + worker * e->scratch_bytes;
    for (size_t i; (i = qn_claim_next(&e->claim)) < e->n_jobs;) {
        run_job(e, &e->jobs[i], scratch);
    }
}

// Out rows, and the other choices of a prompt that has just been computed: they sample their first
// token from the same row.
static void make_jobs(struct quern_engine *e, const struct qn_backend_step *step, uint64_t now)
{
    e->n_jobs = 0;
    for (size_t i = 0; i < step->batch.n_out; i++) {
        const struct qn_sched_out *out = &e->sched.outs[i];
        const float *row = step->batch.logits + i * e->env.vocab_size;
        e->jobs[e->n_jobs++] = (struct job){.out = *out, .row = row};
        struct quern_request *r = out->seq->request;
        bool first = !out->is_prompt && out->seq->choice == 0 && out->seq->n_tokens == r->n_prompt;
        for (size_t c = 1; first && r->max_tokens > 0 && c < r->n_choices; c++) {
            struct qn_seq *s = &r->seqs[c];
            if (s->state == QN_SEQ_FORK && qn_sched_fork(&e->sched, s, out->seq, &e->backend)) {
                s->scheduled_ns = now;
                e->jobs[e->n_jobs++] =
                    (struct job){.out = {.seq = s, .position = out->position}, .row = row};
            }
        }
    }
}

static void note_token(struct quern_engine *e, struct qn_seq *s, uint64_t now)
{
    struct quern_request *r = s->request;
    qn_stats_count(&e->stats.generation_tokens, 1);
    if (s->first_ns == 0) {
        s->first_ns = now;
        qn_hist_add(&e->stats.ttft_s, elapsed(r->arrival_ns, now));
        qn_hist_add(&e->stats.prefill_s, elapsed(s->scheduled_ns, now));
        if (s->choice == 0) {
            qn_stats_count(&e->stats.prompt_tokens, r->n_prompt);
            qn_hist_add(&e->stats.prompt_len, (double)r->n_prompt);
        }
        if (atomic_load_explicit(&r->first_token_ns, memory_order_relaxed) == 0) {
            atomic_store_explicit(&r->first_token_ns, now, memory_order_relaxed);
        }
    } else {
        qn_hist_add(&e->stats.itl_s, elapsed(s->last_ns, now));
    }
    s->last_ns = now;
    atomic_store_explicit(&r->last_token_ns, now, memory_order_relaxed);
}

static void take_result(struct quern_engine *e, const struct job *j, uint64_t now)
{
    struct qn_seq *s = j->out.seq;
    struct quern_request *r = s->request;
    if (!j->finite) {
        end_seq(e, s, QUERN_FINISH_ERROR, "nonfinite logits", now);
        return;
    }
    if (j->out.is_prompt) {
        return;
    }
    if (s->choice == 0) { // all prompt rows are done, whether or not anybody asked for logprobs
        atomic_store_explicit(&r->prompt_done, true, memory_order_release);
    }
    if (r->max_tokens == 0) {
        end_request(e, r, QUERN_FINISH_LENGTH, NULL, now);
        return;
    }
    if (j->id < 0) {
        end_seq(e, s, QUERN_FINISH_ERROR, "every token is excluded from sampling", now);
        return;
    }
    note_token(e, s, now);
    enum quern_finish finish = qn_seq_append(s, j->id, e->env.eos_ids, e->env.n_eos_ids, e->piece);
    if (finish != QUERN_FINISH_NONE) {
        end_seq(e, s, finish, NULL, now);
    } else {
        e->news |= qn_ready_push(&e->ready, r);
    }
}

static void step(struct quern_engine *e)
{
    uint64_t t0 = qn_clock_ns();
    uint64_t preemptions = e->sched.n_preemptions;
    struct qn_backend_step st;
    qn_sched_make(&e->sched, &st);
    st.batch.logits = e->logits;
    for (size_t i = 0; i < st.batch.n_seqs; i++) {
        struct qn_seq *s = e->sched.stepped[i];
        if (s->scheduled_ns == 0) {
            s->scheduled_ns = t0;
            if (s->choice == 0) {
                qn_hist_add(&e->stats.queue_s, elapsed(s->request->arrival_ns, t0));
            }
        }
        leave_waiting(e, s->request, t0);
    }
    e->backend.ops->step(e->backend.ctx, &st);
    qn_sched_computed(&e->sched, &st);
    uint64_t now = qn_clock_ns();
    make_jobs(e, &st, now);
    qn_claim_reset(&e->claim);
    if (e->n_jobs > 1) {
        qn_team_run(e->team, run_jobs, e);
    } else {
        run_jobs(e, 0, 1);
    }
    now = qn_clock_ns();
    for (size_t i = 0; i < e->n_jobs; i++) {
        if (e->jobs[i].out.seq != NULL) {
            take_result(e, &e->jobs[i], now);
        }
    }
    e->n_jobs = 0;
    qn_stats_count(&e->stats.steps, 1);
    qn_stats_count(&e->stats.preemptions, e->sched.n_preemptions - preemptions);
    qn_hist_add(&e->stats.step_tokens, (double)st.batch.n_rows);
    qn_hist_add(&e->stats.step_s, elapsed(t0, qn_clock_ns()));
}

/* ---- the thread ---- */

static void publish(struct quern_engine *e)
{
    size_t n_free = 0;
    for (size_t g = 0; g < e->plan.n_groups; g++) {
        n_free += qn_kv_n_free(e->kv, g);
    }
    atomic_store_explicit(&e->blocks_free, n_free, memory_order_relaxed);
    atomic_store_explicit(&e->n_running, e->sched.n_running, memory_order_relaxed);
    if (e->news) {
        e->news = false;
        qn_ready_wake(&e->ready);
        if (e->o.notify != NULL) {
            e->o.notify(e->o.user);
        }
    }
}

static void *engine_main(void *arg)
{
    struct quern_engine *e = arg;
    pthread_setname_np(pthread_self(), "quern-engine");
    qn_team_pin_caller(e->team);
    for (;;) {
        uint32_t ticket = qn_park_ticket(&e->park);
        bool stop = atomic_load_explicit(&e->stop, memory_order_acquire);
        take_submitted(e);
        take_aborts(e, stop);
        publish(e);
        if (stop) {
            return NULL;
        }
        if (e->sched.n_running == 0 && e->sched.n_waiting == 0) {
            (void)qn_park_wait(&e->park, ticket, -1);
            continue;
        }
        step(e);
    }
}

/* ---- start and stop ---- */

static enum qn_status check_options(struct quern_engine_options *o, struct qn_err *err)
{
    o->max_num_seqs = o->max_num_seqs != 0 ? o->max_num_seqs : DEFAULT_SEQS;
    o->max_waiting = o->max_waiting != 0 ? o->max_waiting : DEFAULT_WAITING;
    o->block_tokens = o->block_tokens != 0 ? o->block_tokens : DEFAULT_BLOCK_TOKENS;
    if (o->max_num_batched_tokens == 0) {
        o->max_num_batched_tokens =
            o->max_num_seqs > DEFAULT_BATCHED_TOKENS ? o->max_num_seqs : DEFAULT_BATCHED_TOKENS;
    }
    if (o->max_num_seqs > MAX_SEQS) {
        return qn_fail(err, QN_E_INVALID, "max_num_seqs: found %zu, expected 1 to %d",
                       o->max_num_seqs, MAX_SEQS);
    }
    if (o->max_num_batched_tokens < o->max_num_seqs ||
        o->max_num_batched_tokens > MAX_BATCHED_TOKENS) {
        return qn_fail(err, QN_E_INVALID,
                       "max_num_batched_tokens: found %zu, expected %zu (max_num_seqs) to %d",
                       o->max_num_batched_tokens, o->max_num_seqs, MAX_BATCHED_TOKENS);
    }
    if (o->block_tokens < 16 || o->block_tokens > 256 ||
        (o->block_tokens & (o->block_tokens - 1)) != 0) {
        return qn_fail(err, QN_E_INVALID,
                       "block_tokens: found %zu, expected a power of two from 16 to 256",
                       o->block_tokens);
    }
    return QN_OK;
}

static enum qn_status reserve(struct quern_engine *e, struct qn_err *err)
{
    const struct qn_plan *p = &e->plan;
    struct qn_kv_opts kv = {.n_groups = p->n_groups,
                            .block_tokens = e->o.block_tokens,
                            .n_slots = e->o.max_num_seqs,
                            .max_tokens = p->max_seq_tokens};
    memcpy(kv.n_blocks, p->n_blocks, sizeof kv.n_blocks);
    memcpy(kv.window, p->window, sizeof kv.window);
    enum qn_status rc = qn_kv_new(&kv, &e->kv, err);
    if (rc != QN_OK) {
        return rc;
    }
    const struct qn_sched_opts sched = {.max_num_seqs = e->o.max_num_seqs,
                                        .max_rows = e->o.max_num_batched_tokens,
                                        .max_out_rows = p->max_out_rows,
                                        .block_tokens = e->o.block_tokens,
                                        .kv = e->kv};
    rc = qn_sched_init(&e->sched, &sched, err);
    if (rc != QN_OK) {
        return rc;
    }
    e->scratch_bytes = (size_t)(p->sampler_bytes / p->n_samplers);
    e->logits = qn_pages_alloc((size_t)p->logits_bytes, QN_MEM_ACTIVATIONS);
    e->scratch = qn_pages_alloc((size_t)p->sampler_bytes, QN_MEM_ACTIVATIONS);
    e->jobs = calloc(p->max_out_rows + e->o.max_num_seqs, sizeof *e->jobs);
    e->piece = malloc(qn_seq_piece_bytes(e->env.tok) + 1);
    if (e->logits == NULL || e->scratch == NULL || e->jobs == NULL || e->piece == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not reserve %llu bytes for sampling",
                       (unsigned long long)(p->logits_bytes + p->sampler_bytes));
    }
    const struct qn_run_opts run = {.max_rows = e->o.max_num_batched_tokens,
                                    .max_seqs = e->o.max_num_seqs,
                                    .max_out_rows = p->max_out_rows,
                                    .block_tokens = e->o.block_tokens,
                                    .n_blocks = p->n_blocks,
                                    .team = e->team};
    return e->backend.ops->start(e->backend.ctx, &run, err);
}

enum qn_status qn_engine_start(const struct qn_engine_setup *setup,
                               struct quern_engine **out_engine, struct qn_err *err)
{
    struct quern_engine *e = qn_aligned_alloc(1, sizeof *e);
    if (e == NULL) {
        setup->backend.ops->free(setup->backend.ctx);
        return qn_fail(err, QN_E_NOMEM, "could not allocate the engine");
    }
    memset(e, 0, sizeof *e);
    e->setup = *setup;
    e->o = setup->options;
    e->env = setup->env;
    e->backend = setup->backend;
    e->seed = e->o.seed != 0 ? e->o.seed : qn_hash_seed();
    qn_ready_init(&e->ready);
    enum qn_status rc = check_options(&e->o, err);
    if (rc == QN_OK) {
        const struct qn_plan_opts plan = {.max_num_seqs = e->o.max_num_seqs,
                                          .max_num_batched_tokens = e->o.max_num_batched_tokens,
                                          .block_tokens = e->o.block_tokens,
                                          .max_model_len = e->env.max_model_len,
                                          .n_threads = setup->n_threads,
                                          .kv_cache_bytes = e->o.kv_cache_bytes,
                                          .available_bytes = setup->available_bytes};
        rc = qn_plan_make(&e->backend, &plan, &e->plan, err);
    }
    if (rc == QN_OK) {
        e->env.max_seq_tokens = e->plan.max_seq_tokens;
        qn_stats_init(&e->stats, e->env.max_model_len);
        rc = qn_team_new(setup->n_threads, setup->cpus, setup->n_cpus, &e->team, NULL, err);
    }
    if (rc == QN_OK) {
        rc = reserve(e, err);
    }
    if (rc == QN_OK) {
        publish(e);
        int failed = pthread_create(&e->thread, NULL, engine_main, e);
        e->thread_started = failed == 0;
        if (failed != 0) {
            rc = qn_fail(err, QN_E_IO, "could not start the engine's thread: %s", strerror(failed));
        }
    }
    if (rc != QN_OK) {
        quern_engine_free(e);
        return rc;
    }
    *out_engine = e;
    return QN_OK;
}

void quern_engine_free(struct quern_engine *e)
{
    if (e == NULL) {
        return;
    }
    if (e->thread_started) {
        atomic_store_explicit(&e->stop, true, memory_order_release);
        qn_park_wake(&e->park);
        pthread_join(e->thread, NULL);
    }
    qn_ready_done(&e->ready);
    e->backend.ops->free(e->backend.ctx);
    qn_team_free(e->team);
    qn_sched_done(&e->sched);
    qn_kv_free(e->kv);
    if (e->logits != NULL) {
        qn_pages_free(e->logits, (size_t)e->plan.logits_bytes, QN_MEM_ACTIVATIONS);
    }
    if (e->scratch != NULL) {
        qn_pages_free(e->scratch, (size_t)e->plan.sampler_bytes, QN_MEM_ACTIVATIONS);
    }
    free(e->jobs);
    free(e->piece);
    free(e);
}

const struct qn_plan *qn_engine_plan(const struct quern_engine *e)
{
    return &e->plan;
}

/* ---- any thread ---- */

enum quern_status quern_engine_submit(struct quern_engine *e,
                                      const struct quern_request_params *params,
                                      struct quern_request **out_request, struct quern_error *err)
{
    uint64_t number = atomic_fetch_add_explicit(&e->n_submitted, 1, memory_order_relaxed);
    uint64_t words[2] = {e->seed, number};
    struct quern_request *r = NULL;
    enum quern_status rc =
        qn_request_new(&e->env, params, qn_hash64(words, sizeof words, 0), &r, err);
    if (rc != QUERN_OK) {
        return rc;
    }
    if (atomic_fetch_add_explicit(&e->n_waiting, 1, memory_order_relaxed) >= e->o.max_waiting) {
        atomic_fetch_sub_explicit(&e->n_waiting, 1, memory_order_relaxed);
        qn_request_unref(r);
        qn_request_unref(r);
        return qn_params_fail(err, QUERN_E_BUSY, "",
                              "waiting queue is full (%zu requests); try again later",
                              e->o.max_waiting);
    }
    *out_request = r;
    qn_submit_push(&e->submitted, r);
    qn_park_wake(&e->park);
    return QUERN_OK;
}

void quern_engine_abort(struct quern_engine *e, struct quern_request *r)
{
    atomic_store_explicit(&r->abort, true, memory_order_release);
    atomic_store_explicit(&e->abort_pending, true, memory_order_release);
    qn_park_wake(&e->park);
}

void quern_request_free(struct quern_engine *e, struct quern_request *r)
{
    if (r == NULL) {
        return;
    }
    // Both before the prune: the engine puts an abandoned request on no list.
    atomic_store_explicit(&r->abandoned, true, memory_order_release);
    quern_engine_abort(e, r);
    qn_ready_prune(&e->ready);
    qn_request_unref(r);
}

struct quern_request *quern_engine_next(struct quern_engine *e)
{
    return qn_ready_pop(&e->ready);
}

struct quern_request *quern_engine_wait(struct quern_engine *e, int timeout_ms)
{
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : qn_clock_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        uint32_t ticket = qn_park_ticket(&e->ready.park);
        struct quern_request *r = qn_ready_pop(&e->ready);
        uint64_t now = timeout_ms < 0 ? 0 : qn_clock_ns();
        if (r != NULL || now >= end) {
            return r;
        }
        int left = timeout_ms < 0 ? -1 : (int)((end - now + 999999u) / 1000000u);
        (void)qn_park_wait(&e->ready.park, ticket, left);
    }
}

void quern_engine_stats(struct quern_engine *e, struct quern_stats *out)
{
    memset(out, 0, sizeof *out);
    out->running = atomic_load_explicit(&e->n_running, memory_order_relaxed);
    out->waiting = atomic_load_explicit(&e->n_waiting, memory_order_relaxed);
    for (size_t g = 0; g < e->plan.n_groups; g++) {
        out->kv_blocks_total += e->plan.n_blocks[g];
    }
    out->kv_blocks_free = atomic_load_explicit(&e->blocks_free, memory_order_relaxed);
    out->block_tokens = e->o.block_tokens;
    out->kv_usage = 1 - (double)out->kv_blocks_free / (double)(out->kv_blocks_total);
    qn_stats_read(&e->stats, out);
}
