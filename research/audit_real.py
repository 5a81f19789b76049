"""The same through the real thing: tare's own loop on fakes, and a kernel with 3 % more work in a container."""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from audit_runs import ALIKE, BLOCKS, LESS, MORE, UNDECIDED, WITHIN, decide, right
from audit_text import percent, table
from audit_turns import INSTANCES, ROUNDS, STALLED
from fakes import Bench, Watcher, record, suite
from own_testbed import own_context
from tare_fake.noise import draws_of, shaped

from tare.hosts.host import Host
from tare.hosts.local import isolate_mounts
from tare.images.image import ensure_image
from tare.model.errors import TrialFailed
from tare.model.run_folder import Run, RunWriter, load_run
from tare.model.trial import Metric, RawOutput, Value
from tare.plugins import registry
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.runner.loop import RemainingWork, RunLoop
from tare.statistics.cells import Cell
from tare.statistics.grid import build_grid
from tare.statistics.headlines import log_ratios
from tare.statistics.ratios import BaselineRows
from tare.statistics.summarize import summarize
from tare.suites.suite import parse_suite
from tare.technologies.crun import Crun

_SETTINGS = (
    'shape = "normal"',
    'shape = "heavy"',
    'shape = "modes"',
    'shape = "drift"\nmachine = {seed}',
    'shape = "correlated"\nmachine = {seed}',
)
# Bursts have half of the time; what instances differ by is half the machine's, half their own. Stalls are one stack's.
_IN_TURNS = {
    "bursts half of the time": 'machine = {seed}\njitter = "2%"\nbursts = "50%"',
    "stalls of the stack": 'machine = {seed}\njitter = "2%"',
}
_STALLS = {"stalls of the stack": f'stalls = "{100 * STALLED:g}%"\n'}
_CLAIMS = {"better": MORE, "worse": LESS, "equivalent": ALIKE}
# How many runs there are of each effect: a trial takes a tenth of a second, most of it for writing its telemetry.
LOOPS = {
    **{("", effect): count for effect, count in {0.0: 20, 0.03: 40, 0.10: 120}.items()},
    ("bursts half of the time", 0.0): 20,
    ("bursts half of the time", 0.03): 20,
    ("stalls of the stack", 0.0): 20,
}
CONTAINERS = 10
_ANY_PRECISION = 1000.0
_WORK = "work"  # in an instance's proof: how much more of it the job is to do


@dataclass(frozen=True)
class Looped:
    """A run of the loop: what it said of its stack, after how many blocks, and whether the arrays say the same.

    `disturbed` tells what else turns have, empty where instances alone differ; `stalls` and `control_stalls` whether
    its stack, or A/A, was said to stall.
    """

    effect: float
    disturbed: str
    claim: int
    blocks: int
    as_arrays: bool
    stalls: bool
    control_stalls: bool


def loop(effect: float, number: int, disturbed: str = "") -> Looped:
    """Do a run on fakes; its noise has one shape after the other, or what disturbs its turns."""
    shared = _IN_TURNS[disturbed] if disturbed else _SETTINGS[number % len(_SETTINGS)]
    deviation = INSTANCES / np.sqrt(2) if disturbed else WITHIN
    noise = f'noise = "{100 * deviation / np.sqrt(2):.6f}%"\n{shared.format(seed=1 + number + int(1e4 * effect))}'
    seed = 1000 + 2 * number
    own = f'effect = "{100 * effect:g}%"\n{_STALLS.get(disturbed, "")}'
    stacks = (f"a: seed = {seed}\n{noise}", f"b: seed = {seed + 1}\n{own}{noise}")
    with tempfile.TemporaryDirectory(prefix="tare-audit-") as folder:
        bench = Bench(Path(folder) / "run", Watcher(Path(folder) / "run" / "trials.jsonl"))
        # Without a wanted precision, a run ends with its decision.
        bench.work(replace(suite(*stacks, blocks=BLOCKS, workloads=("dhrystone",)), precision=_ANY_PRECISION))
        run = bench.read()
    if number % len(_SETTINGS) == 0 and not disturbed:
        _check_draws(run, seed + 1, effect)
    seen, control = (summarize(run).headline("dhrystone", stack) for stack in ("b", "a-again"))
    blocks = sum(trial.stack == "b" for trial in run.trials)
    ratios, errors = _ratios(run)
    said = decide(ratios, errors=errors)
    claim = _CLAIMS.get(seen.verdict, UNDECIDED)
    as_arrays = (int(said.claim[0, 0]), int(said.blocks[0, 0])) == (claim, blocks)
    stalls, control_stalls = (cell.has_caution("stalls") for cell in (seen, control))
    return Looped(effect, disturbed, claim, blocks, as_arrays, stalls, control_stalls)


