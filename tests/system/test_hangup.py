"""A whole run that loses its terminal in the middle of a trial: it ends in order, and can be resumed."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from calls import Call, NothingLeft
from waiting import ENOUGH_SECONDS as SECONDS

from tare.model.files import read_text
from tare.model.run_folder import load_run

pytestmark = pytest.mark.machine

TARE = Path(sys.executable).parent / "tare"
READY_SECONDS = 300.0  # an image may have to be built first
INTERRUPTED = 130
SUITE = """\
[suite]
stacks = ["crun"]
baseline = "crun"
blocks = 2

[[workloads]]
use = "dhrystone"
duration = "400ms"
"""
# Whoever started these tests may ignore the signal, and what is started inherits that.
HEARS = ("env", "--default-signal=HUP")


@pytest.mark.slow
@pytest.mark.usefixtures("ready_home")
@pytest.mark.parametrize("lost", ["terminal", "group"])
def test_a_run_that_loses_its_terminal_cleans_up_and_can_be_resumed(
    lost: str, environment: dict[str, str], tare: Call, tmp_path: Path, nothing_left: NothingLeft
) -> None:
    (tmp_path / "short.toml").write_text(SUITE)
    run = tmp_path / "run"
    terminal, end = pty.openpty()
    argv = ("setsid", "--ctty", *HEARS, str(TARE), "run", "short.toml", "--out", str(run))
    try:
        with (
            nothing_left(),
            subprocess.Popen(argv, cwd=tmp_path, env=environment, stdin=end, stdout=end, stderr=end) as process,
        ):
            os.close(end)
            try:
                wait_for_the_second_block(terminal, process, run)
            except AssertionError:
                process.terminate()
                os.close(terminal)
                raise
            if lost == "terminal":
                os.close(terminal)  # the kernel tells the whole foreground of the terminal
            else:
                os.killpg(process.pid, signal.SIGHUP)
            assert process.wait(SECONDS) == INTERRUPTED
    finally:
        with suppress(OSError):
            os.close(terminal)
    stopped = load_run(run)
    assert (stopped.record.stop_reason, len(stopped.trials)) == ("interrupt", 2)
    assert (run / "report" / "index.html").exists()
    with nothing_left():
        rest = tare("run", "--resume", run)
    assert rest.returncode == 0, rest.stderr
    trials = load_run(run).trials
    assert trials[:2] == stopped.trials
    assert [(trial.status, trial.reason) for trial in trials] == [("ok", "")] * 4


def wait_for_the_second_block(terminal: int, process: subprocess.Popen[bytes], run: Path) -> None:
    """Read what comes on the terminal until a block is recorded and a program of the next one is running."""
    said, deadline = b"", time.monotonic() + READY_SECONDS
    while read_text(str(run / "trials.jsonl")).count("\n") < 2 or not is_running("dhrystone"):
        assert process.poll() is None, said
        assert time.monotonic() < deadline, said
        if select.select([terminal], [], [], 0.05)[0]:
            said += os.read(terminal, 65536)


def is_running(program: str) -> bool:
    return any(read_text(str(path)).strip() == program for path in Path("/proc").glob("[0-9]*/comm"))
