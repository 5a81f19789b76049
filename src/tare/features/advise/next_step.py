"""Next step after advice: a command that measures the baseline and the advised stacks, with a suite if needed.

`tare try` is enough for a command that ends, on stacks without settings. Stacks with settings need a suite, and so does
a server, which does not end and needs a load.
"""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.features.advise.advice import Advice
from tare.model.run_folder import Run
from tare.model.units import format_setting

_SUITE_FILE = "next.toml"
_MIN_RATE, _MAX_RATE = 100, 100_000  # requests/s; at a lower rate, a point of the workload `service` takes minutes
_REQUESTS_PER_POINT = 1000  # in a point: enough for its 99.9th percentile
_SERVER_TEMPLATE = """\
[[workloads]]
use = "service"
command = "my-server --listen {listen} --port {port}"  # your server, in the foreground
packages = ["my-server"]                               # the Debian packages that it needs
requests = [{ path = "/" }]                            # in place of HTTP, `load` can be a custom command
"""


@dataclass(frozen=True)
class NextStep:
    """Command with the text of the suite that it runs and the suite's file name; both are empty for `tare try`.

    `to_fill` is the end of a sentence with what the user has to add to the suite; empty if nothing.
    """

    command: str
    suite: str = ""
    file: str = ""
    to_fill: str = ""

    @property
    def instruction(self) -> str:
        """The command, after the instruction to save its suite if it has one."""
        if not self.suite:
            return self.command
        return f"save this suite as {self.file}{self.to_fill}, and then: {self.command}"


def next_step(advice: Advice) -> NextStep | None:
    """Return the command that measures the advised stacks; None if the advice has no stack to try."""
    if not advice.stacks_to_try:
        return None
    stacks, command = (advice.baseline, *advice.stacks_to_try), advice.application.command
    tables = [_stack_table(name, table) for name, table in _stack_settings(advice.prices).items() if name in stacks]
    if command and not tables:
        return NextStep(f"tare try --on {','.join(stacks)} -- {shlex.join(command)}")
    head = f"[suite]\nstacks = {json.dumps(stacks)}\n"
    workload = (
        f'[[workloads]]\nuse = "command"\ncommand = {format_setting(command)}\n'
        if command
        else _server_workload(advice)
    )
    to_fill = "" if command else ", put your server and its requests in it"
    return NextStep(f"tare run {_SUITE_FILE}", "\n".join((head, *tables, workload)), _SUITE_FILE, to_fill)


def _server_workload(advice: Advice) -> str:
    """Return a server's workload as TOML: at its rate in requests/s, or with 50 clients.

    The rate is used if it was measured and is not the maximum: then the advice counts CPU time (`by_cpu`).
    """
    application, operations = advice.application, advice.application.operations
    rate = round(1 / operations.elapsed_seconds)
    if application.unit == "request" and operations.by_cpu and _MIN_RATE <= rate <= _MAX_RATE:
        return f'{_SERVER_TEMPLATE}rates = [{rate}]\nduration = "{max(1, math.ceil(_REQUESTS_PER_POINT / rate))}s"\n'
    return f"{_SERVER_TEMPLATE}clients = [50]\n"


def _stack_settings(prices: Run) -> Mapping[str, Any]:
    """Return the tables of settings of stacks in a price list's suite, by stack; empty if it has no readable suite."""
    try:
        tables = tomllib.loads((prices.folder / "suite.toml").read_text(encoding="utf-8")).get("stacks", {})
    except (OSError, ValueError, AttributeError):  # a run folder is untrusted: any text can stand in the file
        return {}
    return tables if isinstance(tables, dict) else {}


def _stack_table(name: str, table: Any) -> str:
    """Return a stack's settings as a table of TOML, empty if `table` is none."""
    settings = table.items() if isinstance(table, dict) else ()
    return "\n".join(
        (f"[stacks.{format_setting(name)}]", *(f"{key} = {format_setting(value)}" for key, value in settings), "")
    )
