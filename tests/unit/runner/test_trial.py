from __future__ import annotations

from dataclasses import replace

import pytest

from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.trial import Caution, Limits, LimitsCheck, Mark, ObservedLimits, RawOutput
from tare.plugins import registry
from tare.plugins.technology import StartTimeline, Technology
from tare.runner.context import outer_limits
from tare.runner.layers import _mark_ready, start_timeout_seconds
from tare.runner.sanity_checks import client_cautions, limit_cautions, waiting_cautions
from tare.runner.trial_log import TrialLog
from tare.technologies.crun import Crun
from tare.technologies.qemu import Qemu
from tare.workloads.service import UserServer

ASKED = Limits((2, 3), 512 << 20, 4096)
AS_ASKED = ObservedLimits(2, 512 << 20, 4096)


def _raw(label: str, client_cpu: float | None) -> RawOutput:
    return RawOutput(label, ("wrk",), "", 1.0, client_cpu=client_cpu)


@pytest.mark.parametrize(
    "seen",
    [
        AS_ASKED,
        ObservedLimits(None, None, None),  # a unikernel cannot say
        replace(AS_ASKED, memory_bytes=int(0.86 * (512 << 20))),  # a guest's kernel keeps some for itself
    ],
)
def test_limits_that_were_asked_for_cause_no_caution(seen: ObservedLimits) -> None:
    assert limit_cautions(LimitsCheck(ASKED, seen)) == ()


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (replace(AS_ASKED, cpus=4), "sees 4 CPUs, 2 were asked for"),
        (replace(AS_ASKED, cpus=1), "sees 1 CPUs, 2 were asked for"),
        (replace(AS_ASKED, open_files=1024), "may open 1024 files, 4096 were asked for"),
        (replace(AS_ASKED, memory_bytes=400 << 20), "has 400 MiB of memory, 512 MiB were asked for"),
        (replace(AS_ASKED, memory_bytes=513 << 20), "has 513 MiB of memory, 512 MiB were asked for"),
        (replace(AS_ASKED, memory_bytes=24 << 30), "has 24576 MiB of memory, 512 MiB were asked for"),
    ],
)
def test_a_limit_that_differs_is_a_caution(seen: ObservedLimits, text: str) -> None:
    assert limit_cautions(LimitsCheck(ASKED, seen)) == (Caution("limits-differ", text),)


def test_every_limit_that_differs_is_a_caution_of_its_own() -> None:
    assert len(limit_cautions(LimitsCheck(ASKED, ObservedLimits(8, 24 << 30, 20000)))) == 3


@pytest.mark.parametrize(
    ("client_cpu", "server_busy"),
    [
        (None, 0.5),  # nobody measured the client
        (0.94, 0.5),
        (1.0, 0.95),  # the server had no more to give either
        (1.0, 1.0),
    ],
)
def test_a_load_with_time_to_spare_or_a_busy_server_is_not_client_bound(
    client_cpu: float | None, server_busy: float
) -> None:
    assert client_cautions((_raw("GET 50", client_cpu),), server_busy) == ()


@pytest.mark.parametrize("server_busy", [0.5, 0.94, None])
def test_a_saturated_load_is_client_bound_unless_the_server_was_busy(server_busy: float | None) -> None:
    raw = (_raw("GET 1", 0.3), _raw("GET 50", 0.95), _raw("GET 200", 1.0))
    text = "the load had no CPU time to spare at GET 50, GET 200"
    assert client_cautions(raw, server_busy) == (Caution("client-bound", text),)


def test_a_point_at_which_neither_server_nor_load_was_busy_is_a_wait() -> None:
    raw = (_raw("clients 1", 0.01), _raw("clients 1", 0.03), _raw("clients 50", 0.05), _raw("clients 99", None))
    text = "neither the server nor the load was busy at clients 1: this is a wait, not a cost"
    busy_cpus = {"clients 1": [0.0, 0.1], "clients 50": [0.06], "clients 99": [0.0]}
    assert waiting_cautions(raw, busy_cpus) == (Caution("waiting", text),)
    assert waiting_cautions(raw, {}) == ()  # nobody knows


