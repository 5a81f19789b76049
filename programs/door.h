// What the two ends of the door into a guest say to each other, over one TCP connection for each command: `reach` on
// the guest's host, `door` in the guest.
//
// `reach` sends the length of the command's words (4 bytes, network order) and the words, each with its NUL; what
// follows is the command's standard input. `door` sends pieces: a letter (`o` standard output, `e` standard error, `x`
// exit code), a length, and as many bytes; `x` is the last one.
//
// There is no key and no cipher: the guest takes only connections from its host's address, and from a port below 1024,
// which only root can use there. The network between them is tare's own.

#ifndef TARE_DOOR_H
#define TARE_DOOR_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_WORDS = 1 << 20, PIECE = 1 << 16, HEAD = 5, FIRST_ROOT_PORT = 512, FIRST_FREE_PORT = 1024 };

struct head {
    char letter;
    unsigned char length[4]; // network order
};
_Static_assert(sizeof(struct head) == HEAD, "a head has no holes");

static inline bool parse_place(const char *host, const char *port_text, struct sockaddr_in *place) {
    char *end;
    long port = strtol(port_text, &end, 10);
    *place = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return !*end && port > 0 && port < 65536 && inet_pton(AF_INET, host, &place->sin_addr) == 1;
}

// Gives the listening socket, or -1 with errno.
static inline int listen_at(const struct sockaddr_in *place, int flags, int backlog) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (listener < 0 || bind(listener, (const struct sockaddr *)place, sizeof *place) || listen(listener, backlog))
        return -1;
    return listener;
}

static inline void send_at_once(int connection) {
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

// Gives false where the other end is gone.
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
