from __future__ import annotations

import time

import pytest

from tare.hosts.local import LocalHost
from tare.telemetry.quiet import Quiet


@pytest.mark.parametrize(("command", "rests"), [("while :; do :; done", False), ("sleep 60", True)])
def test_a_process_that_works_while_others_have_their_turns_is_told(command: str, rests: bool) -> None:
    host = LocalHost()
    with host.spawn("sh", "-c", command) as process:
        quiet = Quiet(host, lambda: (process.pid,))
        for _ in range(3):
            with quiet.turn():
                time.sleep(0.01)
            time.sleep(0.15)
    caution = quiet.caution()
    assert (caution is None) == rests
    assert caution is None or caution.kind == "busy-when-idle"
