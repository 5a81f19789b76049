// Table of operation kinds, shared by `unit_cost` and `net_client`: each kind by its name, repeated in a timed loop.

#ifndef TARE_OPERATIONS_H
#define TARE_OPERATIONS_H

#include "timed_loop.h"

#define OPERATION(NAME, FIRST, MEASURE)                                                                                \
    { NAME, "--times", FIRST, 1L << 40, MEASURE, print_operation }

static const char *operation_kind; // name of the chosen kind

static void print_operation(long times, double seconds) {
    printf("program: " PROGRAM "\nkind: %s\ntimes: %ld\nseconds: %.9f\n", operation_kind, times, seconds);
}

// Return the operation kind of this name, and remember its name for the output; return NULL for any other name.
static const struct timed_loop *find_operation(const struct timed_loop *operations, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        operation_kind = operations[i].name;
        if (strcmp(name, operation_kind) == 0)
            return &operations[i];
    }
    return NULL;
}

#endif
