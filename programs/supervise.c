// Supervisor of one command: kills the command's process tree when the command ends. With -l, only if the supervisor
// ends the command: processes that a command leaves behind, such as the monitor of a container, then continue.
//
//   supervise [-t SECONDS] [-s] [-l] [-n OPEN_FILES] -- ARGV...
//   supervise --limits     print the limits of this place (limits.h)
//   supervise --clock      print CLOCK_MONOTONIC in nanoseconds
//   supervise --resident   run as resident agent (agent.h)
//
// With -s, standard input is the die-with-parent pipe: the command is ended when it closes.
//
// Exit codes: the command's; 128 + n if signal n ended it or the supervisor; 124 after SECONDS; 125 if the
// die-with-parent pipe was closed; 126 and 127 if the command cannot be started; 2 for wrong arguments.

#define _GNU_SOURCE

#include "agent.h"
#include "limits.h"
#include "null_stdin.h"
#include "process_tree.h"
#include "signals.h"

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

enum { TIMED_OUT = 124, PARENT_DIED = 125, CANNOT_START = 126, NOT_FOUND = 127, WRONG_ARGUMENTS = 2 };
#define KILL_TIMEOUT_SECONDS 10.0 // a process in an uninterruptible wait must not block the supervisor forever

struct options {
    const char *timeout; // NULL: none
    bool die_with_parent;
    bool keep_leftovers;
    const char *open_files; // NULL: unchanged
    char **argv;
};

// Reap all ended children, and set `status` if the command is one of them; return false if no child is left.
static bool reap(pid_t child, int *status) {
    int exit_status;
    pid_t pid;
    while ((pid = waitpid(-1, &exit_status, WNOHANG | __WALL)) > 0)
        if (pid == child)
            *status = exit_status;
    return pid == 0;
}

static void kill_tree(const struct tree *tree) {
    const double deadline = now_seconds() + KILL_TIMEOUT_SECONDS;
    int ignored;
    for (;;) {
        bool children = reap(tree->root, &ignored);
        if ((!children && tree->inherits) || !kill_tree_once(tree, children))
            return;
        if (now_seconds() > deadline) {
            fputs("supervise: some processes cannot be killed\n", stderr);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

static void exec_supervised(const struct options *options, const struct tree *tree) {
    setsid();
    if (!tree->inherits)
        putenv((char *)tree->mark);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // if the supervisor is killed, at least the command ends with it
    if (getppid() != tree->supervisor)
        _exit(CANNOT_START);
    if (options->die_with_parent)
        use_null_stdin();
    if (options->open_files) {
        rlim_t count = strtoull(options->open_files, NULL, 10);
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){count, count})) {
            dprintf(STDERR_FILENO, "supervise: %s open files: %s\n", options->open_files, strerror(errno));
            _exit(CANNOT_START);
        }
    }
    execvp(options->argv[0], options->argv);
    int reason = errno;
    dprintf(STDERR_FILENO, "supervise: %s: %s\n", options->argv[0], strerror(reason));
    _exit(reason == ENOENT ? NOT_FOUND : CANNOT_START);
}

// Wait for the end of the command, the deadline, the end of the parent or a stop signal; return the exit code.
static int watch(pid_t child, const struct options *options, const sigset_t *unblocked, bool *ended_itself) {
    const double deadline = options->timeout ? now_seconds() + strtod(options->timeout, NULL) : INFINITY;
    struct pollfd parent_pipe = {.fd = options->die_with_parent ? STDIN_FILENO : -1, .events = POLLIN};
    char ignored[4096];
    for (;;) {
        int status = -1;
        reap(child, &status);
        *ended_itself = status != -1;
        if (*ended_itself)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (received_signal)
            return 128 + received_signal;
        double left = deadline - now_seconds();
        if (left <= 0)
            return TIMED_OUT;
        left = left < 3600 ? left : 3600;
        struct timespec wait = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        if (ppoll(&parent_pipe, 1, &wait, unblocked) <= 0)
            continue;
        ssize_t length = read(STDIN_FILENO, ignored, sizeof ignored);
        if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
            return PARENT_DIED;
    }
}

static int print_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec);
    return 0;
}

static int supervise(const struct options *options) {
    struct sigaction inherited[STOP_SIGNALS];
    sigset_t unblocked;
    catch_signals(inherited, &unblocked);
    struct tree tree = create_tree();
    tree.root = fork();
    if (tree.root < 0) {
        perror("supervise: fork");
        return CANNOT_START;
    }
    if (tree.root == 0) {
        for (int i = 0; i < STOP_SIGNALS; i++)
            sigaction(stop_signals[i], &inherited[i], NULL);
        signal(SIGCHLD, SIG_DFL);
        sigprocmask(SIG_SETMASK, &unblocked, NULL);
        exec_supervised(options, &tree);
    }
    // Only the command may hold its streams, so that their readers and writers notice when it closes them.
    if (!options->die_with_parent)
        close(STDIN_FILENO);
    close(STDOUT_FILENO);
    bool ended_itself;
    int code = watch(tree.root, options, &unblocked, &ended_itself);
    if (!ended_itself || !options->keep_leftovers)
        kill_tree(&tree);
    if (code == TIMED_OUT)
        fprintf(stderr, "tare-supervise: timeout after %s s\n", options->timeout);
    return code;
}

int main(int argc, char **argv) {
    umask(022); // an SSH server or the user who calls tare may have set a different one
    static struct agent agent;
    struct options options = {0};
    bool invalid = false;
    if (argc == 2 && strcmp(argv[1], "--limits") == 0)
        return print_limits() ? 0 : 1;
    if (argc == 2 && strcmp(argv[1], "--clock") == 0)
        return print_clock();
    if (argc == 2 && strcmp(argv[1], "--resident") == 0)
        return run_agent(&agent);
    for (int letter; (letter = getopt(argc, argv, "+t:sln:")) != -1;) {
        char *end = "";
        if (letter == 't')
            invalid |= !(strtod(options.timeout = optarg, &end) > 0) || *end;
        else if (letter == 'n')
            invalid |= strtoull(options.open_files = optarg, &end, 10) == 0 || *end;
        else if (letter == 's')
            options.die_with_parent = true;
        else if (letter == 'l')
            options.keep_leftovers = true;
        else
            invalid = true;
    }
    options.argv = argv + optind;
    if (invalid || !*options.argv) {
        fputs("usage: supervise [-t SECONDS] [-s] [-l] [-n OPEN_FILES] -- ARGV...\n       supervise --limits\n"
              "       supervise --clock\n       supervise --resident\n",
              stderr);
        return WRONG_ARGUMENTS;
    }
    return supervise(&options);
}
