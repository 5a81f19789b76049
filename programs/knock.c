// The client's side of a start: knocks at a TCP port until a server answers, and says when that was.
//
//   knock ADDRESS PORT SECONDS [connect]
//
// Prints `NANOSECONDS LINE`: CLOCK_MONOTONIC when the first byte of an answer arrived, and its first line. With
// `connect`, for servers that speak second, it prints `NANOSECONDS connected` when a connection is accepted that stays:
// `nginx -t`, which a boot runs before nginx, listens at its port for a moment. Exits 1 with the last error after
// SECONDS, 2 when used wrongly.

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

// What is sent before the instance is on the network is lost. So a connection is waited for no longer than a fiftieth
// of the time since the first: that is how exactly the moment of the answer is known. For as long, one has to stay.
#define SHORTEST_NANOSECONDS 2000000LL
#define ATTEMPT_NANOSECONDS 20000000LL
#ifndef SHARE_OF_TIME // tests are on a busy machine
#define SHARE_OF_TIME 50
#endif
#define PAUSE_NANOSECONDS 500000L
// What has not started by then is slow enough to answer slowly, too, and not to be asked fifty times a second. An
// attempt then lasts longer by a share of the time since.
#ifndef QUICK_NANOSECONDS // tests have less time
#define QUICK_NANOSECONDS 30000000000LL
#define SHARE_OF_SLOW 100
#endif

struct answer {
    long long nanoseconds; // when its first byte came
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

// Gives NULL when the socket has something for us before the deadline, else why not.
static const char *await(int connection, short events, long long deadline) {
    struct pollfd one = {.fd = connection, .events = events};
    long long left = deadline - now_nanoseconds();
    struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    if (left <= 0 || ppoll(&one, 1, &wait, NULL) == 0)
        return events == POLLIN ? "connected, but no line came" : "no answer to the connection";
    return NULL;
}

// On the loopback, a port without a server can be joined to itself: the kernel may choose it as our own as well.
static bool is_joined_to_itself(int connection) {
    struct sockaddr_in near = {0}, far = {0};
    getsockname(connection, (struct sockaddr *)&near, &(socklen_t){sizeof near});
    getpeername(connection, (struct sockaddr *)&far, &(socklen_t){sizeof far});
    return near.sin_port == far.sin_port && near.sin_addr.s_addr == far.sin_addr.s_addr;
}

static const char *join(int connection, const struct sockaddr_in *address, long long deadline) {
    int reason = 0;
    if (connect(connection, (const struct sockaddr *)address, sizeof *address) && errno != EINPROGRESS)
        return strerror(errno);
    const char *problem = await(connection, POLLOUT, deadline);
    if (problem)
        return problem;
    getsockopt(connection, SOL_SOCKET, SO_ERROR, &reason, &(socklen_t){sizeof reason});
    if (reason)
        return strerror(reason);
    return is_joined_to_itself(connection) ? strerror(ECONNREFUSED) : NULL;
}

static const char *read_line(int connection, struct answer *answer, long long deadline) {
    while (answer->length < sizeof answer->line - 1) {
        const char *problem = await(connection, POLLIN, deadline);
        if (problem)
            return problem;
        size_t room = sizeof answer->line - 1 - answer->length;
        ssize_t length = recv(connection, answer->line + answer->length, room, 0);
        if (length <= 0)
            return length < 0 ? strerror(errno) : "closed without a whole line";
        if (answer->length == 0)
            answer->nanoseconds = now_nanoseconds();
        answer->length += (size_t)length;
        answer->line[answer->length] = '\0';
        if (strpbrk(answer->line, "\r\n")) {
            answer->line[strcspn(answer->line, "\r\n")] = '\0';
            return NULL;
        }
    }
    return "the line is too long";
}

// Gives NULL if the server has said something by the deadline, or has left the connection open.
static const char *is_left(int connection, long long deadline) {
    char byte;
    if (await(connection, POLLIN, deadline))
        return NULL;
    ssize_t length = recv(connection, &byte, 1, MSG_PEEK);
    if (length > 0)
        return NULL;
    return length < 0 ? strerror(errno) : "closed at once";
}

// One attempt; gives NULL when it is answered, else why it was not.
static const char *knock(const struct sockaddr_in *address, bool connect_only, long long began, struct answer *answer) {
    const long long now = now_nanoseconds(), slow = now - began - QUICK_NANOSECONDS;
    const long long deadline = now + ATTEMPT_NANOSECONDS + (slow > 0 ? slow / SHARE_OF_SLOW : 0);
    const long long soon = now + SHORTEST_NANOSECONDS + (now - began) / SHARE_OF_TIME;
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0)
        return strerror(errno);
    *answer = (struct answer){.line = "connected"};
    const char *problem = join(connection, address, soon < deadline ? soon : deadline);
    if (!problem && connect_only) {
        answer->nanoseconds = now_nanoseconds();
        problem = is_left(connection, answer->nanoseconds + (answer->nanoseconds - began) / SHARE_OF_TIME);
    } else if (!problem)
        problem = read_line(connection, answer, deadline);
    if (problem) // leave nothing behind that would hold the port
        setsockopt(connection, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(connection);
    return problem;
}

int main(int argc, char **argv) {
    struct sockaddr_in address;
    struct answer answer;
    long long patience;
    const bool connect_only = argc == 5 && strcmp(argv[4], "connect") == 0;
    if (argc < 4 || argc > 5 || (argc == 5 && !connect_only) || !parse_address(argv[1], argv[2], &address) ||
        !parse_seconds(argv[3], &patience)) {
        fputs("usage: knock ADDRESS PORT SECONDS [connect]\n", stderr);
        return 2;
    }
    const long long began = now_nanoseconds();
    const char *problem;
    while ((problem = knock(&address, connect_only, began, &answer)) && now_nanoseconds() < began + patience)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NANOSECONDS}, NULL);
    if (problem) {
        fprintf(stderr, "knock: %s:%s: %s\n", argv[1], argv[2], problem);
        return 1;
    }
    printf("%lld %s\n", answer.nanoseconds, answer.line);
    return fflush(stdout) ? 1 : 0;
}
