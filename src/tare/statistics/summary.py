"""Everything that statistics finds in a run, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from tare.statistics.cells import Cell, HeadlineRule, Overall
from tare.statistics.dependence import BlockEffects, find_effects
from tare.statistics.headlines import Headline
from tare.statistics.outcomes import TrialOutcomes


@dataclass(frozen=True)
class Summary:
    """Everything that can be said of a run's values.

    `control` is the A/A control, the baseline under a second name; an empty text in runs that have none. Ratios between
    1 / (1 + `margin`) and 1 + `margin` count as equivalent. The verdicts of `headlines` hold together: of those that
    say better, worse or equivalent, at most one in twenty is expected to be false (e-BH). Those of `cells` hold each by
    itself. `headline_data` is what the headlines were made of. `overrides` is what stacks have of their own by the
    suite's wish: a stack, `command` or `image`, and which. `years` has a stack and the year of its technology, where
    that is an old one. `outcomes` has what became of the trials: for each workload, that of each stack.
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

    @property
    def rules(self) -> tuple[HeadlineRule, ...]:
        """How the headlines were made."""
        return tuple(head.rule for head in self.headline_data)

    def title(self, stack: str) -> str:
        """Return a stack's name for tables: with its year, where its technology is an old one."""
        year = dict(self.years).get(stack)
        return f"{stack} ({year})" if year else stack

    def cells_of(self, workload: str) -> tuple[Cell, ...]:
        """Return the cells of a workload, without those of its headlines."""
        return tuple(cell for cell in self.cells if cell.workload == workload)

    def headline(self, name: str, stack: str) -> Cell:
        """Return the cell of a headline on a stack. A workload's first headline has the name of the workload.

        Every pair has one. Where it has no value, its notes say why.
        """
        return next(cell for cell in self.headlines if cell.headline == name and cell.stack == stack)

    def block_effects(self, name: str) -> BlockEffects | None:
        """Return what moved the values of a headline beside the stacks; None where there is too little."""
        head = next(head for head in self.headline_data if head.rule.name == name)
        return find_effects(head.logs, head.usable, head.grid.positions)

    def rule(self, name: str) -> HeadlineRule:
        """Return how a headline was made."""
        return next(rule for rule in self.rules if rule.name == name)

    def rules_of(self, workload: str) -> tuple[HeadlineRule, ...]:
        """Return how all headlines of a workload were made."""
        return tuple(rule for rule in self.rules if rule.workload == workload)
