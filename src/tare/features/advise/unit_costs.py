"""Price list: the unit cost of each operation kind in each stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tare.model.errors import UsageError
from tare.model.operations import OPERATION_KINDS, USER
from tare.model.run_folder import Run, load_run
from tare.statistics.bootstrap import Draws, bootstrap_means, bootstrap_weights
from tare.statistics.descriptive import centers
from tare.statistics.grid import build_grid
from tare.statistics.headlines import log_ratios, turn_logs
from tare.statistics.outcomes import select_latest
from tare.statistics.ratios import BaselineRows

FOLDER = Path(__file__).with_name("orientation")  # tare's built-in price list, of another machine than the user's
WORKLOADS = ("prices", "network-prices")
_KIND_NAMES = {work.name for work in OPERATION_KINDS}
_INCLUDES = {work.name: dict(work.includes) for work in OPERATION_KINDS}
_INNER_FIRST = tuple(TopologicalSorter(_INCLUDES).static_order())
_MEASURE_COMMAND = "tare prices"
SEED = 1  # fixed, so that the same input gives the same answer


@dataclass(frozen=True)
class UnitCostSheet:
    """Unit costs of one workload by block.

    `logs` are logarithms of a stack's unit cost over the baseline's (axes: stack, kind, block); `has_ratio` marks those
    that were measured. `levels` are logarithms of the baseline's unit costs in seconds (axes: kind, block);
    `has_level` marks those that were measured.
    """

    kinds: tuple[str, ...]
    logs: NDArray[np.float64]
    has_ratio: NDArray[np.bool_]
    levels: NDArray[np.float64]
    has_level: NDArray[np.bool_]


@dataclass(frozen=True)
class PriceList:
    """Price list: unit costs of `stacks`, which are all stacks but the baseline and its A/A control."""

    baseline: str
    stacks: tuple[str, ...]
    sheets: tuple[UnitCostSheet, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The operation kinds of all sheets, in their order."""
        return tuple(kind for sheet in self.sheets for kind in sheet.kinds)

    @property
    def known_kinds(self) -> tuple[str, ...]:
        """The operation kinds of which the baseline has a unit cost."""
        pairs = (pair for sheet in self.sheets for pair in zip(sheet.kinds, sheet.has_level, strict=True))
        return tuple(kind for kind, blocks in pairs if blocks.any())

    @cached_property
    def resampled_costs(self) -> ResampledUnitCosts:
        """Block bootstrap of unit costs: whole blocks, because a disturbance affects all stacks of its block."""
        draws = [_resample(sheet, np.random.default_rng([SEED, at])) for at, sheet in enumerate(self.sheets)]
        return ResampledUnitCosts(
            np.concatenate([native for native, _ in draws], axis=-1),
            np.concatenate([prices for _, prices in draws], axis=-1),
            np.concatenate([sheet.has_ratio.sum(axis=-1) for sheet in self.sheets], axis=-1),
        )


@dataclass(frozen=True)
class ResampledUnitCosts:
    """Bootstrap draws of unit costs in seconds per operation; NaN if unknown. The first draw is the estimate.

    `native` has those on bare metal (axes: draw, kind), `prices` those in the stacks (axes: draw, stack, kind).
    `blocks` is the number of blocks that a unit cost was measured in (axes: stack, kind).
    """

    native: Draws
    prices: Draws
    blocks: NDArray[np.int64]


def load_orientation_prices() -> Run:
    """Return the run with tare's built-in price list."""
    return load_run(FOLDER)


def read_price_list(run: Run) -> PriceList:
    """Return the price list of a run; raises UsageError if it has none, or none of the baseline."""
    records = [record for record in run.record.workloads if record.use in WORKLOADS]
    if not records:
        names = ", ".join(record.use for record in run.record.workloads) or "none"
        raise UsageError(
            f"{run.folder}: not a price list: its workloads are {names}", f"make one with `{_MEASURE_COMMAND}`"
        )
    trials = select_latest(run.trials)
    baseline, control = run.record.baseline, run.record.control
    stacks = tuple(dict.fromkeys([*run.record.stacks, *(trial.stack for trial in trials)]))
    if baseline not in stacks:
        raise UsageError(
            f"{run.folder}: the price list has no baseline {baseline}", f"measure it with `{_MEASURE_COMMAND}`"
        )
    reference = BaselineRows(stacks.index(baseline), stacks.index(control) if control in stacks else None)
    priced = [index for index, stack in enumerate(stacks) if stack not in {baseline, control}]
    sheets = []
    seen: set[str] = set()
    for record in records:
        grid = build_grid(record, stacks, [trial for trial in trials if trial.workload == record.name])
        first: dict[str, int] = {}
        for at, key in enumerate(grid.keys):
            if key.metric in _KIND_NAMES - seen:  # a suite may measure a kind twice: the first one counts
                first.setdefault(key.metric, at)
        seen |= first.keys()
        if first:
            keys = list(first.values())
            ratios, (logs, usable) = log_ratios(grid, reference, keys), turn_logs(grid, keys)
            levels, known = centers(logs[reference.row], usable[reference.row]), usable[reference.row].any(axis=-1)
            ratio_logs, has_ratio = ratios.logs[priced], ratios.both[priced]
            sheets.append(UnitCostSheet(tuple(first), ratio_logs, has_ratio, levels, np.asarray(known)))
    prices = PriceList(baseline, tuple(stacks[index] for index in priced), tuple(sheets))
    if not prices.known_kinds:
        raise UsageError(f"{run.folder}: no unit cost of the baseline {baseline}", f"`tare show {run.folder}` says why")
    return prices


def _resample(sheet: UnitCostSheet, chance: np.random.Generator) -> tuple[Draws, Draws]:
    """Return bootstrap draws of the unit costs on bare metal and in the stacks (axes as in ResampledUnitCosts).

    The unit cost of user code on bare metal is 1 second per second. Unit costs exclude those of
    included kinds.
    """
    weights = bootstrap_weights(sheet.has_level.shape[-1], chance)
    levels, ratios = (
        bootstrap_means(sheet.levels, sheet.has_level, weights),
        bootstrap_means(sheet.logs, sheet.has_ratio, weights),
    )
    levels[:, [at for at, kind in enumerate(sheet.kinds) if kind == USER.name]] = 0.0
    return _exclude_included_kinds(np.exp(levels), sheet.kinds), _exclude_included_kinds(
        np.exp(levels[:, np.newaxis] + ratios), sheet.kinds
    )


def _exclude_included_kinds(prices: Draws, kinds: Sequence[str]) -> Draws:
    """Return unit costs minus those of included kinds, if known (a program start includes page faults)."""
    exclusive = prices.copy()
    for kind in _INNER_FIRST:  # an included unit cost must be exclusive itself before it is subtracted
        for included, count in _INCLUDES[kind].items():
            if kind in kinds and included in kinds:
                at, included_price = kinds.index(kind), exclusive[..., kinds.index(included)]
                exclusive[..., at] = np.maximum(exclusive[..., at] - count * np.nan_to_num(included_price), 0.0)
    return exclusive
