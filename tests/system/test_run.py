"""Whole runs on real technologies, to the end: test_stopped_run.py has those that are stopped or killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from calls import Call, Quickly
from whole_runs import HANGING, SERVED, SUITE, assert_complete

from tare.model.run_folder import load_raw, load_run
from tare.statistics.summarize import summarize

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]


@pytest.mark.slow  # `make demo` runs it for longer
def test_the_quick_example_runs_its_first_block_on_all_usable_stacks(tare: Call, tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    output = tare("run", examples / "quick.toml", "--budget", "1s", "--out", "run")
    assert output.returncode == 0, output.stderr
    trials = load_run(tmp_path / "run").trials
    assert [trial.reason for trial in trials if trial.status == "failed"] == []
    assert sum(trial.status == "ok" for trial in trials) >= 8
    assert {trial.workload for trial in trials} == {"startup"}
    assert "the budget is used up" in output.stderr


def test_a_served_file_has_the_same_recorded_file_system_in_all_containers(tare: Call, tmp_path: Path) -> None:
    suite = tmp_path / "served.toml"
    suite.write_text(SERVED)
    output = tare("run", suite, "--out", "run")
    assert output.returncode == 0, output.stderr
    run = load_run(tmp_path / "run")
    found = {trial.stack: trial.file_systems for trial in run.trials if trial.status == "ok"}
    assert {"native", "crun"} <= found.keys()
    assert [each.path for each in found["native"]] == ["/srv/tare-nginx-file"]
    assert len(set(found.values())) == 1, found
    assert "file-system-differs" not in {caution.kind for cell in summarize(run).cells for caution in cell.cautions}


FROM_PYTHON = """
import os, sys
from tare import load, run
from tare.runner.events import BlockEnded

blocks = []
cpus = os.sched_getaffinity(0)


def keep(event):
    if isinstance(event, BlockEnded):
        blocks.append(event)


