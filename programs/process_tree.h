// Process tree of a command: finds all descendants by parent IDs, including those that called setsid or forked twice,
// and kills them.

#ifndef TARE_PROCESS_TREE_H
#define TARE_PROCESS_TREE_H

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct tree {
    pid_t supervisor;
    pid_t root;    // the command, which is a session leader
    bool inherits; // the supervisor is a child subreaper: orphans become its children
    char mark[64]; // environment variable of the command otherwise: some gVisor only claims to support subreapers
};

struct process {
    pid_t pid, parent, session;
    char state;
    bool in_tree;
};

static struct tree create_tree(void) {
    struct tree tree = {.supervisor = getpid()};
    struct timespec now;
    int reaper = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    tree.inherits = tree.supervisor == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &reaper, 0, 0, 0) == 0 && reaper == 1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(tree.mark, sizeof tree.mark, "TARE_RUN_%d=%lld.%09ld", tree.supervisor, (long long)now.tv_sec,
             now.tv_nsec);
    return tree;
}

static bool read_process(const char *number, struct process *process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", number);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    *process = (struct process){.pid = atoi(number)};
    char *rest = strrchr(text, ')'); // the command name before it may contain any bytes
    return rest && sscanf(rest, ") %c %d %*d %d", &process->state, &process->parent, &process->session) == 3;
}

static bool has_mark(pid_t pid, const char *mark) {
    char path[64], *variable = NULL;
    size_t capacity = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *environment = fopen(path, "re");
    while (environment && !found && getdelim(&variable, &capacity, '\0', environment) > 0)
        found = strcmp(variable, mark) == 0;
    free(variable);
    if (environment)
        fclose(environment);
    return found;
}

static bool has_parent_in_tree(const struct process *process, const struct process *all, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (all[i].in_tree && all[i].pid == process->parent)
            return true;
    return false;
}

static void mark_tree(struct process *all, size_t count, const struct tree *tree) {
    for (size_t i = 0; i < count; i++)
        all[i].in_tree = all[i].parent == tree->supervisor || all[i].session == tree->root ||
                         (!tree->inherits && has_mark(all[i].pid, tree->mark));
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < count; i++)
            if (!all[i].in_tree && has_parent_in_tree(&all[i], all, count))
                changed = all[i].in_tree = true;
    }
}

// Return all processes, which the caller frees; NULL if out of memory.
static struct process *list_processes(DIR *proc, size_t *count) {
    struct process *all = NULL;
    size_t capacity = 0;
    *count = 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        if (*count == capacity) {
            struct process *larger = realloc(all, (capacity = capacity * 2 + 256) * sizeof *all);
            if (!larger)
                break;
            all = larger;
        }
        *count += isdigit((unsigned char)*entry->d_name) && read_process(entry->d_name, &all[*count]);
    }
    return all;
}

// Open /proc unless it belongs to another PID namespace: its IDs would denote unrelated processes here.
static DIR *open_proc(void) {
    char self[32] = "";
    if (readlink("/proc/self", self, sizeof self - 1) < 0 || atoi(self) != getpid())
        return NULL;
    return opendir("/proc");
}

// Process 1 can signal all processes at once. Otherwise kill the command's process group first, then the orphans that
// became children: their IDs are unknown, but waitpid tells whether an ID is a child.
static bool kill_without_proc(const struct tree *tree, bool children) {
    const pid_t highest = 4194304; // PID_MAX_LIMIT of Linux
    if (kill(tree->supervisor == 1 ? -1 : -tree->root, SIGKILL) == 0)
        return true;
    for (pid_t pid = 2; children && pid <= highest; pid++)
        if (waitpid(pid, NULL, WNOHANG | __WALL) == 0)
            kill(pid, SIGKILL);
    return children;
}

// Kill all remaining processes of the tree once; return false if none is left or can be found. `children` tells whether
// the caller still has children.
static bool kill_tree_once(const struct tree *tree, bool children) {
    DIR *proc = open_proc();
    if (!proc)
        return kill_without_proc(tree, children);
    size_t count;
    struct process *all = list_processes(proc, &count);
    closedir(proc);
    mark_tree(all, count, tree);
    bool alive = children;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].in_tree || all[i].pid == tree->supervisor)
            continue;
        kill(all[i].pid, SIGKILL);
        alive |= all[i].state != 'Z'; // zombies of other parents cannot be reaped here
    }
    free(all);
    return alive;
}

#endif
