"""Kata's machine as its host sees it: whose process is which, and which kernel it must have."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tare.hosts.kata_machine import cautions, is_kata, is_part, kernel_cautions, pin
from tare.hosts.local import LocalHost
from tare.hosts.pod_on_node import PodOnNode
from tare.model.trials import Output
from tare.technologies.containerd import around_container

SANDBOX, CONTAINER, OTHER = "5a" * 32, "c0" * 32, "0f" * 32


def processes(sandbox: str) -> str:
    """What `ps -eo pid=,ppid=,args=` prints of one sandbox of Kata 3 with QEMU, and of another one."""
    shared = f"/run/kata-containers/shared/sandboxes/{sandbox}/shared"
    return f"""\
    1     0 /sbin/init
  100     1 /usr/bin/containerd
  200     1 /opt/kata/bin/containerd-shim-kata-v2 -namespace tare-1 -address /run/c.sock -id {sandbox}
  201   200 /opt/kata/libexec/virtiofsd --syslog --cache=auto --shared-dir={shared} --fd=3
  202   201 /opt/kata/libexec/virtiofsd --syslog --cache=auto --shared-dir={shared} --fd=3
  203     1 /opt/kata/bin/qemu-system-x86_64 -name sandbox-{sandbox} -machine q35,accel=kvm -daemonize
  300     1 /opt/kata/bin/containerd-shim-kata-v2 -namespace tare-1 -address /run/c.sock -id {OTHER}
  301     1 /opt/kata/bin/qemu-system-x86_64 -name sandbox-{OTHER} -machine q35,accel=kvm -daemonize
  400   390 ctr -n tare-1 run --cgroup=/{sandbox}/tare-container tare-image:1 {sandbox} /usr/lib/tare/init
"""


@dataclass
class Listing(LocalHost):
    """A host with these processes and pods; `found` are those that `pgrep` finds for each pattern."""

    listed: str = ""
    groups: str = ""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        if argv[0] == "pgrep":
            numbers = argv[-1].split("|")
            pids = [line.split()[0] for line in self.listed.splitlines() if any(each in line for each in numbers)]
            return Output(argv, 0, "\n".join(pids).encode(), b"", timeout)
        if argv[0] == "find":
            return Output(argv, 0, self.groups.encode(), b"", timeout)
        return Output(argv, 0, self.listed.encode(), b"", timeout)

    def read(self, path: str) -> str:
        return "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n" if path == "/proc/self/mounts" else ""


@pytest.mark.parametrize("name", ["tare-4711-00", SANDBOX])
def test_a_monitor_that_is_nobodys_child_belongs_to_its_container(name: str) -> None:
    assert set(around_container(Listing(listed=processes(name)), name)) == {200, 201, 202, 203}


def test_a_container_whose_name_begins_as_that_of_another_is_another() -> None:
    assert around_container(Listing(listed=processes("tare-1-00")), "tare-1-0") == ()


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/tare-1-00/clh-api.sock", True),
        ("/opt/kata/bin/virtiofsd --shared-dir /run/kata/tare-1-00/shared", True),
        ("qemu-system-x86_64 -name sandbox-tare-1-00,debug-threads=on -daemonize", True),
        ("qemu-system-x86_64 -name sandbox-tare-1-001 -daemonize", False),
        ("ctr run --cgroup=/tare-1-00/tare-container image tare-1-00", False),
        ("/usr/lib/tare/init 10.0.0.2:17007 --resident tare-1-00", False),
    ],
)
def test_a_part_of_the_machine_has_its_name_where_kata_writes_it(line: str, part: bool) -> None:
    assert is_part(line, "tare-1-00") is part


@pytest.mark.parametrize("group", [f"kata_{SANDBOX}", f"kata-overhead-{CONTAINER[:8]}"])
def test_the_monitor_of_a_pod_counts_whether_or_not_a_group_of_the_pod_has_the_sandboxs_number(group: str) -> None:
    host = Listing(listed=processes(SANDBOX), groups=f"/sys/fs/cgroup/kubepods/pod1/{group}\n")
    pod = PodOnNode.found(host, "1", CONTAINER, SANDBOX)
    assert {200, 201, 202, 203} <= set(pod.helpers)
    assert not {300, 301} & set(pod.helpers)


@pytest.mark.parametrize(
    ("runtime", "kata"),
    [
        ("io.containerd.kata.v2", True),
        ("io.containerd.kata-qemu.v2", True),
        ("/opt/kata/bin/containerd-shim-kata-clh-v2", True),
        ("io.containerd.runc.v2", False),
        ("/opt/kata/bin/containerd-shim-runsc-v1", False),
        ("", False),
    ],
)
def test_a_runtime_is_katas_by_its_own_name(runtime: str, kata: bool) -> None:
    assert is_kata(runtime) is kata


def test_what_is_outside_of_the_group_is_pinned_with_all_its_threads() -> None:
    host = LocalHost()
    first = min(os.sched_getaffinity(0))
    with host.spawn("sleep", "60") as process:
        pin(host, [process.pid], str(first))
        assert os.sched_getaffinity(process.pid) == {first}


@dataclass
class Booted(LocalHost):
    """A host whose kernel was started with these words."""

    words: str

    def read(self, path: str) -> str:
        return self.words if path == "/proc/cmdline" else "btime 1000\n"


def test_the_machines_own_kernel_under_katas_name_is_doubted() -> None:
    machine, runtime = Booted("root=/dev/vda"), "io.containerd.kata.v2"
    [caution] = kernel_cautions(machine, machine, runtime)
    assert caution.kind == "shared-kernel"
    assert caution.text.startswith(f"{runtime} promises a kernel of its own")
    assert kernel_cautions(machine, Booted("agent.log=info"), runtime) == ()
    assert [each.kind for each in cautions(machine, Booted("agent.log=info"), runtime)] == ["never-run"]
