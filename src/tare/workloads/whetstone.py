"""Whetstone: floating-point work of one CPU, in Whetstone instructions a second (MWIPS are millions of them).

Eight modules (array elements, an array as parameter, branches, integer arithmetic, trigonometric functions, procedure
calls, array references, standard functions) with the weights of Curnow and Wichmann (1976), in double precision. They
never enter the kernel, so they show what a technology costs a program that only computes. VTmark ran a fixed 5,000,000
passes of the C version of 1996 (Table 2; results in Figure 4, second column). Here the time is fixed instead: the
passes grow in number until one stretch of them takes `duration`. Every stretch is checked against the published results
of the modules, so a miscompiled program gives no result.

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

_PROGRAM = "/usr/lib/tare/whetstone"
_MODULES = (
    "array_elements",
    "array_parameter",
    "conditional_jumps",
    "integer_arithmetic",
    "trigonometric_functions",
    "procedure_calls",
    "array_references",
    "standard_functions",
)
_RESULT = re.compile(
    r"program: whetstone double precision\npasses: \d+\nseconds: \d+\.\d+\n"
    + "".join(rf"seconds_{module}: \d+\.\d+\n" for module in _MODULES)
    + r"mwips: (?P<mwips>\d+\.\d+)\nverified: yes\n",
    re.ASCII,
)


@dataclass(frozen=True)
class Whetstone:
    """Floating-point work of one CPU."""

    name: ClassVar[str] = "whetstone"
    title: ClassVar[str] = "Whetstone, double precision"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("speed", "Whetstone speed", "whetstones/s", "higher"),)
    sweep: ClassVar[Sweep | None] = None

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0

    @property
    def port(self) -> None:
        """None: it serves nothing."""

    def service(self, listen: str) -> None:
        """None: it serves nothing, so `listen` does not matter."""

    def measure(self, setup: Setup) -> Iterable[Raw]:
        """Run the program inside; raises TrialFailed where there is no inside, or where its results are wrong."""
        if setup.instance.inside is None:
            raise TrialFailed(f"{setup.instance.name}: whetstone runs inside", "leave this stack out of whetstone")
        argv = (_PROGRAM, "--seconds", str(self.duration))
        output = setup.instance.inside.run(*argv, timeout=60 + 10 * self.seconds())
        return (Raw("whetstone", argv, output.text, output.seconds),)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the instructions a second; raises TrialFailed for anything but one whole verified result."""
        if [each.label for each in raw] != ["whetstone"]:
            raise TrialFailed(f"expected one output of whetstone, found {[each.label for each in raw]}")
        found = _RESULT.fullmatch(raw[0].text)
        speed = float(found["mwips"]) * 1e6 if found else 0.0
        if not 0 < speed < math.inf:
            hint = "`tare show` has the whole output; the program ends with `verified: yes` when its results are right"
            raise TrialFailed(f"whetstone gave no verified speed; it printed {raw[0].text[:800]!r}", hint)
        return (Value("speed", None, speed),)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: shorter stretches, up to a fifth, come before the measured one."""
        return 0.2 + 1.4 * self.duration
