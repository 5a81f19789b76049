// Turns of a resident program, each of which a line `DISCARDED_SECONDS SECONDS` on standard input requests.

#ifndef TARE_TURN_LINE_H
#define TARE_TURN_LINE_H

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

// Print the part of a turn that does not count, with its operations (for memory: bytes) per second, from which tare
// reads how cold a turn begins.
static void print_discarded(double seconds, double operations) {
    printf("discarded_seconds: %.9f\ndiscarded_rate: %.3f\n", seconds, seconds > 0 ? operations / seconds : 0);
}

#endif
