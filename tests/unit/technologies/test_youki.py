"""youki: where it is not installed, and how its version is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.model.trial import Output
from tare.technologies.youki import Youki

VERSION = """\
youki version: 0.7.0
commit: 0.7.0-0000000
spec: 1.1.0
"""


@dataclass
class Printing(LocalHost):
    """A host on which every command prints this text."""

    text: str

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        return Output(argv, 0, self.text.encode(), b"", timeout)


class WithoutYouki(LocalHost):
    """A host with every program except youki, on which tare is root."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        return Output(argv, 0, b"youki\n" if "youki" in argv else b"", b"", timeout)


@pytest.mark.parametrize(("printed", "version"), [(VERSION, "0.7.0"), ("", ""), ("youki: not found\n", "")])
def test_the_version_is_in_the_first_line(printed: str, version: str) -> None:
    assert Youki().version(Printing(printed)) == version


def test_a_missing_youki_is_a_program_of_another_project() -> None:
    [problem] = Youki().problems(WithoutYouki())
    assert (problem.what, problem.missing) == ("youki is not installed", "program")
    assert "cargo install youki --locked" in problem.fix


def test_a_path_of_the_suite_needs_no_youki_on_the_path() -> None:
    assert Youki(program="/opt/youki/bin/youki").problems(WithoutYouki()) == ()
