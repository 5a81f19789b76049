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
    """What the audit found; tallies by kind of noise, method and effect."""

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
        """Return the largest share of false decisions, and its effect."""
        return max((self.tallies[kind, method, effect].false, effect) for effect in EFFECTS)

    def worst_unsaid(self, kind: str) -> float:
        """Return the largest share of false decisions that are said to tolerate such noise."""
        return max(self.tallies[kind, "tare", effect].unsaid for effect in EFFECTS)


def page(found: Found) -> str:
    """Write the page."""
    parts = [_INTRODUCTION, _claims(found), _turns(found), _broken(found), _rivals(found), _shapes(found)]
    parts += [_coverage(found), _matrix(found), _loops(found), _container(found), _how(found)]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """# The audit

This page shows how often tare's decisions are wrong, and how soon they come. `make audit` writes it.

The audit simulates runs with a known effect under known noise, and decides after every block by the functions of
`tare run` and `tare report`. A **false decision** is a wrong "better", "worse" or "equivalent" (within 3 %);
"undecided" is never false. Other methods decide on the same trials."""


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
        text = f"false, {kind.name} (worst at {_percent(effect)})"
        rows.append((text, "≤ 5 %", _percent(false), _met(false <= _ALLOWED)))
        if kind in COVERED:
            continue
        unsaid, to_the_end = found.worst_unsaid(kind.name), found.worst(kind.name, found.to_the_end)[0]
        rows.append(("— though said to tolerate such noise", "≤ 5 %", _percent(unsaid), _met(unsaid <= _ALLOWED)))
        rows.append(("— with all blocks", "≤ 5 %", _percent(to_the_end), _met(to_the_end <= _ALLOWED)))
    for each in found.in_turns:
        false = each.centers["median"].false
        text = f"false in turns, {each.moment.name}"
        rows.append((text, "≤ 5 %", _percent(false), _met(false <= _ALLOWED)))
    wrong = max(max(each.stalls_of_control, 0 if each.moment.stalls else each.stalls) for each in found.in_turns)
    rows.append(("caution `stalls` without a stall, at any look", "≤ 5 %", _percent(wrong), _met(wrong <= _ALLOWED)))
    return f"""## The results

{_table(("claim", "target", "found", "met"), rows)}

`false` is the share of false decisions at the worst effect, in turns at the worse of 0 and 3 %. Numbers of blocks and
power are those under normal noise, with at most {BLOCKS} blocks. The log ratio of two trials of a block has a standard
deviation of {_percent(WITHIN)}, that of a stack to both trials of the baseline {_percent(WITHIN * 0.75**0.5)}. Each run
has one stack beside the baseline and A/A, the least possible: more stacks show more of the noise."""


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

How to find a block's value from its turns; tare takes the median. Simulated along time: {ROUNDS} rounds a block in
random order, turns of 50 ms for 3 instances unless noted. A turn has {_percent(TURNS)} of normal noise, the log ratio
of two instances {_percent(INSTANCES)} more. A burst lasts {SHORTEST:g} to {LONGEST:g} s and takes a tenth to nine
tenths of the CPU time, or all of it. A stack that stalls has one turn in {1 / STALLED:g} at {_percent(HALF)} of its
speed. `false` is the larger share of no effect and 3 %. {TURNS_RUNS} runs of at most {BLOCKS} blocks.

{_table(head, rows)}

