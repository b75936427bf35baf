#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/park.h"

/// A temporary directory with one file of n bytes, byte i being i & 255.
struct place {
    char dir[64], path[80];
};

static void open_place(struct place *p, size_t n)
{
    snprintf(p->dir, sizeof p->dir, "/tmp/qn_file_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->path, sizeof p->path, "%s/f", p->dir);
    FILE *f = fopen(p->path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        putc((int)(i & 255), f);
    }
    fclose(f);
}

static void close_place(const struct place *p)
{
    unlink(p->path);
    rmdir(p->dir);
}

static void test_map_and_read(void **state)
{
    (void)state;
    struct place p;
    open_place(&p, 10000);
    struct qn_map m;
    assert_int_equal(qn_map_open(p.path, &m, NULL), QN_OK);
    assert_int_equal(m.n_bytes, 10000);
    assert_int_equal(m.data[9999], 9999 & 255);
    qn_map_will_need(&m, 5000, SIZE_MAX);
    qn_map_dont_need(&m, 4096, 100);
    qn_map_dont_need(&m, 20000, 1);
    assert_int_equal(m.data[4100], 4100 & 255);
    qn_map_close(&m);
    assert_null(m.data);
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(qn_file_read(p.path, 10000, &data, &n, NULL), QN_OK);
    assert_int_equal(n, 10000);
    assert_int_equal(data[10000], 0);
    free(data);
    struct qn_err err = {0};
    assert_int_equal(qn_file_read(p.path, 9999, &data, &n, &err), QN_E_LIMIT);
    assert_string_equal(err.msg, "file has 10000 bytes, limit 9999");
    close_place(&p);
}

static void test_what_is_no_file(void **state)
{
    (void)state;
    struct place p;
    open_place(&p, 0);
    struct qn_map m;
    struct qn_err err = {0};
    assert_int_equal(qn_map_open(p.path, &m, &err), QN_OK); // empty
    assert_null(m.data);
    assert_int_equal(m.n_bytes, 0);
    qn_map_close(&m);
    assert_int_equal(qn_map_open(p.dir, &m, &err), QN_E_INVALID);
    assert_string_equal(err.msg, "found a directory, expected a regular file");
    assert_int_equal(qn_map_open("/dev/zero", &m, &err), QN_E_INVALID);
    assert_int_equal(qn_map_open("/nonexistent/x", &m, &err), QN_E_NOT_FOUND);
    char *fifo = qn_path_join(p.dir, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(qn_map_open(fifo, &m, &err), QN_E_INVALID); // and does not wait for a writer
    unlink(fifo);
    free(fifo);
    assert_true(qn_file_exists(p.path) && !qn_file_exists(p.dir));
    assert_true(qn_dir_exists(p.dir) && !qn_dir_exists(p.path));
    char *joined = qn_path_join("a/", "b");
    assert_string_equal(joined, "a/b");
    free(joined);
    joined = qn_path_join("a", "b");
    assert_string_equal(joined, "a/b");
    free(joined);
    close_place(&p);
}

static void sum_map(void *arg)
{
    const struct qn_map *m = arg;
    unsigned sum = 0;
    for (size_t i = 0; i < m->n_bytes; i += 4096) {
        sum += *(const volatile unsigned char *)&m->data[i];
    }
    assert_true(sum < m->n_bytes * 256);
}

static void sum_inside(void *arg)
{
    struct qn_err err = {0};
    assert_int_equal(qn_map_guard(sum_map, arg, &err), QN_E_IO); // guards nest
}

// The file shrinks under the mapping: an error, not a dead process.
static void test_a_shrinking_file_is_an_error(void **state)
{
    (void)state;
    struct place p;
    open_place(&p, 64 << 10);
    struct qn_map m;
    assert_int_equal(qn_map_open(p.path, &m, NULL), QN_OK);
    struct qn_err err = {0};
    assert_int_equal(qn_map_guard(sum_map, &m, &err), QN_OK);
    assert_int_equal(truncate(p.path, 100), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(qn_map_guard(sum_map, &m, &err), QN_E_IO);
        assert_non_null(strstr(err.msg, "shrank"));
    }
    assert_int_equal(qn_map_guard(sum_inside, &m, &err), QN_OK);
    qn_map_close(&m);
    close_place(&p);
}

/* ---- park ---- */

struct parked {
    struct qn_park park;
    _Atomic int turns;
};

static void *waker(void *arg)
{
    struct parked *p = arg;
    for (int i = 0; i < 2000; i++) {
        atomic_fetch_add(&p->turns, 1);
        qn_park_wake(&p->park);
        if (i % 100 == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
    }
    return NULL;
}

static void test_park_loses_no_wake(void **state)
{
    (void)state;
    struct parked p = {0};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, waker, &p), 0);
    for (;;) {
        uint32_t ticket = qn_park_ticket(&p.park);
        if (atomic_load(&p.turns) == 2000) {
            break;
        }
        assert_true(qn_park_wait(&p.park, ticket, 20000)); // a lost wake-up would end here
    }
    pthread_join(t, NULL);
    uint32_t ticket = qn_park_ticket(&p.park);
    uint64_t t0 = qn_clock_ns();
    assert_false(qn_park_wait(&p.park, ticket, 20));
    assert_true(qn_clock_ns() - t0 >= 20000000u);
    assert_false(qn_park_wait(&p.park, ticket, 0));
    qn_park_wake(&p.park);
    assert_true(qn_park_wait(&p.park, ticket, -1)); // it came before: no sleep
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_and_read),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_a_shrinking_file_is_an_error),
        cmocka_unit_test(test_park_loses_no_wake),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
