#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/mem.h"
#include "text/tmpl_fixture.h"

static void test_TPL_02_mapping_arguments_as_object(void **state)
{
    (void)state;
    check_text("{{ messages[0].tool_calls[0].function.arguments|tojson }}",
               "{\"messages\": [{\"tool_calls\": [{\"function\": {\"arguments\": "
               "{\"city\": \"Paris\"}}}]}]}",
               "{\"city\": \"Paris\"}");
}

static void test_TPL_03_tojson_keeps_marks_and_letters(void **state)
{
    (void)state;
    check_text("{{ x|tojson }}",
               "{\"x\": {\"a\": \"<b>'&\\\"\xC3\xA9\", \"n\": null, \"t\": true, \"f\": 1.0}}",
               "{\"a\": \"<b>'&\\\"\xC3\xA9\", \"n\": null, \"t\": true, \"f\": 1.0}");
}

static void test_TPL_04_loop_controls(void **state)
{
    (void)state;
    check_text("{% for i in [1,2,3,4] %}{% if i==3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
               NULL, "12");
    check_text("{% for i in [1,2,3,4] %}{% if i==3 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
               NULL, "124");
}

static void test_TPL_05_syntax_error_names_line_and_column(void **state)
{
    (void)state;
    check_fails("{% if %}", NULL, QN_E_FORMAT, "line 1 column 7: found %}, expected an expression");
    check_fails("a\n  {{ x | }}", NULL, QN_E_FORMAT, "line 2 column 10");
    check_fails("\xC3\xA9\xC3\xA9{{ ) }}", NULL, QN_E_FORMAT, "line 1 column 6: unexpected \")\"");
    check_fails("{% for x in y %}", NULL, QN_E_FORMAT, "template ended, expected \"endfor\"");
    check_fails("{% if x %}{% endfor %}", NULL, QN_E_FORMAT, "unknown statement \"endfor\"");
    check_fails("{{ 'a }}", NULL, QN_E_FORMAT, "string without its closing quote");
    check_fails("{{ x|nope }}", NULL, QN_E_UNSUPPORTED, "filter \"nope\": there is no such filter");
    check_fails("{{ x is nope }}", NULL, QN_E_UNSUPPORTED, "test \"nope\": there is no such test");
    check_fails("{% include 'x' %}", NULL, QN_E_UNSUPPORTED,
                "statement \"include\" is not supported");
    check_fails("{% break %}", NULL, QN_E_FORMAT, "break outside of a for statement");
}

static void test_TPL_06_raise_exception_is_the_clients_error(void **state)
{
    static const char source[] = "{% if messages[0].role == 'system' %}"
                                 "{{ raise_exception('System role not supported') }}{% endif %}ok";
    (void)state;
    check_fails(source, "{\"messages\": [{\"role\": \"system\"}]}", QN_E_INVALID,
                "System role not supported");
    check_text(source, "{\"messages\": [{\"role\": \"user\"}]}", "ok");
}

static void test_TPL_08_strftime_uses_the_given_clock(void **state)
{
    (void)state;
    check_text("{{ strftime_now('%d %b %Y %H:%M:%S') }}", NULL, "30 Nov 2025 22:00:05");
    check_text("{{ strftime_now('') }}|{{ strftime_now('%j %%') }}", NULL, "|334 %");
}

static void test_TPL_10_block_white_space(void **state)
{
    (void)state;
    check_text("{% for m in messages %}\n  {% if m.role == 'system' %}\nS:{{ m.content }}\n"
               "  {% endif %}\n{% endfor %}\nEND\n",
               "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, "
               "{\"role\": \"user\", \"content\": \"b\"}]}",
               "S:a\nEND");
}

static void test_TPL_11_context_keeps_json_types(void **state)
{
    static const char source[] =
        "{%- if enable_thinking is defined and enable_thinking is false %}E{%- endif %}";
    (void)state;
    check_text(source, "{\"enable_thinking\": false}", "E");
    check_text(source, "{}", "");
    check_text(source, "{\"enable_thinking\": null}", "");
    check_text(source, "{\"enable_thinking\": 0}", "");
}

static void test_TPL_12_namespace_and_scope(void **state)
{
    (void)state;
    check_text("{% set ns=namespace(x=0) %}{% for i in [1,2,3] %}{% set ns.x=ns.x+i %}"
               "{% endfor %}{{ ns.x }}",
               NULL, "6");
    check_text("{% set x=0 %}{% for i in [1,2,3] %}{% set x=x+i %}{% endfor %}{{ x }}", NULL, "0");
}

