"""Outputs of a round: whether they are those that a workload expects, and what a failure keeps of one."""

from __future__ import annotations

from collections.abc import Sequence

from tare.errors import TrialFailed
from tare.model.trials import Output, Raw


def check_labels(raw: Sequence[Raw], labels: Sequence[str]) -> None:
    """Raise TrialFailed unless there is one output of each label, in this order."""
    found = [each.label for each in raw]
    if found != list(labels):
        raise TrialFailed(f"expected outputs of {list(labels)}, found {found}")


def as_output(raw: Raw) -> Output:
    """Return an output as that of a command, for a failure to keep."""
    return Output(raw.argv, 0, raw.text.encode(), raw.errors.encode(), raw.seconds)
