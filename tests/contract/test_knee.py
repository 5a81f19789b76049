"""The servers whose knee is searched, on bare metal: the real ones, under the real loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import planned_of

from tare.contracts.workloads import Workload
from tare.model.trials import Trial
from tare.runner.block import BlockRunner
from tare.runner.context import RunContext
from tare.runner.events import ignore_event
from tare.suites.plan import Block, Step
from tare.technologies.native import Native
from tare.workloads.apache import Apache
from tare.workloads.bind import Bind
from tare.workloads.lighttpd import Lighttpd
from tare.workloads.loads.http import page
from tare.workloads.loads.knee import KneeLoad

pytestmark = pytest.mark.machine

# One run at each rate, and no bisection: the knee is the last rate that was followed.
SHORT = (
    Bind(rates=(100, 100_000), runs=1, duration=0.1, resolution=1, timeout=0.2),
    Lighttpd(rates=(100, 20_000), runs=1, duration=0.1, resolution=1, timeout=0.2),
    Apache(rates=(100, 20_000), runs=1, duration=0.1, resolution=1, timeout=0.2),
)


def measured(testbed: RunContext, workload: Workload, native: Native) -> Trial:
    steps = (Step("native", workload.name, "native", 0, 0),)
    rounds = BlockRunner(testbed, {"native": (native,)}, ("native",), seed=1)
    ((trial, _),) = rounds.run(Block(workload.name, 0, steps), planned_of(workload), ignore_event)
    return trial


@pytest.mark.parametrize("workload", SHORT, ids=lambda each: each.name)
def test_a_real_server_has_a_knee_and_values_at_rates(testbed: RunContext, workload: KneeLoad) -> None:
    trial = measured(testbed, workload, Native())
    assert (trial.status, trial.reason) == ("ok", "")
    (knee,) = (value.value for value in trial.values if value.metric == "knee")
    assert knee >= 10
    latencies = {value.point: value.value for value in trial.values if value.metric == "latency"}
    assert latencies
    assert all(0 < seconds < 1 for seconds in latencies.values())


def test_a_port_in_use_fails_the_trial_even_where_the_other_server_gives_the_page(
    testbed: RunContext, tmp_path: Path
) -> None:
    workload = Lighttpd(rates=(20,), runs=1, duration=0.1, resolution=1)
    (tmp_path / "file").write_text(page(workload.size))
    where = ("--bind", testbed.network.machine_address, "--directory", str(tmp_path))
    with testbed.host.spawn("python3", "-u", "-m", "http.server", *where, str(workload.port)) as other:
        other.read_line(60)
        trial = measured(testbed, workload, Native(network="host"))
    assert trial.status == "failed"
    assert "/usr/sbin/lighttpd ended in the instance: it said" in trial.reason
    assert "Address already in use" in trial.reason
