// Requests that a load sends: a file that has each request after a line with its length in bytes.

#ifndef TARE_LOAD_REQUESTS_H
#define TARE_LOAD_REQUESTS_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PIPELINE = 128, MAX_REQUESTS = 100000, MAX_FILE_BYTES = 64 << 20 };

static char *texts;          // of all requests; after the last one, the first ones follow again to fill a pipeline
static size_t *text_starts;  // of each request in `texts`, and of its end
static size_t request_count; // without those that follow again
static size_t next_request;

static void require(bool succeeded, const char *what) {
    if (succeeded)
        return;
    fprintf(stderr, "load_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

// Return the content of a file, terminated by a null byte, and its length.
static char *read_file(const char *path, size_t *length) {
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    require(file >= 0 && fstat(file, &status) == 0, path);
    errno = EFBIG;
    require(status.st_size <= MAX_FILE_BYTES, path);
    char *content = calloc(1, (size_t)status.st_size + 1);
    require(content, "memory");
    for (*length = 0; *length < (size_t)status.st_size;) {
        ssize_t count = read(file, content + *length, (size_t)status.st_size - *length);
        require(count >= 0, path);
        if (!count)
            break;
        *length += (size_t)count;
    }
    close(file);
    return content;
}

// Find the requests of a file's content, and move them together; return false if it is malformed.
static bool join_requests(char *content, size_t length) {
    char *at = content, *end = content + length, *to = content;
    for (request_count = 0; at < end && request_count < MAX_REQUESTS; request_count++) {
        char *after;
        unsigned long bytes = strtoul(at, &after, 10);
        if (*at < '0' || *at > '9' || *after++ != '\n' || !bytes || bytes > (unsigned long)(end - after))
            return false;
        text_starts[request_count] = (size_t)(to - content);
        memmove(to, after, bytes);
        to += bytes;
        at = after + bytes;
    }
    text_starts[request_count] = (size_t)(to - content);
    return request_count && at == end;
}

// Append copies of the first requests, so that a pipeline may begin with any request.
static void append_first_requests(const char *joined) {
    size_t all = request_count + MAX_PIPELINE, bytes = text_starts[request_count];
    for (size_t i = request_count; i < all; i++) {
        size_t source = i % request_count;
        text_starts[i + 1] = text_starts[i] + text_starts[source + 1] - text_starts[source];
    }
    texts = malloc(text_starts[all]);
    require(texts, "memory");
    for (size_t at = 0; at < text_starts[all]; at++)
        texts[at] = joined[at % bytes];
}

static bool load_requests(const char *path) {
    size_t length;
    char *content = read_file(path, &length);
    text_starts = calloc(MAX_REQUESTS + MAX_PIPELINE + 1, sizeof *text_starts);
    require(text_starts, "memory");
    bool is_valid = join_requests(content, length);
    if (is_valid)
        append_first_requests(content);
    free(content);
    return is_valid;
}

// Return the next requests of a pipeline, and their length.
static const char *take_requests(size_t pipeline, size_t *length) {
    const char *begin = texts + text_starts[next_request];
    *length = text_starts[next_request + pipeline] - text_starts[next_request];
    next_request = (next_request + pipeline) % request_count;
    return begin;
}

#endif
