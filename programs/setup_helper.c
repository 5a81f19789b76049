// Setup helper: creates and removes an instance's resources on a host by system calls: control groups, root file
// systems, network namespaces. Starting a program for each of them costs more than all of the kernel's work.
//
// It reads requests on standard input: one line per step, and the line `end NUMBER`. Words are separated by one space;
// escape.h has their encoding. It writes one line per request:
//
//   done NUMBER [BYTES]    BYTES of the last `size`
//   failed NUMBER REASON   reason of the first step that failed; later steps are not executed
//
// Steps; those in brackets succeed if the object does not exist:
//
//   folder PATH                            create a directory unless it exists
//   group PATH                             create a control group
//   set FILE VALUE, set-if FILE VALUE      write to a file of a control group; `set-if`: if the file exists
//   prime GROUP                            prepare the kernel, in the background, for a process that joins the group
//   settle                                 wait until all groups are prepared
//   mount TYPE SOURCE TARGET OPTIONS       mount; OPTIONS as for mount(8), `-` for none
//   devices FOLDER                         create the device nodes and links that engines give a container
//   protect ROOT                           make parts of its /proc and /sys read-only, or hide them, as engines do
//   namespace NAME                         create a network namespace, as `ip netns add` does
//   join NAME PORT LAN MAC ADDRESS ROUTER  connect it to the bridge of the namespace LAN ("-": this one)
//   size PATH                              count the bytes that the files below take on the disk
//   [ungroup PATH...], [unmount PATH], [remove PATH], [unjoin PORT LAN], [unnamespace NAME]
//
// It ends when its standard input does, and removes nothing then: the undo ledger lists what must be removed.

#define _GNU_SOURCE

#include "escape.h"
#include "netlink.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

#define NAMESPACES "/run/netns"
#define REMOVAL_MILLISECONDS 3000
enum { MAX_WORDS = 40, ANY_COUNT = -1, MAX_OPEN_DIRECTORIES = 16 };

static char reason[512]; // of the step that failed
static double size_bytes;

static bool fail(const char *format, ...) {
    const int error = errno;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (error && length >= 0 && (size_t)length < sizeof reason)
        snprintf(reason + length, sizeof reason - (size_t)length, ": %s", strerror(error));
    return false;
}

static void wait_millisecond(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool is_gone(void) {
    return errno == ENOENT || errno == ENOTDIR || errno == EINVAL;
}

// --- files and mounts ---------------------------------------------------------------------------------------------

static bool create_directory(char **words) {
    return mkdir(words[0], 0755) == 0 || errno == EEXIST || fail("%s", words[0]);
}

// Return the kernel's flags among OPTIONS; append the others, which are the file system's, to `rest`.
static unsigned long parse_flags(char *options, char *rest) {
    static const struct {
        const char *name;
        unsigned long flag;
    } known[] = {{"-", 0},
                 {"bind", MS_BIND},
                 {"ro", MS_RDONLY},
                 {"nosuid", MS_NOSUID},
                 {"nodev", MS_NODEV},
                 {"noexec", MS_NOEXEC},
                 {"strictatime", MS_STRICTATIME}};
    unsigned long flags = 0;
    for (char *word; (word = strsep(&options, ","));) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(word, known[i].name))
            i++;
        if (i < sizeof known / sizeof *known)
            flags |= known[i].flag;
        else
            sprintf(rest + strlen(rest), "%s%s", *rest ? "," : "", word);
    }
    return flags;
}

static bool mount_file_system(char **words) {
    char *const rest = calloc(1, strlen(words[3]) + 1);
    if (!rest)
        return fail("memory");
    const unsigned long flags = parse_flags(words[3], rest);
    const unsigned long later =
        flags & MS_BIND ? flags & ~MS_BIND : 0; // a bind mount ignores them until it is remounted
    const bool mounted = (mount(words[1], words[2], words[0], flags & ~later, *rest ? rest : NULL) == 0 &&
                          (!later || mount(NULL, words[2], NULL, MS_REMOUNT | MS_BIND | later, NULL) == 0)) ||
                         fail("%s", words[2]);
    free(rest);
    return mounted;
}

