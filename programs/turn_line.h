// Turns of a resident program, each of which a line `DISCARDED_SECONDS SECONDS` on standard input requests. The result
// of a turn ends with the CPU time per second of its counted part: it is below 1 where others took the CPU.

#ifndef TARE_TURN_LINE_H
#define TARE_TURN_LINE_H

#include "clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SECONDS 3600.0

// Read the seconds to discard and to measure of the next turn; return false at the end, and exit on any other line.
static bool read_turn(const char *program, double *discarded_seconds, double *seconds) {
    char line[128];
    if (!fgets(line, sizeof line, stdin))
        return false;
    if (sscanf(line, "%lf %lf", discarded_seconds, seconds) != 2 ||
        !(*discarded_seconds >= 0 && *seconds > 0 && *discarded_seconds + *seconds <= MAX_SECONDS)) {
        fprintf(stderr, "%s: not a turn: %s", program, line);
        exit(2);
    }
    return true;
}

struct counted_part {
    double start_seconds, start_cpu_seconds;
};

static struct counted_part begin_counted_part(void) {
    return (struct counted_part){now_seconds(), cpu_seconds()};
}

static double end_counted_part(const struct counted_part *part) {
    double used_seconds = cpu_seconds() - part->start_cpu_seconds;
    return used_seconds / (now_seconds() - part->start_seconds);
}

#endif
