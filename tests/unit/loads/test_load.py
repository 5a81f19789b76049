from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from busy import SPIN
from compiled import compiled
from setups import serving
from waiting import ENOUGH_SECONDS as SECONDS

from tare.hosts.exec import ExecHost, at_hand
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.loads.client_load import client_cpus, measured_load, server_address, while_sending
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Raw

BUSY = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; echo done; echo a warning >&2"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A client on this machine, with a resident process as in a run."""
    host = ExecHost(LocalHost())
    host.supervisor = str(compiled(tmp_path_factory.mktemp("programs"), "run") / "run")
    with at_hand(host):
        yield host


def test_a_load_gives_its_standard_output_alone_and_how_busy_it_was(client: Host) -> None:
    raw = measured_load(client, "GET 50", "sh", "-c", BUSY, timeout=SECONDS)
    assert (raw.label, raw.argv, raw.text) == ("GET 50", ("sh", "-c", BUSY), "done\n")
    assert raw.client_cpu is not None
    assert 0 < raw.client_cpu <= 1


def test_a_load_that_only_waits_uses_next_to_no_cpu(client: Host) -> None:
    raw = measured_load(client, "idle", "sleep", "0.3", timeout=SECONDS)
    busy = measured_load(client, "busy", sys.executable, "-c", SPIN, timeout=SECONDS)
    assert raw.seconds >= 0.3
    assert raw.client_cpu is not None
    assert raw.client_cpu * raw.seconds < 0.2 * float(busy.text)


def test_the_share_of_a_load_with_several_threads_is_that_of_the_cpus_that_it_can_use(client: Host) -> None:
    for cpus in (1, 4):
        raw = measured_load(client, "x", sys.executable, "-c", SPIN, timeout=SECONDS, cpus=cpus)
        assert raw.client_cpu is not None
        assert raw.client_cpu <= 1 / cpus
        own_seconds = float(raw.text)
        # It uses some more at its end, and tare sees it start before it starts.
        assert 0.9 * own_seconds <= raw.client_cpu * raw.seconds * cpus <= 1.5 * own_seconds


def test_a_client_has_the_cpus_that_it_is_pinned_to() -> None:
    assert client_cpus(LocalHost()) == len(os.sched_getaffinity(0))


def test_a_client_that_does_not_report_cpu_time_gives_no_share() -> None:
    assert measured_load(LocalHost(), "x", "true", timeout=SECONDS).client_cpu is None


def test_arguments_reach_the_load_as_they_are(client: Host) -> None:
    words = ("two words", "'quotes\"", "line\nline", "$HOME", "")
    assert measured_load(client, "x", "printf", "<%s>", *words, timeout=SECONDS).text == "".join(
        f"<{w}>" for w in words
    )


def test_a_load_that_fails_fails_the_trial_in_its_own_words(client: Host) -> None:
    with pytest.raises(TrialFailed, match=r"sh: exit code 7: no such server$"):
        measured_load(client, "x", "sh", "-c", "echo no such server >&2; exit 7", timeout=SECONDS)


def test_a_load_that_does_not_end_fails_the_trial(client: Host) -> None:
    with pytest.raises(TimedOut):
        measured_load(client, "x", "sleep", "60", timeout=0.2)


def test_cpu_time_is_related_to_the_time_of_sending_without_what_the_start_took() -> None:
    raw = Raw("GET 1000", (), "", 2.0, 0.4)
    assert while_sending(raw, 0.0, 1.0).client_cpu == pytest.approx(0.8)
    assert while_sending(raw, 0.3, 1.0).client_cpu == pytest.approx(0.5)
    assert while_sending(raw, 0.0, 0.5).client_cpu == 1.0
    assert while_sending(raw, 0.9, 0.5).client_cpu == 0.0
    assert while_sending(Raw("GET 1000", (), "", 2.0), 0.1, 1.0).client_cpu is None


def test_an_instance_without_a_network_cannot_serve() -> None:
    assert server_address(serving(LocalHost(), "198.18.0.10")) == "198.18.0.10"
    with pytest.raises(TrialFailed, match="tare-x: it has no network") as failure:
        server_address(serving(LocalHost(), None))
    assert failure.value.hint
