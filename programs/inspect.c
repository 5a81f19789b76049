// Prints the conditions of a process in an instance, one "NAME<tab>VALUE" per line, for comparison between stacks.
//
//   inspect
//
// Lines "isolation NAME" tell what keeps the process from the kernel and from other processes. They are not compared:
// tare/runner/observe_isolation.py reads them.
//
// Bytes outside 0x20 to 0x7e are printed as '?'.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void print(const char *kind, const char *name, const char *value) {
    printf("%s%s", kind, *name ? " " : "");
    for (const char *c = name; *c; c++)
        putchar(*c >= ' ' && *c <= '~' ? *c : '?');
    putchar('\t');
    for (const char *c = value; *c; c++)
        putchar(*c >= ' ' && *c <= '~' ? *c : '?');
    putchar('\n');
}

static void print_environment(void) {
    for (char **each = environ; *each; each++) {
        char *value = strchr(*each, '=');
        if (!value || strncmp(*each, "TARE_RUN_", strlen("TARE_RUN_")) == 0) // mark of `supervise`
            continue;
        *value = '\0';
        print("environment", *each, value + 1);
    }
}

static void print_mounts(void) {
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    for (struct mntent *each; mounts && (each = getmntent(mounts));) {
        char value[PATH_MAX];
        snprintf(value, sizeof value, "%s %s", each->mnt_type, each->mnt_opts);
        print("mount", each->mnt_dir, value);
    }
    if (mounts)
        endmntent(mounts);
}

// Print the lines of a status file of /proc whose names are in the list, which ends with NULL.
static void print_status(const char *kind, const char *path, const char *const *names) {
    char line[1024];
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status)) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        *value++ = '\0';
        value[strcspn(value, "\n")] = '\0';
        for (char *tab = value; (tab = strchr(tab, '\t'));)
            *tab = ' ';
        for (const char *const *name = names; *name; name++)
            if (strcmp(line, *name) == 0)
                print(kind, line, value + strspn(value, " "));
    }
    if (status)
        fclose(status);
}

static void print_conditions_of_status(void) {
    static const char *const names[] = {"CapInh",     "CapPrm",  "CapEff", "CapBnd", "CapAmb", "Groups",
                                        "NoNewPrivs", "Seccomp", "SigIgn", "Uid",    "Gid",    NULL};
    print_status("status", "/proc/self/status", names);
}

static void print_limits(void) {
    static const struct {
        const char *name;
        int resource;
    } limits[] = {
        {"core", RLIMIT_CORE},        {"data", RLIMIT_DATA},
        {"file size", RLIMIT_FSIZE},  {"locked memory", RLIMIT_MEMLOCK},
        {"nice", RLIMIT_NICE},        {"open files", RLIMIT_NOFILE},
        {"processes", RLIMIT_NPROC},  {"stack", RLIMIT_STACK},
        {"address space", RLIMIT_AS}, {"real-time priority", RLIMIT_RTPRIO},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit limit;
        char value[64];
        if (getrlimit((__rlimit_resource_t)limits[i].resource, &limit))
            continue;
        snprintf(value, sizeof value, "%lld %lld", (long long)limit.rlim_cur, (long long)limit.rlim_max);
        print("limit", limits[i].name, value); // -1: unlimited
    }
}

// Return whether an address is one of this host, other than the loopback.
static bool is_local(const char *text) {
    struct in_addr address;
    struct ifaddrs *all, *each;
    bool found = false;
    if (inet_pton(AF_INET, text, &address) != 1 || getifaddrs(&all))
        return false;
    for (each = all; each; each = each->ifa_next)
        if (each->ifa_addr && each->ifa_addr->sa_family == AF_INET)
            found |= ((struct sockaddr_in *)(void *)each->ifa_addr)->sin_addr.s_addr == address.s_addr;
    freeifaddrs(all);
    return found && (ntohl(address.s_addr) >> 24) != 127;
}

// Look up the host name in /etc/hosts, which resolvers read first. The address itself differs between stacks.
static void print_names(void) {
    char name[256] = "", line[1024];
    const char *how = "is not in /etc/hosts";
    gethostname(name, sizeof name - 1);
    print("host name", "", name);
    FILE *hosts = fopen("/etc/hosts", "re");
    while (hosts && fgets(line, sizeof line, hosts)) {
        line[strcspn(line, "#\n")] = '\0';
        const char *address = strtok(line, " \t");
        for (char *word; address && (word = strtok(NULL, " \t"));)
            if (strcmp(word, name) == 0)
                how = is_local(address) ? "is the instance's address" : "is another address";
    }
    if (hosts)
        fclose(hosts);
    print("host name", "in /etc/hosts", how);
    FILE *servers = fopen("/etc/resolv.conf", "re");
    int count = 0;
    while (servers && fgets(line, sizeof line, servers))
        count += strncmp(line, "nameserver", strlen("nameserver")) == 0;
    if (servers)
        fclose(servers);
    snprintf(line, sizeof line, "%d", count);
    print("name servers", "", line);
}

static void print_devices(void) {
    struct dirent **names = NULL;
    const int count = scandir("/dev", &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX], value[PATH_MAX] = "";
        struct stat status;
        snprintf(path, sizeof path, "/dev/%s", names[i]->d_name);
        if (names[i]->d_name[0] == '.' || lstat(path, &status)) {
            free(names[i]);
            continue;
        }
        if (S_ISLNK(status.st_mode))
            (void)!readlink(path, value, sizeof value - 1);
        else
            snprintf(value, sizeof value, "%o %u:%u", status.st_mode, major(status.st_rdev), minor(status.st_rdev));
        print("device", names[i]->d_name, value);
        free(names[i]);
    }
    free(names);
}

