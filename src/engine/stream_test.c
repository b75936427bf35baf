// Scripted ids through detokeniser, stop strings and reader: what a stream shows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fixture.h"
#include "text/tok_fixture.h"

enum {
    TB_VOCAB = 265,
    TS_VOCAB = 280 // padded: ids from 269 on have no token
};

/// A script, and how the answer must look, read token by token and all at once.
struct expect {
    const char *script;
    const char *const *stop;
    size_t n_stop;
    bool include_stop;
    size_t max_tokens, min_tokens;
    bool ignore_eos;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    const char *text;
    size_t n_ids;
    enum quern_finish finish;
};

static struct qn_answer *answer(void)
{
    struct qn_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    return a;
}

static struct quern_request_params params_of(const struct expect *x)
{
    static const int32_t prompt[] = {97, 98};
    struct quern_request_params p = {.prompt = prompt, .n_prompt = 2, .n = 1};
    quern_sampling_init(&p.sampling);
    p.sampling.max_tokens = x->max_tokens;
    p.sampling.min_tokens = x->min_tokens;
    p.sampling.stop = x->stop;
    p.sampling.n_stop = x->n_stop;
    p.sampling.include_stop = x->include_stop;
    p.sampling.ignore_eos = x->ignore_eos;
    p.sampling.stop_ids = x->stop_ids;
    p.sampling.n_stop_ids = x->n_stop_ids;
    return p;
}

static void check_answer(const struct qn_answer *a, const struct expect *x)
{
    assert_int_equal(a->finish, x->finish);
    assert_int_equal(a->n_ids, x->n_ids);
    assert_int_equal(a->n_text, strlen(x->text));
    assert_memory_equal(a->text, x->text, a->n_text);
    for (size_t i = 0; i < a->n_ids; i++) {
        assert_true(i == 0 || a->text_end[i] >= a->text_end[i - 1]);
    }
}

// The same answer however it is cut into reads: a slow step lets the reader see every token alone.
static void check_eos(const struct qn_tok *tok, size_t vocab, const int32_t *eos, size_t n_eos,
                      const struct expect *x, struct qn_answer *out)
{
    static const char *const pace[] = {"", "@2"};
    struct quern_request_params p = params_of(x);
    for (size_t i = 0; i < 2; i++) {
        char script[128];
        snprintf(script, sizeof script, "%s%s", x->script, pace[i]);
        struct quern_engine *e = qn_fixture_script_engine(script, tok, vocab, eos, n_eos);
        qn_fixture_ask(e, &p, out);
        check_answer(out, x);
        qn_fixture_at_rest(e);
        quern_engine_free(e);
    }
}

static void check(const struct qn_tok *tok, const struct expect *x, struct qn_answer *out)
{
    static const int32_t eos[] = {0};
    check_eos(tok, TB_VOCAB, eos, 1, x, out);
}

static void test_STR_01_partial_characters_are_held(void **state)
{
    struct qn_answer *a = answer();
    const struct expect x = {.script = "240,159,166,153",
                             .max_tokens = 4,
                             .text = "\xF0\x9F\xA6\x99",
                             .n_ids = 4,
                             .finish = QUERN_FINISH_LENGTH};
    check(*state, &x, a);
    assert_int_equal(a->n_text_deltas, 1);
    assert_int_equal(a->text_end[2], 0);
    assert_int_equal(a->text_end[3], 4);
    free(a);
}

static void test_STR_02_an_end_inside_a_character(void **state)
{
    struct qn_answer *a = answer();
    const struct expect x = {.script = "97,240,159,166",
                             .max_tokens = 4,
                             .text = "a\xEF\xBF\xBD",
                             .n_ids = 4,
                             .finish = QUERN_FINISH_LENGTH};
    check(*state, &x, a);
    assert_int_equal(a->text_end[3], 4);
    free(a);
}

