// Answers of tiny models through quern.h: the bits of a request depend on nothing but itself.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/api.h"
#include "engine/fixture.h"
#include "engine/tiny.h"

// Full attention alone; sliding windows crossed with full layers.
static const char *const models[] = {"llama_bf16", "gemma3_new"};

enum {
    N_PROMPT = 60,
    N_ANSWER = 40
};

static void make_prompt(const struct quern_model *m, int32_t *ids, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t words[2] = {seed, i};
        ids[i] = (int32_t)(qn_hash64(words, sizeof words, 0) % quern_model_get_info(m)->vocab_size);
    }
}

static struct quern_engine *start(struct quern_model *m, struct quern_engine_options o)
{
    struct quern_engine *e = NULL;
    struct quern_error err = {0};
    if (quern_engine_new(m, &o, &e, &err) != QUERN_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

static struct qn_answer *answers(size_t n)
{
    struct qn_answer *a = calloc(n, sizeof *a);
    assert_non_null(a);
    return a;
}

// Prompt logprobs of the engine, in chunks and among others, are those of quern_logits bit for bit,
// and the first greedy token is the first choice of its last row.
static void test_engine_and_logits_agree_to_the_bit(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct quern_model *m = tiny_load_golden(models[k], QUERN_ACT_BF16, 2);
        size_t vocab = quern_model_get_info(m)->vocab_size;
        int32_t prompt[N_PROMPT];
        make_prompt(m, prompt, N_PROMPT, 1);
        float *logits = malloc(N_PROMPT * vocab * sizeof *logits);
        assert_non_null(logits);
        assert_int_equal(quern_logits(m, prompt, N_PROMPT, logits, NULL), QUERN_OK);
        struct quern_engine *e = start(
            m, (struct quern_engine_options){.max_num_seqs = 4, .max_num_batched_tokens = 23});
        struct quern_request_params p = qn_fixture_greedy(prompt, N_PROMPT, 1);
        p.sampling.prompt_logprobs = 3;
        struct quern_request_params other = qn_fixture_greedy(prompt + 5, 50, 30);
        struct quern_request *ro = qn_fixture_submit(e, &other), *r = qn_fixture_submit(e, &p);
        struct qn_answer *a = answers(1), *b = answers(1);
        qn_fixture_collect(e, r, a);
        qn_fixture_collect(e, ro, b);
        const struct quern_logprob *got = quern_request_prompt_logprobs(r);
        assert_non_null(got);
        for (size_t i = 1; i < N_PROMPT; i++) {
            struct quern_logprob want[4];
            qn_logprobs(logits + (i - 1) * vocab, vocab, prompt[i], 3, want);
            for (size_t j = 0; j < 4; j++) {
                assert_int_equal(got[4 * i + j].id, want[j].id);
                assert_true(got[4 * i + j].logprob == want[j].logprob);
            }
        }
        struct quern_logprob last[2];
        qn_logprobs(logits + (N_PROMPT - 1) * vocab, vocab, 0, 1, last);
        assert_int_equal(a->ids[0], last[1].id);
        quern_request_free(e, r);
        quern_request_free(e, ro);
        quern_engine_free(e);
        quern_model_free(m);
        free(logits);
        free(a);
        free(b);
    }
}

// Everything that may happen to a request beside others: company, small chunks, choices that share
// or recompute the prompt, preemption.
static void test_answers_do_not_depend_on_company(void **state)
{
    (void)state;
    enum {
        N = 6
    };
    for (size_t k = 0; k < 2; k++) {
        struct quern_model *m = tiny_load_golden(models[k], QUERN_ACT_DEFAULT, 2);
        int32_t prompt[N][N_PROMPT];
        struct quern_request_params p[N];
        struct qn_answer *alone = answers(3 * N), *got = answers(3);
        struct quern_engine *e = start(m, (struct quern_engine_options){.max_num_seqs = 8});
        for (size_t i = 0; i < N; i++) {
            make_prompt(m, prompt[i], N_PROMPT, 10 + i);
            p[i] = qn_fixture_greedy(prompt[i], N_PROMPT - 7 * i, N_ANSWER);
            p[i].n = 1 + i % 3;
            p[i].sampling.temperature = i % 2 == 0 ? 0 : 1.5;
            p[i].sampling.has_seed = true;
            p[i].sampling.seed = i;
            p[i].sampling.repetition_penalty = i == 4 ? 1.3 : 1;
            qn_fixture_ask(e, &p[i], &alone[3 * i]);
        }
        quern_engine_free(e);
        // Fewer blocks than three choices of one prompt end up with: somebody is preempted.
        size_t block = 0;
        for (size_t g = 0; g < qn_model_n_kv_groups(m->model, 16); g++) {
            struct qn_kv_group group;
            qn_model_kv_group(m->model, 16, g, &group);
            block += group.block_bytes;
        }
        const struct quern_engine_options settings[] = {
            {.max_num_seqs = 12},
            {.max_num_seqs = 12, .max_num_batched_tokens = 13},
            {.max_num_seqs = 12, .kv_cache_bytes = 12 * block},
            {.max_num_seqs = 3, .block_tokens = 32},
        };
        uint64_t preemptions = 0;
        for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
            e = start(m, settings[s]);
            struct quern_request *r[N];
            for (size_t i = 0; i < N; i++) {
                r[i] = qn_fixture_submit(e, &p[i]);
            }
            for (size_t i = 0; i < N; i++) {
                memset(got, 0, 3 * sizeof *got);
                qn_fixture_collect(e, r[i], got);
                for (size_t c = 0; c < p[i].n; c++) {
                    assert_int_equal(got[c].n_ids, N_ANSWER);
                    assert_memory_equal(got[c].ids, alone[3 * i + c].ids,
                                        N_ANSWER * sizeof(int32_t));
                }
                quern_request_free(e, r[i]);
            }
            struct quern_stats st;
            quern_engine_stats(e, &st);
            preemptions += st.preemptions;
            qn_fixture_at_rest(e);
            quern_engine_free(e);
        }
        assert_true(preemptions > 0);
        quern_model_free(m);
        free(alone);
        free(got);
    }
}

static void test_logits_check_their_tokens(void **state)
{
    (void)state;
    struct quern_model *m = tiny_load_golden(models[0], QUERN_ACT_F32, 1);
    const struct quern_model_info *i = quern_model_get_info(m);
    struct quern_error err = {0};
    int32_t ids[2] = {0, (int32_t)i->vocab_size};
    assert_int_equal(quern_logits(m, ids, 2, NULL, &err), QUERN_E_INVALID);
    assert_non_null(strstr(err.message, "tokens[1]: found id "));
    assert_int_equal(quern_logits(m, ids, 0, NULL, &err), QUERN_E_INVALID);
    assert_int_equal(quern_logits(m, ids, i->max_model_len + 1, NULL, &err), QUERN_E_CONTEXT);
    quern_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_and_logits_agree_to_the_bit),
        cmocka_unit_test(test_answers_do_not_depend_on_company),
        cmocka_unit_test(test_logits_check_their_tokens),
    };
    return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
