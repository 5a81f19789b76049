-- Makes wrk send on a schedule, in turns. A line "RATE COUNT" on standard input starts a turn of COUNT requests at RATE
-- requests a second. At the end of the turn, the script prints the latencies, and waits for the next line with its
-- connections open. Any other line ends wrk. If several clients share a load, the line has two more numbers: the delay
-- of this client's first request after the common begin, and the common begin on this client's clock.
--
-- Each thread of wrk has one connection and every n-th request. wrk calls request() from the thread when its connection
-- is free, so the thread can sleep until its next request is due. A request that was due while the server still owed an
-- answer on this connection is sent at once, and its latency counts from its due time. So no wait that the server
-- caused is left out (coordinated omission).
--
-- The delay of the client is counted separately, and is no part of a latency. Without the client's delay of a request,
-- the connection would have been free that much earlier. The delay of the next request counts from that time, or from
-- its due time if that is later.

local ffi = require("ffi")
ffi.cdef [[
    typedef struct { long seconds, nanoseconds; } tare_moment;
    typedef union { char bytes[64]; long alignment; } tare_barrier; // no smaller than a pthread_barrier_t
    typedef struct {
        tare_barrier barrier;
        int threads, count, ended;
        double began, gap, behind; // seconds behind the common begin; below 0 for a single client
        double *latencies, *delays; // of each request, in seconds
    } tare_turn;
    int clock_gettime(int clock, tare_moment *moment);
    int clock_nanosleep(int clock, int flags, const tare_moment *until, tare_moment *rest);
    int prctl(int option, unsigned long value);
    int sched_getaffinity(int process, size_t size, unsigned char *mask);
    int pthread_barrier_init(tare_barrier *barrier, const void *attributes, unsigned count);
    int pthread_barrier_wait(tare_barrier *barrier);
    void *calloc(size_t count, size_t size);
    void free(void *memory);
    int getpid(void);
    int kill(int process, int signal);
]]

local WALL, OWN_CPU, AT_TIME, TIMER_SLACK, INTERRUPT = 1, 2, 1, 29, 2 -- numbers of Linux
local LEAD, LATE = 0.005, 0.001 -- seconds until a turn begins; delay in seconds after which a request counts as late
local CLASS, SHORTEST = math.log(1.001), 1e-9 -- classes of latencies, for clients that share a load
local moment = ffi.new("tare_moment")
local made, threads_made = nil, 0 -- used by wrk's main thread only
local turn, texts, to_look_at -- one for each thread, like all that follows: wrk has a Lua state for each thread
local passed = 0 -- requests of earlier turns, after which the list of texts continues
local next_number, due, delay, cpu_began

local function now(clock)
    ffi.C.clock_gettime(clock, moment)
    return tonumber(moment.seconds) + tonumber(moment.nanoseconds) / 1e9
end

local function rest_until(time)
    moment.seconds = math.floor(time)
    moment.nanoseconds = (time - math.floor(time)) * 1e9
    ffi.C.clock_nanosleep(WALL, AT_TIME, moment, nil)
end

local function cpus()
    local mask, found = ffi.new("unsigned char[128]"), 0
    ffi.C.sched_getaffinity(0, 128, mask)
    for at = 0, 1023 do
        if math.floor(mask[math.floor(at / 8)] / 2 ^ (at % 8)) % 2 == 1 then found = found + 1 end
    end
    return found
end

local function sorted(array)
    local values = {}
    for at = 1, turn.count do values[at] = array[at - 1] end
    table.sort(values)
    return values
end

