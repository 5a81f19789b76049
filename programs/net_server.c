// Server of `net_client` (net_protocol.h): one process with an event loop, as most servers have.
//
//   net_server ADDRESS PORT
//
// Exit codes: 1 if it cannot listen, 2 for wrong arguments.

#define _GNU_SOURCE

#include "net_protocol.h"

#include <errno.h>
#include <sys/epoll.h>

enum { BACKLOG = 1024, MAX_EVENTS = 64 };

static void watch(int epoll, int socket) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = socket};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event)) {
        perror("net_server: epoll_ctl");
        exit(1);
    }
}

// A client that disconnects before it is accepted is no error.
static void accept_client(int epoll, int listener) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        return;
    disable_nagle(connection);
    watch(epoll, connection);
}

// Handle one request; return false if the connection has ended or must be closed.
static bool handle_request(int connection) {
    static const char message[MESSAGE_BYTES];
    struct request request;
    if (!receive_all(connection, &request, sizeof request))
        return false;
    uint64_t size = request_size(&request);
    if (request.kind == 's')
        return send_bytes(connection, size);
    if (request.kind == 'r' && !discard_bytes(connection, size))
        return false;
    return send_all(connection, message, sizeof message) && request.kind != 'c';
}

int main(int argc, char **argv) {
    struct sockaddr_in address;
    struct epoll_event events[MAX_EVENTS];
    if (argc != 3 || !parse_address(argv[1], argv[2], &address)) {
        fputs("usage: net_server ADDRESS PORT\n", stderr);
        return 2;
    }
    int listener = listen_on(&address, SOCK_NONBLOCK, BACKLOG), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (listener < 0 || epoll < 0) {
        fprintf(stderr, "net_server: %s:%s: %s\n", argv[1], argv[2], strerror(errno));
        return 1;
    }
    watch(epoll, listener);
    for (;;) {
        int count = epoll_wait(epoll, events, MAX_EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener)
                accept_client(epoll, listener);
            else if (!handle_request(events[i].data.fd))
                close(events[i].data.fd);
        }
    }
}