// Device nodes and links of the OCI runtime specification (config-linux.md, "Default Devices").
static bool create_devices(char **words) {
    static const struct {
        const char *name;
        unsigned major, minor;
    } nodes[] = {{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
    static const char *const links[][2] = {
        {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
        {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
    };
    static const char *const folders[] = {"pts", "shm", "mqueue"};
    const int at = open(words[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool created = at >= 0;
    const mode_t before = umask(0);
    for (size_t i = 0; created && i < sizeof nodes / sizeof *nodes; i++)
        created = mknodat(at, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) == 0;
    for (size_t i = 0; created && i < sizeof links / sizeof *links; i++)
        created = symlinkat(links[i][0], at, links[i][1]) == 0;
    for (size_t i = 0; created && i < sizeof folders / sizeof *folders; i++)
        created = mkdirat(at, folders[i], 0755) == 0;
    umask(before);
    created = created || fail("%s", words[0]);
    if (at >= 0)
        close(at);
    return created;
}

static bool mask_path(const char *root, const char *path, const char *source) {
    char target[PATH_MAX], from[PATH_MAX];
    struct stat status;
    snprintf(target, sizeof target, "%s%s", root, path);
    snprintf(from, sizeof from, "%s%s", source ? root : "", source ? source : target);
    if (lstat(target, &status))
        return true; // not present in this kernel
    if (source && S_ISDIR(status.st_mode))
        return mount("tmpfs", target, "tmpfs", MS_RDONLY, "size=0k") == 0 || fail("%s", target);
    const unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    return (mount(from, target, NULL, MS_BIND, NULL) == 0 && (source || mount(NULL, target, NULL, flags, NULL) == 0)) ||
           fail("%s", target);
}

// Docker's lists (moby, oci/defaults.go). On bare metal, root in an image could otherwise change the user's machine.
static bool protect(char **words) {
    static const char *const read_only[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"};
    static const char *const hidden[] = {
        "/proc/asound",     "/proc/acpi",        "/proc/kcore",       "/proc/keys", "/proc/latency_stats",
        "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    };
    bool done = true;
    for (size_t i = 0; done && i < sizeof read_only / sizeof *read_only; i++)
        done = mask_path(words[0], read_only[i], NULL);
    for (size_t i = 0; done && i < sizeof hidden / sizeof *hidden; i++)
        done = mask_path(words[0], hidden[i], "/dev/null");
    return done;
}

static bool unmount(char **words) {
    return umount2(words[0], MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || is_gone() || fail("%s", words[0]);
}

// Count a file with n hard links once: 1/n at each of them.
static int add_size(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)path, (void)where;
    const bool shared = kind == FTW_F && status->st_nlink > 1;
    size_bytes += 512.0 * (double)status->st_blocks / (double)(shared ? status->st_nlink : 1);
    return 0;
}

static bool size_tree(char **words) {
    size_bytes = 0;
    return nftw(words[0], add_size, MAX_OPEN_DIRECTORIES, FTW_PHYS | FTW_MOUNT) == 0 || fail("%s", words[0]);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status, (void)kind, (void)where;
    return remove(path);
}

static bool remove_tree(char **words) {
    return nftw(words[0], remove_entry, MAX_OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0 || is_gone() ||
           fail("%s", words[0]);
}

// --- control groups -----------------------------------------------------------------------------------------------

static bool create_group(char **words) {
    return mkdir(words[0], 0755) == 0 || fail("%s", words[0]);
}

static bool write_value(const char *path, const char *value) {
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    const char *name = strrchr(path, '/');
    const bool written = file >= 0 && write(file, value, strlen(value)) >= 0;
    if (!written)
        fail("%s = %s", name ? name + 1 : path, value);
    if (file >= 0)
        close(file);
    return written;
}

static bool set_value(char **words) {
    return write_value(words[0], words[1]);
}

static bool set_value_if_exists(char **words) {
    return access(words[0], F_OK) ? true : write_value(words[0], words[1]);
}

// A process that joins a group waits for an RCU grace period, 10 ms and more, unless another process has just done so.
// A child joins first and exits, so that the instance does not wait.
static bool prime(char **words) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cgroup.procs", words[0]);
    const pid_t child = fork();
    if (child == 0)
        _exit(write_value(path, "0") ? 0 : 1);
    return child > 0 || fail("fork");
}

static bool settle(char **words) {
    (void)words;
    while (wait(NULL) >= 0 || errno == EINTR)
        continue;
    return true;
}

static void kill_members(const char *group) {
    char path[PATH_MAX];
    int pid;
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    FILE *members = fopen(path, "re");
    while (members && fscanf(members, "%d", &pid) == 1)
        kill(pid, SIGKILL);
    if (members)
        fclose(members);
}

// Remove a group and the groups below it; kill processes that prevent it.
static bool remove_group(const char *path) {
    struct dirent *entry;
    DIR *directory = opendir(path);
    if (!directory)
        return is_gone();
    while ((entry = readdir(directory))) {
        char below[PATH_MAX];
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below)
            remove_group(below);
    }
    closedir(directory);
    if (rmdir(path) == 0 || is_gone())
        return true;
    kill_members(path);
    return false;
}

// Prepare the kernel for the next instance while this one is removed.
static void prime_next(char *group) {
    char *const slash = group ? strrchr(group, '/') : NULL;
    if (slash) {
        *slash = '\0';
        prime((char *[]){group});
    }
}

// A group can be removed once its processes are gone. In cgroup v1, it has a directory in each of several hierarchies.
static bool remove_groups(char **words) {
    char *const first = *words;
    for (int left = REMOVAL_MILLISECONDS; left && *words; left--) {
        while (*words && remove_group(*words))
            words++;
        if (*words)
            wait_millisecond();
    }
    if (*words)
        return errno = 0, fail("%s: cannot be removed", *words);
    prime_next(first);
    return true;
}

// --- networks -----------------------------------------------------------------------------------------------------

static void format_path(const char *name, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%s", NAMESPACES, name);
}

// Make the directory a shared mount, so that other mount namespaces see new entries, as ip-netns(8) does.
static bool share_namespaces(void) {
    if (mkdir(NAMESPACES, 0755) && errno != EEXIST)
        return fail(NAMESPACES);
    if (mount("none", NAMESPACES, NULL, MS_SHARED | MS_REC, NULL) == 0)
        return true;
    if (mount(NAMESPACES, NAMESPACES, NULL, MS_BIND | MS_REC, NULL) ||
        mount("none", NAMESPACES, NULL, MS_SHARED | MS_REC, NULL))
        return fail(NAMESPACES);
    return true;
}

static bool enter_namespace(int namespace) {
    return setns(namespace, CLONE_NEWNET) == 0 || fail("cannot enter the network namespace");
}

static int open_current_namespace(void) {
    return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

static bool create_namespace(char **words) {
    char path[PATH_MAX];
    format_path(words[0], path);
    if (!share_namespaces())
        return false;
    const int file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
    if (file < 0)
        return fail("%s", path);
    close(file);
    const int original = open_current_namespace();
    bool created = original >= 0 && unshare(CLONE_NEWNET) == 0;
    created = (created && mount("/proc/self/ns/net", path, NULL, MS_BIND, NULL) == 0) || fail("%s", path);
    if (original >= 0) {
        created = enter_namespace(original) && created;
        close(original);
    }
    return created;
}

static bool remove_namespace(char **words) {
    char path[PATH_MAX];
    format_path(words[0], path);
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) && !is_gone())
        return fail("%s", path);
    return unlink(path) == 0 || is_gone() || fail("%s", path);
}

static int open_namespace(const char *name) {
    char path[PATH_MAX];
    format_path(name, path);
    const int namespace = strcmp(name, "-") == 0 ? open_current_namespace() : open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0)
        fail("%s", path);
    return namespace;
}

// Create the veth pair. A port of that name may still exist, of a namespace that the kernel has not removed yet.
static bool connect_port(const char *port, int inside, const char *mac) {
    const unsigned bridge = if_nametoindex("bridge");
    if (!bridge)
        return fail("bridge");
    const unsigned left = if_nametoindex(port);
    if (left && !delete_interface(left) && errno != ENODEV)
        return fail("%s", port);
    return create_veth_pair(port, bridge, inside, mac) || fail("%s", port);
}

// Allow all users to listen on all ports, as in Docker's containers.
static bool allow_all_ports(void) {
    static const char path[] = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    return access(path, F_OK) != 0 || write_value(path, "0");
}

static bool connect_namespace(char **words) {
    const int original = open_current_namespace(), inside = open_namespace(words[0]), lan = open_namespace(words[2]);
    bool joined = original >= 0 && inside >= 0 && lan >= 0 && enter_namespace(lan) &&
                  connect_port(words[1], inside, words[3]) && enter_namespace(inside) &&
                  (set_up("lo") && set_up("eth0") && add_address("eth0", words[4]) && allow_all_ports() &&
                   (add_route(words[5]) || fail("the route to %s", words[5])));
    if (!joined && !*reason)
        fail("%s", words[0]);
    if (original >= 0)
        joined = enter_namespace(original) && joined;
    close(original);
    close(inside);
    close(lan);
    return joined;
}

// Detach the port from the bridge, which disconnects the instance. The kernel removes the port with its namespace.
static bool disconnect_port(char **words) {
    const int original = open_current_namespace(), lan = open_namespace(words[1]);
    bool gone = lan < 0 || original < 0;
    if (!gone && enter_namespace(lan)) {
        const unsigned port = if_nametoindex(words[0]);
        gone = port == 0 || detach_from_bridge(port) || errno == ENODEV || fail("%s", words[0]);
        gone = enter_namespace(original) && gone;
    }
    close(original);
    close(lan);
    return gone;
}

// --- requests -----------------------------------------------------------------------------------------------------

static const struct step {
    const char *name;
    int words;
    bool (*execute)(char **words);
} steps[] = {
    {"folder", 1, create_directory},
    {"group", 1, create_group},
    {"set", 2, set_value},
    {"set-if", 2, set_value_if_exists},
    {"mount", 4, mount_file_system},
    {"namespace", 1, create_namespace},
    {"join", 6, connect_namespace},
    {"ungroup", ANY_COUNT, remove_groups},
    {"unmount", 1, unmount},
    {"remove", 1, remove_tree},
    {"prime", 1, prime},
    {"size", 1, size_tree},
    {"unjoin", 2, disconnect_port},
    {"unnamespace", 1, remove_namespace},
    {"settle", 0, settle},
    {"devices", 1, create_devices},
    {"protect", 1, protect},
};

static bool execute(char **words, int count) {
    *reason = '\0';
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (strcmp(words[0], steps[i].name) == 0 && (steps[i].words == ANY_COUNT || count == steps[i].words + 1)) {
            errno = 0;
            return steps[i].execute(words + 1);
        }
    errno = 0;
    return fail("unknown step: %s", words[0]);
}

static void report(const char *number, bool failed) {
    if (failed)
        printf("failed %s %s\n", number, reason);
    else
        printf("done %s %.0f\n", number, size_bytes);
    if (fflush(stdout))
        exit(1);
}

int main(void) {
    umask(022);
    signal(SIGCHLD, SIG_IGN); // the kernel reaps the children of `prime`
    char *line = NULL;
    size_t capacity = 0;
    bool failed = false;
    for (ssize_t length; (length = getline(&line, &capacity, stdin)) > 0;) {
        char *words[MAX_WORDS + 1] = {NULL};
        int count = 0;
        line[strcspn(line, "\n")] = '\0';
        for (char *rest = line, *word; count < MAX_WORDS && (word = strsep(&rest, " ")); count++) {
            unescape(word);
            words[count] = word;
        }
        if (strcmp(words[0], "end") == 0 && count == 2) {
            report(words[1], failed);
            failed = false;
        } else if (!failed) {
            failed = !execute(words, count);
        }
    }
    return 0;
}
