// Histogram of latencies with logarithmic buckets: 32 in each power of two, so that a bucket is at most 3 % wide.

#ifndef TARE_LOAD_HISTOGRAM_H
#define TARE_LOAD_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { PER_OCTAVE_BITS = 5, PER_OCTAVE = 1 << PER_OCTAVE_BITS, BUCKETS = (64 - PER_OCTAVE_BITS + 1) * PER_OCTAVE };

static uint64_t latency_counts[BUCKETS];

static void count_latency(uint64_t nanoseconds) {
    unsigned shift = 0;
    if (nanoseconds >= PER_OCTAVE)
        shift = 63 - PER_OCTAVE_BITS - (unsigned)__builtin_clzll(nanoseconds);
    // The leading bit of a value of at least 32 adds 32 to the index, which is the bucket of its octave.
    latency_counts[shift * PER_OCTAVE + (nanoseconds >> shift)]++;
}

static void clear_latencies(void) {
    memset(latency_counts, 0, sizeof latency_counts);
}

// Print the lowest latency of each bucket that is not empty, in microseconds, and its count.
static void print_latencies(void) {
    fputs("latency:", stdout);
    for (unsigned index = 0; index < BUCKETS; index++) {
        unsigned octave = index / PER_OCTAVE, shift = octave ? octave - 1 : 0;
        uint64_t lowest = (uint64_t)(index - shift * PER_OCTAVE) << shift;
        if (latency_counts[index])
            printf(" %.3f:%llu", (double)lowest / 1e3, (unsigned long long)latency_counts[index]);
    }
    putchar('\n');
}

#endif
