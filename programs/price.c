/*
 * price: the seconds that one unit of a kind of work takes: a system call, a page fault, a program started.
 *
 *   price FOLDER KIND [--seconds S | --times N]
 *
 * Each kind does one thing and nothing else, so that the price of what an application does is a sum. What has to be
 * there before, such as a file in FOLDER, is made before the clock starts. A unit that fails is named on standard
 * error, with exit code 1 and no result. Exit code 2: wrong arguments.
 *
 * lmbench, will-it-scale and `perf bench` measure most of these kinds in the same way.
 */
#define _GNU_SOURCE

#define PROGRAM "price"

#include "kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_BYTES 64

enum { BLOCK = 4096, BLOCKS = 256, FAULT_PAGES = 1024, MAPPED_BYTES = 1 << 16 };
enum { FAR_CELLS = 1 << 21, NEAR_CELLS = 1 << 11, STEPS = 100000 };

static const char *program; // our own path
static char path[4096];     // of our file
static char block[BLOCK];

static void check(bool good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "price: %s: %s: %s\n", kind, what, strerror(errno));
    exit(1);
}

static void remove_file(void) {
    unlink(path);
}

// Makes a file whose blocks are in the cache, once; it is removed at our end.
static int own_file(void) {
    static int file = -1;
    if (file >= 0)
        return file;
    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    check(file >= 0, path);
    atexit(remove_file);
    for (int i = 0; i < BLOCKS; i++)
        check(write(file, block, BLOCK) == BLOCK, "write");
    check(fsync(file) == 0, "fsync");
    return file;
}

// --- user code ----------------------------------------------------------------------------------------------------

// One piece of user code: arithmetic, a branch that is hard to predict, and accesses to the first cache. One access in
// sixty-four goes to 16 MiB, which the second cache and its table of pages do not hold.
static double measure_user(long times) {
    static uint64_t *cells;
    static volatile uint64_t result __attribute__((unused)); // so that the work is done
    uint64_t state = 1;
    if (!cells) {
        cells = malloc(FAR_CELLS * sizeof *cells);
        check(cells != NULL, "malloc");
        memset(cells, 1, FAR_CELLS * sizeof *cells);
    }
    double start_seconds = now_seconds();
    for (long piece = 0; piece < times; piece++) {
        for (int step = 0; step < STEPS; step++) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            uint64_t *cell = cells + ((state >> 33) & (step % 64 ? NEAR_CELLS - 1 : FAR_CELLS - 1));
            if (state >> 61)
                state ^= *cell >> 7;
            else
                *cell += state;
        }
    }
    result = state;
    return now_seconds() - start_seconds;
}

// --- the way into the kernel --------------------------------------------------------------------------------------

static double measure_call(long times) {
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        check(syscall(SYS_getppid) >= 0, "getppid");
    return now_seconds() - start_seconds;
}

// A wait that is over before it begins, and the waking of nobody: the sleep itself is a switch.
static double measure_futex(long times) {
    static uint32_t word = 1;
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        if (i % 2)
            check(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0, "wake");
        else
            check(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) < 0 && errno == EAGAIN, "wait");
    }
    return now_seconds() - start_seconds;
}

static double measure_poll(long times) {
    int event = eventfd(1, EFD_CLOEXEC), list = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN}, found;
    check(event >= 0 && list >= 0 && epoll_ctl(list, EPOLL_CTL_ADD, event, &wanted) == 0, "epoll_ctl");
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        check(epoll_wait(list, &found, 1, -1) == 1, "epoll_wait");
    double seconds = now_seconds() - start_seconds;
    close(event);
    close(list);
    return seconds;
}

// --- files --------------------------------------------------------------------------------------------------------

static double measure_file_read(long times) {
    int file = own_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        check(pread(file, block, BLOCK, i % BLOCKS * BLOCK) == BLOCK, "pread");
    return now_seconds() - start_seconds;
}

static double measure_file_write(long times) {
    int file = own_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        check(pwrite(file, block, BLOCK, i % BLOCKS * BLOCK) == BLOCK, "pwrite");
    return now_seconds() - start_seconds;
}

// The write of a block comes before each sync, and does not count.
static double measure_sync(long times) {
    int file = own_file();
    double seconds = 0;
    for (long i = 0; i < times; i++) {
        check(pwrite(file, block, BLOCK, i % BLOCKS * BLOCK) == BLOCK, "pwrite");
        double start_seconds = now_seconds();
        check(fdatasync(file) == 0, "fdatasync");
        seconds += now_seconds() - start_seconds;
    }
    return seconds;
}

