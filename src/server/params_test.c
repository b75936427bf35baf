#include "server/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

void quern_sampling_init(struct quern_sampling *s)
{
    *s = (struct quern_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

static struct qn_rules rules(void)
{
    struct qn_rules r;
    qn_rules_init(&r);
    r.vocab_size = 1000;
    r.max_model_len = 4096;
    return r;
}

// Parse BODY and compare: NULL expects success, else the error's param.
static struct qn_params check(const char *body, bool chat, const char *param)
{
    struct qn_rules r = rules();
    struct qn_params p;
    struct qn_api_error e = {0};
    json_t *v = json_loads(body, 0, NULL);
    assert_non_null(v);
    bool ok = qn_params_parse(v, chat, &r, &p, &e);
    if (ok != (param == NULL) || (param != NULL && strcmp(e.param, param) != 0)) {
        fail_msg("%s: found %s (%s), expected %s", body, ok ? "success" : e.param, e.message,
                 param != NULL ? param : "success");
    }
    if (!ok) {
        assert_int_equal(e.status, 400);
        assert_string_equal(qn_api_error_type(e.status), "invalid_request_error");
        assert_true(strlen(e.message) > 0);
    }
    struct qn_params scalars = p;
    qn_params_done(&p);
    json_decref(v);
    return scalars; // pointers in it are gone
}

struct row {
    const char *body;
    bool ok_chat, ok_completions;
    const char *param;
};

// clang-format off
static const struct row rows[] = {
    {"{}", true, true, ""},
    {"{\"temperature\": 0}", true, true, ""},
    {"{\"temperature\": 2}", true, true, ""},
    {"{\"temperature\": 2.001}", false, false, "temperature"},
    {"{\"temperature\": -0.001}", false, false, "temperature"},
    {"{\"temperature\": \"1\"}", false, false, "temperature"},
    {"{\"temperature\": true}", false, false, "temperature"},
    {"{\"temperature\": null}", true, true, ""},
    {"{\"top_p\": 0}", true, true, ""},
    {"{\"top_p\": 1}", true, true, ""},
    {"{\"top_p\": 1.001}", false, false, "top_p"},
    {"{\"top_p\": -0.001}", false, false, "top_p"},
    {"{\"top_k\": -1}", true, true, ""},
    {"{\"top_k\": 0}", true, true, ""},
    {"{\"top_k\": 1000000000}", true, true, ""},
    {"{\"top_k\": -2}", false, false, "top_k"},
    {"{\"top_k\": 1.5}", false, false, "top_k"},
    {"{\"min_p\": 0}", true, true, ""},
    {"{\"min_p\": 1}", true, true, ""},
    {"{\"min_p\": 1.001}", false, false, "min_p"},
    {"{\"min_p\": -0.001}", false, false, "min_p"},
    {"{\"presence_penalty\": -2, \"frequency_penalty\": 2}", true, true, ""},
    {"{\"presence_penalty\": 2.001}", false, false, "presence_penalty"},
    {"{\"presence_penalty\": -2.001}", false, false, "presence_penalty"},
    {"{\"frequency_penalty\": 2.001}", false, false, "frequency_penalty"},
    {"{\"frequency_penalty\": -2.001}", false, false, "frequency_penalty"},
    {"{\"repetition_penalty\": 0.001}", true, true, ""},
    {"{\"repetition_penalty\": 0}", false, false, "repetition_penalty"},
    {"{\"repetition_penalty\": -1}", false, false, "repetition_penalty"},
    {"{\"seed\": -1}", true, true, ""},
    {"{\"seed\": -9223372036854775807}", true, true, ""},
    {"{\"seed\": 9223372036854775807}", true, true, ""},
    {"{\"seed\": 1.5}", false, false, "seed"},
    {"{\"seed\": true}", false, false, "seed"},
    {"{\"stop\": \"a\"}", true, true, ""},
    {"{\"stop\": []}", true, true, ""},
    {"{\"stop\": [\"a\", \"b\"]}", true, true, ""},
    {"{\"stop\": \"\"}", false, false, "stop"},
    {"{\"stop\": [\"a\", \"\"]}", false, false, "stop[1]"},
    {"{\"stop\": 5}", false, false, "stop"},
    {"{\"stop_token_ids\": [0, 999]}", true, true, ""},
    {"{\"stop_token_ids\": [1000]}", false, false, "stop_token_ids[0]"},
    {"{\"stop_token_ids\": [-1]}", false, false, "stop_token_ids[0]"},
    {"{\"stop_token_ids\": 5}", false, false, "stop_token_ids"},
    {"{\"include_stop_str_in_output\": true, \"ignore_eos\": true}", true, true, ""},
    {"{\"include_stop_str_in_output\": 1}", false, false, "include_stop_str_in_output"},
    {"{\"ignore_eos\": \"yes\"}", false, false, "ignore_eos"},
    {"{\"min_tokens\": 16, \"max_tokens\": 16}", true, true, ""},
    {"{\"min_tokens\": 17, \"max_tokens\": 16}", false, false, "min_tokens"},
    {"{\"min_tokens\": -1}", false, false, "min_tokens"},
    {"{\"min_tokens\": 4097, \"max_tokens\": 9999}", false, false, "min_tokens"},
    {"{\"n\": 1}", true, true, ""},
    {"{\"n\": 128}", true, true, ""},
    {"{\"n\": 129}", false, false, "n"},
    {"{\"n\": 0}", false, false, "n"},
    {"{\"n\": 2, \"best_of\": 2}", true, true, ""},
    {"{\"n\": 2, \"best_of\": 3}", false, true, "best_of"},
    {"{\"n\": 2, \"best_of\": 1}", false, false, "best_of"},
    {"{\"best_of\": 129}", false, false, "best_of"},
    {"{\"best_of\": 2, \"stream\": true}", false, false, "best_of"},
    {"{\"logit_bias\": {\"0\": 1, \"999\": -1.5}}", true, true, ""},
    {"{\"logit_bias\": {\"1000\": 1}}", false, false, "logit_bias"},
    {"{\"logit_bias\": {\"-1\": 1}}", false, false, "logit_bias"},
    {"{\"logit_bias\": {\"01\": 1}}", false, false, "logit_bias"},
    {"{\"logit_bias\": {\"1\": \"a\"}}", false, false, "logit_bias"},
    {"{\"allowed_token_ids\": [0]}", true, true, ""},
    {"{\"allowed_token_ids\": []}", false, false, "allowed_token_ids"},
    {"{\"allowed_token_ids\": [1000]}", false, false, "allowed_token_ids[0]"},
    {"{\"bad_words\": []}", true, true, ""},
    {"{\"bad_words\": [\"\"]}", false, false, "bad_words"},
    {"{\"logprob_token_ids\": [1]}", false, false, "logprob_token_ids"},
    {"{\"prompt_logprobs\": 0}", true, true, ""},
    {"{\"prompt_logprobs\": 20}", true, true, ""},
    {"{\"prompt_logprobs\": 21}", false, false, "prompt_logprobs"},
    {"{\"prompt_logprobs\": -1}", false, false, "prompt_logprobs"},
    {"{\"prompt_logprobs\": 1, \"stream\": true}", false, false, "prompt_logprobs"},
    {"{\"skip_special_tokens\": false, \"spaces_between_special_tokens\": false}", true, true, ""},
    {"{\"skip_special_tokens\": 0}", false, false, "skip_special_tokens"},
    {"{\"spaces_between_special_tokens\": 0}", false, false, "spaces_between_special_tokens"},
    {"{\"truncate_prompt_tokens\": -1}", true, true, ""},
    {"{\"truncate_prompt_tokens\": 4096}", true, true, ""},
    {"{\"truncate_prompt_tokens\": 4097}", false, false, "truncate_prompt_tokens"},
    {"{\"truncate_prompt_tokens\": -2}", false, false, "truncate_prompt_tokens"},
    {"{\"truncation_side\": \"right\"}", true, true, ""},
    {"{\"truncation_side\": \"middle\"}", false, false, "truncation_side"},
    {"{\"add_special_tokens\": true}", true, true, ""},
    {"{\"add_special_tokens\": 1}", false, false, "add_special_tokens"},
    {"{\"stream\": true, \"stream_options\": {\"include_usage\": true}}", true, true, ""},
    {"{\"stream\": 1}", false, false, "stream"},
    {"{\"stream_options\": {}}", false, false, "stream_options"},
    {"{\"stream\": true, \"stream_options\": 1}", false, false, "stream_options"},
    {"{\"stream\": true, \"stream_options\": {\"include_usage\": 1}}", false, false,
     "include_usage"},
    {"{\"stream_interval\": 1}", true, true, ""},
    {"{\"stream_interval\": 0}", false, false, "stream_interval"},
    {"{\"response_format\": {\"type\": \"text\"}}", true, true, ""},
    {"{\"response_format\": {\"type\": \"json_object\"}}", false, false, "response_format"},
    {"{\"structured_outputs\": {}}", false, false, "structured_outputs"},
    {"{\"guided_json\": {}}", false, false, "guided_json"},
    {"{\"priority\": -5}", true, true, ""},
    {"{\"priority\": \"high\"}", false, false, "priority"},
    {"{\"request_id\": 5}", false, false, "request_id"},
    {"{\"cache_salt\": \"s\"}", true, true, ""},
    {"{\"cache_salt\": \"\"}", false, false, "cache_salt"},
    {"{\"cache_salt\": \"a/b\"}", false, false, "cache_salt"},
    {"{\"return_token_ids\": 1}", false, false, "return_token_ids"},
    {"{\"return_tokens_as_token_ids\": 1}", false, false, "return_tokens_as_token_ids"},
    {"{\"repetition_detection\": {}}", false, false, "repetition_detection"},
    {"{\"thinking_token_budget\": -1}", true, true, ""},
    {"{\"thinking_token_budget\": 0}", false, false, "thinking_token_budget"},
    {"{\"use_beam_search\": false, \"length_penalty\": 1.0}", true, true, ""},
    {"{\"use_beam_search\": true}", false, false, "use_beam_search"},
    {"{\"length_penalty\": 0.5}", false, false, "length_penalty"},
    {"{\"model\": 5}", false, false, "model"},
    {"{\"max_tokens\": 0}", false, true, "max_tokens"},
    {"{\"max_tokens\": 1}", true, true, ""},
    {"{\"max_tokens\": -1}", false, false, "max_tokens"},
    {"{\"max_tokens\": 1.5}", false, false, "max_tokens"},
    {"{\"max_completion_tokens\": 0}", false, true, "max_completion_tokens"},
    {"{\"logprobs\": true}", true, false, "logprobs"},
    {"{\"logprobs\": 20}", false, true, "logprobs"},
    {"{\"logprobs\": 21}", false, false, "logprobs"},
    {"{\"logprobs\": true, \"top_logprobs\": 20}", true, false, "logprobs"},
    {"{\"logprobs\": true, \"top_logprobs\": 21}", false, false, NULL},
    {"{\"top_logprobs\": 1}", false, true, "top_logprobs"},
    {"{\"top_logprobs\": \"5\"}", false, true, "top_logprobs"},
    {"{\"echo\": \"yes\"}", false, false, "echo"},
};
// clang-format on

static void test_table_of_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        const char *chat = r->param != NULL ? r->param : "top_logprobs";
        const char *completions = r->param != NULL ? r->param : "logprobs";
        check(r->body, true, r->ok_chat ? NULL : chat);
        check(r->body, false, r->ok_completions ? NULL : completions);
    }
}

