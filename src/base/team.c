#include "base/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    MAX_THREADS = 1024,
    // How long a waiter looks before it sleeps. Long enough for the gap between two decode steps
    // (sampling, on worker 0) and for uneven phases; short enough that idle costs nothing and that
    // a fractional CPU quota is not burnt by waiting.
    SPIN_NS = 100000,
    // With more threads than CPUs the one waited for may need this very CPU.
    SPIN_CROWDED_NS = 1000
};

/// A 32-bit word that is waited on. `sleepers` lets the writer skip the wake-up call when everybody
/// is still spinning. Store value, then load sleepers; add to sleepers, then compare value: both
/// orders are sequentially consistent, so one side sees the other.
struct word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct worker {
    struct qn_team *team;
    pthread_t thread;
    size_t index;
};

struct qn_team {
    size_t n;
    size_t n_started; // threads to join
    uint64_t spin_ns;
    int cpu0; // worker 0's CPU, -1: none
    qn_team_fn *fn;
    void *arg;
    bool stop;
    struct worker *workers;
    struct word run;   // generation of runs: bumped to start one
    struct word done;  // workers that finished this run
    struct word phase; // generation of barriers
    _Alignas(64) _Atomic uint32_t arrived;
};

static void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); // yield is a no-op on most cores; isb does pause
#endif
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
    // The result is not needed: EAGAIN and EINTR make the caller look at the value again.
    (void)syscall(SYS_futex, (uint32_t *)word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

// Wait until the value differs from `old` (until_equal false) or equals it (true).
static void word_wait(struct word *w, uint32_t ref, bool until_equal, uint64_t spin_ns)
{
    uint64_t t0 = 0;
    for (unsigned i = 0;; i++) {
        // Acquire: pairs with the release half of the writer's operation.
        uint32_t now = atomic_load_explicit(&w->value, memory_order_acquire);
        if ((now == ref) == until_equal) {
            return;
        }
        relax();
        if (i % 32 == 31) {
            uint64_t t = qn_clock_ns();
            t0 = t0 == 0 ? t : t0;
            if (t - t0 >= spin_ns) {
                break;
            }
        }
    }
    atomic_fetch_add_explicit(&w->sleepers, 1, memory_order_seq_cst);
    for (;;) {
        uint32_t now = atomic_load_explicit(&w->value, memory_order_seq_cst);
        if ((now == ref) == until_equal) {
            break;
        }
        futex(&w->value, FUTEX_WAIT, now);
    }
    atomic_fetch_sub_explicit(&w->sleepers, 1, memory_order_relaxed);
}

// Add to the value; wake sleepers when the result is one that they wait for.
static void word_add(struct word *w, uint32_t add, bool wake_any, uint32_t wake_at)
{
    uint32_t now = atomic_fetch_add_explicit(&w->value, add, memory_order_seq_cst) + add;
    if ((wake_any || now == wake_at) &&
        atomic_load_explicit(&w->sleepers, memory_order_seq_cst) != 0) {
        futex(&w->value, FUTEX_WAKE, INT_MAX);
    }
}

#if defined(__x86_64__)
typedef unsigned fpu_state;
#define FPU_FLUSH 0x8040u // FTZ and DAZ
static fpu_state fpu_get(void)
{
    return _mm_getcsr();
}
static void fpu_set(fpu_state s)
{
    _mm_setcsr(s);
}
#elif defined(__aarch64__)
typedef uint64_t fpu_state;
#define FPU_FLUSH ((uint64_t)1 << 24) // FPCR.FZ: inputs and results
static fpu_state fpu_get(void)
{
    uint64_t s;
    __asm__ volatile("mrs %0, fpcr" : "=r"(s));
    return s;
}
static void fpu_set(fpu_state s)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(s));
}
#else
#error "no flush-to-zero control for this architecture"
#endif

void qn_fpu_flush_subnormals(void)
{
    fpu_set(fpu_get() | FPU_FLUSH);
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct qn_team *t = self->team;
    char name[16];
    snprintf(name, sizeof name, "quern-%zu", self->index);
    pthread_setname_np(pthread_self(), name);
    qn_fpu_flush_subnormals();
    for (uint32_t seen = 0;; seen++) {
        word_wait(&t->run, seen, false, t->spin_ns);
        if (t->stop) {
            return NULL;
        }
        t->fn(t->arg, self->index, t->n);
        word_add(&t->done, 1, false, (uint32_t)(t->n - 1));
    }
}

