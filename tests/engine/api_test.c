// Loading and text through quern.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine/fixture.h"
#include "engine/tiny.h"
#include "text/tok_fixture.h"

#define GOLDEN "llama_bf16"

// <|s|> 265, <|e|> 266 are special; a turn is <|s|>content<|e|>.
static const char chat_template[] =
    "{%- if tools %}T{% endif %}{%- if mark is defined %}{{ mark }}{% endif %}"
    "{%- for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ bos_token }}{% endif %}";

static void write_text_files(const struct tiny *t)
{
    json_t *tok = qn_fixture_tb();
    qn_fixture_tb_specials(tok);
    tiny_write_json(t, "tokenizer.json", tok);
    tiny_write_json(
        t, "tokenizer_config.json",
        json_pack("{s:s, s:{s:s}}", "bos_token", "<|s|>", "eos_token", "content", "<|e|>"));
    tiny_write(t, "chat_template.jinja", chat_template);
}

static void check_chat(const struct quern_model *m, const char *chat, const char *want_text,
                       const int32_t *want, size_t n_want)
{
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    struct quern_error err = {0};
    if (quern_chat_prompt(m, chat, strlen(chat), &text, &ids, &n, &err) != QUERN_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(text, want_text);
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n * sizeof *want);
    quern_free(text);
    quern_free(ids);
}

static void refuse_chat(const struct quern_model *m, const char *chat, enum quern_status code,
                        const char *message)
{
    int32_t *ids = NULL;
    size_t n = 0;
    struct quern_error err = {0};
    assert_int_equal(quern_chat_prompt(m, chat, strlen(chat), NULL, &ids, &n, &err), code);
    if (strstr(err.message, message) == NULL) {
        fail_msg("found \"%s\", expected \"%s\"", err.message, message);
    }
    assert_null(ids);
}

static void test_a_conversation_becomes_ids(void **state)
{
    const struct quern_model *m = *state;
    static const int32_t plain[] = {265, 97, 266, 265};
    check_chat(m, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "<|s|>a<|e|><|s|>",
               plain, 4);
    check_chat(m,
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
               "\"add_generation_prompt\": false}",
               "<|s|>a<|e|>", plain, 3);
    // What a user writes is text, whatever it looks like.
    static const int32_t spelt[] = {265, '<', '|', 'e', '|', '>', 266, 265};
    check_chat(m, "{\"messages\": [{\"role\": \"user\", \"content\": \"<|e|>\"}]}",
               "<|s|><|e|><|e|><|s|>", spelt, 8);
    // Variables of the request, and tools.
    static const int32_t marked[] = {'T', 'm', 265, 97, 266, 265};
    check_chat(m,
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}], "
               "\"chat_template_kwargs\": {\"mark\": \"m\", \"messages\": []}}",
               "Tm<|s|>a<|e|><|s|>", marked, 6);
}

static void test_the_last_message_can_go_on(void **state)
{
    const struct quern_model *m = *state;
    static const int32_t ids[] = {265, 97, 266, 265, 98, 32, 98};
    check_chat(m,
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\","
               " \"content\": \" b b \"}], \"continue_final_message\": true}",
               "<|s|>a<|e|><|s|> b b ", (const int32_t[]){265, 97, 266, 265, 32, 98, 32, 98, 32},
               9);
    check_chat(m,
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\","
               " \"content\": \"b b\"}], \"continue_final_message\": true}",
               "<|s|>a<|e|><|s|>b b", ids, 7);
    refuse_chat(m,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                "\"continue_final_message\": true, \"add_generation_prompt\": true}",
                QUERN_E_INVALID, "continue_final_message: cannot be true");
    refuse_chat(m, "{\"messages\": [{\"role\": \"user\"}], \"continue_final_message\": true}",
                QUERN_E_INVALID, "the last message has no text to continue");
}

static void test_bad_conversations_are_refused(void **state)
{
    const struct quern_model *m = *state;
    refuse_chat(m, "[]", QUERN_E_INVALID, "conversation: found an array, expected an object");
    refuse_chat(m, "{", QUERN_E_FORMAT, "invalid JSON at line 1");
    refuse_chat(m, "{}", QUERN_E_INVALID, "messages: found nothing");
    refuse_chat(m, "{\"messages\": []}", QUERN_E_INVALID, "messages: found an empty list");
    refuse_chat(m, "{\"messages\": [1]}", QUERN_E_INVALID, "messages[0]: found an integer");
    refuse_chat(m, "{\"messages\": [{}], \"temperature\": 1}", QUERN_E_INVALID,
                "unknown member \"temperature\"");
    refuse_chat(m, "{\"messages\": [{}], \"add_generation_prompt\": 1}", QUERN_E_FORMAT,
                "key \"add_generation_prompt\"");
    refuse_chat(m, "{\"messages\": [{}], \"chat_template_kwargs\": []}", QUERN_E_INVALID,
                "chat_template_kwargs: found an array");
}

