// The server of `ask`: one process that waits for events, as most servers do, and answers what answer.h says.
//
//   answer ADDRESS PORT
//
// Exits 1 where it cannot listen, 2 when used wrongly.

#define _GNU_SOURCE

#include "answer.h"

#include <errno.h>
#include <sys/epoll.h>

enum { BACKLOG = 1024, MOST_EVENTS = 64 };

static void watch(int list, int socket) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = socket};
    if (epoll_ctl(list, EPOLL_CTL_ADD, socket, &event)) {
        perror("answer: epoll_ctl");
        exit(1);
    }
}

// A client that is gone before it is accepted leaves nothing to do.
static void let_in(int list, int door) {
    int connection = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        return;
    send_at_once(connection);
    watch(list, connection);
}

// Gives false where the connection has ended, or is to end.
static bool answer(int connection) {
    static const char message[MESSAGE_BYTES];
    struct request request;
    if (!receive_all(connection, &request, sizeof request))
        return false;
    uint64_t size = size_of(&request);
    if (request.kind == 's')
        return fill(connection, size);
    if (request.kind == 'r' && !drain(connection, size))
        return false;
    return send_all(connection, message, sizeof message) && request.kind != 'c';
}

int main(int argc, char **argv) {
    struct sockaddr_in place;
    struct epoll_event events[MOST_EVENTS];
    if (argc != 3 || !parse_place(argv[1], argv[2], &place)) {
        fputs("usage: answer ADDRESS PORT\n", stderr);
        return 2;
    }
    int door = listen_at(&place, SOCK_NONBLOCK, BACKLOG), list = epoll_create1(EPOLL_CLOEXEC);
    if (door < 0 || list < 0) {
        fprintf(stderr, "answer: %s:%s: %s\n", argv[1], argv[2], strerror(errno));
        return 1;
    }
    watch(list, door);
    for (;;) {
        int count = epoll_wait(list, events, MOST_EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == door)
                let_in(list, door);
            else if (!answer(events[i].data.fd))
                close(events[i].data.fd);
        }
    }
}
