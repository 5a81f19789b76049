// Turns: a program that was started once waits on its standard input, and works when it is told to by a line.

#ifndef TARE_TURNS_H
#define TARE_TURNS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TURN_LENGTH 4096

// Waits for the next turn, and gives its line without its end; gives false when there is no other.
static bool next_turn(char line[TURN_LENGTH]) {
    fflush(stdout); // what the turn before has printed
    if (!fgets(line, TURN_LENGTH, stdin))
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

#endif
