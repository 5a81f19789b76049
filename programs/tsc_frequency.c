// Frequency of the time stamp counter in kHz, measured against the monotonic clock for a fifth of a second.
//
// An emulated processor has the machine's counter, but nothing that tells its frequency to a guest without a PIT. Only
// x86 has this counter and needs its frequency: elsewhere the program fails.

#include <stdio.h>

#ifdef __x86_64__
#include "clock.h"

#include <x86intrin.h>

enum { READINGS = 200 };

struct reading {
    double seconds, error_seconds;
    unsigned long long ticks;
};

// Return the reading of both clocks that took the shortest time: others were interrupted between the two.
static struct reading read_clocks(void) {
    struct reading best = {.error_seconds = 1e9};
    for (int i = 0; i < READINGS; i++) {
        const double before = now_seconds();
        const unsigned long long ticks = __rdtsc();
        const double after = now_seconds();
        if (after - before < best.error_seconds)
            best = (struct reading){(before + after) / 2, after - before, ticks};
    }
    return best;
}

int main(void) {
    const struct reading first = read_clocks();
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    const struct reading last = read_clocks();
    printf("%.0f\n", (double)(last.ticks - first.ticks) / (last.seconds - first.seconds) / 1e3);
    return 0;
}
#else
int main(void) {
    fputs("tsc_frequency: this processor has no time stamp counter\n", stderr);
    return 1;
}
#endif
