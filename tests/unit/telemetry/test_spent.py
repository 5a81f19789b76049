from __future__ import annotations

import pytest
from tare_fake.technology import FakeHost

from tare.hosts.local import LocalHost
from tare.model import Limits
from tare.telemetry.spent import Spent

BEFORE = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\n"
AFTER = "cpu  160 0 120 900 0 0 0 20 0 0\ncpu0 50 0 50 500 0 0 0 0 0 0\ncpu1 110 0 70 400 0 0 0 20 0 0\n"


class Told(LocalHost):
    """A machine whose /proc/stat is told."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def read(self, path: str) -> str:
        assert path == "/proc/stat"
        return self.texts.pop(0)


def test_what_was_stolen_is_a_share_of_what_was_wanted() -> None:
    spent = Spent(Told(BEFORE, AFTER), (1,))
    with spent.counted() as stretch:
        assert stretch.steal_share is None
    assert stretch.steal_share == pytest.approx(20 / 100)


@pytest.mark.parametrize(("cpus", "share"), [((0,), 0.0), ((1,), 1.0), ((0, 1), 0.5), ((7,), None)])
def test_how_busy_cpus_were_is_counted_over_turns_alone(cpus: tuple[int, ...], share: float | None) -> None:
    between = AFTER.replace("cpu0 50", "cpu0 9999")  # what happens between two turns is nobody's business
    spent = Spent(Told(BEFORE, AFTER, between, between), cpus)
    for _ in range(2):
        with spent.counted():
            pass
    assert spent.busy_share == (None if share is None else pytest.approx(share))


def test_a_machine_that_tells_nothing_leaves_both_unknown() -> None:
    spent = Spent(FakeHost(1.0, "", Limits((0,), 1, 1)), (0,))
    with spent.counted() as stretch:
        pass
    assert (stretch.steal_share, spent.busy_share) == (None, None)


def test_the_time_in_which_a_load_does_not_send_yet_makes_a_server_no_less_busy() -> None:
    spent = Spent(Told(BEFORE, AFTER.replace("cpu1 110 0 70 400", "cpu1 110 0 50 420")), (1,))
    with spent.counted() as stretch:
        pass
    assert spent.busy_share == pytest.approx(0.8)
    stretch.rest_seconds = 0.2
    assert spent.busy_share == pytest.approx(1.0)
