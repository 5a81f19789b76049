"""Dhrystone 2.1: integer and string work of one CPU, in passes a second.

One pass is Weicker's fixed mix of assignments, branches, procedure calls and string operations. It stays in the first
cache and never enters the kernel, so it shows what a technology costs a program that only computes. VTmark ran a fixed
2,147,483,627 passes (Table 2; results in Figure 4, first column). Here the time is fixed instead, so that a slow stack
takes no longer than a fast one: the passes grow in number until one stretch of them takes `duration`. Every stretch is
checked against the published final values of the benchmark, so a miscompiled program gives no result.

Settings: `duration`, how long the measured stretch takes at least.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from tare.model import Metric, Raw, Setup, Sweep, TrialFailed, Value
from tare.units import Duration

_PROGRAM = "/usr/lib/tare/dhrystone"
_RESULT = re.compile(
    r"program: dhrystone 2\.1\nruns: \d+\nseconds: \d+\.\d+\n"
    r"dhrystones_per_second: (?P<speed>\d+\.\d+)\nverified: yes\n",
    re.ASCII,
)


@dataclass(frozen=True)
class Dhrystone:
    """Integer and string work of one CPU."""

    name: ClassVar[str] = "dhrystone"
    title: ClassVar[str] = "Dhrystone 2.1"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("speed", "Dhrystone speed", "dhrystones/s", "higher"),)
    sweep: ClassVar[Sweep | None] = None

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0

    @property
    def port(self) -> None:
        """None: it serves nothing."""

    def service(self, listen: str) -> None:
        """None: it serves nothing, so `listen` does not matter."""

    def measure(self, setup: Setup) -> Iterable[Raw]:
        """Run the program inside; raises TrialFailed where there is no inside, or where its values are wrong."""
        if setup.instance.inside is None:
            raise TrialFailed(f"{setup.instance.name}: dhrystone runs inside", "leave this stack out of dhrystone")
        argv = (_PROGRAM, "--seconds", str(self.duration))
        output = setup.instance.inside.run(*argv, timeout=60 + 10 * self.seconds())
        return (Raw("dhrystone", argv, output.text, output.seconds),)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the passes a second; raises TrialFailed for anything but one whole verified result."""
        if [each.label for each in raw] != ["dhrystone"]:
            raise TrialFailed(f"expected one output of dhrystone, found {[each.label for each in raw]}")
        found = _RESULT.fullmatch(raw[0].text)
        speed = float(found["speed"]) if found else 0.0
        if not 0 < speed < math.inf:
            hint = "`tare show` has the whole output; the program ends with `verified: yes` when its values are right"
            raise TrialFailed(f"dhrystone gave no verified speed; it printed {raw[0].text[:400]!r}", hint)
        return (Value("speed", None, speed),)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: shorter stretches, up to a fifth, come before the measured one."""
        return 0.2 + 1.4 * self.duration