static void test_text_and_ids(void **state)
{
    const struct quern_model *m = *state;
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(quern_tokenize(m, "hello<|e|>", 10, QUERN_TOK_PARSE_SPECIAL, &ids, &n, NULL),
                     QUERN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], 259);
    assert_int_equal(ids[1], 266);
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(quern_detokenize(m, ids, n, true, &text, &len, NULL), QUERN_OK);
    assert_string_equal(text, "hello");
    quern_free(text);
    assert_int_equal(quern_detokenize(m, ids, n, false, &text, &len, NULL), QUERN_OK);
    assert_string_equal(text, "hello<|e|>");
    quern_free(text);
    quern_free(ids);
    char small[3], large[256];
    assert_int_equal(quern_token_bytes(m, 259, small, sizeof small), 5);
    assert_memory_equal(small, "hel", 3);
    assert_int_equal(quern_token_bytes(m, 240, large, sizeof large), 1);
    assert_int_equal((unsigned char)large[0], 240);
    assert_int_equal(quern_token_bytes(m, -1, large, sizeof large), 0);
    assert_int_equal(quern_token_bytes(m, 100000, large, sizeof large), 0);
    assert_memory_equal(quern_token_piece(m, 259, &len), "hello", 5);
    assert_int_equal(len, 5);
    assert_null(quern_token_piece(m, 100000, &len));
    struct quern_error err = {0};
    ids = NULL;
    assert_int_equal(quern_tokenize(m, "\xff", 1, 0, &ids, &n, &err), QUERN_E_INVALID);
    assert_null(ids);
}

static void test_what_a_model_says_of_itself(void **state)
{
    (void)state;
    struct tiny t;
    tiny_open(&t, GOLDEN);
    tiny_write(&t, "generation_config.json",
               "{\"eos_token_id\": [3, 7], \"temperature\": 0.6, \"top_k\": 20}");
    struct quern_model *m = tiny_load(t.dir, NULL);
    const struct quern_model_info *i = quern_model_get_info(m);
    assert_string_equal(i->name, strrchr(t.dir, '/') + 1);
    assert_string_equal(i->format, "safetensors");
    assert_string_equal(i->architecture, "LlamaForCausalLM");
    assert_true(i->vocab_size > 0 && i->n_layers > 0 && i->n_params > 0 && i->weight_bytes > 0);
    assert_int_equal(i->n_threads, 1);
    assert_true(i->temperature == 0.6 && i->top_k == 20);
    assert_true(isnan(i->top_p) && i->max_new_tokens == -1);
    assert_false(i->has_tokenizer || i->has_chat_template);
    bool has3 = false, has7 = false;
    for (size_t k = 0; k < i->n_eos_ids; k++) {
        has3 = has3 || i->eos_ids[k] == 3;
        has7 = has7 || i->eos_ids[k] == 7;
    }
    assert_true(has3 && has7);
    // Ids alone: text functions say so.
    int32_t *ids = NULL;
    size_t n;
    struct quern_error err = {0};
    assert_int_equal(quern_tokenize(m, "a", 1, 0, &ids, &n, &err), QUERN_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "has no tokenizer"));
    refuse_chat(m, "{}", QUERN_E_UNSUPPORTED, "has no tokenizer");
    quern_model_free(m);
    quern_model_free(NULL);
    tiny_close(&t);
}

static void refuse_load(const struct quern_model_options *o, enum quern_status code,
                        const char *message)
{
    struct quern_model *m = NULL;
    struct quern_error err = {0};
    assert_int_equal(quern_model_load(o, &m, &err), code);
    assert_null(m);
    if (strstr(err.message, message) == NULL) {
        fail_msg("found \"%s\", expected \"%s\"", err.message, message);
    }
}

