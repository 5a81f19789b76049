/*
 * net_client: the time of one network operation of a kind, with `net_server` as the server.
 *
 *   net_client ADDRESS PORT KIND [--seconds S | --times N]
 *
 * Messages and connections have several concurrent clients, so that the server is never idle; bytes use one
 * connection. Exit code 1, with the reason on standard error and no result: a request failed or timed out. Exit code 2:
 * wrong arguments.
 */
#define _GNU_SOURCE

#define PROGRAM "net_client"

#include "net_protocol.h"
#include "operations.h"

#include <errno.h>
#include <sys/epoll.h>

enum { CLIENTS = 16, TIMEOUT_SECONDS = 20 };

static struct sockaddr_in address;

static void require(bool succeeded, const char *what) {
    if (succeeded)
        return;
    fprintf(stderr, "net_client: %s: %s: %s\n", operation_kind, what,
            errno ? strerror(errno) : "the server has closed the connection");
    exit(1);
}

// Return a connected socket, or with SOCK_NONBLOCK one that is being connected.
static int connect_to_server(int flags) {
    struct timeval timeout = {.tv_sec = TIMEOUT_SECONDS};
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    require(connection >= 0, "socket");
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    disable_nagle(connection);
    require(connect(connection, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS,
            "connect");
    return connection;
}

static void send_request(int connection, char what, uint64_t size) {
    struct request request = make_request(what, size);
    require(send_all(connection, &request, sizeof request), "send");
}

static void receive_reply(int connection) {
    char message[MESSAGE_BYTES];
    errno = 0;
    require(receive_all(connection, message, sizeof message), "receive");
}

// --- messages and connections -------------------------------------------------------------------------------------

static int epoll = -1;
static int connections[CLIENTS];

static void watch(int client, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = (uint32_t)client};
    require(epoll_ctl(epoll, operation, connections[client], &event) == 0, "epoll_ctl");
}

// Send a client's request over its permanent connection.
static void send_message(int client) {
    send_request(connections[client], 'm', 0);
}

static bool receive_message(int client, uint32_t events) {
    (void)events;
    receive_reply(connections[client]);
    return true;
}

// Open a connection for a client's next request.
static void open_connection(int client) {
    connections[client] = connect_to_server(SOCK_NONBLOCK);
    watch(client, EPOLL_CTL_ADD, EPOLLOUT);
}

// Return whether a client has its reply. The server closes first, so that TIME_WAIT does not use up the client's ports.
static bool advance_connection(int client, uint32_t events) {
    int *connection = &connections[client], reason = 0;
    if (events & EPOLLOUT) {
        getsockopt(*connection, SOL_SOCKET, SO_ERROR, &reason, &(socklen_t){sizeof reason});
        errno = reason;
        require(!reason, "connect");
        send_request(*connection, 'c', 0);
        watch(client, EPOLL_CTL_MOD, EPOLLRDHUP);
        return false;
    }
    receive_reply(*connection);
    close(*connection);
    return true;
}

// Keep all clients busy, each with its next request once it has its reply, until `times` replies have arrived.
static double measure_concurrently(long times, void (*start)(int), bool (*advance)(int, uint32_t)) {
    struct epoll_event events[CLIENTS];
    long sent = 0, received = 0;
    double start_seconds = now_seconds();
    for (int client = 0; client < CLIENTS && sent < times; client++, sent++)
        start(client);
    while (received < times) {
        int count = epoll_wait(epoll, events, CLIENTS, 1000 * TIMEOUT_SECONDS);
        errno = count ? errno : ETIMEDOUT;
        require(count > 0, "wait");
        for (int i = 0; i < count; i++) {
            int client = (int)events[i].data.u32;
            if (!advance(client, events[i].events))
                continue;
            received++;
            if (sent++ < times)
                start(client);
        }
    }
    return now_seconds() - start_seconds;
}

static double measure_message(long times) {
    if (epoll < 0) {
        epoll = epoll_create1(EPOLL_CLOEXEC);
        for (int client = 0; client < CLIENTS; client++) {
            connections[client] = connect_to_server(0);
            watch(client, EPOLL_CTL_ADD, EPOLLIN);
        }
    }
    return measure_concurrently(times, send_message, receive_message);
}

static double measure_connection(long times) {
    if (epoll < 0)
        epoll = epoll_create1(EPOLL_CLOEXEC);
    return measure_concurrently(times, open_connection, advance_connection);
}

// --- bytes --------------------------------------------------------------------------------------------------------

static int bulk_connection(void) {
    static int connection = -1;
    return connection >= 0 ? connection : (connection = connect_to_server(0));
}

static double measure_received(long times) {
    int connection = bulk_connection();
    double start_seconds = now_seconds();
    send_request(connection, 'r', (uint64_t)times);
    require(send_bytes(connection, (uint64_t)times), "send");
    receive_reply(connection);
    return now_seconds() - start_seconds;
}

static double measure_sent(long times) {
    int connection = bulk_connection();
    double start_seconds = now_seconds();
    send_request(connection, 's', (uint64_t)times);
    errno = 0;
    require(discard_bytes(connection, (uint64_t)times), "receive");
    return now_seconds() - start_seconds;
}

static const struct timed_loop operations[] = {
    OPERATION("message", 16, measure_message),
    OPERATION("connection", 4, measure_connection),
    OPERATION("received", 1 << 16, measure_received),
    OPERATION("sent", 1 << 16, measure_sent),
};

int main(int argc, char **argv) {
    const struct timed_loop *chosen =
        argc > 3 ? find_operation(operations, sizeof operations / sizeof *operations, argv[3]) : NULL;
    if (chosen && parse_address(argv[1], argv[2], &address))
        return run_timed_loop(chosen, argc - 3, argv + 3);
    fputs("usage: net_client ADDRESS PORT KIND [--seconds S | --times N]\n", stderr);
    return 2;
}
