// Monotonic clock.

#ifndef TARE_CLOCK_H
#define TARE_CLOCK_H

#include <time.h>

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
