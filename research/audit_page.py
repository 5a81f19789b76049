"""The page research/audit.md, from what the audit has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from audit_breaks import RUNS as BREAKS_RUNS
from audit_breaks import Broken
from audit_matrix import NOTHING, Matrix
from audit_matrix import RUNS as MATRIX_RUNS
from audit_real import Looped, describe_containers, describe_loops
from audit_rounds import CHOSEN, OWN, OWN_ROUNDS
from audit_rounds import RUNS as ROUNDS_RUNS
from audit_rounds import STACKS as ROUNDS_STACKS
from audit_rounds import Studied as StudiedRounds
from audit_runs import BLOCKS, COVERED, EFFECTS, KINDS, NORMAL, WITHIN, Coverage, Tally
from audit_stacks import ALONE, BORROWED, CELLS, STACKS
from audit_stacks import RUNS as TOGETHER_RUNS
from audit_stacks import Studied as StudiedTogether
from audit_text import number, percent, table
from audit_turns import FLICKER, HALF, INSTANCES, LONGEST, ROUNDS, SHORTEST, STALLED, TURNS, InTurns
from audit_turns import RUNS as TURNS_RUNS
from audit_within import LEAST_RUNS, LOOKED_AT, OF_ROUNDS, ROUNDS_TOO
from audit_within import ROUNDS as WITHIN_ROUNDS
from audit_within import RUNS as WITHIN_RUNS
from audit_within import Studied as StudiedWithin

from tare.statistics.cells import Cell
from tare.statistics.stalls import SLOW_SHARE

_TARGETS = {0.0: 25, 0.03: 18, 0.10: 6, 0.30: 5}
_ALLOWED = 0.05
_UNSAID = "— though said to tolerate such noise"


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
    together: Sequence[StudiedTogether]
    within: Sequence[StudiedWithin]
    rounds: Sequence[StudiedRounds]
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
    results = (_claims, _turns, _broken, _rivals, _shapes, _within, _together, _rounds, _matrix)
    real = describe_loops(found.looped), describe_containers(found.containers)
    return "\n\n".join([_INTRODUCTION, *(part(found) for part in results), *real, _how(found)]) + "\n"


_INTRODUCTION = """# The audit

See here how often tare's decisions are wrong, and how soon they come. `make audit` writes this page.

The audit simulates runs with a known effect under known noise, and decides after every block by the functions of
`tare run`. A **false decision** is a wrong "better", "worse" or "equivalent" (within 3 %);
"undecided" is never false."""


def _claims(found: Found) -> str:
    rows = []
    of_blocks = {"no effect: equivalent": 0.0, "3 % effect": 0.03, "10 % effect": 0.10, "30 % effect": 0.30}
    for text, effect in of_blocks.items():
        seen, limit = found.tallies[NORMAL.name, "tare", effect], _TARGETS[effect]
        rows.append((f"{text}, median of blocks", f"≤ {limit}", f"{seen.median:g}", _met(seen.median <= limit)))
    power = found.tallies[NORMAL.name, "tare", 0.03].right
    rows.append(("3 % effect, found worse", "≥ 95 %", percent(power), _met(power >= 0.95)))
    for kind in KINDS:
        false, effect = found.worst(kind.name, "tare")
        rows.append(_row_of_false(f"false, {kind.name} (worst at {percent(effect)})", false))
        if kind in COVERED:
            continue
        rows.append(_row_of_false(_UNSAID, found.worst_unsaid(kind.name)))
        rows.append(_row_of_false("— with all blocks", found.worst(kind.name, found.to_the_end)[0]))
    rows += [
        _row_of_false(f"false in turns, {each.moment.name}", each.centers["median"].false) for each in found.in_turns
    ]
    for shape in dict.fromkeys(each.shape for each in found.within):
        of_shape = [each.found[ROUNDS_TOO] for each in found.within if each.shape == shape]
        false = max(max(each.noisy, each.false) for each in of_shape)
        rows.append(_row_of_false(f"false within blocks, {shape.name}", false))
        if shape.is_lasting:
            rows.append(_row_of_false(_UNSAID, max(each.unsaid for each in of_shape)))
    for method in (BORROWED, ALONE):
        false = max(each.found[method, name].false for each in found.together for name in ("none", "some"))
        text = f"false in runs of {CELLS} cells, standard deviations: {method}, the worst of all shapes"
        rows.append(_row_of_false(text, false))
    wrong = max(max(each.stalls_of_control, 0 if each.moment.stalls else each.stalls) for each in found.in_turns)
    rows.append(_row_of_false("caution `stalls` without a stall, at any look", wrong))
    return f"""## The results

