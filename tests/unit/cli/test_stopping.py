"""How a run is told to stop, in a process of its own: with a terminal that goes away, or without one."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS as SECONDS

RUNNING = """
import sys, time
from pathlib import Path
from tare.cli.signals import interruptible
from tare.hosts.process import defer_signals

def say(text):
    with Path(sys.argv[1]).open("a") as file:
        file.write(text + "\\n")

try:
    with interruptible():
        with defer_signals():
            print("ready", flush=True)
            while not Path(sys.argv[1] + ".stopped").exists():
                time.sleep(0.01)
            say("nothing is torn")
        say("went on")
except KeyboardInterrupt:
    print("the report", file=sys.stderr, flush=True)
    say("cleaned up")
"""


def _lost_terminal(prefix: tuple[str, ...], said: Path) -> str:
    """Run that with a terminal, which goes away at once; give what it wrote."""
    terminal, end = pty.openpty()
    argv = ("setsid", "--ctty", *prefix, sys.executable, "-c", RUNNING, str(said))
    with subprocess.Popen(argv, stdin=end, stdout=end, stderr=end) as process:
        os.close(end)
        with open(terminal, "rb", buffering=0) as lines:  # noqa: PTH123 - it has no path
            assert lines.readline() == b"ready\r\n"
        said.with_name("said.stopped").touch()
        process.wait(SECONDS)
    return said.read_text(encoding="utf-8")


def test_a_run_whose_terminal_is_closed_ends_in_order(tmp_path: Path) -> None:
    said = _lost_terminal(("env", "--default-signal=HUP"), tmp_path / "said")
    assert said == "nothing is torn\ncleaned up\n"


def test_what_nohup_has_started_goes_on_without_its_terminal(tmp_path: Path) -> None:
    said = _lost_terminal(("env", "--ignore-signal=HUP"), tmp_path / "said")
    assert said == "nothing is torn\nwent on\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_stops_a_run_lets_it_clean_up(tmp_path: Path, number: int) -> None:
    argv = ("env", "--default-signal=INT,TERM,HUP", sys.executable, "-c", RUNNING, str(tmp_path / "said"))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        (tmp_path / "said.stopped").touch()
        process.wait(SECONDS)
    assert (tmp_path / "said").read_text(encoding="utf-8") == "nothing is torn\ncleaned up\n"


DROPPED = """
import os, signal
from tare.cli.signals import interruptible
from tare.hosts.process import raise_if_interrupted

raise_if_interrupted()
try:
    with interruptible():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("dropped")
        os.kill(os.getpid(), signal.SIGINT)
        print("cleaning up is not interrupted")
        raise_if_interrupted()
        print("went on")
except KeyboardInterrupt:
    print("stopped")
raise_if_interrupted()
print("another one may begin")
"""


def test_a_stop_that_a_library_has_dropped_is_heeded_at_the_next_turn() -> None:
    argv = ("env", "--default-signal=INT", sys.executable, "-c", DROPPED)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "dropped",
        "cleaning up is not interrupted",
        "stopped",
        "another one may begin",
    ]


# --- while libraries load; and the umask

LOADING = """
import os, signal
from tare.cli.signals import end_at_interrupt, raise_at_interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        return "raised"
    return "nothing"
"""


def said(code: str) -> tuple[int, str]:
    done = subprocess.run((sys.executable, "-c", LOADING + code), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_an_interrupt_ends_the_process_even_if_exceptions_are_dropped() -> None:
    assert said("end_at_interrupt()\ninterrupt()\nprint('went on')") == (130, "")


def test_afterwards_it_is_an_exception_again() -> None:
    assert said("end_at_interrupt()\nraise_at_interrupt()\nprint(interrupt())") == (0, "raised\n")


def test_what_somebody_else_has_decided_stays() -> None:
    ignoring = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    assert said(f"{ignoring}end_at_interrupt()\nraise_at_interrupt()\nprint(interrupt())") == (0, "nothing\n")


def test_the_umask_is_the_same_for_all_users_and_that_of_the_user_is_known() -> None:
    code = "from tare.model.files import set_umask\nprint(*map(oct, (set_umask(), set_umask(), os.umask(0))))"
    assert said(f"os.umask(0o077)\n{code}") == (0, "0o77 0o77 0o22\n")


def test_tare_sets_it_before_anything_else() -> None:
    code = "import sys, tare.__main__\ntare.__main__.run = lambda app, words: os.umask(0)\ntare.__main__.main()"
    assert said(f"os.umask(0o077)\n{code}")[0] == 0o022
