// Sends HTTP requests to a server on a Unix socket, one after the other on one connection: the API of a monitor,
// without the 30 ms that curl takes to start.
//
//   unix_http SOCKET SECONDS [METHOD PATH BODY]...
//
// The server may start to listen later: connecting is repeated every millisecond, for SECONDS at most. There is no
// limit to the time for an answer. A status other than 2xx ends the program, with the body of the response on standard
// error. Exit codes: 0 if all requests have succeeded; 1 if not; 2 for wrong arguments.

#define _GNU_SOURCE

#include "clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FAILED = 1, WRONG_ARGUMENTS = 2, REQUEST_WORDS = 3, RESPONSE_BYTES = 65536 };

static const char *request_name = "";

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "unix_http: %s%s\n", request_name, what);
    exit(FAILED);
}

static int connect_within(const char *path, double seconds) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        fail("the path of the socket is too long");
    strcpy(address.sun_path, path);
    const double deadline = now_seconds() + seconds;
    for (;;) {
        const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (server < 0)
            fail(strerror(errno));
        if (connect(server, (struct sockaddr *)&address, sizeof address) == 0)
            return server;
        const int reason = errno;
        if ((reason != ENOENT && reason != ECONNREFUSED) || now_seconds() > deadline)
            fail(strerror(reason));
        close(server);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void send_all(int server, const char *text, size_t length) {
    while (length > 0) {
        const ssize_t sent = send(server, text, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            fail(strerror(errno));
        text += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
}

static void send_request(int server, const char *method, const char *path, const char *body) {
    char *text;
    const int length = asprintf(&text,
                                "%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
                                "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                                method, path, strlen(body), body);
    if (length < 0)
        fail("no memory");
    send_all(server, text, (size_t)length);
    free(text);
}

// Returns the length that a response's head names for its body, RESPONSE_BYTES at most; 0 if it names none.
static size_t body_length(const char *head) {
    static const char name[] = "\r\nContent-Length:";
    for (const char *line = head; (line = strstr(line, "\r\n")); line += 2)
        if (strncasecmp(line, name, sizeof name - 1) == 0) {
            const size_t length = strtoul(line + sizeof name - 1, NULL, 10);
            return length < RESPONSE_BYTES ? length : RESPONSE_BYTES;
        }
    return 0;
}

// Reads one response, which must be of success: no other follows it before the next request.
static void require_success(int server) {
    static char response[RESPONSE_BYTES + 1];
    const char *body = NULL;
    size_t length = 0, needed = 1;
    while (length < needed) {
        const ssize_t count = recv(server, response + length, RESPONSE_BYTES - length, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            fail(count < 0 ? strerror(errno) : "the server closed the connection");
        length += (size_t)count;
        response[length] = '\0';
        body = strstr(response, "\r\n\r\n");
        needed = length + 1;
        if (body) {
            body += 4;
            needed = (size_t)(body - response) + body_length(response);
        }
        if (needed > RESPONSE_BYTES)
            fail("the response is too long");
    }
    if (strncmp(response, "HTTP/1.", 7) != 0 || response[9] != '2')
        fail(*body ? body : response);
}

int main(int argc, char **argv) {
    char *end = "";
    const double seconds = argc > 2 ? strtod(argv[2], &end) : -1;
    if (*end || !(seconds >= 0) || (argc - 3) % REQUEST_WORDS != 0) {
        fputs("usage: unix_http SOCKET SECONDS [METHOD PATH BODY]...\n", stderr);
        return WRONG_ARGUMENTS;
    }
    const int server = connect_within(argv[1], seconds);
    for (char **words = argv + 3; *words; words += REQUEST_WORDS) {
        char *name;
        if (asprintf(&name, "%s %s: ", words[0], words[1]) < 0)
            fail("no memory");
        request_name = name;
        send_request(server, words[0], words[1], words[2]);
        require_success(server);
        free(name);
    }
    return 0;
}
