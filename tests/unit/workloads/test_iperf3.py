from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from setups import serving

from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.model.trials import Output, Raw
from tare.runner.values import read_values
from tare.workloads.iperf3 import Iperf3, Mode
from tare.workloads.loads.iperf3 import Sending, read_sent

SAMPLES = Path(__file__).parents[2] / "samples/iperf3"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.json").read_text()


def captured(mode: str) -> Raw:
    return Raw(mode, ("iperf3",), sample(mode), 0.2)


def parsed(mode: Mode, text: str, streams: int = 1) -> list[float]:
    workload = Iperf3(modes=(mode,), streams=streams)
    return [value.value for value in workload.parse([replace(captured(mode), text=text)])]


def changed(mode: str, change: Callable[[dict[str, dict[str, dict[str, object]]]], object]) -> str:
    report = json.loads(sample(mode))
    change(report)
    return json.dumps(report)


@dataclass
class Client(LocalHost):
    """A client whose iperf3 sends at a rate, in bytes a second, up to its limit. It notes the calls.

    Its start takes 0.25 s, in which it works for 0.1 s, and half of its CPU while it sends. The first `failing` calls
    print what was captured as `error`.
    """

    rate: float
    failing: int = 0
    error: str = "busy"
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        assert timeout > 30
        assert check
        assert not input
        self.calls.append(argv)
        if self.failing:
            self.failing -= 1
            return Output(argv, 0, sample(self.error).encode(), b"", 0.25, 0.1)
        streams = int(self.option("--parallel", -1))
        limit = streams * int(self.option("--bitrate", -1)) / 8
        sent = int(self.option("--bytes", -1))
        seconds = sent / min(self.rate, limit or self.rate)
        report = json.loads(sample("udp" if "--udp" in argv else "tcp"))
        report["start"]["test_start"] |= {"target_bitrate": int(8 * limit / streams), "num_streams": streams}
        report["end"]["sum_sent"] |= {"bytes": sent, "seconds": seconds}
        report["end"]["sum_received"] |= {"bytes": sent, "seconds": seconds}
        return Output(argv, 0, json.dumps(report).encode(), b"", 0.25 + seconds, 0.1 + seconds / 2)

    def option(self, name: str, call: int) -> str:
        return self.calls[call][self.calls[call].index(name) + 1]


def measure(workload: Iperf3, client: Client) -> tuple[Raw, ...]:
    return tuple(workload.measure(serving(client)))


# --- parse


def test_what_lies_in_buffers_at_the_end_was_not_received() -> None:
    sent = json.loads(sample("tcp-four-streams"))["end"]["sum_sent"]
    received, _ = parsed("tcp", sample("tcp-four-streams"), streams=4)
    assert received < 0.9 * sent["bytes"] / sent["seconds"]


def test_the_loss_is_that_of_all_streams() -> None:
    text = sample("udp-two-streams")
    told = json.loads(text)["end"]["sum_received"]
    assert parsed("udp", text, streams=2)[1] == pytest.approx(100 * told["lost_packets"] / told["packets"])


def test_a_report_whose_keys_have_another_order_is_the_same() -> None:
    text = json.dumps(json.loads(sample("udp")), sort_keys=True)
    assert text != sample("udp")
    assert parsed("udp", text) == parsed("udp", sample("udp"))


def test_an_error_after_a_whole_result_fails_the_trial_too() -> None:
    text = json.dumps(json.loads(sample("tcp")) | {"error": "control socket has closed unexpectedly"})
    with pytest.raises(TrialFailed, match="iperf3: control socket has closed unexpectedly"):
        parsed("tcp", text)


def test_a_path_that_carries_no_datagrams_is_named_as_the_likely_reason() -> None:
    with pytest.raises(TrialFailed) as failure:
        parsed("udp", sample("udp-blocked"))
    assert "carry UDP" in failure.value.hint


def test_datagrams_of_which_none_arrived_are_no_loss_of_nothing() -> None:
    assert json.loads(sample("udp-nothing-arrives"))["end"]["sum"]["lost_percent"] == 0
    text = sample("udp-nothing-arrives").replace('"target_bitrate":\t10000000', '"target_bitrate":\t0')
    with pytest.raises(TrialFailed, match="has 0 for bytes"):
        parsed("udp", text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        changed("tcp", lambda report: report["end"].pop("sum_received")),
        changed("tcp", lambda report: report["end"]["sum_sent"].pop("retransmits")),
        changed("tcp", lambda report: report.pop("start")),
    ],
)
def test_what_is_not_one_whole_report_fails_the_trial_with_what_was_found(text: str) -> None:
    with pytest.raises(TrialFailed, match="iperf3") as failure:
        parsed("tcp", text)
    assert repr(text[:40])[1:-1] in str(failure.value)


@pytest.mark.parametrize(
    ("name", "value"), [("protocol", "UDP"), ("num_streams", 2), ("omit", 1), ("reverse", 1), ("target_bitrate", 5)]
)
def test_a_report_of_a_test_with_other_settings_fails_the_trial(name: str, value: object) -> None:
    text = changed("tcp", lambda report: report["start"]["test_start"].update({name: value}))
    with pytest.raises(TrialFailed, match="is of a test with other settings"):
        parsed("tcp", text)
    with pytest.raises(TrialFailed, match="is of a test with other settings"):
        parsed("tcp", sample("whole-seconds"))


