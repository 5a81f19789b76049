"""The tests themselves: they work where whoever started them had signals ignored, as a shell does in the background."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.slow
def test_tests_of_interrupts_pass_where_they_were_started_to_ignore_them() -> None:
    chosen = (f"{TESTS / 'hosts/test_process.py'}", "-k", "interrupt_kills or interrupt_is_only_its_own")
    argv = ("env", "--ignore-signal=INT,TERM", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen)
    done = subprocess.run(argv, cwd=TESTS.parents[1], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout
