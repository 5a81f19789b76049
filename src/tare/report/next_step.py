"""Next step after advice: a command that measures the two stacks that matter most, with a suite where it needs one.

`tare try` runs a command to its end, on stacks that need no settings. A server does not end and needs a load, so that
its next step is a suite.
"""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.answers.advice import Advice
from tare.journal import Run

_FILE = "next.toml"
_LEAST_RATE, _MOST_RATE = 100, 100_000  # requests a second: of fewer, a point of the workload `service` takes minutes
_REQUESTS = 1000  # of a point, for its 99.9th percentile
_SERVER = """\
[[workloads]]
use = "service"
command = "my-server --listen {listen} --port {port}"  # your server, in the foreground
packages = ["my-server"]                               # the Debian packages that it needs
requests = [{ path = "/" }]                            # in place of HTTP, `load` is a command of yours
"""


@dataclass(frozen=True)
class NextStep:
    """A command, and the text of the suite that it runs as `file`; both are empty where `tare try` needs none.

    `to_fill` says what the user has to put into the suite before.
    """

    command: str
    suite: str = ""
    file: str = ""
    to_fill: str = ""

    @property
    def how(self) -> str:
        """The command, with what comes before it."""
        if not self.suite:
            return self.command
        return f"save this suite as {self.file}{self.to_fill}, and then: {self.command}"


def next_step(advice: Advice) -> NextStep | None:
    """Return what settles the most; None where there is nothing to try."""
    if not advice.to_try:
        return None
    stacks, command = (advice.baseline, *advice.to_try), advice.application.command
    tables = [_table(name, table) for name, table in _settings(advice.prices).items() if name in stacks]
    if command and not tables:
        return NextStep(f"tare try --on {','.join(stacks)} -- {shlex.join(command)}")
    head = f"[suite]\nstacks = {json.dumps(stacks)}\n"
    workload = f'[[workloads]]\nuse = "command"\ncommand = {json.dumps(command)}\n' if command else _server(advice)
    to_fill = "" if command else ", put your server and its requests in it"
    return NextStep(f"tare run {_FILE}", "\n".join((head, *tables, workload)), _FILE, to_fill)


def _server(advice: Advice) -> str:
    """Return the workload of a server: at its rate where it was known and not the most that it can do."""
    application, basket = advice.application, advice.application.basket
    rate = round(1 / basket.elapsed_seconds)
    if application.unit == "request" and basket.by_cpu and _LEAST_RATE <= rate <= _MOST_RATE:
        return f'{_SERVER}rates = [{rate}]\nduration = "{max(1, math.ceil(_REQUESTS / rate))}s"\n'
    return f"{_SERVER}clients = [50]\n"


def _settings(prices: Run) -> Mapping[str, Any]:
    """Return the settings of stacks in the suite of a price list, by their names; none where it has no suite."""
    try:
        tables = tomllib.loads((prices.folder / "suite.toml").read_text(encoding="utf-8")).get("stacks", {})
    except (OSError, ValueError, AttributeError):  # the folder may be untrusted
        return {}
    return tables if isinstance(tables, dict) else {}


def _table(name: str, table: Any) -> str:
    settings = table.items() if isinstance(table, dict) else ()
    return "\n".join((f"[stacks.{json.dumps(name)}]", *(f"{key} = {_value(value)}" for key, value in settings), ""))


def _value(value: Any) -> str:
    """Write a value as TOML, a table in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False, default=str)