static void test_STR_03_text_that_may_become_a_stop_string_is_held(void **state)
{
    struct qn_answer *a = answer();
    static const char *const stop[] = {"DEFGHIJ"};
    const struct expect x = {.script = "68,69,70,71,72,73,74",
                             .stop = stop,
                             .n_stop = 1,
                             .max_tokens = 100,
                             .text = "",
                             .n_ids = 7,
                             .finish = QUERN_FINISH_STOP};
    check(*state, &x, a);
    assert_int_equal(a->n_text_deltas, 0);
    assert_string_equal(a->stop_string, "DEFGHIJ");
    assert_int_equal(a->stop_id, -1);
    // It did not become one: everything comes out, at the end at the latest.
    const struct expect y = {.script = "68,69,70,88,68,69",
                             .stop = stop,
                             .n_stop = 1,
                             .max_tokens = 6,
                             .text = "DEFXDE",
                             .n_ids = 6,
                             .finish = QUERN_FINISH_LENGTH};
    check(*state, &y, a);
    // What is kept anyway need not be held.
    const struct expect z = {.script = "68,69,70,71,72,73,74",
                             .stop = stop,
                             .n_stop = 1,
                             .include_stop = true,
                             .max_tokens = 100,
                             .text = "DEFGHIJ",
                             .n_ids = 7,
                             .finish = QUERN_FINISH_STOP};
    check(*state, &z, a);
    assert_true(a->n_text_deltas > 1);
    free(a);
}

static void test_STR_04_stop_strings_match_text(void **state)
{
    struct qn_answer *a = answer();
    static const char *const stop[] = {"el"};
    struct expect x = {.script = "259",
                       .stop = stop,
                       .n_stop = 1,
                       .max_tokens = 9,
                       .text = "h",
                       .n_ids = 1,
                       .finish = QUERN_FINISH_STOP};
    check(*state, &x, a);
    x.include_stop = true;
    x.text = "hel";
    check(*state, &x, a);
    assert_int_equal(a->text_end[0], 3);
    free(a);
}

static void test_first_stop_string_of_the_list_wins(void **state)
{
    struct qn_answer *a = answer();
    static const char *const stop[] = {"lo", "el"};
    const struct expect x = {.script = "259", // "hello": el is further left, lo is first
                             .stop = stop,
                             .n_stop = 2,
                             .max_tokens = 9,
                             .text = "hel",
                             .n_ids = 1,
                             .finish = QUERN_FINISH_STOP};
    check(*state, &x, a);
    assert_string_equal(a->stop_string, "lo");
    // A stop string of several bytes per character.
    static const char *const wide[] = {"\xF0\x9F\xA6\x99!"};
    const struct expect y = {.script = "97,240,159,166,153,33",
                             .stop = wide,
                             .n_stop = 1,
                             .max_tokens = 12,
                             .text = "a",
                             .n_ids = 6,
                             .finish = QUERN_FINISH_STOP};
    check(*state, &y, a);
    free(a);
}

static void test_stop_strings_wait_for_min_tokens(void **state)
{
    struct qn_answer *a = answer();
    static const char *const stop[] = {"b"};
    const struct expect x = {.script = "97,98", // abababab
                             .stop = stop,
                             .n_stop = 1,
                             .max_tokens = 20,
                             .min_tokens = 4,
                             .text = "ababa",
                             .n_ids = 6,
                             .finish = QUERN_FINISH_STOP};
    check(*state, &x, a);
    free(a);
}

static void test_STR_05_empty_stop_strings_are_refused(void **state)
{
    struct quern_engine *e = qn_fixture_script_engine("97", *state, TB_VOCAB, NULL, 0);
    static const char *const stop[] = {"x", ""}, *const half[] = {"\xF0\x9F"};
    struct expect x = {.stop = stop, .n_stop = 2, .max_tokens = 2};
    struct quern_request_params p = params_of(&x);
    struct quern_request *r = NULL;
    struct quern_error err = {0};
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    assert_string_equal(err.param, "stop");
    assert_string_equal(err.message, "stop: string 1 has 0 bytes, expected 1 to 4096");
    p.sampling.stop = half;
    p.sampling.n_stop = 1;
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    p.sampling.n_stop = 65;
    assert_int_equal(quern_engine_submit(e, &p, &r, &err), QUERN_E_INVALID);
    assert_null(r);
    struct qn_answer *a = answer();
    p.sampling.n_stop = 0; // none
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a->n_ids, 2);
    p.sampling.stop = stop; // a list of one
    p.sampling.n_stop = 1;
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a->n_ids, 2);
    quern_engine_free(e);
    free(a);
}

