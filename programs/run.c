// Supervises one command and makes sure that everything it started is gone when it ends; with -l, only when it is
// ended: what a command leaves behind that ends by itself, such as the monitor of a container, then goes on.
//
//   run [-t SECONDS] [-s] [-l] [-n OPEN_FILES] -- ARGV...
//   run --limits
//   run --clock    CLOCK_MONOTONIC in nanoseconds
//   run --resident starts commands that its standard input tells: see resident.h
//
// Exit codes: the command's own; 128 + n when signal n ended it (or when signal n told us to stop); 124 after SECONDS;
// 125 when the life line (-s: our standard input) was cut; 126 and 127 when the command cannot be started; 2 wrong
// usage.

#define _GNU_SOURCE

#include "empty_input.h"
#include "limits.h"
#include "resident.h"
#include "stopping.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMED_OUT = 124, LIFE_LINE_CUT = 125, CANNOT_START = 126, NOT_FOUND = 127, WRONG_USAGE = 2 };
#define KILLING_SECONDS 10.0 // a process in an uninterruptible wait must not hold us forever

struct options {
    const char *timeout; // NULL: none
    bool life_line;
    bool leaves;
    const char *open_files; // NULL: as it is
    char **argv;
};

// Takes the exit status of all that ended, and that of the command. Gives false when no child is left at all.
static bool reap(pid_t child, int *status) {
    int one;
    pid_t pid;
    while ((pid = waitpid(-1, &one, WNOHANG | __WALL)) > 0)
        if (pid == child)
            *status = one;
    return pid == 0;
}

static void end_tree(const struct tree *tree) {
    const double deadline = now_seconds() + KILLING_SECONDS;
    int ignored;
    for (;;) {
        bool children = reap(tree->root, &ignored);
        if ((!children && tree->inherits) || !kill_tree_once(tree, children))
            return;
        if (now_seconds() > deadline) {
            fputs("run: some processes cannot be killed\n", stderr);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

static void start(const struct options *options, const struct tree *tree) {
    setsid();
    if (!tree->inherits)
        putenv((char *)tree->mark);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // should run be killed itself, at least the command goes with it
    if (getppid() != tree->supervisor)
        _exit(CANNOT_START);
    if (options->life_line)
        use_empty_input();
    if (options->open_files) {
        rlim_t count = strtoull(options->open_files, NULL, 10);
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){count, count})) {
            dprintf(STDERR_FILENO, "run: %s open files: %s\n", options->open_files, strerror(errno));
            _exit(CANNOT_START);
        }
    }
    execvp(options->argv[0], options->argv);
    int reason = errno;
    dprintf(STDERR_FILENO, "run: %s: %s\n", options->argv[0], strerror(reason));
    _exit(reason == ENOENT ? NOT_FOUND : CANNOT_START);
}

// Waits for the command's end, the deadline, the life line or a signal, and gives the exit code for it.
static int watch(pid_t child, const struct options *options, const sigset_t *unblocked, bool *by_itself) {
    const double deadline = options->timeout ? now_seconds() + strtod(options->timeout, NULL) : INFINITY;
    struct pollfd life_line = {.fd = options->life_line ? STDIN_FILENO : -1, .events = POLLIN};
    char ignored[4096];
    for (;;) {
        int status = -1;
        reap(child, &status);
        *by_itself = status != -1;
        if (*by_itself)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (stopped_by)
            return 128 + stopped_by;
        double left = deadline - now_seconds();
        if (left <= 0)
            return TIMED_OUT;
        left = left < 3600 ? left : 3600;
        struct timespec wait = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        if (ppoll(&life_line, 1, &wait, unblocked) <= 0)
            continue;
        ssize_t length = read(STDIN_FILENO, ignored, sizeof ignored);
        if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
            return LIFE_LINE_CUT;
    }
}

static int print_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec);
    return 0;
}

static int supervise(const struct options *options) {
    struct sigaction before[SIGNALS];
    sigset_t unblocked;
    note_signals(before, &unblocked);
    struct tree tree = plant_tree();
    tree.root = fork();
    if (tree.root < 0) {
        perror("run: fork");
        return CANNOT_START;
    }
    if (tree.root == 0) {
        for (int i = 0; i < SIGNALS; i++)
            sigaction(stopping[i], &before[i], NULL);
        signal(SIGCHLD, SIG_DFL);
        sigprocmask(SIG_SETMASK, &unblocked, NULL);
        start(options, &tree);
    }
    if (!options->life_line)
        close(STDIN_FILENO); // the command alone holds its streams, so that their other ends see it close them
    close(STDOUT_FILENO);
    bool by_itself;
    int code = watch(tree.root, options, &unblocked, &by_itself);
    if (!by_itself || !options->leaves)
        end_tree(&tree);
    if (code == TIMED_OUT)
        fprintf(stderr, "tare-run: timeout after %s s\n", options->timeout);
    return code;
}

int main(int argc, char **argv) {
    umask(022); // that of an SSH server or of the user who calls tare may be another
    static struct resident resident;
    struct options options = {0};
    bool wrong = false;
    if (argc == 2 && strcmp(argv[1], "--limits") == 0)
        return print_limits() ? 0 : 1;
    if (argc == 2 && strcmp(argv[1], "--clock") == 0)
        return print_clock();
    if (argc == 2 && strcmp(argv[1], "--resident") == 0)
        return reside(&resident);
    for (int letter; (letter = getopt(argc, argv, "+t:sln:")) != -1;) {
        char *end = "";
        if (letter == 't')
            wrong |= !(strtod(options.timeout = optarg, &end) > 0) || *end;
        else if (letter == 'n')
            wrong |= strtoull(options.open_files = optarg, &end, 10) == 0 || *end;
        else if (letter == 's')
            options.life_line = true;
        else if (letter == 'l')
            options.leaves = true;
        else
            wrong = true;
    }
    options.argv = argv + optind;
    if (wrong || !*options.argv) {
        fputs("usage: run [-t SECONDS] [-s] [-l] [-n OPEN_FILES] -- ARGV...\n       run --limits\n       run --clock\n"
              "       run --resident\n",
              stderr);
        return WRONG_USAGE;
    }
    return supervise(&options);
}
