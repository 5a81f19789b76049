/*
 * ramspeed: how fast memory and caches are read and written, with every array checked.
 *
 * Two modes, after those of RAMspeed 3.5.0 (which VTmark ran), written anew:
 *   mem   works on three arrays: copy (c = a), scale (c = m * a), add (c = a + b) and triad (c = a + m * b);
 *   mark  reads, or writes, one block over and over, for several sizes of block.
 * Each with the kinds of numbers of ramspeed.h.
 *
 * A pass repeats an operation until it has moved at least the bytes asked for; what is read and what is written both
 * count, but not what the hardware moves on top, such as the fetch of a cache line before it is written. A speed is the
 * bytes of all passes divided by the time of all passes. `average` is the mean of the four operations.
 *
 * With --turns, the program stays resident and measures for each line `DISCARDED_SECONDS SECONDS` on standard input:
 * first for a time that does not count, while caches and address translations are cold, then for a time that does. A
 * turn of `mem` works on one window of the arrays after the other, so that a window is only in the caches that still
 * hold it after all other windows, and checks one of four operations: checks of all took as long as the turn. It also
 * prints the speed in the first part. A turn of `mark` gives each block an equal part of the time.
 *
 * After each operation every element is compared with what it must be (for reading: the sum of all that was read).
 * All values are small whole numbers, so that double precision holds them without error. A mismatch is named on
 * standard error, nothing is printed on standard output, and the exit code is 1. Exit code 2: wrong arguments.
 *
 * Test hook: compiling with -DFACTOR_USED=2 makes scale and triad compute with a wrong factor, as a miscompilation
 * would.
 */
#define _DEFAULT_SOURCE

#include "ramspeed.h"
#include "clock.h"
#include "cpu_share.h"
#include "turn_line.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_SIZES 32
#define MAX_PASSES 1000000
/* The sum of this many bytes of elements up to 1021 is below 2^53, up to which double precision holds it exactly. */
#define MAX_BYTES (1LL << 40)

enum kind { INTEGER, FLOAT, SSE, MMX, MMX_NT, SSE_NT, KINDS };
enum operation { COPY, SCALE, ADD, TRIAD, OPERATIONS };
static const char *const kind_names[KINDS] = {"integer", "float", "sse", "mmx", "mmx-nt", "sse-nt"};
static const char *const operation_names[OPERATIONS] = {"copy", "scale", "add", "triad"};
/* Arrays that an operation reads and writes. */
static const int operation_arrays[OPERATIONS] = {2, 2, 3, 3};

enum { ARRAYS = 3 };

/* What was asked for on the command line. */
struct settings {
    bool mark;
    bool write;
    bool turns;
    enum kind kind;
    long passes;
    long long pass_bytes;
    long long array_bytes;
    bool huge; /* pages */
    int sizes;
    long long size_bytes[MAX_SIZES];
};

static Kernel *const kernels[KINDS][OPERATIONS] = {
    {integer_copy, integer_scale, integer_add, integer_triad},
    {float_copy, float_scale, float_add, float_triad},
    {sse_copy, sse_scale, sse_add, sse_triad},
#if defined(__x86_64__)
    {mmx_copy, mmx_scale, mmx_add, mmx_triad},
    {mmx_nt_copy, mmx_nt_scale, mmx_nt_add, mmx_nt_triad},
    {sse_nt_copy, sse_nt_scale, sse_nt_add, sse_nt_triad},
#endif
};
static Reader *const readers[KINDS] = {
    [INTEGER] = integer_read, [FLOAT] = float_read,   [SSE] = sse_read,
#if defined(__x86_64__)
    [MMX] = mmx_read,         [MMX_NT] = mmx_nt_read, [SSE_NT] = sse_nt_read,
#endif
};
static Writer *const writers[KINDS] = {
    [INTEGER] = integer_write, [FLOAT] = float_write,   [SSE] = sse_write,
#if defined(__x86_64__)
    [MMX] = mmx_write,         [MMX_NT] = mmx_nt_write, [SSE_NT] = sse_nt_write,
#endif
};

