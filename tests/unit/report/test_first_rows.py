"""What is shown before the first block is complete, by the raw outputs of real trials."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import ClassVar

import pytest
from fakes import Bench, Watcher, suite
from plain import Plain
from pydantic import TypeAdapter
from rich.console import Console

from tare.cli.progress import FirstBlockRows
from tare.loads.user_load import UserMetric
from tare.model.trial import Metric, RawOutput, Value
from tare.plugins.workload import Workload
from tare.runner.events import RunEvent, TurnEnded, TurnsBegin
from tare.suites.plan import PlannedTrial
from tare.workloads.command import UserCommand

SAMPLES = Path(__file__).parents[2] / "samples/command"
RATE = UserMetric(name="rate", unit="events/s", better="higher", pattern=r"^ +events per second: +([0-9.]+)$")


@dataclass(frozen=True)
class Pair(Plain):
    """A workload of two outputs in each round, both of which its parser must have."""

    name: ClassVar[str] = "pair"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("rate", "Rate", "requests/s", "higher"),)

    rounds: int = 3

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        get, put = ({each.label: each.text for each in raw}[name] for name in ("get", "put"))
        return (Value("rate", 1.0, float(get)), Value("rate", 50.0, float(put)))


class Wrong(Pair):
    """A workload whose plug-in has a bug."""

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        raise ZeroDivisionError(len(raw))


def sample(stack: str) -> tuple[RawOutput, ...]:
    return TypeAdapter(tuple[RawOutput, ...]).validate_json((SAMPLES / f"sysbench-{stack}.json").read_bytes())


def step(stack: str, workload: str = "sysbench") -> PlannedTrial:
    return PlannedTrial(f"{workload}-000-00-{stack}", workload, stack, 0, 0)


def drawn(rows: FirstBlockRows) -> list[str]:
    console = Console(file=StringIO(), width=110, color_system=None)
    with console.capture() as capture:
        console.print(rows.create_table())
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_each_stack_has_a_row_with_its_values_from_its_first_turn_on() -> None:
    rows = FirstBlockRows({"sysbench": UserCommand(metrics=(RATE,))})
    native, gvisor = (sample(name)[-1] for name in ("native", "gvisor"))
    assert rows.add_turn(step("native"), replace(native, warm_up=True))
    head, first, *_ = drawn(rows)
    assert head == "rate ↑ time ↓ user ↓ system ↓ memory ↓"
    values = {each.metric: each.value for each in UserCommand(metrics=(RATE,)).parse((native,))}
    assert f"{values['rate'] / 1000:.3g}k events/s" in first
    assert first.endswith("warm-up")
    assert rows.add_turn(step("gvisor"), gvisor)
    assert not rows.add_turn(step("native"), native)
    lines = drawn(rows)
    assert [line.split()[0] for line in lines[1:3]] == ["native", "gvisor"]
    assert not any("warm-up" in line for line in lines)
    assert rows.describe_turn(step("native")).startswith(
        f"sysbench: native: rate {values['rate'] / 1000:.3g}k events/s, time "
    )


def test_a_round_that_is_not_whole_yet_tells_how_long_a_turn_took() -> None:
    rows = FirstBlockRows({"pair": Pair()})
    rows.add_turn(step("native", "pair"), RawOutput("fill", (), "", 2.5, warm_up=True))
    assert drawn(rows)[0] == "native 2.5 s in its turn warm-up"
    assert rows.describe_turn(step("native", "pair")) == "pair: native: 2.5 s in its turn (warm-up)"
    rows.add_turn(step("native", "pair"), RawOutput("get", (), "100", 0.03))
    assert drawn(rows)[0] == "native 30 ms in its turn"
    rows.add_turn(step("native", "pair"), RawOutput("put", (), "2000", 0.03))
    rows.add_turn(step("native", "pair"), RawOutput("put", (), "7", 0.01, warm_up=True))  # says less than what counts
    assert drawn(rows)[:2] == ["rate 1 ↑ rate 50 ↑", "native 100 requests/s 2k requests/s"]
    rows.add_turn(step("native", "pair"), RawOutput("get", (), "110", 0.03))
    assert drawn(rows)[1] == "native 110 requests/s 2k requests/s"


def test_no_time_is_shown_of_a_command_that_failed() -> None:
    rows = FirstBlockRows({"sysbench": UserCommand()})
    failed = replace(sample("native")[-1], warm_up=True)
    failed = replace(failed, text=re.sub(r"exit \d+\n", "exit 1\n", failed.text))
    assert rows.add_turn(step("native"), failed)
    assert drawn(rows)[0] == "native warm-up"
    assert rows.describe_latest("native") == ""


@pytest.mark.parametrize("odd", [Pair(rounds=1), type("Odd", (Pair,), {"is_adaptive": True})(), Wrong()])
def test_what_cannot_be_read_turn_by_turn_has_a_row_all_the_same(odd: Workload) -> None:
    rows = FirstBlockRows({"pair": odd})
    for label in ("get", "put"):
        rows.add_turn(step("native", "pair"), RawOutput(label, (), "100", 0.03))
    assert drawn(rows)[0] == "native 30 ms in its turn"


def test_another_workload_has_rows_of_its_own() -> None:
    rows = FirstBlockRows({"sysbench": UserCommand(), "pair": Pair()})
    assert rows.add_turn(step("native"), sample("native")[0])
    assert rows.add_turn(step("native", "pair"), RawOutput("get", (), "100", 0.03))
    assert drawn(rows)[0] == "native 30 ms in its turn"


@dataclass
class Looking(Watcher):
    """Looks at the rows when a round begins, and notes when the first trial has ended."""

    rows: FirstBlockRows = field(default_factory=lambda: FirstBlockRows({}))
    seen: list[list[str]] = field(default_factory=list)

    def __call__(self, event: RunEvent) -> None:
        super().__call__(event)
        match event:
            case TurnEnded(step, raw):
                self.rows.add_turn(step, raw)
            case TurnsBegin():
                assert not self.ended
                self.seen.append(drawn(self.rows))


def test_all_stacks_have_rows_with_values_after_their_first_turns(
    tmp_path: Path,
) -> None:
    asked = suite("quick:", "slow: effect = '3%'", blocks=1, workloads=("dhrystone",))
    watcher = Looking(tmp_path / "run/trials.jsonl")
    watcher.rows = FirstBlockRows({planned.name: planned.workload for planned in asked.workloads})
    Bench(tmp_path / "run", watcher).work(asked)
    head, *rows, _ = watcher.seen[1]
    assert head == "speed ↑"
    assert sorted(row.split()[0] for row in rows) == ["quick", "quick-again", "slow"]
    assert all("dhrystones/s" in row for row in rows)
