#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "text/template.h"

// Templates and their answers from Jinja2 (tests/data/templates, written by
// tools/golden/template_diff.py --write). "ours" marks the few where quern fails on purpose.

static bool run_case(const json_t *file, const json_t *c)
{
    // A case has its template, or names template and context among the file's.
    const char *use = json_string_value(json_object_get(c, "use"));
    const char *with = json_string_value(json_object_get(c, "with"));
    const json_t *source = use != NULL ? json_object_get(json_object_get(file, "templates"), use)
                                       : json_object_get(c, "template");
    const char *want = json_string_value(json_object_get(c, "text"));
    json_t *context = json_object();
    struct qn_buf text = {0}, plain = {0};
    struct qn_err err = {0};
    struct qn_tmpl *t = NULL;
    json_object_update(context, json_object_get(file, "context"));
    if (with != NULL) {
        json_object_update(context, json_object_get(json_object_get(file, "contexts"), with));
    }
    enum qn_status rc =
        qn_tmpl_compile(json_string_value(source), json_string_length(source), &t, &err);
    if (rc == QN_OK) {
        rc = qn_tmpl_render(t, context, json_object_get(file, "trusted"), 1764540005, NULL, &text,
                            &plain, &err);
    }
    size_t n = want != NULL ? json_string_length(json_object_get(c, "text")) : 0;
    bool ok = want != NULL ? rc == QN_OK && text.len == n && plain.len == n &&
                                 (n == 0 || memcmp(text.data, want, n) == 0)
                           : rc != QN_OK && json_is_true(json_object_get(c, "fails"));
    if (!ok) {
        print_error("%s %s\n  found %s %s\n  expected %s\n",
                    use != NULL ? use : json_string_value(source), with != NULL ? with : "",
                    qn_status_name(rc), rc == QN_OK ? text.data : err.msg,
                    want != NULL ? want : "a failure");
    }
    qn_tmpl_free(t);
    qn_buf_done(&text);
    qn_buf_done(&plain);
    json_decref(context);
    return ok;
}

static void run_file(const char *path, size_t at_least)
{
    json_t *file = NULL;
    struct qn_err err;
    if (qn_json_read(path, (size_t)16 << 20, 200, &file, &err) != QN_OK) {
        fail_msg("%s", err.msg);
    }
    const json_t *cases = json_object_get(file, "cases");
    size_t failed = 0, n = json_array_size(cases);
    for (size_t i = 0; i < n; i++) {
        failed += run_case(file, json_array_get(cases, i)) ? 0 : 1;
    }
    json_decref(file);
    assert_int_equal(failed, 0);
    assert_true(n >= at_least);
}

static void test_expressions(void **state)
{
    (void)state;
    run_file("tests/data/templates/expressions.json", 800);
}

static void test_statements(void **state)
{
    (void)state;
    run_file("tests/data/templates/statements.json", 250);
}

static void test_families(void **state)
{
    (void)state;
    run_file("tests/data/templates/families.json", 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expressions),
                                       cmocka_unit_test(test_statements),
                                       cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
