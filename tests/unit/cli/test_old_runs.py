"""Run folders of format 1, as tare wrote them before there were turns: all that reads runs reads them, too."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from runs import MACHINE

from tare.__main__ import run
from tare.cli import app

SAMPLE = (Path(__file__).parents[2] / "samples/dhrystone/one-second.txt").read_text()
SPEEDS = {"native": 35e6, "native-again": 35e6, "docker": 28e6}
NOISE = (1.0, 1.004, 0.997, 1.002, 0.999, 1.003, 0.996, 1.001)
SUITE = '[suite]\nstacks = ["native", "docker"]\n[[workloads]]\nuse = "dhrystone"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "old"
    (found / "raw").mkdir(parents=True)
    (found / "suite.toml").write_text(SUITE)
    (found / "run.json").write_text(json.dumps(record()))
    lines = []
    for block, noise in enumerate(NOISE):
        for order, (stack, speed) in enumerate(SPEEDS.items()):
            line = trial(f"dhrystone-{block:03d}-{order}-{stack}", stack, (block, order), speed * noise ** (order + 1))
            text = SAMPLE.replace("34978047.164", f"{line['values'][0]['value']:.3f}")
            raw = {"label": "dhrystone", "argv": ["dhrystone"], "text": text, "seconds": 1.2, "client_cpu": None}
            (found / "raw" / f"{line['trial']}.json").write_text(json.dumps([raw]))
            lines.append(json.dumps(line) + "\n")
    (found / "trials.jsonl").write_text("".join(lines))
    return found


def record() -> dict[str, Any]:
    metric = {"name": "speed", "title": "Dhrystone speed", "unit": "dhrystones/s", "better": "higher"}
    workload = {"name": "dhrystone", "use": "dhrystone", "title": "Dhrystone 2.1", "metrics": [metric], "sweep": None}
    plan = {"suite": "old", "seed": 1, "baseline": "native", "blocks": len(NOISE), "stacks": list(SPEEDS)}
    ground = {"image": "5e" * 32, "packages": "base-files 12.4\n", "machine": asdict(MACHINE), "noise": []}
    told = {"format": 1, "tare": "0.1.0", "started": "2024-05-01T10:00:00+00:00", "again": "native-again"}
    return {**told, **plan, "workloads": [workload | {"settings": {"duration": 1.0}}], **ground}


def trial(name: str, stack: str, place: tuple[int, int], speed: float) -> dict[str, Any]:
    value = {"metric": "speed", "point": None, "value": round(speed, 3), "unit": "dhrystones/s", "better": "higher"}
    what = {"format": 1, "trial": name, "block": place[0], "order": place[1], "workload": "dhrystone", "stack": stack}
    ended = {"status": "ok", "reason": "", "started": 1.7e9, "seconds": 2.0, "values": [value]}
    marks = [{"name": "requested", "seconds": 0.0}, {"name": "ready", "seconds": 0.1}]
    footprint = {"memory_bytes": 1 << 20, "kernel_bytes": None, "disk_bytes": 0, "processes": 1}
    limits = {"cpus": [0], "memory_bytes": 512 << 20, "open_files": 4096}
    seen = {"asked": limits, "seen": {"cpus": 1, "memory_bytes": 512 << 20, "open_files": 4096}}
    rest = {"path": "bridge", "proof": [], "cautions": [], "commands": [["dhrystone"]]}
    return {**what, **ended, "timeline": marks, "footprint": footprint, "limits": seen, **rest}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare", "RUN"), "docker"),
        (("compare", "RUN", "LATER"), "dhrystone"),
        (("show", "RUN"), "dhrystone-007-2-docker"),
        (("show", "RUN", "dhrystone-000-2-docker"), "28000000"),
        (("reparse", "RUN"), "0 of 24 trials changed"),
        (("claims", "RUN"), "not tested"),
        (("query", "RUN", "select stack, count(*) as many from trials group by stack"), "docker"),
        (("plan", "RUN/suite.toml", "--from", "RUN"), "blocks for 3 %"),
        (("report", "RUN", "--format", "html,csv,json,markdown,latex"), ""),
    ],
)
def test_a_run_of_before_there_were_turns_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    later = shutil.copytree(folder, folder.parent / "later")
    journal = (folder / "trials.jsonl").read_bytes()
    (later / "trials.jsonl").write_bytes(journal.replace(b"1700000000.0", b"1800000000.0"))
    code = run(app, [word.replace("RUN", str(folder)).replace("LATER", str(later)) for word in words])
    captured = capsys.readouterr()
    assert (code, told in captured.out + captured.err) == (0, True), captured.out + captured.err
    assert (folder / "trials.jsonl").read_bytes() == journal


def test_the_report_of_a_run_of_before_there_were_turns_decides_and_has_no_turns(folder: Path) -> None:
    assert run(app, ["report", str(folder), "--format", "json"]) == 0
    cells = json.loads((folder / "report/report.json").read_text())["cells"]
    assert {cell["stack"]: cell["decision"] for cell in cells}["docker"] == "worse"
    assert {cell["turns"] for cell in cells} == {0}


def test_reparse_mends_a_value_of_a_run_of_before_there_were_turns(folder: Path) -> None:
    path = folder / "trials.jsonl"
    path.write_text(path.read_text().replace('"value": 28000000.0', '"value": 7.0'))
    assert run(app, ["reparse", str(folder)]) == 0
    first = next(line for line in path.read_text().splitlines() if "dhrystone-000-2-docker" in line)
    assert json.loads(first)["values"][0]["value"] == 28e6


def test_an_old_run_has_the_figure_and_the_costs_against_what_it_knew(folder: Path) -> None:
    assert run(app, ["report", str(folder), "--format", "html,svg,card"]) == 0
    html = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert "1 of 1 results are decided." in html
    trade = (folder / "report" / "figures" / "00-trade.svg").read_text(encoding="utf-8")
    assert "Memory" in trade
    assert "Start-up" in trade
    assert ">Isolation<" not in trade  # the families of its stacks are unknown
    assert (folder / "report" / "card.png").stat().st_size > 1000
