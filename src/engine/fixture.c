#include "engine/fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"

struct ctx {
    struct qn_toy *toy;
    size_t block_tokens;
    int32_t *pool[2]; // [n_blocks][block_tokens] tokens
};

static void shape(void *ctx, size_t block_tokens, struct qn_backend_shape *out)
{
    (void)ctx;
    *out = (struct qn_backend_shape){.vocab_size = QN_TOY_VOCAB,
                                     .n_groups = 2,
                                     .window = {0, QN_TOY_WINDOW},
                                     .block_bytes = {block_tokens * 4, block_tokens * 4}};
}

static uint64_t bytes(void *ctx, const struct qn_run_opts *o)
{
    (void)ctx;
    return o->max_rows * 16;
}

static enum qn_status start(void *ctx, const struct qn_run_opts *o, struct qn_err *err)
{
    (void)err;
    struct ctx *c = ctx;
    c->block_tokens = o->block_tokens;
    for (size_t g = 0; g < 2; g++) {
        c->pool[g] = calloc(o->n_blocks[g] * o->block_tokens, sizeof *c->pool[g]);
        assert_non_null(c->pool[g]);
    }
    return QN_OK;
}

static int32_t *slot_of(const struct ctx *c, const struct qn_batch_seq *s, size_t g, size_t pos)
{
    int32_t block = s->blocks[g][pos / c->block_tokens];
    assert_true(block >= 0);
    return c->pool[g] + (size_t)block * c->block_tokens + pos % c->block_tokens;
}

