"""Commands as a user calls them, and what they print."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from runs import write

from tare.__main__ import run as command_line
from tare.cli.app import app
from tare.model.run_folder import Run


@dataclass(frozen=True)
class Printed:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> tuple[str, str]:
        """The two lines of an error, and nothing else on standard error."""
        what, hint = self.err.splitlines()
        return what.removeprefix("error: "), hint.removeprefix("hint: ")

    @property
    def document(self) -> Any:
        """The JSON that was printed."""
        return json.loads(self.out, parse_constant=refuse)

    @property
    def cells(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(cell["workload"], cell["stack"]): cell for cell in self.document["cells"]}


Call = Callable[..., Printed]


@pytest.fixture(name="call")
def call_tare(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call tare with these words; a run among them is written, and stands for its folder.

    It must end with `code`, unless that is None. Wrong usage, which ends with 2, must print nothing but the error.
    """

    def call(*words: object, code: int | None = 0) -> Printed:
        argv = [str(write(each) if isinstance(each, Run) else each) for each in words]
        printed = Printed(command_line(app, argv), *capsys.readouterr())
        assert code in {None, printed.code}, printed
        assert code != 2 or not printed.out
        return printed

    return call


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")
