// Standard input that is empty, for commands that must not wait for input.

#ifndef TARE_NULL_STDIN_H
#define TARE_NULL_STDIN_H

#include <fcntl.h>
#include <unistd.h>

static void use_null_stdin(void) {
    int ends[2];
    int empty = open("/dev/null", O_RDONLY);
    if (empty < 0 && pipe(ends) == 0) { // a bare chroot has no /dev
        close(ends[1]);
        empty = ends[0];
    }
    if (empty > 0) {
        dup2(empty, STDIN_FILENO);
        close(empty);
    }
}

#endif
