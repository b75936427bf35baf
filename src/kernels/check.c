#include "kernels/check.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dtype.h"

enum {
    MAX_BUFFERS = 256,
    MAX_FAILURES = 20, ///< printed per case
    POISON = 0xA5
};

/// Where a buffer lies against its unreadable pages.
enum guard {
    GUARD_END,  ///< it ends at one
    GUARD_BEGIN ///< it begins at one
};

struct buffer {
    unsigned char *map;
    size_t map_bytes;
    unsigned char *data;
    size_t n_bytes;
};

struct qn_check {
    const char *name;
    uint64_t rng;
    enum guard guard;
    bool bench;
    size_t n_failed;
    size_t n_compared;
    struct buffer buffers[MAX_BUFFERS];
    size_t n_buffers;
};

/// Read by the signal handler.
static const char *crash_name = "startup";
static char crash_shape[256];

static void on_crash(int sig)
{
    static const char *const parts[] = {"crashed: ", NULL, ": ", NULL, ": "};
    const char *what = sig == SIGSEGV  ? "invalid access (SIGSEGV)\n"
                       : sig == SIGBUS ? "invalid access (SIGBUS)\n"
                                       : "illegal instruction (SIGILL)\n";

    for (size_t i = 0; i < 6; i++) {
        const char *s = i == 1 ? crash_name : i == 3 ? crash_shape : i == 5 ? what : parts[i];
        if (write(STDERR_FILENO, s, strlen(s)) < 0) {
            break;
        }
    }
    _exit(1);
}

static void catch_crashes(void)
{
    static unsigned char stack[64 * 1024];
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction sa = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};

    sigaltstack(&alt, NULL);
    sigemptyset(&sa.sa_mask);
    sigaction(SIGSEGV, &sa, NULL);
    sigaction(SIGBUS, &sa, NULL);
    sigaction(SIGILL, &sa, NULL);
}

void qn_check_shape(struct qn_check *c, const char *fmt, ...)
{
    va_list ap;

    (void)c;
    va_start(ap, fmt);
    vsnprintf(crash_shape, sizeof crash_shape, fmt, ap);
    va_end(ap);
}

static bool report(struct qn_check *c)
{
    c->n_failed++;
    if (c->n_failed == MAX_FAILURES + 1) {
        printf("FAILED %s: more failures not shown\n", c->name);
    }
    return c->n_failed <= MAX_FAILURES;
}

static void die(const char *what)
{
    fprintf(stderr, "could not: %s\n", what);
    exit(1);
}

void *qn_check_bytes(struct qn_check *c, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (n_bytes + page - 1) / page * page;
    struct buffer *b = &c->buffers[c->n_buffers];

    if (c->n_buffers == MAX_BUFFERS) {
        die("hold more check buffers, release some");
    }
    b->map_bytes = body + 2 * page;
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        die("map a check buffer");
    }
    if (body >= (size_t)4 << 20) {
        madvise(b->map, b->map_bytes, MADV_HUGEPAGE); // as weights are held: for the bench
    }
    b->n_bytes = n_bytes;
    b->data = c->guard == GUARD_END ? b->map + page + body - n_bytes : b->map + page;
    memset(b->map + page, POISON, body);
    if (mprotect(b->map, page, PROT_NONE) != 0 ||
        mprotect(b->map + page + body, page, PROT_NONE) != 0) {
        die("protect a check buffer");
    }
    c->n_buffers++;
    return b->data;
}

/// The bytes between the buffer and the far unreadable page must still be poison.
static void check_slack(struct qn_check *c, const struct buffer *b)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *lo = b->map + page, *hi = b->map + b->map_bytes - page;

    for (const unsigned char *p = lo; p < hi; p++) {
        if (p == b->data) {
            p += b->n_bytes;
            if (p >= hi) {
                break;
            }
        }
        if (*p != POISON) {
            if (report(c)) {
                printf("FAILED %s: %s: wrote outside a buffer of %zu bytes, at offset %td\n",
                       c->name, crash_shape, b->n_bytes, p - b->data);
            }
            return;
        }
    }
}

void qn_check_release(struct qn_check *c)
{
    for (size_t i = 0; i < c->n_buffers; i++) {
        check_slack(c, &c->buffers[i]);
        munmap(c->buffers[i].map, c->buffers[i].map_bytes);
    }
    c->n_buffers = 0;
}

