#ifndef QN_TESTS_FAIL_ALLOC_H
#define QN_TESTS_FAIL_ALLOC_H

#include <stdbool.h>

/// Failing allocations in the server's own code: the first SIGUSR1 makes the next allocation fail,
/// the second the one after it, and so on. SIGUSR2: none does.
void fail_alloc_install(void);

extern _Thread_local unsigned fail_alloc_exempt;
void fail_alloc_leave(const int *unused);
/// At the head of a function: its allocations do not count.
#define FAIL_ALLOC_EXEMPT                                                                          \
    __attribute__((cleanup(fail_alloc_leave), unused)) const int fail_alloc_scope_ = 0;            \
    fail_alloc_exempt++

#endif
