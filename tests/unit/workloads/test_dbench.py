"""DBENCH: what version 4.00 of Debian 12 printed, whole and damaged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from tare_fake.technology import FakeHost

from tare.contracts import Instance, Setup
from tare.errors import TrialFailed
from tare.model import Limits, Output, Raw, Value
from tare.workloads.dbench import Dbench

SAMPLES = Path(__file__).parents[2] / "samples/dbench"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


PLAIN = sample("plain-4")
ONE, TWO, FOUR = (Dbench(modes=("plain",), processes=(count,)) for count in (1, 2, 4))


def parse(text: str, workload: Dbench = FOUR) -> tuple[Value, ...]:
    (label,) = (f"{mode} {count}" for mode in workload.modes for count in workload.processes)
    return tuple(workload.parse((Raw(label, ("dbench",), text, 6.0),)))


def test_a_captured_run_gives_throughput_and_the_longest_operation_in_base_units() -> None:
    assert parse(PLAIN) == (Value("plain", 4.0, 366.005e6), Value("plain-latency", 4.0, 50.896 / 1000))


@pytest.mark.parametrize(
    ("name", "workload", "speed"),
    [
        ("plain-1", ONE, 82.7221e6),
        ("fsync-4", replace(FOUR, modes=("fsync",)), 102.293e6),
        ("sync-4", replace(FOUR, modes=("sync",)), 119.713e6),
        ("sync-2-warm-up", Dbench(modes=("sync",), processes=(2,), duration=10.0), 47.5421e6),
    ],
)
def test_outputs_of_all_modes_and_settings_are_read(name: str, workload: Dbench, speed: float) -> None:
    throughput, latency = parse(sample(name), workload)
    assert (throughput.metric, throughput.point) == (workload.modes[0], float(workload.processes[0]))
    assert throughput.value == pytest.approx(speed)
    assert latency.metric == f"{workload.modes[0]}-latency"


def test_the_first_semaphore_of_a_container_is_no_failure() -> None:
    text = sample("plain-1-first-semaphore")
    assert "failed to create barrier semaphore" in text
    assert parse(text, ONE)[0].value == 69.8462e6


def test_the_speed_is_not_that_of_the_warm_up_nor_of_a_second() -> None:
    text = sample("sync-2-warm-up")
    assert "31.01 MB/sec  warmup   1 sec" in text
    assert "44.47 MB/sec  execute   2 sec" in text
    workload = Dbench(modes=("sync",), processes=(2,), duration=10.0)
    assert parse(text.replace("31.01 MB/sec", "99999.99 MB/sec"), workload) == parse(text, workload)


def test_a_point_comes_from_each_mode_and_number_of_processes() -> None:
    workload = Dbench(modes=("plain", "sync"), processes=(4,))
    values = workload.parse((Raw("plain 4", (), PLAIN, 6.0), Raw("sync 4", (), sample("sync-4"), 6.0)))
    assert [(value.metric, value.point) for value in values] == [
        ("plain", 4.0),
        ("plain-latency", 4.0),
        ("sync", 4.0),
        ("sync-latency", 4.0),
    ]
    assert [metric.name for metric in Dbench.metrics if metric.headline] == ["plain", "fsync", "sync"]


def test_bytes_that_could_not_be_read_fail_the_trial_though_dbench_counts_them() -> None:
    text = sample("failed-reads")
    assert "Throughput 149.495 MB/sec" in text
    with pytest.raises(TrialFailed, match=r"read failed on handle \d+ \("):
        parse(text, ONE)


def test_a_single_failed_read_fails_the_trial() -> None:
    line = "[143] read failed on handle 9938 (Input/output error)\n"
    with pytest.raises(TrialFailed, match="Input/output error"):
        parse(PLAIN.replace("   4  cleanup", f"{line}   4  cleanup"))


@pytest.mark.parametrize("name", ["killed-process", "killed-processes"])
def test_a_killed_process_fails_the_trial_though_dbench_counts_what_the_others_do(name: str) -> None:
    text = sample(name)
    assert "Throughput " in text
    with pytest.raises(TrialFailed, match="one of its processes was killed"):
        parse(text, TWO)


def test_a_result_of_zero_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="'Throughput 0 MB/sec  4 clients"):
        parse(PLAIN.replace("Throughput 366.005 ", "Throughput 0 "))
    with pytest.raises(TrialFailed, match=r"max_latency=0\.000 ms"):
        parse(PLAIN.replace("max_latency=50.896", "max_latency=0.000"))


def test_a_number_with_an_exponent_is_read() -> None:
    assert parse(PLAIN.replace("366.005 ", "1.5e+06 "))[0].value == 1.5e12


@pytest.mark.parametrize("number", ["nan", "inf", "-366.005", "366,005", "", "1e999", "9" * 400, "٣"])
def test_a_throughput_that_is_no_positive_number_fails_the_trial(number: str) -> None:
    with pytest.raises(TrialFailed, match="for plain 4"):
        parse(PLAIN.replace("366.005 ", f"{number} "))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dbench: not found\n",
        sample("killed"),
        sample("disk-full"),
        sample("failed-open"),
        sample("one-second"),
        PLAIN[: PLAIN.index("Throughput")],
        PLAIN[PLAIN.index("releasing") :],
        PLAIN[-70:],
        PLAIN + PLAIN,
        PLAIN + "dbench: something on standard error\n",
        PLAIN.replace("   0  cleanup   5 sec\n", ""),
        PLAIN.replace("version 4.00", "version 3.04"),
        PLAIN.replace("client.txt", "nfs.txt"),
        PLAIN.replace("4 procs  max", "3 procs  max"),
        PLAIN.replace(" MB/sec  4 clients", " MB/sec (sync open)  4 clients"),
        "\n".join(reversed(PLAIN.splitlines())),
        "Throughput 1 MB/sec  4 clients  4 procs  max_latency=1.000 ms\n" * 10_000,
    ],
)
def test_an_output_that_is_not_one_whole_result_fails_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match="no whole result for plain 4") as failure:
        parse(text)
    assert failure.value.hint


@pytest.mark.parametrize(
    "workload", [replace(FOUR, duration=6.0), replace(FOUR, processes=(8,)), replace(FOUR, modes=("sync",))]
)
def test_a_result_with_other_settings_fails_the_trial(workload: Dbench) -> None:
    with pytest.raises(TrialFailed, match="no whole result"):
        parse(PLAIN, workload)


@pytest.mark.parametrize("labels", [(), ("plain 2",), ("plain 4", "plain 4"), ("fsync 4",)])
def test_outputs_that_are_missing_or_too_many_fail_the_trial(labels: tuple[str, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        FOUR.parse(tuple(Raw(label, (), PLAIN, 6.0) for label in labels))


@pytest.mark.parametrize(
    "settings",
    [
        {"modes": []},
        {"modes": ["plain", "plain"]},
        {"modes": ["direct"]},
        {"processes": []},
        {"processes": [0]},
        {"processes": [257]},
        {"processes": [2, 1]},
        {"processes": [2, 2]},
        {"duration": "4s"},  # has no warm-up
        {"duration": "5500ms"},
        {"duration": "2h"},
    ],
)
def test_settings_that_cannot_be_measured_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Dbench).validate_python(settings)


@dataclass(frozen=True)
class Answering(FakeHost):
    """An inside whose dbench always has the same output. It notes what it is asked for."""

    output: Output = field(default=Output((), 0, PLAIN.encode(), b"", 6.1))
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, check: bool = True, **_: object) -> Output:
        if argv[0] == "mkdir":
            return Output(argv, 0, b"", b"", 0.0)
        assert not check
        assert timeout > 120
        self.calls.append(argv)
        return replace(self.output, argv=argv)


def measured(workload: Dbench, output: Output | None = None) -> tuple[Answering, tuple[Raw, ...]]:
    limits = Limits((0,), 1 << 29, 4096)
    inside = Answering(1.0, "", limits) if output is None else Answering(1.0, "", limits, output=output)
    instance = Instance("one", inside, None, "none", processes=tuple)
    setup = Setup(instance, inside, (), drop_caches=lambda: inside.calls.append(("drop",)))
    return inside, tuple(workload.measure(setup))


def test_it_is_run_with_the_options_of_the_paper() -> None:
    inside, raw = measured(Dbench(duration=180.0))
    lines = [" ".join(argv) for argv in inside.calls if argv != ("drop",)]
    common = "dbench -t 180 -c /usr/share/dbench/client.txt -D /srv/tare-files"
    assert lines[:4] == [f"{common} {count}" for count in (1, 2, 4, 8)]
    assert (lines[4], lines[11]) == (f"{common} -F 1", f"{common} -s 8")
    assert [each.label for each in raw] == [f"{mode} {n}" for mode in ("plain", "fsync", "sync") for n in (1, 2, 4, 8)]


def test_caches_are_dropped_before_each_point() -> None:
    inside, _ = measured(Dbench(modes=("plain",)))
    assert [argv[0] for argv in inside.calls] == 4 * ["drop", "dbench"]


def test_its_files_are_on_a_volume_where_that_is_asked_for() -> None:
    volume = replace(FOUR, place="volume")
    inside, _ = measured(volume)
    assert inside.calls[1][5:7] == ("-D", volume.folder)
    assert volume.folder != FOUR.folder
    assert (FOUR.disk_bytes, FOUR.volume_bytes, volume.volume_bytes) == (4 << 25, 0, 4 << 25)


def test_what_it_says_on_standard_error_is_part_of_the_output() -> None:
    _, raw = measured(FOUR, Output((), 0, PLAIN.encode(), b"Segmentation fault\n", 6.1))
    with pytest.raises(TrialFailed, match="no whole result"):
        FOUR.parse(raw)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output((), 1, sample("disk-full").encode(), b"", 1.0), r"the disk may be full: \[94\] wrote 28672 bytes"),
        (Output((), 1, sample("failed-open").encode(), b"", 1.0), r"\[132205\] open .* failed .*No such file"),
        (Output((), 137, sample("killed").encode(), b"", 1.0), "exit code 137"),
        (Output((), 127, b"", b"dbench: not found\n", 1.0), "not found"),
    ],
)
def test_a_full_disk_and_a_missing_or_killed_program_fail_the_trial_with_the_reason(
    output: Output, reason: str
) -> None:
    with pytest.raises(TrialFailed, match=reason) as failure:
        measured(FOUR, output)
    assert failure.value.output is not None


def test_without_an_inside_it_fails() -> None:
    instance = Instance("one", None, None, "none", processes=tuple)
    with pytest.raises(TrialFailed, match="dbench runs inside"):
        tuple(FOUR.measure(Setup(instance, Answering(1.0, "", Limits((0,), 1 << 29, 4096)), ())))


def test_it_takes_no_turns_and_its_estimate_has_the_warm_ups() -> None:
    assert (FOUR.rounds, FOUR.packages, FOUR.port) == (1, ("dbench",), None)
    assert Dbench().seconds() == pytest.approx(12 * 6.5)