uint32_t qn_check_rand(struct qn_check *c)
{
    c->rng += 0x9e3779b97f4a7c15u; // splitmix64
    uint64_t z = c->rng;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

float *qn_check_f32(struct qn_check *c, size_t n, float lo, float hi)
{
    float *x = qn_check_bytes(c, n * sizeof *x);

    for (size_t i = 0; i < n; i++) {
        x[i] = lo + (hi - lo) * ((float)(qn_check_rand(c) >> 8) * 0x1p-24f);
    }
    return x;
}

int8_t *qn_check_i8(struct qn_check *c, size_t n, int lo, int hi)
{
    int8_t *x = qn_check_bytes(c, n);

    for (size_t i = 0; i < n; i++) {
        x[i] = (int8_t)(lo + (int)(qn_check_rand(c) % (uint32_t)(hi - lo + 1)));
    }
    return x;
}

float *qn_check_out(struct qn_check *c, size_t n)
{
    return qn_check_bytes(c, n * sizeof(float));
}

static bool far_apart(float got, float want, float bound)
{
    if (isnan(want) || isnan(got)) {
        return !(isnan(want) && isnan(got));
    }
    if (isinf(want) || isinf(got)) {
        return got != want;
    }
    return !(fabsf(got - want) <= bound);
}

static void report_value(struct qn_check *c, const char *what, size_t i, float got, float want,
                         float bound)
{
    if (report(c)) {
        printf("FAILED %s: %s: %s: element %zu is %.9g, expected %.9g within %.3g\n", c->name,
               crash_shape, what, i, (double)got, (double)want, (double)bound);
    }
}

void qn_check_near(struct qn_check *c, const float *got, const float *want, size_t n, float ulps,
                   const char *what)
{
    float top = 0.0f;

    for (size_t i = 0; i < n; i++) {
        float a = fabsf(want[i]);
        top = isfinite(a) && a > top ? a : top;
    }
    float bound = ulps * (nextafterf(top, INFINITY) - top) + 1e-30f;
    qn_check_close(c, got, want, n, bound, what);
}

void qn_check_close(struct qn_check *c, const float *got, const float *want, size_t n, float bound,
                    const char *what)
{
    c->n_compared += n;
    for (size_t i = 0; i < n; i++) {
        if (far_apart(got[i], want[i], bound)) {
            report_value(c, what, i, got[i], want[i], bound);
            return;
        }
    }
}

void qn_check_within(struct qn_check *c, const float *got, const float *want, const float *bound,
                     size_t n, const char *what)
{
    c->n_compared += n;
    for (size_t i = 0; i < n; i++) {
        if (far_apart(got[i], want[i], bound[i])) {
            report_value(c, what, i, got[i], want[i], bound[i]);
            return;
        }
    }
}

void qn_check_same(struct qn_check *c, const void *got, const void *want, size_t n_bytes,
                   const char *what)
{
    const unsigned char *g = got, *w = want;

    c->n_compared += n_bytes;
    for (size_t i = 0; i < n_bytes; i++) {
        if (g[i] != w[i]) {
            if (report(c)) {
                printf("FAILED %s: %s: %s: byte %zu is 0x%02x, expected 0x%02x\n", c->name,
                       crash_shape, what, i, g[i], w[i]);
            }
            return;
        }
    }
}

void qn_check_true(struct qn_check *c, bool ok, const char *what)
{
    c->n_compared++;
    if (!ok && report(c)) {
        printf("FAILED %s: %s: %s\n", c->name, crash_shape, what);
    }
}

bool qn_check_benching(const struct qn_check *c)
{
    return c->bench;
}

uint64_t qn_check_now(void)
{
    return qn_clock_ns();
}

void qn_check_rate(struct qn_check *c, double amount, const char *unit, uint64_t ns)
{
    printf("%-34s %-28s %9.2f G%s/s\n", c->name, crash_shape, amount / (double)ns, unit);
}

void qn_check_rate_of(struct qn_check *c, double amount, const char *unit, uint64_t ns,
                      double peak_per_ns)
{
    double rate = amount / (double)ns;

    printf("%-34s %-28s %9.2f G%s/s  %5.1f %% of %.1f\n", c->name, crash_shape, rate, unit,
           100.0 * rate / peak_per_ns, peak_per_ns);
}

static void run_case(struct qn_check *c, const struct qn_check_case *k, uint64_t seed)
{
    const int n_modes = c->bench ? 1 : 2;

    c->name = k->name;
    c->n_failed = 0;
    c->n_compared = 0;
    crash_name = k->name;
    for (int mode = 0; mode < n_modes; mode++) {
        c->guard = mode == 0 ? GUARD_END : GUARD_BEGIN;
        c->rng = seed;
        crash_shape[0] = '\0';
        k->fn(c, k->arg);
        qn_check_release(c);
    }
    if (!c->bench && c->n_compared == 0) {
        qn_check_true(c, false, "the case compared nothing");
    }
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s [--bench] [--only SUBSTRING] [--seed N]\n", program);
    return 2;
}

static void print_skipped(const struct qn_check_case *k)
{
    enum qn_isa best = qn_cpu_best();
    bool lacks = k->isa > best || (k->isa < QN_ISA_NEON) != (best < QN_ISA_NEON);

    if (lacks) {
        printf("skipped %s: CPU lacks %s\n", k->name, qn_isa_name(k->isa));
    } else {
        printf("skipped %s: QUERN_ISA=%s\n", k->name, qn_isa_name(qn_cpu_isa()));
    }
}

int qn_check_main(int argc, char **argv, const struct qn_check_case *cases, size_t n_cases)
{
    static struct qn_check check;
    const char *only = NULL;
    uint64_t seed = 20240229;
    size_t n_run = 0, n_failed = 0, n_skipped = 0;
    struct qn_err err;

    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--bench") == 0) {
            check.bench = true;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], &end, 0);
            if (end == argv[i] || *end != '\0') {
                return usage(argv[0]);
            }
        } else {
            return usage(argv[0]);
        }
    }
    if (qn_cpu_init(getenv("QUERN_ISA"), &err) != QN_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("instruction set %s, seed %llu\n", qn_isa_name(qn_cpu_isa()), (unsigned long long)seed);
    catch_crashes();
    for (size_t i = 0; i < n_cases; i++) {
        const struct qn_check_case *k = &cases[i];
        if (only && !strstr(k->name, only)) {
            continue;
        }
        if (!qn_cpu_has(k->isa)) {
            print_skipped(k);
            n_skipped++;
            continue;
        }
        run_case(&check, k, seed);
        n_run++;
        n_failed += check.n_failed > 0;
        if (!check.bench) {
            printf("%s %s\n", check.n_failed ? "FAILED" : "ok", k->name);
        }
    }
    if (n_run + n_skipped == 0) {
        fprintf(stderr, "--only \"%s\": no case has this in its name\n", only ? only : "");
        return 2;
    }
    printf("%zu run, %zu failed, %zu skipped\n", n_run, n_failed, n_skipped);
    return n_failed ? 1 : n_run == 0 ? 77 : 0;
}
