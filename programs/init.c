// The main process of every instance: it keeps the instance alive, reaps orphans and says when user space began.
//
//   init ADDRESS:PORT|- [--limits]
//   init ADDRESS:PORT --resident NAME
//
// Every connection is answered with the line `tare NANOSECONDS`, CLOCK_MONOTONIC at our very start. `tare-init: ready`
// on standard output says that it listens; with --limits the limits of this place follow. SIGTERM and SIGINT end it
// with 0.
//
// With --resident it starts `run --resident` on its own streams, after the first answer: a start that is measured ends
// there. It ends with that, and before that with its standard input. By NAME it is found among a host's processes.

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

#define BIND_NANOSECONDS 10000000000LL // how long the address may take to appear
#define PAUSE_NANOSECONDS 1000000L

static volatile sig_atomic_t stopped;

struct wishes {
    bool limits, resident;
};

static void note_signal(int number) {
    if (number != SIGCHLD)
        stopped = 1;
}

static long long now_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// A first process may start without streams; a socket must not become one of them.
static void fill_streams(void) {
    int file;
    do
        file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

static bool parse(const char *text, struct sockaddr_in *address) {
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

// Gives the listening socket, or -1 with errno.
static int listen_at(const struct sockaddr_in *address) {
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

// Returns whether a client was there.
static bool answer(int listener, const char *line) {
    char ignored[4096];
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            nanosleep(&(struct timespec){.tv_nsec = 10 * PAUSE_NANOSECONDS}, NULL); // out of files: do not spin
        return false;
    }
    send(connection, line, strlen(line), MSG_NOSIGNAL);
    shutdown(connection, SHUT_WR);
    recv(connection, ignored, sizeof ignored, 0); // closing with unread input would take the line back
    close(connection);
    return true;
}

static pid_t start_resident(const sigset_t *unblocked) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, unblocked, NULL);
    execl("/usr/lib/tare/run", "run", "--resident", (char *)NULL);
    perror("init: run");
    _exit(127);
}

static void be_ready(bool limits) {
    fputs("tare-init: ready\n", stdout);
    fflush(stdout);
    if (limits)
        print_limits();
}

static void note_signals(sigset_t *unblocked) {
    const int numbers[] = {SIGCHLD, SIGTERM, SIGINT};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], &(struct sigaction){.sa_handler = note_signal}, NULL);
        sigaddset(&blocked, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &blocked, unblocked);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigdelset(unblocked, numbers[i]);
}

static void reap(pid_t resident) {
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
        if (pid == resident)
            stopped = 1;
}

static int serve(const struct sockaddr_in *address, struct wishes wishes, long long started) {
    char line[64];
    sigset_t unblocked;
    struct pollfd ears[] = {{.fd = -1, .events = POLLIN}, {.fd = wishes.resident ? STDIN_FILENO : -1}};
    struct pollfd *listener = &ears[0], *life_line = &ears[1];
    pid_t resident = -1;
    bool ready = false;
    snprintf(line, sizeof line, "tare %lld\n", started);
    note_signals(&unblocked);
    while (!stopped) {
        if (address && !ready && (listener->fd = listen_at(address)) < 0 &&
            (errno != EADDRNOTAVAIL || now_nanoseconds() - started > BIND_NANOSECONDS)) {
            perror("init: listen");
            return 1;
        }
        if (!ready && (!address || listener->fd >= 0)) {
            ready = true;
            be_ready(wishes.limits);
        }
        if (ppoll(ears, 2, ready ? NULL : &(struct timespec){.tv_nsec = PAUSE_NANOSECONDS}, &unblocked) > 0) {
            if (life_line->revents & (POLLHUP | POLLERR))
                break;
            if (answer(listener->fd, line) && life_line->fd >= 0) {
                life_line->fd = -1; // it is the resident process's now
                resident = start_resident(&unblocked);
            }
        }
        reap(resident);
    }
    return 0;
}

int main(int argc, char **argv) {
    const long long started = now_nanoseconds();
    struct sockaddr_in address;
    const struct wishes wishes = {
        .limits = argc == 3 && strcmp(argv[2], "--limits") == 0,
        .resident = argc == 4 && strcmp(argv[2], "--resident") == 0,
    };
    fill_streams();
    umask(022);
    const bool none = argc >= 2 && strcmp(argv[1], "-") == 0;
    if (argc < 2 || (argc > 2 && !wishes.limits && !wishes.resident) || (none && wishes.resident) ||
        (!none && !parse(argv[1], &address))) {
        fputs("usage: init ADDRESS:PORT|- [--limits], or init ADDRESS:PORT --resident NAME\n", stderr);
        return 2;
    }
    return serve(none ? NULL : &address, wishes, started);
}
