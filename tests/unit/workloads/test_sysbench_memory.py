"""sysbench's memory test: what version 1.0.20 of Debian 12 printed with several settings, whole and damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from tare_fake.technology import FakeHost

from tare.contracts import Instance, Setup
from tare.errors import TrialFailed
from tare.model import Limits, Output, Raw, Value
from tare.running.values import read_values
from tare.workloads.sysbench_memory import SysbenchMemory

SAMPLES = Path(__file__).parents[2] / "samples/sysbench-memory"
SAMPLE = (SAMPLES / "write.txt").read_text()
AT_RANDOM = SysbenchMemory(threads=4, block_size=16 << 20, operation="read", access="rnd", scope="local")
WORKED = "         sum:                                   56.13\n"


def parse(text: str, workload: SysbenchMemory | None = None) -> Value:
    (value,) = (workload or SysbenchMemory()).parse((Raw("sysbench-memory", ("sysbench",), text, 1.0),))
    return value


def test_a_captured_turn_gives_bytes_a_second_without_the_start_of_sysbench() -> None:
    value = parse(SAMPLE)
    assert (value.metric, value.point) == ("speed", None)
    assert value.value == pytest.approx(2200 * 2**20 / 0.05613)


def test_what_several_threads_did_is_read_though_it_is_less_than_was_asked_for() -> None:
    text = (SAMPLES / "read-at-random-four-threads.txt").read_text()
    assert "  total size: 656MiB\n" in text  # 41 blocks, which four threads cannot share
    assert parse(text, AT_RANDOM).value == pytest.approx(40 * 2**24 * 4 / 3.60981)


@pytest.mark.parametrize(
    "workload",
    [
        SysbenchMemory(threads=2),
        SysbenchMemory(block_size=1024),
        SysbenchMemory(operation="read"),
        SysbenchMemory(scope="local"),
    ],
)
def test_a_result_with_other_settings_fails_the_trial(workload: SysbenchMemory) -> None:
    with pytest.raises(TrialFailed, match="no result as asked"):
        parse(SAMPLE, workload)


@pytest.mark.parametrize(
    "text",
    [
        "",
        (SAMPLES / "interrupted.txt").read_text(),
        (SAMPLES / "too-large.txt").read_text(),
        (SAMPLES.parent / "sysbench/one-thread.txt").read_text(),
        SAMPLE.replace(WORKED, ""),
        SAMPLE.replace(WORKED, 2 * WORKED),
        SAMPLE.replace("56.13", "0.00"),
        SAMPLE.replace("56.13", "nan"),
        SAMPLE.replace("56.13", "9" * 400 + ".0"),
        SAMPLE.replace(" 2200\n", " 0\n"),
        SAMPLE.replace(" 2200\n", " " + "9" * 400 + "\n"),
        SAMPLE.replace("sysbench 1.", "sysbench 2."),
        "".join(reversed(SAMPLE.splitlines(keepends=True))),
        SAMPLE + SAMPLE,
        SAMPLE + "Killed\n",
        SAMPLE[:-40],
    ],
)
def test_an_output_that_is_not_one_whole_result_fails_the_trial_with_what_was_found(text: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        parse(text)
    assert repr(text[:60])[1:-1] in str(failure.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"block_size": "512B"},
        {"block_size": "3KiB"},
        {"block_size": "2GiB"},
        {"block_size": 1024},
        {"operation": "none"},
        {"access": "random"},
        {"scope": "all"},
    ],
)
def test_settings_that_cannot_be_measured_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(SysbenchMemory).validate_python(settings)


@dataclass(frozen=True)
class Answering(FakeHost):
    """A host whose sysbench writes blocks at a given rate. It notes what it is asked for."""

    rate: float = 10_000.0
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        self.calls.append(argv)
        worked = self.events(-1) / self.rate * 1000
        text = SAMPLE.replace(" 2200\n", f" {self.events(-1)}\n").replace("56.13", f"{worked:.2f}")
        return Output(argv, 0, text.encode(), b"", timeout)

    def events(self, call: int) -> int:
        return int(self.calls[call][3].removeprefix("--events="))


def test_each_turn_moves_as_many_blocks_as_fill_it() -> None:
    inside = Answering(1.0, "", Limits((0,), 1 << 29, 4096))
    instance = Instance("one", inside, None, "none", processes=lambda: ())
    raw = tuple(SysbenchMemory(0.5).measure(Setup(instance, inside, ())))
    total = 500 << 20
    assert inside.calls[-1] == (
        *("sysbench", "memory", "--threads=1", "--events=500", "--time=0"),
        *("--memory-block-size=1048576", f"--memory-total-size={total}", "--memory-oper=write"),
        *("--memory-access-mode=seq", "--memory-scope=global", "run"),
    )
    assert [(each.label, each.warm_up) for each in raw] == [("sysbench-memory", number == 0) for number in range(11)]
    assert read_values(SysbenchMemory(0.5), raw)[0].turns == pytest.approx(10 * (10_000 * 2.0**20,))
