"""Tables of a suite for the whole run, references to foreign images, and limits that lower workload settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, Field, TypeAdapter

from tare.model.errors import UsageError, did_you_mean
from tare.model.image import ImageReference, ImageSpec, Release
from tare.model.trial import LimitsSpec, LoweredSetting
from tare.model.units import (
    Duration,
    Margin,
    PackageName,
    Size,
    format_count,
    format_duration,
    format_setting,
    format_size,
)
from tare.plugins.workload import Workload
from tare.suites.document import Document

Until = Literal["decided", "blocks"]
KeepAwake = Literal["auto", "on", "off"]
Instances = Literal["shared", "per-workload"]
PRECISION = 0.1
MAX_WEIGHT = 1e6  # of a workload in a session
_MAX_TITLE = 60
_SHORTEST_SECONDS = 0.02  # length of the shortest turn

FILES = ("docker-archive:", "oci:", "oci-archive:")
STORES = ("containers-storage:", "docker-daemon:", "docker://")
EXAMPLE = "docker-archive:app.tar"
_HINT = f"write {', '.join((*FILES, *STORES))} and its name there, or the path of a directory or a tar file"
_KEY = ("image",)
_FORBIDDEN = re.compile(r"[\s\0]")  # no reference of skopeo has white space, and no argument of a program a NUL byte


def read_source(text: str, folder: Path | None = None) -> ImageReference:
    """Return the reference to a foreign image; raises UsageError for an invalid name.

    Paths become absolute. They are relative to `folder`, or to the current folder if None.
    """
    transport = next((each for each in (*FILES, *STORES) if text.startswith(each)), "")
    name = text[len(transport) :]
    if not name or _FORBIDDEN.search(text):
        raise UsageError(f'"{text}" names no image', _HINT)
    if not transport and ":" in name and not name.startswith(("/", ".")):
        known = (*FILES, *STORES)
        meant = f"{name.partition(':')[0]}:"
        raise UsageError(f'"{text}": "{meant}" is no kind of image', did_you_mean(meant, known, _HINT))
    if transport in STORES:
        return ImageReference(transport, name)
    return ImageReference(transport, str(((folder or Path()) / name).absolute()))


def check_image_path(path: str) -> str:
    """Return a path in an image; raises ValueError for an invalid path."""
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError('write a path from the root of the image, for example "/srv/app"')
    return path


@dataclass(frozen=True)
class ImageTable:
    """Table `[image]`: the image of all instances. `from` is a keyword of Python, and is read separately."""

    release: Release = "bookworm"
    packages: tuple[PackageName, ...] = ()
    files: dict[Annotated[str, AfterValidator(check_image_path)], str] = field(default_factory=dict)
    credentials: str = ""
    limit: Annotated[Size, Field(gt=0)] = ImageReference.most_bytes


def read_image(document: Document) -> ImageSpec:
    """Return the image that the table `[image]` requests, with absolute paths; invalid keys become faults."""
    table: ImageTable = document.build(_KEY, ImageTable, ("from",)) or ImageTable()
    given = document.table(_KEY)
    folder = document.folder.absolute()
    files = tuple((target, str(folder / source)) for target, source in sorted(table.files.items()))
    if "from" not in given:
        for name in ("credentials", "limit"):
            if name in given:
                document.add_fault((*_KEY, name), "there is no image to get", f'write from = "{EXAMPLE}"')
        return ImageSpec(table.release, table.packages, files)
    for name in ("release", "packages"):
        if name in given:
            document.add_fault((*_KEY, name), "an image that others have built is taken as it is", f"leave {name} out")
    text = document.read_required_text(_KEY, "from", EXAMPLE)
    try:
        source = read_source(EXAMPLE if text is None else text, document.folder)
    except UsageError as error:
        document.add_fault((*_KEY, "from"), str(error), error.hint)
        return ImageSpec()
    credentials = str(folder / table.credentials) if table.credentials else ""
    return ImageSpec(source=ImageReference(source.transport, source.name, credentials, table.limit), files=files)


def _check_title(title: str) -> str:
    if not 0 < len(title) <= _MAX_TITLE or not title.isprintable() or not title.strip():
        raise ValueError(f"write a title of one line, up to {_MAX_TITLE} characters")
    return title


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a run, as the table `[suite]` has them. A new one needs no other place in `suites/`.

    - `blocks` is the largest number of blocks of each workload; 30 are the replication of the papers.
    - `until`: a stack gets blocks of a workload until its cell is decided, or until all blocks are done, as in the
      papers. A decided cell continues until half its interval is at most the `precision`, either as a factor of 1 plus
      this share, or as this share of the logarithm of its ratio.
    - `margin` is a share: 0.03 is 3 %.
    - `keep_awake`: whether CPUs are kept awake during turns; "auto" keeps them awake where they wake up slowly.
    - `instances`: whether the workloads of a block share instances, or each gets a fresh one.
    - `session`: the title of what the workloads with a weight add up to.
    """

    blocks: Annotated[int, Field(ge=1, le=10_000)] = 30
    until: Until = "decided"
    margin: Margin = 0.03
    precision: Margin = PRECISION
    keep_awake: KeepAwake = "auto"
    instances: Instances = "shared"
    seed: Annotated[int, Field(ge=0)] = 1
    session: Annotated[str, AfterValidator(_check_title)] = "One session"