def _check_draws(run: Run, seed: int, effect: float) -> None:
    """Make sure that the trials have the noise that the arrays have."""
    values = [trial.values[0].value for trial in run.trials if trial.stack == "b"]
    noise = shaped(np.array([draws_of(str(seed), number) for number in range(len(values))]), "normal")
    expected = 20e6 * (1 - effect) * np.exp(WITHIN / np.sqrt(2) * noise)
    assert np.allclose(values, expected, rtol=1e-6), "a fake does not have the noise that it should have"


def _ratios(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return a run's log ratios and errors of rounds as rows of one run; 0 for what it had no need to measure."""
    grid = build_grid(run.record.workloads[0], ("a", "b", "a-again"), run.trials)
    found, errors = np.zeros((2, 1, 3, BLOCKS))
    ratios = log_ratios(grid, BaselineRows(0, 2))
    found[0][:, list(grid.blocks)] = ratios.logs[:, 0]
    if ratios.errors is not None:
        errors[0][:, list(grid.blocks)] = ratios.errors[:, 0]
    return found, errors


# --- a container ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job(Workload):
    """A fixed number of Whetstone's passes, and the seconds that they take: what does more of them takes longer."""

    name: ClassVar[str] = "job"
    title: ClassVar[str] = "A fixed number of Whetstone's passes"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("seconds", "Time", "s", "lower"),)

    passes: int = 500  # of a turn

    @property
    def rounds(self) -> int:
        return ROUNDS

    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:
        assert setup.instance.inside is not None
        passes = round(float(setup.instance.proof.get(_WORK, "1")) * self.passes)
        argv = ("/usr/lib/tare/whetstone", "--passes", str(passes))
        for number in range(1 + self.rounds):
            output = setup.instance.inside.run(*argv, timeout=300)
            yield RawOutput(self.name, argv, output.text, output.seconds, warm_up=number == 0)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        found = re.search(r"^seconds: (\d+\.\d+)$", raw[0].text, re.MULTILINE)
        if not found or not raw[0].text.endswith("verified: yes\n"):
            raise TrialFailed("whetstone gave no verified time")
        return (Value("seconds", None, float(found[1])),)

    def estimate_seconds(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Heavier(Crun):
    """crun, in which the job has 3 % more passes; all else is crun's."""

    name: ClassVar[str] = "heavier"

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance:
            yield replace(instance, proof={**instance.proof, _WORK: "1.03"})


class _Shelf:
    OWN: ClassVar[dict[str, type[Any]]] = {each.name: each for each in (Heavier, Job)}

    def names(self, kind: registry.PluginType) -> Sequence[str]:
        return (*registry.names(kind), *self.OWN)

    def find(self, kind: registry.PluginType, name: str) -> type[Any]:
        return self.OWN[name] if name in self.OWN else registry.find(kind, name)


@dataclass(frozen=True)
class Contained:
    """What a run of the job said of crun with 3 % more work, and of crun again, after how many blocks and trials."""

    heavier: Cell
    alike: Cell
    blocks: int
    trials: int
    quarantined: int


def contained(
    count: int, beside: Callable[[], AbstractContextManager[None]] = nullcontext, passes: int = 500
) -> Iterator[Contained]:
    """Run the job in crun containers so many times, each run until all is decided, beside something. Needs root."""
    isolate_mounts()
    image = ensure_image(lambda line: print(line, file=sys.stderr))
    with own_context(image, image) as here, tempfile.TemporaryDirectory(prefix="tare-audit-") as folder:
        for seed in range(1, 1 + count):
            with beside():
                yield _contained(here, Path(folder) / str(seed), seed, passes)


def _contained(here: RunContext, folder: Path, seed: int, passes: int) -> Contained:
    """Do one run, until all is decided."""
    job = f'[[workloads]]\nuse = "job"\npasses = {passes}\n'
    text = f'[suite]\nstacks = ["crun", "heavier"]\nblocks = {BLOCKS}\nseed = {seed}\n{job}'
    planned = parse_suite(text, "audit.toml", _Shelf())
    journal = RunWriter(folder)
    journal.create(record(planned), planned.text)
    RunLoop(RemainingWork(planned, (), {}, None), here, journal, Watcher(folder / "trials.jsonl")).run()
    run = load_run(folder)
    summary = summarize(run)
    return Contained(
        summary.headline("job", "heavier"),
        summary.headline("job", "crun-again"),
        max(trial.block for trial in run.trials) + 1,
        len(run.trials),
        sum(bool(trial.quarantined) for trial in run.trials),
    )


# --- the page ---


def describe_loops(looped: Sequence[Looped]) -> str:
    """Return the section about runs of the loop on fakes."""
    rows = []
    for effect, disturbed in dict.fromkeys((each.effect, each.disturbed) for each in looped):
        own = [each for each in looped if (each.effect, each.disturbed) == (effect, disturbed)]
        good = sum(each.claim in right(effect) for each in own)
        false = sum(each.claim != UNDECIDED and each.claim not in right(effect) for each in own)
        median, alike = np.median([each.blocks for each in own]), sum(each.as_arrays for each in own)
        text = f"{percent(effect)}, {disturbed}" if disturbed else percent(effect)
        said = (sum(each.stalls for each in own), sum(each.control_stalls for each in own))
        rows.append((text, len(own), good, false, f"{median:g}", alike, *said))
    head = ("effect", "runs", "right", "false", "median blocks", "as the arrays decide", "stalls", "A/A stalls")
    return f"""## Through the loop itself

`tare run`'s own loop on fakes in ten rounds of a block, from the plan to the report, in the first five kinds of noise,
in bursts, and with a stack that stalls in one turn in {1 / STALLED:g}. `as the arrays decide`: the simulation decides
the same from the journal, after the same block. A run ends when its stack is decided; `stalls` are the runs in which it
was said to stall by then, which takes more blocks if stalls are rare ([in turns](#in-turns)).

{table(head, rows)}"""


def describe_containers(containers: Sequence[tuple[Cell, Cell]]) -> str:
    """Return the section about runs in containers, each with the cells of the heavier kernel and of the A/A."""
    title = "## A real container\n\n"
    if not containers:
        return f"{title}Not part of this run: `make audit` as root does it."
    heavy, again = ([pair[index] for pair in containers] for index in (0, 1))
    blocks = sorted(cell.n for cell in heavy)
    return f"""{title}A fixed number of Whetstone's passes in crun containers, in turns; `heavier` does 3 % more.
The metric is time, so the true ratio is 103 %. Each run ends when `heavier` is decided.

| of {len(heavy)} runs | verdict | ratios | blocks |
| --- | --- | --- | --- |
| heavier | {_describe_verdicts(heavy)} | {_describe_ratios(heavy)} | {blocks[0]} to {blocks[-1]} |
| A/A | {_describe_verdicts(again)} | {_describe_ratios(again)} | |"""


def _describe_verdicts(cells: Sequence[Cell]) -> str:
    counted = Counter(cell.verdict for cell in cells)
    return ", ".join(f"{verdict} in {count}" for verdict, count in counted.items())


def _describe_ratios(cells: Sequence[Cell]) -> str:
    known = [cell.ratio for cell in cells if cell.ratio is not None]
    return f"{100 * min(known):.2f} to {100 * max(known):.2f} %" if known else "none"
