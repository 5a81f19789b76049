"""What telemetry costs: the CPU time of the sampler's thread, with instances of three sleeping processes each.

    make bench

At ten samples a second, and at tare's own pace, which leaves samples out before they take more than half a percent of a
CPU. Sleeping processes cost as much to read as busy ones.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tare.hosts.cgroups import ControlGroup, create_limited_cgroup
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost, isolate_mounts
from tare.images.image import ensure_image
from tare.model.trial import Limits
from tare.telemetry.kernel_files import LocalFiles
from tare.telemetry.sampler import Sampler, SamplingBackend, SamplingBudget, run_sampler

_SECONDS = 5.0
_PROCESSES = 3
_ALL = SamplingBudget(0.1, max_share=1.0)
_HOST = LocalHost()


@contextmanager
def instances(count: int, folder: Path) -> Iterator[list[ControlGroup]]:
    """Start processes in control groups of their own, as those of instances."""
    ledger = Ledger(folder / "ledger.jsonl", _HOST)
    with ExitStack() as stack:
        stack.enter_context(ledger.open_setup_helper(ensure_image(print).root))
        groups = []
        for number in range(count):
            group = stack.enter_context(
                create_limited_cgroup(ledger, f"tare-bench-{number}", Limits((0,), 512 << 20, 4096))
            )
            for _ in range(_PROCESSES):
                stack.enter_context(_HOST.spawn(*group.join, "sleep", "1000"))
            groups.append(group)
        yield groups


def cost(groups: list[ControlGroup], pace: SamplingBudget, folder: Path) -> tuple[float, float]:
    """Return the share of a CPU that the sampler's thread takes, and the samples a second."""
    with run_sampler(folder / "block.parquet", SamplingBackend(LocalFiles(), pace)) as sampler, ExitStack() as stack:
        for number, group in enumerate(groups):
            stack.enter_context(sampler.sample_instance(f"trial-{number}", group.processes))
        (thread,) = (each for each in threading.enumerate() if each.name == "tare-sampler")
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        began, used, samples = time.monotonic(), time.clock_gettime(clock), _samples(sampler)
        time.sleep(_SECONDS)
        seconds = time.monotonic() - began
        return (time.clock_gettime(clock) - used) / seconds, (_samples(sampler) - samples) / seconds


def _samples(sampler: Sampler) -> int:
    return sum(row.trial is None for row in sampler.rows)


def main() -> None:
    """Print the table."""
    isolate_mounts(share_namespaces=False)
    print("instances  share of a CPU at 10 Hz  at tare's pace  samples a second")
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as name, instances(11, Path(name)) as groups:
        for count in (1, 4, 11):
            share, _ = cost(groups[:count], _ALL, Path(name))
            paced, rate = cost(groups[:count], SamplingBudget(0.1), Path(name))
            print(f"{count:9}  {share:23.2%}  {paced:14.2%}  {rate:16.1f}")


if __name__ == "__main__":
    main()