/* --- values ----------------------------------------------------------------------------------------------------- */

static bool is_integer(enum kind kind) {
    return kind == INTEGER || kind == MMX || kind == MMX_NT;
}

static void set(union element *element, enum kind kind, int64_t value) {
    if (is_integer(kind))
        element->integer = value;
    else
        element->real = (double)value;
}

static double get(const union element *element, enum kind kind) {
    return is_integer(kind) ? (double)element->integer : element->real;
}

/* Values that differ from one element to the next, and between a and b. */
static int64_t value_a(size_t i) {
    return 1 + (int64_t)(i % 1021);
}

static int64_t value_b(size_t i) {
    return 1 + (int64_t)(i % 509);
}

static int64_t value_c(enum operation operation, size_t i) {
    switch (operation) {
    case COPY:
        return value_a(i);
    case SCALE:
        return FACTOR * value_a(i);
    case ADD:
        return value_a(i) + value_b(i);
    default:
        return value_a(i) + FACTOR * value_b(i);
    }
}

static void fail(const char *what, size_t element, double found, double expected) {
    fprintf(stderr, "ramspeed: %s: element %zu is %.17g, must be %.17g\n", what, element, found, expected);
    exit(1);
}

/* Allocate memory in the kernel's usual pages, or in huge pages if the kernel has some. */
static union element *allocate(const struct settings *settings, long long size_bytes) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (settings->huge)
        page_bytes *= page_bytes / sizeof(uint64_t); /* as many as a page of a page table has entries */
    size_t bytes = ((size_t)size_bytes + page_bytes - 1) / page_bytes * page_bytes;
    union element *elements = aligned_alloc(page_bytes, bytes);
    if (elements && settings->huge)
        madvise(elements, bytes, MADV_HUGEPAGE); /* advice: without huge pages, it has no effect */
    if (elements)
        return elements;
    fprintf(stderr, "ramspeed: no memory for %lld bytes\n", size_bytes);
    exit(1);
}

static double speed(double bytes, double seconds) {
    if (seconds > 0)
        return bytes / seconds;
    fprintf(stderr, "ramspeed: %.0f bytes took no time that the clock can see: give more bytes per pass\n", bytes);
    exit(1);
}

/* --- modes ------------------------------------------------------------------------------------------------------ */

/* Return the bytes per second of one operation, after checking every element of c. */
static double measure_mem(const struct settings *settings, enum operation operation, union element *arrays[ARRAYS]) {
    size_t count = (size_t)settings->array_bytes / sizeof(union element);
    long long round_bytes = operation_arrays[operation] * settings->array_bytes;
    long long rounds = settings->passes * ((settings->pass_bytes + round_bytes - 1) / round_bytes);
    Kernel *kernel = kernels[settings->kind][operation];
    for (size_t i = 0; i < count; i++)
        set(&arrays[2][i], settings->kind, -1);
    double start_seconds = now_seconds();
    for (long long round = 0; round < rounds; round++)
        kernel(arrays[0], arrays[1], arrays[2], count);
    double seconds = now_seconds() - start_seconds;
    for (size_t i = 0; i < count; i++) {
        double found = get(&arrays[2][i], settings->kind);
        if (found != (double)value_c(operation, i))
            fail(operation_names[operation], i, found, (double)value_c(operation, i));
    }
    return speed((double)(rounds * round_bytes), seconds);
}

