// The first program of a virtual machine that boots the image: file systems, network, the door for its host, then the
// same `init` as everywhere. What it has to know comes on the kernel's command line, tare.NAME=VALUE; what it has to
// tell goes to the console in lines that start with "tare-guest:".
//
// It is no script: an emulated processor takes a tenth of a second for a few commands.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CARD "eth0"
#define CARD_SECONDS 10 // how long Xen's may take to appear
#define PROGRAM "/usr/lib/tare/"

struct words {
    char address[64], gateway[64], host[64], door[16], port[16], files[24];
};

// With the options that container engines mount them with.
static void make_file_systems(void) {
    static const unsigned long locked = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    static const struct {
        const char *type, *target;
        unsigned long flags;
        const char *data;
    } made[] = {
        {"proc", "/proc", locked, NULL},
        {"sysfs", "/sys", locked, NULL},
        {"devtmpfs", "/dev", MS_NOSUID, "mode=755"},
        {"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
        {"mqueue", "/dev/mqueue", locked, NULL},
        {"tmpfs", "/dev/shm", locked, "mode=1777,size=65536k"},
        {"cgroup2", "/sys/fs/cgroup", locked, NULL},
    };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        mkdir(made[i].target, 0755);
        if (mount(made[i].type, made[i].target, made[i].type, made[i].flags, made[i].data) && errno != EBUSY)
            fprintf(stderr, "tare-guest: %s: %s\n", made[i].target, strerror(errno));
    }
}

// An engine makes these in every container; a kernel makes none of them.
static void link_streams(void) {
    static const char *const links[][2] = {
        {"/proc/self/fd", "/dev/fd"},
        {"/proc/self/fd/0", "/dev/stdin"},
        {"/proc/self/fd/1", "/dev/stdout"},
        {"/proc/self/fd/2", "/dev/stderr"},
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        (void)!symlink(links[i][0], links[i][1]);
}

static void set_names(void) {
    FILE *ports = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "we");
    if (ports && (fputs("0", ports) < 0 || fclose(ports)))
        fprintf(stderr, "tare-guest: ports of plain users: %s\n", strerror(errno));
    if (sethostname("tare", strlen("tare")))
        fprintf(stderr, "tare-guest: the host's name: %s\n", strerror(errno));
}

static void take(const char *word, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    if (strncmp(word, name, length) == 0)
        snprintf(value, size, "%s", word + length);
}

static struct words read_words(void) {
    struct words words = {0};
    char line[4096] = "";
    FILE *file = fopen("/proc/cmdline", "re");
    if (file && fgets(line, sizeof line, file)) {
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
            take(word, "tare.address=", words.address, sizeof words.address);
            take(word, "tare.gateway=", words.gateway, sizeof words.gateway);
            take(word, "tare.host=", words.host, sizeof words.host);
            take(word, "tare.door=", words.door, sizeof words.door);
            take(word, "tare.port=", words.port, sizeof words.port);
            take(word, "tare.files=", words.files, sizeof words.files);
        }
    }
    if (file)
        fclose(file);
    return words;
}

static pid_t start(const char *const argv[]) {
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    return pid;
}

static bool has_card(void) {
    return access("/sys/class/net/" CARD, F_OK) == 0;
}

static void load(const char *driver) {
    waitpid(start((const char *const[]){"modprobe", "-q", driver, NULL}), NULL, 0);
}

// Loads the driver of the network card, unless the initial RAM disk has done it. Below Xen, the first domain has a card
// of the machine, and the others one of Xen's.
static void find_card(void) {
    if (!has_card())
        load("virtio_net");
    if (has_card() || access("/sys/hypervisor/type", F_OK))
        return;
    load("xen-netfront");
    for (int left = CARD_SECONDS * 1000; left > 0 && !has_card(); left--)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); // it comes once the other side has answered
}

static struct sockaddr to_address(const char *text) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct sockaddr plain;
    inet_pton(AF_INET, text, &address.sin_addr);
    memcpy(&plain, &address, sizeof plain);
    return plain;
}

static void call(int network, unsigned long request, void *argument, const char *what) {
    if (ioctl(network, request, argument))
        fprintf(stderr, "tare-guest: %s: %s\n", what, strerror(errno));
}

static void set_network(const struct words *words) {
    int network = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq loopback = {.ifr_name = "lo"}, card = {.ifr_name = CARD};
    loopback.ifr_flags = card.ifr_flags = IFF_UP;
    call(network, SIOCSIFFLAGS, &loopback, "lo");
    call(network, SIOCSIFFLAGS, &card, "the card");
    card.ifr_addr = to_address(words->address);
    call(network, SIOCSIFADDR, &card, "the address");
    card.ifr_netmask = to_address("255.255.255.0");
    call(network, SIOCSIFNETMASK, &card, "the netmask");
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY, .rt_gateway = to_address(words->gateway)};
    route.rt_dst = route.rt_genmask = to_address("0.0.0.0");
    call(network, SIOCADDRT, &route, "the gateway");
    close(network);
}

int main(void) {
    static char place[96];
    puts("tare-guest: userspace");
    fflush(stdout);
    umask(022);
    clearenv(); // the kernel sets TERM, and what of its command line it does not know
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("HOME", "/root", 1);
    make_file_systems();
    link_streams();
    set_names();
    struct words words = read_words();
    rlim_t files = strtoull(words.files, NULL, 10);
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files}))
        fprintf(stderr, "tare-guest: %s open files: %s\n", words.files, strerror(errno));
    find_card();
    set_network(&words);
    start((const char *const[]){PROGRAM "door", words.door, words.host, NULL});
    snprintf(place, sizeof place, "%s:%s", words.address, words.port);
    execl(PROGRAM "init", "init", place, NULL);
    fprintf(stderr, "tare-guest: init: %s\n", strerror(errno));
    return 1;
}
