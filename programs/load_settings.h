// Settings of `load_client`, and the parser of its arguments.

#ifndef TARE_LOAD_SETTINGS_H
#define TARE_LOAD_SETTINGS_H

#include "guest_protocol.h"
#include "load_requests.h"

enum { MAX_CONNECTIONS = 10000, MAX_POLL_MICROSECONDS = 1000000 };

static const double MAX_TURN_SECONDS = 86400;

static struct {
    bool is_http, closes, prints_latency;
    long connections, pipeline, body_bytes; // body_bytes: -1 for any number
    double patience_seconds;
    uint64_t poll_ns;
    struct sockaddr_in address;
} settings = {.pipeline = 1, .body_bytes = -1, .patience_seconds = 30};

// Parse an integer from 1 to a limit; return 0 for anything else.
static long parse_count(const char *text, long limit) {
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && !*end && number > 0 && number <= limit ? number : 0;
}

static bool parse_options(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--close"))
            settings.closes = true;
        else if (!strcmp(argv[i], "--latency"))
            settings.prints_latency = true;
        else if (i + 1 == argc)
            return false;
        else if (!strcmp(argv[i], "--pipeline") && (settings.pipeline = parse_count(argv[++i], MAX_PIPELINE)))
            continue;
        else if (!strcmp(argv[i], "--body") && (settings.body_bytes = parse_count(argv[++i], 1L << 40)))
            continue;
        else if (!strcmp(argv[i], "--patience") &&
                 (settings.patience_seconds = (double)parse_count(argv[++i], (long)MAX_TURN_SECONDS)) > 0)
            continue;
        else if (!strcmp(argv[i], "--poll") &&
                 (settings.poll_ns = 1000 * (uint64_t)parse_count(argv[++i], MAX_POLL_MICROSECONDS)))
            continue;
        else
            return false;
    }
    return true;
}

static bool parse_arguments(int argc, char **argv) {
    if (argc < 6 || !parse_address(argv[2], argv[3], &settings.address) || !parse_options(argc - 6, argv + 6))
        return false;
    settings.is_http = !strcmp(argv[1], "http");
    settings.connections = parse_count(argv[4], MAX_CONNECTIONS);
    return (settings.is_http || !strcmp(argv[1], "redis")) && settings.connections;
}

#endif
