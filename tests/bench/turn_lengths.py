"""Where the noise of a turn comes from: its length, the time that the hypervisor took, and what was lost to both.

For each length of a turn, bare metal, its A/A control and two containers take turns. What is printed, by workload and
length: the standard deviation of a round's log ratio between the two trials of bare metal; the same of rounds whose
turns lost no CPU time to the hypervisor; the rank correlation between the time that a round lost and how far its ratio
was off; the share of a turn that is no measured time; and what decides, the seconds that a round takes times its
variance: the lower, the sooner a median of rounds is known.

    PYTHONPATH=tests/support python tests/bench/turn_lengths.py [BLOCKS [WORKLOAD...]]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import NDArray

import tare
from tare.journal import Run
from tare.model.trials import Trial, Turn

_TURNS = (0.02, 0.05, 0.1, 0.2)  # seconds
_ROUNDS = 20
_SETTINGS = {"redis": 'operations = ["GET"]\nclients = [50]\n', "nginx": "clients = [50]\n", "dhrystone": ""}
_HEAD = f"{'workload':10} {'turn':>6} {'rounds':>6} {'SD':>7} {'no steal':>9} {'of steal':>9} {'beside':>7} {'cost':>8}"


@dataclass(frozen=True)
class Rounds:
    """All rounds of a run: log ratios between equals, their seconds, the CPU time that they lost."""

    ratios: NDArray[np.float64]
    seconds: NDArray[np.float64]
    steal: NDArray[np.float64]


def main() -> None:
    """Measure and print."""
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    print(_HEAD)
    for workload in sys.argv[2:] or _SETTINGS:
        for turn in _TURNS:
            found = rounds_of(measured(workload, turn, blocks))
            print(_line(workload, turn, found), flush=True)


def measured(workload: str, turn: float, blocks: int) -> Run:
    """Run a workload in turns of this length."""
    suite = (
        f'[suite]\nstacks = ["native", "crun", "bubblewrap"]\nblocks = {blocks}\nuntil = "blocks"\nrounds = {_ROUNDS}\n'
        f'[[workloads]]\nuse = "{workload}"\nduration = "{10 * turn:g}s"\n{_SETTINGS.get(workload, "")}'
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "turns.toml"
        path.write_text(suite, encoding="utf-8")
        return tare.run(path, out=Path(folder) / "run")


def rounds_of(run: Run) -> Rounds:
    """Put the rounds of all blocks behind each other, each taken from the median of its block."""
    ratios, seconds, steal = [], [], []
    for block in sorted({trial.block for trial in run.trials}):
        own, other = (_trial(run, block, stack) for stack in ("native", "native-again"))
        logs = np.log(own.values[0].turns) - np.log(other.values[0].turns)
        ratios.append(logs - np.median(logs))
        turns = [list(_counted(trial)) for trial in (own, other)]
        seconds.append([(one.seconds + two.seconds) / 2 for one, two in zip(*turns, strict=True)])
        steal.append([(one.steal or 0.0) + (two.steal or 0.0) for one, two in zip(*turns, strict=True)])
    return Rounds(*(np.concatenate(each) for each in (ratios, seconds, steal)))


def _trial(run: Run, block: int, stack: str) -> Trial:
    return next(trial for trial in run.trials if (trial.block, trial.stack) == (block, stack))


def _counted(trial: Trial) -> Iterator[Turn]:
    return (turn for turn in trial.turns if not turn.warm_up)


def _line(workload: str, turn: float, found: Rounds) -> str:
    calm = found.ratios[found.steal == 0]
    spread = float(np.std(found.ratios, ddof=1))
    alone = f"{100 * np.std(calm, ddof=1):7.1f} %" if calm.size > 1 else "-"
    related = scipy.stats.spearmanr(found.steal, np.abs(found.ratios)).statistic if np.ptp(found.steal) else 0.0
    length, beside = float(np.median(found.seconds)), 1 - turn / float(np.median(found.seconds))
    return (
        f"{workload:10} {1e3 * turn:3.0f} ms {found.ratios.size:6} {100 * spread:5.1f} % {alone:>9} {related:9.2f} "
        f"{100 * beside:5.0f} % {1e4 * spread**2 * length:8.2f}"
    )


if __name__ == "__main__":
    main()
