// Prints how it was started, one thing a line, and ends with the code that
// `code=N` asks for; with `serve=PORT` it is a server, which answers every
// request with the same. It is linked statically, so that it can be the only
// file of an image.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static int compare(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

// Tells whether a terminal can be made, as `script` or a shell for somebody far
// away makes one.
static bool has_terminals(void) {
    int end = posix_openpt(O_RDWR | O_NOCTTY);
    const char *name = end >= 0 && unlockpt(end) == 0 ? ptsname(end) : NULL;
    return name && open(name, O_RDWR | O_NOCTTY) >= 0;
}

// Tells whether a program can talk to itself over the network.
static bool has_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0), asking = socket(AF_INET, SOCK_STREAM, 0);
    return bind(listening, (struct sockaddr *)&address, size) == 0 && listen(listening, 1) == 0 &&
           getsockname(listening, (struct sockaddr *)&address, &size) == 0 &&
           connect(asking, (struct sockaddr *)&address, size) == 0;
}

static void print_surroundings(FILE *out, int argc, char **argv) {
    gid_t groups[64];
    struct stat found;
    char folder[4096] = "?";
    size_t count = 0;
    int further = getgroups(64, groups);
    fprintf(out, "user %u %u %u %u\ngroups", getuid(), geteuid(), getgid(), getegid());
    for (int i = 0; i < further; i++)
        fprintf(out, " %u", groups[i]);
    fprintf(out, "\nfolder %s\n", getcwd(folder, sizeof folder));
    for (int i = 0; i < argc; i++)
        fprintf(out, "argument [%s]\n", argv[i]);
    while (environ[count])
        count++;
    qsort(environ, count, sizeof *environ, compare);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "TARE_RUN_", 9))
            fprintf(out, "variable [%s]\n", environ[i]);
    static const char *const paths[] = {"/proc/self", "/dev/null",  "/dev/shm",        "/dev/pts",
                                        "/dev/fd",    "/etc/hosts", "/etc/resolv.conf"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        fprintf(out, "%s %s\n", paths[i], stat(paths[i], &found) ? "missing" : "there");
    fprintf(out, "shared memory %s\n", access("/dev/shm", W_OK) ? "refused" : "allowed");
    fprintf(out, "terminals %s\n", has_terminals() ? "allowed" : "refused");
    fprintf(out, "loopback %s\n", has_loopback() ? "there" : "missing");
}

// Debian 12's gVisor says EAGAIN of sockets that block, too.
static ssize_t receive(int connection, char *target, size_t room) {
    ssize_t length;
    do
        length = read(connection, target, room);
    while (length < 0 && errno == EAGAIN);
    return length;
}

static void end(int number) {
    (void)!write(STDOUT_FILENO, "asked to end\n", 13);
    _exit(number == SIGUSR1 ? 0 : 1);
}

// Answers all requests of one connection after the other, until SIGUSR1 ends
// it.
static int serve(int port, const char *text) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int listening = socket(AF_INET, SOCK_STREAM, 0), yes = 1, connection;
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 16))
        return 1;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, end);
    while ((connection = accept(listening, NULL, NULL)) >= 0 || errno == EAGAIN) {
        char request[4096] = "";
        size_t length = 0;
        for (ssize_t more; (more = receive(connection, request + length, sizeof request - 1 - length)) > 0;) {
            request[length += (size_t)more] = '\0';
            if (!strstr(request, "\r\n\r\n"))
                continue;
            dprintf(connection, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(text), text);
            length = 0;
        }
        close(connection);
    }
    return 1;
}

int main(int argc, char **argv) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    const char *last = argv[argc - 1];
    if (!out)
        return 1;
    print_surroundings(out, argc, argv);
    fclose(out);
    if (strncmp(last, "serve=", 6) == 0)
        return serve(atoi(last + 6), text);
    fputs(text, stdout);
    return strncmp(last, "code=", 5) == 0 ? atoi(last + 5) : 0;
}