def test_only_loads_whose_clients_never_pause_are_separated_from_waits() -> None:
    """Others rest between requests, as they are meant to."""
    without = {name for name in registry.names("workloads") if registry.find("workloads", name)().is_closed_loop}
    assert without == {"micro-http", "micro-redis", "network-prices", "nginx", "redis", "service"}
    assert not UserServer(rates=(1000,)).is_closed_loop


def test_a_load_is_judged_by_the_mean_of_its_turns() -> None:
    busy, idle = _raw("GET 50", 1.0), _raw("GET 50", 0.85)
    assert client_cautions((busy, idle), None) == ()
    (caution,) = client_cautions((busy, busy, idle), None)
    assert caution.text == "the load had no CPU time to spare at GET 50"


def test_a_client_limit_reported_by_a_workload_is_always_a_caution() -> None:
    raw = (_raw("rate 1000", 1.0), replace(_raw("rate 2000", 0.2), client_limit="the knee is 1000/s or more"))
    said = Caution("client-bound", "the knee is 1000/s or more")
    assert client_cautions(raw, 1.0) == (said,)
    text = "the load had no CPU time to spare at rate 1000"
    assert client_cautions(raw, 0.5) == (said, Caution("client-bound", text))


def test_a_trial_without_raw_output_is_not_client_bound() -> None:
    assert client_cautions((), 0.1) == ()


def test_moments_are_in_their_order_and_in_seconds_since_the_request() -> None:
    marks = [Mark("requested", 100.0), Mark("started", 100.5), Mark("ready", 103.0), Mark("userspace", 102.0)]
    assert TrialLog(marks).timeline == (
        Mark("requested", 0.0),
        Mark("started", 0.5),
        Mark("userspace", 2.0),
        Mark("ready", 3.0),
    )


def test_an_instance_that_never_was_has_no_moments() -> None:
    assert TrialLog().timeline == ()


@pytest.mark.parametrize(
    ("technology", "level", "on_emulated", "seconds"),
    [
        (Crun(), 0, False, 120),
        (Crun(), 0, True, 120),
        (Qemu(), 0, False, 120),
        (Crun(), 1, False, 120),
        (Qemu(), 0, True, 600),
        (Qemu(), 1, False, 600),
        (Crun(), 1, True, 600),
        (Crun(), 2, False, 600),
    ],
)
def test_nested_and_emulated_machines_may_take_longer_to_start(
    technology: Technology, level: int, on_emulated: bool, seconds: float
) -> None:
    cautions = (Caution("shared-cpus", "busy"), *([Caution("emulated", "slow")] if on_emulated else []))
    assert start_timeout_seconds(technology, level, cautions) == seconds


def test_an_instance_that_does_not_answer_is_said_to_with_how_long_it_had() -> None:
    words = "probe: 198.18.0.10:17007: No route to host"
    with LocalHost().spawn("sh", "-c", 'echo "$1" >&2; exit 1', "sh", words) as probe:
        said = r"^198\.18\.0\.10:17007 did not answer the client within 0\.5 s: No route to host$"
        with pytest.raises(TrialFailed, match=said):
            _mark_ready(probe, StartTimeline([Mark("requested", 0.0)]), 0.5, 0.0)


def test_a_client_that_is_lost_while_it_probes_says_so_itself() -> None:
    with (
        LocalHost().spawn("sh", "-c", "echo the connection was lost >&2; exit 255") as probe,
        pytest.raises(TrialFailed, match=r"^sh: ended: the connection was lost$"),
    ):
        _mark_ready(probe, StartTimeline([Mark("requested", 0.0)]), 0.5, 0.0)


def test_a_machine_has_room_for_its_contents_and_a_nested_monitor() -> None:
    asked = replace(ASKED, memory_bytes=1 << 30)
    assert [outer_limits(asked, layers).memory_bytes >> 30 for layers in (1, 2, 3)] == [2, 4, 6]
