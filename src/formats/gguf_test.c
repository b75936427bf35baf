#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "formats/gguf.h"
#include "formats/test_files.h"

static enum qn_status open_exact(const void *data, size_t n, struct qn_gguf **g, void **out_copy,
                                 struct qn_err *err)
{
    *out_copy = malloc(n > 0 ? n : 1); // exactly the size, so that ASan sees a read past the end
    memcpy(*out_copy, data, n);
    enum qn_status rc = qn_gguf_open_mem(*out_copy, n, g, err);
    if (rc != QN_OK) {
        free(*out_copy);
    }
    return rc;
}

static void expect_bad_bytes(const char *what, const void *data, size_t n, const char *want)
{
    struct qn_gguf *g = NULL;
    struct qn_err err = {0};
    void *copy;
    enum qn_status rc = open_exact(data, n, &g, &copy, &err);
    if (rc == QN_OK) {
        fail_msg("%s: opened, expected an error with \"%s\"", what, want);
    }
    if ((rc != QN_E_FORMAT && rc != QN_E_LIMIT && rc != QN_E_UNSUPPORTED) ||
        strstr(err.msg, want) == NULL || strstr(err.msg, "GGUF file") == NULL) {
        fail_msg("%s: found %s \"%s\", expected \"%s\"", what, qn_status_name(rc), err.msg, want);
    }
}

static void expect_bad(const char *what, struct qn_tf_gguf *b, const char *want)
{
    struct qn_buf out;
    qn_tf_finish(b, &out);
    expect_bad_bytes(what, out.data, out.len, want);
    qn_buf_done(&out);
    qn_tf_done(b);
}

struct head {
    char magic[4];
    uint32_t version;
    uint64_t n_tensors, n_kv;
};

static void test_LOD_04_head(void **state)
{
    (void)state;
    static const struct {
        const char *what, *magic;
        uint32_t version;
        uint64_t n_tensors, n_kv;
        const char *want;
    } k_cases[] = {
        {"magic", "GGML", 3, 0, 0, "magic: found 47 47 4d 4c"},
        {"version 1", "GGUF", 1, 0, 0, "version: found 1"},
        {"version 4", "GGUF", 4, 0, 0, "version: found 4"},
        {"big-endian", "GGUF", 0x03000000, 0, 0, "big-endian"},
        {"2^61 tensors", "GGUF", 3, (uint64_t)1 << 61, 0, "number of tensors"},
        {"-1 tensors", "GGUF", 3, UINT64_MAX, 0, "number of tensors: found -1"},
        {"2^62 keys", "GGUF", 3, 0, (uint64_t)1 << 62, "number of keys"},
        {"-1 keys", "GGUF", 3, 0, UINT64_MAX, "number of keys: found -1"},
        {"more keys than bytes", "GGUF", 3, 0, 65536, "do not fit a file"},
        {"more tensors than bytes", "GGUF", 3, 1 << 20, 0, "do not fit a file"},
    };
    for (size_t i = 0; i < sizeof k_cases / sizeof k_cases[0]; i++) {
        struct head h = {.version = k_cases[i].version,
                         .n_tensors = k_cases[i].n_tensors,
                         .n_kv = k_cases[i].n_kv};
        memcpy(h.magic, k_cases[i].magic, 4);
        uint64_t held = qn_mem_held_bytes(QN_MEM_OTHER);
        size_t heap = mallinfo2().uordblks;
        expect_bad_bytes(k_cases[i].what, &h, sizeof h, k_cases[i].want);
        assert_true(qn_mem_held_bytes(QN_MEM_OTHER) == held);
        assert_true(mallinfo2().uordblks < heap + (1 << 20));
    }
    struct head h = {.magic = {'G', 'G', 'U', 'F'}, .version = 2};
    struct qn_gguf *g = NULL;
    for (size_t n = 0; n < sizeof h; n++) {
        expect_bad_bytes("cut", &h, n, "found the end of the file");
    }
    assert_int_equal(qn_gguf_open_mem(&h, sizeof h, &g, NULL), QN_OK);
    assert_int_equal(qn_gguf_n_tensors(g), 0);
    qn_gguf_close(g);
}