@dataclass(frozen=True, kw_only=True)
class SuiteTable(RunSettings):
    """Table `[suite]`."""

    stacks: Annotated[tuple[str, ...], Field(min_length=1)]
    name: str = ""
    baseline: str = ""
    rounds: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = "auto"
    budget: Annotated[Duration, Field(gt=0)] | None = None


@dataclass(frozen=True)
class LimitsTable:
    """Table `[limits]`."""

    cpus: Annotated[int, Field(ge=1)] = LimitsSpec.cpus
    memory: Annotated[Size, Field(gt=0)] = LimitsSpec.memory_bytes
    open_files: Annotated[int, Field(ge=1)] = LimitsSpec.open_files
    time: Annotated[Duration, Field(gt=0)] | None = None


@dataclass(frozen=True)
class BoundsTable:
    """Table `[workloads.limits]`; None takes the limit of `[limits]`."""

    cpus: Annotated[int, Field(ge=1)] | None = None
    memory: Annotated[Size, Field(gt=0)] | None = None
    time: Annotated[Duration, Field(gt=0)] | None = None


@dataclass(frozen=True)
class TelemetryTable:
    """Table `[telemetry]`."""

    every: Annotated[Duration, Field(ge=0.01, le=3600)] = 0.1


def apply_limits(workload: Workload, limits: LimitsSpec) -> tuple[Workload, tuple[LoweredSetting, ...]]:
    """Return a workload with settings that fit these limits, and the settings that were lowered.

    Raises ValueError with the reason if no settings fit.
    """
    plain: Any = workload  # for mypy: plug-ins are dataclasses, but their base class `Workload` is not
    fitting: Workload = replace(plain, **workload.fit_to_limits(limits))
    has = f"{format_count(limits.cpus, 'CPU')} and {format_size(limits.memory_bytes)} of memory"
    lowered = _list_lowered(workload, fitting, f"an instance has {has}")
    if limits.seconds is None or fitting.estimate_seconds() <= limits.seconds:
        return fitting, lowered
    shorter = _shorten(fitting, limits.seconds)
    time = f"a trial may measure for {format_duration(limits.seconds)}"
    return shorter, (*lowered, *_list_lowered(fitting, shorter, time))


def _list_lowered(before: Workload, after: Workload, bound: str) -> tuple[LoweredSetting, ...]:
    return tuple(
        LoweredSetting(name, format_setting(asked, kind), format_setting(used, kind), bound)
        for name, asked in vars(before).items()
        if (used := vars(after)[name]) != asked and (kind := _setting_type(before, name))
    )


def _setting_type(workload: Workload, setting: str) -> Any:
    return get_type_hints(type(workload), include_extras=True)[setting]


def _shorten(workload: Workload, seconds: float) -> Workload:
    """Return the workload with its duration setting lowered to the largest value of two digits that fits.

    Raises ValueError if no value fits.
    """
    name = workload.duration_setting
    shortest: Workload = workload
    if name in vars(workload):
        kind = _setting_type(workload, name)
        read = TypeAdapter(kind).validate_python
        plain: Any = workload  # as above
        for lower in _yield_below(getattr(workload, name)):
            try:  # the setting's type may reject the value, such as an even number of runs
                shortest = replace(plain, **{name: read(json.loads(format_setting(lower, kind)))})
            except ValueError:
                continue
            if shortest.estimate_seconds() <= seconds:
                return shortest
    least = format_duration(shortest.estimate_seconds())
    raise ValueError(f"takes about {least} at the least, and may take {format_duration(seconds)}")


def _yield_below(value: float) -> Iterator[float]:
    """Yield the numbers of two digits below a value, the largest first. For an integer, all are integers."""
    for power in range(12, -4, -1):
        for digits in range(99, 9, -1):
            number = digits * 10**power if power >= 0 else digits / 10**-power
            if number >= value:
                continue
            if isinstance(value, int) and number % 1 == 0:
                yield int(number)
            elif isinstance(value, float) and number >= _SHORTEST_SECONDS:
                yield float(number)