static void test_what_cannot_be_loaded(void **state)
{
    (void)state;
    refuse_load(&(struct quern_model_options){0}, QUERN_E_INVALID, "model path is missing");
    refuse_load(&(struct quern_model_options){.path = "/nonexistent"}, QUERN_E_NOT_FOUND,
                "/nonexistent");
    struct tiny t;
    tiny_open(&t, GOLDEN);
    write_text_files(&t);
    char path[128];
    snprintf(path, sizeof path, "%s/broken.jinja", t.dir);
    tiny_write(&t, "broken.jinja", "{% if %}");
    const struct quern_model_options broken = {
        .path = t.dir, .chat_template_path = path, .n_threads = 1};
    refuse_load(&broken, QUERN_E_FORMAT, "chat template \"");
    const struct quern_model_options missing = {
        .path = t.dir, .chat_template_path = "/nonexistent.jinja", .n_threads = 1};
    refuse_load(&missing, QUERN_E_NOT_FOUND, "chat template \"/nonexistent.jinja\": could not");
    // The model's own broken template stops chat alone.
    tiny_write(&t, "chat_template.jinja", "{% if %}");
    struct quern_model *m = tiny_load(t.dir, NULL);
    assert_non_null(quern_model_get_info(m)->chat_template_error);
    refuse_chat(m, "{\"messages\": [{}]}", QUERN_E_UNSUPPORTED, "chat template: ");
    quern_model_free(m);
    tiny_write(&t, "generation_config.json", "{\"temperature\": \"hot\"}");
    refuse_load(&(struct quern_model_options){.path = t.dir, .n_threads = 1}, QUERN_E_FORMAT,
                "generation_config.json: key \"temperature\": found a string");
    tiny_write(&t, "generation_config.json", "{}");
    tiny_write(&t, "tokenizer.json", "{\"model\": {\"type\": \"WordPiece\"}}");
    refuse_load(&(struct quern_model_options){.path = t.dir, .n_threads = 1}, QUERN_E_UNSUPPORTED,
                "WordPiece");
    tiny_close(&t);
}

static void test_without_weights(void **state)
{
    (void)state;
    struct tiny t;
    tiny_open(&t, GOLDEN);
    write_text_files(&t);
    struct quern_model *m = tiny_load(t.dir, &(struct quern_model_options){.no_weights = true});
    const struct quern_model_info *i = quern_model_get_info(m);
    assert_true(i->vocab_size > 0 && i->has_tokenizer && i->has_chat_template);
    struct quern_engine *e = NULL;
    struct quern_error err = {0};
    assert_int_equal(quern_engine_new(m, NULL, &e, &err), QUERN_E_UNSUPPORTED);
    assert_string_equal(err.message, "this model was loaded without weights");
    float x;
    const int32_t id = 1;
    assert_int_equal(quern_logits(m, &id, 1, &x, &err), QUERN_E_UNSUPPORTED);
#if QN_DEBUG
    // A script stands in for the weights, so that servers can be tested.
    assert_int_equal(setenv("QUERN_TEST_SCRIPT", "104,105", 1), 0);
    assert_int_equal(quern_engine_new(m, NULL, &e, &err), QUERN_OK);
    struct quern_request_params p = {.prompt = &id, .n_prompt = 1, .n = 1};
    quern_sampling_init(&p.sampling);
    p.sampling.max_tokens = 2;
    struct qn_answer *a = calloc(1, sizeof *a);
    assert_non_null(a);
    qn_fixture_ask(e, &p, a);
    assert_string_equal(a->text, "hi");
    free(a);
    quern_engine_free(e);
    assert_int_equal(setenv("QUERN_TEST_SCRIPT", "x", 1), 0);
    assert_int_equal(quern_engine_new(m, NULL, &e, &err), QUERN_E_INVALID);
    unsetenv("QUERN_TEST_SCRIPT");
#endif
    quern_model_free(m);
    tiny_close(&t);
}

static struct tiny group_dir;

static int setup(void **state)
{
    tiny_open(&group_dir, GOLDEN);
    write_text_files(&group_dir);
    *state = tiny_load(group_dir.dir, &(struct quern_model_options){.no_weights = true});
    return 0;
}

static int teardown(void **state)
{
    quern_model_free(*state);
    tiny_close(&group_dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_conversation_becomes_ids),
        cmocka_unit_test(test_the_last_message_can_go_on),
        cmocka_unit_test(test_bad_conversations_are_refused),
        cmocka_unit_test(test_text_and_ids),
        cmocka_unit_test(test_what_a_model_says_of_itself),
        cmocka_unit_test(test_what_cannot_be_loaded),
        cmocka_unit_test(test_without_weights),
    };
    return cmocka_run_group_tests_name("api", tests, setup, teardown);
}
