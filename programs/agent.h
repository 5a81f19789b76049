// Resident agent: starts commands for a remote caller, and multiplexes their streams over its own standard streams.
//
// It reads lines of words separated by one space; escape.h has the encoding of the words:
//
//   start ID ARGV...   start a command; with `supervise` in front, its children end with it
//   input ID TEXT      write to the command's standard input
//   close ID           close the command's standard input
//   end ID             send SIGTERM, and SIGKILL after 3 s
//   conditions 0       set the conditions of all later commands (conditions.h)
//
// It writes lines:
//
//   ready
//   out ID TEXT, err ID TEXT
//   ended ID CODE USER_SECONDS SYSTEM_SECONDS   after all output that the command printed before it ended
//
// Processes that a command leaves behind continue, and their output is discarded. When its standard input ends, or on
// a stop signal, the agent terminates all commands within 3 s and exits.

#ifndef TARE_AGENT_H
#define TARE_AGENT_H

#include "conditions.h"
#include "escape.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 8192, MAX_LINE = 3 * CHUNK + 64, OUTPUT_BYTES = 8 * MAX_LINE, STATUS_LINE = 128, MAX_INPUT = 8 << 20 };
#define KILL_DELAY_SECONDS 3.0

struct command {
    struct command *next;
    unsigned long id;
    pid_t pid;
    int input, streams[2]; // the agent's ends of the pipes; -1 if closed
    int unread[2];         // bytes that were in a stream when the command ended, and must still be forwarded
    char *input_buffer;    // bytes for its standard input that the pipe had no room for
    size_t input_length, input_capacity;
    bool close_requested; // close its standard input once the buffer is empty
    bool ended;
    int status;
    struct rusage usage;
    double kill_at; // INFINITY if it has not been terminated
};

struct agent {
    struct command *commands;
    sigset_t unblocked;
    struct sigaction inherited[STOP_SIGNALS], inherited_sigpipe; // restored in each command
    char *buffer;                                                // received bytes of incomplete lines
    size_t length, capacity;
    char output[OUTPUT_BYTES]; // bytes that standard output had no room for
    size_t output_length;
    bool disconnected; // the caller no longer reads or writes
};

static void *reallocate(void *block, size_t size) {
    void *larger = realloc(block, size);
    if (!larger) {
        fputs("supervise: out of memory\n", stderr);
        exit(1);
    }
    return larger;
}

static void close_fd(int *end) {
    if (*end >= 0)
        close(*end);
    *end = -1;
}

// --- output -------------------------------------------------------------------------------------------------------

static void flush_output(struct agent *agent) {
    while (agent->output_length && !agent->disconnected) {
        ssize_t written = write(STDOUT_FILENO, agent->output, agent->output_length);
        if (written < 0 && errno == EAGAIN)
            return;
        if (written < 0 && errno != EINTR)
            agent->disconnected = true;
        if (written > 0)
            memmove(agent->output, agent->output + written, agent->output_length -= (size_t)written);
    }
}

static size_t escape(char *target, const unsigned char *data, size_t length) {
    static const char digits[] = "0123456789ABCDEF";
    char *end = target;
    for (size_t i = 0; i < length; i++) {
        if (data[i] > 0x20 && data[i] < 0x7f && data[i] != '%') {
            *end++ = (char)data[i];
        } else {
            *end++ = '%';
            *end++ = digits[data[i] >> 4];
            *end++ = digits[data[i] & 15];
        }
    }
    return (size_t)(end - target);
}

static bool has_room(const struct agent *agent, size_t size) {
    return OUTPUT_BYTES - agent->output_length >= size;
}

static void queue_line(struct agent *agent, const struct command *command, int which, const void *data, size_t length) {
    char *end = agent->output + agent->output_length;
    end += sprintf(end, "%s %lu ", which ? "err" : "out", command->id);
    end += escape(end, data, length);
    *end++ = '\n';
    agent->output_length = (size_t)(end - agent->output);
}

// Forward at most one chunk of a command's stream, as one line; return false if nothing can be read.
static bool forward_stream(struct agent *agent, struct command *command, int which) {
    char data[CHUNK];
    ssize_t length;
    do
        length = read(command->streams[which], data, sizeof data);
    while (length < 0 && errno == EINTR);
    if (length <= 0) {
        if (length == 0 || errno != EAGAIN)
            close_fd(&command->streams[which]);
        return false;
    }
    command->unread[which] -= (int)length;
    queue_line(agent, command, which, data, (size_t)length);
    return true;
}

