#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model/fixture.h"

// What a step allocates and locks: nothing, counted. And a load with each allocation made to fail
// in turn. The linker sends the library's calls here (--wrap).

static atomic_size_t g_allocs, g_locks, g_seen;
static atomic_size_t g_until = SIZE_MAX; // allocations before the failing one; SIZE_MAX: none fails

static bool fails(void)
{
    atomic_fetch_add(&g_allocs, 1);
    return atomic_load(&g_until) != SIZE_MAX && atomic_fetch_add(&g_seen, 1) == g_until;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
void *__real_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off);
int __real_pthread_mutex_lock(pthread_mutex_t *m);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
void *__wrap_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);

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

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

void *__wrap_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
    return fails() ? MAP_FAILED : __real_mmap(addr, n, prot, flags, fd, off);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    atomic_fetch_add(&g_locks, 1);
    return __real_pthread_mutex_lock(m);
}

static const struct {
    const char *path;
    enum qn_act act;
} fixtures[] = {
    {"tests/golden/models/gemma3_old", QN_ACT_F32},
    {"tests/golden/models/qwen3_yarn", QN_ACT_BF16},
    {"tests/golden/models/gguf_mixed/model.gguf", QN_ACT_I8},
};

enum {
    N_FIXTURES = sizeof fixtures / sizeof fixtures[0]
};

static void test_a_step_allocates_nothing(void **state)
{
    (void)state;
    enum {
        N = 70
    };
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct fx_model f;
        int32_t tokens[N];
        uint64_t seed = 1;
        fx_open(&f, fixtures[i].path, fixtures[i].act);
        for (size_t j = 0; j < N; j++) {
            tokens[j] = (int32_t)(fx_random(&seed) % f.vocab);
        }
        float *logits = fx_floats(2 * N * f.vocab);
        struct fx_run *r = fx_run_new(f.model, 2, 2 * N, 2, N, 16);
        size_t allocs = atomic_load(&g_allocs), locks = atomic_load(&g_locks);
        assert_true(allocs > 0); // the counter counts
        const struct fx_part prefill[] = {{0, tokens, N - 10, 1}, {1, tokens, 3, 3}};
        fx_step(r, prefill, 2, logits);
        for (size_t j = 0; j < 10; j++) {
            const struct fx_part decode[] = {{0, tokens + N - 10 + j, 1, 1},
                                             {1, tokens + 3 + j, 1, 1}};
            fx_step(r, decode, 2, logits);
        }
        assert_int_equal(atomic_load(&g_allocs) - allocs, 0);
        assert_int_equal(atomic_load(&g_locks) - locks, 0);
        fx_run_free(r);
        free(logits);
        fx_close(&f);
    }
}

// Every failure is reported as one, nothing leaks (ASan), and the next try succeeds.
static void test_failing_loads(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct qn_ckpt *ckpt;
        struct qn_err err = {0};
        assert_int_equal(qn_ckpt_open(fixtures[i].path, &ckpt, &err), QN_OK);
        const struct qn_model_opts o = {.activations = fixtures[i].act,
                                        .kv_type =
                                            fixtures[i].act == QN_ACT_F32 ? QN_KV_F32 : QN_KV_BF16};
        struct qn_model *m = NULL;
        enum qn_status rc = QN_E_NOMEM;
        size_t n = 0;
        for (; rc != QN_OK; n++) {
            atomic_store(&g_seen, 0);
            atomic_store(&g_until, n);
            rc = qn_model_load(ckpt, &o, &m, &err);
            atomic_store(&g_until, SIZE_MAX);
            if (rc != QN_OK && rc != QN_E_NOMEM) {
                fail_msg("allocation %zu: found %s (%s)", n, qn_status_name(rc), err.msg);
            }
            assert_true(n < 10000);
        }
        assert_true(n > 10);

        const size_t n_groups = qn_model_n_kv_groups(m, 16);
        size_t n_blocks[8] = {4, 4, 4, 4, 4, 4, 4, 4};
        struct qn_team *team;
        struct qn_run *run = NULL;
        assert_true(n_groups <= 8);
        assert_int_equal(qn_team_new(2, NULL, 0, &team, NULL, &err), QN_OK);
        const struct qn_run_opts ro = {.max_rows = 8,
                                       .max_seqs = 2,
                                       .max_out_rows = 2,
                                       .block_tokens = 16,
                                       .n_blocks = n_blocks,
                                       .team = team};
        rc = QN_E_NOMEM;
        for (n = 0; rc != QN_OK; n++) {
            atomic_store(&g_seen, 0);
            atomic_store(&g_until, n);
            rc = qn_run_new(m, &ro, &run, &err);
            atomic_store(&g_until, SIZE_MAX);
            assert_true(rc == QN_OK || rc == QN_E_NOMEM);
            assert_true(n < 1000);
        }
        assert_true(n > 5);
        struct qn_run_opts planned = ro;
        planned.team = NULL;
        planned.n_threads = 2;
        assert_int_equal(qn_run_bytes(m, &planned), qn_run_bytes(m, &ro));
        qn_run_free(run);
        qn_team_free(team);
        qn_model_free(m);
        qn_ckpt_close(ckpt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_failing_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
