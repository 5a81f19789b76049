"""A run that is stopped or killed: what it leaves, what removes that, and how it goes on."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from calls import Begin, Call, NothingLeft
from own_disks import micro_initrd
from waiting import ENOUGH_SECONDS, wait_until
from whole_runs import HANGING, IMAGE, SERVED, SUITE, assert_complete

from tare.model.files import read_text
from tare.model.image import Image
from tare.model.run_folder import load_run

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]

# It has another address than tare gives it, so that tare waits for it.
ASKING = f"""\
[suite]
stacks = ["machine-asks"]
{IMAGE}
[stacks.machine-asks]
stack = "machine"
monitor = "qemu-tcg"
kernel = "{{}}"
initrd = "{{}}"
arguments = "console=ttyS0 address=198.18.7.7"
service = "micro-http"

[[workloads]]
use = "startup"
"""
Started = tuple[Path, subprocess.Popen[str]]


def lines(run: Path) -> int:
    return read_text(str(run / "trials.jsonl")).count("\n")


@pytest.fixture
def half_done(begin: Begin, suite: Path, tmp_path: Path, ready_home: Path) -> Iterator[Started]:
    """A run in the middle of a trial, of which four or more are recorded; its folder and its process."""
    run = tmp_path / "run"
    with begin("run", suite, "--out", run) as process:
        wait_in_run(process, tmp_path, lambda: lines(run) >= 4 and begun(ready_home))
        yield run, process


def wait_in_run(process: subprocess.Popen[str], folder: Path, condition: Callable[[], object]) -> None:
    """Wait until a condition holds, while the run goes on that writes to the folder's `said`."""
    deadline = time.monotonic() + ENOUGH_SECONDS
    while not condition():
        assert process.poll() is None, read_text(str(folder / "said"))
        assert time.monotonic() < deadline, read_text(str(folder / "said"))
        time.sleep(0.01)


def begun(home: Path) -> list[Path]:
    """Return the folders of the instances that are there."""
    return [path for path in (home / "instances").glob("*") if not path.name.endswith("-client")]


def test_ctrl_c_ends_the_trial_and_cleans_up_and_the_run_can_go_on(
    tare: Call, half_done: Started, suite: Path, tmp_path: Path, ready_home: Path
) -> None:
    run, process = half_done
    process.send_signal(signal.SIGINT)
    assert process.wait(ENOUGH_SECONDS) == 130
    said = read_text(str(tmp_path / "said"))
    assert f"resume with: tare run --resume {run}" in said
    assert "Traceback" not in said
    before = load_run(run).trials
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
    assert load_run(run).record.clients == {"other": "procps 0", digest: packages}
    assert "the budget is used up" in limited.stderr
    assert len(before) < lines(run) < 18

    rest = tare("run", "--resume", run)
    assert rest.returncode == 0, rest.stderr
    trials = assert_complete(run, suite)
    assert trials[: len(before)] == before
    assert tare("report", run).returncode == 0


def test_what_a_killed_run_left_is_removed_by_clean_and_the_run_can_go_on(
    tare: Call, half_done: Started, suite: Path, ready_home: Path
) -> None:
    run, process = half_done
    process.kill()
    process.wait(ENOUGH_SECONDS)
    assert list((ready_home / "ledger").iterdir())
    assert f"tare-{process.pid:x}-client" in namespaces()

    cleaned = tare("clean")
    assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean")
    assert "undone: ip netns delete" in cleaned.stderr
    assert f"tare-{process.pid:x}-client" not in namespaces()
    assert not (ready_home / "instances").exists()
    assert not list((ready_home / "ledger").iterdir())

    before = load_run(run).trials
    rest = tare("run", "--resume", run)
    assert rest.returncode == 0, rest.stderr
    assert assert_complete(run, suite)[: len(before)] == before


def test_the_load_of_a_killed_run_dies_with_it(begin: Begin, tare: Call, tmp_path: Path, ready_home: Path) -> None:
    (tmp_path / "long.toml").write_text(SERVED.replace("200ms", "40s"))
    with begin("run", "long.toml", "--out", tmp_path / "run") as process:
        mark = f"TARE_CLIENT=tare-{process.pid:x}-client"
        wait_in_run(process, tmp_path, lambda: [name for name in carrying(mark) if name not in ("supervise", "probe")])
        process.kill()
        process.wait(ENOUGH_SECONDS)
    wait_until(lambda: not carrying(mark))
    assert tare("clean").returncode == 0
    assert not list((ready_home / "ledger").iterdir())


def test_the_threads_that_keep_cpus_awake_die_with_a_killed_run(
    begin: Begin, tare: Call, tmp_path: Path, ready_home: Path
) -> None:
    suite = SERVED.replace("[suite]", '[suite]\nkeep_awake = "on"').replace('"1s"', '"40s"')
    (tmp_path / "long.toml").write_text(suite)
    with begin("run", "long.toml", "--out", tmp_path / "run") as process:
        mark = f"tare-{process.pid:x}-awake"
        wait_in_run(process, tmp_path, lambda: "keep_awake" in in_group(mark))
        process.kill()
        process.wait(ENOUGH_SECONDS)
    wait_until(lambda: not in_group(mark))
    assert tare("clean").returncode == 0
    assert not list((ready_home / "ledger").iterdir())


