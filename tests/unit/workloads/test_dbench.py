"""DBENCH: what it prints when its processes are killed, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.errors import TrialFailed
from tare.model.trials import Output, Raw, Value
from tare.workloads.dbench import Dbench

SAMPLES = Path(__file__).parents[2] / "samples/dbench"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


PLAIN = sample("plain-4")
TWO, FOUR = (Dbench(modes=("plain",), processes=(count,)) for count in (2, 4))


def parse(text: str, workload: Dbench = FOUR) -> tuple[Value, ...]:
    (label,) = (f"{mode} {count}" for mode in workload.modes for count in workload.processes)
    return tuple(workload.parse((Raw(label, ("dbench",), text, 6.0),)))


@pytest.mark.parametrize("name", ["killed-process", "killed-processes"])
def test_a_killed_process_fails_the_trial_though_dbench_counts_what_the_others_do(name: str) -> None:
    text = sample(name)
    assert "Throughput " in text
    with pytest.raises(TrialFailed, match="one of its processes was killed"):
        parse(text, TWO)


def test_a_number_with_an_exponent_is_read() -> None:
    assert parse(PLAIN.replace("366.005 ", "1.5e+06 "))[0].value == 1.5e12


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
    inside = Answering(output=output) if output else Answering()
    setup = replace(running_in(inside), drop_caches=lambda: inside.calls.append(("drop",)))
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


def test_it_takes_no_turns_and_its_estimate_has_the_warm_ups() -> None:
    assert (FOUR.rounds, FOUR.packages, FOUR.port) == (1, ("dbench",), None)
    assert Dbench().seconds() == pytest.approx(12 * 6.5)
