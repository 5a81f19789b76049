"""How many blocks a margin needs: against simulated runs, and from the command line with a run on fakes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from called import Call
from fakes import Bench, Watcher, suite
from runs import REDIS, Trouble, make_run, make_trial, measured, run_in_turns

from tare.model.journal import Run
from tare.statistics.anytime import evidence_needed, log_evidence
from tare.statistics.planning import blocks_needed, further_blocks, margin_reached
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
        done = open_runs & (np.abs(found.mean) + found.half < found.limit)
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


def test_a_plan_says_which_settings_are_lowered(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "suite.toml"
    text = '[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "dhrystone"\n[workloads.limits]\ntime = "500ms"\n'
    path.write_text(text, encoding="utf-8")
    lowered = 'dhrystone: duration = "0.3s" instead of "1s": a trial may measure for 500 ms.\n'
    text = plan(path)
    assert lowered in text
    assert "each instance: 1 CPU, 512 MiB, 4096 open files\n" in text
    assert "each instance of dhrystone: 1 CPU, 512 MiB, 4096 open files, measures for 500 ms at most\n" in text


@pytest.fixture
def plan(call: Call) -> Plan:
    """Call `tare plan` with these words; return all that it prints."""

    def plan(*words: object, code: int = 0) -> str:
        said = call("plan", *words, code=code)
        return said.out + said.err

    return plan


@pytest.fixture
def planned(plan: Plan, tmp_path: Path) -> Plan:
    """Plan a suite of this text."""

    def planned(text: str) -> str:
        path = tmp_path / "suite.toml"
        path.write_text(text, encoding="utf-8")
        return plan(path)

    return planned


TWO = (
    '[suite]\nstacks = ["native"]\nbudget = "{budget}"\n[[workloads]]\nuse = "startup"\n[[workloads]]\nuse = "redis"\n'
)
SHORT = "which is too short for the 5 blocks that an interval"


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("1s", f"ended by the budget after 1 s, {SHORT} of startup, redis needs (about "),
        ("80s", f"ended by the budget after 1 min 20 s, {SHORT} of redis needs (about "),
        ("3m", "ended by the budget after 3 min; what is decided earlier takes less"),
    ],
)
def test_a_plan_says_for_what_the_budget_is_too_short(budget: str, words: str, planned: Plan) -> None:
    assert words in planned(TWO.format(budget=budget))


def test_a_budget_that_is_too_short_names_what_takes_the_longest(planned: Plan) -> None:
    text = TWO.format(budget="1s").replace('"native"', '"native", "crun", "runc"')
    out = planned(text)
    assert re.search(
        r"in all, of which (crun|runc) takes [^,]+ and redis takes [^,]+: leave one out\)", " ".join(out.split())
    )


def test_a_budget_that_is_too_short_advises_to_leave_out_only_what_can_be(planned: Plan) -> None:
    """Without the only stack, nothing would be compared, and without the only workload, nothing measured."""
    text = TWO.format(budget="1s").replace('"native"', '"native", "crun"')
    out = " ".join(planned(text).split())
    assert re.search(r"in all, of which redis takes [^,]+: leave it out\)", out)
    alone = '[suite]\nstacks = ["native", "crun"]\nbudget = "1s"\n[[workloads]]\nuse = "redis"\n'
    assert re.search(r"\(about [^,]+ in all\)", " ".join(planned(alone).split()))


def test_where_many_stacks_borrow_from_each_other_a_budget_is_too_short_for_fewer_blocks(planned: Plan) -> None:
    stacks = '"native", "crun", "bubblewrap", "gvisor", "podman"'
    out = planned(TWO.format(budget="1s").replace('"native"', stacks))
    assert "too short for the 3 blocks that an interval" in " ".join(out.split())


def test_a_budget_is_not_blamed_where_the_suite_has_too_few_blocks(planned: Plan) -> None:
    text = TWO.format(budget="1s").replace("[[", "blocks = 4\n[[", 1)
    assert "ended by the budget after 1 s; what" in planned(text)


SERVER = '[suite]\nstacks = ["native"]\n{image}[[workloads]]\nuse = "service"\n{command}'


@pytest.mark.parametrize(
    ("image", "command", "named"),
    [
        ("", "", "/usr/lib/tare/micro --listen '{listen}'"),
        ('[image]\nfrom = "oci:app"\n', "", "the image's own command"),
        ('[image]\nfrom = "oci:app"\n', 'command = "--quick"\n', "--quick"),
    ],
)
def test_a_plan_names_the_command_that_will_run(image: str, command: str, named: str, planned: Plan) -> None:
    out = planned(SERVER.format(image=image, command=command))
    assert f"  service: in every instance, on bare metal: {named}\n" in out
    entry = "oci:/.*app, whose entry point, if it has one, comes first"
    assert bool(re.search(entry, out)) is bool(image)


@pytest.mark.parametrize(
    ("stacks", "tables", "expected"),
    [
        (["crun", "docker"], "", ["in every instance: true"]),
        (["native", "crun"], "", ["in every instance, on bare metal too: true"]),
        (
            ["native", "new", "crun"],
            '[stacks.new]\nstack = "crun"\ncommand = "false"\n',
            ["in instances of native, crun, on bare metal too: true", "in instances of new: false"],
        ),
        (
            ["old", "new"],
            '[stacks.old]\nstack = "crun"\ncommand = "a"\n[stacks.new]\nstack = "native"\ncommand = "b"\n',
            ["in instances of old: a", "in instances of new, on bare metal: b"],
        ),
    ],
)
def test_a_plan_says_in_which_instances_each_command_runs(
    stacks: list[str], tables: str, expected: list[str], planned: Plan
) -> None:
    command = '[[workloads]]\nuse = "command"\ncommand = "true"\n'
    out = planned(f'[suite]\nstacks = {json.dumps(stacks)}\nbaseline = "{stacks[0]}"\n{tables}{command}')
    assert [line.removeprefix("  command: ") for line in out.splitlines() if line.startswith("  command: ")] == expected


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
    assert all(f"in all about {time} until all such" in text for time in times if len(times) == 1)
    return {stack: (float(deviation), int(blocks)) for stack, deviation, blocks, _ in rows}


def test_a_pilot_in_turns_foretells_what_its_rounds_decide_and_not_their_means(tmp_path: Path, plan: Plan) -> None:
    pilot = run_in_turns(Trouble(block=2, burst=(1.0, 1.3)))
    means = [replace(trial, values=tuple(replace(value, turns=()) for value in trial.values)) for trial in pilot.trials]
    for each in ("turns", "means"):
        (tmp_path / each).mkdir()
    stacks = "'native', 'crun'"
    [(deviation, blocks)] = foretold(tmp_path / "turns", pilot, plan, stacks).values()
    [(of_means, more)] = foretold(tmp_path / "means", replace(pilot, trials=tuple(means)), plan, stacks).values()
    assert 2 * deviation < of_means
    assert blocks < more / 2


def test_the_control_which_varies_more_is_foretold_only_where_no_other_stack_is_to_be_decided(
    tmp_path: Path, plan: Plan
) -> None:
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
    assert text == (
        "error: --margin: what it takes is not known without a run\nhint: add --from RUN, a short or earlier run\n"
    )


@pytest.mark.parametrize("truth", [0.0, 0.05])
def test_the_blocks_foretold_are_those_after_which_the_evidence_is_there(truth: float) -> None:
    logs = truth + 0.02 * np.array([[1, -1, 0.5, -0.5, 1, -1]])
    found = compare(logs, np.ones(logs.shape, dtype=bool), margin=0.03)
    needed = evidence_needed(count=20, made=1)
    [more] = further_blocks(found, needed)
    assert 1 < more < 40

    def evidence(count: int) -> float:
        later = replace(found, count=np.array([count]))
        beyond, within = np.abs(later.mean), later.limit - np.abs(later.mean)
        different = log_evidence(beyond, later.deviation * later.widening, later.count)
        alike = log_evidence(within, later.deviation * later.widening, later.count)
        return float(max(different[0], alike[0] if within[0] > 0 else -np.inf))

    assert evidence(6 + int(more)) >= needed > evidence(6 + int(more) - 1)


def test_what_a_suite_brings_along_is_listed(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "stranger.toml"
    path.write_text(
        """
        [suite]
        stacks = ["native", "theirs", "far", "gvisor-today"]
        [stacks.theirs]
        stack = "osv"
        image = "/tmp/kernel"
        disk = "/tmp/usr.img"
        service = "redis"
        [stacks.far]
        stack = "libvirt"
        uri = "qemu+ext:///system?command=/tmp/x"
        [stacks.gvisor-today]
        stack = "gvisor"
        program = "/tmp/runsc"
        [hosts.server]
        ssh = "root@there"
        ssh_config = "/tmp/config"
        [hosts.client]
        ssh = "root@client"
        [[workloads]]
        use = "service"
        command = ["/tmp/app", "a b"]
        load = "/tmp/load {address}"
        [[workloads.metrics]]
        name = "rate"
        better = "higher"
        pattern = "([0-9]+)"
        """,
        encoding="utf-8",
    )
    text = plan(path)
    assert text.splitlines()[-10:] == [
        "this suite also executes or opens, outside tare:",
        "  theirs: boots /tmp/kernel",
        "  theirs: boots /tmp/usr.img",
        "  far: virsh connects to qemu+ext:///system?command=/tmp/x",
        "  gvisor-today: runs /tmp/runsc as root",
        "  service: in every instance, on bare metal too: /tmp/app 'a b'",
        "  service: as root on the client: /tmp/load '{address}'",
        "  server: as root on root@there",
        "  server: ssh reads /tmp/config, which may name programs to start (ProxyCommand)",
        "  client: as root on root@client",
    ]


def test_each_of_several_clients_is_said(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "suite.toml"
    clients = "".join(f'[[hosts.client]]\nssh = "root@{name}"\n' for name in "ab")
    path.write_text(f'[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "nginx"\n{clients}', encoding="utf-8")
    text = plan(path)
    assert text.splitlines()[-2:] == ["  client: as root on root@a", "  client 2: as root on root@b"]


def test_a_suite_that_brings_nothing_along_is_not_said_to(files: tuple[Path, Path], plan: Plan) -> None:
    assert "brings along" not in plan(files[0])