// A refused pin leaves the thread where the process may run.
static bool pin(pthread_t thread, int cpu)
{
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
        return false;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return pthread_setaffinity_np(thread, sizeof set, &set) == 0;
}

// Signals belong to the threads of the embedding program; faults stay with the thread they hit.
static void block_signals(sigset_t *out_old)
{
    sigset_t set;
    sigfillset(&set);
    sigdelset(&set, SIGBUS);
    sigdelset(&set, SIGSEGV);
    sigdelset(&set, SIGFPE);
    sigdelset(&set, SIGILL);
    pthread_sigmask(SIG_BLOCK, &set, out_old);
}

enum qn_status qn_team_new(size_t n_threads, const int *cpus, size_t n_cpus,
                           struct qn_team **out_team, size_t *out_n_unpinned, struct qn_err *err)
{
    if (n_threads < 1 || n_threads > MAX_THREADS) {
        return qn_fail(err, QN_E_INVALID, "threads: found %zu, expected 1 to %d", n_threads,
                       MAX_THREADS);
    }
    struct qn_team *t = qn_aligned_alloc(1, sizeof *t);
    struct worker *workers = calloc(n_threads, sizeof *workers);
    if (t == NULL || workers == NULL) {
        free(t);
        free(workers);
        return qn_fail(err, QN_E_NOMEM, "could not allocate a team of %zu threads", n_threads);
    }
    memset(t, 0, sizeof *t);
    t->n = n_threads;
    t->workers = workers;
    bool pinned = cpus != NULL && n_cpus > 0;
    t->cpu0 = pinned ? cpus[0] : -1;
    cpu_set_t mine;
    size_t usable = n_threads;
    if (pinned) {
        usable = n_cpus;
    } else if (sched_getaffinity(0, sizeof mine, &mine) == 0) {
        usable = (size_t)CPU_COUNT(&mine);
    }
    t->spin_ns = n_threads > usable ? SPIN_CROWDED_NS : SPIN_NS;
    size_t n_unpinned = 0;
    sigset_t old;
    block_signals(&old);
    int rc = 0;
    for (size_t i = 1; i < n_threads && rc == 0; i++) {
        workers[i] = (struct worker){.team = t, .index = i};
        rc = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (rc == 0) {
            t->n_started++;
            n_unpinned += pinned && !pin(workers[i].thread, cpus[i % n_cpus]);
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        size_t started = t->n_started;
        qn_team_free(t);
        return qn_fail(err, QN_E_IO, "could not start thread %zu of %zu: %s", started + 2,
                       n_threads, strerror(rc));
    }
    if (out_n_unpinned != NULL) {
        *out_n_unpinned = n_unpinned;
    }
    *out_team = t;
    return QN_OK;
}

void qn_team_free(struct qn_team *t)
{
    if (t == NULL) {
        return;
    }
    t->stop = true;
    word_add(&t->run, 1, true, 0);
    for (size_t i = 1; i <= t->n_started; i++) {
        pthread_join(t->workers[i].thread, NULL);
    }
    free(t->workers);
    free(t);
}

size_t qn_team_size(const struct qn_team *t)
{
    return t->n;
}

void qn_team_pin_caller(struct qn_team *t)
{
    if (t->cpu0 >= 0) {
        (void)pin(pthread_self(), t->cpu0);
    }
    qn_fpu_flush_subnormals();
}

void qn_team_run(struct qn_team *t, qn_team_fn *fn, void *arg)
{
    // Whoever calls computes as the other workers do; its own setting comes back afterwards.
    fpu_state mine = fpu_get();
    fpu_set(mine | FPU_FLUSH);
    if (t->n == 1) {
        fn(arg, 0, 1);
    } else {
        t->fn = fn;
        t->arg = arg;
        atomic_store_explicit(&t->done.value, 0, memory_order_relaxed); // published by the run word
        word_add(&t->run, 1, true, 0);
        fn(arg, 0, t->n);
        word_wait(&t->done, (uint32_t)(t->n - 1), true, t->spin_ns);
    }
    fpu_set(mine);
}

void qn_team_barrier(struct qn_team *t, size_t worker)
{
    (void)worker;
    if (t->n == 1) {
        return;
    }
    // The phase cannot move before this worker has arrived, so a relaxed look at it is current.
    uint32_t phase = atomic_load_explicit(&t->phase.value, memory_order_relaxed);
    // Acquire and release: the last to arrive has seen what everybody wrote before.
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) == t->n - 1) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed); // published by the phase
        word_add(&t->phase, 1, true, 0);
    } else {
        word_wait(&t->phase, phase, false, t->spin_ns);
    }
}
