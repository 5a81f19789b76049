// Protocol between `net_client` on the client and `net_server` in the instance, over TCP. Requests and replies have a
// fixed length.

#ifndef TARE_NET_PROTOCOL_H
#define TARE_NET_PROTOCOL_H

#include "guest_protocol.h"

enum { MESSAGE_BYTES = 64, BULK_BYTES = 1 << 16 };

// Kinds: `m`, the server replies; `c`, it replies and closes the connection; `r`, it receives `size` bytes, which
// follow the request, and replies; `s`, it sends `size` bytes instead of a reply.
struct request {
    char kind;
    unsigned char size[8]; // network order
    char rest[MESSAGE_BYTES - 9];
};
_Static_assert(sizeof(struct request) == MESSAGE_BYTES, "a request has no padding");

static inline struct request make_request(char kind, uint64_t size) {
    struct request request = {.kind = kind};
    for (int i = 0; i < 8; i++)
        request.size[i] = (unsigned char)(size >> (56 - 8 * i));
    return request;
}

static inline uint64_t request_size(const struct request *request) {
    uint64_t size = 0;
    for (int i = 0; i < 8; i++)
        size = size << 8 | request->size[i];
    return size;
}

// Receive and discard `size` bytes; return false if the peer has closed the connection.
static inline bool discard_bytes(int connection, uint64_t size) {
    static char bulk[BULK_BYTES];
    while (size) {
        ssize_t length = recv(connection, bulk, size < sizeof bulk ? (size_t)size : sizeof bulk, 0);
        if (length <= 0)
            return false;
        size -= (uint64_t)length;
    }
    return true;
}

// Send `size` zero bytes; return false if the peer has closed the connection.
static inline bool send_bytes(int connection, uint64_t size) {
    static const char bulk[BULK_BYTES];
    while (size) {
        size_t length = size < sizeof bulk ? (size_t)size : sizeof bulk;
        if (!send_all(connection, bulk, length))
            return false;
        size -= length;
    }
    return true;
}

#endif
