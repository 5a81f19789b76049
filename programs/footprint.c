// Memory footprint of an instance's processes, as if tare ran no other instance.
//
//   footprint PID... [-- OTHER...]
//
// Prints `BYTES PROCESSES`: the proportional set size of the processes, and the number of them that still exist. A page
// counts by their share of its mappings, without the mappings of the OTHER processes: pages that ten instances share,
// such as the files of one image, cost each instance as much as if it ran by itself. Processes that have ended and
// kernel threads have no memory and do not count. tare's resident agents always count as OTHERs: processes whose last
// argument is `--resident`, such as `supervise --resident` and the `crun exec` that started it. Exit codes: 1 with the
// reason if the kernel does not report page counts, 2 for wrong arguments.
//
// Linux, Documentation/admin-guide/mm/pagemap.rst: /proc/PID/pagemap has the number of the page behind each address,
// for processes with CAP_SYS_ADMIN, and /proc/kpagecount the number of mappings of each page, which is 0 for the zero
// page and for devices. Documentation/filesystems/proc.rst defines the proportional set size.

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
enum { CHUNK = 4096, MAX_GAP = 16 }; // entries per read; largest gap between pages that are read together

struct page {
    uint64_t number;
    uint32_t ours, others; // number of mappings
};

struct pages {
    struct page *list;
    size_t count, capacity;
};

typedef void (*visit_page)(struct pages *, uint64_t number);

static void fail(const char *path, const char *reason) {
    fprintf(stderr, "footprint: %s: %s\n", path, reason);
    exit(1);
}

static int by_number(const void *left, const void *right) {
    const uint64_t one = ((const struct page *)left)->number, other = ((const struct page *)right)->number;
    return (one > other) - (one < other);
}

static void add(struct pages *pages, uint64_t number) {
    if (pages->count == pages->capacity) {
        pages->capacity = pages->capacity ? 2 * pages->capacity : CHUNK;
        pages->list = realloc(pages->list, pages->capacity * sizeof *pages->list);
        if (!pages->list)
            fail("memory", strerror(errno));
    }
    pages->list[pages->count++] = (struct page){.number = number, .ours = 1};
}

static void count_other(struct pages *pages, uint64_t number) {
    struct page *found = pages->count ? bsearch(&(struct page){.number = number}, pages->list, pages->count,
                                                sizeof *pages->list, by_number)
                                      : NULL;
    if (found)
        found->others++;
}

// Merge the entries of pages that are mapped several times.
static void merge(struct pages *pages) {
    size_t last_kept = 0;
    if (!pages->count)
        return;
    qsort(pages->list, pages->count, sizeof *pages->list, by_number);
    for (size_t i = 1; i < pages->count; i++) {
        if (pages->list[i].number == pages->list[last_kept].number)
            pages->list[last_kept].ours++;
        else
            pages->list[++last_kept] = pages->list[i];
    }
    pages->count = last_kept + 1;
}

static void visit_range(int file, const char *path, uint64_t from, uint64_t to, visit_page visit, struct pages *pages) {
    uint64_t entries[CHUNK];
    while (from < to) {
        const uint64_t wanted = to - from < CHUNK ? to - from : CHUNK;
        const ssize_t length = pread(file, entries, wanted * sizeof *entries, (off_t)(from * sizeof *entries));
        if (length <= 0)
            return; // the process has just ended, or the range is the kernel's, which is the last one
        for (size_t i = 0; i < (size_t)length / sizeof *entries; i++) {
            if (!(entries[i] & PRESENT))
                continue;
            if (!(entries[i] & PAGE_NUMBER))
                fail(path, "reading page numbers requires CAP_SYS_ADMIN");
            visit(pages, entries[i] & PAGE_NUMBER);
        }
        from += (uint64_t)length / sizeof *entries;
    }
}

// Call `visit` for all pages of a process; return whether it has any memory.
static bool visit_process(const char *number, visit_page visit, struct pages *pages) {
    char path[64], *line = NULL;
    size_t capacity = 0;
    bool has_memory = false;
    const uint64_t size = (uint64_t)sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "/proc/%s/pagemap", number);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const bool gone = file < 0 && (errno == ENOENT || errno == ESRCH);
    if (file < 0 && !gone)
        fail(path, strerror(errno));
    snprintf(path, sizeof path, "/proc/%s/maps", number);
    FILE *maps = gone ? NULL : fopen(path, "re");
    while (maps && getline(&line, &capacity, maps) > 0) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx", &from, &to) != 2)
            continue;
        has_memory = true;
        visit_range(file, path, from / size, to / size, visit, pages);
    }
    free(line);
    if (maps)
        fclose(maps);
    if (!gone)
        close(file);
    return has_memory;
}

// Return the end of the run of nearby pages that starts at `first`; the list is sorted. A run is read by one call. The
// kernel inspects every page of the range, which takes longer than another call if few of them are in the list.
static size_t end_of_run(const struct pages *pages, size_t first) {
    size_t end = first + 1;
    while (end < pages->count && pages->list[end].number - pages->list[end - 1].number <= MAX_GAP &&
           pages->list[end].number - pages->list[first].number < CHUNK)
        end++;
    return end;
}

// Read the total number of mappings of each page of a run.
static void read_counts(int file, const struct pages *pages, size_t first, size_t end, uint64_t *counts) {
    const uint64_t number = pages->list[first].number;
    const size_t size = (pages->list[end - 1].number - number + 1) * sizeof *counts;
    const ssize_t got = pread(file, counts, size, (off_t)(number * sizeof *counts));
    memset((char *)counts + (got > 0 ? got : 0), 0, size - (size_t)(got > 0 ? got : 0));
}

// Return the instance's share of a page, at most 1, because mappings may change between the reads.
static double page_share(const struct page *page, uint64_t mappings) {
    const uint64_t rest = mappings > page->others ? mappings - page->others : 0;
    if (!mappings)
        return 0;
    return rest > page->ours ? (double)page->ours / (double)rest : 1;
}

static double sum_bytes(const struct pages *pages) {
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
            shares += page_share(&pages->list[i], counts[pages->list[i].number - pages->list[first].number]);
    }
    close(file);
    return shares * (double)sysconf(_SC_PAGESIZE);
}

// Return whether the process is a resident agent, by its last argument.
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

static void count_residents(struct pages *pages) {
    DIR *entries = opendir("/proc");
    if (!entries)
        fail("/proc", strerror(errno));
    for (const struct dirent *each; (each = readdir(entries));)
        if (is_number(each->d_name) && is_resident(each->d_name))
            visit_process(each->d_name, count_other, pages);
    closedir(entries);
}

int main(int argc, char **argv) {
    struct pages pages = {0};
    int processes = 0, end = 1;
    while (end < argc && is_number(argv[end]))
        end++;
    bool valid = end > 1 && (end == argc || strcmp(argv[end], "--") == 0);
    for (int i = end + 1; i < argc; i++)
        valid = valid && is_number(argv[i]);
    if (!valid) {
        fputs("usage: footprint PID... [-- OTHER...]\n", stderr);
        return 2;
    }
    for (int i = 1; i < end; i++)
        if (!is_resident(argv[i]))
            processes += visit_process(argv[i], add, &pages);
    merge(&pages);
    for (int i = end + 1; i < argc; i++)
        if (!is_resident(argv[i]))
            visit_process(argv[i], count_other, &pages);
    count_residents(&pages);
    printf("%.0f %d\n", sum_bytes(&pages), processes);
    return fflush(stdout) ? 1 : 0;
}
