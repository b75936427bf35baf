#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fixture.h"

// A sequence's logits have the same bits whatever the thread count, the chunking of its prompt and
// the company in its batch. Held by equality, for f32, bf16 and int8 activations, on models that
// have windows, separate and fused linears, q/k norms and odd sizes.

enum {
    N_SEQS = 32,
    MAX_TOKENS = 100,
    LONG_TOKENS = 1100, // more than two spans of attention
    BLOCK_TOKENS = 16
};

struct fixture {
    const char *path;
    enum qn_act act;
};

static const struct fixture fixtures[] = {
    {"tests/golden/models/llama_plain", QN_ACT_F32},
    {"tests/golden/models/gemma3_old", QN_ACT_F32},
    {"tests/golden/models/gemma3_new", QN_ACT_BF16},
    {"tests/golden/models/qwen3_yarn", QN_ACT_BF16},
    {"tests/golden/models/smollm3", QN_ACT_BF16},
    {"tests/golden/models/gguf_mixed/model.gguf", QN_ACT_F32},
    {"tests/golden/models/gguf_mixed/model.gguf", QN_ACT_BF16},
    {"tests/golden/models/gguf_mixed/model.gguf", QN_ACT_I8},
    {"tests/golden/models/gguf_k/model.gguf", QN_ACT_I8},
};

enum {
    N_FIXTURES = sizeof fixtures / sizeof fixtures[0]
};

struct seqs {
    size_t n[N_SEQS];
    int32_t tokens[N_SEQS][MAX_TOKENS];
    float *want[N_SEQS]; // logits of each sequence alone, in one chunk, by one thread
    size_t vocab;
};

static void fill(int32_t *tokens, size_t n, size_t vocab, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(fx_random(seed) % vocab);
    }
}

static struct seqs *make_seqs(const struct fx_model *f)
{
    struct seqs *s = calloc(1, sizeof *s);
    assert_non_null(s);
    uint64_t seed = 3;
    s->vocab = f->vocab;
    struct fx_run *r = fx_run_new(f->model, 1, MAX_TOKENS, 1, MAX_TOKENS, BLOCK_TOKENS);
    for (size_t i = 0; i < N_SEQS; i++) {
        s->n[i] = i == 0 ? MAX_TOKENS : 1 + fx_random(&seed) % MAX_TOKENS;
        fill(s->tokens[i], s->n[i], f->vocab, &seed);
        s->want[i] = fx_floats(s->n[i] * f->vocab);
        fx_feed(r, 0, s->tokens[i], s->n[i], s->n[i], s->want[i]);
        fx_forget(r, 0);
    }
    fx_run_free(r);
    return s;
}

static void free_seqs(struct seqs *s)
{
    for (size_t i = 0; i < N_SEQS; i++) {
        free(s->want[i]);
    }
    free(s);
}

static void same(const struct fixture *x, const float *got, const float *want, size_t n,
                 const char *what, size_t a, size_t b)
{
    if (memcmp(got, want, n * sizeof(float)) == 0) {
        return;
    }
    size_t i = 0;
    while (memcmp(got + i, want + i, sizeof(float)) == 0) {
        i++;
    }
    fail_msg("%s %s: %s %zu, %zu: logit %zu is %a, alone it is %a", x->path, qn_act_name(x->act),
             what, a, b, i, (double)got[i], (double)want[i]);
}

typedef void check_fn(const struct fixture *x, const struct fx_model *f, const struct seqs *s);

// Emulated machines take one fixture of each activation and container kind.
static bool skipped(size_t i)
{
    return getenv("QUERN_CHECK_SMALL") != NULL && i != 1 && i != 2 && i != 7;
}

static void each(check_fn *check)
{
    for (size_t i = 0; i < N_FIXTURES; i++) {
        if (skipped(i)) {
            continue;
        }
        struct fx_model f;
        fx_open(&f, fixtures[i].path, fixtures[i].act);
        struct seqs *s = make_seqs(&f);
        check(&fixtures[i], &f, s);
        free_seqs(s);
        fx_close(&f);
    }
}

static void check_chunks(const struct fixture *x, const struct fx_model *f, const struct seqs *s)
{
    static const size_t threads[] = {1, 2, 4}, chunks[] = {1, 5, 16, 64, MAX_TOKENS};
    float *got = fx_floats(MAX_TOKENS * s->vocab);
    for (size_t t = 0; t < 3; t++) {
        struct fx_run *r = fx_run_new(f->model, threads[t], MAX_TOKENS, 1, MAX_TOKENS, 32);
        for (size_t c = 0; c < 5; c++) {
            fx_feed(r, 0, s->tokens[0], s->n[0], chunks[c], got);
            same(x, got, s->want[0], s->n[0] * s->vocab, "threads and chunk", threads[t],
                 chunks[c]);
            fx_forget(r, 0);
        }
        fx_run_free(r);
    }
    free(got);
}

static void test_threads_and_chunks(void **state)
{
    (void)state;
    each(check_chunks);
}

