// What `price` and `ask` share: kinds of work by their names, each of which is done so many times.

#ifndef TARE_KINDS_H
#define TARE_KINDS_H

#include "kernel.h"

#define KIND(NAME, FIRST, MEASURE)                                                                                     \
    { NAME, "--times", FIRST, 1L << 40, MEASURE, print_kind }

static const char *kind; // its name

static void print_kind(long times, double seconds) {
    printf("program: " PROGRAM "\nkind: %s\ntimes: %ld\nseconds: %.9f\n", kind, times, seconds);
}

// Chooses the kind of this name; gives NULL for any other.
static const struct kernel *choose(const struct kernel *kinds, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        kind = kinds[i].name;
        if (strcmp(name, kind) == 0)
            return &kinds[i];
    }
    return NULL;
}

#endif
