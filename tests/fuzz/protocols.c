// What comes over the door's connection (-DDOOR), or on the resident process's standard input: any bytes. Whatever
// command they ask for, `cat` is started in its place.
//
//   clang -fsanitize=fuzzer,address,undefined [-DDOOR] protocols.c

#define _GNU_SOURCE

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define execvp(PROGRAM, ARGV) execl("/bin/cat", "cat", NULL)

#ifdef DOOR
#define main door_main
#include "../../programs/door.c"
#undef main
#else
#include "../../programs/resident.h"
#endif

enum { MOST = 1 << 15 }; // fits into a pipe

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

// The fuzzer has a thread of its own, which is not to take the signal of a child's end.
__attribute__((constructor)) static void keep_from_threads(void) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
}

// Gives a connection, or the end of a pipe, with all of the input and its end.
static int holding(const uint8_t *data, size_t length, int *other) {
    int ends[2];
    if (length > MOST)
        length = MOST;
#ifdef DOOR
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || send(ends[1], data, length, 0) != (ssize_t)length)
        abort();
    shutdown(ends[1], SHUT_WR);
    *other = ends[1]; // its answers are not read: they fit, too
#else
    if (pipe2(ends, O_CLOEXEC) || write(ends[1], data, length) != (ssize_t)length)
        abort();
    close(ends[1]);
    *other = -1;
#endif
    return ends[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
    int free_end = dup(STDIN_FILENO), other;
    close(free_end);
    int end = holding(data, length, &other);
#ifdef DOOR
    serve(end);
#else
    static struct resident here;
    memset(&here, 0, sizeof here);
    dup2(end, STDIN_FILENO);
    sigset_t none, before;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, &before);
    reside(&here);
    sigprocmask(SIG_SETMASK, &before, NULL); // it has a process to itself elsewhere
    for (int i = 0; i < SIGNALS; i++)
        signal(stopping[i], SIG_DFL);
    free(here.line);
    for (struct command *command = here.commands, *next; command; command = next) {
        next = command->next;
        free(command->waiting);
        free(command);
    }
#endif
    close_range((unsigned)free_end, ~0U, 0);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    return 0;
}
