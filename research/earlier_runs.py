"""Where the width of an interval of few blocks goes, and what earlier runs of the machine would take off it.

Runs of four workloads with three stacks beside the baseline and A/A. In each workload, the variance between blocks is a
multiple of that which rounds explain: 1 if instances are equal. The multiples of `usual` workloads are those of
dhrystone, ramspeed, redis and nginx in ten runs of one machine, and so is how much they differ between stacks, and from
run to run. Earlier runs have eight blocks; their cells moderate variances together with those of the same workload.

    PYTHONPATH=tests/plug_ins:tests/support nice .venv/bin/python research/earlier_runs.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from audit_runs import ALIKE, BLOCKS, LESS, MARGIN, UNDECIDED, Floats, Truths, log_ratios
from audit_stacks import decide, moderation
from audit_within import EFFECTS, OF_ROUNDS, OF_TURNS, ROUNDS
from scipy import stats

from tare.statistics.anytime import evidence_needed, evidence_needed_together, widths_per_deviation
from tare.statistics.headlines import LogRatios, errors_of_rounds
from tare.statistics.moderated_variance import VarianceRatios
from tare.statistics.ratios import BaselineRows, RatioComparison, compare_together

RUNS = 400
SEED = 20261129
STACKS, WORKLOADS = 3, 4
ROWS = STACKS + 2
REFERENCE = BaselineRows(0, ROWS - 1)
EARLIER_BLOCKS = 8
LOOKED_AT = (3, 4, 5, 8)
NONE, ONE, THREE = METHODS = {"this run": 0, "one earlier run": 1, "three earlier runs": 3}
_USUAL = (3.9, 6.0, 1.35, 1.5)
_EQUAL = (1.0,) * WORKLOADS


@dataclass(frozen=True)
class World:
    """Variances between blocks, over those that rounds explain: of all stacks, by workload, in this and earlier runs.

    `luck` is what the first stack's instances add to that; `stacks` and `runs` are the variances of the ratios'
    logarithms between stacks and from run to run.
    """

    name: str
    now: tuple[float, ...]
    earlier: tuple[float, ...]
    luck: float = 0.0
    earlier_luck: float = 0.0
    stacks: float = 0.0
    runs: float = 0.0


ALIKE_RUNS = (
    World("equal instances", _EQUAL, _EQUAL),
    World("2 in all workloads", (2.0,) * WORKLOADS, (2.0,) * WORKLOADS),
    World("11 in all workloads", (11.0,) * WORKLOADS, (11.0,) * WORKLOADS),
    World("usual", _USUAL, _USUAL),
    World("usual, stacks differ", _USUAL, _USUAL, stacks=0.2),
    World("usual, stacks and runs differ", _USUAL, _USUAL, stacks=0.2, runs=0.3),
)
BAD_CASES = (
    World("equal instances", _EQUAL, _EQUAL),
    World("quiet before, 3 now", (3.0,) * WORKLOADS, _EQUAL),
    World("quiet before, 9 now", (9.0,) * WORKLOADS, _EQUAL),
    World("quiet before, instance luck of 3 now", _EQUAL, _EQUAL, luck=3.0),
    World("quiet before, instance luck of 8 now", _EQUAL, _EQUAL, luck=8.0),
    World("instance luck of 8 before and now", _EQUAL, _EQUAL, luck=8.0, earlier_luck=8.0),
    World("usual, stacks and runs differ", _USUAL, _USUAL, stacks=0.2, runs=0.3),
    World("the same, instance luck of 8 now", _USUAL, _USUAL, luck=8.0, stacks=0.2, runs=0.3),
)


@dataclass(frozen=True)
class _Drawn:
    """Log ratios, the errors that rounds explain (axes: row, run and workload, block), and each cell's deviation."""

    ratios: Floats
    errors: Floats
    deviation: Floats