static void run_mem(const struct settings *settings) {
    size_t count = (size_t)settings->array_bytes / sizeof(union element);
    double speeds[OPERATIONS];
    double sum = 0;
    union element *arrays[ARRAYS];
    for (int i = 0; i < ARRAYS; i++)
        arrays[i] = allocate(settings, settings->array_bytes);
    for (size_t i = 0; i < count; i++) {
        set(&arrays[0][i], settings->kind, value_a(i));
        set(&arrays[1][i], settings->kind, value_b(i));
    }
    for (int i = 0; i < OPERATIONS; i++)
        sum += speeds[i] = measure_mem(settings, (enum operation)i, arrays);
    printf("program: ramspeed mem\nkind: %s\n", kind_names[settings->kind]);
    printf("array_bytes: %lld\nbytes_per_pass: %lld\n", settings->array_bytes, settings->pass_bytes);
    printf("passes: %ld\n", settings->passes);
    for (int i = 0; i < OPERATIONS; i++)
        printf("%s_bytes_per_second: %.3f\n", operation_names[i], speeds[i]);
    printf("average_bytes_per_second: %.3f\nverified: yes\n", sum / OPERATIONS);
    for (int i = 0; i < ARRAYS; i++)
        free(arrays[i]);
}

static void check_block(const struct settings *settings, const union element *block, size_t count, long rounds) {
    for (size_t i = 0; i < count; i++) {
        double found = get(&block[i], settings->kind);
        if (found != (double)rounds)
            fail("write", i, found, (double)rounds);
    }
}

/* Fill a block with values of a; return their sum. */
static double fill_block(const struct settings *settings, union element *block, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        set(&block[i], settings->kind, value_a(i));
        sum += (double)value_a(i);
    }
    return sum;
}

/* Read or write a block `rounds` times; return the seconds, after checking the sum of what was read. */
static double measure_rounds(const struct settings *settings, union element *block, size_t count, long rounds,
                             double block_sum) {
    double sum = block_sum * (double)rounds;
    double start_seconds = now_seconds();
    if (settings->write)
        writers[settings->kind](block, count, rounds);
    else
        sum = readers[settings->kind](block, count, rounds);
    double seconds = now_seconds() - start_seconds;
    if (sum != block_sum * (double)rounds)
        fail("sum of read", 0, sum, block_sum * (double)rounds);
    return seconds;
}

/* Return the bytes per second for one size of block, after checking what was read or written. */
static double measure_mark(const struct settings *settings, long long size_bytes, union element *block) {
    size_t count = (size_t)size_bytes / sizeof *block;
    long rounds = (long)((settings->pass_bytes + size_bytes - 1) / size_bytes);
    double block_sum = fill_block(settings, block, count);
    double seconds = 0;
    for (long pass = 0; pass < settings->passes; pass++) {
        seconds += measure_rounds(settings, block, count, rounds, block_sum);
        if (settings->write)
            check_block(settings, block, count, rounds);
    }
    return speed((double)settings->passes * (double)rounds * (double)size_bytes, seconds);
}

static void run_mark(const struct settings *settings) {
    const char *operation = settings->write ? "write" : "read";
    double speeds[MAX_SIZES];
    for (int i = 0; i < settings->sizes; i++) {
        union element *block = allocate(settings, settings->size_bytes[i]);
        speeds[i] = measure_mark(settings, settings->size_bytes[i], block);
        free(block);
    }
    printf("program: ramspeed mark\nkind: %s\noperation: %s\n", kind_names[settings->kind], operation);
    printf("bytes_per_pass: %lld\npasses: %ld\n", settings->pass_bytes, settings->passes);
    for (int i = 0; i < settings->sizes; i++)
        printf("%s_%lld_bytes_per_second: %.3f\n", operation, settings->size_bytes[i], speeds[i]);
    printf("verified: yes\n");
}

/* --- turns ------------------------------------------------------------------------------------------------------ */

/* A multiple of the number of operations: in each lap over the windows, a window then has another operation. */
enum { WINDOWS = 16 };
/* Bytes that take long enough for the clock. */
#define SHORTEST_BYTES (256LL << 10)

struct windows {
    union element *arrays[ARRAYS];
    size_t count; /* elements of a window */
    long steps;   /* operations so far */
    long cycles;  /* sequences of all operations so far */
};

