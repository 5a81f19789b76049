// Turns: a program that was started once waits on its standard input, and works when it is told to by a line.

#ifndef TARE_TURNS_H
#define TARE_TURNS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define TURN_LENGTH 4096

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// Waits for the next turn, and gives its line without its end; gives false when there is no other.
static bool next_turn(char line[TURN_LENGTH]) {
    fflush(stdout); // what the turn before has printed
    if (!fgets(line, TURN_LENGTH, stdin))
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

// Splits a line at its blanks; gives how many words there are, at most so many.
static __attribute__((unused)) int split(char *line, char **words, int most) {
    int count = 0;
    for (char *word = strtok(line, " "); word && count < most; word = strtok(NULL, " "))
        words[count++] = word;
    return count;
}

#endif
