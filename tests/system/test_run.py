"""Whole runs on real technologies: to the end, stopped by Ctrl-C, killed, and gone on with."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from tare.hosts.local import read_text
from tare.journal import load, load_raw
from tare.model import Trial
from tare.statistics.summarize import summarize
from tare.suites.plan import plan
from tare.suites.suite import read_suite

pytestmark = pytest.mark.machine

Call = Callable[..., subprocess.CompletedProcess[str]]
Quickly = Callable[..., tuple[int, str, str]]
Begin = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
NothingLeft = Callable[[], AbstractContextManager[None]]
ENOUGH_SECONDS = 60.0

SUITE = """\
[suite]
stacks = ["native", "crun", "bubblewrap", "docker"]
blocks = 2
seed = 5

[[workloads]]
use = "dhrystone"
duration = "200ms"

[[workloads]]
use = "startup"
"""
SERVED = """\
[suite]
stacks = ["native", "crun", "nspawn"]
blocks = 1

[[workloads]]
use = "nginx"
clients = [5]
duration = "1s"
"""
# What a run of tare's own fakes takes depends on nothing but tare; this one hangs in its first trial for a minute.
HANGING = """\
[suite]
stacks = ["stuck"]

[stacks.stuck]
stack = "fake"
fails = "hang"

[[workloads]]
use = "dhrystone"
"""


@pytest.fixture(autouse=True)
def _machine_as_before(ready_home: Path, nothing_left: NothingLeft) -> Iterator[None]:
    """Every test here has a home with the image, and leaves the machine as it found it."""
    with nothing_left():
        yield
    assert not list((ready_home / "ledger").glob("*"))
    assert not list((ready_home / "instances").glob("*"))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of 3 stacks that can be used and one that cannot, 2 workloads, 2 blocks: 16 trials and 2 skips."""
    path = tmp_path / "short.toml"
    path.write_text(SUITE)
    return path


def planned(suite: Path) -> list[str]:
    """Trials of a suite that are no skips."""
    return [step.trial for block in plan(read_suite(suite)) for step in block.steps if step.stack != "docker"]


def lines(run: Path) -> int:
    return read_text(str(run / "trials.jsonl")).count("\n")


def wait_for_the_middle_of_a_trial(process: subprocess.Popen[str], home: Path, run: Path, trials: int) -> None:
    """Wait until this many trials are recorded and another instance is there."""
    deadline = time.monotonic() + ENOUGH_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, read_text(str(run.parent / "said"))
        begun = [path for path in (home / "instances").glob("*") if not path.name.endswith("-client")]
        if lines(run) >= trials and begun:
            return
        time.sleep(0.01)
    pytest.fail(f"no {trials} trials within {ENOUGH_SECONDS:g} s: {read_text(str(run.parent / 'said'))}")


def assert_complete(run: Path, suite: Path) -> tuple[Trial, ...]:
    """Check that no trial of a run is lost or doubled, and give them."""
    trials = load(run).trials
    counts = Counter(trial.trial for trial in trials if trial.status != "skipped")
    assert set(counts) == set(planned(suite))
    assert set(counts.values()) == {1}
    assert [(trial.trial, trial.reason) for trial in trials if trial.status == "failed"] == []
    assert Counter((trial.stack, trial.workload) for trial in trials if trial.status == "skipped") == {
        ("docker", "dhrystone"): 1,
        ("docker", "startup"): 1,
    }
    return trials