static void test_LOD_04_keys(void **state)
{
    (void)state;
    struct qn_tf_gguf b;
    const uint32_t f64_cut[2] = {12, 0};
    struct {
        uint32_t type, elem;
        uint64_t n;
    } __attribute__((packed)) arr = {9, 0, 0};
    struct {
        uint32_t type;
        uint64_t len;
    } __attribute__((packed)) str = {8, 0};
    unsigned char bool2[5] = {7, 0, 0, 0, 2};
    static const struct {
        const char *what;
        uint32_t elem;
        uint64_t n;
        const char *want;
    } k_arrays[] = {
        {"2^63 strings", 8, (uint64_t)1 << 63, "elements, expected at most"},
        {"2^63 bytes", 0, (uint64_t)1 << 63, "elements, expected at most"},
        {"2^61 u64", 10, (uint64_t)1 << 61, "elements, expected at most"},
        {"2^64 - 1 f64", 12, UINT64_MAX, "elements, expected at most"},
        {"arrays of arrays", 9, 0, "array of arrays"},
        {"element type 13", 13, 0, "element type: found type 13"},
        {"element type -1", UINT32_MAX, 0, "element type: found type -1"},
    };
    for (size_t i = 0; i < sizeof k_arrays / sizeof k_arrays[0]; i++) {
        qn_tf_init(&b);
        arr.elem = k_arrays[i].elem;
        arr.n = k_arrays[i].n;
        qn_tf_raw(&b, "k.arr", &arr, sizeof arr);
        expect_bad(k_arrays[i].what, &b, k_arrays[i].want);
    }
    static const struct {
        uint64_t len;
        const char *want;
    } k_strings[] = {{1, "expected at most 0"},
                     {(uint64_t)1 << 26, "expected at most 0"},
                     {((uint64_t)1 << 26) + 1, "limit 67108864"},
                     {UINT64_MAX, "limit 67108864"}};
    for (size_t i = 0; i < sizeof k_strings / sizeof k_strings[0]; i++) {
        qn_tf_init(&b);
        str.len = k_strings[i].len;
        qn_tf_raw(&b, "k.str", &str, sizeof str);
        expect_bad("string length", &b, k_strings[i].want);
    }
    qn_tf_init(&b);
    qn_tf_raw(&b, "k", &(uint32_t){13}, 4);
    qn_tf_u32(&b, "after", 1);
    expect_bad("value type 13", &b, "value: found type 13");
    qn_tf_init(&b);
    qn_tf_raw(&b, "k", bool2, sizeof bool2);
    expect_bad("bool 2", &b, "found bool 2");
    qn_tf_init(&b);
    qn_tf_raw(&b, "k", f64_cut, sizeof f64_cut);
    expect_bad("cut value", &b, "found the end of the file");
    qn_tf_init(&b);
    qn_tf_u32(&b, "twice", 1);
    qn_tf_u32(&b, "twice", 2);
    expect_bad("key twice", &b, "key \"twice\": found twice");
    qn_tf_init(&b);
    qn_tf_u32(&b, "", 1);
    expect_bad("empty key", &b, "empty string");
    qn_tf_init(&b);
    qn_tf_u32(&b, "a\nb", 1);
    expect_bad("control character", &b, "control character 0x0a");
    char *longkey = calloc(1, 65537);
    memset(longkey, 'k', 65536);
    qn_tf_init(&b);
    qn_tf_u32(&b, longkey, 1);
    expect_bad("long key", &b, "limit 65535");
    free(longkey);
}

