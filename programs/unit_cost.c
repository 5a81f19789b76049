/*
 * unit_cost: the time of one operation of a kind, such as a system call, a page fault or the start of a program.
 *
 *   unit_cost FOLDER KIND [--seconds S | --times N]
 *
 * Each kind performs exactly one operation, so that the cost of an application is a sum of unit costs. Preparation,
 * such as a file in FOLDER, is done before the clock starts. Exit code 1, with the reason on standard error and no
 * result: an operation failed. Exit code 2: wrong arguments.
 *
 * lmbench, will-it-scale and `perf bench` measure most of these kinds in the same way.
 */
#define _GNU_SOURCE

#define PROGRAM "unit_cost"

#include "operations.h"

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

static const char *program; // path of this program
static char path[4096];     // of the test file
static char block[BLOCK];

static void require(bool succeeded, const char *what) {
    if (succeeded)
        return;
    fprintf(stderr, "unit_cost: %s: %s: %s\n", operation_kind, what, strerror(errno));
    exit(1);
}

static void remove_file(void) {
    unlink(path);
}

// Return the test file, with its blocks in the page cache; it is created once, and removed at exit.
static int open_test_file(void) {
    static int file = -1;
    if (file >= 0)
        return file;
    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    require(file >= 0, path);
    atexit(remove_file);
    for (int i = 0; i < BLOCKS; i++)
        require(write(file, block, BLOCK) == BLOCK, "write");
    require(fsync(file) == 0, "fsync");
    return file;
}

// --- user code ----------------------------------------------------------------------------------------------------

// One unit of user code: arithmetic, a branch that is hard to predict, and accesses to the L1 cache. One access in 64
// goes to 16 MiB, which exceed the L2 cache and the TLB.
static double measure_user(long times) {
    static uint64_t *cells;
    static volatile uint64_t result __attribute__((unused)); // keeps the compiler from dropping the loop
    uint64_t state = 1;
    if (!cells) {
        cells = malloc(FAR_CELLS * sizeof *cells);
        require(cells != NULL, "malloc");
        memset(cells, 1, FAR_CELLS * sizeof *cells);
    }
    double start_seconds = now_seconds();
    for (long unit = 0; unit < times; unit++) {
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

// --- system calls -------------------------------------------------------------------------------------------------

static double measure_call(long times) {
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        require(syscall(SYS_getppid) >= 0, "getppid");
    return now_seconds() - start_seconds;
}

// A wait that returns at once, and a wake-up without waiters: sleeping and waking are the kind `switch`.
static double measure_futex(long times) {
    static uint32_t word = 1;
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        if (i % 2)
            require(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0, "wake");
        else
            require(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) < 0 && errno == EAGAIN, "wait");
    }
    return now_seconds() - start_seconds;
}

static double measure_poll(long times) {
    int event = eventfd(1, EFD_CLOEXEC), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN}, found;
    require(event >= 0 && epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted) == 0, "epoll_ctl");
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        require(epoll_wait(epoll, &found, 1, -1) == 1, "epoll_wait");
    double seconds = now_seconds() - start_seconds;
    close(event);
    close(epoll);
    return seconds;
}

// --- files --------------------------------------------------------------------------------------------------------

static double measure_file_read(long times) {
    int file = open_test_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        require(pread(file, block, BLOCK, i % BLOCKS * BLOCK) == BLOCK, "pread");
    return now_seconds() - start_seconds;
}

static double measure_file_write(long times) {
    int file = open_test_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        require(pwrite(file, block, BLOCK, i % BLOCKS * BLOCK) == BLOCK, "pwrite");
    return now_seconds() - start_seconds;
}

// A block is written before each sync; the write is not timed.
static double measure_sync(long times) {
    int file = open_test_file();
    double seconds = 0;
    for (long i = 0; i < times; i++) {
        require(pwrite(file, block, BLOCK, i % BLOCKS * BLOCK) == BLOCK, "pwrite");
        double start_seconds = now_seconds();
        require(fdatasync(file) == 0, "fdatasync");
        seconds += now_seconds() - start_seconds;
    }
    return seconds;
}