local function quantile(values, share) -- by the nearest rank; 1e-9 absorbs floating-point error of whole ranks
    return values[math.max(1, math.ceil(share * #values - 1e-9))]
end

local function classes(values) -- counts of latencies by class, from sorted values
    local found, at, count = {}, nil, 0
    for number = 1, #values + 1 do
        local value = values[number]
        local class = value and math.floor(math.log(math.max(value, SHORTEST)) / CLASS)
        if class ~= at then
            if at then found[#found + 1] = string.format(" %d:%d", at, count) end
            at, count = class, 0
        end
        count = count + 1
    end
    return table.concat(found)
end

local function print_turn()
    local seconds, cpu_seconds = now(WALL) - turn.began, now(OWN_CPU) - cpu_began
    local latencies, delays, late = sorted(turn.latencies), sorted(turn.delays), 0
    for _, delay in ipairs(delays) do
        if delay > LATE then late = late + 1 end
    end
    io.write(string.format("requests: %d\nseconds: %.9f\n", turn.count, seconds))
    for _, name in ipairs { "50", "90", "99", "99.9" } do
        io.write(string.format("p%s: %.9f\n", name, quantile(latencies, tonumber(name) / 100)))
    end
    io.write(string.format("late: %d\nusual_delay: %.9f\n", late, quantile(delays, 0.5)))
    io.write(string.format("cpu_seconds: %.9f\ncpus: %d\n", cpu_seconds, cpus()))
    if turn.behind >= 0 then
        io.write(string.format("behind: %.9f\nclasses:%s\n", turn.behind, classes(latencies)))
    end
    io.write("turn: done\n")
    io.flush()
end

local function forget()
    ffi.C.free(turn.latencies)
    ffi.C.free(turn.delays)
    turn.latencies, turn.delays = nil, nil
end

local function array()
    return ffi.cast("double *", ffi.C.calloc(turn.count, ffi.sizeof("double")))
end

local function plan(line)
    local rate, count, offset, moment_to_begin = (line or ""):match("^(%S+) (%d+) ?(%S*) ?(%S*)$")
    if not rate then
        turn.ended = 1
        ffi.C.kill(ffi.C.getpid(), INTERRUPT) -- on SIGINT, wrk prints its counts and calls done()
        return
    end
    turn.count, turn.gap = tonumber(count), 1 / tonumber(rate)
    turn.latencies, turn.delays = array(), array()
    local soonest, common_begin = now(WALL) + LEAD, tonumber(moment_to_begin)
    turn.began, turn.behind = soonest, -1
    if common_begin then -- a line that arrived late begins late: sending the missed requests at once would be a burst
        turn.began = math.max(common_begin, soonest) + tonumber(offset)
        turn.behind = turn.began - common_begin
    end
    cpu_began = now(OWN_CPU)
end

local function await_turn()
    passed = passed + (next_number and turn.count or 0)
    ffi.C.pthread_barrier_wait(turn.barrier) -- after it, all requests of the turn are answered
    if number == 0 then
        if turn.latencies ~= nil then
            print_turn()
            forget()
        end
        plan(io.read("*l"))
    end
    ffi.C.pthread_barrier_wait(turn.barrier)
    next_number, delay = number, 0
    if turn.ended == 1 then wrk.thread:stop() end
end

function setup(thread)
    made = made or ffi.cast("tare_turn *", ffi.C.calloc(1, ffi.sizeof("tare_turn")))
    thread:set("turn_address", tonumber(ffi.cast("intptr_t", made)))
    thread:set("number", threads_made)
    threads_made = threads_made + 1
end

function init(arguments)
    turn, to_look_at = ffi.cast("tare_turn *", turn_address), number == 0
    texts = arguments[2] and dofile(arguments[2]) or { wrk.format() }
    if number == 0 then
        turn.threads = tonumber(arguments[1])
        ffi.C.pthread_barrier_init(turn.barrier, nil, turn.threads)
    end
end

function request()
    if to_look_at then -- before it begins, wrk parses one request of the first thread without sending it
        to_look_at = false
        return texts[1]
    end
    if turn.ended == 1 then return texts[1] end
    local free = now(WALL)
    if next_number then
        turn.latencies[next_number] = free - due - delay
        next_number = next_number + turn.threads
    else
        ffi.C.prctl(TIMER_SLACK, 1) -- nanoseconds: by default, the kernel may wake the thread 50 microseconds late
    end
    while not next_number or next_number >= turn.count do
        await_turn()
        if turn.ended == 1 then return texts[1] end
        free = now(WALL)
    end
    due = turn.began + next_number * turn.gap
    local could_be_sent = math.max(due, free - delay)
    if free < due then rest_until(due) end
    delay = now(WALL) - could_be_sent
    turn.delays[next_number] = delay
    return texts[(passed + next_number) % #texts + 1]
end

function done(summary)
    local errors = summary.errors -- without time-outs: wrk counts the wait between turns as one
    io.write(string.format("answers: %.0f\nbytes: %.0f\n", summary.requests, summary.bytes))
    io.write(string.format("errors: connect %d, read %d, write %d, status %d\nturn: done\n",
        errors.connect, errors.read, errors.write, errors.status))
    io.flush()
end
