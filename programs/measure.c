// Runs one command and says what it used, in the same way in every instance.
//
//   measure ARGV...
//
// The command has our output, and nothing on its standard input. After all that it has printed comes a line of ours:
//
//   tare-measure: wall SECONDS user SECONDS system SECONDS memory BYTES exit CODE
//
// CPU time and memory are those of the command and of all children that were waited for; the memory is the largest that
// one of them had resident. A command that signal n ended has the exit code 128 + n. Ours is 0 whatever the command's
// is; 126 and 127 when it cannot be started; 2 for wrong usage.

#define _GNU_SOURCE

#include "clock.h"
#include "empty_input.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_START = 126, NOT_FOUND = 127, WRONG_USAGE = 2 };

static double in_seconds(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static int print_used(double wall_seconds, const struct rusage *used, int status) {
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("\ntare-measure: wall %.9f user %.6f system %.6f memory %lld exit %d\n", wall_seconds,
           in_seconds(used->ru_utime), in_seconds(used->ru_stime), used->ru_maxrss * 1024LL, code);
    return fflush(stdout) == 0 ? 0 : CANNOT_START;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fputs("usage: measure ARGV...\n", stderr);
        return WRONG_USAGE;
    }
    use_empty_input();
    pid_t child;
    int status;
    struct rusage used;
    double began = now_seconds();
    int reason = posix_spawnp(&child, argv[1], NULL, NULL, argv + 1, environ);
    if (reason) {
        fprintf(stderr, "measure: %s: %s\n", argv[1], strerror(reason));
        return reason == ENOENT ? NOT_FOUND : CANNOT_START;
    }
    while (wait4(child, &status, 0, &used) < 0) {
        if (errno != EINTR) {
            perror("measure: wait4");
            return CANNOT_START;
        }
    }
    return print_used(now_seconds() - began, &used, status);
}
