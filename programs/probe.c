// Readiness probe, on the client: connects to a TCP port until a server responds, and prints when that was.
//
//   probe ADDRESS PORT SECONDS [connect]
//
// Prints `NANOSECONDS LINE`: CLOCK_MONOTONIC when the first byte of the response arrived, and its first line. With
// `connect`, for servers that wait for the client to speak first, it prints `NANOSECONDS connected` when a connection
// is accepted and stays open: `nginx -t`, which a boot runs before nginx, listens on its port for a moment. Exit codes:
// 1 with the last error after SECONDS, 2 for wrong arguments.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Packets that are sent before the instance is on the network are lost. So an attempt waits no longer than 1/50 of the
// time since the first attempt, which bounds the error of the measured time. A connection must stay open for as long.
#define MIN_CONNECT_NANOSECONDS 2000000LL
#define ATTEMPT_NANOSECONDS 20000000LL
#ifndef SHARE_OF_TIME // tests run on a busy machine
#define SHARE_OF_TIME 50
#endif
#define PAUSE_NANOSECONDS 500000L
// An instance that is not ready after this time may also respond slowly, and must not get 50 attempts a second. From
// then on, an attempt lasts longer by a share of the time since.
#ifndef QUICK_NANOSECONDS // shorter in tests
#define QUICK_NANOSECONDS 30000000000LL
#define SHARE_OF_SLOW 100
#endif

struct response {
    long long nanoseconds; // time of its first byte
    size_t length;
    char line[512];
};

static long long now_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static bool parse_address(const char *host, const char *port_text, struct sockaddr_in *address) {
    char *end;
    long port = strtol(port_text, &end, 10);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return !*end && port > 0 && port < 65536 && inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

static bool parse_seconds(const char *text, long long *nanoseconds) {
    char *end;
    double seconds = strtod(text, &end);
    *nanoseconds = (long long)(seconds * 1e9);
    return end != text && !*end && seconds > 0 && seconds < 1e9;
}

// Wait for an event of the socket; return NULL, or the error if the deadline passes.
static const char *wait_for(int connection, short events, long long deadline) {
    struct pollfd polled = {.fd = connection, .events = events};
    long long left = deadline - now_nanoseconds();
    struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    if (left <= 0 || ppoll(&polled, 1, &wait, NULL) == 0)
        return events == POLLIN ? "connected, but no line came" : "no answer to the connection";
    return NULL;
}

// On the loopback, TCP can connect a socket to itself, if the kernel chooses the server's port as the local port.
static bool is_self_connected(int connection) {
    struct sockaddr_in local = {0}, remote = {0};
    getsockname(connection, (struct sockaddr *)&local, &(socklen_t){sizeof local});
    getpeername(connection, (struct sockaddr *)&remote, &(socklen_t){sizeof remote});
    return local.sin_port == remote.sin_port && local.sin_addr.s_addr == remote.sin_addr.s_addr;
}

static const char *connect_before(int connection, const struct sockaddr_in *address, long long deadline) {
    int reason = 0;
    if (connect(connection, (const struct sockaddr *)address, sizeof *address) && errno != EINPROGRESS)
        return strerror(errno);
    const char *problem = wait_for(connection, POLLOUT, deadline);
    if (problem)
        return problem;
    getsockopt(connection, SOL_SOCKET, SO_ERROR, &reason, &(socklen_t){sizeof reason});
    if (reason)
        return strerror(reason);
    return is_self_connected(connection) ? strerror(ECONNREFUSED) : NULL;
}

static const char *read_line(int connection, struct response *response, long long deadline) {
    while (response->length < sizeof response->line - 1) {
        const char *problem = wait_for(connection, POLLIN, deadline);
        if (problem)
            return problem;
        size_t room = sizeof response->line - 1 - response->length;
        ssize_t length = recv(connection, response->line + response->length, room, 0);
        if (length <= 0)
            return length < 0 ? strerror(errno) : "closed without a whole line";
        if (response->length == 0)
            response->nanoseconds = now_nanoseconds();
        response->length += (size_t)length;
        response->line[response->length] = '\0';
        if (strpbrk(response->line, "\r\n")) {
            response->line[strcspn(response->line, "\r\n")] = '\0';
            return NULL;
        }
    }
    return "the line is too long";
}

// Return NULL if the server sends something or leaves the connection open until the deadline, else the error.
static const char *check_stays_open(int connection, long long deadline) {
    char byte;
    if (wait_for(connection, POLLIN, deadline))
        return NULL;
    ssize_t length = recv(connection, &byte, 1, MSG_PEEK);
    if (length > 0)
        return NULL;
    return length < 0 ? strerror(errno) : "closed at once";
}

// Make one attempt; return NULL if the server responds, else the error.
static const char *probe(const struct sockaddr_in *address, bool connect_only, long long first_attempt,
                         struct response *response) {
    const long long now = now_nanoseconds(), slow_nanoseconds = now - first_attempt - QUICK_NANOSECONDS;
    const long long deadline =
        now + ATTEMPT_NANOSECONDS + (slow_nanoseconds > 0 ? slow_nanoseconds / SHARE_OF_SLOW : 0);
    const long long connect_deadline = now + MIN_CONNECT_NANOSECONDS + (now - first_attempt) / SHARE_OF_TIME;
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0)
        return strerror(errno);
    *response = (struct response){.line = "connected"};
    const char *problem =
        connect_before(connection, address, connect_deadline < deadline ? connect_deadline : deadline);
    if (!problem && connect_only) {
        response->nanoseconds = now_nanoseconds();
        problem = check_stays_open(connection,
                                   response->nanoseconds + (response->nanoseconds - first_attempt) / SHARE_OF_TIME);
    } else if (!problem)
        problem = read_line(connection, response, deadline);
    if (problem) // reset the connection: TIME_WAIT would keep the local port in use
        setsockopt(connection, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(connection);
    return problem;
}

int main(int argc, char **argv) {
    struct sockaddr_in address;
    struct response response;
    long long timeout;
    const bool connect_only = argc == 5 && strcmp(argv[4], "connect") == 0;
    if (argc < 4 || argc > 5 || (argc == 5 && !connect_only) || !parse_address(argv[1], argv[2], &address) ||
        !parse_seconds(argv[3], &timeout)) {
        fputs("usage: probe ADDRESS PORT SECONDS [connect]\n", stderr);
        return 2;
    }
    const long long first_attempt = now_nanoseconds();
    const char *problem;
    while ((problem = probe(&address, connect_only, first_attempt, &response)) &&
           now_nanoseconds() < first_attempt + timeout)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NANOSECONDS}, NULL);
    if (problem) {
        fprintf(stderr, "probe: %s:%s: %s\n", argv[1], argv[2], problem);
        return 1;
    }
    printf("%lld %s\n", response.nanoseconds, response.line);
    return fflush(stdout) ? 1 : 0;
}
