"""Two signals at once: the run stops once, and its cleanup works as after one signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Both signals are pending when Python looks for any.
SCRIPT = """
import signal, subprocess, sys
from tare.cli.signals import interruptible
both = {signal.SIGINT, signal.SIGHUP}
with interruptible(), open(sys.argv[1], "w") as found:
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for each in both:
            signal.raise_signal(each)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
        found.write("went on")
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGHUP)
        found.write(str(subprocess.run(["sh", "-c", "kill -TERM $$"]).returncode))
"""


def test_two_signals_at_once_interrupt_once_and_commands_can_be_ended(tmp_path: Path) -> None:
    found, errors = tmp_path / "found", tmp_path / "errors"
    argv = ("env", "--default-signal=INT,HUP,TERM", sys.executable, "-c", SCRIPT, str(found))
    with errors.open("w") as file:
        done = subprocess.run(argv, stderr=file, timeout=600, check=False)
    assert (done.returncode, found.read_text(), errors.read_text()) == (0, "-15", "")