static void test_STR_08_length_or_stop(void **state)
{
    struct qn_answer *a = answer();
    const struct expect x = {.script = "97,98,99",
                             .max_tokens = 3,
                             .text = "abc",
                             .n_ids = 3,
                             .finish = QUERN_FINISH_LENGTH};
    check(*state, &x, a);
    assert_int_equal(a->stop_id, -1);
    const struct expect y = {.script = "97,98,0",
                             .max_tokens = 3,
                             .text = "ab",
                             .n_ids = 3,
                             .finish = QUERN_FINISH_STOP};
    check(*state, &y, a);
    assert_int_equal(a->stop_id, 0);
    assert_true(a->stop_was_eos);
    assert_int_equal(a->text_end[2], 2);
    const struct expect z = {.script = "97,98,0",
                             .max_tokens = 5,
                             .ignore_eos = true,
                             .text = "ab",
                             .n_ids = 5,
                             .finish = QUERN_FINISH_LENGTH};
    // NUL is a byte like any other here.
    struct quern_request_params p = params_of(&z);
    struct quern_engine *e = qn_fixture_script_engine("97,98,0", *state, TB_VOCAB, NULL, 0);
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a->finish, QUERN_FINISH_LENGTH);
    assert_int_equal(a->n_text, 5);
    assert_memory_equal(a->text, "ab\0ab", 5);
    quern_engine_free(e);
    free(a);
}

static void test_STR_09_every_end_token_ends(void **state)
{
    static const int32_t eos[] = {1, 106};
    struct qn_answer *a = answer();
    const struct expect x = {.script = "97,106,97",
                             .max_tokens = 10,
                             .text = "a",
                             .n_ids = 2,
                             .finish = QUERN_FINISH_STOP};
    check_eos(*state, TB_VOCAB, eos, 2, &x, a);
    assert_int_equal(a->stop_id, 106);
    assert_true(a->stop_was_eos);
    // A stop id of the request does the same, and its text stays when asked for.
    static const int32_t ids[] = {98};
    struct expect y = {.script = "97,98,99",
                       .stop_ids = ids,
                       .n_stop_ids = 1,
                       .max_tokens = 10,
                       .text = "a",
                       .n_ids = 2,
                       .finish = QUERN_FINISH_STOP};
    check(*state, &y, a);
    assert_int_equal(a->stop_id, 98);
    assert_false(a->stop_was_eos);
    y.include_stop = true;
    y.text = "ab";
    check(*state, &y, a);
    free(a);
}

static void test_min_tokens_mask_end_tokens(void **state)
{
    // The script wants EOS first; the next best is the lowest id.
    static const int32_t eos[] = {5};
    struct qn_answer *a = answer();
    const struct expect x = {.script = "5",
                             .max_tokens = 10,
                             .min_tokens = 3,
                             .text = "AAA",
                             .n_ids = 4,
                             .finish = QUERN_FINISH_STOP};
    struct quern_request_params p = params_of(&x);
    static const int32_t allowed[] = {5, 65};
    p.sampling.allowed_ids = allowed;
    p.sampling.n_allowed = 2;
    struct quern_engine *e = qn_fixture_script_engine("5", *state, TB_VOCAB, eos, 1);
    qn_fixture_ask(e, &p, a);
    check_answer(a, &x);
    quern_engine_free(e);
    free(a);
}

