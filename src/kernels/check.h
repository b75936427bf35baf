#ifndef QN_KERNELS_CHECK_H
#define QN_KERNELS_CHECK_H

#include "kernels/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Harness of the kernel checks: buffers that end at an unreadable page (a second mode begins them
/// at one), poisoned padding, comparison with a bound, and a bench mode that prints the rate. A
/// crash names the kernel and the shape. Each check program's main calls qn_check_main with a table
/// of cases; a variant that the CPU lacks is reported as "skipped NAME: CPU lacks TIER".
///   PROGRAM [--bench] [--only SUBSTRING] [--seed N]

struct qn_check;

struct qn_check_case {
    const char *name;
    enum qn_isa isa;
    void (*fn)(struct qn_check *c, const void *arg);
    const void *arg;
};

int qn_check_main(int argc, char **argv, const struct qn_check_case *cases, size_t n_cases);

/// Name the shape under test, for failures and crashes.
void qn_check_shape(struct qn_check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/// Buffers live until the next qn_check_release; they end exactly at an unreadable page and are
/// filled with uniform values of the check's generator, or with a poison pattern (out).
void *qn_check_bytes(struct qn_check *c, size_t n_bytes);
float *qn_check_f32(struct qn_check *c, size_t n, float lo, float hi);
int8_t *qn_check_i8(struct qn_check *c, size_t n, int lo, int hi);
float *qn_check_out(struct qn_check *c, size_t n);
void qn_check_release(struct qn_check *c);
uint32_t qn_check_rand(struct qn_check *c);

/// |got - want| <= ulps * ulp(max |want|) + tiny. NaN equals NaN.
void qn_check_near(struct qn_check *c, const float *got, const float *want, size_t n, float ulps,
                   const char *what);
/// Absolute bound.
void qn_check_close(struct qn_check *c, const float *got, const float *want, size_t n, float bound,
                    const char *what);
/// A bound per element.
void qn_check_within(struct qn_check *c, const float *got, const float *want, const float *bound,
                     size_t n, const char *what);
void qn_check_same(struct qn_check *c, const void *got, const void *want, size_t n_bytes,
                   const char *what);
void qn_check_true(struct qn_check *c, bool ok, const char *what);
bool qn_check_benching(const struct qn_check *c);
/// Run expr repeatedly for about 0.2 s and print amount * reps / time in `unit`/s. The first run is
/// not timed.
#define QN_BENCH(c, amount, unit, expr)                                                            \
    do {                                                                                           \
        if (qn_check_benching(c)) {                                                                \
            expr;                                                                                  \
            size_t qn_reps_ = 0;                                                                   \
            uint64_t qn_t0_ = qn_check_now();                                                      \
            while (qn_check_now() - qn_t0_ < 200000000u) {                                         \
                expr;                                                                              \
                qn_reps_++;                                                                        \
            }                                                                                      \
            qn_check_rate((c), (double)(amount) * (double)qn_reps_, (unit),                        \
                          qn_check_now() - qn_t0_);                                                \
        }                                                                                          \
    } while (0)
uint64_t qn_check_now(void);
void qn_check_rate(struct qn_check *c, double amount, const char *unit, uint64_t ns);
/// The same with the share of a peak in units per nanosecond (kernels/peak.h).
void qn_check_rate_of(struct qn_check *c, double amount, const char *unit, uint64_t ns,
                      double peak_per_ns);

#endif
