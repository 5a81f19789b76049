"""Run folder: a run writes it, and all later commands read it.

- `suite.toml`: the suite, as the user wrote it;
- `run.json`: the plan, the machines and the end of the run, a `RunRecord`;
- `trials.jsonl`, the journal: one `Trial` a line, synced to the disk before the next trial starts;
- `raw/TRIAL.json`: the output of the trial's commands, a list of `RawOutput`;
- `telemetry/*.parquet`: resource usage of the machine and its instances (tare/telemetry/sampler.py).
"""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import TypeAdapter, ValidationError

from tare.model.errors import NotRecorded, UsageError, format_os_error
from tare.model.files import exists, read_bounded, set_umask, write_within
from tare.model.isolation import Isolation
from tare.model.machine import Facts, Tuning
from tare.model.trial import Family, LoweredSetting, Metric, RawOutput, Stop, StopReason, Sweep, Trial
from tare.model.turn_length import TurnChoice

FORMAT = 1  # of run.json and of each line of trials.jsonl
_RUN_FILES = {"suite.toml", "run.json", "run.json.new", "trials.jsonl", "raw", "telemetry", "report"}
_MAX_BYTES, _LONGEST_LINE = 256 << 20, 64 << 20  # a run folder may come from somebody else: bound the memory it takes
_DAMAGED = "the file is damaged or of a newer tare"
_TRIAL = TypeAdapter(Trial)
_LINE_PREFIX = f'{{"format": {FORMAT}, '.encode()  # pydantic parses such a line directly, without objects of `json`
_RAW = TypeAdapter(tuple[RawOutput, ...])


@dataclass(frozen=True)
class WorkloadRecord:
    """Record of a workload, from which a report is built without the workload's plug-in.

    `name` is the workload's name in the suite, `use` the name of its plug-in. `settings` are the effective settings,
    `lowered` those that the suite's bounds have lowered. `turns` is the length of turns that the run has chosen;
    None if it chose none. `weight` is how often a session does what one run of it does; 0 without a weight.
    """

    name: str
    use: str
    title: str
    metrics: tuple[Metric, ...]
    sweep: Sweep | None
    settings: dict[str, Any] = field(default_factory=dict)
    lowered: tuple[LoweredSetting, ...] = ()
    turns: TurnChoice | None = None
    weight: float = 0.0


@dataclass(frozen=True)
class RunRecord:
    """Plan of a run, its machines, and the reason why it ended.

    - `tare` is the version of tare, `suite` the suite's name, `started` the time in ISO 8601 (UTC).
    - `blocks` is the largest number of blocks of each workload. `stacks` include the A/A control.
    - `image` is the SHA-256 of the image's archive. `packages` has a line `name version` for each Debian package in it.
      `image_origin` is the name of a foreign image with its digest; "" if tare built the image.
    - `noise` is doctor's assessment at the start, `tuning` the settings of `tare tune` at that time.
    - `margin` is a share; `control` is the name of the A/A control, "" without one.
    - `families` and `isolation` have an entry for each layer of a stack, the inner first.
    - `stop_reason` is "" for a run that is running or was killed; `stop_detail` is the message of an error.
    - `machines` are by role: `controller` (where tare ran), `server`, `client`, `client 2`, …, and for the servers that
      tare provisioned for trials `lent`, `lent 2`, …. `machine` is the server, or the controller if all servers were
      provisioned.
    - `clients` has the `packages` of each client root, by its hash. A resumed run may have several.
    - `sample_seconds` is the requested sampling interval of the telemetry.
    - `beside` are the images of sidecar services, by the services' names.
    - `own` has the `command` and the `image` that override those of the run, `years` the year of an old version of a
      technology, both by the stacks' names. `suite_folder` is the folder of the suite's file.
    - `awake_cpus` are the CPUs that are kept awake during turns.
    - `session` is the title of what the workloads with a weight add up to; "" in runs of an earlier tare.
    """

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
    margin: float = field(kw_only=True)
    control: str = ""
    stop_reason: StopReason | Literal[""] = ""
    stop_detail: str = ""
    families: dict[str, tuple[Family, ...]] = field(default_factory=dict)
    machines: dict[str, Facts] = field(default_factory=dict)
    clients: dict[str, str] = field(default_factory=dict)
    tuning: tuple[Tuning, ...] = ()
    sample_seconds: float = field(kw_only=True)
    image_origin: str = ""
    beside: dict[str, str] = field(default_factory=dict)
    own: dict[str, dict[str, str]] = field(default_factory=dict)
    years: dict[str, str] = field(default_factory=dict)
    isolation: dict[str, tuple[Isolation, ...]] = field(default_factory=dict)
    suite_folder: str = ""
    awake_cpus: tuple[int, ...] = ()
    session: str = ""

    @property
    def base_folder(self) -> Path:
        """Folder to which paths in the suite are relative; the current one if it no longer exists or is unknown."""
        return Path(self.suite_folder) if exists(self.suite_folder) else Path()

    @property
    def instance_machine(self) -> Facts:
        """Machine that instances ran on: the server, or else the first provisioned machine."""
        return self.machine if "server" in self.machines else self.machines.get("lent", self.machine)


