"""gVisor: when doctor recommends another runsc, and how that is installed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.model.trials import Output
from tare.technologies.gvisor import Gvisor

NOVEMBER = "20261125"


@dataclass
class Having(LocalHost):
    """A host on this day, with a runsc of this version, which knows systrap or not; or without one."""

    version: str = ""
    systrap: bool = True
    day: str = NOVEMBER

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        if argv[0] == "date":
            return Output(argv, 0, self.day.encode(), b"", timeout)
        if argv[0] == "runsc" and not self.version:
            raise TrialFailed("runsc: not found", "")
        answers = {"--version": f"runsc version {self.version}\n", "flags": "systrap" if self.systrap else "ptrace"}
        return Output(argv, 0, answers.get(argv[-1], "").encode(), b"", timeout)


@pytest.mark.parametrize(
    ("host", "what"),
    [
        (Having(), "Debian's runsc is old; gVisor's own repository has a current one"),
        (Having("0.0~20221219.0", systrap=False), "this runsc is of 2022: slower, and on the machine's network stack"),
        (
            Having("unknown-1", systrap=False),
            "this runsc is of before 2023: slower, and on the machine's network stack",
        ),
        (Having("0.0~20240729.0"), "this runsc is of 2024, over a year old"),
        (Having("release-20251124.0"), "this runsc is of 2025, over a year old"),
    ],
)
def test_a_runsc_that_is_missing_or_over_a_year_old_comes_from_gvisors_own_repository(host: Having, what: str) -> None:
    [advice] = Gvisor().advice(host)
    assert advice.what == what
    words = shlex.split(advice.fix)
    assert words[-3:] == ["apt", "install", "runsc"]
    [source] = [word for word in words if word.startswith("deb ")]
    key = words[words.index("-fsSLo") + 1]
    assert source == f"deb [signed-by={key}] https://storage.googleapis.com/gvisor/releases release main"


@pytest.mark.parametrize(
    "host",
    [
        Having("release-20251125.0"),
        Having("0.0.0-20260905035102-160fafc42237"),
        Having("1.0-own"),
        Having("0.0~20240729.0", day="who knows"),
    ],
)
def test_a_runsc_of_the_last_year_or_of_an_unknown_day_is_left_alone(host: Having) -> None:
    assert tuple(Gvisor().advice(host)) == ()
