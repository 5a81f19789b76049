from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tare.contracts.workloads import Instance
from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.runner.extra_instances import Shortage

SAMPLES = Path(__file__).parents[2] / "samples"
GROUP = "/sys/fs/cgroup/memory/tare-x"
V1 = {
    "/proc/self/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
    "/proc/7/cgroup": "3:memory:/tare-x\n",
    "/proc/sys/kernel/random/boot_id": "here\n",
    "/proc/cmdline": "root=/dev/sda\n",
    "/proc/vmstat": "oom_kill 3\noom_group_kill 9\n",
    f"{GROUP}/memory.oom_control": (SAMPLES / "shortage/version-1-memory.oom_control").read_text(),
    f"{GROUP}/memory.stat": (SAMPLES / "shortage/version-1-memory.stat").read_text(),
}
V2 = {
    **V1,
    "/proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    "/proc/7/cgroup": "0::/tare-x\n",
    "/sys/fs/cgroup/tare-x/memory.events": "low 0\nhigh 0\nmax 61\noom 1\noom_kill 2\noom_group_kill 0\n",
    "/sys/fs/cgroup/tare-x/memory.swap.current": "8192\n",
}


@dataclass(frozen=True)
class Files(LocalHost):
    """A host with these files alone; `lost`, it cannot be asked."""

    files: dict[str, str] = field(default_factory=dict)
    is_lost: bool = False

    def read(self, path: str) -> str:
        if self.is_lost:
            raise TrialFailed("the guest is gone")
        return self.files.get(path, "")

    def gather(self, folder: str, name: str) -> str:
        return "".join(text for path, text in self.files.items() if path.startswith(folder) and path.endswith(name))


def watched(files: Mapping[str, str], inside: Files | None = None, pids: tuple[int, ...] = (7,)) -> Shortage:
    shortage = Shortage(Files(dict(files)))
    shortage.watch(Instance("tare-x", inside or Files(dict(V1)), None, "none", processes=lambda: pids))
    return shortage


def guest(*more: str) -> Files:
    vmstat = "".join(f"{line}\n" for line in ("pswpin 0", "pswpout 0", *more))
    return Files({"/proc/cmdline": "root=/dev/vda\n", "/proc/vmstat": vmstat})


def without(files: Mapping[str, str], name: str) -> dict[str, str]:
    return {path: text for path, text in files.items() if not path.endswith(name)}


@pytest.mark.parametrize("files", [V1, V2], ids=["version 1", "version 2"])
def test_what_the_machine_has_ended_in_the_group_is_reported(files: Mapping[str, str]) -> None:
    shortage = watched(files)
    shortage.look()
    assert shortage.killer() == "the machine's kernel"


def test_what_the_machine_has_ended_in_other_groups_meanwhile_is_not() -> None:
    quiet = V1[f"{GROUP}/memory.oom_control"].replace("oom_kill 1", "oom_kill 0")
    host = Files({**V1, f"{GROUP}/memory.oom_control": quiet})
    shortage = Shortage(host)
    shortage.watch(Instance("tare-x", Files(dict(V1)), None, "none", processes=lambda: (7,)))
    host.files["/proc/vmstat"] = "oom_kill 4\n"
    shortage.look()
    assert shortage.killer() == ""


def test_where_the_group_is_gone_the_machines_counter_is_read() -> None:
    host = Files(without(V1, "memory.oom_control"))
    for ended, killer in ((0, ""), (1, "the machine's kernel")):
        shortage = Shortage(host)
        shortage.watch(Instance("tare-x", Files(dict(V1)), None, "none", processes=lambda: (7,)))
        host.files["/proc/vmstat"] = f"oom_kill {3 + ended}\n"
        shortage.look()
        assert shortage.killer() == killer


def test_where_an_instance_never_answered_the_machines_counter_is_read() -> None:
    host = Files(dict(V1))
    shortage = Shortage(host)
    assert shortage.killer() == ""
    host.files["/proc/vmstat"] = "oom_kill 4\n"
    assert shortage.killer() == "the machine's kernel"


@pytest.mark.parametrize(("ended", "killer"), [(1, "the guest's kernel"), (0, "the machine's kernel")])
def test_a_guest_whose_kernel_has_ended_nothing_may_have_been_ended_by_the_machine(ended: int, killer: str) -> None:
    shortage = watched(V1, guest(f"oom_kill {ended}"))
    shortage.look()
    assert shortage.killer() == killer


def test_a_container_is_not_asked_for_what_its_machine_has_ended() -> None:
    shortage = watched(
        {**V1, f"{GROUP}/memory.oom_control": "oom_kill 0\n"},
        Files({**V1, "/proc/vmstat": "oom_kill 9\n", "/proc/sys/kernel/random/boot_id": "its own\n"}),
    )
    shortage.look()
    assert shortage.killer() == ""


def test_a_guest_that_cannot_be_asked_any_more_is_no_fault() -> None:
    shortage = watched({**V1, f"{GROUP}/memory.oom_control": "oom_kill 0\n"}, Files(is_lost=True))
    shortage.look()
    assert (shortage.killer(), shortage.swapped_bytes()) == ("", 0)


@pytest.mark.parametrize(
    ("files", "inside", "swapped"),
    [
        (V1, None, 0),
        (
            {**V1, f"{GROUP}/memory.stat": V1[f"{GROUP}/memory.stat"].replace("total_swap 0", "total_swap 4096")},
            None,
            4096,
        ),
        (V2, None, 8192),
        (without(V1, "memory.stat"), None, 0),  # the kernel does not count it
        (V1, guest(), 0),
        (V2, Files({**guest().files, "/proc/vmstat": "pswpin 2\npswpout 3\n"}), 5 * 4096),
    ],
)
def test_what_is_in_swap_is_reported(files: Mapping[str, str], inside: Files | None, swapped: int) -> None:
    assert watched(files, inside).swapped_bytes() == swapped


def test_an_instance_without_processes_is_in_no_group() -> None:
    assert watched(V1, pids=()).swapped_bytes() == 0
