#ifndef QN_BASE_TEAM_H
#define QN_BASE_TEAM_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>

/// A fixed team of worker threads. The caller of qn_team_run is worker 0; the others are pinned
/// once and stay, spin briefly between runs and then sleep on a futex, so idle burns no CPU.
struct qn_team;

typedef void qn_team_fn(void *arg, size_t worker, size_t n_workers);

/// @param n_threads  1 or more, worker 0 included.
/// @param cpus       [n_cpus] OS CPU numbers to pin to, worker w to cpus[w % n_cpus]; NULL: no
///                   pinning. A refused pin is not an error (*out_n_unpinned counts them, may be
///                   NULL). Worker 0 is pinned only with qn_team_pin_caller.
enum qn_status qn_team_new(size_t n_threads, const int *cpus, size_t n_cpus,
                           struct qn_team **out_team, size_t *out_n_unpinned, struct qn_err *err);
void qn_team_free(struct qn_team *t); // takes NULL; joins
size_t qn_team_size(const struct qn_team *t);
/// Pin the calling thread to worker 0's CPU and set flush-to-zero in it.
void qn_team_pin_caller(struct qn_team *t);

/// One fork: fn on every worker, returns when all are done. One caller at a time.
void qn_team_run(struct qn_team *t, qn_team_fn *fn, void *arg);

/// Inside fn only, by every worker: all of them arrive before any leaves. Everything written
/// before it is visible after it.
void qn_team_barrier(struct qn_team *t, size_t worker);

/// Work counter for phases whose items are claimed: qn_team_claim returns the next item, values
/// past the last mean done. Reset by one worker between barriers.
struct qn_claim {
    _Alignas(64) atomic_size_t next;
};
static inline void qn_claim_reset(struct qn_claim *c)
{
    atomic_store_explicit(&c->next, 0, memory_order_relaxed); // the barrier publishes it
}
static inline size_t qn_claim_next(struct qn_claim *c)
{
    return atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
}

/// Flush-to-zero and denormals-are-zero in the calling thread (x86 MXCSR, Arm FPCR).
void qn_fpu_flush_subnormals(void);

#endif
