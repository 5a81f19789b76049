// Fuzz target: arbitrary bytes on a connection to the guest agent (-DGUEST_AGENT), or on the standard input of the
// resident agent. `cat` replaces every requested command.
//
//   clang -fsanitize=fuzzer,address,undefined [-DGUEST_AGENT] protocols.c

#define _GNU_SOURCE

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define execvp(PROGRAM, ARGV) execl("/bin/cat", "cat", NULL)

#ifdef GUEST_AGENT
#define main guest_agent_main
#include "../../programs/guest_agent.c"
#undef main
#else
#include "../../programs/agent.h"
#endif

enum { MOST = 1 << 15 }; // fits into a pipe

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

// The fuzzer has its own thread, which must not receive SIGCHLD.
__attribute__((constructor)) static void block_child_signal(void) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
}

// Return a connection, or the end of a pipe, that holds all of the input and then ends.
static int create_input(const uint8_t *data, size_t length, int *other) {
    int ends[2];
    if (length > MOST)
        length = MOST;
#ifdef GUEST_AGENT
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || send(ends[1], data, length, 0) != (ssize_t)length)
        abort();
    shutdown(ends[1], SHUT_WR);
    *other = ends[1]; // the replies are not read, and fit into its buffer
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
    int end = create_input(data, length, &other);
#ifdef GUEST_AGENT
    serve(end);
#else
    static struct agent agent;
    memset(&agent, 0, sizeof agent);
    dup2(end, STDIN_FILENO);
    sigset_t none, before;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, &before);
    run_agent(&agent);
    sigprocmask(SIG_SETMASK, &before, NULL); // outside of the fuzzer, the agent is a separate process
    for (int i = 0; i < STOP_SIGNALS; i++)
        signal(stop_signals[i], SIG_DFL);
    free(agent.buffer);
    for (struct command *command = agent.commands, *next; command; command = next) {
        next = command->next;
        free(command->input_buffer);
        free(command);
    }
#endif
    close_range((unsigned)free_end, ~0U, 0);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    return 0;
}
