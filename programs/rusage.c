// Runs one command and reports its wall time, CPU time and memory, in the same way in every instance.
//
//   rusage ARGV...
//
// The command inherits standard output, and its standard input is empty. After its output follows the line:
//
//   tare-rusage: wall SECONDS user SECONDS system SECONDS waited SECONDS memory BYTES exit CODE
//
// CPU time and memory are those of the command and of all children that were waited for; the memory is the largest
// resident set size of one of them. The command's first thread was runnable and did not run for the seconds after
// `waited`; 0 if the kernel does not tell. CODE is 128 + n if signal n ended the command. The exit code of `rusage` is
// 0 whatever the command's is; 126 and 127 if the command cannot be started; 2 for wrong arguments.

#define _GNU_SOURCE

#include "clock.h"
#include "cpu_share.h"
#include "null_stdin.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_START = 126, NOT_FOUND = 127, WRONG_ARGUMENTS = 2 };

static double to_seconds(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static int print_usage(double wall_seconds, double waited_seconds, const struct rusage *usage, int status) {
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("\ntare-rusage: wall %.9f user %.6f system %.6f waited %.6f memory %lld exit %d\n", wall_seconds,
           to_seconds(usage->ru_utime), to_seconds(usage->ru_stime), waited_seconds, usage->ru_maxrss * 1024LL, code);
    return fflush(stdout) == 0 ? 0 : CANNOT_START;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fputs("usage: rusage ARGV...\n", stderr);
        return WRONG_ARGUMENTS;
    }
    use_null_stdin();
    pid_t child;
    int status;
    struct rusage usage;
    double start_seconds = now_seconds();
    int reason = posix_spawnp(&child, argv[1], NULL, NULL, argv + 1, environ);
    if (reason) {
        fprintf(stderr, "rusage: %s: %s\n", argv[1], strerror(reason));
        return reason == ENOENT ? NOT_FOUND : CANNOT_START;
    }
    siginfo_t ended;
    int result;
    while ((result = waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT)) < 0 && errno == EINTR)
        continue;
    double wall_seconds = now_seconds() - start_seconds;
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/schedstat", (long)child);
    double waited_seconds = read_waited_seconds(path); // before the next line: it removes the process
    if (result < 0 || wait4(child, &status, 0, &usage) < 0) {
        perror("rusage: wait");
        return CANNOT_START;
    }
    return print_usage(wall_seconds, waited_seconds, &usage, status);
}
