#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/chat.h"
#include "text/tmpl_fixture.h"

static json_t *parse(const char *text)
{
    json_t *j = NULL;
    assert_int_equal(qn_json_parse(text, strlen(text), 64, &j, NULL), QN_OK);
    return j;
}

// Normalise the messages and compare with what they should become.
static void check(const char *messages, bool wants_parts, const char *want)
{
    json_t *in = parse(messages), *before = json_deep_copy(in), *out = NULL,
           *expected = parse(want);
    struct qn_err err;
    assert_int_equal(qn_chat_normalise(in, wants_parts, &out, &err), QN_OK);
    if (!json_equal(out, expected)) {
        char *text = json_dumps(out, JSON_COMPACT);
        fail_msg("found %s, expected %s", text, want);
    }
    assert_true(json_equal(in, before));
    json_decref(in);
    json_decref(before);
    json_decref(out);
    json_decref(expected);
}

static void test_TPL_01_arguments_are_parsed(void **state)
{
    static const char source[] = "{% for k,v in messages[0].tool_calls[0].function.arguments|items "
                                 "%}{{k}}={{v}};{% endfor %}";
    (void)state;
    json_t *in =
        parse("[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
              "\"arguments\": \"{\\\"city\\\": \\\"Paris\\\"}\"}}]}]");
    json_t *out = NULL;
    struct qn_err err;
    assert_int_equal(qn_chat_normalise(in, false, &out, &err), QN_OK);
    json_t *context = json_pack("{s:o}", "messages", out);
    char *text = json_dumps(context, 0);
    check_text(source, text, "city=Paris;");
    json_decref(in);
    json_decref(context);
    free(text);
    check("[{\"tool_calls\": [{\"function\": {\"arguments\": \"[1]\"}}, {\"function\": "
          "{\"arguments\": \"no\"}}, {\"function\": {\"arguments\": \"\"}}, {\"function\": "
          "{\"arguments\": {\"a\": 1}}}, {\"name\": \"f\", \"arguments\": \"{}\"}, 5]}]",
          false,
          "[{\"tool_calls\": [{\"function\": {\"arguments\": \"[1]\"}}, {\"function\": "
          "{\"arguments\": \"no\"}}, {\"function\": {\"arguments\": \"\"}}, {\"function\": "
          "{\"arguments\": {\"a\": 1}}}, {\"name\": \"f\", \"arguments\": {}}, 5]}]");
}

