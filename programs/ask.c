/*
 * ask: the seconds that one unit of a kind of work on the network takes, with `answer` as the server.
 *
 *   ask ADDRESS PORT KIND [--seconds S | --times N]
 *
 * Several clients ask at a time for messages and connections, so that the server has something to do whenever it is
 * done; bytes go over one connection. An answer that does not come is named on standard error, with exit code 1 and no
 * result. Exit code 2: wrong arguments.
 */
#define _GNU_SOURCE

#define PROGRAM "ask"

#include "answer.h"
#include "kinds.h"

#include <errno.h>
#include <sys/epoll.h>

enum { CLIENTS = 16, PATIENCE_SECONDS = 20 };

static struct sockaddr_in place;

static void check(bool good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "ask: %s: %s: %s\n", kind, what, errno ? strerror(errno) : "the server has closed the connection");
    exit(1);
}

// Gives a connection that is made, or with SOCK_NONBLOCK is being made.
static int connect_to_server(int flags) {
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    check(connection >= 0, "socket");
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    send_at_once(connection);
    check(connect(connection, (const struct sockaddr *)&place, sizeof place) == 0 || errno == EINPROGRESS, "connect");
    return connection;
}

static void ask(int connection, char what, uint64_t size) {
    struct request request = request_of(what, size);
    check(send_all(connection, &request, sizeof request), "send");
}

static void hear(int connection) {
    char message[MESSAGE_BYTES];
    errno = 0;
    check(receive_all(connection, message, sizeof message), "receive");
}

// --- messages and connections -------------------------------------------------------------------------------------

static int list = -1; // of events
static int connections[CLIENTS];

static void watch(int client, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = (uint32_t)client};
    check(epoll_ctl(list, operation, connections[client], &event) == 0, "epoll_ctl");
}

// A client asks over its connection.
static void send_message(int client) {
    ask(connections[client], 'm', 0);
}

static bool hear_message(int client, uint32_t events) {
    (void)events;
    hear(connections[client]);
    return true;
}

// A client asks over a connection that it makes for it.
static void open_connection(int client) {
    connections[client] = connect_to_server(SOCK_NONBLOCK);
    watch(client, EPOLL_CTL_ADD, EPOLLOUT);
}

// Gives whether a client has its answer. The server closes first: our port can be used again at once.
static bool serve_connection(int client, uint32_t events) {
    int *connection = &connections[client], reason = 0;
    if (events & EPOLLOUT) {
        getsockopt(*connection, SOL_SOCKET, SO_ERROR, &reason, &(socklen_t){sizeof reason});
        errno = reason;
        check(!reason, "connect");
        ask(*connection, 'c', 0);
        watch(client, EPOLL_CTL_MOD, EPOLLRDHUP);
        return false;
    }
    hear(*connection);
    close(*connection);
    return true;
}

// All clients ask, each again as soon as it has its answer, until there are so many answers.
static double measure_crowd(long times, void (*begin)(int), bool (*go_on)(int, uint32_t)) {
    struct epoll_event events[CLIENTS];
    long asked = 0, answered = 0;
    double start_seconds = now_seconds();
    for (int client = 0; client < CLIENTS && asked < times; client++, asked++)
        begin(client);
    while (answered < times) {
        int count = epoll_wait(list, events, CLIENTS, 1000 * PATIENCE_SECONDS);
        errno = count ? errno : ETIMEDOUT;
        check(count > 0, "wait");
        for (int i = 0; i < count; i++) {
            int client = (int)events[i].data.u32;
            if (!go_on(client, events[i].events))
                continue;
            answered++;
            if (asked++ < times)
                begin(client);
        }
    }
    return now_seconds() - start_seconds;
}

static double measure_message(long times) {
    if (list < 0) {
        list = epoll_create1(EPOLL_CLOEXEC);
        for (int client = 0; client < CLIENTS; client++) {
            connections[client] = connect_to_server(0);
            watch(client, EPOLL_CTL_ADD, EPOLLIN);
        }
    }
    return measure_crowd(times, send_message, hear_message);
}

static double measure_connection(long times) {
    if (list < 0)
        list = epoll_create1(EPOLL_CLOEXEC);
    return measure_crowd(times, open_connection, serve_connection);
}

// --- bytes --------------------------------------------------------------------------------------------------------

static int own_connection(void) {
    static int connection = -1;
    return connection >= 0 ? connection : (connection = connect_to_server(0));
}

static double measure_received(long times) {
    int connection = own_connection();
    double start_seconds = now_seconds();
    ask(connection, 'r', (uint64_t)times);
    check(fill(connection, (uint64_t)times), "send");
    hear(connection);
    return now_seconds() - start_seconds;
}

static double measure_sent(long times) {
    int connection = own_connection();
    double start_seconds = now_seconds();
    ask(connection, 's', (uint64_t)times);
    errno = 0;
    check(drain(connection, (uint64_t)times), "receive");
    return now_seconds() - start_seconds;
}

static const struct kernel kinds[] = {
    KIND("message", 16, measure_message),
    KIND("connection", 4, measure_connection),
    KIND("received", 1 << 16, measure_received),
    KIND("sent", 1 << 16, measure_sent),
};

int main(int argc, char **argv) {
    const struct kernel *chosen = argc > 3 ? choose(kinds, sizeof kinds / sizeof *kinds, argv[3]) : NULL;
    if (chosen && parse_place(argv[1], argv[2], &place))
        return run_kernel(chosen, argc - 3, argv + 3);
    fputs("usage: ask ADDRESS PORT KIND [--seconds S | --times N]\n", stderr);
    return 2;
}
