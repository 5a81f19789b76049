// What the processes of an instance cost in memory, as if no other instance of tare's were there.
//
//   footprint PID... [-- OTHER...]
//
// Prints `BYTES PROCESSES`: the proportional set size of the processes, and how many of them were still there. A page
// counts by the share of its mappings that are theirs, those of the OTHER processes apart: so what ten instances have
// in common, such as the files of one image, costs each of them what it costs alone. What has ended, and threads of the
// kernel's, have no memory and do not count. tare's own processes count as OTHERs, wherever they are: those whose last
// word is `--resident`, as of `run --resident` and of the `crun exec` that has entered for it. Exits 1 with a reason
// where the kernel does not report it, 2 when used wrongly.
//
// Documentation/admin-guide/mm/pagemap.rst of Linux: /proc/PID/pagemap has the number of the page behind each address,
// for who has CAP_SYS_ADMIN, and /proc/kpagecount how often each page is mapped. Documentation/filesystems/proc.rst has
// the same definition of the proportional set size. What is in neither, such as the page of zeros and devices, is
// mapped 0 times there.

#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRESENT (1ULL << 63)
#define PAGE_NUMBER ((1ULL << 55) - 1)
enum { CHUNK = 4096, NEAR = 16 }; // entries that are read at a time, and those that are read although nobody wants them

struct page {
    uint64_t number;
    uint32_t ours, others; // how often it is mapped
};

struct pages {
    struct page *list;
    size_t count, room;
};

typedef void (*take)(struct pages *, uint64_t number);

static void fail(const char *path, const char *reason) {
    fprintf(stderr, "footprint: %s: %s\n", path, reason);
    exit(1);
}

static int by_number(const void *left, const void *right) {
    const uint64_t one = ((const struct page *)left)->number, other = ((const struct page *)right)->number;
    return (one > other) - (one < other);
}

static void add(struct pages *pages, uint64_t number) {
    if (pages->count == pages->room) {
        pages->room = pages->room ? 2 * pages->room : CHUNK;
        pages->list = realloc(pages->list, pages->room * sizeof *pages->list);
        if (!pages->list)
            fail("memory", strerror(errno));
    }
    pages->list[pages->count++] = (struct page){.number = number, .ours = 1};
}

static void mark(struct pages *pages, uint64_t number) {
    struct page *found = pages->count ? bsearch(&(struct page){.number = number}, pages->list, pages->count,
                                                sizeof *pages->list, by_number)
                                      : NULL;
    if (found)
        found->others++;
}

// A page that is mapped several times becomes one that says so.
static void merge(struct pages *pages) {
    size_t kept = 0;
    if (!pages->count)
        return;
    qsort(pages->list, pages->count, sizeof *pages->list, by_number);
    for (size_t i = 1; i < pages->count; i++) {
        if (pages->list[i].number == pages->list[kept].number)
            pages->list[kept].ours++;
        else
            pages->list[++kept] = pages->list[i];
    }
    pages->count = kept + 1;
}

static void look_at_range(int file, const char *path, uint64_t from, uint64_t to, take take, struct pages *pages) {
    uint64_t entries[CHUNK];
    while (from < to) {
        const uint64_t wanted = to - from < CHUNK ? to - from : CHUNK;
        const ssize_t length = pread(file, entries, wanted * sizeof *entries, (off_t)(from * sizeof *entries));
        if (length <= 0)
            return; // it has just ended, or the range is the kernel's, which comes last
        for (size_t i = 0; i < (size_t)length / sizeof *entries; i++) {
            if (!(entries[i] & PRESENT))
                continue;
            if (!(entries[i] & PAGE_NUMBER))
                fail(path, "the numbers of pages are only told to who has CAP_SYS_ADMIN");
            take(pages, entries[i] & PAGE_NUMBER);
        }
        from += (uint64_t)length / sizeof *entries;
    }
}

