"""The kinds of work that an application does, and that a price list has a price of.

They are what an application asks of what lies below it: to run its code, to enter the kernel, to pass data over a
network path and to a file system. A system call counts as the kind that names it, and as `call` if none does.
"""

from __future__ import annotations

from dataclasses import dataclass

FAULTS_PER_PROGRAM = 40  # of a small program, linked statically, and of the one that starts it by fork
_TWO_SWITCHES = (("switch", 2.0),)  # from who waits for its end


@dataclass(frozen=True)
class OperationKind:
    """A kind of work.

    `name` is that of its metric in a price list, which is the seconds that one `unit` takes. `title` names many of it.
    `calls` are the system calls that are counted as this kind; one that is `undo_call` another is paid for with it.
    `includes` has the other kinds of work, and how much of each, that are part of its metric but not of its price.
    """

    name: str
    title: str
    unit: str
    calls: tuple[str, ...] = ()
    undo_call: str = ""
    includes: tuple[tuple[str, float], ...] = ()


USER = OperationKind("user", "user code", "s")  # its price is the seconds that a second of bare metal takes
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
SWITCH = OperationKind("switch", "context switches", "switch", includes=((PIPE.name, 1),))  # woken by a message
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

NETWORK_KINDS = (CONNECTION, MESSAGE, RECEIVED, SENT)  # what the path between client and instance decides

KIND_BY_CALL = {call: work for work in OPERATION_KINDS for call in work.calls}
