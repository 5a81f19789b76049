"""A nested stack, run from its name alone: a container in an emulated machine."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from calls import Begin, NothingLeft
from waiting import ENOUGH_SECONDS
from whole_runs import IMAGE, assert_in_turns

from tare.model.files import read_text
from tare.model.run_folder import load_run

pytestmark = pytest.mark.machine

INTERRUPTED = 130
ONCE = "crun/qemu-tcg: starting qemu-tcg, to put the image into it once"
SUITE = f"""\
[suite]
stacks = ["native", "crun/qemu-tcg"]
blocks = 1
{IMAGE}
[[workloads]]
use = "redis"
operations = ["GET"]
clients = [5]
duration = "200ms"
"""


@pytest.mark.slow
@pytest.mark.usefixtures("ready_home", "nested_image")
def test_a_container_in_an_emulated_machine(
    begin: Begin, tmp_path: Path, home: Path, nothing_left: NothingLeft
) -> None:
    (tmp_path / "suite.toml").write_text(SUITE)
    with nothing_left(), begin("run", tmp_path / "suite.toml", "--out", tmp_path / "run") as process:
        assert process.wait(500) == 0, read_text(str(tmp_path / "said"))
    with nothing_left(), begin("run", tmp_path / "suite.toml", "--out", tmp_path / "run2") as process:
        deadline = time.monotonic() + ENOUGH_SECONDS
        while "stacks, results in" not in read_text(str(tmp_path / "said")):  # all is prepared
            assert process.poll() is None, read_text(str(tmp_path / "said"))
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(ENOUGH_SECONDS) == INTERRUPTED
    assert ONCE not in read_text(str(tmp_path / "said"))  # the disk of the first run was kept
    for disk in (home / "images").glob("nested-*.qcow2"):  # it is found again wherever the folder is then
        info = subprocess.run(("qemu-img", "info", "-U", "--output=json", disk), capture_output=True, check=True)
        assert not json.loads(info.stdout)["backing-filename"].startswith("/")
    trials = load_run(tmp_path / "run").trials
    assert [(trial.status, trial.reason) for trial in trials] == [("ok", "")] * 3
    assert_in_turns(trials)
    for trial in trials:
        if trial.stack != "crun/qemu-tcg":
            assert trial.layers == ()
            continue
        assert trial.path == "bridge/tap"
        assert [layer.name for layer in trial.layers] == ["qemu-tcg", "crun"]
        outer, inner = trial.layers
        assert outer.seconds > 1
        assert inner.seconds > 0
        memory = outer.footprint.memory_bytes
        assert memory is not None
        assert memory > 100 << 20  # a whole machine
        assert trial.footprint is not None
        assert (trial.footprint.memory_bytes or 0) > 100 << 20
        assert 0 < (inner.footprint.memory_bytes or 0) < memory
        names = [mark.name for mark in trial.timeline]
        assert names[0] == "requested"
        assert names[-1] == "ready"
        assert [name for name in names if ":" in name] == [
            *("qemu-tcg:started", "qemu-tcg:kernel", "qemu-tcg:userspace", "qemu-tcg:ready"),
            "crun:requested",
        ]
        # What the layers take is what the whole takes.
        ready = trial.timeline[-1].seconds
        assert outer.seconds + inner.seconds == pytest.approx(ready, abs=0.01)
        assert {"qemu-tcg: accelerator", "crun: runtime"} <= dict(trial.proof).keys()
        assert "emulated" in {caution.kind for caution in trial.cautions}
        assert trial.limits is not None
        assert trial.limits.seen.memory_bytes == 512 << 20
        assert trial.limits.seen.open_files == 4096
