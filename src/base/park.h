#ifndef QN_BASE_PARK_H
#define QN_BASE_PARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/// A place to sleep until something happens, without a lock: take a ticket, look at the condition,
/// wait with the ticket. Whoever makes the condition true wakes afterwards. Zero-initialise.
struct qn_park {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

/// Any thread; take it before looking at the condition.
uint32_t qn_park_ticket(struct qn_park *p);
/// Sleep until a wake-up that came after the ticket; true at once if there was one. False when
/// timeout_ms (-1: none) passed first.
bool qn_park_wait(struct qn_park *p, uint32_t ticket, int timeout_ms);
/// Wake every sleeper. No system call when nobody sleeps. Async-signal-safe.
void qn_park_wake(struct qn_park *p);

#endif
