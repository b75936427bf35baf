#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "formats/test_files.h"

static enum qn_status open_buf(const struct qn_buf *b, struct qn_st **st, struct qn_err *err)
{
    // An allocation of exactly the file's size, so that ASan sees a read past its end.
    char *copy = malloc(b->len > 0 ? b->len : 1);
    memcpy(copy, b->data, b->len);
    enum qn_status rc = qn_st_open_mem(copy, b->len, "t.safetensors", st, err);
    if (rc != QN_OK) {
        free(copy);
        return rc;
    }
    free(copy); // names and shapes are copies
    return rc;
}

static void expect_bad(const char *what, const struct qn_buf *b, const char *want)
{
    struct qn_st *st = NULL;
    struct qn_err err = {0};
    enum qn_status rc = open_buf(b, &st, &err);
    if (rc == QN_OK) {
        qn_st_close(st);
        fail_msg("%s: opened, expected an error with \"%s\"", what, want);
    }
    if ((rc != QN_E_FORMAT && rc != QN_E_LIMIT) || strstr(err.msg, want) == NULL ||
        strstr(err.msg, "t.safetensors") == NULL) {
        fail_msg("%s: found %s \"%s\", expected \"%s\"", what, qn_status_name(rc), err.msg, want);
    }
}

#define T(fields) "{\"a\":{" fields "}}"
#define F32_4 "\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]"