// Looks at all pages of a process; gives whether it has any memory.
static bool look_at_process(const char *number, take take, struct pages *pages) {
    char path[64], *line = NULL;
    size_t room = 0;
    bool has_memory = false;
    const uint64_t size = (uint64_t)sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "/proc/%s/pagemap", number);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const bool gone = file < 0 && (errno == ENOENT || errno == ESRCH);
    if (file < 0 && !gone)
        fail(path, strerror(errno));
    snprintf(path, sizeof path, "/proc/%s/maps", number);
    FILE *maps = gone ? NULL : fopen(path, "re");
    while (maps && getline(&line, &room, maps) > 0) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx", &from, &to) != 2)
            continue;
        has_memory = true;
        look_at_range(file, path, from / size, to / size, take, pages);
    }
    free(line);
    if (maps)
        fclose(maps);
    if (!gone)
        close(file);
    return has_memory;
}

// The pages of a list are in order; those from `first` that are near to one another are asked for together. The kernel
// looks at every page that is asked for, which takes longer than another call where few of them are ours.
static size_t end_of_run(const struct pages *pages, size_t first) {
    size_t end = first + 1;
    while (end < pages->count && pages->list[end].number - pages->list[end - 1].number <= NEAR &&
           pages->list[end].number - pages->list[first].number < CHUNK)
        end++;
    return end;
}

// Reads how often each page is mapped in all, for a run of them.
static void read_counts(int file, const struct pages *pages, size_t first, size_t end, uint64_t *counts) {
    const uint64_t number = pages->list[first].number;
    const size_t size = (pages->list[end - 1].number - number + 1) * sizeof *counts;
    const ssize_t got = pread(file, counts, size, (off_t)(number * sizeof *counts));
    memset((char *)counts + (got > 0 ? got : 0), 0, size - (size_t)(got > 0 ? got : 0));
}

// The share of a page that is ours. Not all is read at one instant: a share is never more than the whole.
static double share_of(const struct page *page, uint64_t all) {
    const uint64_t rest = all > page->others ? all - page->others : 0;
    if (!all)
        return 0;
    return rest > page->ours ? (double)page->ours / (double)rest : 1;
}

static double bytes_of(const struct pages *pages) {
    const char *path = "/proc/kpagecount";
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    static uint64_t counts[CHUNK];
    double shares = 0;
    if (file < 0)
        fail(path, strerror(errno));
    for (size_t first = 0, end; first < pages->count; first = end) {
        end = end_of_run(pages, first);
        read_counts(file, pages, first, end, counts);
        for (size_t i = first; i < end; i++)
            shares += share_of(&pages->list[i], counts[pages->list[i].number - pages->list[first].number]);
    }
    close(file);
    return shares * (double)sysconf(_SC_PAGESIZE);
}

// Whether it is tare's own, by its last word.
static bool is_resident(const char *number) {
    static const char last[] = "--resident";
    char path[64], words[65536];
    snprintf(path, sizeof path, "/proc/%s/cmdline", number);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t length = read(file, words, sizeof words);
    close(file);
    return length > (ssize_t)sizeof last && memcmp(words + length - sizeof last, last, sizeof last) == 0;
}

static bool is_number(const char *text) {
    return *text && !text[strspn(text, "0123456789")];
}

static void mark_residents(struct pages *pages) {
    DIR *all = opendir("/proc");
    if (!all)
        fail("/proc", strerror(errno));
    for (const struct dirent *each; (each = readdir(all));)
        if (is_number(each->d_name) && is_resident(each->d_name))
            look_at_process(each->d_name, mark, pages);
    closedir(all);
}

int main(int argc, char **argv) {
    struct pages pages = {0};
    int processes = 0, end = 1;
    while (end < argc && is_number(argv[end]))
        end++;
    bool right = end > 1 && (end == argc || strcmp(argv[end], "--") == 0);
    for (int i = end + 1; i < argc; i++)
        right = right && is_number(argv[i]);
    if (!right) {
        fputs("usage: footprint PID... [-- OTHER...]\n", stderr);
        return 2;
    }
    for (int i = 1; i < end; i++)
        if (!is_resident(argv[i]))
            processes += look_at_process(argv[i], add, &pages);
    merge(&pages);
    for (int i = end + 1; i < argc; i++)
        if (!is_resident(argv[i]))
            look_at_process(argv[i], mark, &pages);
    mark_residents(&pages);
    printf("%.0f %d\n", bytes_of(&pages), processes);
    return fflush(stdout) ? 1 : 0;
}
