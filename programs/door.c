// The way into a guest, for its host: starts the commands that `reach` sends (door.h).
//
//   door PORT HOST
//
// "tare-guest: door of RELEASE" on standard output says that it listens, and what the guest's kernel is.

#define _GNU_SOURCE

#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

struct porter {
    int connection;
    int input, streams[2]; // our ends of the command's; -1: closed
    int command;           // a file descriptor that can be read once it has ended
    pid_t pid;
    char waiting[PIECE]; // for its standard input
    size_t waits;
    bool deaf; // `reach` sends no more
};

static void close_end(int *end) {
    if (*end >= 0)
        close(*end);
    *end = -1;
}

static bool send_piece(const struct porter *here, char letter, void *piece, size_t length) {
    struct head head = {.letter = letter};
    memcpy(head.length, &(uint32_t){htonl((uint32_t)length)}, sizeof head.length);
    memcpy(piece, &head, HEAD); // before its bytes
    return send_all(here->connection, piece, HEAD + length);
}

// Gives false where the stream has nothing more, or nobody to take it.
static bool pass_on(struct porter *here, int which) {
    char piece[HEAD + PIECE];
    ssize_t length = read(here->streams[which], piece + HEAD, PIECE);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (length > 0 && send_piece(here, which ? 'e' : 'o', piece, (size_t)length))
        return true;
    close_end(&here->streams[which]);
    return false;
}

static void take_input(struct porter *here) {
    ssize_t length = recv(here->connection, here->waiting, sizeof here->waiting, 0);
    if (length > 0)
        here->waits = (size_t)length;
    else if (length == 0 || errno != EINTR)
        here->deaf = true;
}

static void give_input(struct porter *here) {
    ssize_t written = write(here->input, here->waiting, here->waits);
    if (written < 0 && errno != EAGAIN && errno != EINTR)
        close_end(&here->input); // it reads no more
    if (written > 0)
        memmove(here->waiting, here->waiting + written, here->waits -= (size_t)written);
}

// Gives false when the command has ended.
static bool turn(struct porter *here) {
    if (here->deaf && !here->waits)
        close_end(&here->input);
    if (here->input < 0)
        here->waits = 0;
    struct pollfd ends[] = {
        {.fd = here->command, .events = POLLIN},
        {.fd = here->deaf || here->waits ? -1 : here->connection, .events = POLLIN},
        {.fd = here->waits ? here->input : -1, .events = POLLOUT},
        {.fd = here->streams[0], .events = POLLIN},
        {.fd = here->streams[1], .events = POLLIN},
    };
    if (poll(ends, sizeof ends / sizeof *ends, -1) < 0)
        return true;
    for (int which = 0; which < 2; which++)
        if (ends[3 + which].revents)
            pass_on(here, which);
    if (ends[1].revents)
        take_input(here);
    if (ends[2].revents)
        give_input(here);
    return !ends[0].revents;
}

static void become_command(char **argv, const int ends[3], pid_t parent) {
    for (int i = 0; i < 3; i++)
        dup2(ends[i], i);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // should the porter be killed
    if (getppid() != parent)
        _exit(126);
    execvp(argv[0], argv);
    int reason = errno;
    dprintf(STDERR_FILENO, "door: %s: %s\n", argv[0], strerror(reason));
    _exit(reason == ENOENT ? 127 : 126);
}

static bool start(struct porter *here, char **argv) {
    int pipes[3][2];
    pid_t parent = getpid();
    if (pipe2(pipes[0], O_CLOEXEC) || pipe2(pipes[1], O_CLOEXEC) || pipe2(pipes[2], O_CLOEXEC))
        return false;
    here->pid = fork();
    if (here->pid == 0)
        become_command(argv, (int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, parent);
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    here->input = pipes[0][1];
    here->streams[0] = pipes[1][0];
    here->streams[1] = pipes[2][0];
    fcntl(here->input, F_SETFL, O_NONBLOCK);
    fcntl(here->streams[0], F_SETFL, O_NONBLOCK);
    fcntl(here->streams[1], F_SETFL, O_NONBLOCK);
    here->command = here->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, here->pid, 0);
    return here->command >= 0;
}

// What was printed when the command ended is passed on; what it has left behind may print for ever.
static void pass_on_the_rest(struct porter *here) {
    for (int which = 0; which < 2; which++) {
        int left = 0;
        if (here->streams[which] >= 0)
            ioctl(here->streams[which], FIONREAD, &left);
        for (left = (left + PIECE - 1) / PIECE; left > 0 && pass_on(here, which); left--)
            continue;
    }
}

static void serve(int connection) {
    struct porter here = {.connection = connection};
    static char *argv[MOST_WORDS / 2 + 1];
    uint32_t length;
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    if (!receive_all(connection, &length, sizeof length) || (length = ntohl(length)) == 0 || length > MOST_WORDS)
        return;
    char *words = calloc(1, length + 1);
    if (!words || !receive_all(connection, words, length) || words[length - 1])
        return;
    size_t count = 0;
    for (char *word = words; word < words + length && count < MOST_WORDS / 2; word += strlen(word) + 1)
        argv[count++] = word;
    argv[count] = NULL;
    if (!start(&here, argv))
        return;
    while (turn(&here))
        continue;
    pass_on_the_rest(&here);
    int status;
    waitpid(here.pid, &status, 0);
    char piece[HEAD + 1];
    piece[HEAD] = (char)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    send_piece(&here, 'x', piece, 1);
}

static bool is_host(const struct sockaddr_in *peer, const struct sockaddr_in *host) {
    return peer->sin_addr.s_addr == host->sin_addr.s_addr && ntohs(peer->sin_port) < FIRST_FREE_PORT;
}

int main(int argc, char **argv) {
    struct sockaddr_in host, any, peer;
    struct utsname kernel;
    if (argc != 3 || !parse_place(argv[2], argv[1], &host) || !parse_place("0.0.0.0", argv[1], &any)) {
        fputs("usage: door PORT HOST\n", stderr);
        return 2;
    }
    int listener = listen_at(&any, 0, 128);
    if (listener < 0) {
        perror("door: listen");
        return 1;
    }
    signal(SIGCHLD, SIG_IGN); // no process waits for a porter
    uname(&kernel);
    dprintf(STDOUT_FILENO, "tare-guest: door of %s\n", kernel.release);
    for (;;) {
        int connection = accept4(listener, (struct sockaddr *)&peer, &(socklen_t){sizeof peer}, SOCK_CLOEXEC);
        if (connection < 0)
            continue;
        if (is_host(&peer, &host) && fork() == 0) {
            close(listener);
            send_at_once(connection);
            serve(connection);
            _exit(0);
        }
        close(connection);
    }
}