static const struct {
    const char *what, *header;
    size_t n_data;
    const char *want;
} k_bad[] = {
    {"just an opening brace", "{", 0, "found the end"},
    {"empty header", "", 0, "found the end"},
    {"an array", "[]", 0, "expected '{'"},
    {"not JSON", "hello", 0, "found 'h'"},
    {"a second object", T(F32_4) "{}", 16, "text after the object"},
    {"invalid UTF-8", "{\"\xff\":{" F32_4 "}}", 16, "invalid UTF-8"},
    {"overlong UTF-8", "{\"\xc0\xaf\":{" F32_4 "}}", 16, "invalid UTF-8"},
    {"a UTF-8 surrogate", "{\"\xed\xa0\x80\":{" F32_4 "}}", 16, "invalid UTF-8"},
    {"lone surrogate escape", "{\"\\ud800\":{" F32_4 "}}", 16, "invalid escape"},
    {"unknown escape", "{\"\\x\":{" F32_4 "}}", 16, "invalid escape"},
    {"raw control character", "{\"a\nb\":{" F32_4 "}}", 16, "byte 0x0a"},
    {"escaped control character", "{\"a\\nb\":{" F32_4 "}}", 16, "control character 0x0a"},
    {"NUL in a name", "{\"a\\u0000\":{" F32_4 "}}", 16, "control character 0x00"},
    {"empty name", "{\"\":{" F32_4 "}}", 16, "tensor name"},
    {"trailing comma", "{\"a\":{" F32_4 "},}", 16, "expected a string"},
    {"entry is not an object", "{\"a\":[]}", 0, "expected '{'"},
    {"entry is empty", "{\"a\":{}}", 0, "expected a string"},
    {"missing dtype", T("\"shape\":[4],\"data_offsets\":[0,16]"), 16, "\"dtype\" is missing"},
    {"missing shape", T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "\"shape\" is missing"},
    {"missing offsets", T("\"dtype\":\"F32\",\"shape\":[4]"), 16, "\"data_offsets\" is missing"},
    {"unknown field", T(F32_4 ",\"x\":1"), 16, "field \"x\""},
    {"field with a hidden NUL", T(F32_4 ",\"shape\\u0000\":[]"), 16, "unknown field"},
    {"field twice", T(F32_4 ",\"dtype\":\"F32\""), 16, "it twice"},
    {"tensor twice", "{\"a\":{" F32_4 "},\"a\":{" F32_4 "}}", 16, "tensor \"a\": found twice"},
    {"tensor twice through an escape", "{\"a\":{" F32_4 "},\"\\u0061\":{" F32_4 "}}", 16,
     "found twice"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "found twice"},
    {"metadata key twice", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "key \"k\""},
    {"metadata value is a number", "{\"__metadata__\":{\"k\":1}}", 0, "expected a string"},
    {"metadata value is an object", "{\"__metadata__\":{\"k\":{}}}", 0, "expected a string"},
    {"metadata is a list", "{\"__metadata__\":[]}", 0, "__metadata__"},
    {"unknown dtype", T("\"dtype\":\"F31\",\"shape\":[4],\"data_offsets\":[0,16]"), 16,
     "dtype \"F31\""},
    {"dtype is a number", T("\"dtype\":1,\"shape\":[4],\"data_offsets\":[0,16]"), 16,
     "expected a string"},
    {"negative dimension", T("\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]"), 16,
     "non-negative integer"},
    {"fraction", T("\"dtype\":\"F32\",\"shape\":[4.0],\"data_offsets\":[0,16]"), 16, "fraction"},
    {"exponent", T("\"dtype\":\"F32\",\"shape\":[4e0],\"data_offsets\":[0,16]"), 16, "fraction"},
    {"leading zero", T("\"dtype\":\"F32\",\"shape\":[04],\"data_offsets\":[0,16]"), 16, "fraction"},
    {"2^48", T("\"dtype\":\"U8\",\"shape\":[281474976710656],\"data_offsets\":[0,0]"), 0,
     "above 281474976710655"},
    {"2^64 - 2", T("\"dtype\":\"U8\",\"shape\":[2,18446744073709551614],\"data_offsets\":[0,0]"), 0,
     "above 281474976710655"},
    {"2^63 - 1", T("\"dtype\":\"U8\",\"shape\":[2,9223372036854775807],\"data_offsets\":[0,0]"), 0,
     "above 281474976710655"},
    {"product of 2^64",
     T("\"dtype\":\"U8\",\"shape\":[65536,281474976710655,2],\"data_offsets\":[0,0]"), 0,
     "product does not fit"},
    {"bits wrap", T("\"dtype\":\"F64\",\"shape\":[4096,281474976710655],\"data_offsets\":[0,0]"), 0,
     "size does not fit"},
    {"rank 9", T("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1,
     "more than 8 dimensions"},
    {"odd number of F4", T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, "12 bits"},
    {"offsets reversed", T("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,4]"), 8,
     "end before begin"},
    {"three offsets", T("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]"), 4,
     "expected ']'"},
    {"size is not shape x dtype", T("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,15]"), 15,
     "found 15 bytes, expected 16"},
    {"end past the file", T("\"dtype\":\"U8\",\"shape\":[17],\"data_offsets\":[0,17]"), 16,
     "the end of the file"},
    {"first does not begin at 0", T("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]"), 5,
     "a hole"},
    {"a hole",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
     9, "tensor \"b\": data begins at 5, expected 4 (a hole)"},
    {"an overlap",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
     7, "an overlap"},
    {"the same bytes twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, "an overlap"},
    {"two bytes missing", T(F32_4), 14, "the end of the file"},
    {"two bytes too many", T(F32_4), 18, "found 18 bytes, expected 16"},
    {"data without a tensor", "{}", 4, "found 4 bytes, expected 0"},
};

static void test_LOD_03_broken_headers_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof k_bad / sizeof k_bad[0]; i++) {
        struct qn_buf b;
        qn_tf_st(&b, k_bad[i].header, k_bad[i].n_data);
        expect_bad(k_bad[i].what, &b, k_bad[i].want);
        qn_buf_done(&b);
    }
}

static void test_LOD_03_header_length_is_checked_first(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        size_t file;
        const char *want;
    } k_cases[] = {{0x3c, 8, "rest of the file"},
                   {17, 24, "rest of the file"},
                   {(uint64_t)1 << 63, 64, "limit 100000000"},
                   {UINT64_MAX, 64, "limit 100000000"},
                   {UINT64_MAX - 7, 8, "limit 100000000"},
                   {101000000, 64, "limit 100000000"},
                   {0, 7, "at least 8"},
                   {0, 0, "at least 8"}};
    for (size_t i = 0; i < sizeof k_cases / sizeof k_cases[0]; i++) {
        char bytes[64] = {0};
        memcpy(bytes, &k_cases[i].n, 8);
        struct qn_buf b = {.data = bytes, .len = k_cases[i].file, .cap = sizeof bytes};
        expect_bad("header length", &b, k_cases[i].want);
    }
}

