"""What workloads share that only compute: they run one program of the image, which verifies its own results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from tare.contracts.workloads import MeasurementContext, Workload
from tare.errors import TrialFailed, printed
from tare.model.trials import Metric, Raw, Value
from tare.units import Duration
from tare.workloads.loads.outputs import check_labels
from tare.workloads.loads.turns import SLOWEST, limit_seconds, rounds_of, turn_seconds

_MOST_PASSES = 2_147_483_627  # VTmark's of Dhrystone, which counts them in 32 bits


@dataclass(frozen=True)
class Computing(Workload):
    """A workload of one command and one speed.

    `result` matches a whole good output; its group `speed` is a number of `scale` times the metric's unit, and `passes`
    the number of passes, which `count_option` sets. `usual_speed` is the passes a second of a machine of today.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    result: ClassVar[re.Pattern[str]]
    count_option: ClassVar[str]
    usual_speed: ClassVar[float]
    scale = 1.0

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    passes: Annotated[int, Field(ge=0, le=_MOST_PASSES)] = 0
    repetitions: Annotated[int, Field(ge=1, le=100)] = 5

    @property
    def rounds(self) -> int:
        """Turns of a tenth of the duration; each repetition of a number of passes is one."""
        return self.repetitions if self.passes else rounds_of(self.duration)

    @property
    def shortened_by(self) -> str:
        """The setting that decides how long it takes."""
        return "passes" if self.passes else "duration"

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Start the program inside in each turn; raises TrialFailed without an inside, or for wrong results.

        Where the kernel puts a program's memory and stack can decide a tenth of its speed, and changes with each
        start (docs/decisions/turns.md).
        """
        inside, seconds = setup.inside(self.name), self._turn_seconds
        work = (self.count_option, f"{self.passes}") if self.passes else ("--seconds", f"{seconds:.6g}")
        argv = (f"/usr/lib/tare/{self.name}", *work)
        for _ in range(self.rounds):
            output = inside.run(*argv, timeout=limit_seconds(SLOWEST * seconds))
            raw = Raw(self.name, argv, output.text, output.seconds)
            yield raw
            self.parse((raw,))  # what is wrong ends the trial now, not with its last turn

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the speed; raises TrialFailed for anything but one whole verified result."""
        check_labels(raw, [self.name])
        match = self.result.fullmatch(raw[0].text)
        whole = match is not None and self.passes in (0, int(match["passes"]))
        speed = float(match["speed"]) * self.scale if match and whole else 0.0
        if not 0 < speed < math.inf:
            hint = "`tare show` has the whole output; the program ends with `verified: yes` when its results are right"
            raise TrialFailed(f"{self.name} gave no verified speed; {printed(raw[0].text)}", hint)
        return (Value("speed", None, speed),)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: shorter stretches come before the one that counts, which fills a time."""
        return 0.1 + (self.repetitions * self._turn_seconds if self.passes else 1.3 * self.duration)

    @property
    def _turn_seconds(self) -> float:
        return self.passes / self.usual_speed if self.passes else turn_seconds(self.duration)
