// One process that starts all others for a distant caller: a multiplexer of their streams over its own two.
//
// It takes lines, words apart by one space, every byte outside 0x21 to 0x7e, and '%', written as %XX:
//
//   start ID ARGV...   starts a command, which may be ended with `run` alone if it is to be ended with all its children
//   input ID TEXT      for its standard input
//   close ID           the end of its standard input
//   end ID             SIGTERM, and SIGKILL after 3 s
//   conditions 0       sets the conditions of all later commands (conditions.h)
//
// and gives lines:
//
//   ready
//   out ID TEXT, err ID TEXT
//   ended ID CODE USER_SECONDS SYSTEM_SECONDS   once all has been given that was printed when the command ended
//
// What a command leaves behind goes on, but prints for nobody. At the end of its standard input, or when a signal tells
// it to stop, all commands are ended in 3 s, and then it ends.

#ifndef TARE_RESIDENT_H
#define TARE_RESIDENT_H

#include "conditions.h"
#include "stopping.h"
#include "words.h"

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

enum { CHUNK = 8192, MOST_LINE = 3 * CHUNK + 64, WAITING = 8 * MOST_LINE, SHORT_LINE = 128, MOST_TAKEN = 8 << 20 };
#define ENDING_SECONDS 3.0

struct command {
    struct command *next;
    unsigned long id;
    pid_t pid;
    int input, streams[2]; // our ends; -1: closed
    int left[2];           // bytes that were in a stream when the command ended, and are still to be passed on
    char *waiting;         // for its standard input
    size_t waits, room;
    bool closes; // its standard input, once nothing waits
    bool ended;
    int status;
    struct rusage used;
    double killed_at; // INFINITY: it has not been asked to end
};

struct resident {
    struct command *commands;
    sigset_t unblocked;
    struct sigaction before[SIGNALS], pipe_before; // of signals, for the commands
    char *line;                                    // what has come of the next ones
    size_t length, room;
    char out[WAITING]; // what could not be written yet
    size_t waits;
    bool lost; // no caller reads or writes any more
};

static void *grown(void *block, size_t size) {
    void *larger = realloc(block, size);
    if (!larger) {
        fputs("run: no memory left\n", stderr);
        exit(1);
    }
    return larger;
}

static void close_end(int *end) {
    if (*end >= 0)
        close(*end);
    *end = -1;
}

// --- what is given ------------------------------------------------------------------------------------------------

static void flush_out(struct resident *here) {
    while (here->waits && !here->lost) {
        ssize_t written = write(STDOUT_FILENO, here->out, here->waits);
        if (written < 0 && errno == EAGAIN)
            return;
        if (written < 0 && errno != EINTR)
            here->lost = true;
        if (written > 0)
            memmove(here->out, here->out + written, here->waits -= (size_t)written);
    }
}