static void row_logits(const struct ctx *c, const struct qn_batch_seq *s, size_t pos, float *out)
{
    uint64_t h = 1;
    bool bad = false;
    for (size_t p = 0; p <= pos; p++) {
        int32_t t = *slot_of(c, s, 0, p);
        bad = bad || (t == c->toy->bad_token && t != 0);
        h = (h ^ (uint64_t)t) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (size_t p = pos + 1 > QN_TOY_WINDOW ? pos + 1 - QN_TOY_WINDOW : 0; p <= pos; p++) {
        h = (h ^ (uint64_t)*slot_of(c, s, 1, p)) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 31;
    }
    float scale = c->toy->scale != 0 ? c->toy->scale : 4;
    for (size_t i = 0; i < QN_TOY_VOCAB; i++) {
        uint64_t x = (h + i) * 0x94d049bb133111ebu;
        x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u;
        out[i] = bad ? NAN : (float)(x >> 40) * 0x1p-24f * scale;
    }
}

static void step(void *ctx, const struct qn_backend_step *st)
{
    const struct ctx *c = ctx;
    const struct qn_batch *b = &st->batch;
    struct qn_toy *toy = c->toy;
    while (atomic_load(&toy->hold)) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    if (toy->step_us > 0) {
        nanosleep(&(struct timespec){.tv_nsec = (long)toy->step_us * 1000}, NULL);
    }
    size_t row = 0, out = 0;
    for (size_t i = 0; i < b->n_seqs; i++) {
        const struct qn_batch_seq *s = &b->seqs[i];
        assert_int_equal(s->row0, row);
        assert_true(s->n_rows > 0);
        for (size_t j = 0; j < s->n_rows; j++) {
            for (size_t g = 0; g < 2; g++) {
                *slot_of(c, s, g, s->pos0 + j) = b->tokens[row + j];
            }
        }
        for (size_t j = 0; j < s->n_rows; j++) {
            if (out < b->n_out && (size_t)b->out_rows[out] == row + j) {
                row_logits(c, s, s->pos0 + j, b->logits + out * QN_TOY_VOCAB);
                out++;
            }
        }
        row += s->n_rows;
    }
    assert_int_equal(row, b->n_rows);
    assert_int_equal(out, b->n_out);
    if (row > atomic_load(&toy->max_rows_seen)) {
        atomic_store(&toy->max_rows_seen, row);
    }
    atomic_fetch_add(&toy->n_steps, 1);
}

static void copy_block(void *ctx, size_t group, int32_t dst, int32_t src)
{
    const struct ctx *c = ctx;
    memcpy(c->pool[group] + (size_t)dst * c->block_tokens,
           c->pool[group] + (size_t)src * c->block_tokens, c->block_tokens * sizeof(int32_t));
}

static void free_ctx(void *ctx)
{
    struct ctx *c = ctx;
    free(c->pool[0]);
    free(c->pool[1]);
    free(c);
}

struct qn_backend qn_toy_backend(struct qn_toy *toy)
{
    static const struct qn_backend_ops ops = {.shape = shape,
                                              .bytes = bytes,
                                              .start = start,
                                              .step = step,
                                              .copy_block = copy_block,
                                              .free = free_ctx};
    struct ctx *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->toy = toy;
    return (struct qn_backend){.ops = &ops, .ctx = c};
}

struct quern_engine *qn_fixture_engine(struct qn_backend backend, const struct qn_tok *tok,
                                       size_t vocab_size, const int32_t *eos, size_t n_eos,
                                       struct quern_engine_options options, size_t n_threads,
                                       size_t max_model_len)
{
    const struct qn_engine_setup setup = {.backend = backend,
                                          .env = {.vocab_size = vocab_size,
                                                  .max_model_len = max_model_len,
                                                  .tok = tok,
                                                  .eos_ids = eos,
                                                  .n_eos_ids = n_eos},
                                          .n_threads = n_threads,
                                          .available_bytes = (uint64_t)1 << 30,
                                          .options = options};
    struct quern_engine *e = NULL;
    struct qn_err err = {0};
    if (qn_engine_start(&setup, &e, &err) != QN_OK) {
        fail_msg("%s", err.msg);
    }
    return e;
}

struct quern_engine *qn_fixture_toy_engine(struct qn_toy *toy, const struct qn_tok *tok,
                                           struct quern_engine_options options, size_t n_threads)
{
    static const int32_t eos[] = {0};
    return qn_fixture_engine(qn_toy_backend(toy), tok, QN_TOY_VOCAB, eos, 1, options, n_threads,
                             4096);
}

struct quern_engine *qn_fixture_script_engine(const char *script, const struct qn_tok *tok,
                                              size_t vocab_size, const int32_t *eos, size_t n_eos)
{
    struct qn_backend backend;
    struct qn_err err = {0};
    if (qn_backend_script_new(script, vocab_size, &backend, &err) != QN_OK) {
        fail_msg("%s", err.msg);
    }
    return qn_fixture_engine(backend, tok, vocab_size, eos, n_eos,
                             (struct quern_engine_options){.max_num_seqs = 4}, 1, 1024);
}

bool qn_fixture_read(struct quern_request *r, struct qn_answer *answers)
{
    struct quern_delta d;
    while (quern_request_read(r, &d)) {
        struct qn_answer *a = &answers[d.choice];
        assert_int_equal(a->finish, QUERN_FINISH_NONE);
        assert_true(a->n_ids + d.n_ids <= QN_ANSWER_IDS && a->n_text + d.n_text < QN_ANSWER_TEXT);
        for (size_t i = 0; i < d.n_ids; i++) {
            a->ids[a->n_ids] = d.ids[i];
            a->text_end[a->n_ids++] = d.text_end[i];
        }
        memcpy(a->text + a->n_text, d.text, d.n_text);
        a->n_text += d.n_text;
        a->n_deltas++;
        a->n_text_deltas += d.n_text > 0;
        a->finish = d.finish;
        if (d.finish != QUERN_FINISH_NONE) {
            a->stop_id = d.stop_id;
            a->stop_was_eos = d.stop_was_eos;
            if (d.stop_string != NULL) {
                memcpy(a->stop_string, d.stop_string, strlen(d.stop_string));
            }
            if (d.error != NULL) {
                memcpy(a->error, d.error, strlen(d.error));
            }
        }
    }
    return quern_request_finished(r);
}

void qn_fixture_collect(struct quern_engine *e, struct quern_request *r, struct qn_answer *answers)
{
    uint64_t end = qn_clock_ns() + 30000000000u;
    while (!qn_fixture_read(r, answers)) {
        assert_true(qn_clock_ns() < end);
        (void)quern_engine_wait(e, 20);
    }
}

struct quern_request *qn_fixture_submit(struct quern_engine *e,
                                        const struct quern_request_params *p)
{
    struct quern_request *r = NULL;
    struct quern_error err = {0};
    if (quern_engine_submit(e, p, &r, &err) != QUERN_OK) {
        fail_msg("%s: %s", err.param, err.message);
    }
    return r;
}

void qn_fixture_ask(struct quern_engine *e, const struct quern_request_params *p,
                    struct qn_answer *answers)
{
    memset(answers, 0, p->n * sizeof *answers);
    struct quern_request *r = qn_fixture_submit(e, p);
    qn_fixture_collect(e, r, answers);
    quern_request_free(e, r);
}

void qn_fixture_at_rest(struct quern_engine *e)
{
    struct quern_stats s;
    uint64_t end = qn_clock_ns() + 30000000000u;
    for (;;) {
        quern_engine_stats(e, &s);
        if (s.running == 0 && s.waiting == 0 && s.kv_blocks_free == s.kv_blocks_total) {
            return;
        }
        if (qn_clock_ns() > end) {
            fail_msg("%zu running, %zu waiting, %zu of %zu blocks free", s.running, s.waiting,
                     s.kv_blocks_free, s.kv_blocks_total);
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

void qn_fixture_prompt(int32_t *ids, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t words[2] = {seed, i};
        ids[i] = 1 + (int32_t)(qn_hash64(words, sizeof words, 0) % 249);
    }
}

struct quern_request_params qn_fixture_greedy(const int32_t *prompt, size_t n, size_t max_tokens)
{
    struct quern_request_params p = {.prompt = prompt, .n_prompt = n, .n = 1};
    quern_sampling_init(&p.sampling);
    p.sampling.temperature = 0;
    p.sampling.max_tokens = max_tokens;
    p.sampling.ignore_eos = true;
    return p;
}
