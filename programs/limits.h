// What a process may use, as the place that it runs in says: read back inside every instance, to prove the limits.

#ifndef TARE_LIMITS_H
#define TARE_LIMITS_H

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void lower(const char *path, const char *format, unsigned long long unit, unsigned long long *memory) {
    char line[256];
    unsigned long long value;
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(line, sizeof line, file) && sscanf(line, format, &value) == 1 && value * unit < *memory)
        *memory = value * unit;
    fclose(file);
}

// A group is limited by its parents as well; inside a container only the top of the path is there.
static void lower_by_group(const char *mount, const char *file, char *group, unsigned long long *memory) {
    char path[4096 + 256];
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        snprintf(path, sizeof path, "%s%s/%s", mount, group, file);
        lower(path, "%llu", 1, memory);
        char *last = strrchr(group, '/');
        if (!last)
            return;
        *last = '\0';
    }
}

static unsigned long long memory_bytes(void) {
    struct sysinfo system;
    sysinfo(&system);
    unsigned long long memory = (unsigned long long)system.totalram * system.mem_unit;
    lower("/proc/meminfo", "MemTotal: %llu", 1024, &memory); // LXC shows the limit here only
    lower("/sys/fs/cgroup/memory.max", "%llu", 1, &memory);
    lower("/sys/fs/cgroup/memory/memory.limit_in_bytes", "%llu", 1, &memory);
    char line[4096];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups)) {
        char *memory_group = strstr(line, ":memory:");
        if (memory_group)
            lower_by_group("/sys/fs/cgroup/memory", "memory.limit_in_bytes", memory_group + 8, &memory);
        else if (strncmp(line, "0::", 3) == 0)
            lower_by_group("/sys/fs/cgroup", "memory.max", line + 3, &memory);
    }
    if (groups)
        fclose(groups);
    return memory;
}

// Prints what this process may use, one "name: value" a line; memory in bytes, the smallest of all limits that show.
static bool print_limits(void) {
    static cpu_set_t cpus[64]; // kernels with more than 1024 CPUs refuse a single one
    struct rlimit files;
    struct utsname name;
    if (sched_getaffinity(0, sizeof cpus, cpus) || getrlimit(RLIMIT_NOFILE, &files) || uname(&name)) {
        perror("limits");
        return false;
    }
    printf("cpus: %d\nopen_files: %llu\n", CPU_COUNT_S(sizeof cpus, cpus), (unsigned long long)files.rlim_cur);
    printf("memory: %llu\nkernel: %s\n", memory_bytes(), name.release);
    return fflush(stdout) == 0;
}

#endif
