"""fio: reads or writes of one size, in sequence or at random, with the latency of requests.

VTmark (2021, its Table 2) measures disks with Bonnie++ and DBENCH. fio is the common tool today, and tells slow
requests from typical ones: `latency` has a point for each percentile of a turn, from the submission of a request.

The files are written before the first turn. Each turn starts fio again, with the requests that fill it at the rate so
far. It has at least 1000 requests, of which the highest percentile leaves out one. Writes end when the disk has them.

Either O_DIRECT bypasses the page cache, or the caches of all machines of a stack are dropped before each turn. O_DIRECT
may have no effect, as in gVisor. So tare counts the bytes that the machine's disks move, and adds a caution for bytes
that did not reach them.

Settings: `place`, the root of the instance or a data volume; `pattern`; `block`, the size of a request; `size` of each
file; `engine`: `psync` waits for each request, `libaio` and `io_uring` have `depth` outstanding requests, or fewer if
the memory has no room for their blocks; `jobs`, processes with a file each; `caches`, `bypass` or `drop`; `duration`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tare.hosts.host import Host
from tare.loads.disk import FileWorkload, disk_traffic_share
from tare.loads.parsing import ReportObject, check_labels, read_report
from tare.loads.turns import TurnWorkload, limit_seconds, run_filled_turns, turn_seconds
from tare.model.machine import DiskBytes
from tare.model.trial import LimitsSpec, Metric, RawOutput, Sweep, Value
from tare.model.units import Duration, Size
from tare.plugins.workload import MeasurementContext

_PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_MIN_REQUESTS = 1000  # of a turn, for the 99.9th percentile
_SECONDS, _SLOWEST_SECONDS = 300.0, 1e6  # time limit of a turn of the fewest requests; least bytes a second of writing
_HINT = "`tare show` has the whole output; it is that of `fio --output-format=json`, version 3"


@dataclass(frozen=True)
class Fio(TurnWorkload, FileWorkload):
    """Reads or writes of files."""

    name = "fio"
    title = "fio: reads and writes"
    metrics = (
        Metric("rate", "Requests to files", "requests/s", "higher"),
        Metric("bandwidth", "Bytes read or written", "bytes/s", "higher", headline=False),
        Metric("latency", "Time of a request", "s", "lower"),
    )
    sweep = Sweep("percentile")
    packages = ("fio",)

    pattern: Literal["randread", "randwrite", "read", "write"] = "randread"
    block: Annotated[Size, Field(ge=512, le=16 << 20, multiple_of=512)] = 4096
    size: Annotated[Size, Field(ge=1 << 20, le=1 << 40)] = 256 << 20
    engine: Literal["psync", "libaio", "io_uring"] = "psync"
    depth: Annotated[int, Field(ge=1, le=1024)] = 1
    jobs: Annotated[int, Field(ge=1, le=64)] = 1
    caches: Literal["bypass", "drop"] = "bypass"
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 2.0

    def __post_init__(self) -> None:
        """Raise ValueError for settings that contradict each other."""
        if self.size % self.block:
            raise ValueError("`size` is a multiple of `block`")
        if self.engine == "psync" and self.depth > 1:
            raise ValueError('psync has one request on the way: for a `depth`, write engine = "libaio"')

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:
        """Lower the depth until the memory has room for the blocks of all outstanding requests."""
        return {"depth": min(self.depth, max(1, limits.usable_memory_bytes // (self.jobs * self.block)))}

    @property
    def needed_bytes(self) -> int:
        """Bytes of the files of all jobs."""
        return self.jobs * self.size

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Write the files, then run fio inside in each turn; raises TrialFailed without an inside."""
        inside, seeds, least = self.create_folder(setup), itertools.count(1), self._min_requests
        limit = _SECONDS + self.needed_bytes / _SLOWEST_SECONDS
        inside.run(*self._build_command(self.block, 0), "--create_only=1", timeout=limit)
        yield from run_filled_turns(
            lambda requests: self._run_turn(setup, inside, requests, next(seeds)),
            lambda raw: max(least, math.ceil(self._read_rate(raw.text) / self.jobs * turn_seconds(self.duration))),
            least,
            self.rounds,
        )

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return rate and latencies; raises TrialFailed for anything but one complete result with these settings."""
        check_labels(raw, [self.name])
        rate, found = self._read_rate(raw[0].text), self._read_job(raw[0].text).child("lat_ns").child("percentile")
        latencies = [Value("latency", each, found.positive(f"{each:.6f}") / 1e9) for each in _PERCENTILES]
        if latencies != sorted(latencies, key=lambda each: each.value):
            found.refuse("has percentiles that do not rise")
        return (Value("rate", None, rate), Value("bandwidth", None, rate * self.block), *latencies)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: writing the files at 300 MB/s, and the start of fio in each turn."""
        return 2.0 + self.needed_bytes / 300e6 + (1 + self.rounds) * (0.4 + turn_seconds(self.duration))

    @property
    def _min_requests(self) -> int:
        """Fewest requests of a job in a turn."""
        return math.ceil(_MIN_REQUESTS / self.jobs)

    @property
    def _direction(self) -> Literal["read", "write"]:
        return "read" if self.pattern.endswith("read") else "write"

    @property
    def _options(self) -> Mapping[str, str | int]:
        """Options that the output must repeat."""
        how = {"rw": self.pattern, "bs": self.block, "size": self.size, "ioengine": self.engine, "iodepth": self.depth}
        return {**how, "numjobs": self.jobs, "direct": int(self.caches == "bypass"), "overwrite": 1, "end_fsync": 1}

    def _build_command(self, job_bytes: int, seed: int) -> tuple[str, ...]:
        options = {**self._options, "directory": self.folder, "io_size": job_bytes, "randseed": seed}
        settings = (*(f"--{name}={value}" for name, value in options.items()), "--group_reporting=1", "--disk_util=0")
        points = f"--percentile_list={':'.join(f'{each:g}' for each in _PERCENTILES)}"
        return ("fio", "--name=tare", *settings, "--lat_percentiles=1", points, "--output-format=json")

    def _run_turn(self, setup: MeasurementContext, inside: Host, requests: int, seed: int) -> RawOutput:
        if self.caches == "drop":
            setup.drop_caches()
        argv, before = self._build_command(requests * self.block, seed), setup.read_disk_bytes()
        # The fewest requests may take longer than a turn, for example on a hard disk. More requests fill a turn.
        limit = limit_seconds(turn_seconds(self.duration)) if requests > self._min_requests else _SECONDS
        output, moved = inside.run(*argv, timeout=limit), requests * self.block * self.jobs
        share = disk_traffic_share(
            setup, before, DiskBytes(moved, 0) if self._direction == "read" else DiskBytes(0, moved)
        )
        return RawOutput(self.name, argv, output.text, output.seconds, disk_share=share)

    def _read_rate(self, text: str) -> float:
        done = self._read_job(text)
        return done.positive("total_ios") / (done.positive("runtime") / 1000)

    def _read_job(self, text: str) -> ReportObject:
        """Return the results of the job in fio's report; raises TrialFailed unless it has these settings.

        fio may print remarks before its JSON, which are skipped.
        """
        report = read_report(re.sub(r"\A.*?^(?=\{$)", "", text, count=1, flags=re.MULTILINE | re.DOTALL), "fio", _HINT)
        job = report.only_entry("jobs")
        options, done = job.child("job options"), job.child(self._direction)
        if not report.word("fio version").startswith("fio-3."):
            report.refuse("is of another version")
        if any(options.value(name) != str(value) for name, value in self._options.items()):
            options.refuse("is of other settings")
        moved, requests = done.positive("io_bytes"), done.positive("total_ios")
        failed = job.number("error") + done.number("short_ios") + done.number("drop_ios")
        if failed or moved != requests * self.block or options.word("io_size") != f"{moved / self.jobs:.0f}":
            done.refuse("has requests that failed or are missing")
        return done
