// Conditions of all commands: the same environment, umask, names and privileges on every stack, whatever the technology
// gives the first process. The resident agent sets them once, and all commands inherit them.

#ifndef TARE_CONDITIONS_H
#define TARE_CONDITIONS_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HOST_NAME "tare"
#define GIVEN "/usr/lib/tare/given" // copies of the suite's files, over which an engine may have mounted its own

// Docker's default for the root of a container (moby, oci/caps/defaults.go).
static const int kept_capabilities[] = {
    CAP_CHOWN,   CAP_DAC_OVERRIDE,     CAP_FOWNER,     CAP_FSETID,      CAP_KILL,
    CAP_SETGID,  CAP_SETUID,           CAP_SETPCAP,    CAP_NET_RAW,     CAP_MKNOD,
    CAP_SETFCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_AUDIT_WRITE,
};

static size_t read_file(const char *path, char *text, size_t size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = file < 0 ? 0 : read(file, text, size);
    if (file >= 0)
        close(file);
    return length > 0 ? (size_t)length : 0;
}

// Replace the content in place, because an engine may have mounted the file. A symbolic link is replaced by a file,
// because its target may not exist, such as that of systemd's resolver.
static void write_file(const char *path, const char *text, size_t length) {
    static char before[1 << 16];
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
        unlink(path);
    else if (read_file(path, before, sizeof before) == length && memcmp(before, text, length) == 0 &&
             access(path, F_OK) == 0)
        return; // a write would copy the file into the instance's layer
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0 || write(file, text, length) != (ssize_t)length)
        fprintf(stderr, "supervise: %s: %s\n", path, strerror(errno));
    if (file >= 0)
        close(file);
}

// Find the address of the first network interface other than the loopback.
static void find_address(char text[INET_ADDRSTRLEN]) {
    struct ifaddrs *all = NULL;
    strcpy(text, "127.0.0.1");
    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *each = all; each; each = each->ifa_next) {
        if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET || each->ifa_flags & IFF_LOOPBACK)
            continue;
        inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)each->ifa_addr)->sin_addr, text, INET_ADDRSTRLEN);
        break;
    }
    freeifaddrs(all);
}

// Return whether this is the file system of an image, whose files may be changed, and not of a machine.
static bool is_image(void) {
    return access("/usr/lib/tare/init", F_OK) == 0;
}

// Make localhost and the instance's name resolvable, without name servers: an unreachable one costs 10 s and more.
static void set_names(void) {
    static char text[1 << 16];
    char address[INET_ADDRSTRLEN];
    size_t length = read_file(GIVEN "/hosts", text, sizeof text / 2);
    if (length == 0)
        length = (size_t)sprintf(text, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    else if (text[length - 1] != '\n')
        text[length++] = '\n';
    find_address(address);
    length += (size_t)sprintf(text + length, "%s\t" HOST_NAME "\n", address);
    write_file("/etc/hosts", text, length);
    write_file("/etc/hostname", HOST_NAME "\n", sizeof HOST_NAME);
    write_file("/etc/resolv.conf", text, read_file(GIVEN "/resolv.conf", text, sizeof text));
}

static bool is_kept(int capability) {
    for (size_t i = 0; i < sizeof kept_capabilities / sizeof *kept_capabilities; i++)
        if (kept_capabilities[i] == capability)
            return true;
    return false;
}

// Drop all other capabilities. Those that the technology does not give stay missing.
static void limit_capabilities(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {0};
    if (syscall(SYS_capget, &head, sets))
        return;
    for (int capability = 0; capability < 64; capability++) {
        struct __user_cap_data_struct *set = &sets[capability / 32];
        const unsigned bit = 1U << (capability % 32);
        if (!is_kept(capability)) {
            prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
            set->permitted &= ~bit;
        }
    }
    for (int i = 0; i < 2; i++) {
        sets[i].effective = sets[i].permitted;
        sets[i].inheritable = 0; // otherwise unprivileged users' programs could get them
    }
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    syscall(SYS_capset, &head, sets);
}

// Set the limits that differ between technologies and engines, except that of open files, which the suite has.
static void set_limits(void) {
    static const struct {
        int resource;
        rlim_t soft, hard;
    } limits[] = {
        {RLIMIT_CORE, 0, RLIM_INFINITY},
        {RLIMIT_MEMLOCK, 8 << 20, 8 << 20},
        {RLIMIT_NPROC, 32768, 32768}, // the highest that Podman may set with the kernel's default pid_max
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct rlimit limit = {limits[i].soft, limits[i].hard};
        (void)setrlimit((__rlimit_resource_t)limits[i].resource, &limit);
    }
}

static void set_conditions(void) {
    umask(022);
    clearenv();
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("HOME", "/root", 1);
    if (chdir("/"))
        fprintf(stderr, "supervise: /: %s\n", strerror(errno));
    if (is_image())
        set_names();
    set_limits();
    if (setpriority(PRIO_PROCESS, 0, 0)) // an engine's daemon does not pass on tare's nice value
        fprintf(stderr, "supervise: priority: %s\n", strerror(errno));
    if (setgroups(0, NULL))
        fprintf(stderr, "supervise: groups: %s\n", strerror(errno));
    limit_capabilities();
}

#endif