static size_t encode(char *target, const unsigned char *data, size_t length) {
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

static bool has_room(const struct resident *here, size_t size) {
    return WAITING - here->waits >= size;
}

static void print(struct resident *here, const struct command *command, int which, const void *data, size_t length) {
    char *end = here->out + here->waits;
    end += sprintf(end, "%s %lu ", which ? "err" : "out", command->id);
    end += encode(end, data, length);
    *end++ = '\n';
    here->waits = (size_t)(end - here->out);
}

// Passes on what a stream of a command has, at most one line of it. Gives false where it has nothing.
static bool pass_on(struct resident *here, struct command *command, int which) {
    char data[CHUNK];
    ssize_t length;
    do
        length = read(command->streams[which], data, sizeof data);
    while (length < 0 && errno == EINTR);
    if (length <= 0) {
        if (length == 0 || errno != EAGAIN)
            close_end(&command->streams[which]);
        return false;
    }
    command->left[which] -= (int)length;
    print(here, command, which, data, (size_t)length);
    return true;
}

// Gives false while something that was printed before the command ended has still to be passed on. What is printed
// later is not waited for: what the command has left behind may print for ever.
static bool is_drained(struct resident *here, struct command *command) {
    for (int which = 0; which < 2; which++) {
        while (command->left[which] > 0) {
            if (!has_room(here, MOST_LINE))
                return false;
            if (!pass_on(here, command, which))
                command->left[which] = 0;
        }
    }
    return has_room(here, SHORT_LINE);
}

static double in_seconds(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void tell_end(struct resident *here, const struct command *command) {
    int code = WIFEXITED(command->status) ? WEXITSTATUS(command->status) : 128 + WTERMSIG(command->status);
    here->waits += (size_t)sprintf(here->out + here->waits, "ended %lu %d %.6f %.6f\n", command->id, code,
                                   in_seconds(command->used.ru_utime), in_seconds(command->used.ru_stime));
}

// Tells of all commands that have ended, and forgets them.
static void tell_ends(struct resident *here) {
    for (struct command **place = &here->commands, *command; (command = *place);) {
        if (!command->ended || !is_drained(here, command)) {
            place = &command->next;
            continue;
        }
        tell_end(here, command);
        close_end(&command->input);
        close_end(&command->streams[0]);
        close_end(&command->streams[1]);
        *place = command->next;
        free(command->waiting);
        free(command);
    }
}

// --- commands -----------------------------------------------------------------------------------------------------

static void become_command(const struct resident *here, char **argv, const int ends[3], pid_t parent) {
    for (int i = 0; i < 3; i++)
        dup2(ends[i], i);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(stopping[i], &here->before[i], NULL);
    sigaction(SIGPIPE, &here->pipe_before, NULL);
    sigprocmask(SIG_SETMASK, &here->unblocked, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // should we be killed ourselves
    if (getppid() != parent)
        _exit(126);
    execvp(argv[0], argv);
    int reason = errno;
    dprintf(STDERR_FILENO, "run: %s: %s\n", argv[0], strerror(reason));
    _exit(reason == ENOENT ? 127 : 126);
}

// Gives the process, and our ends of its streams; -1 where the kernel refuses.
static pid_t fork_command(const struct resident *here, char **argv, struct command *command) {
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t pid = -1, parent = getpid();
    if (pipe2(pipes[0], O_CLOEXEC) == 0 && pipe2(pipes[1], O_CLOEXEC) == 0 && pipe2(pipes[2], O_CLOEXEC) == 0)
        pid = fork();
    int reason = errno;
    if (pid == 0)
        become_command(here, argv, (int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, parent);
    close_end(&pipes[0][0]);
    close_end(&pipes[1][1]);
    close_end(&pipes[2][1]);
    command->input = pipes[0][1];
    command->streams[0] = pipes[1][0];
    command->streams[1] = pipes[2][0];
    for (int i = 0; i < 3; i++)
        fcntl(i ? command->streams[i - 1] : command->input, F_SETFL, O_NONBLOCK);
    errno = reason;
    return pid;
}

static void start_command(struct resident *here, unsigned long id, char **argv) {
    struct command *command = grown(NULL, sizeof *command);
    *command = (struct command){.next = here->commands, .id = id, .killed_at = INFINITY};
    command->pid = fork_command(here, argv, command);
    if (command->pid < 0) {
        char words[SHORT_LINE];
        int length = snprintf(words, sizeof words, "run: %.40s: %s\n", argv[0], strerror(errno));
        if (has_room(here, MOST_LINE))
            print(here, command, 1, words, (size_t)length);
        command->ended = true;
        command->status = 126 << 8;
    }
    here->commands = command;
}

static void reap_commands(struct resident *here) {
    int status;
    struct rusage used;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG | __WALL, &used)) > 0;) {
        struct command *command = here->commands;
        while (command && (command->ended || command->pid != pid))
            command = command->next;
        if (!command)
            continue; // of who was here before us
        command->ended = true;
        command->status = status;
        command->used = used;
        for (int which = 0; which < 2; which++)
            if (command->streams[which] >= 0 && ioctl(command->streams[which], FIONREAD, &command->left[which]))
                command->left[which] = 1 << 30; // as much as comes
    }
}

static void give_input(struct command *command) {
    while (command->waits && command->input >= 0) {
        ssize_t written = write(command->input, command->waiting, command->waits);
        if (written < 0 && errno == EAGAIN)
            return;
        if (written < 0 && errno != EINTR)
            close_end(&command->input); // it reads no more
        if (written > 0)
            memmove(command->waiting, command->waiting + written, command->waits -= (size_t)written);
    }
    if (command->closes)
        close_end(&command->input);
}

static void keep_input(struct command *command, const char *data, size_t length) {
    if (length == 0)
        return;
    if (command->room < command->waits + length)
        command->waiting = grown(command->waiting, command->room = 2 * (command->waits + length));
    memcpy(command->waiting + command->waits, data, length);
    command->waits += length;
}

static void end_command(struct command *command) {
    if (command->ended)
        return;
    kill(command->pid, SIGTERM);
    if (command->killed_at == INFINITY)
        command->killed_at = now_seconds() + ENDING_SECONDS;
}

// --- what comes ---------------------------------------------------------------------------------------------------

static char **split(char *text) {
    size_t count = 1;
    for (const char *letter = text; *letter; letter++)
        count += *letter == ' ';
    char **words = grown(NULL, (count + 1) * sizeof *words);
    for (size_t i = 0; i < count; i++) {
        words[i] = strsep(&text, " ");
        decode(words[i]);
    }
    words[count] = NULL;
    return words;
}

static struct command *find(const struct resident *here, unsigned long id) {
    struct command *command = here->commands;
    while (command && command->id != id)
        command = command->next;
    return command;
}

// Lets commands begin with every signal at its default: what called us, such as nohup, may have ignored some.
static void reset_signals(struct resident *here) {
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN && number != SIGPIPE)
            sigaction(number, &usual, NULL);
    }
    // The C library keeps two signals for itself and does not let its callers reset them, but they can be inherited.
    static const struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } kernels = {0};
    for (int number = 32; number <= 33; number++)
        syscall(SYS_rt_sigaction, number, &kernels, NULL, sizeof kernels.mask);
    for (int i = 0; i < SIGNALS; i++)
        here->before[i] = usual;
    here->pipe_before = usual;
    sigemptyset(&here->unblocked);
}

