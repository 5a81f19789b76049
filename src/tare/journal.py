"""The run folder: what is written while a run goes on, and read by everything that comes after.

- `suite.toml`: the suite, as the user wrote it;
- `run.json`: what was planned and on which machine, a `RunRecord`;
- `trials.jsonl`: one `Trial` a line, synced to the disk before the next one starts;
- `raw/TRIAL.json`: what the trial's commands printed, a list of `Raw`;
- `telemetry/TRIAL.parquet`: what host and instance used meanwhile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tare.model import Facts, Metric, Raw, Sweep, Trial, UsageError

FORMAT = 1


@dataclass(frozen=True)
class WorkloadRecord:
    """What a report needs to know of a workload when its plug-in is not at hand."""

    name: str
    use: str
    title: str
    metrics: tuple[Metric, ...]
    sweep: Sweep | None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """What was planned, and where. `noise` is what makes the machine noisy, as doctor saw it at the start."""

    format: int
    tare: str
    suite: str
    started: str
    seed: int
    baseline: str
    blocks: int
    stacks: tuple[str, ...]
    workloads: tuple[WorkloadRecord, ...]
    image: str
    packages: str
    machine: Facts
    noise: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Run:
    """A run folder, read."""

    folder: Path
    record: RunRecord
    trials: tuple[Trial, ...]


_RECORD = TypeAdapter(RunRecord)
_TRIAL = TypeAdapter(Trial)
_RAW = TypeAdapter(tuple[Raw, ...])


class Journal:
    """Writes a run folder. Every trial is on the disk before `append` comes back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, record: RunRecord, suite_text: str) -> None:
        """Make the folder; it must not be there yet."""
        self.folder.mkdir(parents=True)
        (self.folder / "raw").mkdir()
        (self.folder / "telemetry").mkdir()
        (self.folder / "suite.toml").write_text(suite_text, encoding="utf-8")
        (self.folder / "run.json").write_bytes(_RECORD.dump_json(record, indent=2) + b"\n")

    def append(self, trial: Trial, raw: Sequence[Raw]) -> None:
        """Keep a trial: its raw output first, so that a line in the journal always has it."""
        (self.folder / "raw" / f"{trial.trial}.json").write_bytes(_RAW.dump_json(tuple(raw), indent=1) + b"\n")
        with (self.folder / "trials.jsonl").open("a", encoding="utf-8") as file:
            file.write(_line(trial))
            file.flush()
            os.fsync(file.fileno())


def load(folder: Path) -> Run:
    """Read a run folder; raises UsageError with the file and line of what cannot be read.

    A last line without its end is what a power cut leaves: that trial was not finished, and is left out.
    """
    try:
        record = _RECORD.validate_json((folder / "run.json").read_bytes())
        text = (folder / "trials.jsonl").read_text(encoding="utf-8") if (folder / "trials.jsonl").exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{folder}: not a run: {error}", "give the folder that `tare run` printed") from error
    except ValidationError as error:
        raise UsageError(f"{folder / 'run.json'}: {_first(error)}", "the file is damaged or of a newer tare") from error
    trials = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        trials.append(_trial(line, f"{folder / 'trials.jsonl'}:{number}"))
    return Run(folder, record, tuple(trials))


def load_raw(folder: Path, trial: str) -> tuple[Raw, ...]:
    """Read what the commands of a trial printed."""
    try:
        return _RAW.validate_json((folder / "raw" / f"{trial}.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"{folder}: no raw output of trial {trial}", "`tare show RUN` lists the trials") from error


def _trial(line: str, where: str) -> Trial:
    hint = "the file is damaged or of a newer tare"
    try:
        fields = json.loads(line)
        found = fields.pop("format")
    except (ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"{where}: not a trial", hint) from error
    if found != FORMAT:
        raise UsageError(f"{where}: format {found}, this tare reads {FORMAT}", "use a newer tare")
    try:
        return _TRIAL.validate_python(fields)
    except ValidationError as error:
        raise UsageError(f"{where}: {_first(error)}", hint) from error


def _first(error: ValidationError) -> str:
    fault = error.errors()[0]
    return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"


def rewrite(folder: Path, trials: Sequence[Trial]) -> None:
    """Replace the trials of a run; those before are kept as `trials.jsonl.before`."""
    path = folder / "trials.jsonl"
    fresh = folder / "trials.jsonl.new"
    fresh.write_text("".join(_line(trial) for trial in trials), encoding="utf-8")
    (folder / "trials.jsonl.before").write_bytes(path.read_bytes())
    fresh.replace(path)


def _line(trial: Trial) -> str:
    return json.dumps({"format": FORMAT} | json.loads(_TRIAL.dump_json(trial)), allow_nan=False) + "\n"
