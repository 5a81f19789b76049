// Stop signals and SIGCHLD: blocked, so that a program receives them only while it waits in ppoll.

#ifndef TARE_SIGNALS_H
#define TARE_SIGNALS_H

#include <signal.h>
#include <time.h>

enum { STOP_SIGNALS = 3 };

static const int stop_signals[STOP_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
static volatile sig_atomic_t received_signal;

static void record_signal(int number) {
    if (number != SIGCHLD)
        received_signal = number;
}

// Block the signals except in ppoll with the mask `unblocked`. `inherited` gets the actions to restore in a child.
static void catch_signals(struct sigaction inherited[STOP_SIGNALS], sigset_t *unblocked) {
    struct sigaction record = {.sa_handler = record_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigaction(SIGCHLD, &record, NULL);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaddset(&blocked, stop_signals[i]);
        sigaction(stop_signals[i], &record, &inherited[i]);
    }
    sigprocmask(SIG_BLOCK, &blocked, unblocked);
}

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