// Return false while output that was printed before the command ended must still be forwarded. Later output is not
// awaited: processes that the command left behind may print forever.
static bool is_drained(struct agent *agent, struct command *command) {
    for (int which = 0; which < 2; which++) {
        while (command->unread[which] > 0) {
            if (!has_room(agent, MAX_LINE))
                return false;
            if (!forward_stream(agent, command, which))
                command->unread[which] = 0;
        }
    }
    return has_room(agent, STATUS_LINE);
}

static double to_seconds(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void report_exit(struct agent *agent, const struct command *command) {
    int code = WIFEXITED(command->status) ? WEXITSTATUS(command->status) : 128 + WTERMSIG(command->status);
    agent->output_length +=
        (size_t)sprintf(agent->output + agent->output_length, "ended %lu %d %.6f %.6f\n", command->id, code,
                        to_seconds(command->usage.ru_utime), to_seconds(command->usage.ru_stime));
}

// Report and free all commands that have ended and whose output is forwarded.
static void report_exits(struct agent *agent) {
    for (struct command **place = &agent->commands, *command; (command = *place);) {
        if (!command->ended || !is_drained(agent, command)) {
            place = &command->next;
            continue;
        }
        report_exit(agent, command);
        close_fd(&command->input);
        close_fd(&command->streams[0]);
        close_fd(&command->streams[1]);
        *place = command->next;
        free(command->input_buffer);
        free(command);
    }
}

// --- commands -----------------------------------------------------------------------------------------------------

static void exec_command(const struct agent *agent, char **argv, const int ends[3], pid_t parent) {
    for (int i = 0; i < 3; i++)
        dup2(ends[i], i);
    for (int i = 0; i < STOP_SIGNALS; i++)
        sigaction(stop_signals[i], &agent->inherited[i], NULL);
    sigaction(SIGPIPE, &agent->inherited_sigpipe, NULL);
    sigprocmask(SIG_SETMASK, &agent->unblocked, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // in case the agent is killed
    if (getppid() != parent)
        _exit(126);
    execvp(argv[0], argv);
    int reason = errno;
    dprintf(STDERR_FILENO, "supervise: %s: %s\n", argv[0], strerror(reason));
    _exit(reason == ENOENT ? 127 : 126);
}

// Return the process ID and set the agent's ends of the pipes; return -1 with errno if the kernel refuses.
static pid_t fork_command(const struct agent *agent, char **argv, struct command *command) {
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t pid = -1, parent = getpid();
    if (pipe2(pipes[0], O_CLOEXEC) == 0 && pipe2(pipes[1], O_CLOEXEC) == 0 && pipe2(pipes[2], O_CLOEXEC) == 0)
        pid = fork();
    int reason = errno;
    if (pid == 0)
        exec_command(agent, argv, (int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, parent);
    close_fd(&pipes[0][0]);
    close_fd(&pipes[1][1]);
    close_fd(&pipes[2][1]);
    command->input = pipes[0][1];
    command->streams[0] = pipes[1][0];
    command->streams[1] = pipes[2][0];
    for (int i = 0; i < 3; i++)
        fcntl(i ? command->streams[i - 1] : command->input, F_SETFL, O_NONBLOCK);
    errno = reason;
    return pid;
}

static void start_command(struct agent *agent, unsigned long id, char **argv) {
    struct command *command = reallocate(NULL, sizeof *command);
    *command = (struct command){.next = agent->commands, .id = id, .kill_at = INFINITY};
    command->pid = fork_command(agent, argv, command);
    if (command->pid < 0) {
        char words[STATUS_LINE];
        int length = snprintf(words, sizeof words, "supervise: %.40s: %s\n", argv[0], strerror(errno));
        if (has_room(agent, MAX_LINE))
            queue_line(agent, command, 1, words, (size_t)length);
        command->ended = true;
        command->status = 126 << 8;
    }
    agent->commands = command;
}

static void reap_commands(struct agent *agent) {
    int status;
    struct rusage used;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG | __WALL, &used)) > 0;) {
        struct command *command = agent->commands;
        while (command && (command->ended || command->pid != pid))
            command = command->next;
        if (!command)
            continue; // a child that this process had before it became the agent
        command->ended = true;
        command->status = status;
        command->usage = used;
        for (int which = 0; which < 2; which++)
            if (command->streams[which] >= 0 && ioctl(command->streams[which], FIONREAD, &command->unread[which]))
                command->unread[which] = 1 << 30; // the amount is unknown: read until the stream is empty
    }
}