@dataclass(frozen=True)
class Run:
    """Content of a run folder.

    `path_from_report` is the relative path from the report's folder to this one, for links to raw files. `claims` are
    the claim files that the report judges; the papers' claims if it is empty. `digest` is the SHA-256 of the journal's
    complete lines; "" for a run that was not read from a journal.
    """

    folder: Path
    record: RunRecord
    trials: tuple[Trial, ...]
    path_from_report: str = ".."
    claims: tuple[str, ...] = ()
    digest: str = field(default="", compare=False)

    @cached_property
    def by_workload(self) -> Mapping[str, tuple[Trial, ...]]:
        """Trials of each workload, in the order of the journal."""
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.workload, []).append(trial)
        return {workload: tuple(trials) for workload, trials in found.items()}

    def trials_of(self, workload: str) -> tuple[Trial, ...]:
        """Return the trials of a workload; an empty tuple for a workload without trials."""
        return self.by_workload.get(workload, ())


_RECORD = TypeAdapter(RunRecord)


class RunReader:
    """Incremental reader of a run folder: `read` loads the trials so far, `add` appends later ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trials: list[Trial] = []
        self._digest = sha256()

    def read(self) -> Run:
        """Return the run with all trials so far; raises UsageError with the file and line that cannot be read.

        A last line without a line end is ignored: a power cut or another process that is writing leaves it.
        """
        path = self.folder / "trials.jsonl"
        try:
            record = load_record(self.folder)
            with pause_garbage_collection(), path.open("rb") if path.exists() else BytesIO() as file:
                while line := file.readline(_LONGEST_LINE + 1):
                    if line.endswith(b"\n"):
                        self.add(read_trial(line, f"{path}:{len(self.trials) + 1}"), line)
                    elif len(line) > _LONGEST_LINE:
                        what = f"{path}:{len(self.trials) + 1}: more than {_LONGEST_LINE >> 20} MiB, and no trial"
                        raise UsageError(what, _DAMAGED)
        except OSError as error:
            raise _not_a_run(self.folder, error) from error
        return self.build_run(record)

    def add(self, trial: Trial, line: bytes) -> None:
        """Add a trial and its line of the journal."""
        self.trials.append(trial)
        self._digest.update(line)

    def build_run(self, record: RunRecord) -> Run:
        """Return the run with the trials that were read and added."""
        return Run(self.folder, record, tuple(self.trials), digest=self._digest.hexdigest())


class RunWriter:
    """Writer of a run folder. It reads an existing folder only once.

    Trials are on the disk when `append` returns.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader = RunReader(folder)
        self.record: RunRecord | None = None  # None until the folder is read or created

    @property
    def run(self) -> Run:
        """The run with all trials so far."""
        return self._reader.build_run(self.read())

    def read(self) -> RunRecord:
        """Return the record of the run in the folder, which is read once; raises UsageError if there is none."""
        if self.record is None:
            self.record = self._reader.read().record
        return self.record

    def create(self, record: RunRecord, suite_text: str) -> None:
        """Create the folder. An existing folder is an error, unless it is that of a run without any trial."""
        if holds_no_trial(self.folder):
            shutil.rmtree(self.folder)
        # tare's umask is 022 because of the images. The run folder gets the permissions of the user's umask.
        self.folder.mkdir(0o777 & ~set_umask(), parents=True)
        (self.folder / "raw").mkdir()
        (self.folder / "telemetry").mkdir()
        (self.folder / "suite.toml").write_text(suite_text, encoding="utf-8")
        self._write(record)

    def amend(self, **changes: Any) -> None:
        """Change these fields of the record, and replace run.json atomically."""
        self._write(replace(self.read(), **changes))

    def _write(self, record: RunRecord) -> None:
        write_within(self.folder, "run.json", _RECORD.dump_json(record, indent=2) + b"\n")
        self.record = record

    def end(self, stop: Stop) -> None:
        """Record why the run ended."""
        self.amend(stop_reason=stop.reason, stop_detail=stop.detail)

    def add_provisioned_machine(self, facts: Facts) -> None:
        """Add a machine that was provisioned for a trial to the record, unless an earlier one has the same facts."""
        machines = self.read().machines
        provisioned = [machine for role, machine in machines.items() if role.startswith("lent")]
        if facts not in provisioned:
            role = f"lent {len(provisioned) + 1}" if provisioned else "lent"
            self.amend(machines=machines | {role: facts})

    def append(self, *trials: tuple[Trial, Sequence[RawOutput]]) -> None:
        """Record trials, all or none of them.

        Raw output is written first, so that every line of the journal has its raw output. Raises NotRecorded if the
        disk is full or gone; earlier trials stay readable.
        """
        try:
            self._append(trials)
        except OSError as error:
            what = f"{self.folder}: a trial could not be recorded: {format_os_error(error)}"
            raise NotRecorded(what, "make room there") from error

    def _append(self, trials: Sequence[tuple[Trial, Sequence[RawOutput]]]) -> None:
        self.read()
        lines = [(trial, _format_trial_line(trial).encode()) for trial, _ in trials]
        for trial, raw in trials:
            write_within(self.folder, f"raw/{trial.trial}.json", _RAW.dump_json(tuple(raw), indent=1) + b"\n")
        with open(self.folder / "trials.jsonl", "ab+", opener=_open_nofollow) as file:
            _drop_torn_end(file)
            file.write(b"".join(line for _, line in lines))
            file.flush()
            os.fsync(file.fileno())  # a trial may take hours: none may be lost in a power cut
        for trial, line in lines:
            self._reader.add(trial, line)