static void test_LOD_04_alignment(void **state)
{
    (void)state;
    struct qn_tf_gguf b;
    static const uint32_t k_bad[] = {0, 1, 4, 24, 1u << 30, 131072, UINT32_MAX};
    for (size_t i = 0; i < sizeof k_bad / sizeof k_bad[0]; i++) {
        qn_tf_init(&b);
        qn_tf_u32(&b, "general.alignment", k_bad[i]);
        qn_tf_tensor(&b, "t.weight", 0, 1, 0);
        expect_bad("alignment", &b, "general.alignment");
    }
    qn_tf_init(&b);
    qn_tf_u16(&b, "general.alignment", 32);
    qn_tf_tensor(&b, "t.weight", 0, 1, 0);
    expect_bad("alignment type", &b, "found u16, expected u32");
    static const uint32_t k_good[] = {8, 64, 65536};
    for (size_t i = 0; i < sizeof k_good / sizeof k_good[0]; i++) {
        struct qn_buf out;
        struct qn_gguf *g = NULL;
        qn_tf_init(&b);
        b.align = k_good[i];
        qn_tf_u32(&b, "general.alignment", k_good[i]);
        qn_tf_tensor(&b, "t.weight", 0, 3, 0);
        qn_tf_tensor(&b, "u.weight", 0, 3, 0);
        qn_tf_finish(&b, &out);
        assert_int_equal(qn_gguf_open_mem(out.data, out.len, &g, NULL), QN_OK);
        assert_int_equal(qn_gguf_tensor(g, 1)->data - qn_gguf_tensor(g, 0)->data,
                         k_good[i] < 12 ? 16 : k_good[i]);
        qn_gguf_close(g);
        qn_buf_done(&out);
        qn_tf_done(&b);
    }
}

static void bad_info(const char *what, uint32_t n_dims, const uint64_t *ne, uint32_t type,
                     uint64_t offset, const char *want)
{
    struct qn_tf_gguf b;
    uint64_t held = qn_mem_held_bytes(QN_MEM_OTHER);
    qn_tf_init(&b);
    qn_tf_info(&b, "t.weight", n_dims, ne, type, offset);
    expect_bad(what, &b, want);
    assert_true(qn_mem_held_bytes(QN_MEM_OTHER) == held);
}

static void test_LOD_04_tensor_infos(void **state)
{
    (void)state;
    const uint64_t big = ((uint64_t)1 << 42) + 1, half = INT64_MAX;
    bad_info("2^42 + 1", 2, (uint64_t[]){big, 1u << 22}, 0, 0, "does not fit 64 bits");
    bad_info("2^42 + 1 alone", 1, (uint64_t[]){big}, 0, 0, "within a file");
    bad_info("(2^63 - 1) x 2", 2, (uint64_t[]){half, 2}, 0, 0, "does not fit 64 bits");
    bad_info("2^63 - 1, u8", 1, (uint64_t[]){half}, 24, 0, "within a file");
    bad_info("2^63 - 1, f64", 1, (uint64_t[]){half}, 28, 0, "does not fit 64 bits");
    bad_info("-1", 1, (uint64_t[]){UINT64_MAX}, 0, 0, "found -1, expected at least 1");
    bad_info("0", 2, (uint64_t[]){4, 0}, 0, 0, "found 0, expected at least 1");
    bad_info("5 dims", 5, (uint64_t[]){1, 1, 1, 1, 1}, 0, 0, "found 5 dimensions");
    bad_info("half a block", 1, (uint64_t[]){48}, 2, 0, "row of 48 elements");
    bad_info("scalar block", 0, NULL, 2, 0, "row of 1 elements");
    static const uint32_t k_types[] = {4, 5, 31, 32, 33, 36, 37, 38, 42, 1000, 0x80000000u};
    for (size_t i = 0; i < sizeof k_types / sizeof k_types[0]; i++) {
        bad_info("type", 1, (uint64_t[]){256}, k_types[i], 0, "unknown or removed");
    }
    bad_info("Q8_1", 1, (uint64_t[]){32}, 9, 0, "Q8_1, which has no place in files");
    bad_info("Q8_K", 1, (uint64_t[]){256}, 15, 0, "Q8_K, which has no place in files");
    bad_info("offset", 1, (uint64_t[]){1}, 0, 32, "offset 32, expected 0");
    bad_info("no data", 1, (uint64_t[]){1}, 0, 0, "the end of the file");

    struct qn_tf_gguf b;
    qn_tf_init(&b);
    qn_tf_tensor(&b, "t.weight", 0, 1, 0);
    qn_tf_tensor(&b, "t.weight", 0, 1, 0);
    expect_bad("tensor twice", &b, "\"t.weight\": found twice");
    qn_tf_init(&b);
    qn_tf_tensor(&b, "a123456789b123456789c123456789d123456789e123456789f123456789g123", 0, 1, 0);
    expect_bad("name of 64 bytes", &b, "limit 63");
    qn_tf_init(&b); // offsets must follow each other: a gap and an overlap
    qn_tf_tensor(&b, "a.weight", 0, 1, 0);
    qn_tf_info(&b, "b.weight", 1, (uint64_t[]){1}, 0, 64);
    expect_bad("gap", &b, "offset 64, expected 32");
    qn_tf_init(&b);
    qn_tf_tensor(&b, "a.weight", 0, 1, 0);
    qn_tf_info(&b, "b.weight", 1, (uint64_t[]){1}, 0, 0);
    expect_bad("overlap", &b, "offset 0, expected 32");
    qn_tf_init(&b); // sizes that only wrap when summed
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        qn_tf_info(&b, name, 1, (uint64_t[]){(uint64_t)1 << 62}, 24, (uint64_t)i << 62);
    }
    expect_bad("sum", &b, "within a file");
}

