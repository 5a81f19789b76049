// Limits of a process, as its environment reports them: tare reads them back inside every instance to verify them.

#ifndef TARE_LIMITS_H
#define TARE_LIMITS_H

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void lower_limit(const char *path, const char *format, unsigned long long unit, unsigned long long *memory) {
    char line[256];
    unsigned long long value;
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(line, sizeof line, file) && sscanf(line, format, &value) == 1 && value * unit < *memory)
        *memory = value * unit;
    fclose(file);
}

// Apply the limits of a group and its parents. Inside a container, only the top of the path exists.
static void lower_by_group(const char *mount, const char *file, char *group, unsigned long long *memory) {
    char path[4096 + 256];
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        snprintf(path, sizeof path, "%s%s/%s", mount, group, file);
        lower_limit(path, "%llu", 1, memory);
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
    lower_limit("/proc/meminfo", "MemTotal: %llu", 1024, &memory); // LXC reports the limit only here
    lower_limit("/sys/fs/cgroup/memory.max", "%llu", 1, &memory);
    lower_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "%llu", 1, &memory);
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

// Print the limits, one "name: value" per line; memory in bytes, the lowest of all visible limits.
static bool print_limits(void) {
    static cpu_set_t cpus[64]; // the kernel refuses a single set if it supports more than 1024 CPUs
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
