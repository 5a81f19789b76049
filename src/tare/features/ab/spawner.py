"""Small process that starts the commands of `tare ab`, measures them, and answers requests.

A large process would show in the commands' peak memory: the kernel counts the memory of the process that starts a
program as that of the program. So this file imports only what is built into Python, and runs with `python -I -S`.
Requests and responses are dictionaries in the format of `marshal`.

A request has `argv` (with the path of the program), `cwd`, `env`, `stdin` (a path, or "" for an empty one), `keep` (the
bytes of the output to return; 0 sends it to /dev/null) and `timeout` in seconds. The response has the fields of
`contenders.CommandUsage`, or `error`.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` imports `enum`, which takes a megabyte
import marshal
import os
import select
import sys
import time

_READ_BYTES = 1 << 16
_ERROR_BYTES = 2000  # of the end of standard error
_REQUESTS = 0  # file descriptor
_SIGNALS = [each for each in signal.valid_signals() if each not in (signal.SIGKILL, signal.SIGSTOP)]


def run(request: dict) -> dict:  # type: ignore[type-arg]
    """Run one command to its end; raises OSError if it cannot be started."""
    os.chdir(request["cwd"])
    keep = request["keep"]
    stdin = os.open(request["stdin"] or os.devnull, os.O_RDONLY)
    read_errors, write_errors = os.pipe()
    read_output, write_output = os.pipe() if keep else (-1, os.open(os.devnull, os.O_WRONLY))
    try:
        actions = [(os.POSIX_SPAWN_DUP2, each, to) for to, each in enumerate((stdin, write_output, write_errors))]
        began = time.perf_counter()
        # A separate session: no terminal, and one group to end with all that it leaves behind.
        pid = os.posix_spawn(
            request["argv"][0], request["argv"], request["env"], file_actions=actions, setsid=True, setsigmask=(),
            setsigdef=_SIGNALS,
        )  # fmt: skip
    finally:
        for each in (stdin, write_output, write_errors):
            os.close(each)
    files = {read_errors: _Tail(_ERROR_BYTES)} | ({read_output: _Head(keep)} if keep else {})
    try:
        timed_out = not _wait(pid, files, began + request["timeout"])
        if timed_out:  # or tare has ended
            os.killpg(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        wall = time.perf_counter() - began
        waited = _read_waited_seconds(pid)  # before the next line, which removes the process
        _, status, used = os.wait4(pid, 0)
        left_behind = _end_group(pid)
        for each, kept in files.items():
            _drain(each, kept)
    finally:
        for each in files:
            os.close(each)
    code = os.waitstatus_to_exitcode(status)
    return {
        "wall": wall,
        "user": used.ru_utime,
        "system": used.ru_stime,
        "waited": waited,
        "memory": used.ru_maxrss * 1024,
        "code": code if code >= 0 else 128 - code,
        "timed_out": timed_out,
        "left_behind": left_behind,
        "errors": files[read_errors].data.decode("utf-8", "replace"),
        "output": files[read_output].data.decode("utf-8", "replace") if keep else "",
        "output_bytes": files[read_output].count if keep else 0,
    }


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, most: int) -> None:
        self.data, self.count, self._most = b"", 0, most

    def add(self, data: bytes) -> None:
        self.count += len(data)
        self.data = (self.data + data)[-self._most :]


class _Head(_Tail):
    """The first bytes of a stream."""

    def add(self, data: bytes) -> None:
        self.count += len(data)
        self.data += data[: self._most - len(self.data)]


def _wait(pid: int, files: "dict[int, _Tail]", deadline: float) -> bool:
    """Read from the files until the process has ended; return False at the deadline, and if tare has ended."""
    ended = os.pidfd_open(pid)
    poll = select.poll()
    for each in (ended, *files):
        poll.register(each, select.POLLIN)
    poll.register(_REQUESTS, 0)  # reports only that the other end was closed
    try:
        while (left := deadline - time.perf_counter()) > 0:
            for ready, _ in poll.poll(left * 1000):
                if ready == ended:
                    return True
                if ready == _REQUESTS:
                    return False
                data = os.read(ready, _READ_BYTES)
                files[ready].add(data)
                if not data:
                    poll.unregister(ready)
        return False
    finally:
        os.close(ended)


def _drain(file: int, kept: _Tail) -> None:
    """Read what the ended process has left in a pipe."""
    os.set_blocking(file, False)
    try:
        while data := os.read(file, _READ_BYTES):
            kept.add(data)
    except BlockingIOError:  # another process holds the other end
        pass


def _end_group(group: int) -> bool:
    """End the processes that a command left in its group; return whether there was one."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _read_waited_seconds(pid: int) -> float:
    """Return the seconds for which a process was runnable and did not run; 0 if they are unknown."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:  # noqa: PTH123 - pathlib is not built in
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def main() -> None:
    """Pin this process to the CPUs of the arguments, and answer requests until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for tare, which then closes the requests
    os.sched_setaffinity(0, map(int, sys.argv[1:]))
    while True:
        try:
            request = marshal.load(sys.stdin.buffer)  # noqa: S302 - from tare
        except EOFError:
            return
        try:
            response = run(request)
        except OSError as error:
            response = {"error": f"cannot be started: {error.strerror}"}
        try:
            marshal.dump(response, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # tare was interrupted, and has ended
            os._exit(0)  # the usual end would try to flush again


if __name__ == "__main__":
    main()