static void test_TPL_13_macros_slices_and_filters(void **state)
{
    (void)state;
    check_text("{% macro f(a,b='z') %}[{{a}}|{{b}}]{% endmacro %}{{ f('q') }}{{ f('q',b='w') }}",
               NULL, "[q|z][q|w]");
    check_text("{{ messages[1:]|map(attribute='role')|join(',') }}",
               "{\"messages\": [{\"role\": \"a\"}, {\"role\": \"b\"}, {\"role\": \"c\"}]}", "b,c");
    check_text("{{ messages|selectattr('role','equalto','b')|list|length ~ '!' }}",
               "{\"messages\": [{\"role\": \"a\"}, {\"role\": \"b\"}]}", "1!");
}

static void test_SEC_04_sandbox(void **state)
{
    static const char *const sources[] = {"{{ ''.__class__.__mro__ }}",
                                          "{{ ''.__class__ }}",
                                          "{{ x.append(1) }}",
                                          "{{ x.pop }}",
                                          "{{ x['__class__'] }}",
                                          "{{ d.update({'a': 1}) }}",
                                          "{{ d|attr('__init__') }}",
                                          "{{ d.setdefault('a', 1) }}",
                                          "{{ lipsum.__globals__ }}",
                                          "{{ range.__self__ }}",
                                          "{{ namespace(a=1).__init__ }}",
                                          "{{ '{0.__class__}'.format(x) }}",
                                          "{{ [x]|map(attribute='__class__')|list }}",
                                          "{% set ns = namespace() %}{% set ns._x = 1 %}",
                                          "{% for i in x %}{{ loop.__dict__ }}{% endfor %}"};
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct rendered r = render(sources[i], "{\"x\": [1], \"d\": {}}", NULL);
        if (r.rc != QN_E_INVALID || r.text.len != 0) {
            fail_msg("%s: found %s, \"%s\"", sources[i], qn_status_name(r.rc),
                     r.text.len > 0 ? r.text.data : "");
        }
        rendered_done(&r);
    }
    // A key that only looks like one of Python's is data like any other.
    check_text("{{ d['__x'] }}{{ d._y }}", "{\"d\": {\"__x\": 1, \"_y\": 2}}", "12");
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void test_SEC_06_budgets(void **state)
{
    static const char *const sources[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ range(200000) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ f(n)|upper ~ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(64) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}"
        "{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
        "{% endfor %}{{ ns.l|tojson }}",
        "{% set ns = namespace(l=[]) %}{% set ns.m = ns %}{{ ns }}",
        "{% set ns = namespace(l=[], m=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
        "{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
        "{% for a in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 100 }}{% endfor %}",
        "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{{ ('a' * 1000000).replace('a', 'b' * 1000) }}",
        "{{ ('a' * 100000)|list|join('b' * 10000) }}",
        "{{ '%99999999d' % 1 }}",
        "{{ 'a'|center(999999999) }}",
        "{{ ('a\\n' * 100000) | indent(100000) }}",
        "{{ [1] * 999999999 }}"};
    (void)state;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        double t0 = now_s();
        struct rendered r = render(sources[i], NULL, NULL);
        double took = now_s() - t0;
        if (r.rc != QN_E_LIMIT && !(r.rc == QN_E_INVALID && strstr(r.err.msg, "format") != NULL)) {
            fail_msg("%s: found %s \"%s\"", sources[i], qn_status_name(r.rc), r.err.msg);
        }
        assert_true(took < 20); // 1 s in an optimised build; sanitizers and busy machines get more
        rendered_done(&r);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 700000); // KiB
    assert_int_equal(qn_mem_held_bytes(QN_MEM_TEXT), 0);
}

static void test_limits_are_the_callers(void **state)
{
    (void)state;
    const struct {
        const char *source;
        struct qn_tmpl_limits limits;
        const char *part;
    } cases[] = {
        {"{% for i in range(100) %}x{% endfor %}", {.steps = 50}, "more than 50 steps"},
        {"{{ 'abc' * 10 }}", {.output_bytes = 20}, "longer than 20 bytes"},
        {"0123456789", {.output_bytes = 9}, "output longer than 9 bytes"},
        {"{{ range(90000)|list|length }}", {.memory_bytes = 100000}, "memory of the render"},
        {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}",
         {.depth = 8},
         "nested deeper than"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rendered r = render_limited(cases[i].source, NULL, &cases[i].limits);
        assert_int_equal(r.rc, QN_E_LIMIT);
        assert_non_null(strstr(r.err.msg, cases[i].part));
        rendered_done(&r);
    }
}