static double measure_open(long times) {
    open_test_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        int opened = open(path, O_RDONLY | O_CLOEXEC);
        require(opened >= 0 && close(opened) == 0, "open");
    }
    return now_seconds() - start_seconds;
}

static double measure_stat(long times) {
    struct stat found;
    open_test_file();
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        require(stat(path, &found) == 0, "stat");
    return now_seconds() - start_seconds;
}

// --- memory -------------------------------------------------------------------------------------------------------

static void *map(size_t bytes) {
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(mapping != MAP_FAILED, "mmap");
    return mapping;
}

static double measure_map(long times) {
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        require(munmap(map(MAPPED_BYTES), MAPPED_BYTES) == 0, "munmap");
    return now_seconds() - start_seconds;
}

// Private pages, touched one after the other and released 1024 at a time.
static double measure_fault(long times) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), bytes = FAULT_PAGES * page_bytes;
    volatile char *pages = map(bytes);
    madvise((void *)pages, bytes, MADV_NOHUGEPAGE); // fails on a kernel without huge pages, where it is not needed
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        pages[(size_t)(i % FAULT_PAGES) * page_bytes] = 1;
        if (i % FAULT_PAGES == FAULT_PAGES - 1)
            require(madvise((void *)pages, bytes, MADV_DONTNEED) == 0, "madvise");
    }
    double seconds = now_seconds() - start_seconds;
    munmap((void *)pages, bytes);
    return seconds;
}

// --- processes ----------------------------------------------------------------------------------------------------

static void pass_message(int from, int to) {
    char message[MESSAGE_BYTES] = {0};
    require(write(to, message, sizeof message) == sizeof message, "write");
    require(read(from, message, sizeof message) == sizeof message, "read");
}

static double measure_pipe(long times) {
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "pipe");
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

// Two processes on one CPU exchange messages: half a round trip is one message and one context switch.
static double measure_switch(long times) {
    int to_child[2], to_parent[2];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    require(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    require(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(to_parent, O_CLOEXEC) == 0, "pipe");
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        close(to_child[1]);
        echo(to_child[0], to_parent[1]);
    }
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++)
        pass_message(to_parent[0], to_child[1]);
    double seconds = now_seconds() - start_seconds;
    for (int i = 0; i < 2; i++) {
        close(to_child[i]);
        close(to_parent[i]);
    }
    require(waitpid(child, NULL, 0) == child, "wait");
    return seconds / 2;
}

static void *return_at_once(void *nothing) {
    return nothing;
}

static double measure_thread(long times) {
    pthread_t thread;
    double start_seconds = now_seconds();
    for (long i = 0; i < times; i++) {
        errno = pthread_create(&thread, NULL, return_at_once, NULL);
        require(errno == 0 && pthread_join(thread, NULL) == 0, "thread");
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
        require(child > 0 && waitpid(child, &status, 0) == child, "fork");
        require(status == 0, program);
    }
    return now_seconds() - start_seconds;
}

static const struct timed_loop operations[] = {
    OPERATION("user", 1, measure_user),
    OPERATION("call", 100, measure_call),
    OPERATION("file-read", 10, measure_file_read),
    OPERATION("file-write", 10, measure_file_write),
    OPERATION("sync", 1, measure_sync),
    OPERATION("open", 1, measure_open),
    OPERATION("stat", 1, measure_stat),
    OPERATION("map", 1, measure_map),
    OPERATION("fault", 64, measure_fault),
    OPERATION("switch", 10, measure_switch),
    OPERATION("futex", 100, measure_futex),
    OPERATION("poll", 10, measure_poll),
    OPERATION("pipe", 10, measure_pipe),
    OPERATION("thread", 1, measure_thread),
    OPERATION("process", 1, measure_process),
};

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "nothing") == 0)
        return 0;
    program = argv[0];
    const struct timed_loop *chosen =
        argc > 2 ? find_operation(operations, sizeof operations / sizeof *operations, argv[2]) : NULL;
    if (chosen && (size_t)snprintf(path, sizeof path, "%s/tare-unit-cost-%d", argv[1], getpid()) < sizeof path)
        return run_timed_loop(chosen, argc - 2, argv + 2);
    fputs("usage: unit_cost FOLDER KIND [--seconds S | --times N]\n", stderr);
    return 2;
}