// Gives false for a line that is none of ours.
static bool obey(struct resident *here, char *line) {
    char *verb = strsep(&line, " "), *number = strsep(&line, " "), *end = "x";
    unsigned long id = number ? strtoul(number, &end, 10) : 0;
    if (*end)
        return false;
    if (strcmp(verb, "start") == 0 && line) {
        char **argv = split(line);
        start_command(here, id, argv);
        free(argv);
        return true;
    }
    if (strcmp(verb, "conditions") == 0) {
        set_conditions();
        reset_signals(here);
        return true;
    }
    struct command *command = find(here, id); // NULL: it has ended meanwhile
    if (strcmp(verb, "input") == 0 && line) {
        size_t length = decode(line);
        if (command && !command->ended)
            keep_input(command, line, length);
    } else if (strcmp(verb, "close") == 0) {
        if (command)
            command->closes = true;
    } else if (strcmp(verb, "end") == 0) {
        if (command)
            end_command(command);
    } else {
        return false;
    }
    if (command)
        give_input(command);
    return true;
}

static void take_lines(struct resident *here) {
    if (here->length > MOST_TAKEN) {
        fputs("run: a line has no end\n", stderr);
        here->lost = true;
        return;
    }
    if (here->room - here->length < CHUNK)
        here->line = grown(here->line, here->room = 2 * here->room + 2 * CHUNK);
    ssize_t length = read(STDIN_FILENO, here->line + here->length, here->room - here->length - 1);
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        here->lost = true;
    if (length <= 0)
        return;
    char *rest = here->line, *from = here->line + here->length, *end;
    here->length += (size_t)length;
    while ((end = memchr(from, '\n', here->length - (size_t)(from - here->line)))) {
        *end = '\0';
        if (!obey(here, rest)) {
            fprintf(stderr, "run: not a line for a resident: %.60s\n", rest);
            here->lost = true;
            return;
        }
        rest = from = end + 1;
    }
    memmove(here->line, rest, here->length -= (size_t)(rest - here->line));
}

