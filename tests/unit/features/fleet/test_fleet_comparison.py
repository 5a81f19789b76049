"""`tare fleet compare`: kinds of machines, sick ones, what transfers, what changed, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import Call
from compared import Compare, changed
from fleets import Make, fleet
from runs import MACHINE, write

from tare.__main__ import run as command_line
from tare.cli.app import app
from tare.features.fleet import fleet_page as chart_of_machines
from tare.features.fleet import fleet_page as page_of_fleet
from tare.features.fleet.comparison import false_share_per_cell
from tare.features.fleet.random_effects import half_width
from tare.model.run_folder import load_run

LARGE = replace(MACHINE, cpu_model="Imaginary CPU 12000", cpus=16)
LEVELS = {"docker": 0.9, "crun": 1.0, "gvisor": 0.5}


@pytest.fixture(scope="module")
def two_kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six small machines, one of which is slow in all that it does, and four large ones on which docker is quick."""
    kinds = [Make(6, LEVELS, sick=0.8), Make(4, LEVELS | {"docker": 1.1}, facts=LARGE)]
    return fleet(tmp_path_factory.mktemp("fleets") / "fleet", kinds)


@pytest.fixture
def compare(call: Call) -> Compare:
    return partial(call, "fleet", "compare", code=None)


def cells(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(cell["kind"], cell["stack"]): cell for cell in document["cells"]}


def test_each_kind_has_verdicts_and_those_that_hold_on_all_are_stated(two_kinds: Path, compare: Compare) -> None:
    found = compare(two_kinds)
    assert (found.code, found.err) == (0, "")
    assert re.search(r"docker +A +▼ worse +\S\d+\.\d %", found.out)
    assert re.search(r"docker +B +▲ better +\+\d+\.\d %", found.out)
    assert "type A: 6 machines (a1, a2, a3 and 3 more): Imaginary CPU 9000, 2 CPUs" in found.out
    assert "type B: 4 machines" in found.out
    assert "Holds on all types: " in found.out
    assert "gvisor in dhrystone (worse)" in found.out
    assert "differs between types: docker in dhrystone (worse, better)" in found.out


def test_an_overall_slow_machine_is_named_even_if_its_ratios_are_normal(two_kinds: Path, compare: Compare) -> None:
    found = compare(two_kinds)
    [line] = re.findall(r"^! (.* is an outlier .*)$", found.out, re.MULTILINE)
    assert re.fullmatch(r"a6 is an outlier of type A: it has (79|8\d) % of the others' value .*", line)
    baseline = cells(compare(two_kinds, "--json").document)["A", "native"]
    assert [each["machine"] for each in baseline["unlike"]] == ["a6"]
    assert baseline["decision"] == "baseline"


def test_a_fleet_has_markdown_for_a_pull_request(two_kinds: Path, compare: Compare) -> None:
    found = compare(two_kinds, "--markdown", "--fail-on", "worse")
    assert found.code == 1
    assert found.out.startswith("### ❌ tare fleet compare\n\nThe gate (--fail-on worse) failed: ")
    assert "| gvisor | B | ▼ worse | " in found.out


def test_the_interval_is_that_for_a_machine_that_was_not_measured(two_kinds: Path, compare: Compare) -> None:
    cell = cells(compare(two_kinds, "--json").document)["A", "docker"]
    logs = np.array([each["log"] for each in cell["machines"].values()])
    low, high = np.log(cell["interval"])
    assert cell["estimate"] == pytest.approx(np.exp(logs.mean()))
    assert (high - low) / 2 == pytest.approx(half_width(logs, 0.05))  # all are decided


def test_of_several_cells_of_which_few_are_decided_the_intervals_are_wider() -> None:
    chance = np.random.default_rng(1)
    means = [chance.normal(level, 0.02, 5) for level in (-0.5, 0.0, 0.0, 0.0, 0.0)]
    assert false_share_per_cell(means, 0.03) == pytest.approx(0.05 / 5)
    assert false_share_per_cell([means[0]] * 5, 0.03) == pytest.approx(0.05)


def test_a_kernel_makes_another_kind_and_so_does_memory(tmp_path: Path, compare: Compare) -> None:
    kernels = [replace(MACHINE, kernel=kernel) for kernel in ("6.1", "6.12")]
    sizes = [replace(MACHINE, memory_bytes=size << 30) for size in (8, 16)]
    folder = fleet(tmp_path / "fleet", [Make(2, facts=facts) for facts in (*kernels, *sizes)])
    document = compare(folder, "--json").document
    assert [kind["machine"]["kernel"] for kind in document["kinds"]] == ["6.1", "6.12", MACHINE.kernel, MACHINE.kernel]
    assert {len(kind["machines"]) for kind in document["kinds"]} == {2}


def test_two_architectures_are_two_kinds_and_are_named(tmp_path: Path, compare: Compare) -> None:
    folder = fleet(tmp_path / "fleet", [Make(3), Make(2, facts=replace(MACHINE, architecture="aarch64"))])
    found = compare(folder)
    assert re.search(r"type A: 3 machines .*, Linux 6\.1\.0-18-amd64 on x86_64$", found.out, re.MULTILINE)
    assert re.search(r"type B: 2 machines .*, Linux 6\.1\.0-18-amd64 on aarch64$", found.out, re.MULTILINE)


def test_one_machine_of_a_kind_has_no_interval(tmp_path: Path, compare: Compare) -> None:
    found = compare(fleet(tmp_path / "fleet", [Make(1)]), "--fail-on", "worse")
    assert found.code == 3
    assert re.search(r"docker +A +\S too few machines", found.out)
    assert found.error[0] == "the gate cannot tell: no comparison has an interval"


