"""Price lists: what the programs `price` and `ask` print, and how long they work in a turn."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tare.errors import TrialFailed, printed
from tare.model.trials import Metric, Raw, Value
from tare.model.work import Work
from tare.workloads.loads.parsing import check_labels

_PROBING = 0.5  # the share of a turn that comes before the stretch that counts, to find how often the work fills it


def metrics_of(works: Sequence[Work]) -> tuple[Metric, ...]:
    """Return the metric of each kind of work: the seconds that a unit takes."""
    return tuple(
        Metric(work.name, f"{work.title[0].upper()}{work.title[1:]}", "s", "lower", overall=False) for work in works
    )


def read_prices(program: str, works: Sequence[Work], raw: Sequence[Raw]) -> tuple[Value, ...]:
    """Read the price of each kind of work; raises TrialFailed for anything but one whole output of each."""
    check_labels(raw, [work.name for work in works])
    return tuple(
        Value(work.name, None, _price(program, work.name, each.text)) for work, each in zip(works, raw, strict=True)
    )


def working_seconds(works: Sequence[Work], rounds: int, turn_seconds: float) -> float:
    """Estimate the seconds of so many rounds, in which each kind has a turn of this length."""
    return 0.1 + len(works) * rounds * (0.01 + (1 + _PROBING) * turn_seconds)


def _price(program: str, kind: str, text: str) -> float:
    pattern = rf"program: {program}\nkind: {kind}\ntimes: (?P<times>\d+)\nseconds: (?P<seconds>\d+\.\d+)\n"
    found = re.fullmatch(pattern, text, re.ASCII)
    times, seconds = (float(found["times"]), float(found["seconds"])) if found else (0.0, 0.0)
    price = seconds / times if 0 < times < math.inf else 0.0
    if not 0 < price < math.inf:
        raise TrialFailed(f"{program} gave no price of {kind}; {printed(text)}", "`tare show` has the whole output")
    return price
