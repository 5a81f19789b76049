"""Awake CPUs: threads of the lowest priority that keep the CPUs of a run from falling asleep during turns.

A virtual CPU that halts has to be scheduled by its hypervisor before it runs again, and a physical CPU leaves a deep
idle state slowly. Both delays hit the begin of a turn by chance (docs/decisions/turns.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from tare.hosts.cgroups import create_idle_cgroup
from tare.hosts.facts import parse_cpuinfo, read_hypervisor
from tare.hosts.host import Host, Process
from tare.hosts.ledger import Ledger
from tare.model.errors import TareError

_PROGRAM = "keep_awake"
_CPU_FOLDER = "/sys/devices/system/cpu"
_DEEP_MICROSECONDS = 20  # exit latency of an idle state that a turn of a few milliseconds would show
_ANSWER_SECONDS = 30.0


def falls_asleep(host: Host) -> bool:
    """Return whether CPUs of a machine wake up slowly: the machine is virtual, or has deep idle states."""
    if read_hypervisor(host.read, parse_cpuinfo(host.read("/proc/cpuinfo"))):
        return True
    latencies = host.read_matching(f"{_CPU_FOLDER}/cpu0/cpuidle", "latency").split()
    return any(latency.isdigit() and int(latency) >= _DEEP_MICROSECONDS for latency in latencies)


class AwakeCpus:
    """Threads that keep the CPUs `cpus` of the ledger's machine awake, started at the first use.

    `name` is that of the threads' control group. The threads end with tare, also if tare is killed.
    """

    def __init__(self, ledger: Ledger, cpus: Sequence[int], name: str) -> None:
        self._ledger, self._cpus, self._name = ledger, cpus, name
        self._process: Process | None = None
        self._open = ExitStack()
        self._time_files: dict[int, str] = {}

    def time_files(self) -> Mapping[int, str]:
        """Return the paths of the files with the CPU time of the threads, by CPU; empty while there are none."""
        return self._time_files

    @contextmanager
    def keep_awake(self) -> Iterator[None]:
        """Context manager: keep the CPUs awake; do nothing without CPUs, and while the machine does not respond."""
        if not self._cpus:
            yield
            return
        self._switch("on")
        try:
            yield
        finally:
            self._switch("off")

    def close(self) -> None:
        """End the threads."""
        self._process, self._time_files = None, {}
        self._open.close()

    def _switch(self, word: str) -> None:
        try:
            self._request(word)
        except TareError:  # the connection is lost: the trials of the block report this
            with suppress(TareError):
                self.close()

    def _request(self, word: str) -> None:
        if self._process is None:
            join = self._open.enter_context(create_idle_cgroup(self._ledger, self._name))
            command = (*join, self._ledger.setup_helper.program_path(_PROGRAM), *map(str, self._cpus))
            self._process = self._open.enter_context(self._ledger.host.spawn(*command, die_with_parent=True))
            pid, *threads = self._process.read_line(_ANSWER_SECONDS).text.split()
            paths = (f"/proc/{pid}/task/{thread}/schedstat" for thread in threads)
            self._time_files = dict(zip(self._cpus, paths, strict=True))
        self._process.send(f"{word}\n")
        self._process.read_line(_ANSWER_SECONDS)
