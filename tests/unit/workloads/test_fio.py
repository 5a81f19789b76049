"""fio: reports of other jobs than asked for, and how it is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.contracts.workloads import MeasurementContext
from tare.errors import TrialFailed
from tare.hosts.process import checked
from tare.model.machines import DiskBytes
from tare.model.trials import Limits, Output, Raw
from tare.runner.values import read_values
from tare.workloads.fio import Fio

SAMPLES = Path(__file__).parents[2] / "samples/fio"
MIB = 1 << 20
READ = Fio(size=64 * MIB)
LIMITS = Limits((0,), 1 << 29, 4096)


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


def parse(text: str, workload: Fio = READ) -> dict[tuple[str, float | None], float]:
    values = workload.parse((Raw("fio", ("fio",), text, 1.0),))
    return {(value.metric, value.point): value.value for value in values}


def changed(change: Callable[[dict[str, Any]], object], name: str = "randread.json") -> str:
    """Return a captured report with a change in it."""
    report = json.loads(sample(name))
    change(report)
    return json.dumps(report)


def done(report: dict[str, Any]) -> dict[str, Any]:
    """Return what the job of a report has done."""
    found: dict[str, Any] = report["jobs"][0]["read"]
    return found


def test_what_fio_prints_before_its_json_is_left_out() -> None:
    text = sample("text-before.txt")
    remark, report = text.split("\n", 1)
    assert remark.startswith("note: both iodepth >= 1 and synchronous I/O engine are selected")
    assert parse(text.replace('"iodepth" : "4"', '"iodepth" : "1"')) == parse(
        report.replace('"iodepth" : "4"', '"iodepth" : "1"')
    )
    assert parse("fio: a {remark} of any kind\n{ }\n" + sample("randread.json")) == parse(sample("randread.json"))


def test_a_killed_job_fails_the_trial_though_fio_ends_well_and_says_that_there_was_no_error() -> None:
    text = sample("killed-job.txt")
    assert json.loads(text)["jobs"][0]["error"] == 0
    with pytest.raises(TrialFailed, match="has requests that failed or are missing"):
        parse(text, replace(READ, jobs=2))


@pytest.mark.parametrize(
    "text",
    [
        changed(lambda report: report["jobs"].clear()),
        changed(lambda report: report["jobs"].append(report["jobs"][0])),
        changed(lambda report: report.pop("fio version")),
        changed(lambda report: report["jobs"][0]["job options"].pop("direct")),
        changed(lambda report: report["jobs"][0]["job options"].update(io_size="4096")),
        changed(lambda report: done(report).pop("lat_ns")),
        changed(lambda report: done(report)["lat_ns"]["percentile"].pop("99.900000")),
        changed(lambda report: done(report)["lat_ns"]["percentile"].update({"50.000000": 10**12})),
        changed(lambda report: done(report).update(io_bytes=done(report)["io_bytes"] - 4096)),
        changed(lambda report: done(report).update(short_ios=1)),
        changed(lambda report: done(report).update(drop_ios=1)),
    ],
)
def test_an_output_that_is_not_one_whole_result_fails_the_trial_and_is_quoted(text: str) -> None:
    with pytest.raises(TrialFailed, match="it printed") as failure:
        parse(text)
    assert failure.value.hint


@dataclass(frozen=True)
class Answering(FakeHost):
    """An inside whose fio makes requests at a given rate. It notes what it is asked for."""

    rate: float = 10_000.0
    calls: list[tuple[str, ...]] = field(default_factory=list)
    limits_seconds: list[float] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, check: bool = True, **_: object) -> Output:
        self.calls.append(argv)
        self.limits_seconds.append(timeout)
        if argv[0] != "fio" or "--create_only=1" in argv:
            return Output(argv, 0, b"", b"", 0.0)
        told = dict(each.removeprefix("--").split("=", 1) for each in argv[1:])
        moved = int(told["io_size"])

        def answer(report: dict[str, Any]) -> None:
            report["jobs"][0]["job options"].update(told)
            requests = moved // 4096
            done(report).update(total_ios=requests, io_bytes=moved, runtime=requests / self.rate * 1000)

        output = Output(argv, 0, changed(answer).encode(), b"", timeout)
        return checked(output) if check else output

    @property
    def requests(self) -> list[int]:
        sizes = (word for argv in self.calls for word in argv if word.startswith("--io_size="))
        return [int(size.removeprefix("--io_size=")) // 4096 for size in sizes][1:]


def setup(inside: Answering | None, *says: DiskBytes) -> MeasurementContext:
    disks = iter(says)

    def drop() -> None:
        if inside is not None:
            inside.calls.append(("drop",))

    return replace(running_in(inside), drop_caches=drop, disks_moved=lambda: next(disks, DiskBytes(0, 0)))


@pytest.mark.parametrize(("rate", "requests"), [(100.0, 1000), (10_000.0, 2000), (500_000.0, 100_000)])
def test_a_turn_has_as_many_requests_as_fill_it_and_as_its_highest_percentile_needs(rate: float, requests: int) -> None:
    inside = Answering(rate=rate)
    raw = tuple(READ.measure(setup(inside)))
    assert [each.warm_up for each in raw] == [True, *[False] * 10]
    assert inside.requests[-10:] == [pytest.approx(requests, rel=0.01)] * 10
    assert read_values(READ, raw)[0].turns == pytest.approx(10 * (rate,))


@pytest.mark.parametrize(("rate", "limit_seconds"), [(100.0, 300.0), (10_000.0, 32.0)])
def test_the_limit_is_that_of_a_turn_unless_the_fewest_requests_take_longer(rate: float, limit_seconds: float) -> None:
    inside = Answering(rate=rate)
    tuple(READ.measure(setup(inside)))
    _, written, first, *_, last = inside.limits_seconds
    assert (written > 300, first, last) == (True, 300.0, limit_seconds)


def test_the_files_are_written_before_the_first_turn_and_every_turn_reads_elsewhere() -> None:
    inside = Answering()
    tuple(READ.measure(setup(inside)))
    made, written, *turns = inside.calls
    assert made == ("mkdir", "-p", "/srv/tare-files")
    assert "--create_only=1" in written
    assert {"--rw=randread", "--direct=1", "--directory=/srv/tare-files", "--size=67108864"} <= set(turns[0])
    seeds = [word for argv in turns for word in argv if word.startswith("--randseed=")]
    assert len(set(seeds)) == len(seeds) == len(turns)


def test_caches_are_dropped_before_each_turn_where_they_are_not_bypassed() -> None:
    inside = Answering()
    tuple(replace(READ, caches="drop").measure(setup(inside)))
    turns = inside.calls[2:]
    assert [argv[0] for argv in turns] == ["drop", "fio"] * (len(turns) // 2)
    assert "--direct=0" in turns[1]


def test_what_the_disks_move_in_a_turn_is_counted() -> None:
    inside = Answering()
    size = 1000 * 4096
    says = (DiskBytes(0, 0), DiskBytes(size // 4, 9 * size))
    assert next(iter(READ.measure(setup(inside, *says)))).disk_share == 0.25


def test_its_files_have_room_on_the_root_or_on_a_volume() -> None:
    two, volume = replace(READ, engine="libaio", jobs=2), replace(READ, place="volume")
    assert (two.disk_bytes, two.volume_bytes) == (128 * MIB, 0)
    assert (volume.volume_bytes, volume.folder) == (64 * MIB, "/srv/tare-volume/files")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            Output((), 1, sample("disk-full.txt").encode(), sample("disk-full-stderr.txt").encode(), 1.0),
            "No space left on device",
        ),
        (Output((), 137, b"", b"Killed\n", 1.0), "exit code 137: Killed"),
        (Output((), 127, b"", b"fio: not found\n", 1.0), "not found"),
    ],
)
def test_a_full_disk_and_a_missing_or_killed_program_fail_the_trial_with_the_reason(
    output: Output, reason: str
) -> None:
    @dataclass(frozen=True)
    class Failing(Answering):
        def run(self, *argv: str, timeout: float, **_: object) -> Output:
            return super().run(*argv, timeout=timeout) if argv[0] == "mkdir" else checked(replace(output, argv=argv))

    with pytest.raises(TrialFailed, match=reason) as failure:
        tuple(READ.measure(setup(Failing(1.0, "", LIMITS))))
    assert failure.value.output is not None
