// Runs a command in a control group, under a limit, in namespaces or a root: what `sh`, prlimit, nsenter, env and
// chroot do one after the other, in one program and a fifth of the time.
//
//   enter [-g GROUP]... [-f OPEN_FILES] [-n NETWORK] [-p PID] [-u NAME] [-r ROOT] [-e NAME=VALUE]... -- ARGV...
//
// -g joins a control group, by its folder; -f sets both limits of open files; -n enters a network namespace, by a file;
// -p enters the mounts, processes, names and network of a process, its root and its folder; -u makes a UTS namespace
// with this host name; -r changes the root. With -e, the environment has these variables only. Exit codes: the
// command's own, 128 + n when signal n ended it; 125 when it could not be entered; 126 and 127 when the command cannot
// be started; 2 wrong usage.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_ENTERED = 125, CANNOT_START = 126, NOT_FOUND = 127, WRONG_USAGE = 2 };

static void check(bool right, const char *what) {
    if (right)
        return;
    fprintf(stderr, "enter: %s: %s\n", what, strerror(errno));
    exit(NOT_ENTERED);
}

static int opened(const char *path, int flags) {
    const int file = open(path, flags | O_CLOEXEC);
    check(file >= 0, path);
    return file;
}

static void join_group(const char *folder) {
    char path[PATH_MAX];
    check(snprintf(path, sizeof path, "%s/cgroup.procs", folder) < (int)sizeof path, folder);
    const int file = opened(path, O_WRONLY);
    check(write(file, "0", 1) == 1, path);
    close(file);
}

static void limit_files(const char *text) {
    const rlim_t count = strtoull(text, NULL, 10);
    check(setrlimit(RLIMIT_NOFILE, &(struct rlimit){count, count}) == 0, "the limit of open files");
}

static void enter_network(const char *path) {
    check(setns(opened(path, O_RDONLY), CLONE_NEWNET) == 0, path);
}

static void enter_process(const char *pid) {
    static const char *const names[] = {"ipc", "uts", "net", "pid", "mnt", "root", "cwd"};
    enum { NAMESPACES = 5, ROOT = 5, FOLDER = 6, ALL = 7 };
    int files[ALL];
    char path[64];
    for (int i = 0; i < ALL; i++) { // before the first is entered: /proc may be another one then
        snprintf(path, sizeof path, "/proc/%.20s/%s%s", pid, i < NAMESPACES ? "ns/" : "", names[i]);
        files[i] = opened(path, i < NAMESPACES ? O_RDONLY : O_PATH | O_DIRECTORY);
    }
    for (int i = 0; i < NAMESPACES; i++)
        check(setns(files[i], 0) == 0, names[i]);
    check(fchdir(files[ROOT]) == 0 && chroot(".") == 0 && fchdir(files[FOLDER]) == 0, "the root of the process");
}

// A namespace of processes has our children in it, not us.
static int started_below(void) {
    int status;
    const pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0)
        return -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void name_host(const char *name) {
    check(unshare(CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0, "the host's name");
}

static void change_root(const char *folder) {
    check(chroot(folder) == 0 && chdir("/") == 0, folder);
}

int main(int argc, char **argv) {
    static char *none[] = {NULL};
    char **before = environ;
    bool wrong = false, below = false;
    for (int letter; (letter = getopt(argc, argv, "+g:f:n:p:u:r:e:")) != -1;) {
        if (letter == 'g')
            join_group(optarg);
        else if (letter == 'f')
            limit_files(optarg);
        else if (letter == 'n')
            enter_network(optarg);
        else if (letter == 'p')
            enter_process(optarg);
        else if (letter == 'u')
            name_host(optarg);
        else if (letter == 'r')
            change_root(optarg);
        else if (letter == 'e' && environ == before)
            environ = none;
        below |= letter == 'p';
        wrong |= letter == '?' || (letter == 'e' && putenv(optarg));
    }
    if (wrong || !argv[optind]) {
        fputs("usage: enter [-g GROUP]... [-f OPEN_FILES] [-n NETWORK] [-p PID] [-u NAME] [-r ROOT] [-e NAME=VALUE]... "
              "-- "
              "ARGV...\n",
              stderr);
        return WRONG_USAGE;
    }
    const int code = below ? started_below() : -1;
    if (code >= 0)
        return code;
    execvp(argv[optind], argv + optind);
    const int error = errno;
    fprintf(stderr, "enter: %s: %s\n", argv[optind], strerror(error));
    return error == ENOENT ? NOT_FOUND : CANNOT_START;
}
