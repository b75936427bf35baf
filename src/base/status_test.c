#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/status.h"

static void test_messages_grow_from_the_inside_out(void **state)
{
    (void)state;
    struct qn_err err = {0};
    enum qn_status rc = qn_fail(&err, QN_E_FORMAT, "found %d, expected %d", 3, 4);
    assert_int_equal(rc, QN_E_FORMAT);
    assert_int_equal(err.code, QN_E_FORMAT);
    rc = qn_err_context(&err, rc, "tensor \"%s\"", "a");
    assert_int_equal(qn_err_context(&err, rc, "file \"%s\"", "b"), QN_E_FORMAT);
    assert_string_equal(err.msg, "file \"b\": tensor \"a\": found 3, expected 4");
}

static void test_names_cannot_break_the_line(void **state)
{
    (void)state;
    struct qn_err err = {0};
    (void)qn_fail(&err, QN_E_FORMAT, "token \"%s\"", "a\n\x1b[2J\x7f\xc2\x9bé\xc2");
    assert_string_equal(err.msg, "token \"a??[2J???é\xc2\"");
    (void)qn_err_context(&err, QN_E_FORMAT, "file \"%s\"", "b\r");
    assert_string_equal(err.msg, "file \"b?\": token \"a??[2J???é\xc2\"");
}

static void test_no_error_wanted(void **state)
{
    (void)state;
    assert_int_equal(qn_fail(NULL, QN_E_IO, "x"), QN_E_IO);
    assert_int_equal(qn_err_context(NULL, QN_E_IO, "y"), QN_E_IO);
}

static void test_a_long_place_leaves_the_sentence(void **state)
{
    (void)state;
    struct qn_err err = {0};
    char place[3000];
    memset(place, 'p', sizeof place - 1);
    place[sizeof place - 1] = '\0';
    qn_fail(&err, QN_E_IO, "could not open");
    qn_err_context(&err, QN_E_IO, "%s", place);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    assert_string_equal(err.msg + strlen(err.msg) - 16, ": could not open");
    qn_fail(&err, QN_E_IO, "%s", place); // itself too long: cut, and nothing fits in front
    qn_err_context(&err, QN_E_IO, "place");
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static void test_every_status_has_a_name(void **state)
{
    (void)state;
    for (int i = QN_OK; i <= QN_E_INTERNAL; i++) {
        assert_string_not_equal(qn_status_name((enum qn_status)i), "unknown");
    }
    assert_string_equal(qn_status_name((enum qn_status)99), "unknown");
}

static void test_buffers_grow_up_to_their_limit(void **state)
{
    (void)state;
    struct qn_buf b;
    qn_buf_init(&b, 10);
    assert_true(qn_buf_puts(&b, "abc"));
    assert_true(qn_buf_putc(&b, 'd'));
    assert_true(qn_buf_printf(&b, "%03d", 7));
    assert_string_equal(b.data, "abcd007");
    assert_int_equal(b.len, 7);
    assert_false(qn_buf_add(&b, "wxyz", 4));
    assert_true(b.failed);
    assert_int_equal(b.len, 7);
    assert_false(qn_buf_putc(&b, 'e')); // failed stays failed
    size_t n = 5;
    assert_null(qn_buf_take(&b, &n));
    assert_int_equal(n, 5);
    qn_buf_clear(&b);
    assert_true(qn_buf_add(&b, "0123456789", 10)); // exactly the limit
    char *p = qn_buf_take(&b, &n);
    assert_string_equal(p, "0123456789");
    assert_int_equal(n, 10);
    assert_null(b.data);
    free(p);
    assert_false(qn_buf_reserve(&b, SIZE_MAX));
    qn_buf_done(&b);
}

static void test_an_empty_buffer_gives_an_empty_string(void **state)
{
    (void)state;
    struct qn_buf b = {0};
    size_t n = 1;
    char *p = qn_buf_take(&b, &n);
    assert_string_equal(p, "");
    assert_int_equal(n, 0);
    free(p);
    for (int i = 0; i < 10000; i++) {
        qn_buf_putc(&b, (char)('a' + i % 26));
    }
    assert_int_equal(b.len, 10000);
    assert_int_equal(strlen(b.data), 10000);
    qn_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_grow_from_the_inside_out),
        cmocka_unit_test(test_names_cannot_break_the_line),
        cmocka_unit_test(test_no_error_wanted),
        cmocka_unit_test(test_a_long_place_leaves_the_sentence),
        cmocka_unit_test(test_every_status_has_a_name),
        cmocka_unit_test(test_buffers_grow_up_to_their_limit),
        cmocka_unit_test(test_an_empty_buffer_gives_an_empty_string),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
