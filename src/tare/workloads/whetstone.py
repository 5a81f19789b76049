"""Whetstone: floating-point work of one CPU, in Whetstone instructions a second (MWIPS are millions of them).

Eight modules (array elements, an array as parameter, branches, integer arithmetic, trigonometric functions, procedure
calls, array references, standard functions) with the weights of Curnow and Wichmann (1976), in double precision. They
never enter the kernel, so they show the cost of a technology for a program that only computes. VTmark ran 5 times
5,000,000 passes of the C version of 1996 (Table 2; results in Figure 4, second column): `passes = 5000000`. Without
`passes`, the program stays resident and takes short turns of a fixed time. Every stretch of passes is checked against
the published results of the modules, so that a miscompiled program gives no result.

Settings: `duration`, the measured time of all turns of a block; `turn`, the part of a turn that counts, and `discard`,
the first part, which does not count (0: the run chooses both); or `passes`, and the number of `repetitions`. A pass is
a million Whetstone instructions. In turns, the seconds of the modules that the program prints are those of the last
part of a turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tare.loads.cpu_programs import CPU_SHARE, ComputeWorkload
from tare.model.trial import Metric

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
    CPU_SHARE
    + r"program: whetstone double precision\npasses: (?P<passes>\d+)\nseconds: (?P<seconds>\d+\.\d+)\n"
    + "".join(rf"seconds_{module}: \d+\.\d+\n" for module in _MODULES)
    + r"mwips: (?P<speed>\d+\.\d+)\nverified: yes\n",
    re.ASCII,
)


@dataclass(frozen=True)
class Whetstone(ComputeWorkload):
    """Floating-point work of one CPU."""

    name = "whetstone"
    title = "Whetstone, double precision"
    metrics = (Metric("speed", "Whetstone speed", "whetstones/s", "higher"),)
    result = _RESULT
    scale = 1e6  # MWIPS
    count_option = "--passes"
    usual_speed = 5e3