static void test_LOD_04_vocabulary_arrays(void **state)
{
    (void)state;
    static const char *const k_tokens[3] = {"a", "b", ""};
    const float scores[3] = {1, 2, 3};
    const int32_t types[3] = {1, 1, 3};
    struct qn_tf_gguf b;
    qn_tf_init(&b);
    qn_tf_arr(&b, "tokenizer.ggml.tokens", QN_GGUF_I32, 3, types, sizeof types);
    expect_bad("tokens", &b, "found an array of i32, expected an array of string");
    qn_tf_init(&b);
    qn_tf_str(&b, "tokenizer.ggml.tokens", "a");
    expect_bad("tokens", &b, "found string, expected an array of string");
    qn_tf_init(&b);
    qn_tf_strs(&b, "tokenizer.ggml.tokens", k_tokens, 3);
    qn_tf_arr(&b, "tokenizer.ggml.scores", QN_GGUF_U8, 3, "abc", 3);
    expect_bad("scores", &b, "found an array of u8, expected an array of f32");
    qn_tf_init(&b);
    qn_tf_strs(&b, "tokenizer.ggml.tokens", k_tokens, 3);
    qn_tf_arr(&b, "tokenizer.ggml.scores", QN_GGUF_F32, 2, scores, 8);
    expect_bad("scores", &b, "found 2 elements, expected 3");
    qn_tf_init(&b);
    qn_tf_strs(&b, "tokenizer.ggml.tokens", k_tokens, 3);
    qn_tf_arr(&b, "tokenizer.ggml.token_type", QN_GGUF_F32, 3, scores, 12);
    expect_bad("token_type", &b, "expected an array of i32");
    qn_tf_init(&b);
    qn_tf_arr(&b, "tokenizer.ggml.token_type", QN_GGUF_I32, 3, types, 12);
    expect_bad("token_type without tokens", &b, "found 3 elements, expected 0");
    qn_tf_init(&b);
    qn_tf_arr(&b, "tokenizer.ggml.merges", QN_GGUF_I32, 3, types, 12);
    expect_bad("merges", &b, "expected an array of string");
}

