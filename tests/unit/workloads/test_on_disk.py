"""Workloads of files: where these are, that no cache answers in place of the disk, and how programs are run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from setups import Inside, running_in, sample

from tare.hosts.local import LocalHost
from tare.loads.disk import FileWorkload, disk_traffic_share
from tare.model.errors import TrialFailed
from tare.model.machine import DiskBytes
from tare.model.trial import Limits, LimitsCheck, ObservedLimits, Output, RawOutput, Value
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.values import read_values
from tare.workloads.bonnie import Bonnie
from tare.workloads.dbench import Dbench
from tare.workloads.fio import Fio
from tare.workloads.pgbench import Pgbench
from tare.workloads.prices import Prices

MIB = 1 << 20
LIMITS = Limits((0,), 512 * MIB, 4096)
TWO_RUNS, PLAIN = sample("bonnie/two-runs.csv"), sample("dbench/plain-4.txt")
HEAD, FIRST, _ = TWO_RUNS.splitlines(keepends=True)
TWO, FOUR, READ = Bonnie(runs=2), Dbench(modes=("plain",), processes=(4,)), Fio(size=64 * MIB)


def output_of(code: int, text: str = "", errors: str = "") -> Output:
    return Output((), code, text.encode(), errors.encode(), 1.0)


def setup_of(
    inside: Inside, *says: DiskBytes, seen: int | None = 512 * MIB, asked: Limits = LIMITS
) -> MeasurementContext:
    """Return what a workload measures with, whose disks say in turn what they have moved; drops are calls, too."""
    disks = itertools.chain(says, itertools.repeat(DiskBytes(0, 0)))
    limits = LimitsCheck(asked, ObservedLimits(1, seen, 4096))
    drop: Callable[[], None] = lambda: inside.calls.append(("drop",))  # noqa: E731 - likewise
    return replace(running_in(inside), limits=limits, drop_caches=drop, read_disk_bytes=lambda: next(disks))


def measured(workload: Workload, answer: str | Output, *says: DiskBytes) -> tuple[Inside, tuple[RawOutput, ...]]:
    inside = Inside(answer=lambda _: answer)
    return inside, tuple(workload.measure(setup_of(inside, *says)))


# --- where the files are


@dataclass(frozen=True)
class _Files(FileWorkload):
    name = "files"
    title = "Files"
    metrics = ()
    needed_bytes = 5 << 20

    home: str = ""

    @property
    def folder(self) -> str:
        return self.home or super().folder

    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:  # noqa: ARG002 - as workloads are asked
        return ()

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:  # noqa: ARG002 - likewise
        return ()

    def estimate_seconds(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("workload", "needed_bytes"),
    [
        (_Files(), 5 << 20),
        (TWO, 1024 * MIB),
        (Bonnie(files=1), (1024 + 16) * MIB),  # with their inodes
        (FOUR, 4 << 25),
        (replace(READ, engine="libaio", jobs=2), 128 * MIB),
        (Pgbench(scale=100), (1 << 30) + 100 * 100_000 * 160),  # tables, and the log
        (Prices(), 1 << 20),
    ],
)
def test_files_are_on_the_root_unless_the_suite_wants_a_volume(workload: FileWorkload, needed_bytes: int) -> None:
    volume = replace(workload, place="volume")
    assert (workload.paths, workload.disk_bytes, workload.volume_bytes) == (("/srv/tare-files",), needed_bytes, 0)
    assert (volume.paths, volume.volume_bytes) == (("/srv/tare-volume/files",), needed_bytes)
    assert volume.disk_bytes == needed_bytes, "the volume of a container in a machine is on that machine's disk"


@pytest.mark.parametrize(
    ("workload", "answer", "words"),
    [
        (TWO, TWO_RUNS, "bonnie++ -q -d /srv/tare-volume/files "),
        (FOUR, PLAIN, "dbench -t 5 -c /usr/share/dbench/client.txt -D /srv/tare-volume/files "),
    ],
)
def test_its_program_is_told_that_its_files_are_on_a_volume(workload: FileWorkload, answer: str, words: str) -> None:
    inside, _ = measured(replace(workload, place="volume"), answer)
    assert " ".join(inside.calls[1]).startswith(words)


def test_the_folder_of_the_files_is_made(tmp_path: Path) -> None:
    home = tmp_path / "srv" / "files"
    _Files(home=str(home)).create_folder(running_in(LocalHost()))
    assert list(home.iterdir()) == []


# --- caches


@pytest.mark.parametrize(
    ("moved", "after", "share"),
    [
        (DiskBytes(64, 64), DiskBytes(7 + 64, 5 + 64), 1.0),
        (DiskBytes(64, 64), DiskBytes(7 + 3 * 64, 5 + 64), 1.0),  # somebody else read, too
        (DiskBytes(64, 64), DiskBytes(7 + 64 // 4, 5 + 3 * 64), 0.25),  # what was written makes up for nothing
        (DiskBytes(64, 64), DiskBytes(7 + 64, 5), 0.0),
        (DiskBytes(64, 0), DiskBytes(7 + 64 // 2, 5), 0.5),
        (DiskBytes(0, 64), DiskBytes(7, 5 + 64 // 2), 0.5),
        (DiskBytes(0, 0), DiskBytes(7, 5), 1.0),
    ],
)
def test_the_disks_report_what_share_of_reads_and_writes_they_have_seen(
    moved: DiskBytes, after: DiskBytes, share: float
) -> None:
    assert disk_traffic_share(setup_of(Inside(), after), DiskBytes(7, 5), moved) == share


@pytest.mark.parametrize(
    ("read", "written", "share"), [(4096, 5000, 1.0), (1024, 5000, 0.25), (9000, 2048, 0.5), (0, 0, 0.0)]
)
def test_bonnie_drops_caches_and_counts_what_the_disks_moved(read: int, written: int, share: float) -> None:
    moved = DiskBytes(7 * MIB, 9 * MIB), DiskBytes((7 + read) * MIB, (9 + written) * MIB)
    inside, (raw,) = measured(TWO, TWO_RUNS, *moved)  # writes and reads 4 GiB each
    assert [argv[0] for argv in inside.calls] == ["drop", "bonnie++"]
    assert (raw.disk_share, raw.warm_up) == (share, False)


def test_dbench_drops_caches_before_each_point() -> None:
    inside, _ = measured(Dbench(modes=("plain",)), PLAIN)
    assert [argv[0] for argv in inside.calls] == 4 * ["drop", "dbench"]


def test_fio_drops_caches_before_each_turn_where_they_are_not_bypassed() -> None:
    inside, _ = running_fio(replace(READ, caches="drop"))
    turns = inside.calls[1:]
    assert [argv[0] for argv in turns] == ["drop", "fio"] * (len(turns) // 2)
    assert "--direct=0" in turns[1]


def test_what_the_disks_move_in_a_turn_of_fio_is_counted() -> None:
    size = 1000 * 4096
    _, raw = running_fio(READ, DiskBytes(0, 0), DiskBytes(size // 4, 9 * size))
    assert raw[0].disk_share == 0.25


# --- programs that fail, and what they say


@pytest.mark.parametrize(
    ("workload", "output", "reason"),
    [
        (TWO, output_of(1, HEAD, "Can't write() - disk full?\n"), "disk full"),
        (TWO, output_of(1, "", sample("bonnie/disk-full.txt")), "No space left on device"),
        (TWO, output_of(137, sample("bonnie/killed.csv")), "exit code 137"),
        (FOUR, output_of(1, sample("dbench/disk-full.txt")), r"the disk may be full: \[94\] wrote 28672 bytes"),
        (FOUR, output_of(1, sample("dbench/failed-open.txt")), r"\[132205\] open .* failed .*No such file"),
        (FOUR, output_of(137, sample("dbench/killed.txt")), "exit code 137"),
        (
            READ,
            output_of(1, sample("fio/disk-full.txt"), sample("fio/disk-full-stderr.txt")),
            "No space left on device",
        ),
        (READ, output_of(137, errors="Killed\n"), "exit code 137: Killed"),
        *((each, output_of(127, errors=f"{each.name}: not found\n"), "not found") for each in (TWO, FOUR, READ)),
    ],
)
def test_a_full_disk_or_a_missing_or_killed_program_fails_with_the_reason(
    workload: Workload, output: Output, reason: str
) -> None:
    with pytest.raises(TrialFailed, match=reason) as failure:
        measured(workload, output)
    assert failure.value.output is not None


@pytest.mark.parametrize(
    ("workload", "output", "reason"),
    [
        (TWO, output_of(0, TWO_RUNS, "Can't sync file.\n"), "results as asked"),
        (FOUR, output_of(0, PLAIN, "Segmentation fault\n"), "no whole result"),
    ],
)
def test_what_a_program_says_on_standard_error_is_part_of_the_output(
    workload: Workload, output: Output, reason: str
) -> None:
    _, raw = measured(workload, output)
    with pytest.raises(TrialFailed, match=reason):
        workload.parse(raw)


# --- Bonnie++


def bonnie(text: str, workload: Bonnie = TWO) -> dict[str, float]:
    values = workload.parse((RawOutput("bonnie", ("bonnie++",), text, 1.0),))
    assert all(value.point is None for value in values)
    return {value.metric: value.value for value in values}


def test_three_equal_runs_deviate_by_nothing() -> None:
    values = bonnie(HEAD + 3 * FIRST, Bonnie())
    assert (values["rewrite"], values["rewrite-deviation"]) == (1024 * 269543, 0)


def test_columns_count_by_place_as_the_line_of_names_has_two_too_few() -> None:
    names, fields = HEAD.split(","), FIRST.split(",")
    assert (len(names), len(fields)) == (48, 50)
    assert fields[names.index("putc")] == "8192"  # the number of seeks: no speed
    assert bonnie(TWO_RUNS)["output-character"] == 1024 * (2374 + 1817) / 2


@pytest.mark.parametrize("field", ["", "nan", "269543k", "9" * 400])
def test_a_speed_that_is_not_in_kibibytes_is_quoted_in_at_most_one_line(field: str) -> None:
    with pytest.raises(TrialFailed, match="KiB/s for rewrite") as failure:
        bonnie(TWO_RUNS.replace(",269543,", f",{field},"))
    assert repr(field[:100]) in str(failure.value)


def test_results_too_quick_to_measure_are_missing_and_matter_if_requested() -> None:
    with pytest.raises(TrialFailed, match=r"too quick to measure output-block: it prints \+\+\+\+\+") as failure:
        bonnie(sample("bonnie/too-quick.csv"), Bonnie(memory=32 * MIB, runs=2))
    assert "more `memory`" in failure.value.hint
    with pytest.raises(TrialFailed, match="too quick to measure input-block"):
        bonnie(TWO_RUNS.replace(",996756,20,", ",+++++,+++,"))  # in one run alone
    assert bonnie(TWO_RUNS.replace(",10926,81,", ",+++++,+++,")) == bonnie(TWO_RUNS)


def test_bonnie_is_run_with_the_options_of_the_paper() -> None:
    inside, paper = Inside(answer=lambda _: TWO_RUNS), Bonnie(memory=16_000 * MIB, files=2500)
    tuple(paper.measure(setup_of(inside, seen=16_000 * MIB)))
    line = "bonnie++ -q -d /srv/tare-files -s 32000 -r 16000 -n 2500 -x 3 -z 1580230295 -f10 -m tare -u root"
    assert [" ".join(call) for call in inside.calls] == ["drop", line]
    assert inside.limits_seconds[-1] > paper.estimate_seconds()


@pytest.mark.parametrize(("seen", "asked"), [(513 * MIB, 512 * MIB), (None, 2048 * MIB)])
def test_a_file_that_may_lie_in_the_memory_of_the_instance_fails_the_trial(seen: int | None, asked: int) -> None:
    inside = Inside(answer=lambda _: TWO_RUNS)
    with pytest.raises(TrialFailed, match="file of 1 GiB may lie in the page cache") as failure:
        tuple(TWO.measure(setup_of(inside, seen=seen, asked=replace(LIMITS, memory_bytes=asked))))
    assert not inside.calls
    assert "limit the memory" in failure.value.hint


def test_a_guest_that_has_a_little_less_memory_than_asked_for_is_measured() -> None:
    assert tuple(TWO.measure(setup_of(Inside(answer=lambda _: TWO_RUNS), seen=470 * MIB)))


# --- DBENCH


@pytest.mark.parametrize("name", ["killed-process", "killed-processes"])
def test_a_killed_process_fails_the_trial_even_if_dbench_counts_the_others(name: str) -> None:
    text = sample(f"dbench/{name}.txt")
    assert "Throughput " in text
    with pytest.raises(TrialFailed, match="one of its processes was killed"):
        Dbench(modes=("plain",), processes=(2,)).parse((RawOutput("plain 2", ("dbench",), text, 6.0),))


def test_a_number_of_dbench_with_an_exponent_is_read() -> None:
    raw = RawOutput("plain 4", ("dbench",), PLAIN.replace("366.005 ", "1.5e+06 "), 6.0)
    assert FOUR.parse((raw,))[0].value == 1.5e12


def test_dbench_is_run_with_the_options_of_the_paper() -> None:
    inside, raw = measured(Dbench(duration=180.0), PLAIN)
    lines = [" ".join(argv) for argv in inside.calls if argv != ("drop",)]
    common = "dbench -t 180 -c /usr/share/dbench/client.txt -D /srv/tare-files"
    assert lines[:4] == [f"{common} {count}" for count in (1, 2, 4, 8)]
    assert (lines[4], lines[11]) == (f"{common} -F 1", f"{common} -s 8")
    assert [each.label for each in raw] == [f"{mode} {n}" for mode in ("plain", "fsync", "sync") for n in (1, 2, 4, 8)]
    assert min(inside.limits_seconds) > 180


# --- fio


def fio(text: str, workload: Fio = READ) -> dict[tuple[str, float | None], float]:
    values = workload.parse((RawOutput("fio", ("fio",), text, 1.0),))
    return {(value.metric, value.point): value.value for value in values}


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """Return a captured report with a change in it."""
    report = json.loads(sample("fio/randread.json"))
    change(report)
    return json.dumps(report)


def done(report: dict[str, Any]) -> dict[str, Any]:
    """Return what the job of a report has done."""
    found: dict[str, Any] = report["jobs"][0]["read"]
    return found


def running_fio(workload: Fio, *says: DiskBytes, rate: float = 10_000.0) -> tuple[Inside, tuple[RawOutput, ...]]:
    """Measure in an instance whose fio makes so many requests a second."""

    def answer(argv: tuple[str, ...]) -> str:
        if "--create_only=1" in argv:
            return ""
        told = dict(each.removeprefix("--").split("=", 1) for each in argv[1:])
        moved, requests = int(told["io_size"]), int(told["io_size"]) // 4096

        def change(report: dict[str, Any]) -> None:
            report["jobs"][0]["job options"].update(told)
            done(report).update(total_ios=requests, io_bytes=moved, runtime=requests / rate * 1000)

        return changed(change)

    inside = Inside(answer=answer)
    return inside, tuple(workload.measure(setup_of(inside, *says)))


def test_what_fio_prints_before_its_json_is_left_out() -> None:
    text = sample("fio/text-before.txt").replace('"iodepth" : "4"', '"iodepth" : "1"')
    remark, report = text.split("\n", 1)
    assert remark.startswith("note: both iodepth >= 1 and synchronous I/O engine are selected")
    assert fio(text) == fio(report)
    whole = sample("fio/randread.json")
    assert fio("fio: a {remark} of any kind\n{ }\n" + whole) == fio(whole)


def test_a_killed_job_fails_the_trial_even_if_fio_reports_no_error() -> None:
    text = sample("fio/killed-job.txt")
    assert json.loads(text)["jobs"][0]["error"] == 0
    with pytest.raises(TrialFailed, match="has requests that failed or are missing"):
        fio(text, replace(READ, jobs=2))


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
def test_an_incomplete_fio_report_fails_the_trial_and_is_quoted(text: str) -> None:
    with pytest.raises(TrialFailed, match="it printed") as failure:
        fio(text)
    assert failure.value.hint


@pytest.mark.parametrize(
    ("rate", "requests", "limit_seconds"),
    [(100.0, 1000, 300.0), (10_000.0, 2000, 32.0), (500_000.0, 100_000, 32.0)],
)
def test_a_fio_turn_has_enough_requests_for_its_length_and_top_percentile(
    rate: float, requests: int, limit_seconds: float
) -> None:
    inside, raw = running_fio(READ, rate=rate)
    sizes = [int(word.partition("=")[2]) for argv in inside.calls for word in argv if word.startswith("--io_size=")]
    assert [each.warm_up for each in raw] == [True, *[False] * 10]
    assert [size // 4096 for size in sizes[-10:]] == [pytest.approx(requests, rel=0.01)] * 10
    assert read_values(READ, raw)[0].turns == pytest.approx(10 * (rate,))
    written, first, *_, last = inside.limits_seconds
    assert (written > 300, first, last) == (True, 300.0, limit_seconds)


def test_files_are_written_before_all_turns_and_each_turn_reads_elsewhere() -> None:
    inside, _ = running_fio(READ)
    written, *turns = inside.calls
    assert "--create_only=1" in written
    assert {"--rw=randread", "--direct=1", "--directory=/srv/tare-files", "--size=67108864"} <= set(turns[0])
    seeds = [word for argv in turns for word in argv if word.startswith("--randseed=")]
    assert len(set(seeds)) == len(seeds) == len(turns)


def test_a_stack_without_an_inside_has_no_files() -> None:
    with pytest.raises(TrialFailed, match=r"^tare-x: files runs inside$"):
        _Files().create_folder(running_in(None))
