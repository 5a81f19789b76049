// All that a command started, found by parent numbers, so that none outlives it: not by setsid, nor by forking twice.

#ifndef TARE_TREE_H
#define TARE_TREE_H

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
    pid_t root;    // the command; it leads a session
    bool inherits; // orphans become our children
    char mark[64]; // in the environment of the command when they do not: some gVisor only pretends to be able to
};

struct process {
    pid_t pid, parent, session;
    char state;
    bool ours;
};

static struct tree plant_tree(void) {
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
    char *rest = strrchr(text, ')'); // the name before it may hold anything
    return rest && sscanf(rest, ") %c %d %*d %d", &process->state, &process->parent, &process->session) == 3;
}

static bool has_mark(pid_t pid, const char *mark) {
    char path[64], *variable = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *environment = fopen(path, "re");
    while (environment && !found && getdelim(&variable, &room, '\0', environment) > 0)
        found = strcmp(variable, mark) == 0;
    free(variable);
    if (environment)
        fclose(environment);
    return found;
}

static bool is_child_of_ours(const struct process *process, const struct process *all, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (all[i].ours && all[i].pid == process->parent)
            return true;
    return false;
}

static void mark_ours(struct process *all, size_t count, const struct tree *tree) {
    for (size_t i = 0; i < count; i++)
        all[i].ours = all[i].parent == tree->supervisor || all[i].session == tree->root ||
                      (!tree->inherits && has_mark(all[i].pid, tree->mark));
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < count; i++)
            if (!all[i].ours && is_child_of_ours(&all[i], all, count))
                more = all[i].ours = true;
    }
}

// Gives NULL without memory; the caller frees.
static struct process *list_processes(DIR *proc, size_t *count) {
    struct process *all = NULL;
    size_t room = 0;
    *count = 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        if (*count == room) {
            struct process *larger = realloc(all, (room = room * 2 + 256) * sizeof *all);
            if (!larger)
                break;
            all = larger;
        }
        *count += isdigit((unsigned char)*entry->d_name) && read_process(entry->d_name, &all[*count]);
    }
    return all;
}

// The process file system of another process namespace has other numbers: with those we would kill strangers.
static DIR *open_own_proc(void) {
    char self[32] = "";
    if (readlink("/proc/self", self, sizeof self - 1) < 0 || atoi(self) != getpid())
        return NULL;
    return opendir("/proc");
}

// As the first process we reach all at once. Else the group of the command goes first, then what has become our child:
// its number is unknown, but waitpid tells of any number whether it is one.
static bool kill_without_proc(const struct tree *tree, bool children) {
    const pid_t highest = 4194304; // PID_MAX_LIMIT of Linux
    if (kill(tree->supervisor == 1 ? -1 : -tree->root, SIGKILL) == 0)
        return true;
    for (pid_t pid = 2; children && pid <= highest; pid++)
        if (waitpid(pid, NULL, WNOHANG | __WALL) == 0)
            kill(pid, SIGKILL);
    return children;
}

// Kills what is left of the tree, once; false when nothing is left, or nothing more can be found. `children` says
// whether the caller still has children.
static bool kill_tree_once(const struct tree *tree, bool children) {
    DIR *proc = open_own_proc();
    if (!proc)
        return kill_without_proc(tree, children);
    size_t count;
    struct process *all = list_processes(proc, &count);
    closedir(proc);
    mark_ours(all, count, tree);
    bool alive = children;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].ours || all[i].pid == tree->supervisor)
            continue;
        kill(all[i].pid, SIGKILL);
        alive |= all[i].state != 'Z'; // the dead without us as a parent are not ours to bury
    }
    free(all);
    return alive;
}

#endif