def test_the_dhcp_server_of_a_killed_run_dies_with_it(begin: Begin, tare: Call, tmp_path: Path, image: Image) -> None:
    initrd = micro_initrd(image, tmp_path / "initrd")
    (tmp_path / "asking.toml").write_text(ASKING.format(image.kernel, initrd))
    with begin("run", "asking.toml", "--out", tmp_path / "run") as process:
        mark = f"/tare-{process.pid:x}-dhcp/"
        wait_in_run(process, tmp_path, lambda: "dnsmasq" in naming(mark))
        process.kill()
        process.wait(ENOUGH_SECONDS)
    wait_until(lambda: not naming(mark))
    assert tare("clean").returncode == 0


def naming(mark: str) -> list[str]:
    """Return the programs of the processes whose words have this mark."""
    words = (read_text(str(path)).split("\0") for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [each[0] for each in words if any(mark in word for word in each)]


def in_group(mark: str) -> list[str]:
    """Return the names of the processes in a control group with this mark."""
    groups = [path for path in Path("/proc").glob("[0-9]*/cgroup") if mark in read_text(str(path))]
    return [read_text(str(path.with_name("comm"))).strip() for path in groups]


def carrying(mark: str) -> list[str]:
    """Return the names of the processes that have an entry in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append((place / "comm").read_text(encoding="utf-8").strip())
    return found


@pytest.mark.usefixtures("ready_home")
@pytest.mark.parametrize(
    "at_once",
    [
        pytest.param(True, id="cleaned at once"),
        pytest.param(False, marks=pytest.mark.slow, id="cleaned once its container has ended"),
    ],
)
def test_nothing_is_left_of_a_podman_trial_of_a_killed_run(
    begin: Begin, tare: Call, tmp_path: Path, nothing_left: NothingLeft, at_once: bool
) -> None:
    if not shutil.which("podman"):
        pytest.skip("apt-get install podman")
    suite = SUITE.replace('["native", "crun", "bubblewrap", "docker"]', '["podman"]')
    (tmp_path / "podman.toml").write_text(suite.replace("200ms", "30s"))
    with nothing_left():
        with begin("run", "podman.toml", "--out", tmp_path / "run") as process:
            mark = f"tare-{process.pid:x}-"
            # Not by `podman ps`: from outside the mounts of the run it cannot join the container's network namespace.
            wait_in_run(process, tmp_path, lambda: is_monitored(mark))
            process.kill()
            process.wait(ENOUGH_SECONDS)
        wait_until(lambda: at_once or not is_monitored(mark))
        assert mark in rules()
        cleaned = tare("clean")
        assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean")
        assert mark not in rules()


def rules() -> str:
    return subprocess.run(("iptables-save",), capture_output=True, text=True, check=True).stdout


def is_monitored(name: str) -> bool:
    """Return whether Podman's monitor runs a container whose name begins so."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = place.read_bytes().split(b"\0")
            if words[0].endswith(b"/conmon") and any(word.startswith(name.encode()) for word in words):
                return True
    return False


def namespaces() -> str:
    return subprocess.run(("ip", "netns", "list"), capture_output=True, text=True, check=True).stdout


def test_a_second_run_and_clean_wait_for_the_first_which_ends_at_ctrl_c(
    tare: Call, begin: Begin, tmp_path: Path
) -> None:
    suite, run = tmp_path / "hanging.toml", tmp_path / "run"
    suite.write_text(HANGING)
    with begin("run", suite, "--out", run) as process:
        wait_in_run(process, tmp_path, run.exists)
        what = f"another tare runs on this machine: tare run {suite} --out {run}"[:120]
        for command in (("run", suite, "--out", "second"), ("clean",)):
            output = tare(*command)
            assert (output.returncode, output.stdout) == (3, "")
            error, hint = output.stderr.splitlines()
            assert error.startswith(f"error: {what}")
            assert error.endswith(f"(process {process.pid})")
            assert hint == "hint: wait until it has ended; tare run has --wait for that"
        assert not (tmp_path / "second").exists()
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)  # impatience does no harm
        assert process.wait(ENOUGH_SECONDS) == 130
    assert load_run(run).trials == ()
    assert "resume with: tare run --resume" in read_text(str(tmp_path / "said"))


def test_a_run_that_waits_says_for_whom_and_begins_when_that_has_ended(
    begin: Begin, environment: dict[str, str], tmp_path: Path
) -> None:
    hanging, quick = tmp_path / "hanging.toml", tmp_path / "quick.toml"
    hanging.write_text(HANGING)
    quick.write_text(HANGING.replace('fails = "hang"', ""))
    with begin("run", hanging, "--out", tmp_path / "run") as process:
        wait_in_run(process, tmp_path, (tmp_path / "run").exists)
        command = (sys.executable, "-m", "tare", "run", str(quick), "--out", "second", "--wait")
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as waiting:
            assert waiting.stderr is not None
            said = waiting.stderr.readline()
            assert said.startswith("waiting: another tare runs on this machine: tare run ")
            assert said.rstrip().endswith(f"(process {process.pid})")
            assert waiting.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(ENOUGH_SECONDS) == 130
            waiting.communicate(timeout=ENOUGH_SECONDS)
            assert waiting.returncode == 0
    assert {trial.status for trial in load_run(tmp_path / "second").trials} == {"ok"}


def test_a_run_folder_that_can_only_be_read_loses_nothing_and_is_said(tare: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (tmp_path / "suite.toml").write_text('[suite]\nstacks = ["native"]\nblocks = 1\n[[workloads]]\nuse = "startup"\n')
    assert tare("run", str(tmp_path / "suite.toml"), "--out", str(run)).returncode == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    subprocess.run(("mount", "--bind", run, run), check=True)
    try:
        subprocess.run(("mount", "-o", "remount,bind,ro", run), check=True)
        done = tare("run", "--resume", str(run))
    finally:
        subprocess.run(("umount", run), check=True)
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()[-2:]] == ["error", "hint"]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