def load_run(folder: Path) -> Run:
    """Return the run in a folder; raises UsageError (see RunReader)."""
    return RunReader(folder).read()


def holds_no_trial(folder: Path) -> bool:
    """Return whether a folder is that of a run which ended before its first trial, and holds nothing else.

    Such a folder may be deleted. Any foreign file in it, or a symbolic link in its place, returns False.
    """
    try:
        entries = {entry.name for entry in folder.iterdir()}
        return not folder.is_symlink() and entries <= _RUN_FILES and not load_run(folder).trials
    except (OSError, UsageError):
        return False


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Context manager: pause garbage collection in a block that creates many objects without cycles.

    The search for cycles among the trials of a large run takes as long as reading them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load_record(folder: Path) -> RunRecord:
    """Return the record of a run, without the trials; raises UsageError."""
    try:
        return _parse_record(read_bounded(folder / "run.json", _MAX_BYTES), str(folder / "run.json"))
    except OSError as error:
        raise _not_a_run(folder, error) from error


def _not_a_run(folder: Path, error: OSError) -> UsageError:
    if not folder.is_dir():
        what = "no such folder"
    elif isinstance(error, FileNotFoundError):
        what = f"it has no {Path(error.filename).name}"
    else:
        what = f"{error.filename or folder}: {format_os_error(error)}"
    return UsageError(f"{folder}: not a run: {what}", "give the folder that `tare run` printed")


def load_raw(folder: Path, trial: str) -> tuple[RawOutput, ...]:
    """Return the raw output of a trial; raises UsageError."""
    try:
        return _RAW.validate_json(read_bounded(folder / "raw" / f"{trial}.json", _MAX_BYTES))
    except (OSError, ValidationError) as error:
        raise UsageError(f"{folder}: no raw output of trial {trial}", "`tare show RUN` lists the trials") from error


def _open_nofollow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _drop_torn_end(file: BinaryIO) -> None:
    """Cut off a last line without a line end, which the next trial would otherwise continue."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 1))
    if file.read() not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _parse_record(text: bytes, where: str) -> RunRecord:
    fields = _parse_fields(text, where, "a run's record")
    try:
        return _RECORD.validate_python(fields)
    except ValidationError as error:
        raise UsageError(f"{where}: {_format_first_error(error)}", _DAMAGED) from error


def read_trial(line: bytes, where: str) -> Trial:
    """Return the trial of a line of the journal; raises UsageError with the location `where`."""
    if line.startswith(_LINE_PREFIX):
        with suppress(ValidationError):  # the slower path below describes the error
            return _TRIAL.validate_json(line)
    fields = _parse_fields(line, where, "a trial")
    del fields["format"]
    try:
        return _TRIAL.validate_python(fields)
    except ValidationError as error:
        raise UsageError(f"{where}: {_format_first_error(error)}", _DAMAGED) from error


def _parse_fields(text: bytes, where: str, what: str) -> dict[str, Any]:
    """Return the fields of a JSON object of this FORMAT; `what` names the expected object in a UsageError."""
    try:
        fields: dict[str, Any] = json.loads(text.decode())
        version = fields["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{where}: not {what}", _DAMAGED) from error
    if version != FORMAT:
        hint = "use a newer tare" if isinstance(version, int) and version > FORMAT else _DAMAGED
        raise UsageError(f"{where}: format {version!r:.40}, and this tare reads {FORMAT}", hint)
    return fields


def _format_first_error(error: ValidationError) -> str:
    fault = error.errors()[0]
    return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"


def replace_trials(folder: Path, trials: Sequence[Trial]) -> None:
    """Replace the trials of a run. The earlier trials are kept in `trials.jsonl.before`."""
    write_within(folder, "trials.jsonl.before", (folder / "trials.jsonl").read_bytes())
    write_within(folder, "trials.jsonl", "".join(_format_trial_line(trial) for trial in trials).encode())


def _format_trial_line(trial: Trial) -> str:
    # pydantic would write NaN as null. `json` raises, so that a bug is not mistaken for a missing value.
    return json.dumps(trial_fields(trial), allow_nan=False) + "\n"


def trial_fields(trial: Trial) -> dict[str, Any]:
    """Return the fields of a trial in the journal, a line of trials.jsonl."""
    return {"format": FORMAT} | asdict(trial)
