"""The page docs/audit.md, from what the audit has found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from audit_breaks import RUNS as BREAKS_RUNS
from audit_breaks import Broken
from audit_matrix import NOTHING, Matrix
from audit_matrix import RUNS as MATRIX_RUNS
from audit_real import Looped
from audit_runs import (
    BLOCKS,
    COVERED,
    EFFECTS,
    KINDS,
    NORMAL,
    UNDECIDED,
    WITHIN,
    Coverage,
    Tally,
    right,
)
from audit_turns import HALF, INSTANCES, LONGEST, ONE_BY_ONE, ROUNDS, SHORTEST, STALLED, TURNS, InTurns
from audit_turns import RUNS as TURNS_RUNS

from tare.statistics.cells import Cell
from tare.statistics.stalls import SLOW

_TARGETS = {0.0: 25, 0.03: 18, 0.10: 6, 0.30: 5}
_ALLOWED = 0.05


@dataclass(frozen=True)
class Found:
    """All that the page tells; tallies by kind of noise, method and effect."""

    runs: int
    seed: int
    seconds: float
    methods: Sequence[str]
    to_the_end: str
    tallies: dict[tuple[str, str, float], Tally]
    coverages: dict[str, Coverage]
    matrices: Sequence[Matrix]
    breaks: Sequence[Broken]
    in_turns: Sequence[InTurns]
    looped: Sequence[Looped]
    containers: Sequence[tuple[Cell, Cell]]

    def worst(self, kind: str, method: str) -> tuple[float, float]:
        """Give the largest share of false decisions, and the effect at which it is."""
        return max((self.tallies[kind, method, effect].false, effect) for effect in EFFECTS)

    def worst_unsaid(self, kind: str) -> float:
        """Give the largest share of false decisions that are said to tolerate such noise."""
        return max(self.tallies[kind, "tare", effect].unsaid for effect in EFFECTS)


def page(found: Found) -> str:
    """Write the page."""
    parts = [_INTRODUCTION, _claims(found), _turns(found), _broken(found), _rivals(found), _shapes(found)]
    parts += [_coverage(found), _matrix(found), _loops(found), _container(found), _how(found)]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """# The audit

`make audit` writes this page. It gives made-up runs an effect that is known, disturbs them with noise that is known,
and counts how often tare says what is not so, how often it says what is so, and after how many blocks. Decisions are
taken after every block, by the functions that `tare run` and `tare report` take them with. A **false decision** is
"better", "worse" or "equivalent" (within 3 %) where that is not so; "undecided" is none. Other ways to decide are tried
on the same trials."""


def _claims(found: Found) -> str:
    rows = []
    of_blocks = {"no effect: equivalent": 0.0, "3 % effect": 0.03, "10 % effect": 0.10, "30 % effect": 0.30}
    for text, effect in of_blocks.items():
        seen, limit = found.tallies[NORMAL.name, "tare", effect], _TARGETS[effect]
        rows.append((f"{text}, median of blocks", f"≤ {limit}", f"{seen.median:g}", _met(seen.median <= limit)))
    power = found.tallies[NORMAL.name, "tare", 0.03].right
    rows.append(("3 % effect, found worse", "≥ 95 %", _percent(power), _met(power >= 0.95)))
    for kind in KINDS:
        false, effect = found.worst(kind.name, "tare")
        text = f"false decisions, {kind.name}, at the worst effect ({_percent(effect)})"
        rows.append((text, "≤ 5 %", _percent(false), _met(false <= _ALLOWED)))
        if kind in COVERED:
            continue
        unsaid, to_the_end = found.worst_unsaid(kind.name), found.worst(kind.name, found.to_the_end)[0]
        rows.append(("— though said to tolerate such noise", "≤ 5 %", _percent(unsaid), _met(unsaid <= _ALLOWED)))
        rows.append(("— with all blocks", "≤ 5 %", _percent(to_the_end), _met(to_the_end <= _ALLOWED)))
    for each in found.in_turns:
        false = each.centers["median"].false
        text = f"false decisions in turns, {each.moment.name}, at the worse of 0 and 3 %"
        rows.append((text, "≤ 5 %", _percent(false), _met(false <= _ALLOWED)))
    wrong = max(max(each.stalls_of_control, 0 if each.moment.stalls else each.stalls) for each in found.in_turns)
    rows.append(("stalls said of what does not stall, at any look", "≤ 5 %", _percent(wrong), _met(wrong <= _ALLOWED)))
    return f"""## What was to be shown

