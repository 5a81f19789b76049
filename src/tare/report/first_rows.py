"""What the turns of a run's first block have shown so far: before it is complete, nothing can be compared.

Values are those of a stack's latest turn, or of the latest one with each label. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tare.contracts.workloads import Workload
from tare.model.trials import Measured, Raw
from tare.report.numbers import clean, point
from tare.runner.values import latest_values
from tare.suites.plan import Step
from tare.units import format_duration, format_quantity

_COLUMNS = 5  # of values: the first ones of a workload
_LATER = "the latest turn of each stack; what can be compared comes with the first block"

Outputs = dict[str, Raw]


@dataclass
class _Row:
    """A stack's latest outputs by their labels, the values in them, and how long the latest of all took."""

    workload: str
    outputs: Outputs
    seconds: float
    warms_up: bool
    values: tuple[Measured, ...] | None = None  # None until they are read


@dataclass
class FirstRows:
    """A row for each stack that has had a turn, in the order of their first ones; `workloads` are a suite's.

    One thread may learn while another one draws.
    """

    workloads: Mapping[str, Workload]
    worth_drawing: bool = True  # something new is known of a stack, or a round has passed: turns may be too short
    _rows: dict[str, _Row] = field(default_factory=dict)

    def learn(self, step: Step, raw: Raw) -> bool:
        """Take a turn into account; return whether it is the stack's first."""
        row = self._rows.get(step.stack)
        before = row.outputs if row and row.workload == step.workload else {}
        counted = {label: each for label, each in before.items() if not each.warm_up}
        if not (raw.warm_up and counted):  # a warm-up never replaces a counted turn
            outputs = {**(before if raw.warm_up else counted), raw.label: raw}
            self._rows[step.stack] = _Row(step.workload, outputs, raw.seconds, raw.warm_up)
            self.worth_drawing |= row is None or not before or row.warms_up != raw.warm_up
        return not before

    def line(self, step: Step) -> str:
        """Describe in a line what a stack's turn has shown."""
        return f"{self._rows[step.stack].workload}: {clean(step.stack)}: {self.latest(step.stack)}"

    def latest(self, stack: str) -> str:
        """Describe what a stack's latest turn has shown."""
        row = self._rows[stack]
        values = [f"{_name(each)} {clean(format_quantity(each.value, each.unit))}" for each in self._values(row)]
        shown = ", ".join(values[:_COLUMNS]) or f"{format_duration(row.seconds)} in its turn"
        return f"{shown}{' (warm-up)' if row.warms_up else ''}"

    def table(self) -> RenderableType:
        """Make the table of the stacks that have had a turn."""
        rows = self._rows.copy()
        if not rows:
            return Text("a row for each stack comes with its first turn", style="dim")
        read = {stack: {_name(each): each for each in self._values(row)} for stack, row in rows.items()}
        shown = {name: each for values in read.values() for name, each in values.items()}
        names = list(shown)[:_COLUMNS]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(names), header_style="dim")
        table.add_column("")
        for name in names:
            table.add_column(Text(f"{name} {'↑' if shown[name].better == 'higher' else '↓'}"), no_wrap=True)
        table.add_column("")
        for stack, row in rows.items():
            values = (_shown(read[stack].get(name)) for name in names)
            table.add_row(Text(clean(stack)), *values, Text(" ".join(_remarks(row, bool(read[stack]))), style="dim"))
        return Group(table, Text(_LATER, style="dim"))

    def _values(self, row: _Row) -> tuple[Measured, ...]:
        if row.values is None:
            row.values = latest_values(self.workloads[row.workload], tuple(row.outputs.values()))
        return row.values


def _name(value: Measured) -> str:
    return clean(" ".join(filter(None, (value.metric, point(value.point, "")))))


def _shown(value: Measured | None) -> Text:
    return Text(clean(format_quantity(value.value, value.unit)) if value else "")


def _remarks(row: _Row, has_values: bool) -> Iterator[str]:
    if not has_values:
        yield f"{format_duration(row.seconds)} in its turn"
    if row.warms_up:
        yield "warm-up"
