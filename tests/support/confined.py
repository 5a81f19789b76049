"""Isolation of real instances on one machine: what `inspect` and the host said of it (tests/samples/isolation)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tare.hosts.host import HostCache
from tare.hosts.local import LocalHost
from tare.model.observed_isolation import ObservedIsolation
from tare.model.trial import Output
from tare.runner.observe_isolation import observe_layer

SAMPLES = Path(__file__).parents[1] / "samples" / "isolation"
MONITORED = ("gvisor", "qemu-tcg")  # whose monitors were captured, too
BOOTED = {
    "/proc/stat": "cpu 1 2\nbtime 1795853662\n",
    "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-6.18 root=/dev/vda1 ro quiet\n",
    "/proc/sys/kernel/cap_last_cap": "40\n",
}


@dataclass(frozen=True)
class CapturedHost(LocalHost):
    """The machine of the samples, with the processes in a folder of these."""

    processes: str = ""
    reads: list[str] = field(default_factory=list)

    def read(self, path: str) -> str:
        self.reads.append(path)
        file = SAMPLES / self.processes / path.removeprefix("/proc/")
        return BOOTED.get(path) or (file.read_text(encoding="utf-8") if file.is_file() else "")

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        self.reads.append(argv[1])
        process = argv[1].split("/")[2]
        file = SAMPLES / "host-namespaces" if process == "self" else SAMPLES / self.processes / process / "links"
        return Output(argv, 0, file.read_bytes(), b"", 0.0)


def observe(name: str, host: CapturedHost | None = None, cache: HostCache | None = None) -> ObservedIsolation:
    host = host or CapturedHost()
    inspected = (SAMPLES / f"{name}.inspect").read_text(encoding="utf-8")
    folder = SAMPLES / host.processes
    processes = [int(each.name) for each in folder.iterdir() if each.name.isdecimal()] if host.processes else []
    return observe_layer(name, host, LocalHost(), processes, inspected, cache or HostCache())
