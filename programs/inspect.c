// Prints the conditions of a process in an instance, one "NAME<tab>VALUE" per line, for comparison between stacks.
//
//   inspect
//
// Bytes outside 0x20 to 0x7e are printed as '?'.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

static void print_status(void) {
    static const char *const names[] = {"CapInh",     "CapPrm",  "CapEff", "CapBnd", "CapAmb", "Groups",
                                        "NoNewPrivs", "Seccomp", "SigIgn", "Uid",    "Gid"};
    char line[1024];
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status)) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        *value++ = '\0';
        value[strcspn(value, "\n")] = '\0';
        for (char *tab = value; (tab = strchr(tab, '\t'));)
            *tab = ' ';
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(line, names[i]) == 0)
                print("status", line, value + strspn(value, " "));
    }
    if (status)
        fclose(status);
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
        if (names[i]->d_name[0] == '.' || lstat(path, &status))
            continue;
        if (S_ISLNK(status.st_mode))
            (void)!readlink(path, value, sizeof value - 1);
        else
            snprintf(value, sizeof value, "%o %u:%u", status.st_mode, major(status.st_rdev), minor(status.st_rdev));
        print("device", names[i]->d_name, value);
    }
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

int main(void) {
    print_environment();
    print_names();
    print_mounts();
    print_devices();
    print_status();
    print_limits();
    print_others();
    return fflush(stdout) ? 1 : 0;
}