static double measure_open(long times) {
    own_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        int opened = open(path, O_RDONLY | O_CLOEXEC);
        check(opened >= 0 && close(opened) == 0, "open");
    }
    return now_seconds() - start_seconds;
}

static double measure_stat(long times) {
    struct stat found;
    own_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        check(stat(path, &found) == 0, "stat");
    return now_seconds() - start_seconds;
}

// --- memory -------------------------------------------------------------------------------------------------------

static void *map(size_t bytes) {
    void *there = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(there != MAP_FAILED, "mmap");
    return there;
}

static double measure_map(long times) {
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        check(munmap(map(MAPPED_BYTES), MAPPED_BYTES) == 0, "munmap");
    return now_seconds() - start_seconds;
}

// Pages of their own, one after the other, which are given back by the thousand.
static double measure_fault(long times) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), bytes = FAULT_PAGES * page_bytes;
    volatile char *pages = map(bytes);
    madvise((void *)pages, bytes, MADV_NOHUGEPAGE); // a kernel without large pages refuses, and needs none
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        pages[(size_t)(i % FAULT_PAGES) * page_bytes] = 1;
        if (i % FAULT_PAGES == FAULT_PAGES - 1)
            check(madvise((void *)pages, bytes, MADV_DONTNEED) == 0, "madvise");
    }
    double seconds = now_seconds() - start_seconds;
    munmap((void *)pages, bytes);
    return seconds;
}

// --- processes ----------------------------------------------------------------------------------------------------

static void pass_message(int from, int to) {
    char message[MESSAGE_BYTES] = {0};
    check(write(to, message, sizeof message) == sizeof message, "write");
    check(read(from, message, sizeof message) == sizeof message, "read");
}

static double measure_pipe(long times) {
    int ends[2];
    check(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        pass_message(ends[0], ends[1]);
    double seconds = now_seconds() - start_seconds;
    close(ends[0]);
    close(ends[1]);
    return seconds;
}

static void echo(int from, int to) {
    char message[MESSAGE_BYTES];
    while (read(from, message, sizeof message) == sizeof message)
        if (write(to, message, sizeof message) != sizeof message)
            break;
    _exit(0);
}

// Two processes on one CPU wait for each other's messages: half a trip there and back is a message and a switch.
static double measure_switch(long times) {
    int there[2], back[2];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    check(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    check(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0, "pipe");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        close(there[1]);
        echo(there[0], back[1]);
    }
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        pass_message(back[0], there[1]);
    double seconds = now_seconds() - start_seconds;
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
    check(waitpid(child, NULL, 0) == child, "wait");
    return seconds / 2;
}

static void *end_at_once(void *nothing) {
    return nothing;
}

static double measure_thread(long times) {
    pthread_t thread;
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        errno = pthread_create(&thread, NULL, end_at_once, NULL);
        check(errno == 0 && pthread_join(thread, NULL) == 0, "thread");
    }
    return now_seconds() - start_seconds;
}

static double measure_process(long times) {
    int status = 0;
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl(program, program, "nothing", NULL);
            _exit(1);
        }
        check(child > 0 && waitpid(child, &status, 0) == child, "fork");
        check(status == 0, program);
    }
    return now_seconds() - start_seconds;
}

static const struct kernel kinds[] = {
    KIND("user", 1, measure_user),
    KIND("call", 100, measure_call),
    KIND("file-read", 10, measure_file_read),
    KIND("file-write", 10, measure_file_write),
    KIND("sync", 1, measure_sync),
    KIND("open", 1, measure_open),
    KIND("stat", 1, measure_stat),
    KIND("map", 1, measure_map),
    KIND("fault", 64, measure_fault),
    KIND("switch", 10, measure_switch),
    KIND("futex", 100, measure_futex),
    KIND("poll", 10, measure_poll),
    KIND("pipe", 10, measure_pipe),
    KIND("thread", 1, measure_thread),
    KIND("process", 1, measure_process),
};

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "nothing") == 0)
        return 0;
    program = argv[0];
    const struct kernel *chosen = argc > 2 ? choose(kinds, sizeof kinds / sizeof *kinds, argv[2]) : NULL;
    if (chosen && (size_t)snprintf(path, sizeof path, "%s/tare-price-%d", argv[1], getpid()) < sizeof path)
        return run_kernel(chosen, argc - 2, argv + 2);
    fputs("usage: price FOLDER KIND [--seconds S | --times N]\n", stderr);
    return 2;
}
