-- Lets wrk take turns. A line of standard input sets for how many seconds it asks the server; then it prints what it
-- did, and waits for the next line with its connections open. A line that is no number ends it. Where several clients
-- share a load, a second number is the moment at which all of them begin, on this client's clock.
--
-- wrk calls request() before each request, from its one thread: while this one waits, nothing is sent or read. Answers
-- to what was already sent arrive meanwhile, at most one on each connection. The next turn begins after as many
-- requests, and after a lead in which the server finds back what it had in the caches.

local ffi = require("ffi")
ffi.cdef [[
    typedef struct { long seconds, nanoseconds; } tare_moment;
    int clock_gettime(int clock, tare_moment *moment);
    int nanosleep(const tare_moment *length, tare_moment *rest);
    int getpid(void);
    int kill(int process, int signal);
]]

local WALL, OWN_CPU, INTERRUPT = 1, 2, 2 -- CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, SIGINT of Linux
local LONGEST_REST = 1 -- seconds
local LEAD = 0.02 -- seconds, of any turn: caches are cold for so long, however long the turn
local moment = ffi.new("tare_moment")
local texts, clients, length, moment_to_begin -- texts of requests, which are sent in their order, again and again
local sent = 0
local asked = -1 -- wrk asks for one request, to look at it, before it begins
local requests, woken, began, cpu_began

local function now(clock)
    ffi.C.clock_gettime(clock, moment)
    return tonumber(moment.seconds) + tonumber(moment.nanoseconds) / 1e9
end

local function rest(seconds)
    moment.seconds = math.floor(seconds)
    moment.nanoseconds = (seconds - math.floor(seconds)) * 1e9
    ffi.C.nanosleep(moment, nil)
end

local function await_turn()
    local line = io.read("*l") or ""
    asked, requests, woken, length = 0, nil, nil, tonumber(line:match("^%S+"))
    moment_to_begin = tonumber(line:match(" (%S+)$"))
    if not length then
        length = math.huge
        ffi.C.kill(ffi.C.getpid(), INTERRUPT) -- wrk prints what it counted, and calls done()
        wrk.thread:stop()
    end
end

local function print_turn(line)
    io.write(line, "turn: done\n")
    io.flush()
end

local function next_text()
    sent = sent % #texts + 1
    return texts[sent]
end

function init(arguments)
    clients = tonumber(arguments[1])
    texts = arguments[2] and dofile(arguments[2]) or { wrk.format() }
end

function request()
    if not length then
        asked = asked + 1
        if asked == 0 then return texts[1] end
        await_turn()
    end
    asked = asked + 1
    if not requests then
        local instant = now(WALL)
        woken = woken or instant
        if asked > clients and instant - woken >= LEAD and instant >= (moment_to_begin or 0) then
            requests, began, cpu_began = 0, instant, now(OWN_CPU)
        end
        return next_text()
    end
    requests = requests + 1
    local seconds = now(WALL) - began
    if seconds >= length then
        local cpu_seconds = now(OWN_CPU) - cpu_began
        rest(math.min(clients * seconds / requests, LONGEST_REST)) -- the server answers what was already sent
        local behind = moment_to_begin and string.format("behind: %.9f\n", began - moment_to_begin) or ""
        print_turn(string.format("requests: %d\nseconds: %.9f\ncpu_seconds: %.9f\n%s",
            requests, seconds, cpu_seconds, behind))
        await_turn()
    end
    return next_text()
end

function done(summary)
    local errors = summary.errors -- time-outs are none: the wait between turns counts
    io.write(string.format("answers: %.0f\nbytes: %.0f\n", summary.requests, summary.bytes))
    print_turn(string.format("errors: connect %d, read %d, write %d, status %d\n",
        errors.connect, errors.read, errors.write, errors.status))
end