{table(("claim", "target", "found", "met"), rows)}

`false` is the share of false decisions at the worst effect, in turns at the worse of 0 and 3 %. Numbers of blocks and
power are those under normal noise, with at most {BLOCKS} blocks. The log ratio of two trials of a block has a standard
deviation of {percent(WITHIN)}, that of a stack to both trials of the baseline {percent(WITHIN * 0.75**0.5)}. Each run
has one stack beside the baseline and A/A, the least possible: more stacks show more of the noise."""


def _row_of_false(text: str, share: float) -> tuple[str, str, str, str]:
    """Return the row of a claim that a share of false decisions is small enough."""
    return text, f"≤ {percent(_ALLOWED)}", percent(share), _met(share <= _ALLOWED)


def _turns(found: Found) -> str:
    centers = list(found.in_turns[0].centers)
    rows, stalls = [], []
    for each in found.in_turns:
        cells = [
            f"{percent(seen.deviation, 2)}; {percent(seen.false)}; {seen.blocks:g}" for seen in each.centers.values()
        ]
        rows.append((each.moment.name, *cells))
        shares = (each.stalls_early, each.stalls, each.stalls_of_control)
        stalls.append((each.moment.name, *(percent(share) for share in shares)))
    stalls_head = ("disturbed by", f"after {BLOCKS // 6} blocks", f"within {BLOCKS}", f"A/A, within {BLOCKS}")
    return f"""## In turns

How to find a block's value from its turns; tare takes the median. Simulated along time: {ROUNDS} rounds a block in
random order, turns of 50 ms for 3 instances unless noted. A turn has {percent(TURNS)} of normal noise, the log ratio
of two instances {percent(INSTANCES)} more. A burst lasts {SHORTEST:g} to {LONGEST:g} s and takes a tenth to nine
tenths of the CPU time, or all of it. A stack that stalls has one turn in {1 / STALLED:g} at {percent(HALF)} of its
speed. 1/f noise of the machine has a standard deviation of {percent(FLICKER)}. {TURNS_RUNS} runs of at most {BLOCKS}
blocks.

Standard deviation of a block's value; false decisions (the larger share of no effect and 3 %); median of blocks until
"equivalent":

{table(("disturbed by", *centers), rows)}