static void test_TOK_12_padded_ids_are_empty_text(void **state)
{
    (void)state;
    struct qn_tok *ts = qn_fixture_load(qn_fixture_ts());
    struct qn_answer *a = answer();
    static const int32_t eos[] = {1};
    const struct expect x = {.script = "265,279,265",
                             .max_tokens = 3,
                             .text = " ab ab",
                             .n_ids = 3,
                             .finish = QUERN_FINISH_LENGTH};
    check_eos(ts, TS_VOCAB, eos, 1, &x, a);
    static const char *const stop[] = {"b a"};
    const struct expect y = {.script = "265,279,265",
                             .stop = stop,
                             .n_stop = 1,
                             .max_tokens = 9,
                             .text = " a",
                             .n_ids = 3,
                             .finish = QUERN_FINISH_STOP};
    check_eos(ts, TS_VOCAB, eos, 1, &y, a);
    qn_tok_free(ts);
    free(a);
}

static void test_max_tokens_zero_is_the_prompt_alone(void **state)
{
    struct qn_answer *a = calloc(2, sizeof *a);
    assert_non_null(a);
    const struct expect x = {.max_tokens = 0};
    struct quern_request_params p = params_of(&x);
    p.n = 2;
    struct quern_engine *e = qn_fixture_script_engine("98", *state, TB_VOCAB, NULL, 0);
    qn_fixture_ask(e, &p, a);
    assert_int_equal(a[0].finish, QUERN_FINISH_LENGTH);
    assert_int_equal(a[1].finish, QUERN_FINISH_LENGTH);
    assert_int_equal(a[0].n_ids + a[1].n_ids, 0);
    p.sampling.prompt_logprobs = 1;
    memset(a, 0, 2 * sizeof *a);
    struct quern_request *r = qn_fixture_submit(e, &p);
    qn_fixture_collect(e, r, a);
    assert_int_equal(a[1].finish, QUERN_FINISH_LENGTH);
    const struct quern_logprob *lp = quern_request_prompt_logprobs(r);
    assert_non_null(lp);
    assert_int_equal(lp[2].id, 98);
    assert_int_equal(lp[2].rank, 1);
    assert_int_equal(lp[3].id, 98);
    assert_true(lp[2].logprob == lp[3].logprob); // one value, whichever list shows it
    quern_request_free(e, r);
    qn_fixture_at_rest(e);
    quern_engine_free(e);
    free(a);
}

static void test_scripts_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "x", "1,", "265", "1;2", "1@x", "-1", "1@5x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct qn_backend b;
        struct qn_err err = {0};
        assert_int_equal(qn_backend_script_new(bad[i], TB_VOCAB, &b, &err), QN_E_INVALID);
        assert_non_null(strstr(err.msg, "QUERN_TEST_SCRIPT"));
    }
}

static int setup(void **state)
{
    *state = qn_fixture_load(qn_fixture_tb());
    return 0;
}

static int teardown(void **state)
{
    qn_tok_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_STR_01_partial_characters_are_held),
        cmocka_unit_test(test_STR_02_an_end_inside_a_character),
        cmocka_unit_test(test_STR_03_text_that_may_become_a_stop_string_is_held),
        cmocka_unit_test(test_STR_04_stop_strings_match_text),
        cmocka_unit_test(test_first_stop_string_of_the_list_wins),
        cmocka_unit_test(test_stop_strings_wait_for_min_tokens),
        cmocka_unit_test(test_STR_05_empty_stop_strings_are_refused),
        cmocka_unit_test(test_STR_08_length_or_stop),
        cmocka_unit_test(test_STR_09_every_end_token_ends),
        cmocka_unit_test(test_min_tokens_mask_end_tokens),
        cmocka_unit_test(test_TOK_12_padded_ids_are_empty_text),
        cmocka_unit_test(test_max_tokens_zero_is_the_prompt_alone),
        cmocka_unit_test(test_scripts_are_checked),
    };
    return cmocka_run_group_tests_name("stream", tests, setup, teardown);
}
