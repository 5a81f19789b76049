-- Makes wrk take turns. A line on standard input starts a turn of that many seconds. At the end of the turn, the script
-- prints its counts, and waits for the next line with its connections open. A line that is no number ends wrk. If
-- several clients share a load, a second number is the common begin of the turn on this client's clock.
--
-- wrk calls request() before each request, from its only thread: while request() waits, wrk sends and reads nothing.
-- Answers to earlier requests arrive meanwhile, at most one on each connection. So counting begins after that number of
-- requests, and after a lead in which the server warms its caches again.

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
-- Seconds. After other stacks' turns, nginx answered 25 % fewer requests in the first 2 ms, and as many as ever from
-- 14 ms on, whatever the length of the turn.
local LEAD = 0.02
local moment = ffi.new("tare_moment")
local texts, clients, length, moment_to_begin -- texts of requests are sent in order, from the first after the last
local sent = 0
local asked = -1 -- before it begins, wrk takes one request to parse it, and does not send it
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
        ffi.C.kill(ffi.C.getpid(), INTERRUPT) -- on SIGINT, wrk prints its counts and calls done()
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
        -- The server answers the requests that were already sent. Without this rest, it would do so in other turns.
        rest(math.min(clients * seconds / requests, LONGEST_REST))
        local behind = moment_to_begin and string.format("behind: %.9f\n", began - moment_to_begin) or ""
        print_turn(string.format("requests: %d\nseconds: %.9f\ncpu_seconds: %.9f\n%s",
            requests, seconds, cpu_seconds, behind))
        await_turn()
    end
    return next_text()
end

function done(summary)
    local errors = summary.errors -- without time-outs: wrk counts the wait between turns as one
    io.write(string.format("answers: %.0f\nbytes: %.0f\n", summary.requests, summary.bytes))
    print_turn(string.format("errors: connect %d, read %d, write %d, status %d\n",
        errors.connect, errors.read, errors.write, errors.status))
end
