"""sysbench's memory test: how many blocks a turn has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tare_fake.technology import FakeHost

from tare.contracts.workloads import Instance, Setup
from tare.model.trials import Limits, Output
from tare.running.values import read_values
from tare.workloads.sysbench_memory import SysbenchMemory

SAMPLES = Path(__file__).parents[2] / "samples/sysbench-memory"
SAMPLE = (SAMPLES / "write.txt").read_text()


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
