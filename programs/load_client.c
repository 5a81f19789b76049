/*
 * load_client: closed-loop load of HTTP/1.1 or RESP (Redis) over connections that stay open between turns.
 *
 *   load_client http|redis ADDRESS PORT CONNECTIONS REQUESTS [OPTION...]
 *
 *   --pipeline N          requests that a connection sends at once (1); the next ones follow all their responses
 *   --close               replace a connection by a new one after each of its pipelines
 *   --body BYTES          size that all bodies have to have
 *   --poll MICROSECONDS   poll for up to this time before sleeping: otherwise the server's CPU may have to wake
 *                         this program for each response, which costs time that differs from turn to turn
 *   --patience SECONDS    end a turn that is not over this time (30) after its window should have ended
 *   --latency             print a histogram
 *
 * The file REQUESTS has the requests, each after a line with its length in bytes. All connections together send
 * them in order, and begin again after the last one.
 *
 * A line on standard input starts a turn: `go DISCARD MEASURE [BEGIN]`. The counting window begins DISCARD seconds
 * after the first request, or at the moment BEGIN of the monotonic clock, with the next response. It ends with the
 * first response after MEASURE seconds. So it has a whole number of responses and at least one, however slow the
 * server is. The turn ends when all responses have arrived. Then the answer is printed:
 *
 *   requests: N      responses in the window
 *   seconds: S       of the window
 *   cpu_seconds: S   CPU time of this program in the window, user and system, without that of polling in vain
 *   discarded_seconds: S   from the first request to the begin of the window
 *   discarded_rate: N      responses a second in that time
 *   behind: S        from BEGIN to the begin of the window; only if there is a BEGIN
 *   bytes: N         received in the whole turn, as all counts below
 *   closes: N        connections that the server closed, although it was not asked to
 *   errors: connect N, read N, status N, short N
 *   error: TEXT      the first of these errors; only if there is one
 *   latency: MICROSECONDS:N ...   responses of the window by their time since the requests were sent
 *   turn: done
 *
 * `status` counts HTTP statuses of 400 or more and errors of Redis, `short` bodies of another size. Any other error
 * ends the turn and closes all connections. The end of standard input ends the program. Exit code 1: a failure of
 * the client itself. Exit code 2: wrong arguments or a wrong line.
 */
#define _GNU_SOURCE

#include "load_histogram.h"
#include "load_requests.h"
#include "load_responses.h"
#include "load_settings.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

enum { EVENTS = 256, RECEIVE_BYTES = 64 * 1024, ERROR_BYTES = 200 };

struct connection {
    int socket; // -1 if closed
    bool is_connecting;
    bool has_served;  // a response has arrived
    unsigned awaited; // responses
    const char *unsent;
    size_t unsent_bytes;
    uint64_t sent_ns;
    struct response response;
};

static struct connection *connections;
static int epoll = -1;

enum phase { DISCARDING, COUNTING, DRAINING };

static struct {
    enum phase phase;
    bool failed;
    long busy;         // connections that connect or await responses
    uint64_t first_ns; // when the first request was sent
    uint64_t begin_ns, measure_ns;
    uint64_t window_begin_ns, window_end_ns, cpu_begin_ns, cpu_end_ns;
    uint64_t polled_ns; // CPU time of polling in vain, in the window
    uint64_t discarded, requests, bytes, closes;
    uint64_t connect_errors, read_errors, status_errors, short_errors;
    char error[ERROR_BYTES]; // the first one
} turn;

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t to_nanoseconds(double seconds) {
    return (uint64_t)llround(seconds * 1e9);
}

// --- errors -------------------------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void count_error(uint64_t *count, const char *format, ...) {
    va_list arguments;
    ++*count;
    if (turn.error[0])
        return;
    va_start(arguments, format);
    vsnprintf(turn.error, sizeof turn.error, format, arguments);
    va_end(arguments);
}

// Count an error after which the turn cannot go on.
static void fail(uint64_t *count, const char *what) {
    count_error(count, "%s", what);
    turn.failed = true;
}

// --- connections --------------------------------------------------------------------------------------------------

static bool is_busy(const struct connection *connection) {
    return connection->is_connecting || connection->awaited;
}

static void close_connection(struct connection *connection) {
    if (connection->socket >= 0)
        close(connection->socket);
    turn.busy -= is_busy(connection);
    connection->socket = -1;
    connection->is_connecting = connection->has_served = false;
    connection->awaited = 0;
    connection->unsent_bytes = 0;
}

