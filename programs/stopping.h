// The signals that tell one of our programs to stop, and that a child has ended: noted, and waited for with ppoll.

#ifndef TARE_STOPPING_H
#define TARE_STOPPING_H

#include <signal.h>
#include <time.h>

enum { SIGNALS = 3 };

static const int stopping[SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
static volatile sig_atomic_t stopped_by;

static void note_signal(int number) {
    if (number != SIGCHLD)
        stopped_by = number;
}

// Blocks them, but for ppoll with `unblocked`; `before` is what is to be put back in a child.
static void note_signals(struct sigaction before[SIGNALS], sigset_t *unblocked) {
    struct sigaction note = {.sa_handler = note_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigaction(SIGCHLD, &note, NULL);
    for (int i = 0; i < SIGNALS; i++) {
        sigaddset(&blocked, stopping[i]);
        sigaction(stopping[i], &note, &before[i]);
    }
    sigprocmask(SIG_BLOCK, &blocked, unblocked);
}

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
