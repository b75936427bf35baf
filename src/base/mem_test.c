#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static void test_arena_objects(void **state)
{
    (void)state;
    uint64_t before = qn_mem_held_bytes(QN_MEM_TEXT);
    struct qn_arena *a = NULL;
    assert_int_equal(qn_arena_new(QN_MEM_TEXT, 0, &a, NULL), QN_OK);
    char *objects[200];
    for (size_t i = 0; i < 200; i++) { // across chunks
        size_t n = 1 + i * 37;
        objects[i] = qn_arena_alloc(a, n);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % (n >= 64 ? 64 : 16), 0);
        for (size_t j = 0; j < n; j++) {
            assert_int_equal(objects[i][j], 0);
        }
        memset(objects[i], (int)i, n);
    }
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal((unsigned char)objects[i][0], i);
        assert_int_equal((unsigned char)objects[i][i * 37], i);
    }
    assert_int_equal(qn_arena_used_bytes(a), 200 + 37 * (199 * 200 / 2));
    assert_true(qn_mem_held_bytes(QN_MEM_TEXT) - before >= qn_arena_used_bytes(a));
    uint64_t held = qn_mem_held_bytes(QN_MEM_TEXT);
    qn_arena_reset(a); // the same again from the same chunks
    assert_int_equal(qn_arena_used_bytes(a), 0);
    for (size_t i = 0; i < 200; i++) {
        char *p = qn_arena_alloc(a, 1 + i * 37);
        assert_non_null(p);
        assert_int_equal(p[0], 0);
    }
    assert_int_equal(qn_mem_held_bytes(QN_MEM_TEXT), held);
    qn_arena_free(a);
    assert_int_equal(qn_mem_held_bytes(QN_MEM_TEXT), before);
    qn_arena_free(NULL);
}

static void test_arena_limit(void **state)
{
    (void)state;
    struct qn_arena *a = NULL;
    assert_int_equal(qn_arena_new(QN_MEM_OTHER, 10000, &a, NULL), QN_OK);
    assert_non_null(qn_arena_alloc(a, 5000));
    assert_null(qn_arena_alloc(a, 6000));
    assert_non_null(qn_arena_alloc(a, 1000));
    assert_null(qn_arena_alloc(a, SIZE_MAX));
    assert_null(qn_arena_array(a, SIZE_MAX / 2, 4));
    assert_string_equal(qn_arena_strdup(a, "text"), "text");
    assert_string_equal(qn_arena_strndup(a, "text", 2), "te");
    qn_arena_free(a);
}

static void test_pages(void **state)
{
    (void)state;
    uint64_t before = qn_mem_held_bytes(QN_MEM_KV);
    size_t n = (size_t)5 << 20;
    unsigned char *p = qn_pages_alloc(n, QN_MEM_KV);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 4096, 0);
    assert_int_equal(p[0] + p[n / 2] + p[n - 1], 0);
    assert_int_equal(qn_mem_held_bytes(QN_MEM_KV) - before, n);
    p[n - 1] = 1;
    qn_pages_free(p, n, QN_MEM_KV);
    qn_pages_free(NULL, 5, QN_MEM_KV);
    assert_int_equal(qn_mem_held_bytes(QN_MEM_KV), before);
    assert_null(qn_pages_alloc(SIZE_MAX / 2, QN_MEM_KV));
    assert_int_equal(qn_mem_held_bytes(QN_MEM_KV), before);
}

static void test_aligned_memory(void **state)
{
    (void)state;
    for (size_t n = 0; n < 200; n += 13) {
        void *p = qn_aligned_alloc(n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        free(p);
    }
    assert_null(qn_aligned_alloc(SIZE_MAX, 2));
    assert_null(qn_aligned_alloc(SIZE_MAX, 1));
}

static void test_purposes_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < QN_MEM_N_PURPOSES; i++) {
        assert_string_not_equal(qn_mem_purpose_name((enum qn_mem_purpose)i), "unknown");
    }
}

static void test_hash_depends_on_every_byte(void **state)
{
    (void)state;
    unsigned char data[70] = {0};
    for (size_t n = 0; n < sizeof data; n++) {
        uint64_t h = qn_hash64(data, n, 5);
        assert_true(h == qn_hash64(data, n, 5));
        assert_true(h != qn_hash64(data, n, 6));
        assert_true(n == 0 || h != qn_hash64(data, n - 1, 5)); // zeros of another length
        for (size_t i = 0; i < n; i++) {
            for (int bit = 0; bit < 8; bit++) {
                data[i] ^= (unsigned char)(1u << bit);
                assert_true(h != qn_hash64(data, n, 5));
                data[i] ^= (unsigned char)(1u << bit);
            }
        }
    }
}

static void test_string_map(void **state)
{
    (void)state;
    enum {
        N = 5000
    };
    struct qn_strmap m;
    qn_strmap_init(&m);
    uint32_t v = 0;
    assert_false(qn_strmap_get(&m, "x", 1, &v));
    static char keys[N][8];
    for (uint32_t i = 0; i < N; i++) {
        memcpy(keys[i], &i, sizeof i); // zero bytes are bytes
        bool existing = true;
        assert_true(qn_strmap_put(&m, keys[i], 4 + i % 4, i, &existing));
        assert_false(existing);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_true(qn_strmap_get(&m, keys[i], 4 + i % 4, &v));
        assert_int_equal(v, i);
        bool existing = false;
        assert_false(qn_strmap_put(&m, keys[i], 4 + i % 4, 9, &existing));
        assert_true(existing);
        assert_true(qn_strmap_get(&m, keys[i], 4 + i % 4, &v) && v == i);
        assert_false(qn_strmap_get(&m, keys[i], 3, &v));
    }
    qn_strmap_done(&m);
    assert_false(qn_strmap_get(&m, keys[0], 4, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_objects),
        cmocka_unit_test(test_arena_limit),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_aligned_memory),
        cmocka_unit_test(test_purposes_have_names),
        cmocka_unit_test(test_hash_depends_on_every_byte),
        cmocka_unit_test(test_string_map),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
