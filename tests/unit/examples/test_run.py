"""How the load is started: command lines of the master and the workers, and options that cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from join import options_of as options_of_join
from run import BOTTLENECK, master_command, options_of, worker_command

LOAD = Path(__file__).parents[3] / "examples" / "dictionary"
BASIC = ("--address", "198.18.0.10", "--port", "80", "--users", "200", "--factor", "10", "--workers", "2")


def test_the_master_gets_users_and_their_time() -> None:
    command = master_command(options_of(BASIC), Path("/srv/result.json"))
    assert command[:5] == (sys.executable, "-m", "locust", "-f", str(LOAD / "load" / "users.py"))
    assert {"--master", "--headless", "--expect-workers=2", "--users=200", "--accounts=200"} <= set(command)
    assert {"--host=http://198.18.0.10:80", "--factor=10.0", "--result=/srv/result.json"} <= set(command)
    (rate,) = (float(each.partition("=")[2]) for each in command if each.startswith("--spawn-rate="))
    assert 200 / rate == pytest.approx(42)


def test_workers_connect_to_the_master_and_get_nothing_else() -> None:
    command = worker_command(options_of((*BASIC, "--master-address", "198.18.1.1", "--master-port", "6000")))
    assert command[5:] == ("--worker", "--master-host=198.18.1.1", "--master-port=6000")


def test_remote_workers_use_one_process_per_cpu_and_connect_to_the_master() -> None:
    options = options_of_join(("--master-address", "198.18.1.1"))
    assert options.workers == len(os.sched_getaffinity(0))
    assert worker_command(options)[5:] == ("--worker", "--master-host=198.18.1.1", "--master-port=5557")


def test_workers_of_other_machines_are_awaited() -> None:
    options = options_of((*BASIC, "--expect-workers", "6"))
    assert "--expect-workers=6" in master_command(options, Path("result"))


@pytest.mark.parametrize(
    "others", [("--users", "0"), ("--workers", "0"), ("--expect-workers", "1"), ("--port", "http"), ("--accounts", "x")]
)
def test_what_cannot_be_is_refused(others: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as refused:
        options_of((*BASIC, *others))
    assert refused.value.code == 2


def test_the_application_looks_for_the_words_that_announce_a_bottleneck() -> None:
    text = (LOAD / "application.toml").read_text(encoding="utf-8")
    assert f'bottleneck = "^{BOTTLENECK.partition(":")[0]}"' in text
