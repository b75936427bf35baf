#include "base/park.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

uint32_t qn_park_ticket(struct qn_park *p)
{
    // Sequentially consistent: the caller's look at its condition comes after it.
    return atomic_load_explicit(&p->value, memory_order_seq_cst);
}

bool qn_park_wait(struct qn_park *p, uint32_t ticket, int timeout_ms)
{
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : qn_clock_ns() + (uint64_t)timeout_ms * 1000000u;
    // Sleepers, then value; qn_park_wake does value, then sleepers: one of the two sees the other.
    atomic_fetch_add_explicit(&p->sleepers, 1, memory_order_seq_cst);
    bool woken;
    for (;;) {
        woken = atomic_load_explicit(&p->value, memory_order_seq_cst) != ticket;
        uint64_t now = end == UINT64_MAX ? 0 : qn_clock_ns();
        if (woken || now >= end) {
            break;
        }
        struct timespec left = {0}, *timeout = NULL;
        if (end != UINT64_MAX) {
            left.tv_sec = (time_t)((end - now) / 1000000000u);
            left.tv_nsec = (long)((end - now) % 1000000000u);
            timeout = &left;
        }
        (void)syscall(SYS_futex, (uint32_t *)&p->value, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, ticket,
                      timeout, NULL, 0);
    }
    atomic_fetch_sub_explicit(&p->sleepers, 1, memory_order_relaxed);
    return woken;
}

void qn_park_wake(struct qn_park *p)
{
    atomic_fetch_add_explicit(&p->value, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&p->sleepers, memory_order_seq_cst) != 0) {
        (void)syscall(SYS_futex, (uint32_t *)&p->value, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX,
                      NULL, NULL, 0);
    }
}