static void print_others(void) {
    char value[PATH_MAX] = "";
    const time_t now = time(NULL);
    struct tm here;
    const mode_t mask = umask(0);
    umask(mask);
    snprintf(value, sizeof value, "%03o", mask);
    print("umask", "", value);
    print("folder", "", getcwd(value, sizeof value) ? value : "?");
    print("character set", "", setlocale(LC_ALL, "") ? nl_langinfo(CODESET) : "no such locale");
    if (localtime_r(&now, &here) && strftime(value, sizeof value, "%Z %z", &here))
        print("time zone", "", value);
    snprintf(value, sizeof value, "%d", getpriority(PRIO_PROCESS, 0));
    print("nice value", "", value);
    FILE *ports = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
    if (ports && fgets(value, sizeof value, ports)) {
        value[strcspn(value, "\n")] = '\0';
        print("sysctl", "net.ipv4.ip_unprivileged_port_start", value);
    }
    if (ports)
        fclose(ports);
}

// --- isolation -----------------------------------------------------------------------------------------------------

// Print the lines of a file as one, with "; " between them and single spaces; nothing if it cannot be read.
static void print_file(const char *name, const char *path) {
    char line[4096], value[4096] = "";
    size_t length = 0;
    FILE *file = fopen(path, "re");
    bool is_read = false;
    while (file && fgets(line, sizeof line, file)) {
        is_read = true;
        for (char *word = strtok(line, " \t\n"), *between = length ? "; " : ""; word;
             word = strtok(NULL, " \t\n"), between = " ")
            if (length + strlen(word) + 3 < sizeof value)
                length += (size_t)sprintf(value + length, "%s%s", between, word);
    }
    if (file)
        fclose(file);
    if (is_read)
        print("isolation", name, value);
}

// Find the instance's first process, `init`: the nearest ancestor of this name. Without one, a command that an engine
// started from outside is its own first process in the namespace, and process 1 counts.
static pid_t find_first_process(void) {
    for (pid_t pid = getpid(); pid > 0;) {
        char path[64], line[256], name[64] = "";
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        FILE *status = fopen(path, "re");
        while (status && fgets(line, sizeof line, status) && sscanf(line, "PPid: %d", &parent) != 1)
            (void)sscanf(line, "Name: %63s", name);
        if (status)
            fclose(status);
        if (strcmp(name, "init") == 0)
            return pid;
        pid = parent;
    }
    return 1;
}

// Print what tells kernels apart: the command line, and the time of the boot.
static void print_boot(void) {
    char line[4096];
    long long seconds;
    FILE *file = fopen("/proc/stat", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "btime %lld", &seconds) == 1) {
            snprintf(line, sizeof line, "%lld", seconds);
            print("isolation", "boot", line);
        }
    if (file)
        fclose(file);
    print_file("command line", "/proc/cmdline");
}

// Count the Landlock rulesets that restrict this process. No file has their number. A process can have 16 of them (64
// before Linux 5.19), so a child adds rulesets until the kernel refuses another one.
static int count_landlock_rulesets(void) {
    enum { CREATE = 444, RESTRICT = 446, MOST = 16, MOST_ONCE = 64 }; // the same on all architectures
    const uint64_t handled = 1 << 11;                                 // that of making block devices, as an example
    int added = 0;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const long ruleset = syscall(CREATE, &handled, sizeof handled, 0);
    if (ruleset < 0)
        return errno == ENOSYS ? 201 : errno == EOPNOTSUPP ? 202 : 203;
    while (added <= MOST_ONCE && syscall(RESTRICT, ruleset, 0) == 0)
        added++;
    return errno != E2BIG ? 203 : (added > MOST ? MOST_ONCE : MOST) - added;
}

static void print_landlock(void) {
    char value[32] = "refused"; // such as by a seccomp filter, which may also kill the child
    int status;
    const pid_t child = fork();
    if (child == 0)
        _exit(count_landlock_rulesets());
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)) {
        const int code = WEXITSTATUS(status);
        if (code <= 64)
            snprintf(value, sizeof value, "%d", code);
        else if (code < 203)
            strcpy(value, code == 201 ? "not in the kernel" : "off");
    }
    print("isolation", "Landlock", value);
}

// The conditions of this process include tare's (conditions.h), so the privileges are those of the first process.
static void print_isolation(void) {
    static const char *const names[] = {"Name", "CapEff", "NoNewPrivs", "Seccomp", "Seccomp_filters", NULL};
    static const char *const namespaces[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
    char path[64], value[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)find_first_process());
    print_status("isolation", path, names);
    print_boot();
    print_file("last capability", "/proc/sys/kernel/cap_last_cap");
    print_file("uid_map", "/proc/self/uid_map");
    print_file("gid_map", "/proc/self/gid_map");
    print_file("label", "/proc/self/attr/current");
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++) {
        snprintf(path, sizeof path, "/proc/self/ns/%s", namespaces[i]);
        const ssize_t length = readlink(path, value, sizeof value - 1);
        value[length > 0 ? length : 0] = '\0';
        snprintf(path, sizeof path, "namespace %s", namespaces[i]);
        if (length > 0)
            print("isolation", path, value);
    }
    print_landlock();
}

int main(void) {
    print_environment();
    print_names();
    print_mounts();
    print_devices();
    print_conditions_of_status();
    print_limits();
    print_others();
    print_isolation();
    return fflush(stdout) ? 1 : 0;
}
