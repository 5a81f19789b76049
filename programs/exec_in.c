// Runs a command in a control group, under a limit, in namespaces or in a root: does the work of `sh`, prlimit,
// nsenter, env and chroot in one program, which takes a fifth of their time.
//
//   exec_in [-g GROUP]... [-f OPEN_FILES] [-n NETWORK] [-p PID] [-u NAME] [-r ROOT] [-e NAME=VALUE]... -- ARGV...
//
// -g joins a control group, by its directory; -f sets both limits of open files; -n enters a network namespace, by its
// file; -p enters the mount, PID, UTS, IPC and network namespaces of a process, its root and its working directory; -u
// creates a UTS namespace with this host name; -r changes the root. With -e, the environment has only these variables.
// Exit codes: the command's; 128 + n if signal n ended it; 125 if a step failed; 126 and 127 if the command cannot be
// started; 2 for wrong arguments.

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

enum { CANNOT_ENTER = 125, CANNOT_START = 126, NOT_FOUND = 127, WRONG_ARGUMENTS = 2 };

static void require(bool succeeded, const char *what) {
    if (succeeded)
        return;
    fprintf(stderr, "exec_in: %s: %s\n", what, strerror(errno));
    exit(CANNOT_ENTER);
}

static int open_file(const char *path, int flags) {
    const int file = open(path, flags | O_CLOEXEC);
    require(file >= 0, path);
    return file;
}

static void join_group(const char *directory) {
    char path[PATH_MAX];
    require(snprintf(path, sizeof path, "%s/cgroup.procs", directory) < (int)sizeof path, directory);
    const int file = open_file(path, O_WRONLY);
    require(write(file, "0", 1) == 1, path);
    close(file);
}

static void set_open_files(const char *text) {
    const rlim_t count = strtoull(text, NULL, 10);
    require(setrlimit(RLIMIT_NOFILE, &(struct rlimit){count, count}) == 0, "limit of open files");
}

static void enter_network(const char *path) {
    require(setns(open_file(path, O_RDONLY), CLONE_NEWNET) == 0, path);
}

static void enter_process(const char *pid) {
    static const char *const names[] = {"ipc", "uts", "net", "pid", "mnt", "root", "cwd"};
    enum { NAMESPACE_COUNT = 5, ROOT = 5, DIRECTORY = 6, FILE_COUNT = 7 };
    int files[FILE_COUNT];
    char path[64];
    for (int i = 0; i < FILE_COUNT; i++) { // open all files first: /proc may be another one after the first setns
        snprintf(path, sizeof path, "/proc/%.20s/%s%s", pid, i < NAMESPACE_COUNT ? "ns/" : "", names[i]);
        files[i] = open_file(path, i < NAMESPACE_COUNT ? O_RDONLY : O_PATH | O_DIRECTORY);
    }
    for (int i = 0; i < NAMESPACE_COUNT; i++)
        require(setns(files[i], 0) == 0, names[i]);
    require(fchdir(files[ROOT]) == 0 && chroot(".") == 0 && fchdir(files[DIRECTORY]) == 0, "root of the process");
}

// Fork, because only children enter a PID namespace: return the exit code in the parent, -1 in the child.
static int fork_and_wait(void) {
    int status;
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0)
        return -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void set_host_name(const char *name) {
    require(unshare(CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0, "host name");
}

static void change_root(const char *directory) {
    require(chroot(directory) == 0 && chdir("/") == 0, directory);
}

int main(int argc, char **argv) {
    static char *empty[] = {NULL};
    char **inherited = environ;
    bool invalid = false, forks = false;
    for (int letter; (letter = getopt(argc, argv, "+g:f:n:p:u:r:e:")) != -1;) {
        if (letter == 'g')
            join_group(optarg);
        else if (letter == 'f')
            set_open_files(optarg);
        else if (letter == 'n')
            enter_network(optarg);
        else if (letter == 'p')
            enter_process(optarg);
        else if (letter == 'u')
            set_host_name(optarg);
        else if (letter == 'r')
            change_root(optarg);
        else if (letter == 'e' && environ == inherited)
            environ = empty;
        forks |= letter == 'p';
        invalid |= letter == '?' || (letter == 'e' && putenv(optarg));
    }
    if (invalid || !argv[optind]) {
        fputs("usage: exec_in [-g GROUP]... [-f OPEN_FILES] [-n NETWORK] [-p PID] [-u NAME] [-r ROOT] "
              "[-e NAME=VALUE]... -- ARGV...\n",
              stderr);
        return WRONG_ARGUMENTS;
    }
    const int code = forks ? fork_and_wait() : -1;
    if (code >= 0)
        return code;
    execvp(argv[optind], argv + optind);
    const int error = errno;
    fprintf(stderr, "exec_in: %s: %s\n", argv[optind], strerror(error));
    return error == ENOENT ? NOT_FOUND : CANNOT_START;
}
