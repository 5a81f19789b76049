// Main process of every instance: keeps the instance alive, reaps orphans and reports when user space began.
//
//   init ADDRESS:PORT|- [--limits]
//   init ADDRESS:PORT --resident NAME
//
// It replies to every connection with the line `tare NANOSECONDS`, CLOCK_MONOTONIC at its start. It prints the
// readiness message `tare-init: ready` when it listens; with --limits, the limits of this place follow. SIGTERM and
// SIGINT end it with exit code 0.
//
// With --resident it starts `supervise --resident` on its own streams after the first reply, because a measured start
// ends there. It ends with the agent, and before that with its standard input. NAME identifies it among a host's
// processes.

#define _GNU_SOURCE

#include "limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BIND_NANOSECONDS 10000000000LL // time for the address to appear
#define PAUSE_NANOSECONDS 1000000L

static volatile sig_atomic_t stopped;

struct options {
    bool limits, resident;
};

static void record_signal(int number) {
    if (number != SIGCHLD)
        stopped = 1;
}

static long long now_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// The first process of an instance may start without streams; a socket must not become one of them.
static void open_streams(void) {
    int file;
    do
        file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

static bool parse_address(const char *text, struct sockaddr_in *address) {
    char host[INET_ADDRSTRLEN];
    char *end;
    const char *colon = strrchr(text, ':');
    if (!colon || colon - text >= (long)sizeof host)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    long port = strtol(colon + 1, &end, 10);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return !*end && port > 0 && port < 65536 && inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

// Return the listening socket, or -1 with errno.
static int listen_on(const struct sockaddr_in *address) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(listener, (const struct sockaddr *)address, sizeof *address) == 0 && listen(listener, 128) == 0)
        return listener;
    int reason = errno;
    close(listener);
    errno = reason;
    return -1;
}

// Reply to one client; return false if there was none.
static bool reply(int listener, const char *line) {
    char ignored[4096];
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            nanosleep(&(struct timespec){.tv_nsec = 10 * PAUSE_NANOSECONDS}, NULL); // out of files: do not spin
        return false;
    }
    send(connection, line, strlen(line), MSG_NOSIGNAL);
    shutdown(connection, SHUT_WR);
    recv(connection, ignored, sizeof ignored, 0); // closing with unread input resets the connection: the line is lost
    close(connection);
    return true;
}

static pid_t start_agent(const sigset_t *unblocked) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, unblocked, NULL);
    execl("/usr/lib/tare/supervise", "supervise", "--resident", (char *)NULL);
    perror("init: supervise");
    _exit(127);
}

static void report_ready(bool limits) {
    fputs("tare-init: ready\n", stdout);
    fflush(stdout);
    if (limits)
        print_limits();
}

static void catch_signals(sigset_t *unblocked) {
    const int numbers[] = {SIGCHLD, SIGTERM, SIGINT};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], &(struct sigaction){.sa_handler = record_signal}, NULL);
        sigaddset(&blocked, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &blocked, unblocked);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigdelset(unblocked, numbers[i]);
}

static void reap(pid_t agent) {
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
        if (pid == agent)
            stopped = 1;
}

static int serve(const struct sockaddr_in *address, struct options options, long long started) {
    char line[64];
    sigset_t unblocked;
    struct pollfd polled[] = {{.fd = -1, .events = POLLIN}, {.fd = options.resident ? STDIN_FILENO : -1}};
    struct pollfd *listener = &polled[0], *parent_pipe = &polled[1];
    pid_t agent = -1;
    bool ready = false;
    snprintf(line, sizeof line, "tare %lld\n", started);
    catch_signals(&unblocked);
    while (!stopped) {
        if (address && !ready && (listener->fd = listen_on(address)) < 0 &&
            (errno != EADDRNOTAVAIL || now_nanoseconds() - started > BIND_NANOSECONDS)) {
            perror("init: listen");
            return 1;
        }
        if (!ready && (!address || listener->fd >= 0)) {
            ready = true;
            report_ready(options.limits);
        }
        if (ppoll(polled, 2, ready ? NULL : &(struct timespec){.tv_nsec = PAUSE_NANOSECONDS}, &unblocked) > 0) {
            if (parent_pipe->revents & (POLLHUP | POLLERR))
                break;
            if (reply(listener->fd, line) && parent_pipe->fd >= 0) {
                parent_pipe->fd = -1; // from now on, the agent reads standard input
                agent = start_agent(&unblocked);
            }
        }
        reap(agent);
    }
    return 0;
}

int main(int argc, char **argv) {
    const long long started = now_nanoseconds();
    struct sockaddr_in address;
    const struct options options = {
        .limits = argc == 3 && strcmp(argv[2], "--limits") == 0,
        .resident = argc == 4 && strcmp(argv[2], "--resident") == 0,
    };
    open_streams();
    umask(022);
    const bool no_address = argc >= 2 && strcmp(argv[1], "-") == 0;
    if (argc < 2 || (argc > 2 && !options.limits && !options.resident) || (no_address && options.resident) ||
        (!no_address && !parse_address(argv[1], &address))) {
        fputs("usage: init ADDRESS:PORT|- [--limits], or init ADDRESS:PORT --resident NAME\n", stderr);
        return 2;
    }
    return serve(no_address ? NULL : &address, options, started);
}
