"""Locust's file: users as `plan.py` has them, on its workers; counts, on its master. `run.py` starts both."""

from __future__ import annotations

import json
import logging
import time
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import gevent
from gevent.event import Event
from locust import User, events, runners, task
from plan import Plan, chosen, misspelt, shuffled, words_in
from tally import Tally, result_of
from visitor import Visitor

WORDNET = Path("/usr/share/wordnet")
CLASSES = ("noun", "verb", "adj", "adv")
_LOOK_SECONDS = 1.0

# Debian's Locust 2.12.1 does not know its own version, and a master refuses a worker without one. -1 fits any.
runners.__version__ = runners.__version__ or -1


class Load:
    """What all users of a process share."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.began = time.monotonic()
        # Read before there is a runner, whose heartbeat it would hold up.
        self.words = shuffled(word for each in CLASSES for word in _index(each))
        self.numbers = count()
        self.missing = 0

    def seconds(self) -> float:
        """Give the seconds since the first users were to begin."""
        return time.monotonic() - self.began


def _index(name: str) -> list[str]:
    with (WORDNET / f"index.{name}").open(encoding="utf-8") as lines:
        return list(words_in(lines))


LOAD = Load()


class Searcher(User):
    """A user who makes all searches, and stays: Locust would begin another one in its place."""

    @task
    def search(self) -> None:
        """Make all searches, each at its time."""
        options, worker = self.environment.parsed_options, self.environment.runner.worker_index
        number = next(LOAD.numbers)
        random = Random(f"{options.seed} {worker} {number}")
        server = urlsplit(self.environment.host)
        name = f"user-{random.randrange(options.accounts)}"
        visitor = Visitor(name, (server.hostname, server.port), options.request_timeout, LOAD.tally, LOAD.seconds)
        late_seconds = 0.0
        for pause in (*Plan(options.factor, options.searches).pauses(random), None):
            whole = visitor.search(misspelt(chosen(LOAD.words, random), random))
            LOAD.tally.count_search(whole=whole, late_seconds=late_seconds)
            if pause is not None:
                due = time.monotonic() + pause
                gevent.sleep(pause)
                late_seconds = time.monotonic() - due
        LOAD.tally.count_user()
        Event().wait()


@events.init_command_line_parser.add_listener
def _options(parser: Any) -> None:
    parser.add_argument("--factor", type=float, default=1.0, help="by which time is compressed")
    parser.add_argument("--searches", type=int, default=25, help="of each user")
    parser.add_argument("--accounts", type=int, default=1, help="users whom the database has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--request-timeout", type=float, default=30.0, help="seconds")
    parser.add_argument("--result", default="", help="file that the master writes")


@events.init.add_listener
def _prepare(environment: Any, runner: Any, **_: object) -> None:
    logging.getLogger("locust.stats_logger").disabled = True  # its tables are of requests that Locust itself makes
    if isinstance(runner, runners.MasterRunner):
        events.worker_report.add_listener(_add)
        events.quitting.add_listener(_write)
        gevent.spawn(_watch, environment)
    elif isinstance(runner, runners.WorkerRunner):
        events.report_to_master.add_listener(_report)
        events.test_start.add_listener(_begin)
    else:
        raise TypeError("this load has a master and workers: run.py starts them")


def _begin(**_: object) -> None:
    LOAD.tally, LOAD.began = Tally(), time.monotonic()


def _report(client_id: str, data: dict[str, Any]) -> None:  # noqa: ARG001  # Locust names it
    data["dictionary"] = LOAD.tally.taken()


def _add(client_id: str, data: dict[str, Any]) -> None:  # noqa: ARG001  # Locust names it
    LOAD.tally.add(data["dictionary"])


def _watch(environment: Any) -> None:
    """End the load when all searches are made, a user has failed, or a worker is lost, whose users would begin anew."""
    runner, options = environment.runner, environment.parsed_options
    while LOAD.tally.counts["users"] < options.num_users and not LOAD.missing and not runner.exceptions:
        gevent.sleep(_LOOK_SECONDS)
        if runner.state in ("spawning", "running"):
            LOAD.missing = max(0, options.expect_workers - runner.worker_count)
    runner.quit()


def _write(environment: Any, **_: object) -> None:
    runner, options = environment.runner, environment.parsed_options
    asked = {"users": options.num_users, "factor": options.factor, "searches": options.searches, "seed": options.seed}
    load = {
        "cpu_warning": runner.worker_cpu_warning_emitted,
        "missing": LOAD.missing,
        "exceptions": sorted({str(each["msg"])[:200] for each in runner.exceptions.values()}),
    }
    result = {"result": result_of(LOAD.tally, asked), "load": load}
    Path(options.result).write_text(json.dumps(result), encoding="utf-8")