If a stack stalls, the truth is its usual turn, so a mean that is worse counts as false. The share of runs, with a look
after every block, in which tare reports a stall (turns slower by {_percent(SLOW)} or more, in another share than the
baseline's), or another ratio of the means over all turns:

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
    head = ["noise", "stacks", "false", "false though tolerated", "with all blocks"]
    head += ["false with caution", "all with caution", "right", "median blocks"]
    return f"""## Noise of single stacks

Drift of the whole machine affects all stacks of a block alike and cancels out. Drift of **one stack by itself** is an
effect of that stack while it lasts. [The method](method.md#the-statistic) says how tare tests for it, widens intervals
and reopens cells (`correlated-blocks`, `unlike-itself`).

A decision after five or ten blocks comes before such noise can be seen. So each decision has the correlation of
neighboring blocks that it tolerates. Medians under normal noise, by effect: {_firm(found)}.

Runs without an effect ({BREAKS_RUNS} each); `stacks` are those beside the baseline and A/A.
`false though tolerated`: false decisions that were said to tolerate the noise's correlation (0.3 or 0.5; of normal
noise and drift, 0.5). `with all blocks`: false after {BLOCKS} blocks. A withdrawn decision is not false.

{_table(head, rows)}

From four stacks on, an AR(1) of all stacks costs blocks but no truth. Slow drift is found late, with few stacks too
late. Noise of **one stack alone** shows only in that stack, and cannot be distinguished from an effect while it lasts:
the stack is decided and leaves the schedule. Under normal noise the cautions are false alarms, at the price in its
rows.

If a decision matters and does not tolerate the suspected noise, run all blocks (`until = "blocks"`): {BLOCKS} show
lasting noise even of one stack alone, unless it drifts as slowly as the whole run."""


def _rivals(found: Found) -> str:
    effects = [_percent(effect) for effect in EFFECTS]
    decisions, blocks = [], []
    for method in found.methods:
        seen = [found.tallies[NORMAL.name, method, effect] for effect in EFFECTS]
        shares = [f"{_percent(each.right)} ({_percent(each.false)})" for each in seen]
        if not method.startswith("tare"):
            shares[0] = f"cannot ({_percent(seen[0].false)})"  # say that there is no effect
        decisions.append((method, *shares))
        blocks.append((method, *(f"{each.median:g}, {each.most:.3g}" for each in seen)))
    return f"""## Other methods

Normal noise; a block is one trial of each of two stacks, and with tare a second one of the baseline.

- *Papers*: 30 trials of one stack, then 30 of the next, and Welch's t at 5 %.
- *Phoronix Test Suite*: 3 runs, more while their relative standard deviation is 3 % or more (up to 12, up to 15 if it
  has not changed by half since the third). *Error bars*: a reader takes bars of mean ± standard error that do not
  overlap for different.
- *t-test and permutation after every run*: unpaired, both stacks in turn, until p < 5 %; 499 random permutations of the
  difference of means, in 1000 of the runs.

Right (false) decisions by effect:

{_table(("method", *effects), decisions)}

Blocks until the decision, median and 95th percentile:

{_table(("method", *effects), blocks)}

![Blocks until decided, by effect and method](audit-blocks.svg)

Methods that look after every run decide a real effect soonest, and find one in
{_false(found, "t-test after every run")} of the runs (t-test) without any. tare needs some more blocks to be right at
every look. Only tare can decide that there is no effect."""


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

Drift is half noise, half a wave of 100 trials, of one stack or of the whole machine. An AR(1) has the correlation of
its number from trial to trial. Noise of each stack includes the baseline; noise of the machine comes on top of as much
normal noise of each stack. Without an effect the wave comes back. tare's median of blocks:

{_table(head, more)}"""


def _coverage(found: Found) -> str:
    rows = []
    for kind in KINDS:
        seen = found.coverages[kind.name]
        worst = int(np.argmax(seen.now))
        rows.append((kind.name, _percent(1 - float(seen.so_far[-1])), _percent(1 - float(seen.now[worst])), worst + 2))
    student = 1 - float(found.coverages[NORMAL.name].student[-1])
    head = ("noise", f"at all {BLOCKS} looks together", "at the worst look", "after blocks")
    return f"""## Coverage of the interval

The share of runs whose 95 % interval contains the true ratio. Student's 95 % interval, made for one look, contains it
at all looks in {_percent(student)} of runs under normal noise.

{_table(head, rows)}

![Runs whose interval has missed the truth, by looks](audit-coverage.svg)"""


def _matrix(found: Found) -> str:
    rows = [
        (
            each.method,
            each.kind,
            "none" if each.effects == NOTHING else "mixed",
            _percent(each.share),
            _percent(each.any_false),
            _percent(each.decided),
            f"{each.trials:g}",
        )
        for each in found.matrices
    ]
    head = ("method", "noise", "effects", "false of decided", "runs with one", "cells decided", "median trials")
    return f"""## Seven stacks at once

A baseline and seven stacks, decided together (e-BH); a decided stack gets no more trials. Trials include those of the
baseline and A/A; {MATRIX_RUNS} runs each. Mixed effects are 0, 0, 1, 3, 5, 10 and 30 %.

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

`tare run`'s own loop on fakes in ten rounds of a block, from the plan to the report, in the first five kinds of noise,
in bursts, and with a stack that stalls in one turn in {1 / STALLED:g}. `as the arrays decide`: the simulation decides
the same from the journal, after the same block. A run ends when its stack is decided; `stalls` are the runs in which it
was said to stall by then, which takes more blocks if stalls are rare ([in turns](#in-turns)).

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
    return f"""{title}A fixed number of Whetstone's passes in crun containers, in turns; `heavier` does 3 % more.
The metric is time, so the true ratio is 103 %. Each run ends when `heavier` is decided.

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

{found.runs} runs for each kind of noise and each effect, seed {found.seed} and following ones, took
{found.seconds / 60:.1f} minutes. A share of 5 % is known to ± {share:.1f} %. The noise is that of the `fake` technology
(`tests/plug_ins/tare_fake/noise.py`). The simulation is `tests/bench/audit_runs.py`, the other methods
`audit_rivals.py`, turns `audit_turns.py`, their centers `audit_centers.py`."""


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    names = [str(name) for name in head]
    lines = [names, ["---"] * len(names), *([str(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _percent(share: float, decimals: int = 1) -> str:
    text = f"{100 * share:.{decimals}f}"
    return f"{text.removesuffix('.0').replace('-0.00', '0.00')} %"


def _met(is_met: bool) -> str:
    return "yes" if is_met else "**no**"
