"""Dhrystone 2.1: integer and string work of one CPU, in passes a second.

A pass is Weicker's fixed mix of assignments, branches, procedure calls and string operations. It stays in the first
cache and never enters the kernel, so it shows the cost of a technology for a program that only computes. VTmark ran 5
times 2,147,483,627 passes (Table 2; results in Figure 4, first column): `passes = 2147483627`. Without `passes`, the
program stays resident and takes short turns of a fixed time, so that a slow stack takes no longer than a fast one; each
turn goes over many distances between stack and data. Every stretch of passes is checked against the published final
values of the benchmark, so that a miscompiled program gives no result.

Settings: `duration`, the measured time of all turns of a block; `turn`, the part of a turn that counts, and `discard`,
the first part, which does not count (0: the run chooses both); or `passes`, and the number of `repetitions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tare.loads.cpu_programs import CPU_SHARE, ComputeWorkload
from tare.model.trial import Metric

_RESULT = re.compile(
    CPU_SHARE + r"program: dhrystone 2\.1\nruns: (?P<passes>\d+)\nseconds: (?P<seconds>\d+\.\d+)\n"
    r"dhrystones_per_second: (?P<speed>\d+\.\d+)\nverified: yes\n",
    re.ASCII,
)


@dataclass(frozen=True)
class Dhrystone(ComputeWorkload):
    """Integer and string work of one CPU."""

    name = "dhrystone"
    title = "Dhrystone 2.1"
    metrics = (Metric("speed", "Dhrystone speed", "dhrystones/s", "higher"),)
    result = _RESULT
    count_option = "--runs"
    usual_speed = 3e7
