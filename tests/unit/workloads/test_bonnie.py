"""Bonnie++: what its columns mean, and how it is run. Its CSV has the format of version 1.98."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.contracts.workloads import MeasurementContext
from tare.errors import TrialFailed
from tare.hosts.process import checked
from tare.images.recipes import guest_recipe
from tare.model.machines import DiskBytes
from tare.model.trials import Limits, Output, Raw, SeenLimits, SetLimits, Value
from tare.workloads.bonnie import Bonnie

SAMPLES = Path(__file__).parents[2] / "samples/bonnie"
TWO_RUNS = (SAMPLES / "two-runs.csv").read_text()
HEAD, FIRST, _ = TWO_RUNS.splitlines(keepends=True)
MIB = 1024**2
TWO = Bonnie(runs=2)


def parse(text: str, workload: Bonnie = TWO) -> dict[str, float]:
    values = workload.parse((Raw("bonnie", ("bonnie++",), text, 1.0),))
    assert all(value.point is None for value in values)
    return {value.metric: value.value for value in values}


def test_three_equal_runs_deviate_by_nothing() -> None:
    values = parse(HEAD + 3 * FIRST, Bonnie())
    assert (values["rewrite"], values["rewrite-deviation"]) == (1024 * 269543, 0)


def test_columns_count_by_place_as_the_line_of_names_has_two_too_few() -> None:
    names, fields = HEAD.split(","), FIRST.split(",")
    assert (len(names), len(fields)) == (48, 50)
    assert fields[names.index("putc")] == "8192"  # the number of seeks: no speed
    assert parse(TWO_RUNS)["output-character"] < 8192 * 1024


@pytest.mark.parametrize("field", ["", "nan", "269543k", "9" * 400])
def test_a_speed_that_is_no_number_of_kibibytes_is_quoted_and_no_longer_than_a_line(field: str) -> None:
    with pytest.raises(TrialFailed, match="KiB/s for rewrite") as failure:
        parse(TWO_RUNS.replace(",269543,", f",{field},"))
    assert repr(field[:100]) in str(failure.value)


def test_what_was_too_quick_to_measure_is_missing_and_not_zero() -> None:
    small = Bonnie(memory=32 * MIB, runs=2)
    with pytest.raises(TrialFailed, match=r"too quick to measure output-block: it prints \+\+\+\+\+") as failure:
        parse((SAMPLES / "too-quick.csv").read_text(), small)
    assert "more `memory`" in failure.value.hint


def test_one_run_that_was_too_quick_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="too quick to measure input-block"):
        parse(TWO_RUNS.replace(",996756,20,", ",+++++,+++,"))


def test_what_was_too_quick_but_is_not_asked_for_does_not_matter() -> None:
    assert parse(TWO_RUNS.replace(",10926,81,", ",+++++,+++,")) == parse(TWO_RUNS)


@dataclass(frozen=True)
class Answering(FakeHost):
    """An inside whose Bonnie++ has the captured output. It notes what it is asked for."""

    output: Output = field(default=Output((), 0, TWO_RUNS.encode(), b"", 40.0))
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, check: bool = True, **_: object) -> Output:
        if argv[0] == "mkdir":
            return Output(argv, 0, b"", b"", 0.0)
        self.calls.append(argv)
        assert timeout > TWO.seconds()
        output = replace(self.output, argv=argv)
        return checked(output) if check else output


LIMITS = Limits((0,), 512 * MIB, 4096)


def setup(inside: Answering | None, memory_bytes: int | None = 512 * MIB, asked: Limits = LIMITS) -> MeasurementContext:
    return replace(running_in(inside), limits=SetLimits(asked, SeenLimits(1, memory_bytes, 4096)))


def with_disks(inside: Answering, *moved: DiskBytes) -> MeasurementContext:
    return replace(setup(inside), disks_moved=iter(moved).__next__, drop_caches=lambda: inside.calls.append(("drop",)))


def answering(output: Output | None = None) -> Answering:
    return Answering(output=output) if output else Answering()


def test_it_is_run_with_the_options_of_the_paper() -> None:
    inside, paper = answering(), Bonnie(memory=16_000 * MIB, files=2500)
    (raw,) = paper.measure(setup(inside, 16_000 * MIB))
    assert inside.calls == [raw.argv]
    line = " ".join(raw.argv)
    assert line.startswith("bonnie++ -q -d /srv/tare-files -s 32000 -r 16000 -n 2500 -x 3 -z 1580230295 -f10 -m tare")


def test_its_files_are_on_a_volume_where_that_is_asked_for() -> None:
    inside, volume = answering(), replace(TWO, place="volume")
    tuple(volume.measure(setup(inside)))
    assert inside.calls[0][:4] == ("bonnie++", "-q", "-d", volume.folder)
    assert volume.folder != TWO.folder
    assert (TWO.volume_bytes, volume.volume_bytes) == (0, 1024 * MIB)


def test_the_disk_of_a_guest_has_room_for_its_files_and_their_inodes() -> None:
    assert TWO.disk_bytes == 1024 * MIB
    assert Bonnie(files=1).disk_bytes == (1024 + 16) * MIB
    paper = Bonnie(memory=16_000 * MIB, files=2500)
    assert guest_recipe([paper]).disk_bytes(400 * MIB) > 32_000 * MIB


@pytest.mark.parametrize(
    ("read", "written", "share"), [(4096, 5000, 1.0), (1024, 5000, 0.25), (9000, 2048, 0.5), (0, 0, 0.0)]
)
def test_caches_are_dropped_and_what_the_disks_moved_is_counted(read: int, written: int, share: float) -> None:
    inside = answering()
    moved = DiskBytes(7 * MIB, 9 * MIB), DiskBytes((7 + read) * MIB, (9 + written) * MIB)
    (raw,) = TWO.measure(with_disks(inside, *moved))  # writes and reads 4 GiB each
    assert [argv[0] for argv in inside.calls] == ["drop", "bonnie++"]
    assert raw.disk_share == share
    assert not raw.warm_up


def test_what_it_says_on_standard_error_is_part_of_the_output() -> None:
    inside = answering(Output((), 0, TWO_RUNS.encode(), b"Can't sync file.\n", 40.0))
    with pytest.raises(TrialFailed, match="results as asked"):
        TWO.parse(tuple(TWO.measure(setup(inside))))


def test_an_output_of_the_inside_is_read() -> None:
    values = TWO.parse(tuple(TWO.measure(setup(answering()))))
    assert values[0] == Value("output-character", None, 1024 * (2374 + 1817) / 2)


@pytest.mark.parametrize(("seen", "asked"), [(513 * MIB, 512 * MIB), (None, 2048 * MIB)])
def test_a_file_that_may_lie_in_the_memory_of_the_instance_fails_the_trial(seen: int | None, asked: int) -> None:
    inside = answering()
    with pytest.raises(TrialFailed, match="file of 1 GiB may lie in the page cache") as failure:
        tuple(TWO.measure(setup(inside, seen, replace(LIMITS, memory_bytes=asked))))
    assert not inside.calls
    assert "limit the memory" in failure.value.hint


def test_a_guest_that_has_a_little_less_memory_than_asked_for_is_measured() -> None:
    assert tuple(TWO.measure(setup(answering(), 470 * MIB)))


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output((), 1, HEAD.encode(), b"Can't write() - disk full?\n", 1.0), "disk full"),
        (Output((), 1, b"", (SAMPLES / "disk-full.txt").read_bytes(), 1.0), "No space left on device"),
        (Output((), 137, (SAMPLES / "killed.csv").read_bytes(), b"", 1.0), "exit code 137"),
        (Output((), 127, b"", b"bonnie++: not found\n", 1.0), "not found"),
    ],
)
def test_a_full_disk_and_a_missing_or_killed_program_fail_the_trial_with_the_reason(
    output: Output, reason: str
) -> None:
    with pytest.raises(TrialFailed, match=reason) as failure:
        tuple(TWO.measure(setup(answering(output))))
    assert failure.value.output is not None


def test_it_takes_no_turns_and_its_estimate_grows_with_runs_and_bytes() -> None:
    assert (TWO.rounds, TWO.packages, TWO.port) == (1, ("bonnie++",), None)
    assert Bonnie(runs=4).seconds() == pytest.approx(2 * TWO.seconds())
    assert TWO.seconds() == pytest.approx(2 * (5 + 8 * 512 * MIB / 300e6 + 20 * MIB / 4e6))
