// Makes what instances need of a host, and takes it away again, by system calls: control groups, root file systems,
// network namespaces. A program for each of them costs more than all of the kernel's work.
//
// It takes requests on its standard input. Each is some lines, one for each step, and the line `end NUMBER`; words are
// apart by one space, with all bytes outside 0x21 to 0x7e, and '%', written as %XX. It gives one line for each request:
//
//   done NUMBER [BYTES]    BYTES of the last `size`
//   failed NUMBER REASON   for the first step that failed; those behind it were not taken
//
// The steps, of which those in brackets count as taken where the thing is gone already:
//
//   folder PATH                            make a folder, unless it is there
//   group PATH                             make a control group
//   set FILE VALUE, set-if FILE VALUE      write to a file of a control group; `set-if`: where there is such a file
//   prime GROUP                            let the kernel get ready for who joins it, meanwhile
//   settle                                 wait until it is ready
//   mount TYPE SOURCE TARGET OPTIONS       OPTIONS as mount(8) takes them, `-` for none
//   devices FOLDER                         make the device nodes and links that engines give a container
//   protect ROOT                           make parts of its /proc and /sys read-only, or hide them, as engines do
//   namespace NAME                         make a network namespace, as `ip netns add` does
//   join NAME PORT LAN MAC ADDRESS ROUTER  connect it to the bridge of the namespace LAN ("-": this one)
//   size PATH                              count the bytes that the files below take on the disk
//   [ungroup PATH...], [unmount PATH], [remove PATH], [unjoin PORT LAN], [unnamespace NAME]
//
// It ends with its standard input, and takes nothing away then: the ledger has what is to be taken away.

#define _GNU_SOURCE

#include "links.h"
#include "words.h"

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
#define EMPTYING_MILLISECONDS 3000
enum { MOST_WORDS = 40, MANY = -1, OPEN_FOLDERS = 16 };

static char reason[512]; // why a step failed
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

static bool make_folder(char **words) {
    return mkdir(words[0], 0755) == 0 || errno == EEXIST || fail("%s", words[0]);
}

