from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

from tare.hosts.process import execute, started

TRIES = 60


def test_whenever_an_interrupt_comes_no_command_goes_on_behind_our_back(tmp_path: Path) -> None:
    """A command that is interrupted while it is being started must not come to its effect after we went on."""
    chance = random.Random(1)  # noqa: S311 - nothing secret
    caught = 0
    for number in range(TRIES):
        late = tmp_path / f"late-{number}"
        timer = threading.Timer(chance.uniform(0, 0.006), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            if number % 2:
                execute(("sh", "-c", f"sleep 0.05; touch {late}"), timeout=10)
            else:
                with started(("sh", "-c", f"sleep 0.05; touch {late}")):
                    time.sleep(0.02)
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            caught += 1
        there = late.exists()
        time.sleep(0.07)
        assert late.exists() == there, f"try {number}"
    assert caught > TRIES / 2
