"""Parser for the JSON output of bpftrace with the program of bpftrace.py: sums over windows, and exact counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tare.features.advise.profiler.profile import RECEIVING, SENDING, SEVERAL, CallCount, FileType, TraceCounts
from tare.model.errors import TrialFailed

_Number = TypeVar("_Number", int, float)

CALL_SECONDS = 2e-6  # cost of counting a system call, at most (research/profile_effect.py)
ATTACHED_SECONDS = 0.4e-6  # cost of a call of the application that is not counted; of other processes, 0.25e-6
SOCKET = 0xC000  # file type as in st_mode of inode(7); the program adds the address family of sockets
_FILE_TYPES: Mapping[int, FileType] = {
    0x1000: "pipe",
    0x2000: "device",
    0x6000: "file",  # block device
    0x8000: "file",
    SOCKET + 1: "local",
    SOCKET + 2: "network",
    SOCKET + 10: "network",
}
# The names of the system calls of x86-64 by their numbers, from arch/x86/entry/syscalls/syscall_64.tbl of Linux 6.12.
# Numbers from 335 to 423 are not used.
_NEWER = 424  # the first of those that have the same number on all architectures
_OLD = """
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn
ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise shmget shmat shmctl
dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg
recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit
wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync fdatasync truncate
ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod fchmod chown
fchown lchown umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid geteuid
getegid setpgid getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid
getpgid setfsuid setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend
sigaltstack utime mknod uselib personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam
sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min
sched_rr_get_interval mlock munlock mlockall munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl
adjtimex setrlimit chroot sync acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname iopl
ioperm create_module init_module delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg
afs_syscall tuxcall security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr
llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity sched_getaffinity
set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie epoll_create
epoll_ctl_old epoll_wait_old remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64
timer_create timer_settime timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime clock_getres
clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open
mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl
ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat
futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll unshare
set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait signalfd
timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2
inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64
name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv process_vm_writev
kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create kexec_file_load bpf execveat
userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx
io_pgetevents rseq
"""
_NEW = """
pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount
fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr
quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret process_mrelease
futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue
statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal
"""
_RETURN = "rt_sigreturn"  # at its exit the kernel has restored the interrupted registers, and reports -1 as its number
NAMES = dict(enumerate(_OLD.split())) | dict(enumerate(_NEW.split(), _NEWER))
NUMBERS = {name: number for number, name in NAMES.items()}


def is_tick(line: str) -> bool:
    """Return whether the program printed this line at the begin of a slot."""
    return _parse_line(line) == {"type": "printf", "data": "tick\n"}


def parse_maps(line: str) -> dict[str, Any]:
    """Return the maps in a line of bpftrace's JSON by name; empty for another line."""
    data = _parse_line(line).get("data")
    return {name: each for name, each in data.items() if name.startswith("@")} if isinstance(data, dict) else {}


def _parse_line(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def parse_trace_counts(text: str, seconds: float, source: str = "@faults @packets") -> TraceCounts:
    """Parse the JSON output of a program that ran for `seconds`; `source` tells which figures it counted.

    Raises TrialFailed if the program ended without its counts.
    """
    maps = _parse_all_maps(text)
    if "@slots" not in maps:
        raise TrialFailed("bpftrace: ended without its counts", "run it again")
    try:
        return _to_trace_counts(maps, seconds, source)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise TrialFailed(f"bpftrace: its counts cannot be read: {error!r:.80}", "run it again") from error


def parse_cost(text: str) -> float:
    """Return the CPU seconds that counting took, from the output of bpftrace; 0 if unknown."""
    maps = _parse_all_maps(text)
    with suppress(TypeError, ValueError):
        return int(maps.get("@counted", 0)) * CALL_SECONDS + int(maps.get("@total", 0)) * ATTACHED_SECONDS
    return 0.0


def _parse_all_maps(text: str) -> dict[str, Any]:
    maps: dict[str, Any] = {}
    for line in text.splitlines():
        maps |= parse_maps(line)
    return maps


@dataclass(frozen=True)
class _Sums:
    """Sums of the program: sums over windows are scaled to all calls, whose number is exact."""

    maps: Mapping[str, Any]

    @cached_property
    def scaling_factor(self) -> float:
        """The exact number of calls over the number estimated from windows; 1 without calls."""
        entered = int(self.maps.get("@entered", 0))
        return int(self.maps.get("@total", 0)) / entered if entered else 1.0

    def scaled_sum(self, name: str, key: str = "") -> int:
        """Return a sum over windows, scaled to all calls."""
        found = self.maps.get(name, 0)
        number: int = found.get(key, 0) if key and found else found
        return round(self.scaling_factor * number)

    def started_count(self, key: str) -> int:
        """Return the number of started processes (key "1") or threads (key "0"), which is exact."""
        return int(self.maps.get("@born", {}).get(key, 0))


def _to_trace_counts(maps: Mapping[str, Any], seconds: float, source: str) -> TraceCounts:
    if maps.get("@ended"):  # the program ended itself: the kernel's clock is more precise than ours
        seconds = (maps["@ended"] - maps["@began"]) / 1e9
    sums = _Sums(maps)
    calls = sorted(_sum_calls(sums), key=lambda each: (-each.count, each.call, each.on, each.failed))
    return TraceCounts(
        seconds=seconds,
        calls=tuple(calls),
        faults=sums.scaled_sum("@faults") if "@faults" in source else None,
        waits=sums.scaled_sum("@switches", "1"),
        preemptions=sums.scaled_sum("@switches", "0"),
        programs=int(maps.get("@programs", 0)),
        processes=sums.started_count("1"),
        threads=sums.started_count("0"),
        packets=sums.scaled_sum("@packets") if "@packets" in source else None,
    )


def _sum_calls(sums: _Sums) -> Iterator[CallCount]:
    """Yield calls by name, type of file and success, added up over file types that tare does not distinguish."""
    groups: dict[tuple[str, FileType, bool], list[CallCount]] = {}
    for key in sums.maps.get("@calls", {}):
        number, mode, failed = key.split(",")
        name, on, size = name_of(int(number)), _file_type(int(mode)), f"{number},{mode}"
        sized = on and failed == "0" and (name in RECEIVING or name in SENDING)
        passed, pieces = (sums.scaled_sum(each, size) if sized else None for each in ("@bytes", "@pieces"))
        if name in SEVERAL:
            passed, pieces = None, passed
        seconds = sums.scaled_sum("@times", key) / 1e9
        call = CallCount(name, sums.scaled_sum("@calls", key), on, failed == "1", seconds, passed, pieces)
        groups.setdefault((name, on, call.failed), []).append(call)
    for (name, on, failed_), calls in groups.items():
        yield CallCount(
            name,
            sum(each.count for each in calls),
            on,
            failed_,
            _sum(each.seconds for each in calls),
            _sum(each.bytes for each in calls),
            _sum(each.pieces for each in calls),
        )


def _sum(amounts: Iterable[_Number | None]) -> _Number | None:
    """Return the sum; None if any amount is unknown."""
    known = list(amounts)
    return None if None in known else sum(amount for amount in known if amount is not None)


def _file_type(mode: int) -> FileType:
    """Return the type of a file by its mode, with the address family of a socket added; "" if it is unknown (0)."""
    return _FILE_TYPES.get(mode, "other") if mode else ""


def name_of(number: int) -> str:
    """Return the name of a system call; `call-NUMBER` for an unknown number, `rt_sigreturn` for a negative one."""
    return NAMES.get(number, f"call-{number}" if number >= 0 else _RETURN)