/* Check every element of a window of c, like `measure_mem`, but without divisions: checks must not outlast turns. */
static void check_window(enum kind kind, enum operation operation, const union element *c, size_t first, size_t count) {
    int64_t a = value_a(first), b = value_b(first);
    int64_t of_a = operation == SCALE ? FACTOR : 1, of_b = operation == ADD ? 1 : operation == TRIAD ? FACTOR : 0;
    for (size_t i = 0; i < count; i++) {
        double found = get(&c[i], kind), expected = (double)(of_a * a + of_b * b);
        if (found != expected)
            fail(operation_names[operation], first + i, found, expected);
        a = a == 1021 ? 1 : a + 1;
        b = b == 509 ? 1 : b + 1;
    }
}

/* Work on the next window; return the seconds. If `checked`, check every element of c. Set the operation. */
static double measure_window(const struct settings *settings, struct windows *windows, enum operation *operation,
                             bool checked) {
    size_t first = (size_t)(windows->steps % WINDOWS) * windows->count;
    *operation = (enum operation)((windows->steps + windows->steps / WINDOWS) % OPERATIONS);
    union element *c = windows->arrays[2] + first;
    double start_seconds = now_seconds();
    kernels[settings->kind][*operation](windows->arrays[0] + first, windows->arrays[1] + first, c, windows->count);
    double seconds = now_seconds() - start_seconds;
    if (checked)
        check_window(settings->kind, *operation, c, first, windows->count);
    windows->steps++;
    return seconds;
}

/* Work on one window with each operation, of which one is checked, another one each time; add the seconds of each to
 * `seconds`, and return those of all. */
static double run_cycle(const struct settings *settings, struct windows *windows, double seconds[OPERATIONS]) {
    enum operation operation;
    double sum = 0;
    for (int i = 0; i < OPERATIONS; i++) {
        bool checked = i == (windows->cycles + windows->cycles / OPERATIONS) % OPERATIONS; /* in time, all windows */
        double of_window = measure_window(settings, windows, &operation, checked);
        seconds[operation] += of_window;
        sum += of_window;
    }
    windows->cycles++;
    return sum;
}

/* Set the bytes per second of each operation in some cycles, and return their mean. */
static double find_speeds(const struct windows *windows, long cycles, const double seconds[OPERATIONS],
                          double speeds[OPERATIONS]) {
    double sum = 0;
    for (int i = 0; i < OPERATIONS; i++) {
        double bytes = (double)cycles * operation_arrays[i] * (double)(windows->count * sizeof(union element));
        sum += speeds[i] = speed(bytes, seconds[i]);
    }
    return sum / OPERATIONS;
}

/* Work for a time that does not count, and print its speed. */
static void discard_cycles(const struct settings *settings, struct windows *windows, double wanted_seconds) {
    double seconds[OPERATIONS] = {0}, speeds[OPERATIONS], sum = 0;
    long cycles = 0;
    for (double until = now_seconds() + wanted_seconds; now_seconds() < until; cycles++)
        sum += run_cycle(settings, windows, seconds);
    print_discarded(sum, cycles ? sum * find_speeds(windows, cycles, seconds, speeds) : 0);
}

