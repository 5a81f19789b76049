// First process of a virtual machine that boots the image: sets up file systems and network, starts `guest_agent`, and
// executes `init`, the main process of every instance. Its configuration is on the kernel's command line, as
// tare.NAME=VALUE; it writes lines that start with "tare-guest:" to the console.
//
// It is not a script, because an emulated CPU takes 0.1 s for a few commands.

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

#define INTERFACE "eth0"
#define INTERFACE_SECONDS 10 // how long Xen's interface may take to appear
#define PROGRAM "/usr/lib/tare/"

struct configuration {
    char address[64], gateway[64], host[64], agent[16], port[16], files[24];
};

// Mount with the options of container engines.
static void mount_file_systems(void) {
    static const unsigned long locked = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    static const struct {
        const char *type, *target;
        unsigned long flags;
        const char *data;
    } mounts[] = {
        {"proc", "/proc", locked, NULL},
        {"sysfs", "/sys", locked, NULL},
        {"devtmpfs", "/dev", MS_NOSUID, "mode=755"},
        {"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
        {"mqueue", "/dev/mqueue", locked, NULL},
        {"tmpfs", "/dev/shm", locked, "mode=1777,size=65536k"},
        {"cgroup2", "/sys/fs/cgroup", locked, NULL},
    };
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        mkdir(mounts[i].target, 0755);
        if (mount(mounts[i].type, mounts[i].target, mounts[i].type, mounts[i].flags, mounts[i].data) && errno != EBUSY)
            fprintf(stderr, "tare-guest: %s: %s\n", mounts[i].target, strerror(errno));
    }
}

// Links that engines create in every container, and the kernel does not.
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

static void set_host_settings(void) {
    FILE *ports = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "we");
    if (ports && (fputs("0", ports) < 0 || fclose(ports)))
        fprintf(stderr, "tare-guest: unprivileged ports: %s\n", strerror(errno));
    if (sethostname("tare", strlen("tare")))
        fprintf(stderr, "tare-guest: host name: %s\n", strerror(errno));
}

static void copy_value(const char *word, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    if (strncmp(word, name, length) == 0)
        snprintf(value, size, "%s", word + length);
}

static struct configuration read_configuration(void) {
    struct configuration configuration = {0};
    char line[4096] = "";
    FILE *file = fopen("/proc/cmdline", "re");
    if (file && fgets(line, sizeof line, file)) {
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
            copy_value(word, "tare.address=", configuration.address, sizeof configuration.address);
            copy_value(word, "tare.gateway=", configuration.gateway, sizeof configuration.gateway);
            copy_value(word, "tare.host=", configuration.host, sizeof configuration.host);
            copy_value(word, "tare.agent=", configuration.agent, sizeof configuration.agent);
            copy_value(word, "tare.port=", configuration.port, sizeof configuration.port);
            copy_value(word, "tare.files=", configuration.files, sizeof configuration.files);
        }
    }
    if (file)
        fclose(file);
    return configuration;
}

static pid_t start_program(const char *const argv[]) {
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    return pid;
}

static bool has_interface(void) {
    return access("/sys/class/net/" INTERFACE, F_OK) == 0;
}

static void load_module(const char *module) {
    waitpid(start_program((const char *const[]){"modprobe", "-q", module, NULL}), NULL, 0);
}

// Load the driver of the network interface, unless the initrd has done so. On Xen, dom0 has an interface of the
// machine, and the other domains have one of Xen.
static void load_interface(void) {
    if (!has_interface())
        load_module("virtio_net");
    if (has_interface() || access("/sys/hypervisor/type", F_OK))
        return;
    load_module("xen-netfront");
    for (int left = INTERFACE_SECONDS * 1000; left > 0 && !has_interface(); left--)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); // the interface appears once the backend has responded
}

static struct sockaddr to_address(const char *text) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct sockaddr generic;
    inet_pton(AF_INET, text, &address.sin_addr);
    memcpy(&generic, &address, sizeof generic);
    return generic;
}

static void call_ioctl(int socket_fd, unsigned long request, void *argument, const char *what) {
    if (ioctl(socket_fd, request, argument))
        fprintf(stderr, "tare-guest: %s: %s\n", what, strerror(errno));
}

static void configure_network(const struct configuration *configuration) {
    int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq loopback = {.ifr_name = "lo"}, interface = {.ifr_name = INTERFACE};
    loopback.ifr_flags = interface.ifr_flags = IFF_UP;
    call_ioctl(socket_fd, SIOCSIFFLAGS, &loopback, "lo");
    call_ioctl(socket_fd, SIOCSIFFLAGS, &interface, "interface");
    interface.ifr_addr = to_address(configuration->address);
    call_ioctl(socket_fd, SIOCSIFADDR, &interface, "address");
    interface.ifr_netmask = to_address("255.255.255.0");
    call_ioctl(socket_fd, SIOCSIFNETMASK, &interface, "netmask");
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY, .rt_gateway = to_address(configuration->gateway)};
    route.rt_dst = route.rt_genmask = to_address("0.0.0.0");
    call_ioctl(socket_fd, SIOCADDRT, &route, "gateway");
    close(socket_fd);
}

int main(void) {
    static char listen_address[96];
    if (getpid() != 1) { // elsewhere it would mount over the machine's file systems
        fputs("guest_init: it must be the first process of a guest\n", stderr);
        return 1;
    }
    puts("tare-guest: userspace");
    fflush(stdout);
    umask(022);
    clearenv(); // the kernel sets TERM and unknown parameters of its command line
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("HOME", "/root", 1);
    mount_file_systems();
    link_streams();
    set_host_settings();
    struct configuration configuration = read_configuration();
    rlim_t files = strtoull(configuration.files, NULL, 10);
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files}))
        fprintf(stderr, "tare-guest: %s open files: %s\n", configuration.files, strerror(errno));
    load_interface();
    configure_network(&configuration);
    start_program((const char *const[]){PROGRAM "guest_agent", configuration.agent, configuration.host, NULL});
    snprintf(listen_address, sizeof listen_address, "%s:%s", configuration.address, configuration.port);
    execl(PROGRAM "init", "init", listen_address, NULL);
    fprintf(stderr, "tare-guest: init: %s\n", strerror(errno));
    return 1;
}
