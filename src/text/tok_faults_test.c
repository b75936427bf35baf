#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_fixture.h"

// Loading, encoding and decoding once for each allocation made to fail, and many threads on one
// tokenizer. The linker sends this program's malloc, calloc and realloc here (--wrap).

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static atomic_long until_failure = -1; // allocations that still succeed; < 0: all do

static bool fails(void)
{
    if (atomic_load(&until_failure) < 0) {
        return false;
    }
    return atomic_fetch_sub(&until_failure, 1) == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

static const char text[] = "he\xCC\x81llo hello  12345 \xE2\x96\x81 <|s|><m> \xF0\x9F\xA6\x99";

static enum qn_status use(const char *json, size_t n)
{
    struct qn_tok *t = NULL;
    struct qn_ids ids = {0};
    struct qn_buf out = {0};
    struct qn_err err = {0};
    enum qn_status rc = qn_tok_from_json(json, n, NULL, &t, &err);
    if (rc == QN_OK) {
        rc = qn_tok_encode(t, text, strlen(text), NULL, 3, &ids, &err);
    }
    if (rc == QN_OK) {
        rc = qn_tok_decode(t, ids.v, ids.n, false, &out, &err);
    }
    qn_buf_done(&out);
    qn_ids_done(&ids);
    qn_tok_free(t);
    return rc;
}

static void each_allocation(json_t *root)
{
    char *json = json_dumps(root, 0);
    size_t n = strlen(json);
    long k = 0;
    enum qn_status rc;
    do {
        atomic_store(&until_failure, k++);
        rc = use(json, n);
        bool reached = atomic_load(&until_failure) < 0;
        atomic_store(&until_failure, -1);
        if (reached) {
            assert_int_equal(rc, QN_E_NOMEM);
        }
    } while (rc != QN_OK);
    assert_true(k > 20);
    free(json);
    json_decref(root);
}

static void test_each_allocation_fails_once(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb();
    qn_fixture_tb_specials(root);
    json_object_set_new(root, "normalizer", json_pack("{s:s}", "type", "NFC"));
    each_allocation(root);
    root = qn_fixture_tb();
    qn_fixture_tb_pattern(root, "\\p{L}+|\\s"); // through PCRE2
    each_allocation(root);
    root = qn_fixture_ts();
    qn_fixture_ts_prepend(root);
    each_allocation(root);
}

struct job {
    const struct qn_tok *t;
    const struct qn_ids *want;
    bool same;
};

static void *encode_often(void *arg)
{
    struct job *j = arg;
    j->same = true;
    for (int i = 0; i < 50; i++) {
        struct qn_ids ids = {0};
        enum qn_status rc = qn_tok_encode(j->t, text, strlen(text), NULL, 3, &ids, NULL);
        j->same = j->same && rc == QN_OK && ids.n == j->want->n &&
                  memcmp(ids.v, j->want->v, ids.n * sizeof *ids.v) == 0;
        qn_ids_done(&ids);
    }
    return NULL;
}

static void test_threads_share_a_tokenizer(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb();
    json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_false());
    char *json = json_dumps(root, 0);
    struct qn_tok *first = NULL, *t = NULL;
    struct qn_ids want = {0};
    assert_int_equal(qn_tok_from_json(json, strlen(json), NULL, &first, NULL), QN_OK);
    assert_int_equal(qn_tok_encode(first, text, strlen(text), NULL, 3, &want, NULL), QN_OK);
    assert_int_equal(qn_tok_from_json(json, strlen(json), NULL, &t, NULL), QN_OK);
    pthread_t threads[4];
    struct job jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){.t = t, .want = &want};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(jobs[i].same);
    }
    qn_ids_done(&want);
    qn_tok_free(first);
    qn_tok_free(t);
    free(json);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_fails_once),
        cmocka_unit_test(test_threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests_name("tok_faults", tests, NULL, NULL);
}