static void open_connection(struct connection *connection) {
    // Edge-triggered events of both kinds need no further epoll_ctl once the connection is established.
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    connection->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    require(connection->socket >= 0, "socket");
    disable_nagle(connection->socket);
    if (connect(connection->socket, (const struct sockaddr *)&settings.address, sizeof settings.address) &&
        errno != EINPROGRESS) {
        fail(&turn.connect_errors, strerror(errno));
        return;
    }
    connection->is_connecting = true;
    turn.busy++;
    require(epoll_ctl(epoll, EPOLL_CTL_ADD, connection->socket, &event) == 0, "epoll_ctl");
}

// Account for a connection that the server has closed. A server may close a connection while the next requests are on
// their way; they are then sent again over a new connection, as HTTP requires (RFC 9112, section 9.3.1).
static void lose_connection(struct connection *connection, const char *why) {
    const struct response *response = &connection->response;
    bool has_begun = response->line_bytes || response->head_bytes || response->state != AT_START;
    bool was_busy = connection->awaited;
    if (was_busy && (has_begun || connection->awaited != settings.pipeline || !connection->has_served)) {
        fail(&turn.read_errors, why);
        return;
    }
    turn.closes++;
    close_connection(connection);
    if (was_busy && turn.phase != DRAINING)
        open_connection(connection);
}

static void send_rest(struct connection *connection) {
    while (connection->unsent_bytes) {
        ssize_t sent =
            send(connection->socket, connection->unsent, connection->unsent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                lose_connection(connection, strerror(errno));
            return;
        }
        connection->unsent += sent;
        connection->unsent_bytes -= (size_t)sent;
    }
}

static void send_requests(struct connection *connection, uint64_t now_ns) {
    connection->unsent = take_requests((size_t)settings.pipeline, &connection->unsent_bytes);
    connection->awaited = (unsigned)settings.pipeline;
    connection->sent_ns = now_ns;
    turn.busy++;
    reset_response(&connection->response);
    send_rest(connection);
}

static void end_connecting(struct connection *connection, uint64_t now_ns) {
    int reason = 0;
    getsockopt(connection->socket, SOL_SOCKET, SO_ERROR, &reason, &(socklen_t){sizeof reason});
    connection->is_connecting = false;
    turn.busy--;
    if (reason)
        fail(&turn.connect_errors, strerror(reason));
    else if (turn.phase != DRAINING)
        send_requests(connection, now_ns);
}

// Send the next requests over this connection, or over a new one if it is closed.
static void start_requests(struct connection *connection, uint64_t now_ns) {
    if (connection->socket < 0)
        open_connection(connection);
    else
        send_requests(connection, now_ns);
}

// --- responses ----------------------------------------------------------------------------------------------------

static void count_response(uint64_t latency_ns, uint64_t now_ns) {
    turn.discarded += turn.phase == DISCARDING;
    if (turn.phase == DISCARDING && now_ns >= turn.begin_ns) {
        turn.phase = COUNTING;
        turn.window_begin_ns = now_ns;
        turn.cpu_begin_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
    } else if (turn.phase == COUNTING) {
        turn.requests++;
        count_latency(latency_ns);
        if (now_ns - turn.window_begin_ns >= turn.measure_ns) {
            turn.phase = DRAINING;
            turn.window_end_ns = now_ns;
            turn.cpu_end_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
        }
    }
}

static void check_response(const struct response *response) {
    if (response->is_error && settings.is_http)
        count_error(&turn.status_errors, "status %d", response->status);
    else if (response->is_error)
        count_error(&turn.status_errors, "an error of Redis");
    else if (settings.body_bytes >= 0 && response->body_bytes != (uint64_t)settings.body_bytes)
        count_error(&turn.short_errors, "a response of %llu bytes, not of %ld",
                    (unsigned long long)response->body_bytes, settings.body_bytes);
}

// Account for a complete response, and continue with the next requests if it was the last of its pipeline.
static void end_response(struct connection *connection, uint64_t now_ns) {
    bool server_closes = connection->response.closes;
    check_response(&connection->response);
    count_response(now_ns - connection->sent_ns, now_ns);
    reset_response(&connection->response);
    connection->has_served = true;
    if (--connection->awaited && server_closes) {
        fail(&turn.read_errors, "the server closed a connection before it had answered all requests");
        return;
    }
    if (connection->awaited)
        return;
    turn.busy--;
    if (server_closes || settings.closes) {
        turn.closes += !settings.closes;
        close_connection(connection);
    }
    if (turn.phase != DRAINING)
        start_requests(connection, now_ns);
}