static void test_values(void **state)
{
    (void)state;
    struct qn_params p = check("{}", false, NULL);
    assert_true(p.has_max_tokens);
    assert_int_equal(p.max_tokens, 16);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.sampling.logprobs, -1);
    assert_false(p.sampling.has_seed);
    p = check("{}", true, NULL);
    assert_false(p.has_max_tokens);
    p = check("{\"max_tokens\": 9, \"max_completion_tokens\": 5}", true, NULL);
    assert_int_equal(p.max_tokens, 5);
    p = check("{\"seed\": 7}", true, NULL);
    assert_true(p.sampling.has_seed);
    assert_int_equal(p.sampling.seed, 7);
    p = check("{\"logprobs\": true}", true, NULL);
    assert_int_equal(p.sampling.logprobs, 0);
    p = check("{\"logprobs\": 5}", false, NULL);
    assert_int_equal(p.sampling.logprobs, 5);
}

static void test_SMP_03_temperature_near_zero(void **state)
{
    (void)state;
    assert_true(check("{\"temperature\": 1e-12}", true, NULL).sampling.temperature <= 0);
    assert_true(check("{\"temperature\": 9e-6}", true, NULL).sampling.temperature <= 0);
    double t = check("{\"temperature\": 0.001}", true, NULL).sampling.temperature;
    assert_true(t > 0.0099 && t < 0.0101);
}