static void run_mem_turns(const struct settings *settings) {
    struct windows windows = {.count = (size_t)settings->array_bytes / WINDOWS / STEP_BYTES * STEP_BYTES /
                                       sizeof(union element)};
    double discarded_seconds, wanted_seconds;
    if (windows.count == 0) {
        fprintf(stderr, "ramspeed: turns need an array of at least %d bytes\n", WINDOWS * STEP_BYTES);
        exit(2);
    }
    for (int i = 0; i < ARRAYS; i++)
        windows.arrays[i] = allocate(settings, settings->array_bytes);
    for (size_t i = 0; i < windows.count * WINDOWS; i++) {
        set(&windows.arrays[0][i], settings->kind, value_a(i));
        set(&windows.arrays[1][i], settings->kind, value_b(i));
        set(&windows.arrays[2][i], settings->kind, -1);
    }
    while (read_turn("ramspeed", &discarded_seconds, &wanted_seconds)) {
        double seconds[OPERATIONS] = {0}, speeds[OPERATIONS], sum = 0;
        long cycles = 0;
        discard_cycles(settings, &windows, discarded_seconds);
        struct counted_part counted = begin_counted_part();
        for (; sum < wanted_seconds; cycles++)
            sum += run_cycle(settings, &windows, seconds);
        struct cpu_share share = end_counted_part(&counted);
        double average = find_speeds(&windows, cycles, seconds, speeds);
        printf("program: ramspeed mem\nkind: %s\narray_bytes: %lld\nseconds: %.9f\n", kind_names[settings->kind],
               settings->array_bytes, sum);
        for (int i = 0; i < OPERATIONS; i++)
            printf("%s_bytes_per_second: %.3f\n", operation_names[i], speeds[i]);
        printf("average_bytes_per_second: %.3f\n", average);
        print_cpu_share(share);
        printf("verified: yes\n");
        fflush(stdout);
    }
    for (int i = 0; i < ARRAYS; i++)
        free(windows.arrays[i]);
}

/* Work on a block for at least `wanted_seconds`; return the bytes per second, after checking what was read or written.
 */
static double measure_block_for(const struct settings *settings, long long size_bytes, union element *block,
                                double block_sum, double wanted_seconds) {
    size_t count = (size_t)size_bytes / sizeof *block;
    long rounds = (long)((SHORTEST_BYTES + size_bytes - 1) / size_bytes), passes = 0;
    double seconds = 0;
    do {
        seconds += measure_rounds(settings, block, count, rounds, block_sum);
        passes++;
    } while (seconds < wanted_seconds);
    if (settings->write)
        check_block(settings, block, count, rounds);
    return speed((double)passes * (double)rounds * (double)size_bytes, seconds);
}

static void run_mark_turns(const struct settings *settings) {
    const char *operation = settings->write ? "write" : "read";
    union element *blocks[MAX_SIZES];
    double sums[MAX_SIZES] = {0}, discarded_seconds, wanted_seconds;
    for (int i = 0; i < settings->sizes; i++) {
        blocks[i] = allocate(settings, settings->size_bytes[i]);
        sums[i] = fill_block(settings, blocks[i], (size_t)settings->size_bytes[i] / sizeof(union element));
    }
    while (read_turn("ramspeed", &discarded_seconds, &wanted_seconds)) {
        printf("program: ramspeed mark\nkind: %s\noperation: %s\n", kind_names[settings->kind], operation);
        for (int i = 0; i < settings->sizes; i++) {
            double share = 1.0 / settings->sizes;
            if (discarded_seconds > 0)
                measure_block_for(settings, settings->size_bytes[i], blocks[i], sums[i], share * discarded_seconds);
            struct counted_part counted = begin_counted_part();
            double bytes_per_second =
                measure_block_for(settings, settings->size_bytes[i], blocks[i], sums[i], share * wanted_seconds);
            struct cpu_share cpu_share = end_counted_part(&counted);
            printf("%s_%lld_bytes_per_second: %.3f\n", operation, settings->size_bytes[i], bytes_per_second);
            print_cpu_share(cpu_share);
        }
        printf("verified: yes\n");
        fflush(stdout);
    }
    for (int i = 0; i < settings->sizes; i++)
        free(blocks[i]);
}

/* --- command line ----------------------------------------------------------------------------------------------- */

/* Read a size with its unit, such as 64MiB, up to `end`; 0 for anything else, or what the kernels cannot work on. */
static long long read_size(const char *text, const char *end) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    char *unit = NULL;
    long long number = *text >= '0' && *text <= '9' ? strtoll(text, &unit, 10) : 0;
    for (int i = 0; i < 4 && number > 0; i++) {
        size_t length = strlen(units[i]);
        bool same = (size_t)(end - unit) == length && strncmp(unit, units[i], length) == 0;
        if (same && number <= MAX_BYTES >> (10 * i) && (number << (10 * i)) % STEP_BYTES == 0)
            return number << (10 * i);
    }
    return 0;
}