// All sequences of a batch in whole, each against itself alone.
static void check_batches(const struct fixture *x, const struct fx_model *f, const struct seqs *s)
{
    static const size_t batches[] = {1, 2, 7, N_SEQS};
    for (size_t t = 1; t <= 4; t *= 2) {
        for (size_t b = 0; b < 4; b++) {
            struct fx_part parts[N_SEQS];
            size_t rows = 0;
            for (size_t i = 0; i < batches[b]; i++) {
                size_t seq = batches[b] - 1 - i; // the first sequence last
                parts[i] = (struct fx_part){
                    .seq = seq, .tokens = s->tokens[seq], .n = s->n[seq], .n_out = s->n[seq]};
                rows += s->n[seq];
            }
            float *got = fx_floats(rows * s->vocab);
            struct fx_run *r = fx_run_new(f->model, t, rows, batches[b], MAX_TOKENS, BLOCK_TOKENS);
            fx_step(r, parts, batches[b], got);
            size_t row = 0;
            for (size_t i = 0; i < batches[b]; i++) {
                same(x, got + row * s->vocab, s->want[parts[i].seq], parts[i].n * s->vocab,
                     "batch and sequence", batches[b], parts[i].seq);
                row += parts[i].n;
            }
            fx_run_free(r);
            free(got);
        }
    }
}

static void test_batches(void **state)
{
    (void)state;
    each(check_batches);
}

// Sequences join, advance by random chunks, leave and start anew, in random company; logits are
// wanted for some of the rows.
static void check_traffic(const struct fixture *x, const struct fx_model *f, const struct seqs *s)
{
    enum {
        STEPS = 60,
        ROWS = 150
    };
    uint64_t seed = 17;
    float *got = fx_floats(ROWS * s->vocab);
    struct fx_run *r = fx_run_new(f->model, 2, ROWS, N_SEQS, MAX_TOKENS, BLOCK_TOKENS);
    for (size_t step = 0; step < STEPS; step++) {
        struct fx_part parts[N_SEQS];
        size_t at[N_SEQS], n_parts = 0, rows = 0;
        for (size_t seq = 0; seq < N_SEQS; seq++) {
            size_t pos = fx_position(r, seq);
            if (pos == s->n[seq] || fx_random(&seed) % 16 == 0) {
                fx_forget(r, seq); // done, or gone before its end
                pos = 0;
            }
            size_t left = s->n[seq] - pos, n = fx_random(&seed) % 3 == 0 ? left : 1;
            n = n < ROWS - rows ? n : ROWS - rows;
            if (n == 0 || fx_random(&seed) % 4 == 0) {
                continue;
            }
            const size_t n_out = fx_random(&seed) % (n + 1); // sometimes none
            at[n_parts] = pos + n - n_out;
            parts[n_parts++] = (struct fx_part){
                .seq = seq, .tokens = s->tokens[seq] + pos, .n = n, .n_out = n_out};
            rows += n;
        }
        fx_step(r, parts, n_parts, got);
        size_t row = 0;
        for (size_t i = 0; i < n_parts; i++) {
            same(x, got + row * s->vocab, s->want[parts[i].seq] + at[i] * s->vocab,
                 parts[i].n_out * s->vocab, "step and sequence", step, parts[i].seq);
            row += parts[i].n_out;
        }
    }
    fx_run_free(r);
    free(got);
}

static void test_joining_and_leaving(void **state)
{
    (void)state;
    each(check_traffic);
}

// Contexts of several spans of attention.
static void check_long(const struct fixture *x, const struct fx_model *f)
{
    static const struct {
        size_t threads, chunk, blocks;
    } ways[] = {{1, LONG_TOKENS, 64}, {4, 64, 16}, {2, 333, 128}};
    uint64_t seed = 29;
    int32_t *tokens = calloc(LONG_TOKENS, sizeof *tokens);
    assert_non_null(tokens);
    fill(tokens, LONG_TOKENS, f->vocab, &seed);
    const size_t n = LONG_TOKENS * f->vocab;
    float *want = NULL;
    for (size_t w = 0; w < 3; w++) {
        struct fx_run *r =
            fx_run_new(f->model, ways[w].threads, LONG_TOKENS, 1, LONG_TOKENS, ways[w].blocks);
        float *got = fx_floats(n);
        // The last tokens one by one: few queries over several spans.
        const size_t last = 20, head = LONG_TOKENS - last;
        fx_feed(r, 0, tokens, head, ways[w].chunk, got);
        fx_feed(r, 0, tokens + head, last, w == 0 ? last : 1, got + head * f->vocab);
        if (w == 0) {
            want = got;
        } else {
            same(x, got, want, n, "long: threads and chunk", ways[w].threads, ways[w].chunk);
            free(got);
        }
        fx_run_free(r);
    }
    free(want);
    free(tokens);
}

static void test_long_sequences(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct fx_model f;
        if (skipped(i)) {
            continue;
        }
        fx_open(&f, fixtures[i].path, fixtures[i].act);
        check_long(&fixtures[i], &f);
        fx_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_chunks),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_joining_and_leaving),
        cmocka_unit_test(test_long_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
