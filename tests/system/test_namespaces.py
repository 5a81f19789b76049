"""The network namespaces of a run, as somebody else on the machine sees them: `ip netns` is everybody's."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS as SECONDS

from tare.hosts.local import read_text

pytestmark = pytest.mark.machine

Call = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
NothingLeft = Callable[[], AbstractContextManager[None]]
SUITE = """\
[suite]
stacks = ["crun"]
baseline = "crun"

[[workloads]]
use = "dhrystone"
duration = "30s"
"""


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("ip", *words), capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.usefixtures("ready_home")
def test_ip_netns_of_others_complains_of_nothing_during_a_run_nor_after_it_was_killed(
    begin: Begin, tare: Call, tmp_path: Path, nothing_left: NothingLeft
) -> None:
    (tmp_path / "long.toml").write_text(SUITE)
    complaints = ip("netns").stderr
    with nothing_left():
        with begin("run", "long.toml", "--out", tmp_path / "run") as process:
            names = [f"tare-{process.pid:x}-{end}" for end in ("lan", "client", "inside-00")]
            deadline = time.monotonic() + SECONDS
            while not all(name in ip("netns").stdout for name in names):
                assert process.poll() is None, read_text(str(tmp_path / "said"))
                assert time.monotonic() < deadline
                time.sleep(0.1)
            for name in names:  # they are whole: others can enter them
                assert ip("-n", name, "-brief", "link", "show", "lo").stdout.startswith("lo "), name
            assert ip("netns").stderr == complaints
            process.kill()
            process.wait(SECONDS)
            assert ip("netns").stderr == complaints
        cleaned = tare("clean")
        assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean"), cleaned.stderr
        said = ip("netns")
        assert not [name for name in names if name in said.stdout]
        assert said.stderr == complaints