static void write_input(struct command *command) {
    while (command->input_length && command->input >= 0) {
        ssize_t written = write(command->input, command->input_buffer, command->input_length);
        if (written < 0 && errno == EAGAIN)
            return;
        if (written < 0 && errno != EINTR)
            close_fd(&command->input); // the command closed its standard input
        if (written > 0)
            memmove(command->input_buffer, command->input_buffer + written, command->input_length -= (size_t)written);
    }
    if (command->close_requested)
        close_fd(&command->input);
}

static void buffer_input(struct command *command, const char *data, size_t length) {
    if (length == 0)
        return;
    if (command->input_capacity < command->input_length + length)
        command->input_buffer =
            reallocate(command->input_buffer, command->input_capacity = 2 * (command->input_length + length));
    memcpy(command->input_buffer + command->input_length, data, length);
    command->input_length += length;
}

static void terminate_command(struct command *command) {
    if (command->ended)
        return;
    kill(command->pid, SIGTERM);
    if (command->kill_at == INFINITY)
        command->kill_at = now_seconds() + KILL_DELAY_SECONDS;
}

// --- input --------------------------------------------------------------------------------------------------------

static char **split(char *text) {
    size_t count = 1;
    for (const char *letter = text; *letter; letter++)
        count += *letter == ' ';
    char **words = reallocate(NULL, (count + 1) * sizeof *words);
    for (size_t i = 0; i < count; i++) {
        words[i] = strsep(&text, " ");
        unescape(words[i]);
    }
    words[count] = NULL;
    return words;
}

static struct command *find(const struct agent *agent, unsigned long id) {
    struct command *command = agent->commands;
    while (command && command->id != id)
        command = command->next;
    return command;
}

// Start commands with every signal at its default: tare's caller, such as nohup, may have ignored some.
static void reset_signals(struct agent *agent) {
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN && number != SIGPIPE)
            sigaction(number, &usual, NULL);
    }
    // glibc reserves two signals and refuses to reset them, but they can be inherited as ignored.
    static const struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } kernels = {0};
    for (int number = 32; number <= 33; number++)
        syscall(SYS_rt_sigaction, number, &kernels, NULL, sizeof kernels.mask);
    for (int i = 0; i < STOP_SIGNALS; i++)
        agent->inherited[i] = usual;
    agent->inherited_sigpipe = usual;
    sigemptyset(&agent->unblocked);
}

// Return false for an invalid line.
static bool handle_line(struct agent *agent, char *line) {
    char *verb = strsep(&line, " "), *number = strsep(&line, " "), *end = "x";
    unsigned long id = number ? strtoul(number, &end, 10) : 0;
    if (*end)
        return false;
    if (strcmp(verb, "start") == 0 && line) {
        char **argv = split(line);
        start_command(agent, id, argv);
        free(argv);
        return true;
    }
    if (strcmp(verb, "conditions") == 0) {
        set_conditions();
        reset_signals(agent);
        return true;
    }
    struct command *command = find(agent, id); // NULL if it has ended meanwhile
    if (strcmp(verb, "input") == 0 && line) {
        size_t length = unescape(line);
        if (command && !command->ended)
            buffer_input(command, line, length);
    } else if (strcmp(verb, "close") == 0) {
        if (command)
            command->close_requested = true;
    } else if (strcmp(verb, "end") == 0) {
        if (command)
            terminate_command(command);
    } else {
        return false;
    }
    if (command)
        write_input(command);
    return true;
}

