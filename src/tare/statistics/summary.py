"""Summary of a run: all results of statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from tare.statistics.cells import Cell, HeadlineRule, Overall
from tare.statistics.cpu_costs import CpuCost
from tare.statistics.dependence import BlockEffects, find_effects
from tare.statistics.headlines import Headline
from tare.statistics.outcomes import TrialOutcomes


@dataclass(frozen=True)
class Summary:
    """Summary of a run's values.

    - `control`: the A/A control, the baseline under a second name; empty without one.
    - `margin`: ratios between 1 / (1 + `margin`) and 1 + `margin` count as equivalent.
    - `headlines`: cells whose verdicts hold together: at most one in twenty of the decided verdicts (better, worse or
      equivalent) is expected to be false (e-BH). The verdicts of `cells` hold separately.
    - `headline_data`: the data from which the headlines are computed.
    - `overrides`: per-stack overrides of the suite: the stack, `command` or `image`, and the override as text.
    - `years`: stacks with an outdated technology, and its year.
    - `outcomes`: outcomes of the trials by workload, then stack.
    - `cpu_costs`: CPU time per request or run, for all workloads, metrics and points that have any, then by stack.
    """

    suite: str
    baseline: str
    control: str
    margin: float
    stacks: tuple[str, ...]
    workloads: tuple[str, ...]
    cells: tuple[Cell, ...]
    headlines: tuple[Cell, ...]
    overall: Overall
    headline_data: tuple[Headline, ...] = field(default=(), compare=False, repr=False)
    overrides: tuple[tuple[str, str, str], ...] = ()
    years: tuple[tuple[str, str], ...] = ()
    outcomes: tuple[tuple[TrialOutcomes, ...], ...] = field(default=(), compare=False, repr=False)
    cpu_costs: tuple[CpuCost, ...] = ()

    @property
    def rules(self) -> tuple[HeadlineRule, ...]:
        """The rules of all headlines."""
        return tuple(head.rule for head in self.headline_data)

    @property
    def by_cpu_time(self) -> tuple[str, ...]:
        """The names of the headlines with a ratio that is compared by CPU time."""
        return tuple(dict.fromkeys(cell.headline for cell in self.headlines if cell.by_cpu_time))

    def title(self, stack: str) -> str:
        """Return a stack's name for tables, with the year if its technology is outdated."""
        year = dict(self.years).get(stack)
        return f"{stack} ({year})" if year else stack

    def cells_of(self, workload: str) -> tuple[Cell, ...]:
        """Return the cells of a workload, without those of its headlines."""
        return tuple(cell for cell in self.cells if cell.workload == workload)

    def headline(self, name: str, stack: str) -> Cell:
        """Return the cell of a headline and a stack. A workload's first headline has the name of the workload.

        Every pair has a cell. The notes of a cell without a value say why.
        """
        return next(cell for cell in self.headlines if cell.headline == name and cell.stack == stack)

    def block_effects(self, name: str) -> BlockEffects | None:
        """Return the effects of blocks and positions on a headline's values; None for too few values."""
        head = next(head for head in self.headline_data if head.rule.name == name)
        return find_effects(head.logs, head.usable, head.grid.positions)

    def rule(self, name: str) -> HeadlineRule:
        """Return the rule of a headline."""
        return next(rule for rule in self.rules if rule.name == name)

    def rules_of(self, workload: str) -> tuple[HeadlineRule, ...]:
        """Return the rules of all headlines of a workload."""
        return tuple(rule for rule in self.rules if rule.workload == workload)