static void take_bytes(struct connection *connection, const char *data, size_t length, uint64_t now_ns) {
    turn.bytes += length;
    while (length && !turn.failed) {
        if (!connection->awaited) {
            fail(&turn.read_errors, "the server sent more than a response");
            return;
        }
        size_t taken = parse_response(&connection->response, settings.is_http, data, length);
        data += taken;
        length -= taken;
        if (connection->response.state == MALFORMED)
            fail(&turn.read_errors, settings.is_http ? "a response that is not HTTP" : "a response that is not RESP");
        else if (connection->response.state == COMPLETE) {
            if (connection->awaited == 1 && length)
                fail(&turn.read_errors, "the server sent more than a response");
            else
                end_response(connection, now_ns);
        }
    }
}

// Receive what has arrived. With edge-triggered events, a full buffer and a closed connection need another call.
static void receive(struct connection *connection, uint32_t events, uint64_t now_ns) {
    static char buffer[RECEIVE_BYTES];
    ssize_t length;
    do {
        length = recv(connection->socket, buffer, sizeof buffer, MSG_DONTWAIT);
        if (length > 0)
            take_bytes(connection, buffer, (size_t)length, now_ns);
        else if (length == 0 && connection->awaited && connection->response.state == UNTIL_CLOSE)
            end_response(connection, now_ns);
        else if (length == 0)
            lose_connection(connection, "the server closed a connection without a complete response");
        else if (errno != EAGAIN && errno != EINTR)
            lose_connection(connection, strerror(errno));
        if (turn.failed || connection->socket < 0 || connection->is_connecting)
            return;
    } while (length == sizeof buffer || (length > 0 && events & EPOLLRDHUP) || (length < 0 && errno == EINTR));
}

static void handle_event(const struct epoll_event *event, uint64_t now_ns) {
    struct connection *connection = event->data.ptr;
    if (connection->is_connecting)
        end_connecting(connection, now_ns);
    else if (connection->unsent_bytes)
        send_rest(connection);
    if (!turn.failed && connection->socket >= 0 && !connection->is_connecting && event->events & ~(uint32_t)EPOLLOUT)
        receive(connection, event->events, now_ns);
}

// --- turns --------------------------------------------------------------------------------------------------------

// Poll for events until the time for it is over; return their number.
static int poll_events(struct epoll_event *events) {
    uint64_t begin_ns = read_clock(CLOCK_MONOTONIC), cpu_begin_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
    int count = 0;
    while (!count && read_clock(CLOCK_MONOTONIC) - begin_ns < settings.poll_ns) {
        sched_yield(); // to the server, if it has the same CPU
        count = epoll_wait(epoll, events, EVENTS, 0);
    }
    if (turn.phase == COUNTING)
        turn.polled_ns += read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns;
    return count;
}

// Wait up to a time-out in milliseconds, and handle what has happened.
static void handle_events(int timeout) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, settings.poll_ns ? 0 : timeout);
    if (!count && timeout && settings.poll_ns)
        count = poll_events(events);
    if (!count && timeout && settings.poll_ns)
        count = epoll_wait(epoll, events, EVENTS, timeout);
    require(count >= 0 || errno == EINTR, "epoll_wait");
    uint64_t now_ns = read_clock(CLOCK_MONOTONIC);
    for (int i = 0; i < count && !turn.failed; i++)
        handle_event(&events[i], now_ns);
}

static void print_turn(uint64_t moment_ns) {
    double behind = ((double)turn.window_begin_ns - (double)moment_ns) / 1e9;
    uint64_t cpu_ns = turn.cpu_end_ns - turn.cpu_begin_ns;
    cpu_ns -= turn.polled_ns < cpu_ns ? turn.polled_ns : cpu_ns;
    printf("requests: %llu\nseconds: %.9f\ncpu_seconds: %.9f\n", (unsigned long long)turn.requests,
           (double)(turn.window_end_ns - turn.window_begin_ns) / 1e9, (double)cpu_ns / 1e9);
    double discarded_seconds = (double)(turn.window_begin_ns - turn.first_ns) / 1e9;
    printf("discarded_seconds: %.9f\ndiscarded_rate: %.3f\n", discarded_seconds,
           discarded_seconds > 0 ? (double)turn.discarded / discarded_seconds : 0);
    if (moment_ns)
        printf("behind: %.9f\n", turn.window_begin_ns ? behind : 0);
    printf("bytes: %llu\ncloses: %llu\nerrors: connect %llu, read %llu, status %llu, short %llu\n",
           (unsigned long long)turn.bytes, (unsigned long long)turn.closes, (unsigned long long)turn.connect_errors,
           (unsigned long long)turn.read_errors, (unsigned long long)turn.status_errors,
           (unsigned long long)turn.short_errors);
    if (turn.error[0])
        printf("error: %s\n", turn.error);
    if (settings.prints_latency)
        print_latencies();
    puts("turn: done");
    require(fflush(stdout) == 0, "standard output");
}

