"""Ctrl-C while the libraries load ends the process, also where one of them would drop it; and the umask."""

from __future__ import annotations

import subprocess
import sys

DROPPED = """
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
    done = subprocess.run((sys.executable, "-c", DROPPED + code), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_it_ends_the_process_at_once_although_the_exception_would_be_dropped() -> None:
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
