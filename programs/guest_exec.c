// Runs a command in a guest, from the guest's host, through `guest_agent` (guest_protocol.h).
//
//   guest_exec ADDRESS PORT SECONDS ARGV...
//
// Streams and exit code are the command's. Exit code 255, with a line on standard error: the guest has not accepted
// the connection within SECONDS, or the connection was lost. A guest that does not answer ARP is retried for 10 s.

#define _GNU_SOURCE

#include "clock.h"
#include "guest_protocol.h"

#include <errno.h>
#include <poll.h>

enum { LOST = 255, WRONG_USAGE = 2, GIVE_UP_SECONDS = 10, MAX_SECONDS = 86400 };

struct session {
    int connection;
    bool input_ended;             // standard input has ended
    char input_buffer[MAX_FRAME]; // bytes of standard input that must still be sent
    size_t sent, input_length;
    unsigned char frame[HEADER_BYTES + MAX_FRAME];
    size_t length;
};

static int report_lost(const char *address, const char *reason) {
    fprintf(stderr, "guest_exec: %s: %s\n", address, reason);
    return LOST;
}

// Connect once, within `seconds`, from a port that only root can use; return the socket, or -1 with errno.
static int try_to_connect(const struct sockaddr_in *address, double seconds) {
    struct timeval limit = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    const int ports = FIRST_UNPRIVILEGED_PORT - MIN_LOCAL_PORT;
    for (int attempt = 0; attempt < ports; attempt++) {
        uint16_t port = (uint16_t)(MIN_LOCAL_PORT + (getpid() + attempt) % ports);
        struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(port)};
        int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(connection, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); // it also limits connect()
        if (bind(connection, (const struct sockaddr *)&local, sizeof local) == 0 &&
            connect(connection, (const struct sockaddr *)address, sizeof *address) == 0)
            return connection;
        int reason = errno == EINPROGRESS ? ETIMEDOUT : errno;
        close(connection);
        errno = reason;
        if (reason != EADDRINUSE && reason != EADDRNOTAVAIL)
            break;
    }
    return -1;
}

// A guest that has just been restored, or that is slow, answers ARP late, which connect() reports as "No route to
// host". A guest that is silent for GIVE_UP_SECONDS has no network.
static int connect_to_guest(const struct sockaddr_in *address, double seconds) {
    static const double retry_seconds = 0.02;
    const double began = now_seconds(), give_up = began + (seconds < GIVE_UP_SECONDS ? seconds : GIVE_UP_SECONDS);
    for (double left = seconds;; left = began + seconds - now_seconds()) {
        int connection = try_to_connect(address, left > retry_seconds ? left : retry_seconds);
        if (connection >= 0 || errno != EHOSTUNREACH || now_seconds() >= give_up)
            return connection;
        nanosleep(&(struct timespec){.tv_nsec = (long)(retry_seconds * 1e9)}, NULL);
    }
}

static bool send_arguments(int connection, char **argv) {
    char *arguments = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&arguments, &length);
    for (; *argv; argv++)
        fwrite(*argv, 1, strlen(*argv) + 1, text);
    fclose(text);
    uint32_t size = htonl((uint32_t)length);
    bool sent =
        length <= MAX_ARGV_BYTES && send_all(connection, &size, sizeof size) && send_all(connection, arguments, length);
    free(arguments);
    return sent;
}

static void read_input(struct session *session) {
    ssize_t length = read(STDIN_FILENO, session->input_buffer, sizeof session->input_buffer);
    if (length > 0) {
        session->input_length = (size_t)length;
        session->sent = 0;
    } else if (length == 0 || errno != EINTR) {
        session->input_ended = true;
        shutdown(session->connection, SHUT_WR);
    }
}

static void send_input(struct session *session) {
    ssize_t sent = send(session->connection, session->input_buffer + session->sent, session->input_length,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        session->sent += (size_t)sent;
        session->input_length -= (size_t)sent;
    } else if (errno != EAGAIN && errno != EINTR) {
        session->input_length = 0; // receive_frame reports that the connection has ended
    }
}

static void print_data(char type, const unsigned char *data, size_t length) {
    while (length) {
        ssize_t written = write(type == 'e' ? STDERR_FILENO : STDOUT_FILENO, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            exit(LOST); // nobody reads the output
        data += written;
        length -= (size_t)written;
    }
}

// Receive bytes, and print the frame if it is complete. Return the exit code, LOST, or -1 if more frames follow.
static int receive_frame(struct session *session) {
    struct frame_header header;
    uint32_t size = 0;
    memcpy(&header, session->frame, HEADER_BYTES);
    if (session->length >= HEADER_BYTES) {
        memcpy(&size, header.length, sizeof size);
        size = ntohl(size);
    }
    if (size > MAX_FRAME)
        return LOST;
    size_t wanted = HEADER_BYTES + size - session->length;
    ssize_t length = recv(session->connection, session->frame + session->length, wanted, 0);
    if (length <= 0)
        return length < 0 && errno == EINTR ? -1 : LOST;
    session->length += (size_t)length;
    if (session->length <= HEADER_BYTES || session->length < HEADER_BYTES + size)
        return -1;
    session->length = 0;
    if (header.type == 'x')
        return session->frame[HEADER_BYTES];
    print_data(header.type, session->frame + HEADER_BYTES, size);
    return -1;
}

static int forward_streams(struct session *session) {
    for (int code = -1;;) {
        struct pollfd ends[] = {
            {.fd = session->connection, .events = (short)(POLLIN | (session->input_length ? POLLOUT : 0))},
            {.fd = session->input_ended || session->input_length ? -1 : STDIN_FILENO, .events = POLLIN},
        };
        if (poll(ends, 2, -1) < 0)
            continue;
        if (ends[0].revents & ~POLLOUT && (code = receive_frame(session)) >= 0)
            return code;
        if (ends[0].revents & POLLOUT)
            send_input(session);
        if (ends[1].revents)
            read_input(session);
    }
}

int main(int argc, char **argv) {
    static struct session session;
    struct sockaddr_in address;
    char *end = "x";
    double seconds = argc > 4 ? strtod(argv[3], &end) : 0;
    if (argc < 5 || !parse_address(argv[1], argv[2], &address) || *end || !(seconds > 0 && seconds <= MAX_SECONDS)) {
        fputs("usage: guest_exec ADDRESS PORT SECONDS ARGV...\n", stderr);
        return WRONG_USAGE;
    }
    session.connection = connect_to_guest(&address, seconds);
    if (session.connection < 0)
        return report_lost(argv[1], strerror(errno));
    // Reset the connection at exit, so that no state of it remains: the next guest may have the same address.
    setsockopt(session.connection, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    setsockopt(session.connection, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0}, sizeof(struct timeval));
    disable_nagle(session.connection);
    if (!send_arguments(session.connection, argv + 4))
        return report_lost(argv[1], "the guest did not accept the command");
    int code = forward_streams(&session);
    return code == LOST ? report_lost(argv[1], "the connection was lost") : code;
}
