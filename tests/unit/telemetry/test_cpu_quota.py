"""CPU quotas that stop an instance: read from texts, and seen in a real control group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from busy import BUSY, running, work

from tare.hosts.cgroups import parse_layout
from tare.hosts.exec import ExecHost
from tare.hosts.local import LocalHost
from tare.model.trial import Output
from tare.telemetry.cpu_quota import QuotaWatch
from tare.telemetry.kernel_files import read_group_files
from tare.telemetry.turn_usage import create_boundary

MOUNTS = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/cpuacct cgroup rw,cpuacct 0 0\n"
HALF_OF_A_CPU = {1: {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "5000"}, 2: {"cpu.max": "5000 10000"}}


def watch_stops(patch: pytest.MonkeyPatch, *throttled: Mapping[str, int]) -> QuotaWatch:
    """Watch a process in the group /a/b; each reading of cpu.stat finds the next numbers of stops, by group."""
    stats = iter(throttled)

    def read(_: object, paths: tuple[str, ...]) -> dict[str, str]:
        assert paths == ("/sys/fs/cgroup/cpu/a/b/cpu.stat", "/sys/fs/cgroup/cpu/a/cpu.stat")
        counts = next(stats)
        return {path: f"nr_periods 9\nnr_throttled {counts[path.split('/')[-2]]}\nburst_time 0\n" for path in paths}

    patch.setattr("tare.telemetry.cpu_quota.read_files", read)
    return QuotaWatch(LocalHost(), {"/proc/self/mounts": MOUNTS, "/proc/7/cgroup": "4:cpu:/a/b\n3:cpuacct:/c\n"})


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"a": 3, "b": 0}, {"a": 3, "b": 0}, ""),
        ({"a": 0, "b": 0}, {"a": 0, "b": 1}, "stopped it once"),
        ({"a": 3, "b": 1}, {"a": 5, "b": 2}, "stopped it 3 times"),  # also of a group around its own
    ],
)
def test_stops_of_the_group_and_of_those_around_it_give_a_caution(
    monkeypatch: pytest.MonkeyPatch, before: Mapping[str, int], after: Mapping[str, int], text: str
) -> None:
    watch = watch_stops(monkeypatch, before, after)
    assert watch.caution() is None
    watch.finish()
    caution = watch.caution()
    assert (caution is None) == (not text)
    if caution:
        assert caution.kind == "cpu-quota"
        assert text in caution.text


def test_unknown_groups_are_no_quota() -> None:
    watch = QuotaWatch(LocalHost(), {})
    watch.finish()
    assert watch.caution() is None


@pytest.fixture
def group() -> Iterator[Path]:
    layout = parse_layout(Path("/proc/self/mounts").read_text(encoding="utf-8"))
    folder = Path(layout.mounts["cpu"]) / f"tare-test-quota-{os.getpid()}"
    folder.mkdir()
    for name, text in HALF_OF_A_CPU[layout.version].items():
        (folder / name).write_text(text, encoding="utf-8")
    yield folder
    folder.rmdir()


@pytest.mark.machine
def test_a_real_quota_is_noticed_when_it_stops_a_program(group: Path) -> None:
    with running(BUSY) as process:
        (group / "cgroup.procs").write_text(f"{process.pid}", encoding="utf-8")
        watch = QuotaWatch(LocalHost(), read_group_files(LocalHost(), (process.pid,)))
        watch.finish()
        assert watch.caution() is None
        work(process)
        watch.finish()
        caution = watch.caution()
        assert caution is not None
        assert caution.kind == "cpu-quota"
        process.kill()
        process.wait()


def test_the_groups_of_an_instance_are_read_once_over_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ExecHost(LocalHost(), "env")
    host.supervisor = ""
    read: list[Sequence[str]] = []

    def run(*argv: str, **options: Any) -> Output:
        read.append(argv)
        return ExecHost.run(host, *argv, **options)

    monkeypatch.setattr(host, "run", run)
    create_boundary(host, lambda: (os.getpid(),), (0,), sidecar_cpus=(), takes_turns=False)
    assert [f"/proc/{os.getpid()}/cgroup" in argv for argv in read].count(True) == 1