{_table(("claim", "target", "found", "met"), rows)}

The standard deviation of the log ratio of two trials of a block is {_percent(WITHIN)} in every kind of noise, and
that of a stack to both trials of the baseline {_percent(WITHIN * 0.75**0.5)}; in turns it is that of the next
section. The numbers of blocks and the power are those under normal noise, with at most {BLOCKS} blocks. All runs are
of one stack beside the baseline and A/A, the least that a run can have. With more stacks, more is known of the noise:
see where it breaks."""


def _turns(found: Found) -> str:
    rows, stalls = [], []
    for each in found.in_turns:
        for name, seen in each.centers.items():
            moment = each.moment.name if name == ONE_BY_ONE else ""
            rows.append(
                (
                    moment,
                    name,
                    _percent(seen.deviation, 2),
                    _percent(seen.bias, 2),
                    _percent(seen.false),
                    f"{seen.blocks:g}",
                    f"{_percent(seen.found)}, {seen.found_blocks:g}",
                )
            )
        shares = (each.stalls_early, each.stalls, each.stalls_of_control, each.uneven, each.uneven_of_control)
        stalls.append((each.moment.name, *(_percent(share) for share in shares)))
    head = (
        "disturbed by",
        "a block's value",
        "SD",
        "bias",
        "false",
        "blocks until equivalent",
        "3 % found worse, blocks",
    )
    stalls_head = (
        "disturbed by",
        f"stalls, after {BLOCKS // 6} blocks",
        f"stalls, within {BLOCKS}",
        "A/A stalls",
        "another mean",
        "A/A another mean",
    )
    return f"""## In turns

Turns are simulated along time: {ROUNDS} rounds a block, every stack's turn in random order, of 50 ms for 3 instances
unless said otherwise; and the same measured time one after the other. A turn has {_percent(TURNS)} of normal noise,
and the log ratio of two instances {_percent(INSTANCES)} more. A burst lasts {SHORTEST:g} to {LONGEST:g} s and takes a
tenth to nine tenths of the CPU time from all that runs, or all of it. A stack that stalls has one turn in
{1 / STALLED:g} at {_percent(HALF)} of its speed. SD and bias are of the log ratio of a block; false decisions are the
most of those without an effect and with 3 %, each with a look after every block. {TURNS_RUNS} runs of at most
{BLOCKS} blocks each. tare takes the median.

{_table(head, rows)}

