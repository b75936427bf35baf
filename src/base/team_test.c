#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/team.h"

static struct qn_team *team(size_t n)
{
    struct qn_team *t = NULL;
    struct qn_err err = {0};
    assert_int_equal(qn_team_new(n, NULL, 0, &t, NULL, &err), QN_OK);
    assert_int_equal(qn_team_size(t), n);
    return t;
}

enum {
    N_SLOTS = 16,
    N_PHASES = 300
};

struct phases {
    struct qn_team *team;
    size_t values[N_SLOTS]; // plain memory: a race here is ThreadSanitizer's to find
    size_t wrong[N_SLOTS];
};

// Every phase each worker writes its slot and then, past the barrier, reads everybody's.
static void run_phases(void *arg, size_t w, size_t n)
{
    struct phases *p = arg;
    for (size_t phase = 1; phase <= N_PHASES; phase++) {
        p->values[w] = phase * (w + 1);
        qn_team_barrier(p->team, w);
        for (size_t i = 0; i < n; i++) {
            p->wrong[w] += p->values[i] != phase * (i + 1);
        }
        qn_team_barrier(p->team, w);
    }
}

static void test_barrier_orders_memory(void **state)
{
    (void)state;
    // More threads than cores too: the wait must give the CPU away.
    for (size_t n = 1; n <= 8; n += n) {
        struct phases p = {.team = team(n)};
        for (size_t run = 0; run < 3; run++) {
            qn_team_run(p.team, run_phases, &p);
        }
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(p.wrong[i], 0);
            assert_int_equal(p.values[i], N_PHASES * (i + 1));
        }
        qn_team_free(p.team);
    }
}

static void count(void *arg, size_t w, size_t n)
{
    size_t *counts = arg;
    assert_true(w < n);
    counts[w]++;
}

static void test_run_reaches_every_worker(void **state)
{
    (void)state;
    struct qn_team *t = team(3);
    size_t counts[3] = {0};
    for (size_t i = 0; i < 2000; i++) {
        qn_team_run(t, count, counts);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(counts[i], 2000);
    }
    // Long enough apart that the workers sleep in between.
    for (size_t i = 0; i < 5; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        qn_team_run(t, count, counts);
    }
    assert_int_equal(counts[2], 2005);
    qn_team_free(t);
}

struct claims {
    struct qn_claim claim;
    _Atomic size_t sum;
};

static void run_claims(void *arg, size_t w, size_t n)
{
    (void)w;
    (void)n;
    struct claims *c = arg;
    for (size_t i; (i = qn_claim_next(&c->claim)) < 1000;) {
        atomic_fetch_add(&c->sum, i);
    }
}

static void test_claims_are_given_once(void **state)
{
    (void)state;
    struct qn_team *t = team(4);
    struct claims c = {0};
    for (size_t i = 0; i < 20; i++) {
        qn_claim_reset(&c.claim);
        atomic_store(&c.sum, 0);
        qn_team_run(t, run_claims, &c);
        assert_int_equal(atomic_load(&c.sum), 999 * 1000 / 2);
    }
    qn_team_free(t);
}

static void test_bad_sizes_are_refused(void **state)
{
    (void)state;
    struct qn_team *t = NULL;
    struct qn_err err = {0};
    assert_int_equal(qn_team_new(0, NULL, 0, &t, NULL, &err), QN_E_INVALID);
    assert_string_equal(err.msg, "threads: found 0, expected 1 to 1024");
    assert_int_equal(qn_team_new(1025, NULL, 0, &t, NULL, &err), QN_E_INVALID);
    assert_null(t);
    qn_team_free(NULL);
}

struct where {
    int cpu[4];
};

static void note_cpu(void *arg, size_t w, size_t n)
{
    (void)n;
    ((struct where *)arg)->cpu[w] = sched_getcpu();
}

// The process may use one CPU and is asked for two threads: it works, both inside the mask. A CPU
// outside the machine is a refused pin, counted.
static void test_CPU_02_pins_inside_the_mask(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int last = -1;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        last = CPU_ISSET(i, &before) ? i : last;
    }
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);

    struct qn_team *t = NULL;
    size_t n_unpinned = 99;
    assert_int_equal(qn_team_new(2, &last, 1, &t, &n_unpinned, NULL), QN_OK);
    assert_int_equal(n_unpinned, 0);
    qn_team_pin_caller(t);
    struct where where;
    qn_team_run(t, note_cpu, &where);
    assert_int_equal(where.cpu[0], last);
    assert_int_equal(where.cpu[1], last);
    qn_team_free(t);

    const int absent[] = {CPU_SETSIZE - 1};
    assert_int_equal(qn_team_new(3, absent, 1, &t, &n_unpinned, NULL), QN_OK);
    assert_int_equal(n_unpinned, 2);
    size_t counts[3] = {0};
    qn_team_run(t, count, counts);
    assert_int_equal(counts[0] + counts[1] + counts[2], 3);
    qn_team_free(t);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static uint64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void test_CPU_06_idle_means_asleep(void **state)
{
    (void)state;
    struct qn_team *t = team(4);
    size_t counts[4] = {0};
    qn_team_run(t, count, counts);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    uint64_t before = cpu_ns();
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    assert_true(cpu_ns() - before < 10000000u); // 0.1 s in 10 s
    qn_team_run(t, count, counts);
    assert_int_equal(counts[3], 2);
    qn_team_free(t);
}

struct flush {
    float product[4];
    uint64_t ns[4][2];
    float sink[4];
};

static float dot(const float *x, const float *y, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

static void run_flush(void *arg, size_t w, size_t n)
{
    (void)n;
    struct flush *f = arg;
    volatile float tiny = 1e-40f, one = 1.0f;
    f->product[w] = tiny * one;
    enum {
        N = 4096,
        REPEATS = 50
    };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    assert_true(x != NULL && y != NULL);
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < N; i++) {
            x[i] = (float)(i % 7);
            uint32_t bits = 1 + (uint32_t)(i % 1000); // subnormal whatever the FPU does
            if (kind == 1) {
                memcpy(&x[i], &bits, sizeof bits);
            }
            y[i] = 0.5f;
        }
        f->ns[w][kind] = UINT64_MAX; // the best of several: others use this machine too
        for (size_t r = 0; r < REPEATS; r++) {
            uint64_t t0 = qn_clock_ns();
            f->sink[w] += dot(x, y, N);
            uint64_t ns = qn_clock_ns() - t0;
            f->ns[w][kind] = ns < f->ns[w][kind] ? ns : f->ns[w][kind];
        }
    }
    free(x);
    free(y);
}

static void test_CPU_07_subnormals_are_flushed_in_every_worker(void **state)
{
    (void)state;
    struct qn_team *t = team(4);
    struct flush f = {0};
    qn_team_run(t, run_flush, &f);
    qn_team_free(t);
    for (size_t w = 0; w < 4; w++) {
        assert_true(f.product[w] == 0.0f);
        assert_true(f.ns[w][1] < 2 * f.ns[w][0] + 2000);
    }
    // The caller's own setting is as before.
    volatile float tiny = 1e-40f, one = 1.0f;
    assert_true(tiny * one != 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier_orders_memory),
        cmocka_unit_test(test_run_reaches_every_worker),
        cmocka_unit_test(test_claims_are_given_once),
        cmocka_unit_test(test_bad_sizes_are_refused),
        // Before the next test pins this thread.
        cmocka_unit_test(test_CPU_06_idle_means_asleep),
        cmocka_unit_test(test_CPU_07_subnormals_are_flushed_in_every_worker),
        cmocka_unit_test(test_CPU_02_pins_inside_the_mask),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
