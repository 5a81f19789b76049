// Protocol between `guest_exec` on a guest's host and `guest_agent` in the guest: one TCP connection per command.
//
// `guest_exec` sends the length of the command's arguments (4 bytes, network order) and the arguments, each with its
// NUL; then the command's standard input. `guest_agent` sends frames: a type (`o` standard output, `e` standard error,
// `x` exit code), a length (4 bytes, network order), and the data. `x` is the last frame.
//
// Authentication and encryption are not needed: the guest accepts only connections from its host's address and from a
// port below 1024, which only root can use there, and the network between them is private to tare.

#ifndef TARE_GUEST_PROTOCOL_H
#define TARE_GUEST_PROTOCOL_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_ARGV_BYTES = 1 << 20,
    MAX_FRAME = 1 << 16,
    HEADER_BYTES = 5,
    MIN_LOCAL_PORT = 512,
    FIRST_UNPRIVILEGED_PORT = 1024
};

struct frame_header {
    char type;
    unsigned char length[4]; // network order
};
_Static_assert(sizeof(struct frame_header) == HEADER_BYTES, "the header has no padding");

static inline bool parse_address(const char *host, const char *port_text, struct sockaddr_in *address) {
    char *end;
    long port = strtol(port_text, &end, 10);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return !*end && port > 0 && port < 65536 && inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

// Return the listening socket, or -1 with errno.
static inline int listen_on(const struct sockaddr_in *address, int flags, int backlog) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (listener < 0 || bind(listener, (const struct sockaddr *)address, sizeof *address) || listen(listener, backlog))
        return -1;
    return listener;
}

static inline void disable_nagle(int connection) {
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

// Return false if the peer has closed the connection.
static inline bool send_all(int connection, const void *data, size_t length) {
    for (const char *rest = data; length;) {
        ssize_t sent = send(connection, rest, length, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        rest += sent;
        length -= (size_t)sent;
    }
    return true;
}

static inline bool receive_all(int connection, void *data, size_t length) {
    return length == 0 || recv(connection, data, length, MSG_WAITALL) == (ssize_t)length;
}

#endif
