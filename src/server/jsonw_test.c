#include "server/jsonw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <cmocka.h>

static void check_str(const char *in, size_t n, const char *want)
{
    struct qn_buf b = {0};
    qn_jw_str(&b, in, n);
    assert_string_equal(b.data, want);
    json_t *v = json_loads(b.data, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    assert_true(qn_utf8_count(in, n) == qn_utf8_count(json_string_value(v), json_string_length(v)));
    json_decref(v);
    qn_buf_done(&b);
}

static void test_strings(void **state)
{
    (void)state;
    check_str("a\"\\\n\t\r/", 7, "\"a\\\"\\\\\\n\\t\\r/\"");
    check_str("\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"");
    check_str("h\xc3\xa9\xf0\x9f\xa6\x99", 7, "\"h\xc3\xa9\xf0\x9f\xa6\x99\"");
}

static void test_REQ_09_ill_formed_bytes(void **state)
{
    (void)state;
    // one replacement for each ill-formed piece, as Unicode recommends
    check_str("\xf0\x9f\xa6", 3, "\"\xef\xbf\xbd\"");
    check_str("a\xff\xfe", 3, "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
    check_str("\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    check_str("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    check_str("\xe2\x82x", 3, "\"\xef\xbf\xbdx\"");
    check_str("\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void check_float(float v, const char *want)
{
    struct qn_buf b = {0};
    qn_jw_float(&b, v);
    assert_string_equal(b.data, want);
    qn_buf_done(&b);
}

static void test_floats(void **state)
{
    (void)state;
    check_float(-0.1f, "-0.1");
    check_float(0, "0.0");
    check_float(-3, "-3.0");
    check_float(-1e-20f, "-1e-20");
    check_float(-(float)INFINITY, "-9999.0");
    check_float((float)NAN, "null");
    uint32_t x = 12345;
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525u + 1013904223u;
        float v;
        memcpy(&v, &x, sizeof v);
        if (!isfinite(v)) {
            continue;
        }
        struct qn_buf b = {0};
        qn_jw_float(&b, v);
        float back = strtof(b.data, NULL);
        assert_memory_equal(&back, &v, sizeof v);
        qn_buf_done(&b);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":[1,-2.5,1.0,\"h\\u0000\xc3\xa9\",true,false,null,{}],\"b\":{}}";
    json_t *v = json_loads(text, JSON_ALLOW_NUL, NULL);
    struct qn_buf b = {0};
    assert_non_null(v);
    qn_jw_value(&b, v);
    assert_string_equal(b.data, text);
    qn_buf_done(&b);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_REQ_09_ill_formed_bytes),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
