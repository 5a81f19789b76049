"""CPU quotas: whether a limit on CPU time stopped an instance while it was measured.

tare sets no quota, but an engine or the machine may have one for the control groups around an instance. The time in
which a quota stops a program is no CPU time, and the kernel counts it as time in which others ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from tare.hosts.cgroups import parse_group, parse_layout
from tare.hosts.host import Host
from tare.model.errors import TareError
from tare.model.trial import Caution
from tare.telemetry.instance_reader import parse_counts
from tare.telemetry.kernel_files import MOUNTS, read_files
from tare.telemetry.procfs import parse_or_none


class QuotaWatch:
    """Watch over the quotas of the control groups of some processes, from now on.

    `group_texts` are the texts of `read_group_files`.
    """

    def __init__(self, host: Host, group_texts: Mapping[str, str]) -> None:
        self._host = host
        self._paths = _stat_paths(group_texts)
        self._before = self._count_stops()
        self._stops = 0

    def finish(self) -> None:
        """Count the stops so far. The counters vanish with the instance."""
        self._stops = self._count_stops() - self._before

    def caution(self) -> Caution | None:
        """Return the caution if a quota has stopped a process until `finish`; else None."""
        if self._stops <= 0:
            return None
        times = "once" if self._stops == 1 else f"{self._stops} times"
        return Caution("cpu-quota", f"a CPU quota of its control group stopped it {times}: compared by wall time")

    def _count_stops(self) -> int:
        texts = read_files(self._host, self._paths) if self._paths else {}
        counts = (parse_or_none(lambda text: parse_counts(text, "nr_throttled"), text) for text in texts.values())
        return sum(count[0] for count in counts if count)


def _stat_paths(group_texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of cpu.stat of the processes' groups and of all groups around them; () if they are unknown."""
    try:
        layout = parse_layout(group_texts.get(MOUNTS, ""))
    except TareError:
        return ()
    lists = [text for path, text in group_texts.items() if path != MOUNTS]
    groups = {PurePosixPath(parse_group(text, "cpu", layout.version)) for text in lists}
    around = {name for group in groups for name in (group, *group.parents) if group.is_absolute()}
    top = layout.mounts.get("cpu", "")
    return tuple(sorted(f"{top}/{name.relative_to('/')}/cpu.stat" for name in around if name != PurePosixPath("/")))