def test_the_quick_example_runs_its_first_block_on_everything_that_is_usable(tare: Call, tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    output = tare("run", examples / "quick.toml", "--budget", "1s", "--out", "run")
    assert output.returncode == 0, output.stderr
    trials = load(tmp_path / "run").trials
    assert [trial.reason for trial in trials if trial.status == "failed"] == []
    assert sum(trial.status == "ok" for trial in trials) >= 9
    assert {trial.workload for trial in trials} == {"startup"}
    assert "the budget is used up" in output.stderr


def test_a_served_file_is_on_the_same_file_system_in_every_container_and_the_run_has_it(
    tare: Call, tmp_path: Path
) -> None:
    suite = tmp_path / "served.toml"
    suite.write_text(SERVED)
    output = tare("run", suite, "--out", "run")
    assert output.returncode == 0, output.stderr
    run = load(tmp_path / "run")
    found = {trial.stack: trial.file_systems for trial in run.trials if trial.status == "ok"}
    assert {"native", "crun"} <= found.keys()
    assert [each.path for each in found["native"]] == ["/srv/tare-nginx-file"]
    assert len(set(found.values())) == 1, found
    assert "file-system-differs" not in {caution.kind for cell in summarize(run).cells for caution in cell.cautions}


def test_a_run_measures_what_can_be_used_and_says_why_the_rest_was_skipped(
    tare: Call, suite: Path, tmp_path: Path
) -> None:
    output = tare("run", suite, "--out", "run")
    assert output.returncode == 0, output.stderr
    run = tmp_path / "run"
    trials = assert_complete(run, suite)
    for trial in (trial for trial in trials if trial.status == "ok"):
        [value] = trial.values
        assert value.value > 0
        assert trial.limits is not None
        assert (trial.limits.seen.cpus, trial.limits.seen.open_files) == (1, 4096)
        assert trial.footprint is not None
        assert trial.footprint.processes >= 1
        assert [mark.name for mark in trial.timeline if mark.name in ("requested", "ready")] == ["requested", "ready"]
        assert trial.path == "bridge"
        assert load_raw(run, trial.trial)[0].text
        assert (run / "telemetry" / f"{trial.trial}.parquet").stat().st_size > 0
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
    assert all(trial.trial in out for trial in load(run).trials)
    code, out, err = quickly("show", "run", "dhrystone-000-00-xen")
    assert (code, out) == (2, "")
    assert err.startswith("error: run: no trial dhrystone-000-00-xen\nhint: did you mean ")
    before = (run / "trials.jsonl").read_bytes()
    assert quickly("reparse", "run") == (0, "", "0 of 6 trials changed\n")
    assert (run / "trials.jsonl").read_bytes() == before
    code, out, err = quickly("report", "run", "--format", "html,pdf", "--out", "elsewhere")
    assert (code, out) == (2, "")
    assert err.startswith("error: no report format named 'pdf'\nhint: there are ")
    assert not (tmp_path / "elsewhere").exists()
    code, out, _ = quickly("report", "run", "--format", "json,csv", "--out", "elsewhere")
    assert code == 0
    assert {Path(line).suffix for line in out.splitlines()} == {".json", ".csv"}
    assert all((tmp_path / line).stat().st_size for line in out.splitlines())

    (tmp_path / "file").touch()
    code, out, err = quickly("report", "run", "--out", "file")
    assert (code, out, err.splitlines()[1]) == (2, "", "hint: give another folder by --out")
    assert err.startswith("error: file: cannot be written: ")

    record = json.loads((run / "run.json").read_text())
    record["machine"]["cpus"] += 1
    (run / "run.json").write_text(json.dumps(record))
    output = tare("run", "--resume", "run")
    assert (output.returncode, output.stdout) == (2, "")
    assert "error: the run was made on another machine, or on this one before a change\n" in output.stderr
    assert (run / "trials.jsonl").read_bytes() == before


def test_ctrl_c_ends_the_trial_and_cleans_up_and_the_run_can_go_on(
    tare: Call, begin: Begin, suite: Path, tmp_path: Path, ready_home: Path
) -> None:
    run = tmp_path / "run"
    with begin("run", suite, "--out", run) as process:
        wait_for_the_middle_of_a_trial(process, ready_home, run, trials=4)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    said = read_text(str(tmp_path / "said"))
    assert f"go on with: tare run --resume {run}" in said
    assert "Traceback" not in said
    before = load(run).trials
    assert 4 <= len(before) < 15
    assert (run / "report" / "index.html").exists()
    assert not list((ready_home / "instances").iterdir())
    assert not list((ready_home / "ledger").iterdir())

    # Made with other load generators: that is recorded, and stops nothing.
    record = json.loads((run / "run.json").read_text())
    ((digest, packages),) = record["clients"].items()
    assert "procps " in packages
    (run / "run.json").write_text(json.dumps(record | {"clients": {"other": "procps 0"}}))
    limited = tare("run", "--resume", run, "--budget", "1ms")
    assert limited.returncode == 0, limited.stderr
    assert load(run).record.clients == {"other": "procps 0", digest: packages}
    assert "the budget is used up" in limited.stderr
    assert len(before) < lines(run) < 18

    rest = tare("run", "--resume", run)
    assert rest.returncode == 0, rest.stderr
    trials = assert_complete(run, suite)
    assert trials[: len(before)] == before
    assert tare("report", run).returncode == 0


def test_what_a_killed_run_left_is_removed_by_clean_and_the_run_can_go_on(
    tare: Call, begin: Begin, suite: Path, tmp_path: Path, ready_home: Path
) -> None:
    run = tmp_path / "run"
    with begin("run", suite, "--out", run) as process:
        wait_for_the_middle_of_a_trial(process, ready_home, run, trials=4)
        process.kill()
        process.wait(20)
    assert list((ready_home / "ledger").iterdir())
    assert f"tare-{process.pid:x}-client" in namespaces()

    cleaned = tare("clean")
    assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean")
    assert "undone: ip netns delete" in cleaned.stderr
    assert f"tare-{process.pid:x}-client" not in namespaces()
    assert not (ready_home / "instances").exists()
    assert not list((ready_home / "ledger").iterdir())

    before = load(run).trials
    rest = tare("run", "--resume", run)
    assert rest.returncode == 0, rest.stderr
    assert assert_complete(run, suite)[: len(before)] == before


def test_the_load_of_a_killed_run_dies_with_it(begin: Begin, tare: Call, tmp_path: Path, ready_home: Path) -> None:
    (tmp_path / "long.toml").write_text(SERVED.replace('"1s"', '"40s"'))
    with begin("run", "long.toml", "--out", tmp_path / "run") as process:
        mark = f"TARE_CLIENT=tare-{process.pid:x}-client"
        deadline = time.monotonic() + ENOUGH_SECONDS
        while not [name for name in carrying(mark) if name not in ("run", "knock")]:
            assert process.poll() is None, read_text(str(tmp_path / "said"))
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        process.wait(20)
    deadline = time.monotonic() + 5
    while carrying(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert carrying(mark) == []
    assert tare("clean").returncode == 0
    assert not list((ready_home / "ledger").iterdir())


def carrying(mark: str) -> list[str]:
    """Give the names of the processes that have an entry in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append((place / "comm").read_text(encoding="utf-8").strip())
    return found


@pytest.mark.usefixtures("ready_home")
def test_nothing_is_left_of_a_podman_trial_of_a_killed_run(
    begin: Begin, tare: Call, tmp_path: Path, nothing_left: NothingLeft
) -> None:
    if not shutil.which("podman"):
        pytest.skip("apt-get install podman")
    suite = SUITE.replace('["native", "crun", "bubblewrap", "docker"]', '["podman"]')
    (tmp_path / "podman.toml").write_text(suite.replace("200ms", "30s"))
    with nothing_left():
        with begin("run", "podman.toml", "--out", tmp_path / "run") as process:
            deadline = time.monotonic() + ENOUGH_SECONDS
            # Not by `podman ps`: from outside the mounts of the run it cannot join the container's network namespace.
            while not is_monitored(f"tare-{process.pid:x}-"):
                assert process.poll() is None, read_text(str(tmp_path / "said"))
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.kill()
            process.wait(20)
        assert f"tare-{process.pid:x}-" in rules()
        cleaned = tare("clean")
        assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean")
        assert f"tare-{process.pid:x}-" not in rules()


def rules() -> str:
    return subprocess.run(("iptables-save",), capture_output=True, text=True, check=True).stdout


def is_monitored(name: str) -> bool:
    """Tell whether Podman's monitor runs a container whose name begins so."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = place.read_bytes().split(b"\0")
            if words[0].endswith(b"/conmon") and any(word.startswith(name.encode()) for word in words):
                return True
    return False


def namespaces() -> str:
    return subprocess.run(("ip", "netns", "list"), capture_output=True, text=True, check=True).stdout


def test_a_second_run_and_clean_wait_for_the_first_which_ends_at_ctrl_c_even_when_a_program_hangs(
    tare: Call, begin: Begin, tmp_path: Path
) -> None:
    suite, run = tmp_path / "hanging.toml", tmp_path / "run"
    suite.write_text(HANGING)
    with begin("run", suite, "--out", run) as process:
        deadline = time.monotonic() + ENOUGH_SECONDS
        while not run.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        held = (
            3,
            "",
            f"error: another tare runs on this machine (process {process.pid})\nhint: wait until it has ended\n",
        )
        for command in (("run", suite, "--out", "second"), ("clean",)):
            output = tare(*command)
            assert (output.returncode, output.stdout, output.stderr) == held
        assert not (tmp_path / "second").exists()
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)  # impatience does no harm
        assert process.wait(20) == 130
    assert load(run).trials == ()
    assert "go on with: tare run --resume" in read_text(str(tmp_path / "said"))


def test_a_run_in_which_nothing_could_be_measured_says_so(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(HANGING.replace('"hang"', '"garbage"').replace("[stacks", "blocks = 2\n[stacks"))
    output = tare("run", "bad.toml", "--out", "run")
    assert (output.returncode, output.stdout) == (3, "")
    assert output.stderr.endswith(
        "error: nothing could be measured\nhint: `tare show run` lists the trials with their reasons\n"
    )
    last = next(trial.trial for trial in load(tmp_path / "run").trials if (trial.stack, trial.block) == ("stuck", 1))
    shown = tare("show", "run", last)
    assert "failed dhrystone gave no verified speed" in shown.stdout
    assert "garbage: nan inf -1" in shown.stdout


def test_a_run_folder_that_cannot_be_made_is_told(tare: Call, suite: Path) -> None:
    suite.write_text(SUITE.replace('"crun", "bubblewrap", ', ""))
    output = tare("run", suite, "--out", "/proc/nowhere/run")
    assert (output.returncode, output.stdout) == (2, "")
    assert output.stderr.splitlines()[-2:] == [
        "error: /proc/nowhere/run: cannot be made: no such file or directory",
        "hint: give another folder by --out",
    ]


def test_a_suite_of_which_nothing_can_be_used_leaves_no_run(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text('[suite]\nstacks = ["docker"]\n[[workloads]]\nuse = "startup"\n')
    output = tare("run", "none.toml", "--out", "run")
    assert (output.returncode, output.stdout) == (3, "")
    assert "error: none of the suite's stacks can run here\nhint: `tare doctor` says how to mend that" in output.stderr
    assert not (tmp_path / "run").exists()
