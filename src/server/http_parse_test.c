#include "server/http_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct qn_http_head head;

static int parse(const char *text)
{
    const char *why = NULL;
    // an exact copy, so that a read past the end is seen by the sanitizer
    size_t n = strlen(text);
    static char *copy;
    free(copy);
    copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, text, n);
    int status = qn_http_head_parse(copy, n, 8, &head, &why);
    assert_true((status == 0) == (why == NULL));
    return status;
}

static void test_good_heads(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /a/b?c=d HTTP/1.1\r\nHost: x\r\nA:  b c\t\r\n\r\n"), 0);
    assert_int_equal(head.method, QN_HTTP_GET);
    assert_true(qn_slice_is(head.path, "/a/b"));
    assert_true(qn_slice_is(*qn_http_header_get(&head, "a"), "b c"));
    assert_null(qn_http_header_get(&head, "b"));
    assert_true(head.keep_alive);
    assert_int_equal(head.framing, QN_HTTP_NO_BODY);

    assert_int_equal(parse("POST http://h:1/p HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n"
                           "Connection: foo, Close\r\nExpect: 100-continue\r\n\r\n"),
                     0);
    assert_true(qn_slice_is(head.path, "/p"));
    assert_int_equal(head.framing, QN_HTTP_LENGTH);
    assert_int_equal(head.content_length, 12);
    assert_false(head.keep_alive);
    assert_true(head.expect_continue);

    assert_int_equal(parse("OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 0);
    assert_true(head.keep_alive);
    assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n"), 0);
    assert_false(head.keep_alive);
    assert_int_equal(parse("PATCH / HTTP/1.1\r\nHost:\r\nTransfer-Encoding: Chunked\r\n\r\n"), 0);
    assert_int_equal(head.method, QN_HTTP_OTHER);
    assert_int_equal(head.framing, QN_HTTP_CHUNKED);
}

static void test_SEC_07_framing_that_can_be_read_twice(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 1 1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 9999999999999999999\r\n",
        "Content-Length : 5\r\n",
        "A: b\r\n c\r\n",
        "A: b\rc\r\n",
        "A: b\x01\r\n",
        "A\r\n",
        ": b\r\n",
        "A: b\n",
        "Host: y\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[512] = "POST / HTTP/1.1\r\nHost: x\r\n";
        size_t n = strlen(text), m = strlen(bad[i]);
        memcpy(text + n, bad[i], m);
        memcpy(text + n + m, "\r\n", 3);
        assert_int_equal(parse(text), 400);
    }
    assert_int_equal(parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

static void test_bad_request_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 400}, // no Host
        {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
        {"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
        {"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET / http/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /\x7f HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {" / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET\r\n\r\n", 400},
        {"\n\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n", 417},
        {"GET / HTTP/1.1\r\nHost: x\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\nHost: "
         "x\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\na:1\r\n\r\n",
         431},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(cases[i].text), cases[i].status);
    }
}

static void test_head_end_byte_by_byte(void **state)
{
    (void)state;
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\n\r\r\n\r\nrest";
    size_t scan = 0, want = strlen(text) - 4;
    for (size_t n = 0; n < want; n++) {
        assert_int_equal(qn_http_head_end(text, n, &scan), 0);
    }
    assert_int_equal(qn_http_head_end(text, want, &scan), want);
    scan = 0;
    assert_int_equal(qn_http_head_end(text, strlen(text), &scan), want);
}

static void test_percent_decode(void **state)
{
    (void)state;
    char out[32];
    assert_int_equal(qn_http_percent_decode("/a%2Fb%20", 9, out), 5);
    assert_string_equal(out, "/a/b ");
    assert_int_equal(qn_http_percent_decode("%41", 3, out), 1);
    assert_int_equal(qn_http_percent_decode("%4", 2, out), SIZE_MAX);
    assert_int_equal(qn_http_percent_decode("%zz", 3, out), SIZE_MAX);
    assert_int_equal(qn_http_percent_decode("a%", 2, out), SIZE_MAX);
}

// Feed `text` in pieces of `piece` bytes; the body goes to out. Returns the last result.
static enum qn_http_chunk_result feed(const char *text, size_t piece, char *out, size_t *out_n)
{
    struct qn_http_chunks c = {0};
    size_t n = strlen(text), at = 0;
    enum qn_http_chunk_result r = QN_HTTP_CHUNK_MORE;
    *out_n = 0;
    while (at < n) {
        size_t take = n - at < piece ? n - at : piece, used = 0;
        struct qn_slice data = {0};
        r = qn_http_chunks_next(&c, text + at, take, &used, &data);
        assert_true(used > 0 && used <= take);
        at += used;
        if (r == QN_HTTP_CHUNK_DATA) {
            memcpy(out + *out_n, data.p, data.n);
            *out_n += data.n;
        } else if (r != QN_HTTP_CHUNK_MORE) {
            return r;
        }
    }
    return r;
}

static void test_chunks(void **state)
{
    (void)state;
    char out[128];
    size_t n = 0;
    for (size_t piece = 1; piece < 64; piece++) {
        assert_int_equal(
            feed("5\r\nhello\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nT: 1\r\n\r\n", piece, out, &n),
            QN_HTTP_CHUNK_END);
        assert_int_equal(n, 15);
        assert_memory_equal(out, "hello0123456789", 15);
    }
    static const char *const bad[] = {
        "\r\n",        "x\r\n",         "5 \r\nhello",          "5\nhello",
        "5\r\nhellox", "5\r\nhello\rx", "1111111111111111\r\n", "0\r\n\n",
        "0\r\n\rx",    "-1\r\n",        "1;\x01\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(feed(bad[i], 64, out, &n), QN_HTTP_CHUNK_ERROR);
    }
    assert_int_equal(feed("5\r\nhel", 64, out, &n), QN_HTTP_CHUNK_DATA);
}

static void test_trailers_are_bounded(void **state)
{
    (void)state;
    struct qn_http_chunks c = {0};
    size_t used = 0;
    struct qn_slice data = {0};
    assert_int_equal(qn_http_chunks_next(&c, "0\r\n", 3, &used, &data), QN_HTTP_CHUNK_MORE);
    enum qn_http_chunk_result r = QN_HTTP_CHUNK_MORE;
    for (int i = 0; i < 10000 && r == QN_HTTP_CHUNK_MORE; i++) {
        r = qn_http_chunks_next(&c, "a:\r\n", 4, &used, &data);
    }
    assert_int_equal(r, QN_HTTP_CHUNK_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_heads),
        cmocka_unit_test(test_SEC_07_framing_that_can_be_read_twice),
        cmocka_unit_test(test_bad_request_lines),
        cmocka_unit_test(test_head_end_byte_by_byte),
        cmocka_unit_test(test_percent_decode),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_trailers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
