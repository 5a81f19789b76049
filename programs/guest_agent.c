// Guest agent: runs the commands that `guest_exec` sends from the guest's host (guest_protocol.h).
//
//   guest_agent PORT HOST
//
// It prints "tare-guest: agent of RELEASE", with the guest's kernel release, when it listens.

#define _GNU_SOURCE

#include "guest_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

struct session {
    int connection;
    int input, streams[2]; // the agent's ends of the command's pipes; -1 if closed
    int command;           // pidfd of the command: readable once it has ended
    pid_t pid;
    char input_buffer[MAX_FRAME]; // received bytes for the command's standard input
    size_t input_length;
    bool input_ended; // `guest_exec` sends no more input
};

static void close_fd(int *end) {
    if (*end >= 0)
        close(*end);
    *end = -1;
}

static bool send_frame(const struct session *session, char type, void *frame, size_t length) {
    struct frame_header header = {.type = type};
    memcpy(header.length, &(uint32_t){htonl((uint32_t)length)}, sizeof header.length);
    memcpy(frame, &header, HEADER_BYTES); // callers leave room for it in front of the data
    return send_all(session->connection, frame, HEADER_BYTES + length);
}

// Return false if the stream has no more data, or nobody reads the connection.
static bool forward_stream(struct session *session, int which) {
    char frame[HEADER_BYTES + MAX_FRAME];
    ssize_t length = read(session->streams[which], frame + HEADER_BYTES, MAX_FRAME);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (length > 0 && send_frame(session, which ? 'e' : 'o', frame, (size_t)length))
        return true;
    close_fd(&session->streams[which]);
    return false;
}

static void receive_input(struct session *session) {
    ssize_t length = recv(session->connection, session->input_buffer, sizeof session->input_buffer, 0);
    if (length > 0)
        session->input_length = (size_t)length;
    else if (length == 0 || errno != EINTR)
        session->input_ended = true;
}

static void write_input(struct session *session) {
    ssize_t written = write(session->input, session->input_buffer, session->input_length);
    if (written < 0 && errno != EAGAIN && errno != EINTR)
        close_fd(&session->input); // the command closed its standard input
    if (written > 0)
        memmove(session->input_buffer, session->input_buffer + written, session->input_length -= (size_t)written);
}

// Wait for events, and handle those of one poll; return false when the command has ended.
static bool poll_once(struct session *session) {
    if (session->input_ended && !session->input_length)
        close_fd(&session->input);
    if (session->input < 0)
        session->input_length = 0;
    struct pollfd ends[] = {
        {.fd = session->command, .events = POLLIN},
        {.fd = session->input_ended || session->input_length ? -1 : session->connection, .events = POLLIN},
        {.fd = session->input_length ? session->input : -1, .events = POLLOUT},
        {.fd = session->streams[0], .events = POLLIN},
        {.fd = session->streams[1], .events = POLLIN},
    };
    if (poll(ends, sizeof ends / sizeof *ends, -1) < 0)
        return true;
    for (int which = 0; which < 2; which++)
        if (ends[3 + which].revents)
            forward_stream(session, which);
    if (ends[1].revents)
        receive_input(session);
    if (ends[2].revents)
        write_input(session);
    return !ends[0].revents;
}

static void exec_command(char **argv, const int ends[3], pid_t parent) {
    for (int i = 0; i < 3; i++)
        dup2(ends[i], i);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // in case this process is killed
    if (getppid() != parent)
        _exit(126);
    execvp(argv[0], argv);
    int reason = errno;
    dprintf(STDERR_FILENO, "guest_agent: %s: %s\n", argv[0], strerror(reason));
    _exit(reason == ENOENT ? 127 : 126);
}

static bool start_command(struct session *session, char **argv) {
    int pipes[3][2];
    pid_t parent = getpid();
    if (pipe2(pipes[0], O_CLOEXEC) || pipe2(pipes[1], O_CLOEXEC) || pipe2(pipes[2], O_CLOEXEC))
        return false;
    session->pid = fork();
    if (session->pid == 0)
        exec_command(argv, (int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, parent);
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    session->input = pipes[0][1];
    session->streams[0] = pipes[1][0];
    session->streams[1] = pipes[2][0];
    fcntl(session->input, F_SETFL, O_NONBLOCK);
    fcntl(session->streams[0], F_SETFL, O_NONBLOCK);
    fcntl(session->streams[1], F_SETFL, O_NONBLOCK);
    session->command = session->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, session->pid, 0);
    return session->command >= 0;
}

// Forward what was printed before the command ended. Processes that it left behind may print forever.
static void forward_rest(struct session *session) {
    for (int which = 0; which < 2; which++) {
        int left = 0;
        if (session->streams[which] >= 0)
            ioctl(session->streams[which], FIONREAD, &left);
        for (left = (left + MAX_FRAME - 1) / MAX_FRAME; left > 0 && forward_stream(session, which); left--)
            continue;
    }
}

static void serve(int connection) {
    struct session session = {.connection = connection};
    static char *argv[MAX_ARGV_BYTES / 2 + 1];
    uint32_t length;
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    if (!receive_all(connection, &length, sizeof length) || (length = ntohl(length)) == 0 || length > MAX_ARGV_BYTES)
        return;
    char *arguments = calloc(1, length + 1);
    if (!arguments || !receive_all(connection, arguments, length) || arguments[length - 1])
        return;
    size_t count = 0;
    for (char *argument = arguments; argument < arguments + length && count < MAX_ARGV_BYTES / 2;
         argument += strlen(argument) + 1)
        argv[count++] = argument;
    argv[count] = NULL;
    if (!start_command(&session, argv))
        return;
    while (poll_once(&session))
        continue;
    forward_rest(&session);
    int status;
    waitpid(session.pid, &status, 0);
    char frame[HEADER_BYTES + 1];
    frame[HEADER_BYTES] = (char)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    send_frame(&session, 'x', frame, 1);
}

static bool is_trusted_peer(const struct sockaddr_in *peer, const struct sockaddr_in *host) {
    return peer->sin_addr.s_addr == host->sin_addr.s_addr && ntohs(peer->sin_port) < FIRST_UNPRIVILEGED_PORT;
}

int main(int argc, char **argv) {
    struct sockaddr_in host, any, peer;
    struct utsname kernel;
    if (argc != 3 || !parse_address(argv[2], argv[1], &host) || !parse_address("0.0.0.0", argv[1], &any)) {
        fputs("usage: guest_agent PORT HOST\n", stderr);
        return 2;
    }
    int listener = listen_on(&any, 0, 128);
    if (listener < 0) {
        perror("guest_agent: listen");
        return 1;
    }
    signal(SIGCHLD, SIG_IGN); // sessions are not waited for
    uname(&kernel);
    dprintf(STDOUT_FILENO, "tare-guest: agent of %s\n", kernel.release);
    for (;;) {
        int connection = accept4(listener, (struct sockaddr *)&peer, &(socklen_t){sizeof peer}, SOCK_CLOEXEC);
        if (connection < 0)
            continue;
        if (is_trusted_peer(&peer, &host) && fork() == 0) {
            close(listener);
            disable_nagle(connection);
            serve(connection);
            _exit(0);
        }
        close(connection);
    }
}
