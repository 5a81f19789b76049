"""Whether tare's decisions can be trusted, and how soon they come. Writes research/audit.md.

    make audit

Thousands of simulated runs of known effects under known noise, with a decision after every block, and beside them how
others decide on the same trials; blocks in rounds, turn by turn, under bursts of the machine and stalls of a stack;
some hundred runs of tare's own loop on fakes; and, as root with `--container`, a kernel with 3 % more work in a
container.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import audit_charts as charts
import audit_page
from audit_breaks import BREAKS, broken
from audit_matrix import matrix
from audit_real import CONTAINERS, LOOPS, Looped, contained, loop
from audit_rivals import RIVALS
from audit_rounds import CASES
from audit_rounds import study as study_rounds
from audit_runs import (
    BLOCKS,
    EFFECTS,
    KINDS,
    NORMAL,
    Coverage,
    Kind,
    Tally,
    coverage,
    decide,
    log_ratios,
    make_world,
    tally,
)
from audit_stacks import SHAPES, STACKS
from audit_stacks import study as study_together
from audit_turns import MOMENTS, in_turns
from audit_within import SHAPES as WITHIN_SHAPES
from audit_within import STACKS as WITHIN_STACKS
from audit_within import study as study_within

RUNS = 10_000
SEED = 20210501
TARE = "tare"
TARE_TO_THE_END = f"tare, all {BLOCKS} blocks"
METHODS = (TARE, TARE_TO_THE_END, *RIVALS)
FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Studied:
    """What was found under one kind of noise: tallies by method and effect, and how often the truth was missed."""

    kind: Kind
    tallies: dict[tuple[str, float], Tally]
    coverage: Coverage


def study(kind: Kind) -> Studied:
    """Simulate all effects under one kind of noise."""
    world = make_world(kind, (RUNS, 3), SEED + KINDS.index(kind))
    logs = world.in_turn()
    found = {}
    for effect in EFFECTS:
        ratios = log_ratios(logs, (effect,))
        for name, all_blocks in ((TARE, False), (TARE_TO_THE_END, True)):
            found[name, effect] = tally(decide(ratios, all_blocks), effect, kind.correlation)
        for name, rival in RIVALS.items():
            found[name, effect] = tally(rival(world, effect), effect, kind.correlation)
    return Studied(kind, found, coverage(log_ratios(logs, (0.0,))))


def draw(studied: Sequence[Studied]) -> None:
    """Draw what was found."""
    normal = next(each for each in studied if each.kind == NORMAL)
    percent = {effect: f"{100 * effect:g} %" for effect in EFFECTS}
    rows = [
        {"effect": percent[effect], "method": method, "median": each.median, "most": each.most}
        for (method, effect), each in normal.tallies.items()
        if method != TARE_TO_THE_END
    ]
    sequential = [method for method in METHODS if method != TARE_TO_THE_END]
    charts.save(charts.blocks(rows, sequential, list(percent.values())), FOLDER / "audit-blocks.svg")
    rows = [
        {"kind": each.kind.name, "method": method, "false": each.tallies[method, 0.0].false}
        for each in studied
        for method in METHODS
    ]
    charts.save(charts.false(rows, METHODS, [kind.name for kind in KINDS]), FOLDER / "audit-false.svg")
    other = "Student's t interval, normal"
    lines = [(each.kind.name, each.coverage.so_far) for each in studied] + [(other, normal.coverage.student)]
    rows = [
        {"name": name, "blocks": 2 + index, "missed": float(missed)}
        for name, line in lines
        for index, missed in enumerate(line)
    ]
    charts.save(charts.coverage(rows, [name for name, _ in lines]), FOLDER / "audit-coverage.svg")


def main() -> None:
    """Do the audit and write its page and charts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--container", action="store_true", help="run a kernel in containers, too; needs root")
    wanted = parser.parse_args()
    began = time.monotonic()
    # First, while this machine has nothing else to do.
    cells = [(run.heavier, run.alike) for run in contained(CONTAINERS)] if wanted.container else []
    loops = [(effect, number, disturbed) for (disturbed, effect), count in LOOPS.items() for number in range(count)]
    with ProcessPoolExecutor(2) as pool:
        tables, breaks, turns = pool.submit(matrix), pool.map(broken, BREAKS), pool.map(in_turns, MOMENTS)
        together = pool.map(
            study_together, *zip(*((shape, count) for shape in SHAPES for count in STACKS), strict=True)
        )
        within = pool.map(
            study_within, *zip(*((shape, count) for shape in WITHIN_SHAPES for count in WITHIN_STACKS), strict=True)
        )
        rounds = pool.map(study_rounds, CASES)
        studied = list(pool.map(study, KINDS))
        print(f"simulated after {time.monotonic() - began:.0f} s", flush=True)
        looped: list[Looped] = list(pool.map(loop, *zip(*loops, strict=True)))
    draw(studied)
    seconds = time.monotonic() - began
    found = audit_page.Found(
        runs=RUNS,
        seed=SEED,
        seconds=seconds,
        methods=METHODS,
        to_the_end=TARE_TO_THE_END,
        tallies={(each.kind.name, *key): value for each in studied for key, value in each.tallies.items()},
        coverages={each.kind.name: each.coverage for each in studied},
        matrices=tables.result(),
        breaks=list(breaks),
        in_turns=list(turns),
        together=list(together),
        within=list(within),
        rounds=list(rounds),
        looped=looped,
        containers=cells,
    )
    (FOLDER / "audit.md").write_text(audit_page.page(found), encoding="utf-8")
    print(f"research/audit.md after {seconds:.0f} s")


if __name__ == "__main__":
    main()
