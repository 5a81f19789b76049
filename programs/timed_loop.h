// Timed loop: repeats an operation n times, or until it has taken a requested time, and prints the time. Or it stays
// resident and measures in turns, each of which a line on standard input requests.

#ifndef TARE_TIMED_LOOP_H
#define TARE_TIMED_LOOP_H

#include "clock.h"
#include "cpu_share.h"
#include "turn_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Parts of a turn, each with another distance between the stack and the static data. This distance alone changed the
// speed of equal dhrystones by up to a quarter from start to start: both then compete for the same lines of the cache.
// The distances cover a page of 4096 bytes, and all positions of 16 bytes in a line.
#define PARTS 32
#define PART_BYTES 128

// `measure` repeats the operation, verifies its results, and returns the seconds, or exits on a wrong result. `print`
// prints the result. `count` is the option for the number of repetitions, which is at most
// `max_times`; `first_times` is the first attempt at a requested time.
struct timed_loop {
    const char *name;
    const char *count;
    long first_times, max_times;
    double (*measure)(long times);
    void (*print)(long times, double seconds);
};

// Parse a positive number; return 0 for anything else.
static double parse_positive(const char *text) {
    char *end = NULL;
    double number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(number) && number > 0 ? number : 0;
}

// Increase the number of repetitions until they take `wanted_seconds`; return their seconds, and set `times`.
static double measure_for(const struct timed_loop *loop, double wanted_seconds, long *times) {
    double seconds = loop->measure(*times);
    while (seconds < wanted_seconds && *times < loop->max_times) {
        double factor = seconds > 0 ? fmin(1.1 * wanted_seconds / seconds, 10) : 10;
        *times = (long)fmin(ceil((double)*times * factor), (double)loop->max_times);
        seconds = loop->measure(*times);
    }
    return seconds;
}

// Return the repetitions per second, from repetitions that take `wanted_seconds`.
static double measure_rate(const struct timed_loop *loop, double wanted_seconds) {
    long times = loop->first_times;
    double seconds = measure_for(loop, wanted_seconds, &times);
    return (double)times / fmax(seconds, 1e-9);
}

// Measure with the stack moved down by `distance` bytes.
static __attribute__((noinline)) double measure_at(const struct timed_loop *loop, long times, size_t distance) {
    volatile char moved[distance + 1];
    moved[0] = 0;
    return loop->measure(times) + moved[0];
}

static double measure_part(const struct timed_loop *loop, long times, int part) {
    return measure_at(loop, times, (size_t)(part * PART_BYTES + part * 5 % 8 * 16));
}

static int print_result(const struct timed_loop *loop, long times, double seconds) {
    if (!(seconds > 0)) {
        const char *unit = loop->count + strlen("--");
        fprintf(stderr, "%s: %ld %s took no time that the clock can measure: request more %s\n", loop->name, times,
                unit, unit);
        return 1;
    }
    loop->print(times, seconds);
    return fflush(stdout) == 0 ? 0 : 1;
}

// Run parts for at least `wanted_seconds`, which warm up the caches and do not count, and print their rate.
static void discard_parts(const struct timed_loop *loop, long times, double wanted_seconds) {
    double seconds = 0, until_seconds = now_seconds() + wanted_seconds;
    long parts = 0;
    for (; now_seconds() < until_seconds; parts++)
        seconds += measure_part(loop, times, (int)(parts % PARTS));
    print_discarded(seconds, (double)parts * (double)times);
}

// Measure a turn for each line `DISCARDED_SECONDS SECONDS` on standard input: run parts for the first time, which do
// not count, and then all parts for the second time. Return the exit code.
static int run_turns(const struct timed_loop *loop) {
    double discarded_seconds, wanted_seconds;
    double rate = 0; // repetitions per second
    while (read_turn(loop->name, &discarded_seconds, &wanted_seconds)) {
        double seconds = 0;
        if (rate == 0)
            rate = measure_rate(loop, wanted_seconds / PARTS);
        long times = (long)fmin(fmax(rate * wanted_seconds / PARTS, 1), (double)loop->max_times / PARTS);
        discard_parts(loop, times, discarded_seconds);
        struct counted_part counted = begin_counted_part();
        for (int part = 0; part < PARTS; part++)
            seconds += measure_part(loop, times, part);
        struct cpu_share share = end_counted_part(&counted);
        print_cpu_share(share);
        if (print_result(loop, PARTS * times, seconds) != 0)
            return 1;
        rate = fmax(rate, (double)PARTS * (double)times / seconds); // a disturbed turn must not shorten the next
    }
    return 0;
}

// Parse the command line and run the loop; return the exit code.
static int run_timed_loop(const struct timed_loop *loop, int argc, char **argv) {
    double number = argc == 3 ? parse_positive(argv[2]) : 0;
    long times = loop->first_times;
    if (argc == 2 && strcmp(argv[1], "--turns") == 0)
        return run_turns(loop);
    if (argc == 3 && strcmp(argv[1], loop->count) == 0 && number <= (double)loop->max_times) {
        times = (long)number;
        if (times > 0 && (double)times == number)
            return print_result(loop, times, loop->measure(times));
    } else if (argc == 1 || (argc == 3 && strcmp(argv[1], "--seconds") == 0 && number > 0 && number <= MAX_SECONDS)) {
        double seconds = measure_for(loop, argc == 1 ? 1 : number, &times);
        return print_result(loop, times, seconds);
    }
    fprintf(stderr, "usage: %s [--turns | --seconds S | %s N]   S: at most 3600, default 1; N: 1 to %ld\n", loop->name,
            loop->count, loop->max_times);
    return 2;
}

#endif