static void read_lines(struct agent *agent) {
    if (agent->length > MAX_INPUT) {
        fputs("supervise: line too long\n", stderr);
        agent->disconnected = true;
        return;
    }
    if (agent->capacity - agent->length < CHUNK)
        agent->buffer = reallocate(agent->buffer, agent->capacity = 2 * agent->capacity + 2 * CHUNK);
    ssize_t length = read(STDIN_FILENO, agent->buffer + agent->length, agent->capacity - agent->length - 1);
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        agent->disconnected = true;
    if (length <= 0)
        return;
    char *rest = agent->buffer, *from = agent->buffer + agent->length, *end;
    agent->length += (size_t)length;
    while ((end = memchr(from, '\n', agent->length - (size_t)(from - agent->buffer)))) {
        *end = '\0';
        if (!handle_line(agent, rest)) {
            fprintf(stderr, "supervise: invalid line: %.60s\n", rest);
            agent->disconnected = true;
            return;
        }
        rest = from = end + 1;
    }
    memmove(agent->buffer, rest, agent->length -= (size_t)(rest - agent->buffer));
}

// --- event loop ---------------------------------------------------------------------------------------------------

static double kill_overdue(struct agent *agent) {
    double next = INFINITY, now = now_seconds();
    for (struct command *command = agent->commands; command; command = command->next) {
        if (command->ended)
            continue;
        if (command->kill_at <= now) {
            kill(command->pid, SIGKILL);
            command->kill_at = INFINITY;
        }
        if (next > command->kill_at - now)
            next = command->kill_at - now;
    }
    return next;
}

static void wait_for_events(struct pollfd *ends, nfds_t count, double seconds, const sigset_t *unblocked) {
    struct timespec wait = {0};
    if (seconds < INFINITY)
        wait = (struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (ppoll(ends, count, seconds < INFINITY ? &wait : NULL, unblocked) < 0)
        for (nfds_t i = 0; i < count; i++)
            ends[i].revents = 0;
}

// Wait for events, and handle those of one poll.
static void poll_once(struct agent *agent, double seconds) {
    size_t count = 2;
    for (const struct command *command = agent->commands; command; command = command->next)
        count += 3;
    struct pollfd *ends = reallocate(NULL, count * sizeof *ends), *end = ends + 2;
    ends[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    ends[1] = (struct pollfd){.fd = agent->output_length ? STDOUT_FILENO : -1, .events = POLLOUT};
    for (const struct command *command = agent->commands; command; command = command->next) {
        bool reads = has_room(agent, MAX_LINE);
        *end++ = (struct pollfd){.fd = reads ? command->streams[0] : -1, .events = POLLIN};
        *end++ = (struct pollfd){.fd = reads ? command->streams[1] : -1, .events = POLLIN};
        *end++ = (struct pollfd){.fd = command->input_length ? command->input : -1, .events = POLLOUT};
    }
    wait_for_events(ends, count, seconds, &agent->unblocked);
    end = ends + 2;
    for (struct command *command = agent->commands; command; command = command->next, end += 3) {
        for (int which = 0; which < 2; which++)
            if (end[which].revents && has_room(agent, MAX_LINE))
                forward_stream(agent, command, which);
        if (end[2].revents)
            write_input(command);
    }
    if (ends[0].revents) // last, because it may start commands, which `ends` does not have
        read_lines(agent);
    free(ends);
}

static void terminate_all(struct agent *agent) {
    double deadline = now_seconds() + KILL_DELAY_SECONDS, left;
    for (struct command *command = agent->commands; command; command = command->next)
        terminate_command(command);
    for (;;) {
        bool running = false;
        reap_commands(agent);
        for (struct command *command = agent->commands; command; command = command->next)
            running |= !command->ended;
        if (!running || (left = deadline - now_seconds()) <= 0)
            break;
        wait_for_events(NULL, 0, left, &agent->unblocked);
    }
    for (struct command *command = agent->commands; command; command = command->next)
        if (!command->ended)
            kill(command->pid, SIGKILL);
}

static int run_agent(struct agent *agent) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    catch_signals(agent->inherited, &agent->unblocked);
    sigaction(SIGPIPE, &ignore, &agent->inherited_sigpipe);
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    agent->output_length = (size_t)sprintf(agent->output, "ready\n");
    while (!agent->disconnected && !received_signal) {
        reap_commands(agent);
        report_exits(agent);
        flush_output(agent);
        if (!agent->disconnected)
            poll_once(agent, kill_overdue(agent));
    }
    terminate_all(agent);
    return received_signal ? 128 + received_signal : 0;
}

#endif
