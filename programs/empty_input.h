// An empty standard input: for a command that is to find nothing there, and wait for nobody.

#ifndef TARE_EMPTY_INPUT_H
#define TARE_EMPTY_INPUT_H

#include <fcntl.h>
#include <unistd.h>

static void use_empty_input(void) {
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
