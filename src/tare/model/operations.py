"""Operation kinds of an application, for which a price list has unit costs.

An application runs user code, enters the kernel, and passes data over a network path and to a file system. A system
call counts as the kind that lists it, or as `call` if no kind does.
"""

from __future__ import annotations

from dataclasses import dataclass

FAULTS_PER_PROGRAM = 40  # page faults of a small, statically linked program and of the process that forks it
_TWO_SWITCHES = (("switch", 2.0),)  # to the new thread or program, and back to the process that waits for its end


@dataclass(frozen=True)
class OperationKind:
    """Operation kind.

    - `name` is the name of its metric in a price list, the seconds per `unit`; `title` is a plural for reports.
    - `calls` are the system calls that are counted as this kind.
    - `undo_call`, such as `close`, is not counted: its cost is part of the unit cost of the call that it undoes.
    - `includes` are pairs of another kind's name and its amount. The benchmark of this kind performs these, too, so
      that they are subtracted from its metric to get the unit cost.
    """

    name: str
    title: str
    unit: str
    calls: tuple[str, ...] = ()
    undo_call: str = ""
    includes: tuple[tuple[str, float], ...] = ()


USER = OperationKind("user", "user code", "s")  # unit cost: seconds on the stack for a second on bare metal
CALL = OperationKind("call", "other system calls", "call")
FILE_READ = OperationKind("file-read", "reads of cached files", "4 KiB", ("pread64", "preadv", "preadv2"))
FILE_WRITE = OperationKind("file-write", "writes to cached files", "4 KiB", ("pwrite64", "pwritev", "pwritev2"))
SYNC = OperationKind(
    "sync", "syncs of a file", "sync", ("fsync", "fdatasync", "sync_file_range", "msync", "syncfs", "sync")
)
OPEN = OperationKind("open", "files opened and closed", "file", ("open", "openat", "openat2", "creat"), "close")
STAT = OperationKind(
    "stat",
    "lookups of files",
    "lookup",
    ("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat"),
)
MAP = OperationKind("map", "mappings made and removed", "mapping", ("mmap", "brk", "mremap", "mprotect"), "munmap")
FAULT = OperationKind("fault", "page faults", "fault")
PIPE = OperationKind("pipe", "messages through pipes and sockets of the instance", "message")
SWITCH = OperationKind("switch", "context switches", "switch", includes=((PIPE.name, 1),))  # a message wakes it
FUTEX = OperationKind("futex", "waits for another thread", "wait", ("futex", "futex_wait", "futex_waitv"))
POLL = OperationKind(
    "poll",
    "waits for events",
    "wait",
    ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"),
)
THREAD = OperationKind("thread", "threads started", "thread", includes=_TWO_SWITCHES)
PROCESS = OperationKind(
    "process",
    "programs started",
    "program",
    ("execve", "execveat"),
    includes=(*_TWO_SWITCHES, (FAULT.name, FAULTS_PER_PROGRAM)),
)
MESSAGE = OperationKind("message", "messages received and answered", "message")
CONNECTION = OperationKind(
    "connection", "connections accepted", "connection", ("accept", "accept4"), "close", includes=((MESSAGE.name, 1),)
)
RECEIVED = OperationKind("received", "bytes received", "byte")
SENT = OperationKind("sent", "bytes sent", "byte")

OPERATION_KINDS = (
    USER,
    CALL,
    FILE_READ,
    FILE_WRITE,
    SYNC,
    OPEN,
    STAT,
    MAP,
    FAULT,
    SWITCH,
    FUTEX,
    POLL,
    PIPE,
    THREAD,
    PROCESS,
    CONNECTION,
    MESSAGE,
    RECEIVED,
    SENT,
)

NETWORK_KINDS = (CONNECTION, MESSAGE, RECEIVED, SENT)  # their cost depends on the path between client and instance

KIND_BY_CALL = {call: kind for kind in OPERATION_KINDS for call in kind.calls}