class _Draws:
    """This run and earlier ones of a world: the differences between its stacks are the same in all of them."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self._chance = np.random.default_rng([SEED, number])
        self._of_stacks = np.sqrt(world.stacks) * self._chance.standard_normal((ROWS, RUNS, WORKLOADS))

    def now(self) -> _Drawn:
        """Draw this run."""
        return self._draw(self.world.now, self.world.luck, BLOCKS)

    def earlier(self, count: int) -> VarianceRatios | None:
        """Draw the variance ratios of earlier runs (axes: workload, cell, run); None for no run."""
        found = [self._draw(self.world.earlier, self.world.earlier_luck, EARLIER_BLOCKS) for _ in range(count)]
        ratios = [
            LogRatios(each.ratios, np.ones(each.ratios.shape, dtype=bool), each.errors).variance_ratios()
            for each in found
        ]
        if not ratios:
            return None
        return VarianceRatios(
            *(
                np.concatenate([_by_workload(getattr(each, name)) for each in ratios], axis=1)
                for name in ("logs", "freedom", "lends")
            )
        )

    def _draw(self, multiples: tuple[float, ...], luck: float, blocks: int) -> _Drawn:
        of_run = np.sqrt(self.world.runs) * self._chance.standard_normal((1, RUNS, WORKLOADS))
        # A ratio to both baselines has one and a half times the variance of an instance.
        variance = np.maximum(np.array(multiples) * np.exp(of_run + self._of_stacks) - 1, 0) / 1.5
        variance[1] += luck
        variance = variance.reshape(ROWS, -1)
        size = (*variance.shape, blocks)
        instances = np.sqrt(variance)[..., np.newaxis] * self._chance.standard_normal(size)
        turns = OF_TURNS * self._chance.standard_normal((*size, ROUNDS))
        logs = turns + OF_ROUNDS * instances[..., np.newaxis]
        errors = errors_of_rounds(logs, np.ones(logs.shape, dtype=bool), REFERENCE)
        assert errors is not None
        ratios = log_ratios(logs.swapaxes(0, 1), (0.0,) * STACKS).swapaxes(0, 1)
        return _Drawn(ratios, errors, OF_ROUNDS * np.sqrt(1 + variance + (variance[0] + variance[-1]) / 4))


def _by_workload(values: Floats) -> Floats:
    """Return values of rows and of runs with their workloads by workload, row and run, without the baseline's row."""
    return values[1:].reshape(ROWS - 1, RUNS, WORKLOADS).transpose(2, 0, 1)


def _compare(drawn: _Drawn, count: int, earlier: VarianceRatios | None) -> RatioComparison:
    seen, errors = drawn.ratios[..., :count], drawn.errors[..., :count]
    there = np.ones(seen.shape, dtype=bool)
    return compare_together(seen, there, MARGIN, REFERENCE, moderation(seen, there, errors, WORKLOADS, earlier))


def _printed(found: RatioComparison) -> RatioComparison:
    """Return a comparison with the intervals of all cells together (e-BY), as tare prints them."""
    is_control = np.tile(np.arange(1, ROWS) == ROWS - 1, WORKLOADS)
    needed = evidence_needed_together(found.evidence[1:].T.reshape(RUNS, -1), is_control).reshape(-1, ROWS - 1).T
    return found.with_needed_evidence(np.concatenate([np.full((1, needed.shape[1]), np.inf), needed]))


def widths(world: World, number: int) -> Iterator[str]:
    """Yield a line for each method: median half widths in standard deviations of a block, by number of blocks."""
    draws = _Draws(world, number)
    drawn, earlier = draws.now(), draws.earlier(max(METHODS.values()))
    for method, count in METHODS.items():
        cells = []
        for blocks in LOOKED_AT:
            found = _compare(drawn, blocks, _first_runs(earlier, count))
            half = (_printed(found).half_widths / drawn.deviation)[1:-1]
            has = np.isfinite(half)
            cells.append(
                f"{np.median(half):.2f}; {np.median((found.half_widths / drawn.deviation)[1:-1]):.2f}; "
                f"{np.median(found.borrowed[1:-1]):.0f}; {100 * has.mean():.0f} %"
            )
        yield f"| {world.name} | {method} | {' | '.join(cells)} |"


def _first_runs(earlier: VarianceRatios | None, count: int) -> VarianceRatios | None:
    """Return the cells of the first `count` earlier runs; None for none."""
    if earlier is None or not count:
        return None
    return VarianceRatios(*(each[:, : count * (ROWS - 1)] for each in vars(earlier).values()))


