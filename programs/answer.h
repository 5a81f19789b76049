// What `ask` on the client and `answer` in the instance say to each other over TCP: a request has a fixed length, and
// so has an answer.

#ifndef TARE_ANSWER_H
#define TARE_ANSWER_H

#include "door.h"

enum { MESSAGE_BYTES = 64, BULK_BYTES = 1 << 16 };

// `m`: an answer; `c`: an answer, and the end of the connection; `r`: so many bytes follow, and then comes an answer;
// `s`: so many bytes are the answer.
struct request {
    char kind;
    unsigned char size[8]; // network order
    char rest[MESSAGE_BYTES - 9];
};
_Static_assert(sizeof(struct request) == MESSAGE_BYTES, "a request has no holes");

static inline struct request request_of(char kind, uint64_t size) {
    struct request request = {.kind = kind};
    for (int i = 0; i < 8; i++)
        request.size[i] = (unsigned char)(size >> (56 - 8 * i));
    return request;
}

static inline uint64_t size_of(const struct request *request) {
    uint64_t size = 0;
    for (int i = 0; i < 8; i++)
        size = size << 8 | request->size[i];
    return size;
}

// Receives so many bytes and forgets them; gives false where the other end is gone.
static inline bool drain(int connection, uint64_t size) {
    static char bulk[BULK_BYTES];
    while (size) {
        ssize_t length = recv(connection, bulk, size < sizeof bulk ? (size_t)size : sizeof bulk, 0);
        if (length <= 0)
            return false;
        size -= (uint64_t)length;
    }
    return true;
}

static inline bool fill(int connection, uint64_t size) {
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