static void test_nesting_is_bounded(void **state)
{
    enum {
        N = 20000
    };
    static const char *const pieces[][2] = {{"(", ")"}, {"[", "]"},     {"not ", ""},
                                            {"-", ""},  {"{'a':", "}"}, {"1 if ", ""}};
    (void)state;
    char *source = malloc(N * 8 + 64);
    assert_non_null(source);
    for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
        char *s = source;
        s = stpcpy(s, "{{ ");
        for (int i = 0; i < N; i++) {
            s = stpcpy(s, pieces[p][0]);
        }
        s = stpcpy(s, "1");
        for (int i = 0; i < N; i++) {
            s = stpcpy(s, pieces[p][1]);
        }
        stpcpy(s, " }}");
        struct rendered r = render(source, NULL, NULL);
        assert_int_not_equal(r.rc, QN_OK);
        rendered_done(&r);
    }
    // A long chain parses without recursion; running it is bounded.
    char *s = stpcpy(source, "{{ 1");
    for (int i = 0; i < N; i++) {
        s = stpcpy(s, "+1");
    }
    stpcpy(s, " }}");
    struct rendered r = render(source, NULL, NULL);
    assert_int_equal(r.rc, QN_E_LIMIT);
    rendered_done(&r);
    free(source);
}

static void test_source_is_checked(void **state)
{
    struct qn_tmpl *t = NULL;
    struct qn_err err;
    size_t n = ((size_t)1 << 20) + 1;
    char *big = calloc(1, n);
    (void)state;
    assert_non_null(big);
    memset(big, 'x', n);
    assert_int_equal(qn_tmpl_compile(big, n, &t, &err), QN_E_LIMIT);
    assert_int_equal(qn_tmpl_compile(big, n - 1, &t, &err), QN_OK);
    qn_tmpl_free(t);
    free(big);
    assert_int_equal(qn_tmpl_compile("ab\xFF", 3, &t, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "byte 2 is not UTF-8"));
    assert_int_equal(qn_tmpl_compile("", 0, &t, &err), QN_OK);
    json_t *list = json_array();
    struct qn_buf out = {0};
    assert_int_equal(qn_tmpl_render(t, list, NULL, 0, NULL, &out, NULL, &err), QN_E_INVALID);
    qn_tmpl_free(t);
    json_decref(list);
    qn_tmpl_free(NULL);
}

static void test_errors_say_what_is_missing(void **state)
{
    (void)state;
    check_fails("{{ a.b }}", NULL, QN_E_INVALID, "line 1 column 5: \"a\" is undefined");
    check_fails("{{ a.b.c }}", "{\"a\": {}}", QN_E_INVALID, "a mapping has no \"b\"");
    check_fails("\n{{ 'a' + 1 }}", NULL, QN_E_INVALID,
                "line 2 column 4: operator \"+\": found a string and an integer");
    check_fails("{{ 9223372036854775807 + 1 }}", NULL, QN_E_INVALID, "does not fit 64 bits");
    check_fails("{{ 1 // 0 }}", NULL, QN_E_INVALID, "division by zero");
    check_fails("{% for a, b in [[1]] %}{% endfor %}", NULL, QN_E_INVALID,
                "found 1 values to unpack, expected 2");
    check_fails("{{ 'a'.encode() }}", NULL, QN_E_UNSUPPORTED, "not supported");
    check_fails("{{ x|trim(1, 2) }}", NULL, QN_E_INVALID, "trim: found 2 arguments");
}