def decisions(world: World, number: int) -> Iterator[str]:
    """Yield a line for each method: false decisions, and single intervals that missed the truth at any look."""
    draws = _Draws(world, number)
    drawn, earlier = draws.now(), draws.earlier(METHODS[ONE])
    for method, cells in ((NONE, None), (ONE, earlier)):
        false, blocks = [], []
        for effect in EFFECTS:
            ratios = drawn.ratios + np.where(_is_stack(), np.log1p(-effect), 0.0)
            said = decide(_by_run(ratios), _by_run(drawn.errors), cells)
            false.append((said.claim != UNDECIDED) & (said.claim != (LESS if effect else ALIKE)))
            blocks.append(said.blocks)
        missed = _missed(drawn, cells)
        shares = [max(float(each.mean()) for each in part) for part in (false, [each[..., 0] for each in false])]
        shares += [float(missed[1:-1].mean()), float(missed[1].mean())]
        cells_of_row = " | ".join(f"{100 * share:.1f} %" for share in shares)
        yield f"| {world.name} | {method} | {cells_of_row} | {np.median(blocks[0]):g} |"


def _is_stack() -> Truths:
    """Return the mask of rows that are neither the baseline nor A/A."""
    return np.isin(np.arange(ROWS), range(1, ROWS - 1))[:, np.newaxis, np.newaxis]


def _by_run(values: Floats) -> Floats:
    """Return values by run, workload, row and block."""
    return values.transpose(1, 0, 2).reshape(RUNS, WORKLOADS, ROWS, BLOCKS)


def _missed(drawn: _Drawn, earlier: VarianceRatios | None) -> Truths:
    """Return which single intervals missed 0 at any look."""
    missed = np.zeros(drawn.ratios.shape[:2], dtype=bool)
    for count in range(LOOKED_AT[0], BLOCKS + 1):
        found = _compare(drawn, count, earlier)
        missed |= np.abs(found.mean) > found.half_widths
    return missed


def parts(blocks: int = 5) -> Iterator[str]:
    """Yield the half widths that an interval of five blocks has with more and more of what makes it wide."""
    count, cells = np.array(blocks), STACKS * WORKLOADS
    together = evidence_needed(cells, 1)
    known = np.array(1e6)  # degrees of freedom
    yield f"| known standard deviation, one look | {stats.norm.ppf(0.975) / np.sqrt(blocks):.2f} |"
    yield f"| Student's t, one look | {stats.t.ppf(0.975, blocks - 1) / np.sqrt(blocks):.2f} |"
    yield f"| known standard deviation, every look | {float(widths_per_deviation(count, known)):.2f} |"
    for freedom in (known, *np.array([20.0, 16.0, 12.0, 7.0, 0.0])):
        half = float(widths_per_deviation(count, freedom, together))
        name = "known standard deviation" if freedom == known else f"{freedom:.0f} degrees of freedom of the prior"
        yield f"| {name}, every look, {cells} cells together | {half:.2f} |"


def main() -> None:
    """Print the tables."""
    print("Half widths after five blocks, in standard deviations of a block:\n\n| interval | ± |\n| --- | --- |")
    print("\n".join(parts()), flush=True)
    print(
        "\nMedians of half widths, as printed and single, and of the prior's degrees of freedom; cells with intervals"
    )
    print(f"\n| world | variances by | {' | '.join(f'{each} blocks' for each in LOOKED_AT)} |\n{'| --- ' * 6}|")
    for number, world in enumerate(ALIKE_RUNS):
        print("\n".join(widths(world, number)), flush=True)
    print("\nFalse decisions of all cells, and of the first stack's; single intervals that missed the truth at any of")
    print(f"{BLOCKS} looks, and the first stack's; median of blocks until a cell without effect is decided")
    print("\n| world | variances by | false | first stack | missed | first stack | blocks |")
    print("| --- " * 7 + "|")
    for number, world in enumerate(BAD_CASES, start=len(ALIKE_RUNS)):
        print("\n".join(decisions(world, number)), flush=True)


if __name__ == "__main__":
    main()