If a stack stalls, the truth is its usual turn, so a mean that is worse counts as false. The share of runs, with a look
after every block, in which tare reports a stall (turns slower by {percent(SLOW_SHARE)} or more, in another
share than the
baseline's):

{table(stalls_head, stalls)}"""


def _broken(found: Found) -> str:
    stacks = sorted({each.stacks for each in found.breaks})
    firm = {effect: found.tallies[NORMAL.name, "tare", effect].firm for effect in EFFECTS}
    tolerated = ", ".join(f"{each:.2f} ({percent(effect)})" for effect, each in firm.items())
    rows = []
    for kind in dict.fromkeys(each.kind for each in found.breaks):
        own = sorted((each for each in found.breaks if each.kind == kind), key=lambda each: each.stacks)
        shares = [(each.false, each.unsaid, each.to_the_end) for each in own]
        rows.append((kind.name, *("; ".join(percent(share) for share in each) for each in shares)))
    head = ("noise", *(f"{count} stack{'s' if count > 1 else ''}" for count in stacks))
    return f"""## Noise of single stacks

Lasting noise of **one stack alone** is an effect of that stack while it lasts;
[the method](../docs/method.md#the-statistic) tests for it. Each decision has the correlation of neighboring blocks that
it tolerates. Medians under normal noise, by effect: {tolerated}.

Runs without an effect ({BREAKS_RUNS} each), by the number of stacks beside the baseline and A/A: false decisions; those
of them that were said to tolerate the noise's correlation (0.3 or 0.5; of normal noise and drift, 0.5); false decisions
after all {BLOCKS} blocks. A withdrawn decision is not false.

{table(head, rows)}

If a decision matters and does not tolerate the suspected noise, run all blocks (`until = "blocks"`): {BLOCKS} show
lasting noise even of one stack alone, unless it drifts as slowly as the whole run. Slow drift
is found late, with few stacks too late."""


def _rivals(found: Found) -> str:
    effects = [percent(effect) for effect in EFFECTS]
    decisions = []
    for method in found.methods:
        seen = [found.tallies[NORMAL.name, method, effect] for effect in EFFECTS]
        rights = [percent(each.right) for each in seen]
        if not method.startswith("tare"):
            rights[0] = "cannot"  # say that there is no effect
        cells = (f"{good} ({percent(each.false)}), {each.median:g}" for good, each in zip(rights, seen, strict=True))
        decisions.append((method, *cells))
    return f"""## Other methods

Normal noise; a block is one trial of each of two stacks, and with tare a second one of the baseline.

- *Papers*: 30 trials of one stack, then 30 of the next, and Welch's t at 5 %.
- *Phoronix Test Suite*: 3 runs, more while their relative standard deviation is 3 % or more (up to 12, up to 15 if it
  has not changed by half since the third). *Error bars*: a reader takes bars of mean ± standard error that do not
  overlap for different.
- *t-test and permutation after every run*: unpaired, both stacks in turn, until p < 5 %; 499 random permutations of the
  difference of means, in 1000 of the runs.

Right (false) decisions by effect, and the median of blocks until the decision:

{table(("method", *effects), decisions)}

![Blocks until decided, by effect and method](audit-blocks.svg)

Methods that look after every run decide a real effect soonest, and find one in
{percent(found.tallies[NORMAL.name, "t-test after every run", 0.0].false)} of the runs (t-test) without any.
Only tare can decide that there is no effect."""


def _shapes(found: Found) -> str:
    rows = [
        (kind.name, *(percent(found.tallies[kind.name, method, 0.0].false) for method in found.methods))
        for kind in KINDS
    ]
    more = []
    for kind in KINDS:
        seen = [found.tallies[kind.name, "tare", effect] for effect in (0.0, 0.03, 0.10, 0.30)]
        more.append((kind.name, *(f"{each.median:g}" for each in seen), percent(seen[1].right)))
        more[-1] += (percent(1 - float(found.coverages[kind.name].so_far[-1])),)
    student = 1 - float(found.coverages[NORMAL.name].student[-1])
    head = ("noise", "no effect", "3 %", "10 %", "30 %", "3 % found worse", "coverage")
    return f"""## Under other noise

False decisions without any effect:

{table(("noise", *found.methods), rows)}

![False decisions by noise and method](audit-false.svg)

Drift is half noise, half a wave of 100 trials, of one stack or of the whole machine. An AR(1) has the correlation of
its number from trial to trial. In 1/f noise, close trials agree better than distant ones at all distances: differences
to the next trial, the 10th and the 100th have standard deviations like 0.59, 0.82 and 1. Noise of each stack includes
the baseline; noise of the machine comes on top of as much normal noise of each stack. Without an effect the wave comes
back.

tare's median of blocks by effect, and the share of runs whose 95 % interval contains the true ratio at all {BLOCKS}
looks together. Student's 95 % interval, made for one look, does in {percent(student)} of runs under normal noise.

{table(head, more)}

![Runs whose interval has missed the truth, by looks](audit-coverage.svg)"""


def _together(found: Found) -> str:
    rows = []
    for each in found.together:
        cells = []
        for method in (ALONE, BORROWED):
            none, some = each.found[method, "none"], each.found[method, "some"]
            false, noisy = max(none.false, some.false), max(none.noisy, some.noisy)
            blocks = (none.blocks[0.0], *(some.blocks.get(effect, np.nan) for effect in (0.03, 0.10, 0.30)))
            cells += [f"{percent(false)}, {percent(noisy)}", " ".join(number(count, "g") for count in blocks)]
        rows.append((each.shape.name, each.stacks, *cells))
    equal = next(each for each in found.together if each.stacks == max(STACKS)).found[BORROWED, "none"]
    columns = [f"{method}: {what}" for method in (ALONE, BORROWED) for what in ("false", "blocks")]
    return f"""## Stacks together

Whole runs of about {CELLS} cells (e-BH): 1, 4 or 10 stacks beside the baseline and A/A, and as many workloads as make
them. The standard deviation of a stack's ratios is taken from its own blocks alone, or borrows from the others
([decision](../docs/decisions/statistics.md)). `false`: false decisions among all cells, and among the first stack of
each workload, which is the noisy one; without any effect or with those of 0 to 30 % below, whichever is more.
`blocks`: the median until "equivalent" without any effect, and of effects of 3, 10 and 30 %. {TOGETHER_RUNS} runs each.

{table(("noise", "stacks", *columns), rows)}

Where blocks do not depend on each other, {percent(equal.widened)} of the intervals of ten equal stacks are wider after
five blocks, because chance looks like a correlation."""


def _within(found: Found) -> str:
    rows = []
    for each in found.within:
        cells: list[str] = []
        for method in (ALONE, ROUNDS_TOO):
            seen = each.found[method]
            shares = ", ".join(percent(share) for share in (seen.false, seen.noisy, seen.missed))
            widths = " ".join(
                number(seen.widths[count][0], ".2f", "none")
                for count in (LOOKED_AT if method == ROUNDS_TOO else LOOKED_AT[-2:])
            )
            cells += [f"{shares}; {seen.blocks:g}", widths]
        widths = " ".join(number(each.found[ROUNDS_TOO].widths[count][1], ".2f", "none") for count in LOOKED_AT)
        rows.append((each.shape.name, each.stacks, *cells, widths))
    early, late = " ".join(map(str, LOOKED_AT)), " ".join(map(str, LOOKED_AT[-2:]))
    head = ("noise", "stacks", "blocks alone", f"± at {late}", "with rounds", f"± at {early}", f"A/A, ± at {early}")
    return f"""## Rounds and instances

What the rounds of a block tell of its error. Blocks of {WITHIN_ROUNDS} rounds; the rounds explain a standard deviation
of {percent(OF_ROUNDS)}. Fresh instances add more, in all stacks or in the first one alone (*instance luck*: a bad page
placement makes one start slow, while its rounds agree). Variances are those between the stack's own blocks alone, or
moderated by rounds and other cells ([decision](../docs/decisions/statistics.md)). False decisions of all stacks, and of
the first, at the worse of no effect and {percent(0.03)}; intervals of the first stack that missed the truth at any of
{BLOCKS} looks; median of blocks until "equivalent". `±`: the median of half the widths of a single interval, in
standard deviations of a block, after so many blocks. {WITHIN_RUNS} runs of one stack, {LEAST_RUNS} or more of several.

{table(head, rows)}

Student's t has ± 2.48, 1.59, 1.24 and 0.84 at one look. Nothing can show that starts have two modes before both have
been seen: in 24 % of the runs, five starts of which one in four is slow are all fast."""


def _rounds(found: Found) -> str:
    rows = [
        (
            percent(each.case.within),
            f"{each.case.between:g}",
            f"{each.case.starting:g}",
            *(percent(shares[method]) for shares in (each.false, each.decided) for method in (OWN_ROUNDS, CHOSEN)),
            *(number(each.cost[method], ".0f") for method in (OWN_ROUNDS, CHOSEN)),
        )
        for each in found.rounds
    ]
    pairs = (f"{what}{chosen}" for what in ("false", "decided", "cost") for chosen in ("", ", chosen"))
    return f"""## Rounds of a block

{ROUNDS_STACKS} stacks without an effect. Every block has {OWN} rounds, or as many as the run finds best from what it
has seen (`rounds = "auto"`), but no more where the first blocks are likely to decide. `turns`: the standard deviation
of a turn. `instances`: that of fresh instances, in those of a turn. `starts`: how long the starts of a block take, in
rounds. `false`: false decisions among all cells. `cost`: the median time until "equivalent", in blocks of {OWN} rounds.
{ROUNDS_RUNS} runs each, for the time of 40 such blocks.

{table(("turns", "instances", "starts", *pairs), rows)}"""


def _matrix(found: Found) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for each in found.matrices:
        effects = "none" if each.effects == NOTHING else "mixed"
        shares = f"{percent(each.any_false)}; {percent(each.decided)}; {each.trials:g}"
        rows.setdefault((each.kind, effects), []).append(shares)
    head = ("noise", "effects", *dict.fromkeys(each.method for each in found.matrices))
    return f"""## Seven stacks at once

A baseline and seven stacks, decided together (e-BH); a decided stack gets no more trials. Mixed effects are 0, 0, 1, 3,
5, 10 and 30 %. Of {MATRIX_RUNS} runs each: runs with a false decision; cells decided; median of trials, with those of
the baseline and A/A.

{table(head, ((*about, *cells) for about, cells in rows.items()))}"""


def _how(found: Found) -> str:
    share = 100 * 1.96 * np.sqrt(0.05 * 0.95 / found.runs)
    return f"""## How to run it

```
make audit
```

{found.runs} runs for each kind of noise and each effect, seed {found.seed} and following ones, took
{found.seconds / 60:.1f} minutes. A share of 5 % is known to ± {share:.1f} %. The noise is that of the `fake` technology
(`tests/plug_ins/tare_fake/noise.py`). The simulation is `research/audit_runs.py`, the other methods
`research/audit_rivals.py`, turns `research/audit_turns.py`, their centers `research/audit_centers.py`."""


def _met(is_met: bool) -> str:
    return "yes" if is_met else "**no**"