Where a stack stalls, the truth is taken as that of its usual turn: a mean that says "worse" is called false here,
though it is right in its way. So tare says it with a caution and a note: in these shares of runs the stack was said to
stall (turns slower by {_percent(SLOW)} or more, in another share than the baseline's), or to have another ratio of the
means over all turns than of the usual turn, with a look after every block:

{_table(stalls_head, stalls)}"""


def _firm(found: Found) -> str:
    seen = {effect: found.tallies[NORMAL.name, "tare", effect].firm for effect in EFFECTS}
    return ", ".join(f"{each:.2f} ({_percent(effect)})" for effect, each in seen.items())


def _broken(found: Found) -> str:
    rows = [
        (
            each.kind.name,
            each.stacks,
            _percent(each.false),
            _percent(each.unsaid),
            _percent(each.to_the_end),
            _percent(each.said),
            _percent(each.cautioned),
            _percent(each.right),
            f"{each.blocks:g}",
        )
        for each in sorted(found.breaks, key=lambda each: each.stacks)
    ]
    head = ["noise", "stacks", "false", "said to tolerate it", "with all blocks"]
    head += ["false ones cautioned", "all cautioned", "right", "median blocks"]
    return f"""## Where it breaks, and whether it says so

What drifts on the whole machine meets all stacks of a block alike and cancels out. What drifts in **each stack by
itself** does not: while it lasts, it is an effect of that stack. tare looks whether blocks resemble the ones before, in
each stack and in all stacks of a workload together, and whether stacks drift apart; it then widens the intervals, says
so with a caution (`correlated-blocks`), and opens cells again that had been decided. And where A/A finds the baseline
different from itself, a stack has to differ by as much more (`unlike-itself`).

But a decision after five or ten blocks comes before any of that can be seen. So each decision says up to which
correlation of neighboring blocks it would hold, and the report counts those that would hold at 0.5. What is decided as
soon as it can be holds up to little if the effect is small, and up to much if it is large; medians under normal noise:
{_firm(found)}.

No stack has an effect here. `stacks` are those beside the baseline and A/A; all figures are of the cells that have the
noise, at the end of {BREAKS_RUNS} runs each. A decision that was withdrawn is not false. `said to tolerate it` are
the decisions that are false although they were said to hold up to the correlation of the noise (0.3 or 0.5; of normal
noise and drift, 0.5), and `with all blocks` the false ones after {BLOCKS} blocks of everything. What is false and
cautioned was decided all the same:

{_table(head, rows)}

The more stacks, the better is it known what the machine does: from four stacks on, an AR(1) of all of them costs blocks
and no longer the truth. What drifts slowly is found late, with few stacks too late. What is in **one stack alone** can
only be seen in that stack, and as long as it lasts, no test can tell it from an effect: it is decided, leaves the
schedule, and is seen no more. Under normal noise the cautions are false alarms, and the price is in its rows.

So where a decision matters and does not tolerate what is suspected, let all blocks run (`until = "blocks"`): {BLOCKS}
are enough to see what lasts, in one stack alone, too, unless it drifts as slowly as the whole run."""


def _rivals(found: Found) -> str:
    rows = []
    for effect in EFFECTS:
        for method in found.methods:
            seen = found.tallies[NORMAL.name, method, effect]
            good = _percent(seen.right) if method.startswith("tare") or effect else "cannot say it"
            rows.append((_percent(effect), method, good, _percent(seen.false), f"{seen.median:g}", f"{seen.most:.3g}"))
    head = ("effect", "method", "right", "false", "median blocks", "95th percentile")
    return f"""## Beside other ways to decide

Normal noise. A block is one trial of each of two stacks; tare adds a second one of the baseline, for A/A and as the
other half of what stacks are compared with.
The papers run all trials of a stack, then those of the next, 30 of each, and test with Welch's t at 5 %. Phoronix Test
Suite does so too, with 3 runs, more while their relative standard deviation is 3 % or more (up to 12, up to 15 if it
has not changed by half since the third), and shows mean ± standard error: a reader takes bars that do not overlap for
different; the second row of it tests with Welch's t instead. The unpaired t-test and the permutation test (499 random
ones of the difference of means, of 1000 of the runs) look after every run, both stacks in turn, and stop at p < 5 %.

{_table(head, rows)}

![Blocks until decided, by effect and method](audit-blocks.svg)

What looks after every run decides a real effect soonest, and finds one in {_false(found, "t-test after every run")} of
the runs (t-test) where there is none. tare pays for being right at every look with some blocks, and can say that there
is no effect, which no other here can."""


def _false(found: Found, method: str) -> str:
    return _percent(found.tallies[NORMAL.name, method, 0.0].false)


def _shapes(found: Found) -> str:
    rows = [
        (kind.name, *(_percent(found.tallies[kind.name, method, 0.0].false) for method in found.methods))
        for kind in KINDS
    ]
    more = []
    for kind in KINDS:
        seen = [found.tallies[kind.name, "tare", effect] for effect in (0.0, 0.03, 0.10, 0.30)]
        more.append((kind.name, *(f"{each.median:g}" for each in seen), _percent(seen[1].right)))
    head = ("noise", "no effect", "3 %", "10 %", "30 %", "3 % found worse")
    return f"""## Under other noise

False decisions without any effect:

{_table(("noise", *found.methods), rows)}

![False decisions by noise and method](audit-false.svg)

Drift is half noise, half a wave of 100 trials: of one stack's, or of all that the machine has run; without effect means
that the wave comes back. An AR(1) is as correlated from one trial to the next as its number says. What is of each stack
is in the baseline, too. What is of the machine comes on top of as much normal noise of each stack. tare's median of
blocks:

{_table(head, more)}"""


def _coverage(found: Found) -> str:
    rows = []
    for kind in KINDS:
        seen = found.coverages[kind.name]
        worst = int(np.argmax(seen.now))
        rows.append((kind.name, _percent(1 - float(seen.so_far[-1])), _percent(1 - float(seen.now[worst])), worst + 2))
    student = 1 - float(found.coverages[NORMAL.name].student[-1])
    head = ("noise", f"at all {BLOCKS} looks together", "at the worst look", "which is after")
    return f"""## Whether the interval holds the truth

