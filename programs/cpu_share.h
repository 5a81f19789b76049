// CPU share of a counted part: how much of its time the program had the CPU, and had or wanted it. A program that only
// computes always wants it: the rest is time that others took.

#ifndef TARE_CPU_SHARE_H
#define TARE_CPU_SHARE_H

#include "clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct counted_part {
    double start_seconds, start_cpu_seconds, start_waited_seconds;
};

struct cpu_share {
    double had, wanted;
};

// Return the seconds for which a task was runnable and did not run, from its file schedstat; 0 if they are unknown.
static double read_waited_seconds(const char *path) {
    char text[100] = "", *end;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return 0;
    strtoull(text, &end, 10); // the time for which it ran
    return (double)strtoull(end, NULL, 10) / 1e9;
}

static inline double cpu_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static inline struct counted_part begin_counted_part(void) {
    double waited_seconds = read_waited_seconds("/proc/self/schedstat");
    return (struct counted_part){now_seconds(), cpu_seconds(), waited_seconds};
}

static inline struct cpu_share end_counted_part(const struct counted_part *part) {
    double used_seconds = cpu_seconds() - part->start_cpu_seconds, seconds = now_seconds() - part->start_seconds;
    double waited_seconds = read_waited_seconds("/proc/self/schedstat") - part->start_waited_seconds;
    return (struct cpu_share){used_seconds / seconds, (used_seconds + waited_seconds) / seconds};
}

static inline void print_cpu_share(struct cpu_share share) {
    printf("cpu_share: %.6f of %.6f\n", share.had, share.wanted);
}

#endif