// --- the loop -----------------------------------------------------------------------------------------------------

static double kill_late(struct resident *here) {
    double next = INFINITY, now = now_seconds();
    for (struct command *command = here->commands; command; command = command->next) {
        if (command->ended)
            continue;
        if (command->killed_at <= now) {
            kill(command->pid, SIGKILL);
            command->killed_at = INFINITY;
        }
        if (next > command->killed_at - now)
            next = command->killed_at - now;
    }
    return next;
}

static void wait_some(struct pollfd *ends, nfds_t count, double seconds, const sigset_t *unblocked) {
    struct timespec wait = {0};
    if (seconds < INFINITY)
        wait = (struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (ppoll(ends, count, seconds < INFINITY ? &wait : NULL, unblocked) < 0)
        for (nfds_t i = 0; i < count; i++)
            ends[i].revents = 0;
}

// Waits until something can be done, and does it.
static void turn(struct resident *here, double seconds) {
    size_t count = 2;
    for (const struct command *command = here->commands; command; command = command->next)
        count += 3;
    struct pollfd *ends = grown(NULL, count * sizeof *ends), *end = ends + 2;
    ends[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    ends[1] = (struct pollfd){.fd = here->waits ? STDOUT_FILENO : -1, .events = POLLOUT};
    for (const struct command *command = here->commands; command; command = command->next) {
        bool reads = has_room(here, MOST_LINE);
        *end++ = (struct pollfd){.fd = reads ? command->streams[0] : -1, .events = POLLIN};
        *end++ = (struct pollfd){.fd = reads ? command->streams[1] : -1, .events = POLLIN};
        *end++ = (struct pollfd){.fd = command->waits ? command->input : -1, .events = POLLOUT};
    }
    wait_some(ends, count, seconds, &here->unblocked);
    end = ends + 2;
    for (struct command *command = here->commands; command; command = command->next, end += 3) {
        for (int which = 0; which < 2; which++)
            if (end[which].revents && has_room(here, MOST_LINE))
                pass_on(here, command, which);
        if (end[2].revents)
            give_input(command);
    }
    if (ends[0].revents) // it may start commands: after those that were looked at
        take_lines(here);
    free(ends);
}

static void end_all(struct resident *here) {
    double deadline = now_seconds() + ENDING_SECONDS, left;
    for (struct command *command = here->commands; command; command = command->next)
        end_command(command);
    for (;;) {
        bool running = false;
        reap_commands(here);
        for (struct command *command = here->commands; command; command = command->next)
            running |= !command->ended;
        if (!running || (left = deadline - now_seconds()) <= 0)
            break;
        wait_some(NULL, 0, left, &here->unblocked);
    }
    for (struct command *command = here->commands; command; command = command->next)
        if (!command->ended)
            kill(command->pid, SIGKILL);
}

static int reside(struct resident *here) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    note_signals(here->before, &here->unblocked);
    sigaction(SIGPIPE, &ignore, &here->pipe_before);
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    here->waits = (size_t)sprintf(here->out, "ready\n");
    while (!here->lost && !stopped_by) {
        reap_commands(here);
        tell_ends(here);
        flush_out(here);
        if (!here->lost)
            turn(here, kill_late(here));
    }
    end_all(here);
    return stopped_by ? 128 + stopped_by : 0;
}

#endif