// A truncated file is refused wherever it is cut.
static void test_LOD_03_every_truncation_is_refused(void **state)
{
    (void)state;
    struct qn_buf b;
    qn_tf_st(&b, "{\"__metadata__\":{\"k\":\"\\u00e9\"},\"a\":{" F32_4 "}}", 16);
    for (size_t n = 0; n < b.len; n++) {
        struct qn_buf cut = {.data = b.data, .len = n};
        expect_bad("truncated", &cut, "");
    }
    qn_buf_done(&b);
}

static void test_accepted_files(void **state)
{
    (void)state;
    struct qn_buf b;
    struct qn_st *st = NULL;
    struct qn_err err;
    // Order in the header is not the order of the data; white space around the object; escapes; a
    // scalar; types that quern does not use.
    qn_tf_st(&b,
             " \t\r\n{\"b\":{\"shape\":[2,3],\"data_offsets\":[4,16],\"dtype\":\"BF16\"},"
             "\"__metadata__\":{\"format\":\"pt\"},"
             "\"\\u0061\\ud83d\\ude00\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
             "\"c\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[16,18]}} \n",
             18);
    assert_int_equal(qn_st_open_mem(b.data, b.len, "x", &st, &err), QN_OK);
    assert_int_equal(qn_st_n_tensors(st), 3);
    const struct qn_tensor *a = qn_st_find(st, "a\xf0\x9f\x98\x80");
    assert_non_null(a);
    assert_int_equal(a->rank, 0);
    assert_int_equal(a->n_bytes, 4);
    assert_ptr_equal(a, qn_st_tensor(st, 0));
    const struct qn_tensor *t = qn_st_find(st, "b");
    assert_int_equal(t->dtype, QN_DT_BF16);
    assert_int_equal(t->rank, 2);
    assert_true(t->shape[0] == 2 && t->shape[1] == 3 && t->n_bytes == 12);
    assert_int_equal(t->data[0], 4); // the data counts up
    assert_int_equal(qn_st_find(st, "c")->dtype, QN_DT_OTHER);
    assert_null(qn_st_find(st, "d"));
    qn_st_close(st);
    qn_buf_done(&b);

    qn_tf_st(&b, "{}", 0);
    assert_int_equal(qn_st_open_mem(b.data, b.len, "x", &st, &err), QN_OK);
    assert_int_equal(qn_st_n_tensors(st), 0);
    qn_st_close(st);
    qn_buf_done(&b);
}

static void test_LOD_02_zero_size_tensors_load(void **state)
{
    (void)state;
    struct qn_buf b;
    struct qn_st *st = NULL;
    struct qn_err err;
    qn_tf_st(&b,
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[8,8]},"
             "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
             "\"c\":{\"dtype\":\"F32\",\"shape\":[4,0],\"data_offsets\":[0,0]}}",
             8);
    assert_int_equal(qn_st_open_mem(b.data, b.len, "x", &st, &err), QN_OK);
    const struct qn_tensor *a = qn_st_find(st, "a");
    assert_int_equal(a->n_bytes, 0);
    assert_int_equal(a->shape[0], 0);
    float out[4];
    assert_int_equal(qn_tensor_read_f32(a, 0, 0, 4, out, &err), QN_E_INVALID);
    assert_int_equal(qn_tensor_read_canon(qn_st_find(st, "c"), 0, out, NULL, NULL, &err), QN_OK);
    qn_st_close(st);
    qn_buf_done(&b);
}

static void test_limits(void **state)
{
    (void)state;
    struct qn_buf h, b;
    qn_buf_init(&h, 0);
    for (int over = 0; over < 2; over++) {
        qn_buf_clear(&h);
        qn_buf_puts(&h, "{\"");
        for (int i = 0; i < QN_ST_MAX_NAME + over; i++) {
            qn_buf_putc(&h, 'n');
        }
        qn_buf_puts(&h, "\":{" F32_4 "}}");
        qn_tf_st(&b, h.data, 16);
        if (over) {
            expect_bad("long name", &b, "1025 bytes, expected 1 to 1024");
        } else {
            struct qn_st *st = NULL;
            assert_int_equal(qn_st_open_mem(b.data, b.len, "x", &st, NULL), QN_OK);
            qn_st_close(st);
        }
        qn_buf_done(&b);
    }
    // Nesting beyond the grammar ends the parse at once, however deep it goes.
    qn_buf_clear(&h);
    qn_buf_puts(&h, "{\"a\":");
    for (int i = 0; i < 1000000; i++) {
        qn_buf_putc(&h, '[');
    }
    qn_tf_st(&b, h.data, 0);
    expect_bad("a million brackets", &b, "expected '{'");
    qn_buf_done(&b);
    qn_buf_done(&h);
}

