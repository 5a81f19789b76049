// What programs share that do a piece of work so many times: so often as they are told, or for a time.

#ifndef TARE_KERNEL_H
#define TARE_KERNEL_H

#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SECONDS 3600.0

// `measure` does the work so many times, proves its results, and gives its seconds, or ends the program; `print` prints
// the result. `count` is the option that gives the number of times, of which there are `first` to `most`.
struct kernel {
    const char *name;
    const char *count;
    long first, most;
    double (*measure)(long times);
    void (*print)(long times, double seconds);
};

// Reads a positive number; gives 0 for anything else.
static double positive(const char *text) {
    char *end = NULL;
    double number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(number) && number > 0 ? number : 0;
}

// Works more and more often, until that takes so many seconds; gives its seconds, and how often that was.
static double reach(const struct kernel *kernel, double wanted_seconds, long *times) {
    double seconds = kernel->measure(*times);
    while (seconds < wanted_seconds && *times < kernel->most) {
        double factor = seconds > 0 ? fmin(1.1 * wanted_seconds / seconds, 10) : 10;
        *times = (long)fmin(ceil((double)*times * factor), (double)kernel->most);
        seconds = kernel->measure(*times);
    }
    return seconds;
}

static int print_result(const struct kernel *kernel, long times, double seconds) {
    if (!(seconds > 0)) {
        const char *what = kernel->count + strlen("--");
        fprintf(stderr, "%s: %ld %s took no time that the clock can see: give more %s\n", kernel->name, times, what,
                what);
        return 1;
    }
    kernel->print(times, seconds);
    return fflush(stdout) == 0 ? 0 : 1;
}

// Does what the command line says; gives the exit code.
static int run_kernel(const struct kernel *kernel, int argc, char **argv) {
    double number = argc == 3 ? positive(argv[2]) : 0;
    long times = kernel->first;
    if (argc == 3 && strcmp(argv[1], kernel->count) == 0 && number <= (double)kernel->most) {
        times = (long)number;
        if (times > 0 && (double)times == number)
            return print_result(kernel, times, kernel->measure(times));
    } else if (argc == 1 || (argc == 3 && strcmp(argv[1], "--seconds") == 0 && number > 0 && number <= MOST_SECONDS)) {
        double seconds = reach(kernel, argc == 1 ? 1 : number, &times);
        return print_result(kernel, times, seconds);
    }
    fprintf(stderr, "usage: %s [--seconds S | %s N]   S: at most 3600, default 1; N: 1 to %ld\n", kernel->name,
            kernel->count, kernel->most);
    return 2;
}

#endif
