"""Whether a run can go on: it needs the machine, the images and the settings that it began with."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from tare.errors import UsageError
from tare.journal import RunRecord


def check_same(before: RunRecord, now: RunRecord) -> None:
    """Refuse to go on with a run of another machine or image: its blocks would not be comparable."""
    if before.machine != now.machine:
        raise UsageError("the run was made on another machine, or on this one before a change", "start a new run")
    if before.stacks != now.stacks:
        raise UsageError("the run was made by a tare that measured other stacks of this suite", "start a new run")
    if (before.image, before.beside, before.own) != (now.image, now.beside, now.own):
        raise UsageError("the run was made with another image", "start a new run, or use the tare that made it")
    if other := _other_settings(before, now):
        hint = "a file that the suite names may have changed: put it back as it was, or start a new run"
        raise UsageError(f"settings are not those that the run began with: {', '.join(other)}", hint)
    fitted = {each.name: each.fits for each in before.tuning}
    if other := [each.name for each in now.tuning if fitted.get(each.name, each.fits) != each.fits]:
        hint = "`tare tune` shows them: set them as they were, or start a new run"
        raise UsageError(f"settings of the machine are not those that the run began with: {', '.join(other)}", hint)


def _other_settings(before: RunRecord, now: RunRecord) -> list[str]:
    """Name the settings of workloads that have changed, such as requests that come from a file; new ones have not."""
    began = {each.name: each.settings for each in before.workloads}
    written = TypeAdapter(dict[str, Any])
    return [
        f"{name} of {each.name}"
        for each in now.workloads
        for name, value in written.dump_python(each.settings, mode="json").items()
        if began.get(each.name, {}).get(name, value) != value
    ]
