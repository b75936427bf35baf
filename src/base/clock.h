#ifndef QN_BASE_CLOCK_H
#define QN_BASE_CLOCK_H

#include <stdint.h>

/// Monotonic nanoseconds; for durations alone.
uint64_t qn_clock_ns(void);
/// Wall clock, seconds since 1970. In test builds (QN_DEBUG) the environment variable
/// QUERN_FAKE_TIME (seconds) fixes it.
int64_t qn_clock_wall_s(void);

#endif
