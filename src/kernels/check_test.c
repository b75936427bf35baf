#include "kernels/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/// The harness must notice what it is there for: each case runs in a child process.

struct outcome {
    int status;      ///< exit status, -1 when killed by a signal
    char text[4096]; ///< stdout and stderr
};

static struct outcome run(void (*fn)(struct qn_check *, const void *), enum qn_isa isa)
{
    struct outcome o = {.status = -1};
    const struct qn_check_case k = {"the_case", isa, fn, NULL};
    char name[] = "check_test";
    char *argv[] = {name, NULL};
    int pipe_fd[2], ws = 0;
    size_t len = 0;
    ssize_t n;

    assert_int_equal(pipe(pipe_fd), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipe_fd[1], STDOUT_FILENO);
        dup2(pipe_fd[1], STDERR_FILENO);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        exit(qn_check_main(1, argv, &k, 1));
    }
    close(pipe_fd[1]);
    while (len + 1 < sizeof o.text &&
           (n = read(pipe_fd[0], o.text + len, sizeof o.text - 1 - len)) > 0) {
        len += (size_t)n;
    }
    close(pipe_fd[0]);
    assert_int_equal(waitpid(child, &ws, 0), child);
    if (WIFEXITED(ws)) {
        o.status = WEXITSTATUS(ws);
    }
    return o;
}

static void good(struct qn_check *c, const void *arg)
{
    float *x = qn_check_f32(c, 10, -1.0f, 1.0f), *y = qn_check_out(c, 10);

    (void)arg;
    memcpy(y, x, 10 * sizeof *x);
    qn_check_same(c, y, x, 10 * sizeof *x, "copy");
}

static void write_at(struct qn_check *c, long offset)
{
    volatile unsigned char *p = qn_check_bytes(c, 100);

    qn_check_shape(c, "offset=%ld", offset);
    p[offset] = 1;
    qn_check_true(c, true, "reached");
}

static void one_past(struct qn_check *c, const void *arg)
{
    (void)arg;
    write_at(c, 100);
}

static void one_before(struct qn_check *c, const void *arg)
{
    (void)arg;
    write_at(c, -1);
}

/// A read leaves the poison as it is: the page before a buffer of whole pages shows it.
static void read_before(struct qn_check *c, const void *arg)
{
    const volatile unsigned char *p = qn_check_bytes(c, 4096);

    (void)arg;
    qn_check_shape(c, "before");
    qn_check_true(c, p[-1] + 1 > 0, "reached");
}

static void differs(struct qn_check *c, const void *arg)
{
    const float a[3] = {1.0f, 2.0f, 3.0f}, b[3] = {1.0f, 2.5f, 3.0f};

    (void)arg;
    qn_check_close(c, a, b, 3, 0.25f, "values");
}

static void nan_for_number(struct qn_check *c, const void *arg)
{
    const float a[1] = {__builtin_nanf("")}, b[1] = {1.0f};

    (void)arg;
    qn_check_near(c, a, b, 1, 1e6f, "values");
}

static void nothing(struct qn_check *c, const void *arg)
{
    (void)c;
    (void)arg;
}

static void test_a_good_case_passes(void **state)
{
    (void)state;
    struct outcome o = run(good, QN_ISA_GENERIC);
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.text, "ok the_case"));
}

static void test_accesses_outside_are_noticed(void **state)
{
    (void)state;
    struct outcome o = run(one_past, QN_ISA_GENERIC);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.text, "crashed: the_case: offset=100"));
    o = run(one_before, QN_ISA_GENERIC);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.text, "wrote outside a buffer of 100 bytes, at offset -1"));
    assert_non_null(strstr(o.text, "crashed: the_case: offset=-1"));
    o = run(read_before, QN_ISA_GENERIC);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.text, "crashed: the_case: before"));
}

static void test_differences_are_noticed(void **state)
{
    (void)state;
    struct outcome o = run(differs, QN_ISA_GENERIC);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.text, "element 1 is 2, expected 2.5"));
    o = run(nan_for_number, QN_ISA_GENERIC);
    assert_int_equal(o.status, 1);
    o = run(nothing, QN_ISA_GENERIC);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.text, "compared nothing"));
}

static void test_a_missing_tier_is_skipped_by_name(void **state)
{
    (void)state;
    enum qn_isa foreign = qn_cpu_best() >= QN_ISA_NEON ? QN_ISA_AVX2 : QN_ISA_NEON;
    struct outcome o = run(differs, foreign);
    assert_int_equal(o.status, 77);
    assert_non_null(strstr(o.text, "skipped the_case: CPU lacks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_case_passes),
        cmocka_unit_test(test_accesses_outside_are_noticed),
        cmocka_unit_test(test_differences_are_noticed),
        cmocka_unit_test(test_a_missing_tier_is_skipped_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