static void test_text_parts(void **state)
{
    static const char parts[] = "[{\"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                                "{\"type\": \"text\", \"text\": \"b\"}]}]";
    static const char image[] = "[{\"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                                "{\"type\": \"image\"}]}]";
    (void)state;
    check(parts, false, "[{\"content\": \"a\\nb\"}]");
    check(parts, true, parts);
    check(image, false, image);
    check("[{\"content\": []}, {\"content\": null}, {}]", false,
          "[{\"content\": []}, {\"content\": null}, {}]");
}

static void test_reasoning_has_all_names(void **state)
{
    (void)state;
    check("[{\"reasoning\": \"r\"}, {\"reasoning_content\": \"c\", \"thinking\": \"t\"}, "
          "{\"reasoning_content\": null, \"thinking\": \"t\"}, {\"reasoning\": 5}]",
          false,
          "[{\"reasoning\": \"r\", \"reasoning_content\": \"r\", \"thinking\": \"r\"}, "
          "{\"reasoning_content\": \"c\", \"reasoning\": \"c\", \"thinking\": \"t\"}, "
          "{\"reasoning_content\": \"t\", \"reasoning\": \"t\", \"thinking\": \"t\"}, "
          "{\"reasoning\": 5}]");
}

static void test_bad_messages_are_refused(void **state)
{
    json_t *out = NULL, *object = json_object(), *numbers = json_pack("[{}, i]", 1);
    struct qn_err err;
    (void)state;
    assert_int_equal(qn_chat_normalise(object, false, &out, &err), QN_E_INVALID);
    assert_string_equal(err.msg, "messages: found an object, expected a list");
    assert_int_equal(qn_chat_normalise(numbers, false, &out, &err), QN_E_INVALID);
    assert_string_equal(err.msg, "messages[1]: found an integer, expected an object");
    assert_null(out);
    json_decref(object);
    json_decref(numbers);
}

static bool wants(const char *source)
{
    struct qn_tmpl *t = NULL;
    struct qn_err err;
    if (qn_tmpl_compile(source, strlen(source), &t, &err) != QN_OK) {
        fail_msg("%s", err.msg);
    }
    bool found = qn_tmpl_wants_parts(t);
    qn_tmpl_free(t);
    return found;
}

static void test_wants_parts(void **state)
{
    (void)state;
    assert_true(
        wants("{% for m in messages %}{% for p in m['content'] %}{% endfor %}{% endfor %}"));
    assert_true(
        wants("{% for m in messages[1:] %}{% for p in m.content %}{% endfor %}{% endfor %}"));
    assert_true(wants("{% set rest = messages %}{% for m in rest %}{% set c = m.get('content') %}"
                      "{% if c is string %}{{ c }}{% else %}{% for p in c %}{% endfor %}{% endif %}"
                      "{% endfor %}"));
    assert_true(wants("{% macro show(content) %}{% for p in content %}{{ p.text }}{% endfor %}"
                      "{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}"));
    assert_true(wants("{% set m = messages[0] %}{% for p in m.content %}{% endfor %}"));
    assert_false(wants("{% for m in messages %}{{ m.content }}{% endfor %}"));
    assert_false(
        wants("{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}"));
    assert_false(wants("{% for p in content %}{% endfor %}{% for m in messages %}{% endfor %}"));
    assert_false(wants("{% for m in messages %}{% for p in m.content.split('x') %}{% endfor %}"
                       "{% endfor %}"));
}

// Render messages with continue_final_message.
static void check_final(const char *source, const char *messages, const char *want)
{
    json_t *list = parse(messages);
    struct qn_err err;
    assert_int_equal(qn_chat_mark_final(list, &err), QN_OK);
    json_t *context = json_pack("{s:o}", "messages", list);
    char *text = json_dumps(context, 0);
    struct rendered r = render(source, text, NULL);
    assert_int_equal(r.rc, QN_OK);
    assert_int_equal(qn_chat_cut_final(&r.text, &r.plain, &err), QN_OK);
    assert_string_equal(r.text.data, want);
    assert_int_equal(r.plain.len, r.text.len);
    rendered_done(&r);
    json_decref(context);
    free(text);
}

static void test_TPL_09_continue_final_message(void **state)
{
    static const char chatml[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                                 "<|im_end|>\n{% endfor %}";
    static const char trims[] = "{% for m in messages %}[{{ m.content|trim }}]{% endfor %}";
    static const char last[] = "[{\"role\": \"user\", \"content\": \"q\"}, "
                               "{\"role\": \"assistant\", \"content\": \"The ans\"}]";
    (void)state;
    check_final(chatml, last, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe ans");
    // Text that the template's own markup repeats: the mark finds the right place.
    check_final(chatml, "[{\"role\": \"assistant\", \"content\": \"end\"}]",
                "<|im_start|>assistant\nend");
    check_final(chatml, "[{\"role\": \"assistant\", \"content\": \"x \\n\"}]",
                "<|im_start|>assistant\nx \n");
    check_final(trims, "[{\"role\": \"assistant\", \"content\": \" x  \"}]", "[x");
    check_final("{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}"
                "{% endfor %}",
                "[{\"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", "
                "\"text\": \"b\"}, {\"type\": \"image\"}]}]",
                "(a)(b");
    struct qn_err err;
    json_t *none = parse("[{\"role\": \"assistant\"}]"), *empty = json_array();
    assert_int_equal(qn_chat_mark_final(none, &err), QN_E_INVALID);
    assert_int_equal(qn_chat_mark_final(empty, &err), QN_E_INVALID);
    struct qn_buf text = {0};
    assert_int_equal(qn_chat_cut_final(&text, NULL, &err), QN_E_INVALID);
    qn_buf_puts(&text, "the template left it out");
    assert_int_equal(qn_chat_cut_final(&text, NULL, &err), QN_E_INVALID);
    qn_buf_done(&text);
    json_decref(none);
    json_decref(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_TPL_01_arguments_are_parsed),
        cmocka_unit_test(test_text_parts),
        cmocka_unit_test(test_reasoning_has_all_names),
        cmocka_unit_test(test_bad_messages_are_refused),
        cmocka_unit_test(test_wants_parts),
        cmocka_unit_test(test_TPL_09_continue_final_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