// Send over all connections until the window is over, and wait for the outstanding responses.
static void drive_connections(uint64_t deadline_ns) {
    turn.first_ns = read_clock(CLOCK_MONOTONIC);
    for (long i = 0; i < settings.connections && !turn.failed; i++)
        start_requests(&connections[i], read_clock(CLOCK_MONOTONIC));
    while (turn.busy && !turn.failed) {
        uint64_t now_ns = read_clock(CLOCK_MONOTONIC);
        if (now_ns >= deadline_ns)
            fail(&turn.read_errors, "the server did not answer all requests in time");
        else
            handle_events((int)((deadline_ns - now_ns) / 1000000) + 1);
    }
}

static void sleep_until(uint64_t moment_ns) {
    struct timespec moment = {(time_t)(moment_ns / 1000000000), (long)(moment_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR)
        ;
}

// Run a turn. The window begins at the moment; if that is 0, after the part to discard.
static void run_turn(double discard_seconds, double measure_seconds, double moment_seconds) {
    uint64_t moment_ns = to_nanoseconds(moment_seconds), discard_ns = to_nanoseconds(discard_seconds);
    memset(&turn, 0, sizeof turn);
    clear_latencies();
    if (moment_ns > discard_ns)
        sleep_until(moment_ns - discard_ns);
    turn.phase = DRAINING; // nothing is sent yet
    handle_events(0);      // connections that were closed since the last turn
    turn.phase = DISCARDING;
    turn.begin_ns = moment_ns ? moment_ns : read_clock(CLOCK_MONOTONIC) + discard_ns;
    turn.measure_ns = to_nanoseconds(measure_seconds);
    uint64_t now_ns = read_clock(CLOCK_MONOTONIC), begin_ns = turn.begin_ns > now_ns ? turn.begin_ns : now_ns;
    drive_connections(begin_ns + turn.measure_ns + to_nanoseconds(settings.patience_seconds));
    if (turn.failed) {
        for (long i = 0; i < settings.connections; i++)
            close_connection(&connections[i]);
        turn.requests = 0;
        turn.first_ns = turn.window_end_ns = turn.window_begin_ns = turn.cpu_end_ns = turn.cpu_begin_ns = 0;
    }
    print_turn(moment_ns);
}

// Run a turn for each line of standard input; return the exit code.
static int take_turns(void) {
    char line[200];
    while (fgets(line, sizeof line, stdin)) {
        double discard, measure, moment = 0;
        int end = 0;
        if (sscanf(line, "go %lf %lf %n%lf %n", &discard, &measure, &end, &moment, &end) < 2 || line[end] ||
            !(discard >= 0 && discard <= MAX_TURN_SECONDS) || !(measure > 0 && measure <= MAX_TURN_SECONDS) ||
            !(moment >= 0 && moment < 1e10)) {
            fputs("load_client: not a line such as `go 0.001 0.005`\n", stderr);
            return 2;
        }
        run_turn(discard, measure, moment);
    }
    return 0;
}

// --- start --------------------------------------------------------------------------------------------------------

static void allow_descriptors(void) {
    struct rlimit limit;
    require(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

int main(int argc, char **argv) {
    if (!parse_arguments(argc, argv)) {
        fputs(
            "usage: load_client http|redis ADDRESS PORT CONNECTIONS REQUESTS [--pipeline N] [--close] [--body BYTES]\n"
            "                   [--patience SECONDS] [--latency]\n",
            stderr);
        return 2;
    }
    if (!load_requests(argv[5])) {
        fprintf(stderr, "load_client: %s: not a list of requests\n", argv[5]);
        return 2;
    }
    allow_descriptors();
    epoll = epoll_create1(EPOLL_CLOEXEC);
    require(epoll >= 0, "epoll_create1");
    connections = calloc((size_t)settings.connections, sizeof *connections);
    require(connections, "memory");
    for (long i = 0; i < settings.connections; i++)
        connections[i].socket = -1;
    return take_turns();
}