static void test_TOK_05_marks_follow_the_bytes(void **state)
{
    static const char c[] = "{\"u\": \"<|s|>\", \"v\": \" Ab \", \"d\": {\"k\": \"v\"}, \"n\": 12}";
    (void)state;
    check_plain("<|s|>{{ u }}<|e|>", c, NULL, "<|s|><|s|><|e|>", "000001111100000");
    check_plain("{{ bos }}{{ u }}", c, "{\"bos\": \"<s>\"}", "<s><|s|>", "00011111");
    check_plain("{{ bos }}", "{\"bos\": \"x\"}", "{\"bos\": \"<s>\"}", "x",
                "1"); // the request's own
    check_plain("{{ '[' + u + ']' }}", c, NULL, "[<|s|>]", "0111110");
    check_plain("{{ '[' ~ u ~ n ~ ']' }}", c, NULL, "[<|s|>12]", "011111000");
    check_plain("{{ ('[' + u + ']')[1:] }}{{ ('[' + u)[::-1] }}", c, NULL, "<|s|>]>|s|<[",
                "111110111110");
    check_plain("{{ ('a' + v)|trim|upper }}", c, NULL, "A AB", "0111");
    check_plain("{{ u.replace('s', '--') }}{{ 'xsx'.replace('s', u) }}", c, NULL, "<|--|>x<|s|>x",
                "1100110111110");
    check_plain("{{ u.split('|')[1] }}{{ ('s' ~ u).split('s')|join(',') }}", c, NULL, "s,<|,|>",
                "1011011");
    check_plain("{{ [u, 'b']|join('-') }}{{ '%s!' % u }}{{ '{}.'.format(u) }}", c, NULL,
                "<|s|>-b<|s|>!<|s|>.", "1111100111110111110");
    check_plain("{{ d|tojson }}{{ d }}", c, NULL, "{\"k\": \"v\"}{'k': 'v'}",
                "11111111111111111111");
    check_plain("{{ [1]|tojson }}", c, NULL, "[1]", "000");
    check_plain("{% set x %}({{ u }}){% endset %}{{ x }}", c, NULL, "(<|s|>)", "0111110");
    check_plain("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(v) }}", c, NULL, "< Ab >", "011110");
    check_plain("{% for k in d %}{{ k }}={{ d[k] }}{% endfor %}", c, NULL, "k=v", "101");
    check_plain("{% for ch in 'a' + v %}{{ ch }}{% endfor %}", c, NULL, "a Ab ", "01111");
    check_plain("{% filter upper %}a{{ v }}{% endfilter %}", c, NULL, "A AB ", "01111");
    check_plain("{{ u|e }}{{ v|title }}{{ ('x\\n' ~ v)|indent(1) }}", c, NULL,
                "&lt;|s|&gt; Ab x\n  Ab ",
                "11111111111"
                "1111"
                "000"
                "1111");
    check_plain("{% set ns = namespace(s='') %}{% for x in [u, '!', u] %}{% set ns.s = ns.s + x %}"
                "{% endfor %}{{ ns.s }}",
                c, NULL, "<|s|>!<|s|>", "11111011111");
}

static void test_large_mappings_and_long_text(void **state)
{
    (void)state;
    check_text("{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s ~ 'ab' "
               "%}{% endfor %}{{ ns.s|length }}",
               NULL, "40000");
    check_text("{% set d = dict([('a', 1), ('b', 2), ('c', 3), ('d', 4), ('e', 5), ('f', 6), "
               "('g', 7), ('h', 8), ('i', 9), ('j', 10), (1, 11), (2.0, 12), (none, 13)]) %}"
               "{{ d.j }}{{ d['a'] }}{{ d[1.0] }}{{ d[2] }}{{ d[none] }}{{ d.zz }}{{ d|length }}",
               NULL,
               "101111213"
               "13");
}

static void test_whole_output_is_optional(void **state)
{
    struct qn_tmpl *t = NULL;
    struct qn_buf out = {0};
    struct qn_err err;
    json_t *c = json_pack("{s:s}", "x", "y");
    (void)state;
    assert_int_equal(qn_tmpl_compile("a{{ x }}", 8, &t, &err), QN_OK);
    for (int i = 0; i < 2; i++) { // compiled once, rendered often, appended
        assert_int_equal(qn_tmpl_render(t, c, NULL, 0, NULL, &out, NULL, &err), QN_OK);
    }
    assert_string_equal(out.data, "ayay");
    qn_buf_done(&out);
    json_decref(c);
    qn_tmpl_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_TPL_02_mapping_arguments_as_object),
        cmocka_unit_test(test_TPL_03_tojson_keeps_marks_and_letters),
        cmocka_unit_test(test_TPL_04_loop_controls),
        cmocka_unit_test(test_TPL_05_syntax_error_names_line_and_column),
        cmocka_unit_test(test_TPL_06_raise_exception_is_the_clients_error),
        cmocka_unit_test(test_TPL_08_strftime_uses_the_given_clock),
        cmocka_unit_test(test_TPL_10_block_white_space),
        cmocka_unit_test(test_TPL_11_context_keeps_json_types),
        cmocka_unit_test(test_TPL_12_namespace_and_scope),
        cmocka_unit_test(test_TPL_13_macros_slices_and_filters),
        cmocka_unit_test(test_SEC_04_sandbox),
        cmocka_unit_test(test_SEC_06_budgets),
        cmocka_unit_test(test_limits_are_the_callers),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_source_is_checked),
        cmocka_unit_test(test_errors_say_what_is_missing),
        cmocka_unit_test(test_TOK_05_marks_follow_the_bytes),
        cmocka_unit_test(test_large_mappings_and_long_text),
        cmocka_unit_test(test_whole_output_is_optional),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
