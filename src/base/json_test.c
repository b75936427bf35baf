#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static json_t *good(const char *text)
{
    json_t *v = NULL;
    struct qn_err err;
    if (qn_json_parse(text, strlen(text), 8, &v, &err) != QN_OK) {
        fail_msg("%s: %s", text, err.msg);
    }
    return v;
}

static void bad(const char *text, enum qn_status want_rc, const char *want)
{
    json_t *v = NULL;
    struct qn_err err = {0};
    enum qn_status rc = qn_json_parse(text, strlen(text), 8, &v, &err);
    if (rc != want_rc || strstr(err.msg, want) == NULL || v != NULL) {
        fail_msg("%s: found %s \"%s\", expected \"%s\"", text, qn_status_name(rc), err.msg, want);
    }
}

static void test_integers_of_any_size(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool integer;
        double value;
    } k_cases[] = {
        {"9223372036854775807", true, 0x1p63},
        {"9223372036854775808", false, 0x1p63},
        {"-9223372036854775808", true, -0x1p63},
        {"-9223372036854775809", false, -0x1p63},
        {"1000000000000000019884624838656", false, 1e30},
        {"-1000000000000000019884624838656", false, -1e30},
        {"1000000000000000000", true, 1e18},
        {"10000000000000000000.5", false, 1e19},
        {"10000000000000000000e1", false, 1e20},
        {"0", true, 0},
        {"-1", true, -1},
        {"0.00000000000000000000000000000001", false, 1e-32},
    };
    for (size_t i = 0; i < sizeof k_cases / sizeof k_cases[0]; i++) {
        json_t *v = good(k_cases[i].text);
        assert_int_equal(json_is_integer(v), k_cases[i].integer);
        assert_true(json_number_value(v) == k_cases[i].value);
        json_decref(v);
    }
    json_t *v =
        good("{\"a\\\"99999999999999999999\":[99999999999999999999,-99999999999999999999,1],"
             "\"s\":\"99999999999999999999\"}");
    const json_t *list = json_object_get(v, "a\"99999999999999999999");
    assert_true(json_real_value(json_array_get(list, 0)) == 1e20);
    assert_true(json_real_value(json_array_get(list, 1)) == -1e20);
    assert_int_equal(json_integer_value(json_array_get(list, 2)), 1);
    assert_string_equal(json_string_value(json_object_get(v, "s")), "99999999999999999999");
    json_decref(v);
    bad("099999999999999999999", QN_E_FORMAT, "invalid JSON");
    bad("-", QN_E_FORMAT, "invalid JSON");
    bad("99999999999999999999x", QN_E_FORMAT, "invalid JSON");
}

static void test_what_is_refused(void **state)
{
    (void)state;
    bad("", QN_E_FORMAT, "invalid JSON");
    bad("{\"a\":1,\"a\":2}", QN_E_FORMAT, "duplicate");
    bad("[1] 2", QN_E_FORMAT, "invalid JSON");
    bad("\"\xff\"", QN_E_FORMAT, "invalid JSON");
    bad("[[[[[[[[[1]]]]]]]]]", QN_E_LIMIT, "deeper than 8");
    json_decref(good("[[[[[[[[\"[[[[\"]]]]]]]]"));
    json_decref(good("\"a\\u0000b\""));
}

static void test_typed_members(void **state)
{
    (void)state;
    json_t *v = good("{\"i\":5,\"f\":1.5,\"b\":true,\"s\":\"x\",\"n\":null}");
    struct qn_err err;
    int64_t i = -1;
    double f = -1;
    bool b = false, found = true;
    const char *s = NULL;
    assert_int_equal(qn_json_get_int(v, "i", 0, 5, &i, &found, &err), QN_OK);
    assert_true(found && i == 5);
    assert_int_equal(qn_json_get_int(v, "i", 0, 4, &i, NULL, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "key \"i\": found 5, expected 0 to 4"));
    assert_int_equal(qn_json_get_int(v, "f", 0, 5, &i, NULL, &err), QN_E_FORMAT);
    assert_int_equal(qn_json_get_int(v, "n", 0, 5, &i, &found, &err), QN_OK);
    assert_true(!found && i == 5);
    assert_int_equal(qn_json_get_num(v, "i", &f, NULL, &err), QN_OK);
    assert_true(f == 5);
    assert_int_equal(qn_json_get_num(v, "f", &f, NULL, &err), QN_OK);
    assert_true(f == 1.5);
    assert_int_equal(qn_json_get_num(v, "s", &f, NULL, &err), QN_E_FORMAT);
    assert_int_equal(qn_json_get_bool(v, "b", &b, NULL, &err), QN_OK);
    assert_true(b);
    assert_int_equal(qn_json_get_bool(v, "i", &b, NULL, &err), QN_E_FORMAT);
    assert_int_equal(qn_json_get_str(v, "s", &s, NULL, &err), QN_OK);
    assert_string_equal(s, "x");
    assert_int_equal(qn_json_get_str(v, "b", &s, NULL, &err), QN_E_FORMAT);
    assert_int_equal(qn_json_get_str(v, "absent", &s, &found, &err), QN_OK);
    assert_false(found);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_of_any_size),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_typed_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