// As many tensors as a mixture of experts of 30 billion parameters has with zero points.
static void test_many_tensors_open_fast(void **state)
{
    (void)state;
    enum {
        N = 73728
    };
    struct qn_buf h, b;
    struct qn_st *st = NULL;
    qn_buf_init(&h, 0);
    for (int i = 0; i < N; i++) {
        qn_buf_printf(&h,
                      "%c\"model.layers.%d.mlp.experts.%d.down_proj.weight_scale.%d\":{\"dtype\":"
                      "\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                      i == 0 ? '{' : ',', i / 1536, i / 12 % 128, i % 12, i, i + 1);
    }
    qn_buf_puts(&h, "}");
    qn_tf_st(&b, h.data, N);
    clock_t t0 = clock();
    assert_int_equal(qn_st_open_mem(b.data, b.len, "x", &st, NULL), QN_OK);
    for (size_t i = 0; i < N; i++) {
        const struct qn_tensor *t = qn_st_tensor(st, i);
        assert_ptr_equal(qn_st_find(st, t->name), t);
    }
    double s = (double)(clock() - t0) / CLOCKS_PER_SEC;
    print_message("%d tensors: opened and found in %.3f s of CPU time\n", N, s);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    assert_true(s < 10.0);
#else
    assert_true(s < 1.0);
#endif
    qn_st_close(st);
    qn_buf_done(&b);
    qn_buf_done(&h);
}

struct read_arg {
    const struct qn_tensor *t;
    enum qn_status rc;
};

static void read_row(void *arg)
{
    struct read_arg *r = arg;
    float out[1024];
    r->rc = qn_tensor_read_f32(r->t, 100, 0, 1024, out, NULL);
}

static void nothing(void *arg)
{
    (void)arg;
}

static struct sigaction g_on_sigbus; // qn_map_guard's; cmocka puts its own in place for each test

static void test_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(sigaction(SIGBUS, &g_on_sigbus, NULL), 0);
    char dir[256], path[300];
    struct qn_buf b;
    struct qn_st *st = NULL;
    struct qn_err err;
    qn_tf_mkdir(dir);
    qn_tf_st(&b, "{\"a\":{\"dtype\":\"F32\",\"shape\":[128,1024],\"data_offsets\":[0,524288]}}",
             524288);
    qn_tf_write(dir, "s.safetensors", b.data, b.len);
    qn_buf_done(&b);
    snprintf(path, sizeof path, "%s/s.safetensors", dir);
    assert_int_equal(qn_st_open(path, &st, &err), QN_OK);
    struct read_arg r = {.t = qn_st_find(st, "a"), .rc = QN_E_INTERNAL};
    assert_int_equal(qn_map_guard(read_row, &r, &err), QN_OK);
    assert_int_equal(r.rc, QN_OK);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(qn_map_guard(read_row, &r, &err), QN_E_IO);
    qn_st_close(st);

    assert_int_equal(qn_st_open(path, &st, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "s.safetensors"));
    assert_int_equal(qn_st_open(dir, &st, &err), QN_E_INVALID); // a directory
    qn_tf_rmdir(dir);
    assert_int_equal(qn_st_open(path, &st, &err), QN_E_NOT_FOUND);
}

int main(void)
{
    (void)qn_map_guard(nothing, NULL, NULL);
    sigaction(SIGBUS, NULL, &g_on_sigbus);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_LOD_03_broken_headers_are_refused),
        cmocka_unit_test(test_LOD_03_header_length_is_checked_first),
        cmocka_unit_test(test_LOD_03_every_truncation_is_refused),
        cmocka_unit_test(test_accepted_files),
        cmocka_unit_test(test_LOD_02_zero_size_tensors_load),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_tensors_open_fast),
        cmocka_unit_test(test_file_that_shrinks_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
