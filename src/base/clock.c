#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

uint64_t qn_clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int64_t qn_clock_wall_s(void)
{
#if QN_DEBUG
    const char *fake = getenv("QUERN_FAKE_TIME");
    if (fake != NULL) {
        return strtoll(fake, NULL, 10);
    }
#endif
    return (int64_t)time(NULL);
}
