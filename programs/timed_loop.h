// Timed loop: repeats an operation n times, or until it has taken a requested time, and prints the time.

#ifndef TARE_TIMED_LOOP_H
#define TARE_TIMED_LOOP_H

#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SECONDS 3600.0

// `measure` repeats the operation, verifies its results, and returns the seconds, or exits on a wrong result. `print`
// prints the result. `count` is the option for the number of repetitions, which is at most `max_times`; `first_times`
// is the first attempt at a requested time.
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

// Parse the command line and run the loop; return the exit code.
static int run_timed_loop(const struct timed_loop *loop, int argc, char **argv) {
    double number = argc == 3 ? parse_positive(argv[2]) : 0;
    long times = loop->first_times;
    if (argc == 3 && strcmp(argv[1], loop->count) == 0 && number <= (double)loop->max_times) {
        times = (long)number;
        if (times > 0 && (double)times == number)
            return print_result(loop, times, loop->measure(times));
    } else if (argc == 1 || (argc == 3 && strcmp(argv[1], "--seconds") == 0 && number > 0 && number <= MAX_SECONDS)) {
        double seconds = measure_for(loop, argc == 1 ? 1 : number, &times);
        return print_result(loop, times, seconds);
    }
    fprintf(stderr, "usage: %s [--seconds S | %s N]   S: at most 3600, default 1; N: 1 to %ld\n", loop->name,
            loop->count, loop->max_times);
    return 2;
}

#endif