static void test_getters(void **state)
{
    (void)state;
    static const char *const k_tokens[3] = {"a", "", "xyz"};
    const int64_t i64[2] = {-5, INT64_MAX};
    const uint64_t u64[2] = {7, UINT64_MAX};
    const double f64[2] = {0.5, -1e300};
    struct qn_tf_gguf b;
    struct qn_buf out;
    struct qn_gguf *g = NULL;
    struct {
        uint32_t type;
        uint64_t v;
    } __attribute__((packed)) wide = {10, UINT64_MAX};
    unsigned char i8[5] = {1, 0, 0, 0, 0xfe};
    qn_tf_init(&b);
    qn_tf_u32(&b, "u32", 4000000000u);
    qn_tf_u16(&b, "u16", 65535);
    qn_tf_raw(&b, "i8", i8, sizeof i8);
    qn_tf_raw(&b, "u64", &wide, sizeof wide);
    qn_tf_f32(&b, "f32", 0.1f);
    qn_tf_bool(&b, "bool", true);
    qn_tf_str(&b, "str", "text");
    qn_tf_strs(&b, "strs", k_tokens, 3);
    qn_tf_arr(&b, "i64s", QN_GGUF_I64, 2, i64, sizeof i64);
    qn_tf_arr(&b, "u64s", QN_GGUF_U64, 2, u64, sizeof u64);
    qn_tf_arr(&b, "f64s", QN_GGUF_F64, 2, f64, sizeof f64);
    qn_tf_arr(&b, "i8s", QN_GGUF_I8, 2, "\xff\x01", 2);
    qn_tf_arr(&b, "none", QN_GGUF_STR, 0, "", 0);
    qn_tf_finish(&b, &out);
    assert_int_equal(qn_gguf_open_mem(out.data, out.len, &g, NULL), QN_OK);
    int64_t i;
    double f;
    bool flag;
    const char *s;
    size_t n;
    enum qn_gguf_type type;
    assert_true(qn_gguf_int(g, "u32", &i) && i == 4000000000);
    assert_true(qn_gguf_int(g, "u16", &i) && i == 65535);
    assert_true(qn_gguf_int(g, "i8", &i) && i == -2);
    assert_false(qn_gguf_int(g, "u64", &i)); // does not fit
    assert_false(qn_gguf_int(g, "f32", &i));
    assert_false(qn_gguf_int(g, "bool", &i));
    assert_false(qn_gguf_int(g, "absent", &i));
    assert_true(qn_gguf_float(g, "f32", &f) && f == (double)0.1f);
    assert_false(qn_gguf_float(g, "u32", &f));
    assert_true(qn_gguf_bool(g, "bool", &flag) && flag);
    assert_false(qn_gguf_bool(g, "u32", &flag));
    assert_true(qn_gguf_str(g, "str", &s, &n) && n == 4 && memcmp(s, "text", 4) == 0);
    assert_false(qn_gguf_str(g, "strs", &s, &n));
    assert_true(qn_gguf_arr(g, "strs", &type, &n) && type == QN_GGUF_STR && n == 3);
    assert_true(qn_gguf_arr_str(g, "strs", 1, &s, &n) && n == 0);
    assert_true(qn_gguf_arr_str(g, "strs", 2, &s, &n) && n == 3 && memcmp(s, "xyz", 3) == 0);
    assert_false(qn_gguf_arr_str(g, "strs", 3, &s, &n));
    assert_false(qn_gguf_arr_str(g, "i64s", 0, &s, &n));
    assert_false(qn_gguf_arr_str(g, "none", 0, &s, &n));
    assert_true(qn_gguf_arr_int(g, "i64s", 0, &i) && i == -5);
    assert_true(qn_gguf_arr_int(g, "u64s", 0, &i) && i == 7);
    assert_false(qn_gguf_arr_int(g, "u64s", 1, &i));
    assert_true(qn_gguf_arr_int(g, "i8s", 0, &i) && i == -1);
    assert_false(qn_gguf_arr_int(g, "i8s", 2, &i));
    assert_false(qn_gguf_arr_int(g, "strs", 0, &i));
    assert_true(qn_gguf_arr_float(g, "f64s", 1, &f) && f == -1e300);
    assert_false(qn_gguf_arr_float(g, "i8s", 0, &f));
    assert_int_equal(qn_gguf_n_keys(g), 13);
    assert_string_equal(qn_gguf_key(g, 6, &type), "str");
    assert_int_equal(type, QN_GGUF_STR);
    qn_gguf_close(g);
    qn_buf_done(&out);
    qn_tf_done(&b);
}

