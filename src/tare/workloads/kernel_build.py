"""Kernel build: the seconds in which `make` compiles Linux, as measured by kcbench.

VTmark ran kcbench 0.4.1 without options (Table 2; Figure 4, third column): `make defconfig`, then `make vmlinux` of
Linux 4.14 three times, with twice as many jobs as the machine has CPUs, and `make clean` in between. Here the commands
are the same. The kernel is the one that Debian packages as source, 6.1 in Debian 12. It takes another time, so only
ratios can be compared with VTmark. The number of CPUs is that of the instance, not of the machine. The value is the
mean of the builds. The first build also compiles tools that `make clean` keeps, as in kcbench.

The source, 1.3 GB, is unpacked before the measurement, so that the page cache holds as much of it as fits. Caches are
not dropped: with enough memory, the build measures the compiler, not the disk. All builds must give the same kernel,
byte for byte. The parts that usually differ (date, number, user and machine of the build) are fixed. A build cannot
pause, so stacks are measured one after the other. The packages are large: only a suite that names this workload has
them in its image.

Settings: `config`, `"defconfig"`, or `"tinyconfig"` for a quick look; `builds`, the number of builds; `jobs_per_cpu`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from tare.hosts.host import Host
from tare.loads.parsing import check_labels
from tare.model.errors import TimedOut, TrialFailed, quote_output
from tare.model.trial import WALL_TIME, Metric, RawOutput, Value
from tare.plugins.workload import MeasurementContext, Workload

_GIB = 1 << 30
_TOOLS = ("bc", "bison", "flex", "gcc", "libc6-dev", "libelf-dev", "libssl-dev", "make", "xz-utils")
_FOLDER = "/srv/tare-kernel-build"
_KERNEL = f"{_FOLDER}/build/vmlinux"
_UNPACK = (
    'mkdir -p "$1/source" "$1/build" && exec tar -C "$1/source" --strip-components=1 -xf /usr/src/linux-source-*.tar.xz'
)
_FIXED = (
    *("KBUILD_BUILD_TIMESTAMP=1970-01-01", "KBUILD_BUILD_VERSION=1"),
    *("KBUILD_BUILD_USER=tare", "KBUILD_BUILD_HOST=tare"),
)
_RESULT = re.compile(rf"(?P<kernel>[0-9a-f]{{64}})  {re.escape(_KERNEL)}\n", re.ASCII)
_DISK_BYTES = {"defconfig": 4 * _GIB, "tinyconfig": 2 * _GIB}
_CPU_SECONDS = {"defconfig": 1200.0, "tinyconfig": 120.0}
_TIMEOUT_FACTOR = 20  # times the seconds of one CPU, as an emulated CPU needs them
_SHORTAGES = {  # texts in the output of a failed command, and the hint
    "memory": (("Killed", "annot allocate memory", "ut of memory"), "give the instances more `memory` in [limits]"),
    "disk": (("No space left on device", "Disk quota exceeded"), "make room where the instances have their disks"),
}


@dataclass(frozen=True)
class KernelBuild(Workload):
    """Build of Linux by gcc."""

    name = "kernel-build"
    title = "Kernel build"
    metrics = (Metric(WALL_TIME, "Time of a build", "s", "lower"),)
    paths = (_FOLDER,)
    packages = (*_TOOLS, "linux-source")
    has_large_packages = True
    duration_setting = "builds"

    config: Literal["defconfig", "tinyconfig"] = "defconfig"
    builds: Annotated[int, Field(ge=1, le=100)] = 3
    jobs_per_cpu: Annotated[int, Field(ge=1, le=8)] = 2

    @property
    def disk_bytes(self) -> int:
        """Bytes of the source and of a build."""
        return _DISK_BYTES[self.config]

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Unpack the source, configure it, and build it repeatedly; raises TrialFailed if a command fails."""
        inside = setup.require_inside(self.name)
        cpus = 1 if setup.limits is None else setup.limits.seen.cpus or len(setup.limits.asked.cpus)
        jobs = self.jobs_per_cpu * cpus
        yield self._run(inside, "source", "sh", "-c", _UNPACK, "sh", _FOLDER).as_warm_up()
        yield self._make(inside, "configure", jobs, self.config).as_warm_up()
        for number in range(self.builds):
            if number:
                self._make(inside, "clean", jobs, "clean")
            built = self._make(inside, f"build {number + 1}", jobs, "vmlinux")
            kernel = self._run(inside, "kernel", "sha256sum", _KERNEL)
            yield replace(built, text=built.text + kernel.text)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the mean time of the builds; raises TrialFailed unless all gave the same kernel."""
        labels = [f"build {number + 1}" for number in range(self.builds)]
        check_labels(raw, labels)
        if len(kernels := {_read_kernel_hash(each) for each in raw}) > 1:
            raise TrialFailed(f"the builds gave {len(kernels)} different kernels", "`tare show` has their SHA-256")
        seconds = [each.seconds for each in raw]
        if not all(0 < each < math.inf for each in seconds):
            raise TrialFailed(f"the builds took {seconds} s")
        return (Value(WALL_TIME, None, fmean(seconds)),)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, on one CPU."""
        return 60 + self.builds * _CPU_SECONDS[self.config]

    def _make(self, inside: Host, label: str, jobs: int, target: str) -> RawOutput:
        where = ("-C", f"{_FOLDER}/source", f"O={_FOLDER}/build")
        return self._run(inside, label, "make", "--silent", *where, *_FIXED, f"-j{jobs}", target)

    def _run(self, inside: Host, label: str, *argv: str) -> RawOutput:
        try:
            output = inside.run(*argv, timeout=600 + _TIMEOUT_FACTOR * _CPU_SECONDS[self.config])
        except TrialFailed as error:
            raise self._explain_failure(error) from error
        return RawOutput(label, argv, output.text, output.seconds)

    def _explain_failure(self, error: TrialFailed) -> TrialFailed:
        """Return a failure for lack of memory or disk if the output of the command shows that, else the error."""
        if error.output is None or isinstance(error, TimedOut):
            return error
        printed = (error.output.stdout + error.output.stderr).decode("utf-8", "replace")
        for resource, (signs, hint) in _SHORTAGES.items():
            if any(sign in printed for sign in signs):
                what = f"the instance has too little {resource} for {self.config}: {error}"
                return TrialFailed(what, hint, error.output)
        return error


def _read_kernel_hash(raw: RawOutput) -> str:
    """Return the SHA-256 of the kernel of a build; raises TrialFailed if it is missing."""
    found = _RESULT.fullmatch(raw.text)
    if found is None:
        raise TrialFailed(f"{raw.label} gave no kernel; {quote_output(raw.text)}", "`tare show` has the whole output")
    return found["kernel"]