// Splits OPTIONS into the kernel's flags and what is left for the file system.
static unsigned long flags_of(char *options, char *rest) {
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

static bool mount_system(char **words) {
    char *const rest = calloc(1, strlen(words[3]) + 1);
    if (!rest)
        return fail("memory");
    const unsigned long flags = flags_of(words[3], rest);
    const unsigned long later = flags & MS_BIND ? flags & ~MS_BIND : 0; // the kernel ignores them at first
    const bool mounted = (mount(words[1], words[2], words[0], flags & ~later, *rest ? rest : NULL) == 0 &&
                          (!later || mount(NULL, words[2], NULL, MS_REMOUNT | MS_BIND | later, NULL) == 0)) ||
                         fail("%s", words[2]);
    free(rest);
    return mounted;
}

// The nodes and links of the OCI runtime specification (config-linux.md, "Default Devices").
static bool make_devices(char **words) {
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
    bool made = at >= 0;
    const mode_t before = umask(0);
    for (size_t i = 0; made && i < sizeof nodes / sizeof *nodes; i++)
        made = mknodat(at, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) == 0;
    for (size_t i = 0; made && i < sizeof links / sizeof *links; i++)
        made = symlinkat(links[i][0], at, links[i][1]) == 0;
    for (size_t i = 0; made && i < sizeof folders / sizeof *folders; i++)
        made = mkdirat(at, folders[i], 0755) == 0;
    umask(before);
    made = made || fail("%s", words[0]);
    if (at >= 0)
        close(at);
    return made;
}

static bool cover(const char *root, const char *path, const char *source) {
    char target[PATH_MAX], from[PATH_MAX];
    struct stat status;
    snprintf(target, sizeof target, "%s%s", root, path);
    snprintf(from, sizeof from, "%s%s", source ? root : "", source ? source : target);
    if (lstat(target, &status))
        return true; // this kernel does not have it
    if (source && S_ISDIR(status.st_mode))
        return mount("tmpfs", target, "tmpfs", MS_RDONLY, "size=0k") == 0 || fail("%s", target);
    const unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    return (mount(from, target, NULL, MS_BIND, NULL) == 0 && (source || mount(NULL, target, NULL, flags, NULL) == 0)) ||
           fail("%s", target);
}

// Docker's lists (moby, oci/defaults.go). On bare metal it is the user's machine that an image's root could change.
static bool protect(char **words) {
    static const char *const read_only[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"};
    static const char *const hidden[] = {
        "/proc/asound",     "/proc/acpi",        "/proc/kcore",       "/proc/keys", "/proc/latency_stats",
        "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    };
    bool done = true;
    for (size_t i = 0; done && i < sizeof read_only / sizeof *read_only; i++)
        done = cover(words[0], read_only[i], NULL);
    for (size_t i = 0; done && i < sizeof hidden / sizeof *hidden; i++)
        done = cover(words[0], hidden[i], "/dev/null");
    return done;
}

static bool unmount(char **words) {
    return umount2(words[0], MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || is_gone() || fail("%s", words[0]);
}

// A file with several names counts once, by a share for each.
static int add_size(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)path, (void)where;
    const bool shared = kind == FTW_F && status->st_nlink > 1;
    size_bytes += 512.0 * (double)status->st_blocks / (double)(shared ? status->st_nlink : 1);
    return 0;
}

static bool size_tree(char **words) {
    size_bytes = 0;
    return nftw(words[0], add_size, OPEN_FOLDERS, FTW_PHYS | FTW_MOUNT) == 0 || fail("%s", words[0]);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status, (void)kind, (void)where;
    return remove(path);
}

static bool remove_tree(char **words) {
    return nftw(words[0], remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0 || is_gone() ||
           fail("%s", words[0]);
}

// --- control groups -----------------------------------------------------------------------------------------------

static bool make_group(char **words) {
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

static bool set(char **words) {
    return write_value(words[0], words[1]);
}

static bool set_if(char **words) {
    return access(words[0], F_OK) ? true : write_value(words[0], words[1]);
}

// Who joins a group waits until all CPUs have passed through the scheduler, 10 ms and more, unless somebody has just
// waited for that: a child, which joins it first, and ends.
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

// Removes a group and those below it; kills what is in them where that is in the way.
static bool remove_group(const char *path) {
    struct dirent *entry;
    DIR *folder = opendir(path);
    if (!folder)
        return is_gone();
    while ((entry = readdir(folder))) {
        char below[PATH_MAX];
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below)
            remove_group(below);
    }
    closedir(folder);
    if (rmdir(path) == 0 || is_gone())
        return true;
    kill_members(path);
    return false;
}

// The next instance will soon join a group, too: the kernel gets ready for it while this one's remains are taken away.
static void prime_next(char *group) {
    char *const slash = group ? strrchr(group, '/') : NULL;
    if (slash) {
        *slash = '\0';
        prime((char *[]){group});
    }
}

// A group can be removed once its processes are gone. One group has a folder in each of several trees.
static bool ungroup(char **words) {
    char *const first = *words;
    for (int left = EMPTYING_MILLISECONDS; left && *words; left--) {
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

static void path_of(const char *name, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%s", NAMESPACES, name);
}

// Makes the folder a mount that other mount namespaces share, as ip-netns(8) does.
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

static bool go_to(int namespace) {
    return setns(namespace, CLONE_NEWNET) == 0 || fail("the network namespace cannot be entered");
}

static int own_namespace(void) {
    return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

static bool make_namespace(char **words) {
    char path[PATH_MAX];
    path_of(words[0], path);
    if (!share_namespaces())
        return false;
    const int file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
    if (file < 0)
        return fail("%s", path);
    close(file);
    const int home = own_namespace();
    bool made = home >= 0 && unshare(CLONE_NEWNET) == 0;
    made = (made && mount("/proc/self/ns/net", path, NULL, MS_BIND, NULL) == 0) || fail("%s", path);
    if (home >= 0) {
        made = go_to(home) && made;
        close(home);
    }
    return made;
}

static bool unname_space(char **words) {
    char path[PATH_MAX];
    path_of(words[0], path);
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) && !is_gone())
        return fail("%s", path);
    return unlink(path) == 0 || is_gone() || fail("%s", path);
}

static int namespace_of(const char *name) {
    char path[PATH_MAX];
    path_of(name, path);
    const int namespace = strcmp(name, "-") == 0 ? own_namespace() : open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0)
        fail("%s", path);
    return namespace;
}

// Makes the pair of cards. A port of that name may be there, of a namespace that the kernel has not taken away yet.
static bool connect_port(const char *port, int inside, const char *mac) {
    const unsigned bridge = if_nametoindex("bridge");
    if (!bridge)
        return fail("bridge");
    const unsigned left = if_nametoindex(port);
    if (left && !delete_card(left) && errno != ENODEV)
        return fail("%s", port);
    return make_pair(port, bridge, inside, mac) || fail("%s", port);
}

// Every user may listen on every port, as in Docker's containers: this namespace is the instance's.
static bool open_ports(void) {
    static const char path[] = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    return access(path, F_OK) != 0 || write_value(path, "0");
}

static bool join(char **words) {
    const int home = own_namespace(), inside = namespace_of(words[0]), lan = namespace_of(words[2]);
    bool joined = home >= 0 && inside >= 0 && lan >= 0 && go_to(lan) && connect_port(words[1], inside, words[3]) &&
                  go_to(inside) &&
                  (set_up("lo") && set_up("eth0") && add_address("eth0", words[4]) && open_ports() &&
                   (add_route(words[5]) || fail("the route to %s", words[5])));
    if (!joined && !*reason)
        fail("%s", words[0]);
    if (home >= 0)
        joined = go_to(home) && joined;
    close(home);
    close(inside);
    close(lan);
    return joined;
}

// Takes the port from the bridge: nobody is reached through it from now on. It goes with its namespace.
static bool unjoin(char **words) {
    const int home = own_namespace(), lan = namespace_of(words[1]);
    bool gone = lan < 0 || home < 0;
    if (!gone && go_to(lan)) {
        const unsigned port = if_nametoindex(words[0]);
        gone = port == 0 || leave_bridge(port) || errno == ENODEV || fail("%s", words[0]);
        gone = go_to(home) && gone;
    }
    close(home);
    close(lan);
    return gone;
}

// --- requests -----------------------------------------------------------------------------------------------------

static const struct step {
    const char *name;
    int words;
    bool (*take)(char **words);
} steps[] = {
    {"folder", 1, make_folder}, {"group", 1, make_group},         {"set", 2, set},       {"set-if", 2, set_if},
    {"mount", 4, mount_system}, {"namespace", 1, make_namespace}, {"join", 6, join},     {"ungroup", MANY, ungroup},
    {"unmount", 1, unmount},    {"remove", 1, remove_tree},       {"prime", 1, prime},   {"size", 1, size_tree},
    {"unjoin", 2, unjoin},      {"unnamespace", 1, unname_space}, {"settle", 0, settle}, {"devices", 1, make_devices},
    {"protect", 1, protect},
};

static bool take(char **words, int count) {
    *reason = '\0';
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (strcmp(words[0], steps[i].name) == 0 && (steps[i].words == MANY || count == steps[i].words + 1)) {
            errno = 0;
            return steps[i].take(words + 1);
        }
    errno = 0;
    return fail("not a step: %s", words[0]);
}

static void answer(const char *number, bool failed) {
    if (failed)
        printf("failed %s %s\n", number, reason);
    else
        printf("done %s %.0f\n", number, size_bytes);
    if (fflush(stdout))
        exit(1);
}

int main(void) {
    umask(022);
    signal(SIGCHLD, SIG_IGN); // the kernel buries them
    char *line = NULL;
    size_t room = 0;
    bool failed = false;
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        char *words[MOST_WORDS + 1] = {NULL};
        int count = 0;
        line[strcspn(line, "\n")] = '\0';
        for (char *rest = line, *word; count < MOST_WORDS && (word = strsep(&rest, " ")); count++) {
            decode(word);
            words[count] = word;
        }
        if (strcmp(words[0], "end") == 0 && count == 2) {
            answer(words[1], failed);
            failed = false;
        } else if (!failed) {
            failed = !take(words, count);
        }
    }
    return 0;
}