def test_two_weeks_are_compared_by_machine_even_if_kernels_differ(tmp_path: Path, compare: Compare) -> None:
    new = replace(MACHINE, kernel="6.12.0")
    before = fleet(tmp_path / "before", [Make(5, LEVELS, between=0.05)])
    after = fleet(tmp_path / "after", [Make(5, LEVELS | {"gvisor": 0.4}, between=0.05, facts=new)])
    found = compare(before, after, "--fail-on", "worse")
    assert found.code == 1
    assert "The gate (--fail-on worse) failed: gvisor in dhrystone on A (worse)." in found.out
    cell = cells(compare(before, after, "--json").document)["A", "gvisor"]
    assert cell["estimate"] == pytest.approx(0.8, rel=0.02)
    assert cell["interval"][1] - cell["interval"][0] < 0.06  # though machines differ by 5 %, each is like it was


def test_machines_missing_or_changed_in_a_fleet_are_left_out_and_named(tmp_path: Path, compare: Compare) -> None:
    before, after = (fleet(tmp_path / when, [Make(4)], seed) for when, seed in (("before", 1), ("after", 2)))
    shutil.rmtree(before / "a1")
    other = load_run(after / "a4")
    shutil.rmtree(after / "a4")
    write(changed(other, machine=LARGE))
    found = compare(before, after)
    assert "only after, and not compared: a1" in found.out
    assert "another machine under the same name, and not compared: a4" in found.out
    assert "type A: 2 machines (a2 and a3)" in found.out


def test_the_page_has_the_kinds_and_every_machine(two_kinds: Path, compare: Compare, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert compare(two_kinds, "--html", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "docker, a3 of type A: " in text  # a dot of the chart
    assert all(f'<th scope="row">{name}</th>' in text for name in ("a1", "a6", "b4"))
    assert 'aria-label="a6 relative to its type"' in text
    assert '<td class="differs">Imaginary CPU 12000</td>' in text


def test_of_very_many_machines_the_page_has_outliers_and_counts_the_others(
    two_kinds: Path, compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_of_fleet, "_MAX_MACHINES", 3)
    monkeypatch.setattr(chart_of_machines, "MAX_DOTS", 2)
    page = tmp_path / "page.html"
    assert compare(two_kinds, "--html", page).code == 0
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r'<th scope="row">([ab]\d)</th>', text)
    assert len(shown) == 3
    assert shown[0] == "a6"  # the sick one
    assert "3 of 10 machines: outliers, then those farthest from the mean of their type. 7 are left out" in text
    assert len(set(re.findall(r"docker, (a\d) of type A: ", text))) == 2


def test_its_report_is_the_page_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fleet(tmp_path / "fleet", [Make(3)])
    assert command_line(app, ["fleet", "report", str(folder)]) == 0
    paths = [folder / "report" / "index.html", folder / "report" / "report.json"]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in paths]
    assert json.loads(paths[1].read_text())["kinds"][0]["machines"] == ["a1", "a2", "a3"]
    assert "3 machines" in paths[0].read_text()
    assert command_line(app, ["fleet", "report", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "index.html").exists()
    assert command_line(app, ["fleet", "compare", str(folder)]) == 0  # its report is no machine


def test_a_report_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path, call: Call) -> None:
    folder = fleet(tmp_path / "fleet", [Make(3)])
    (tmp_path / "file").write_text("")
    what, hint = call("fleet", "report", folder, "--out", tmp_path / "file" / "out", code=2).error
    assert what == f"{tmp_path / 'file' / 'out'}: cannot be written: not a directory"
    assert hint == f"choose another folder: tare fleet report {folder} --out FOLDER"


def test_a_machine_without_a_result_is_left_out_and_named(tmp_path: Path, compare: Compare) -> None:
    folder = fleet(tmp_path / "fleet", [Make(3)])
    (folder / "a2" / "trials.jsonl").write_text("")
    assert "a2 has no result, and is left out" in compare(folder).out


def test_runs_that_are_not_alike_are_named(tmp_path: Path, compare: Compare) -> None:
    folder = fleet(tmp_path / "fleet", [Make(3)])
    record = json.loads((folder / "a2" / "run.json").read_text())
    (folder / "a2" / "run.json").write_text(json.dumps(record | {"tare": "0.0.9", "suite": "another"}))
    found = compare(folder)
    assert "the runs have several suites: artificial, another" in found.out
    assert "the runs have several versions of tare: 0.1.0, 0.0.9" in found.out


def test_what_is_no_fleet_is_refused(two_kinds: Path, tmp_path: Path, compare: Compare) -> None:
    (tmp_path / "empty").mkdir()
    assert compare(tmp_path / "empty").error[0] == f"{tmp_path / 'empty'}: not a fleet: no folder in it is a run"
    found = compare(two_kinds, tmp_path / "empty")
    assert found.error[0] == f"{tmp_path / 'empty'}: not a fleet: no folder in it is a run"
    assert compare(two_kinds, two_kinds).error[0].endswith("are the same fleet")
    assert compare(two_kinds, "--stack", "dokcer").error == ("no run has a stack dokcer", 'did you mean "docker"?')
    assert compare(two_kinds, "--baseline", "lxd").error[0].endswith("has no stack lxd")
    others = fleet(tmp_path / "others", [Make(2)])
    for path in [*others.iterdir()]:
        path.rename(others / f"x-{path.name}")
    assert compare(two_kinds, others).error[0].endswith("have no machine in common")
    assert compare(two_kinds, two_kinds / "a1").error[0].endswith("not a fleet: no folder in it is a run")
