// Keeps CPUs from falling asleep: one thread per CPU spins whenever nothing else wants to run there.
//
//   keep_awake CPU...
//
// A virtual CPU that halts must be scheduled by the hypervisor before it runs again. This delay hits the begin of each
// turn by chance, and short turns most of all (docs/decisions/turns.md). The threads have the class SCHED_IDLE and the
// nice level 19: any other task preempts them at once, and the kernel counts their time as `nice` in /proc/stat.
//
// Prints first its process ID and the thread IDs, in the order of the CPUs: their CPU time is no use of the CPUs. The
// line `on` on standard input lets the threads spin, `off` lets them sleep, as they do at first. The answer is the same
// word. The program ends when its standard input ends: also when tare is killed.

#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FAILED = 1, WRONG_ARGUMENTS = 2 };

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static _Noreturn void fail(const char *what, int reason) {
    fprintf(stderr, "keep_awake: %s: %s\n", what, strerror(reason));
    exit(FAILED);
}

static atomic_bool spinning;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static pthread_barrier_t started;

static void *spin(void *id) {
    struct sched_param parameters = {0};
    *(pid_t *)id = gettid();
    if (setpriority(PRIO_PROCESS, 0, 19) != 0 || sched_setscheduler(0, SCHED_IDLE, &parameters) != 0)
        fail("cannot lower the priority", errno); // both calls change this thread alone
    pthread_barrier_wait(&started);
    for (;;) {
        pthread_mutex_lock(&changing);
        while (!spinning)
            pthread_cond_wait(&changed, &changing);
        pthread_mutex_unlock(&changing);
        while (spinning)
            pause_cpu();
    }
    return NULL;
}

static void start_thread(int cpu, pid_t *id) {
    cpu_set_t only;
    pthread_attr_t attributes;
    pthread_t thread;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof only, &only);
    int reason = pthread_create(&thread, &attributes, spin, id);
    if (reason)
        fail("cannot start a thread on the CPU", reason);
}

static int parse_cpu(const char *word) {
    char *end;
    long cpu = strtol(word, &end, 10);
    if (*end != '\0' || end == word || cpu < 0 || cpu >= CPU_SETSIZE) {
        fprintf(stderr, "keep_awake: %s is no CPU\n", word);
        exit(WRONG_ARGUMENTS);
    }
    return (int)cpu;
}

int main(int argc, char **argv) {
    char line[16];
    if (argc < 2) {
        fputs("usage: keep_awake CPU...\n", stderr);
        return WRONG_ARGUMENTS;
    }
    pid_t *ids = calloc((size_t)argc, sizeof *ids);
    if (!ids)
        fail("memory", errno);
    pthread_barrier_init(&started, NULL, (unsigned)argc);
    for (int i = 1; i < argc; i++)
        start_thread(parse_cpu(argv[i]), &ids[i]);
    pthread_barrier_wait(&started);
    ids[0] = getpid();
    for (int i = 0; i < argc; i++)
        printf("%d%c", ids[i], i + 1 < argc ? ' ' : '\n');
    if (fflush(stdout) != 0)
        return FAILED;
    while (fgets(line, sizeof line, stdin)) {
        pthread_mutex_lock(&changing);
        spinning = strcmp(line, "on\n") == 0;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&changing);
        fputs(line, stdout);
        if (fflush(stdout) != 0)
            return FAILED;
    }
    return 0;
}