static void test_SMP_07_bias_is_clamped(void **state)
{
    (void)state;
    struct qn_rules r = rules();
    struct qn_params p;
    struct qn_api_error e = {0};
    json_t *v = json_loads("{\"logit_bias\": {\"3\": 1e9, \"4\": -500, \"5\": 2}}", 0, NULL);
    assert_true(qn_params_parse(v, false, &r, &p, &e));
    assert_int_equal(p.sampling.n_bias, 3);
    for (size_t i = 0; i < 3; i++) {
        float want = p.sampling.bias_ids[i] == 3 ? 100 : p.sampling.bias_ids[i] == 4 ? -100 : 2;
        assert_true(p.sampling.bias[i] >= want && p.sampling.bias[i] <= want);
    }
    qn_params_done(&p);
    json_decref(v);
}

static void test_operator_rules(void **state)
{
    (void)state;
    struct qn_rules r = rules();
    struct qn_params p;
    struct qn_api_error e = {0};
    r.max_logprobs = -1;
    r.cap_new_tokens = 10;
    r.temperature = 0.5;
    json_t *v = json_loads("{\"max_tokens\": 100, \"logprobs\": -1}", 0, NULL);
    assert_true(qn_params_parse(v, false, &r, &p, &e));
    assert_int_equal(p.max_tokens, 10);
    assert_int_equal(p.sampling.logprobs, 1000);
    assert_true(p.sampling.temperature > 0.49 && p.sampling.temperature < 0.51);
    qn_params_done(&p);
    json_decref(v);
}

static void test_long_values_are_cut(void **state)
{
    (void)state;
    struct qn_rules r = rules();
    struct qn_params p;
    struct qn_api_error e = {0};
    char text[5000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    json_t *v = json_pack("{s:s}", "temperature", text);
    assert_false(qn_params_parse(v, true, &r, &p, &e));
    assert_true(strlen(e.message) < 200);
    qn_params_done(&p);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_of_fields),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_SMP_03_temperature_near_zero),
        cmocka_unit_test(test_SMP_07_bias_is_clamped),
        cmocka_unit_test(test_operator_rules),
        cmocka_unit_test(test_long_values_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
