// Runs a command in a guest, from its host, by the guest's `door` (door.h).
//
//   reach ADDRESS PORT SECONDS ARGV...
//
// Its streams are the command's, and so is its exit code; 255 where the guest has not answered after SECONDS, or where
// the connection is lost, with a line on standard error.

#define _GNU_SOURCE

#include "door.h"

#include <errno.h>
#include <poll.h>

enum { LOST = 255, WRONG_USAGE = 2 };

struct visit {
    int connection;
    bool silent;         // our standard input has ended
    char waiting[PIECE]; // of it, to be sent
    size_t sent, waits;
    unsigned char piece[HEAD + PIECE];
    size_t length;
};

static int lost(const char *address, const char *reason) {
    fprintf(stderr, "reach: %s: %s\n", address, reason);
    return LOST;
}

// Connects from a port that only root can use; gives -1 with errno.
static int connect_to(const struct sockaddr_in *place, double seconds) {
    struct timeval limit = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    const int ports = FIRST_FREE_PORT - FIRST_ROOT_PORT;
    for (int attempt = 0; attempt < ports; attempt++) {
        uint16_t port = (uint16_t)(FIRST_ROOT_PORT + (getpid() + attempt) % ports);
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port)};
        int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(connection, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); // connecting is sending, too
        if (bind(connection, (const struct sockaddr *)&own, sizeof own) == 0 &&
            connect(connection, (const struct sockaddr *)place, sizeof *place) == 0)
            return connection;
        int reason = errno == EINPROGRESS ? ETIMEDOUT : errno;
        close(connection);
        errno = reason;
        if (reason != EADDRINUSE && reason != EADDRNOTAVAIL)
            break;
    }
    return -1;
}

static bool send_words(int connection, char **argv) {
    char *words = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&words, &length);
    for (; *argv; argv++)
        fwrite(*argv, 1, strlen(*argv) + 1, text);
    fclose(text);
    uint32_t head = htonl((uint32_t)length);
    bool went = length <= MOST_WORDS && send_all(connection, &head, sizeof head) && send_all(connection, words, length);
    free(words);
    return went;
}

static void take_input(struct visit *here) {
    ssize_t length = read(STDIN_FILENO, here->waiting, sizeof here->waiting);
    if (length > 0) {
        here->waits = (size_t)length;
        here->sent = 0;
    } else if (length == 0 || errno != EINTR) {
        here->silent = true;
        shutdown(here->connection, SHUT_WR);
    }
}

static void send_input(struct visit *here) {
    ssize_t sent = send(here->connection, here->waiting + here->sent, here->waits, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        here->sent += (size_t)sent;
        here->waits -= (size_t)sent;
    } else if (errno != EAGAIN && errno != EINTR) {
        here->waits = 0; // the end of the connection is seen where it is read
    }
}

static void print_piece(char letter, const unsigned char *data, size_t length) {
    while (length) {
        ssize_t written = write(letter == 'e' ? STDERR_FILENO : STDOUT_FILENO, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            exit(LOST); // no process reads it
        data += written;
        length -= (size_t)written;
    }
}

// Takes what has come, and prints the piece that is whole. Gives the exit code, LOST, or -1 while there is more to
// come.
static int take_piece(struct visit *here) {
    struct head head;
    uint32_t size = 0;
    memcpy(&head, here->piece, HEAD);
    if (here->length >= HEAD) {
        memcpy(&size, head.length, sizeof size);
        size = ntohl(size);
    }
    if (size > PIECE)
        return LOST;
    size_t wanted = HEAD + size - here->length;
    ssize_t length = recv(here->connection, here->piece + here->length, wanted, 0);
    if (length <= 0)
        return length < 0 && errno == EINTR ? -1 : LOST;
    here->length += (size_t)length;
    if (here->length <= HEAD || here->length < HEAD + size)
        return -1;
    here->length = 0;
    if (head.letter == 'x')
        return here->piece[HEAD];
    print_piece(head.letter, here->piece + HEAD, size);
    return -1;
}

static int pass_on(struct visit *here) {
    for (int code = -1;;) {
        struct pollfd ends[] = {
            {.fd = here->connection, .events = (short)(POLLIN | (here->waits ? POLLOUT : 0))},
            {.fd = here->silent || here->waits ? -1 : STDIN_FILENO, .events = POLLIN},
        };
        if (poll(ends, 2, -1) < 0)
            continue;
        if (ends[0].revents & ~POLLOUT && (code = take_piece(here)) >= 0)
            return code;
        if (ends[0].revents & POLLOUT)
            send_input(here);
        if (ends[1].revents)
            take_input(here);
    }
}

int main(int argc, char **argv) {
    static struct visit here;
    struct sockaddr_in place;
    char *end = "x";
    double seconds = argc > 4 ? strtod(argv[3], &end) : 0;
    if (argc < 5 || !parse_place(argv[1], argv[2], &place) || *end || !(seconds > 0)) {
        fputs("usage: reach ADDRESS PORT SECONDS ARGV...\n", stderr);
        return WRONG_USAGE;
    }
    here.connection = connect_to(&place, seconds);
    if (here.connection < 0)
        return lost(argv[1], strerror(errno));
    // Nothing of it is left when we end: the next guest may have the same address.
    setsockopt(here.connection, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    setsockopt(here.connection, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0}, sizeof(struct timeval));
    send_at_once(here.connection);
    if (!send_words(here.connection, argv + 4))
        return lost(argv[1], "the guest took no command");
    int code = pass_on(&here);
    return code == LOST ? lost(argv[1], "the connection was lost") : code;
}
