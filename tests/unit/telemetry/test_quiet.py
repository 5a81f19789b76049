from __future__ import annotations

import time

import pytest

from tare.hosts.local import LocalHost
from tare.telemetry.parsers import parse_process_times
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


def test_what_does_not_rest_is_paused_between_its_turns_and_goes_on_at_the_end() -> None:
    host = LocalHost()
    with host.spawn("sh", "-c", "while :; do :; done") as process:
        quiet = Quiet(host, lambda: (process.pid,))
        used = []
        for _ in range(4):
            with quiet.turn():
                time.sleep(0.1)
            before = cpu_seconds(process.pid)
            time.sleep(0.2)
            used.append(cpu_seconds(process.pid) - before)
        quiet.resume()
        before = cpu_seconds(process.pid)
        time.sleep(0.2)
        assert used[0] > 0.02
        assert used[-2:] == [0.0, 0.0]
        assert cpu_seconds(process.pid) > before


def cpu_seconds(pid: int) -> float:
    times = parse_process_times(LocalHost().read(f"/proc/{pid}/stat"))
    return times.user_seconds + times.system_seconds