static void test_shapes_are_outermost_first(void **state)
{
    (void)state;
    struct qn_tf_gguf b;
    struct qn_buf out;
    struct qn_gguf *g = NULL;
    qn_tf_init(&b);
    qn_tf_tensor(&b, "a.weight", 2, 64, 3);
    qn_tf_tensor(&b, "b.weight", 16, 256, 0); // a type without decoder: its size is known
    qn_tf_tensor(&b, "c.weight", 30, 2, 5);
    qn_tf_finish(&b, &out);
    assert_int_equal(qn_gguf_open_mem(out.data, out.len, &g, NULL), QN_OK);
    const struct qn_tensor *a = qn_gguf_find(g, "a.weight");
    assert_true(a->rank == 2 && a->shape[0] == 3 && a->shape[1] == 64 && a->n_bytes == 3 * 36);
    assert_int_equal(qn_gguf_find(g, "b.weight")->dtype, QN_DT_OTHER);
    assert_int_equal(qn_gguf_find(g, "b.weight")->n_bytes, 66);
    const struct qn_tensor *c = qn_gguf_find(g, "c.weight");
    assert_true(c->dtype == QN_DT_BF16 &&
                c->data + c->n_bytes <= (unsigned char *)out.data + out.len);
    assert_null(qn_gguf_find(g, "d.weight"));
    qn_gguf_close(g);
    // every truncation is refused, but for the padding behind the last tensor
    for (size_t n = 0; n + 12 < out.len; n += n < 300 ? 1 : 7) {
        void *copy;
        struct qn_err err;
        if (open_exact(out.data, n, &g, &copy, &err) == QN_OK) {
            fail_msg("cut at %zu of %zu: opened", n, out.len);
        }
    }
    qn_buf_done(&out);
    qn_tf_done(&b);
}

static void test_holes_past_the_end_of_a_sparse_file(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct qn_tf_gguf b;
    struct qn_buf out;
    struct qn_gguf *g = NULL;
    struct qn_err err;
    qn_tf_mkdir(dir);
    snprintf(path, sizeof path, "%s/sparse.gguf", dir);
    qn_tf_init(&b);
    qn_tf_info(&b, "t.weight", 2, (uint64_t[]){1 << 20, 1 << 12}, 24, 0); // 4 GiB of I8
    qn_tf_finish(&b, &out);
    qn_tf_write(dir, "sparse.gguf", out.data, out.len);
    assert_int_equal(truncate(path, (off_t)out.len + ((off_t)1 << 32)), 0);
    assert_int_equal(qn_gguf_open(path, &g, &err), QN_OK);
    assert_true(qn_gguf_tensor(g, 0)->n_bytes == (uint64_t)1 << 32);
    qn_gguf_close(g);
    assert_int_equal(truncate(path, (off_t)out.len + ((off_t)1 << 32) - 1), 0);
    assert_int_equal(qn_gguf_open(path, &g, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "t.weight"));
    qn_buf_done(&out);
    qn_tf_done(&b);
    qn_tf_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_LOD_04_head),
        cmocka_unit_test(test_LOD_04_keys),
        cmocka_unit_test(test_LOD_04_alignment),
        cmocka_unit_test(test_LOD_04_tensor_infos),
        cmocka_unit_test(test_LOD_04_vocabulary_arrays),
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_shapes_are_outermost_first),
        cmocka_unit_test(test_holes_past_the_end_of_a_sparse_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