def test_more_received_than_sent_and_more_lost_than_known_are_absurd() -> None:
    received = changed("tcp", lambda report: report["end"]["sum_received"].update(bytes=10**12))
    with pytest.raises(TrialFailed, match="has received more than was sent"):
        parsed("tcp", received)
    lost = changed("udp", lambda report: report["end"]["sum_received"].update(lost_packets=10**9))
    with pytest.raises(TrialFailed, match="has lost more datagrams than it knows of"):
        parsed("udp", lost)


# --- measure


@pytest.mark.parametrize("rate", [1e5, 3e8, 2e10])
def test_a_turn_takes_a_tenth_of_the_duration_whatever_the_network_does(rate: float) -> None:
    raw = [each for each in measure(Iperf3(modes=("tcp", "udp")), Client(rate)) if not each.warm_up]
    assert len(raw) == 2 * 10
    assert [each.sending_seconds for each in raw] == pytest.approx(20 * [0.1], rel=0.01)


def test_the_modes_take_turns_in_each_round_and_what_is_omitted_comes_before() -> None:
    raw = measure(Iperf3(modes=("tcp", "udp"), duration=0.06, omit=0.04), Client(1e8))
    assert [each.label for each in raw] == ["start", "probe tcp", "probe udp", *(5 * ["tcp", "udp"])]
    assert [each.warm_up for each in raw] == [*(7 * [True]), *(6 * [False])]


@pytest.mark.parametrize("rate", [1e3, 1e8, 1e11])
def test_a_stack_of_any_speed_has_as_many_turns_before_its_first_round(rate: float) -> None:
    assert sum(each.warm_up for each in measure(Iperf3(omit=0.0), Client(rate))) == 1 + 3


def test_the_papers_duration_is_ten_seconds_dropped_and_three_minutes_measured() -> None:
    workload = Iperf3(duration=180.0, omit=10.0)
    assert (workload.rounds, workload.rounds * 0.2) == (900, 180.0)
    assert workload.seconds() == pytest.approx(0.05 + 3 * (2 + 50 + 900) * 0.23)


@pytest.mark.parametrize("error", ["busy", "closed", "refused"])
def test_a_server_that_did_not_begin_the_test_is_asked_again(error: str) -> None:
    client = Client(1e8, failing=3, error=error)
    raw = measure(Iperf3(modes=("tcp",), duration=0.02, omit=0.0), client)
    assert [each.label for each in raw] == ["start", "probe tcp", "tcp"]
    assert client.calls[0] == client.calls[3]


@pytest.mark.parametrize(("error", "calls"), [("busy", 10), ("refused", 10), ("udp-blocked", 1)])
def test_a_server_that_never_begins_a_test_fails_the_trial(error: str, calls: int) -> None:
    client = Client(1e8, failing=1000, error=error)
    with pytest.raises(TrialFailed, match="iperf3: ") as failure:
        measure(Iperf3(omit=0.0), client)
    assert len(client.calls) == calls
    assert ("newer runsc" in failure.value.hint) == (error == "busy")


def test_a_failed_test_keeps_its_output() -> None:
    with pytest.raises(TrialFailed) as failure:
        measure(Iperf3(), Client(1e8, failing=1, error="udp-blocked"))
    assert failure.value.output is not None
    assert failure.value.output.text == sample("udp-blocked")


def test_a_probe_of_which_nothing_arrived_is_only_a_probe() -> None:
    sending = Sending(is_udp=True, size_bytes=1_000_000, streams=1, cap=1_250_000)
    assert read_sent(sample("udp-nothing-arrives"), sending).seconds == pytest.approx(0.839096)


def test_the_settings_reach_iperf3() -> None:
    client = Client(1e9)
    measure(Iperf3(modes=("udp-capped",), streams=4, cap=1_000_000, omit=0.0), client)
    command = ("iperf3", "--client", "198.18.0.10", "--port", "15201", "--json")
    assert client.calls[0] == (*command, "--bytes", "4", "--parallel", "4", "--bitrate", "0")
    limit = ("--bitrate", "2000000")  # that of each of four streams
    assert client.calls[-1] == (*command, "--bytes", "100000", "--parallel", "4", *limit, "--udp", "--length", "1448")


def test_the_share_of_the_clients_cpu_is_that_of_the_time_of_sending_without_its_start() -> None:
    raw = measure(Iperf3(modes=("tcp",)), Client(1e8))
    assert {each.client_cpu for each in raw[:2]} == {None}
    assert [each.client_cpu for each in raw[2:]] == pytest.approx(11 * [0.5], abs=0.01)


def test_what_was_measured_can_be_parsed_round_by_round() -> None:
    workload = Iperf3()
    values = read_values(workload, measure(workload, Client(1e9)))
    throughput = {value.metric: value.value for value in values if value.unit == "bytes/s"}
    assert throughput == pytest.approx({"tcp": 1e9, "tcp-capped": 125e6, "udp": 1e9})
    assert {len(value.turns) for value in values} == {10}