static bool read_sizes(const char *text, struct settings *settings) {
    for (settings->sizes = 0; settings->sizes < MAX_SIZES; text++) {
        const char *end = text + strcspn(text, ",");
        long long size_bytes = read_size(text, end);
        settings->size_bytes[settings->sizes++] = size_bytes;
        if (size_bytes == 0 || *end == '\0')
            return size_bytes > 0;
        text = end;
    }
    return false;
}

/* Return whether this architecture has a kind of numbers, and otherwise say so. */
static bool has_kind(enum kind kind) {
    if (readers[kind])
        return true;
    fprintf(stderr, "ramspeed: %s needs registers of x86-64: use integer, float or sse\n", kind_names[kind]);
    exit(2);
}

static bool read_option(const char *option, const char *text, struct settings *settings) {
    const char *end = text + strlen(text);
    if (strcmp(option, "--kind") == 0) {
        for (settings->kind = 0; settings->kind < KINDS; settings->kind++)
            if (strcmp(text, kind_names[settings->kind]) == 0)
                return has_kind(settings->kind);
        return false;
    }
    if (strcmp(option, "--passes") == 0) {
        char *rest = NULL;
        settings->passes = *text >= '0' && *text <= '9' ? strtol(text, &rest, 10) : 0;
        return settings->passes > 0 && settings->passes <= MAX_PASSES && rest == end;
    }
    if (strcmp(option, "--pages") == 0) {
        settings->huge = strcmp(text, "huge") == 0;
        return settings->huge || strcmp(text, "small") == 0;
    }
    if (strcmp(option, "--bytes-per-pass") == 0)
        return (settings->pass_bytes = read_size(text, end)) > 0;
    if (!settings->mark && strcmp(option, "--array") == 0)
        return (settings->array_bytes = read_size(text, end)) > 0;
    if (settings->mark && strcmp(option, "--sizes") == 0)
        return read_sizes(text, settings);
    settings->write = strcmp(text, "write") == 0;
    return settings->mark && strcmp(option, "--operation") == 0 && (settings->write || strcmp(text, "read") == 0);
}

/* Parse the command line and run; return the exit code. */
static int work(int count, char **words) {
    struct settings settings = {.passes = 5, .pass_bytes = 64LL << 20, .sizes = 1, .size_bytes = {4096}};
    settings.array_bytes = 32LL << 20;
    settings.mark = count > 0 && strcmp(words[0], "mark") == 0;
    bool valid = count > 0 && (settings.mark || strcmp(words[0], "mem") == 0);
    settings.turns = valid && count > 1 && strcmp(words[count - 1], "--turns") == 0;
    count -= settings.turns;
    valid = valid && count % 2 == 1;
    for (int i = 1; valid && i < count; i += 2)
        valid = read_option(words[i], words[i + 1], &settings);
    if (!valid) {
        fprintf(stderr,
                "usage: ramspeed mem  [--array SIZE] [OPTION...]\n"
                "       ramspeed mark [--operation read|write] [--sizes SIZE,...] [OPTION...]\n"
                "options: --kind integer|float|mmx|sse|mmx-nt|sse-nt, --pages small|huge, --bytes-per-pass SIZE,\n"
                "         --passes N, or last --turns\n"
                "SIZE: a multiple of 128 bytes, such as 256B, 4KiB, 64MiB or 2GiB\n");
        return 2;
    }
    if (settings.mark)
        (settings.turns ? run_mark_turns : run_mark)(&settings);
    else
        (settings.turns ? run_mem_turns : run_mem)(&settings);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    return work(argc - 1, argv + 1);
}
