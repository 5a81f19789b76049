"""How many blocks a margin needs: against simulated runs, and from the command line with a run on fakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from called import Call
from fakes import Bench, Watcher, suite
from golden import assert_as_reviewed
from runs import REDIS, Trouble, make_run, make_trial, measured, run_in_turns

from tare.model.run_folder import Run
from tare.statistics.anytime import evidence_needed, log_evidence
from tare.statistics.planning import blocks_needed, extra_blocks_needed, margin_reached
from tare.statistics.ratios import compare

Plan = Callable[..., str]


@pytest.mark.parametrize(("deviation", "margin"), [(0.037, 0.03), (0.01, 0.02), (0.1, 0.05)])
def test_half_of_simulated_runs_are_decided_by_then(deviation: float, margin: float) -> None:
    blocks = blocks_needed(deviation, margin)
    assert blocks is not None
    values = np.random.default_rng(3).normal(0, deviation, (1000, 3 * blocks))
    open_runs, after = np.ones(1000, dtype=bool), np.full(1000, 3 * blocks)
    for count in range(5, 3 * blocks):
        found = compare(values[:, :count], np.ones((1000, count), dtype=bool), margin)
        done = open_runs & (np.abs(found.mean) + found.half_widths < found.limit)
        after[done] = count
        open_runs &= ~done
    assert np.median(after) == pytest.approx(blocks, rel=0.15)


def test_the_margin_that_blocks_reach_is_that_for_which_they_are_needed() -> None:
    reached = margin_reached(0.037, 40)
    assert reached is not None
    assert blocks_needed(0.037, reached * 1.0001) == 40
    assert margin_reached(0.037, 4) is None


def test_what_takes_forever_is_not_planned() -> None:
    assert blocks_needed(5.0, 0.01) is None


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    bench = Bench(tmp_path / "run", Watcher(tmp_path / "none"))
    what = suite('a: noise = "2%"', 'b: noise = "4%"\nseed = 2', blocks=6, workloads=("dhrystone",))
    bench.work(what)
    path = tmp_path / "suite.toml"
    path.write_text(what.text, encoding="utf-8")
    return path, bench.folder


@pytest.fixture
def plan(call: Call) -> Plan:
    """Call `tare plan` with these words; return all that it prints."""

    def plan(*words: object, code: int = 0) -> str:
        said = call("plan", *words, code=code)
        return said.out + said.err

    return plan


def test_a_plan_says_what_its_reviewed_file_says(tmp_path: Path, plan: Plan) -> None:
    """Each suite of the file is planned, and what is printed stands below it."""
    catalog = Path(__file__).parents[2] / "samples/suites/plans.txt"

    def planned(block: str) -> str:
        suite = "".join(f"{line}\n" for line in block.splitlines() if not line.startswith("=>"))
        (tmp_path / "suite.toml").write_text(suite, encoding="utf-8")
        return suite + "\n".join(f"=> {line}".rstrip() for line in plan(tmp_path / "suite.toml").splitlines())

    blocks = catalog.read_text(encoding="utf-8").split("\n\n")
    made = (block if block.startswith("## ") else planned(block) for block in blocks)
    assert_as_reviewed("\n\n".join(made), catalog)


def test_a_plan_from_a_pilot_has_blocks_and_minutes(files: tuple[Path, Path], plan: Plan) -> None:
    text = plan(files[0], "--from", files[1], "--margin", "1%")
    assert "blocks for 1 %" in text
    row = next(line for line in text.splitlines() if line.startswith("dhrystone") and "%" in line)
    assert 10 < int(row.split()[4]) < 2000


def foretold(folder: Path, pilot: Run, plan: Plan, stacks: str) -> dict[str, tuple[float, int]]:
    """Plan a suite of redis from a pilot; return what is said of each stack: the deviation in percent, and blocks."""
    path = folder / "suite.toml"
    path.write_text(f"[suite]\nstacks = [{stacks}]\n[[workloads]]\nuse = 'redis'\n", encoding="utf-8")
    pilot = replace(pilot, folder=folder / "pilot")
    text = plan(path, "--margin", "1%", "--from", pilot)
    rows = re.findall(r"^redis +(\S+) +([\d.]+) % +(\d+) +(\d.*?)  ", text, re.MULTILINE)
    times = {about for _, _, _, about in rows}
    assert all(f"total: about {time} until all of these" in text for time in times if len(times) == 1)
    return {stack: (float(deviation), int(blocks)) for stack, deviation, blocks, _ in rows}


def test_a_pilot_in_turns_forecasts_from_its_rounds_and_not_their_means(tmp_path: Path, plan: Plan) -> None:
    pilot = run_in_turns(Trouble(block=2, burst=(1.0, 1.3)))
    means = [replace(trial, values=tuple(replace(value, turns=()) for value in trial.values)) for trial in pilot.trials]
    for each in ("turns", "means"):
        (tmp_path / each).mkdir()
    stacks = "'native', 'crun'"
    [(deviation, blocks)] = foretold(tmp_path / "turns", pilot, plan, stacks).values()
    [(of_means, more)] = foretold(tmp_path / "means", replace(pilot, trials=tuple(means)), plan, stacks).values()
    assert 2 * deviation < of_means
    assert blocks < more / 2


def test_a_noisier_control_is_forecast_only_if_no_other_stack_is_undecided(tmp_path: Path, plan: Plan) -> None:
    chance = np.random.default_rng(4)
    spread = {"native": 0.002, "native-again": 0.05, "crun": 0.004, "docker": 0.008}
    trials = [
        make_trial(stack, block, [measured("get", 1e5 * float(np.exp(chance.normal(0, noise))), 1.0)], "redis")
        for block in range(8)
        for stack, noise in spread.items()
    ]
    pilot = make_run(trials, [REDIS])
    for name, stacks, asked in (("all", "'native', 'crun', 'docker'", {"crun", "docker"}), ("one", "'native'", None)):
        (tmp_path / name).mkdir()
        assert foretold(tmp_path / name, pilot, plan, stacks).keys() == (asked or {"native-again"})


def test_a_pilot_without_two_blocks_says_so(files: tuple[Path, Path], plan: Plan) -> None:
    journal = files[1] / "trials.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:3]))
    assert "no two blocks in run" in plan(files[0], "--from", files[1])


@pytest.mark.parametrize("words", [("--margin", "3"), ("--margin", "0%"), ("--margin", "x")])
def test_a_margin_that_is_none_is_refused(files: tuple[Path, Path], plan: Plan, words: tuple[str, str]) -> None:
    text = plan(files[0], *words, code=2)
    assert text.startswith(f"error: {words[0]} {words[1]}: ")


def test_a_margin_without_a_run_to_predict_from_is_refused(files: tuple[Path, Path], plan: Plan) -> None:
    text = plan(files[0], "--margin", "1%", code=2)
    assert text == ("error: --margin requires --from\nhint: add --from RUN, a short or earlier run\n")


@pytest.mark.parametrize("truth", [0.0, 0.05])
def test_the_blocks_foretold_are_those_after_which_the_evidence_is_there(truth: float) -> None:
    logs = truth + 0.02 * np.array([[1, -1, 0.5, -0.5, 1, -1]])
    found = compare(logs, np.ones(logs.shape, dtype=bool), margin=0.03)
    needed = evidence_needed(count=20, made=1)
    [more] = extra_blocks_needed(found, needed)
    assert 1 < more < 40

    def evidence(count: int) -> float:
        later = replace(found, count=np.array([count]))
        beyond, within = np.abs(later.mean), later.limit - np.abs(later.mean)
        different = log_evidence(beyond, later.deviation * later.widening, later.count)
        alike = log_evidence(within, later.deviation * later.widening, later.count)
        return float(max(different[0], alike[0] if within[0] > 0 else -np.inf))

    assert evidence(6 + int(more)) >= needed > evidence(6 + int(more) - 1)


def test_a_suite_that_brings_nothing_along_is_not_said_to(files: tuple[Path, Path], plan: Plan) -> None:
    assert "brings along" not in plan(files[0])