done = run(sys.argv[1], out="run", budget="10m", report=keep)
assert os.sched_getaffinity(0) == cpus
assert blocks[-1].run.trials == done.trials
print(done.record.stop_reason, len(blocks), len(done.trials), len(load(done.folder).trials.rows()))
"""


def test_a_run_from_python_needs_no_terminal_and_prints_nothing(
    environment: dict[str, str], suite: Path, tmp_path: Path
) -> None:
    suite.write_text(SUITE.replace("blocks = 2", "blocks = 1"))
    command = (sys.executable, "-c", FROM_PYTHON, str(suite))
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    trials = assert_complete(tmp_path / "run", suite)
    assert done.stdout == f"plan 2 {len(trials)} {len(trials)}\n"


def test_a_run_measures_what_can_be_used_and_says_why_the_rest_was_skipped(
    tare: Call, suite: Path, tmp_path: Path
) -> None:
    output = tare("run", suite, "--out", "run")
    assert output.returncode == 0, output.stderr
    run = tmp_path / "run"
    trials = assert_complete(run, suite)
    with duckdb.connect() as connection:
        series = connection.read_parquet(str(run / "telemetry" / "*.parquet"))
        sampled = {trial for (trial,) in series.project("trial").distinct().fetchall()}
    for trial in (trial for trial in trials if trial.status == "ok"):
        [value] = trial.values
        assert value.value > 0
        assert trial.limits is not None
        assert (trial.limits.seen.cpus, trial.limits.seen.open_files) == (1, 4096)
        assert trial.footprint is not None
        assert trial.footprint.processes >= 1
        marks = [mark.name for mark in trial.timeline if mark.name in ("requested", "ready")]
        # Another trial of the block may have started its instance.
        assert marks == ["requested", "ready"] or (trial.workload != "startup" and not marks)
        assert trial.path == "bridge"
        assert load_raw(run, trial.trial)[0].text
        assert trial.trial in sampled
    assert {trial.reason.partition(":")[0] for trial in trials if trial.stack == "docker"} <= {
        "no daemon",
        "docker is not installed (fix",
    }
    page = (run / "report" / "index.html").read_text()
    for stack in ("native", "crun", "bubblewrap"):
        assert stack in output.stdout
        assert stack in page
    assert "skipped: docker: " in output.stderr
    assert "report: run/report/index.html" in output.stderr
    assert "all blocks are done: 16 trials ok, 0 failed" in output.stderr
    assert (run / "suite.toml").read_text() == suite.read_text()


def test_a_run_can_be_read_by_the_commands_that_read_runs(
    tare: Call, quickly: Quickly, suite: Path, tmp_path: Path
) -> None:
    suite.write_text(SUITE.replace("blocks = 2", "blocks = 1").replace('"crun", "bubblewrap", ', ""))
    assert tare("run", suite, "--out", "run").returncode == 0
    run = tmp_path / "run"
    code, out, _ = quickly("show", "run")
    assert code == 0
    assert all(trial.trial in out for trial in load_run(run).trials)
    code, out, err = quickly("show", "run", "dhrystone-000-00-xen")
    assert (code, out) == (2, "")
    assert err.startswith("error: run: no trial dhrystone-000-00-xen\nhint: did you mean ")
    before = (run / "trials.jsonl").read_bytes()
    assert quickly("reparse", "run") == (0, "", "0 of 6 trials changed\n")
    assert (run / "trials.jsonl").read_bytes() == before
    code, out, err = quickly("report", "run", "--format", "html,docx", "--out", "elsewhere")
    assert (code, out) == (2, "")
    assert err.startswith("error: no report format named 'docx'\nhint: there are ")
    assert not (tmp_path / "elsewhere").exists()
    code, out, _ = quickly("report", "run", "--format", "json,csv", "--out", "elsewhere")
    assert code == 0
    assert {Path(line).suffix for line in out.splitlines()} == {".json", ".csv"}
    assert all((tmp_path / line).stat().st_size for line in out.splitlines())

    (tmp_path / "file").touch()
    code, out, err = quickly("report", "run", "--out", "file")
    assert (code, out, err.splitlines()[1]) == (2, "", "hint: choose another folder with --out")
    assert err.startswith("error: file: already exists\n")

    record = json.loads((run / "run.json").read_text())
    record["machine"]["cpus"] += 1
    (run / "run.json").write_text(json.dumps(record))
    output = tare("run", "--resume", "run")
    assert (output.returncode, output.stdout) == (2, "")
    assert "error: the run was made on another machine, or on this one before a change\n" in output.stderr
    assert (run / "trials.jsonl").read_bytes() == before


def test_a_run_in_which_nothing_works_stops_after_a_block_with_the_reason(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(HANGING.replace('"hang"', '"garbage"').replace("[stacks", "blocks = 2\n[stacks"))
    output = tare("run", "bad.toml", "--out", "run")
    assert (output.returncode, output.stdout) == (3, "")
    error, hint = output.stderr.splitlines()[-2:]
    why = "/usr/lib/tare/dhrystone: ended; it printed"
    assert error.startswith(f"error: nothing could be measured: every stack fails for one reason: {why}")
    assert hint.startswith("hint: ")
    run = load_run(tmp_path / "run")
    assert (run.record.stop_reason, [trial.block for trial in run.trials]) == ("failing", [0, 0])
    last = next(trial.trial for trial in run.trials if trial.stack == "stuck")
    shown = tare("show", "run", last)
    assert f"failed {why}" in shown.stdout
    assert "garbage: nan inf -1" in shown.stdout


def test_a_run_folder_that_cannot_be_made_is_reported(tare: Call, suite: Path) -> None:
    suite.write_text(SUITE.replace('"crun", "bubblewrap", ', ""))
    output = tare("run", suite, "--out", "/proc/nowhere/run")
    assert (output.returncode, output.stdout) == (2, "")
    assert output.stderr.splitlines()[-2:] == [
        "error: /proc/nowhere/run: cannot create the folder: no such file or directory",
        "hint: choose another folder with --out",
    ]


def test_a_suite_of_which_nothing_can_be_used_leaves_no_run(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text('[suite]\nstacks = ["docker"]\n[[workloads]]\nuse = "startup"\n')
    output = tare("run", "none.toml", "--out", "run")
    assert (output.returncode, output.stdout) == (3, "")
    assert "error: none of the suite's stacks can run here\nhint: `tare doctor` says how to fix this" in output.stderr
    assert not (tmp_path / "run").exists()


def test_a_secret_is_in_no_file_of_a_run_but_in_the_suite_which_is_said(tare: Call, tmp_path: Path) -> None:
    secret = "correct-horse"  # noqa: S105 - of nobody
    suite, run = tmp_path / "suite.toml", tmp_path / "run"
    command = f"env API_TOKEN={secret} sh -c 'echo the token is $API_TOKEN'"
    text = '[suite]\nstacks = ["native"]\nblocks = 1\n\n[[workloads]]\nuse = "command"\n'
    suite.write_text(f'{text}command = "{command}"\n')
    done = tare("run", str(suite), "--out", str(run))
    assert done.returncode == 0, done.stderr
    assert "the run folder contains the suite as it is written, with API_TOKEN: do not share it" in done.stderr
    files = [path for path in run.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".json", ".jsonl", ".html", ".parquet"}
    assert [path.name for path in files if secret.encode() in path.read_bytes()] == ["suite.toml"]
    assert "API_TOKEN=***" in (run / "trials.jsonl").read_text()
    assert secret not in done.stdout + done.stderr


SHARED = """
[suite]
stacks = ["native", "crun", "docker", "gvisor"]
blocks = 1
until = "blocks"
[[workloads]]
use = "startup"
starts = 2
[[workloads]]
use = "dhrystone"
duration = "20ms"
[[workloads]]
use = "redis"
operations = ["GET"]
clients = [1]
duration = "20ms"
[[workloads]]
use = "nginx"
clients = [1]
duration = "20ms"
"""


def test_workloads_share_the_instances_of_a_block_and_leave_nothing_there(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "shared.toml").write_text(SHARED)
    output = tare("run", "shared.toml", "--out", "run")
    assert output.returncode == 0, output.stderr
    run = load_run(tmp_path / "run")
    assert [(trial.trial, trial.reason) for trial in run.trials if trial.status == "failed"] == []
    assert not [trial for trial in run.trials for caution in trial.cautions if caution.kind == "left-behind"]
    worked = {trial.stack for trial in run.trials if trial.status == "ok"}
    assert {"native", "native-again", "crun"} <= worked
    for stack in worked:
        here = [trial for trial in run.trials if trial.stack == stack]
        assert sorted(trial.reused for trial in here) == [False, False, True, True]
        assert [trial.workload for trial in here if trial.timeline] == ["startup"]