The share of runs whose 95 % interval holds the true ratio. An interval of Student's t at 95 %, made for one look,
holds it at all looks in {_percent(student)} of runs under normal noise.

{_table(head, rows)}

![Runs whose interval has missed the truth, by looks](audit-coverage.svg)"""


def _matrix(found: Found) -> str:
    rows = [
        (
            each.method,
            each.kind,
            "none" if each.effects == NOTHING else "0, 0, 1, 3, 5, 10, 30 %",
            _percent(each.share),
            _percent(each.any_false),
            _percent(each.decided),
            f"{each.trials:g}",
        )
        for each in found.matrices
    ]
    head = ("method", "noise", "effects", "false among said", "runs with one", "cells decided", "median trials")
    return f"""## Seven stacks at once

A baseline and seven stacks, told together (e-BH); what is decided is measured no more. Trials are all of a run's, those
of the baseline and of A/A too, in {MATRIX_RUNS} runs each.

{_table(head, rows)}"""


def _loops(found: Found) -> str:
    rows = []
    for effect, disturbed in dict.fromkeys((each.effect, each.disturbed) for each in found.looped):
        own = [each for each in found.looped if (each.effect, each.disturbed) == (effect, disturbed)]
        good = sum(each.claim in right(effect) for each in own)
        false = sum(each.claim != UNDECIDED and each.claim not in right(effect) for each in own)
        median, alike = np.median([each.blocks for each in own]), sum(each.as_arrays for each in own)
        text = f"{_percent(effect)}, {disturbed}" if disturbed else _percent(effect)
        said = (sum(each.stalls for each in own), sum(each.control_stalls for each in own))
        rows.append((text, len(own), good, false, f"{median:g}", alike, *said))
    head = ("effect", "runs", "right", "false", "median blocks", "as the arrays decide", "stalls", "A/A stalls")
    return f"""## Through the loop itself

`tare run`'s own loop on fakes, which take turns in ten rounds of a block, in the first five kinds of noise between
instances one after the other, in bursts, and beside a stack that stalls in one turn in {1 / STALLED:g}: planned,
measured, journaled, decided, and reported. The arrays are then given what the journal holds; they should say the same
after the same block. A run ends when its stack is decided; the last columns are the runs in which it, or A/A, was said
to stall by then. That takes more blocks than the decision where stalls are rare: [in turns](#in-turns) tells how many.

{_table(head, rows)}"""


def _container(found: Found) -> str:
    title = "## A real container\n\n"
    if not found.containers:
        return f"{title}Not part of this run: `make audit` as root does it."
    rows = [
        (number, heavier.verdict, _ratio(heavier), heavier.n, again.verdict, _ratio(again))
        for number, (heavier, again) in enumerate(found.containers, start=1)
    ]
    head = ("run", "heavier", "ratio", "blocks", "A/A", "ratio")
    return f"""{title}A fixed number of Whetstone's passes in crun containers, in turns; `heavier` does 3 % more of
them. The metric is time, less is better, so that the true ratio is 103 %. Each run ends when `heavier` is decided.

{_table(head, rows)}"""


def _ratio(cell: Cell) -> str:
    if cell.ratio is None or cell.low is None or cell.high is None:
        return "none"
    return f"{100 * cell.ratio:.2f} % ({100 * cell.low:.2f} to {100 * cell.high:.2f} %)"


def _how(found: Found) -> str:
    share = 100 * 1.96 * np.sqrt(0.05 * 0.95 / found.runs)
    return f"""## How to run it

```
make audit
```

This page is of {found.runs} runs for each kind of noise and each effect, seed {found.seed} and following ones, and
took {found.seconds / 60:.1f} minutes. At {found.runs} runs a share of 5 % is known to ± {share:.1f} %. The noise is
that of the `fake` technology (`tests/plug_ins/tare_fake/noise.py`), the simulation `tests/bench/audit_runs.py`, the
other ways to decide `tests/bench/audit_rivals.py`. That of turns is `tests/bench/audit_turns.py`, with the other
centers in `tests/bench/audit_centers.py`."""


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    names = [str(name) for name in head]
    lines = [names, ["---"] * len(names), *([str(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _percent(share: float, decimals: int = 1) -> str:
    text = f"{100 * share:.{decimals}f}"
    return f"{text.removesuffix('.0').replace('-0.00', '0.00')} %"


def _met(is_met: bool) -> str:
    return "yes" if is_met else "**no**"
