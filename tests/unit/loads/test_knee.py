"""The search for the knee, on servers whose capacity is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from pydantic import TypeAdapter, ValidationError
from setups import serving

from tare.hosts.local import LocalHost
from tare.loads.knee import KneeLoad, KneeSearch, RateResult
from tare.model.errors import TrialFailed
from tare.model.trial import Metric, RawOutput, Value
from tare.plugins.workload import MeasurementContext
from tare.runner.values import read_values
from tare.workloads.bind import Bind

Share = Callable[[int, int], str]  # of a rate and a run's number to what a run prints: the share, or what failed


@dataclass(frozen=True)
class Known(KneeLoad):
    """A load of a server that is known: a run prints the share of answers, and what the client could not do."""

    name = "known"
    title = "Known"
    metrics = (
        Metric("knee", "Knee", "requests/s", "higher"),
        Metric("answered", "Answers", "requests/s", "higher", headline=False),
    )
    share_at: Share = field(default=lambda _rate, _number: "1")
    tried: list[int] = field(default_factory=list)

    def run_rate(self, setup: MeasurementContext, rate: int) -> RawOutput:
        del setup
        self.tried.append(rate)
        return RawOutput(f"rate {rate}", ("load",), self.share_at(rate, self.tried.count(rate)), 0.1, client_cpu=0.5)

    def read_rate_result(self, raw: RawOutput, rate: int) -> RateResult:
        share, _, client = raw.text.partition(" ")
        try:
            return RateResult(float(share), (Value("answered", float(rate), float(share) * rate),), client)
        except ValueError as error:
            raise TrialFailed(f"no share: {raw.text}") from error


SETUP = serving(LocalHost())


def with_capacity(capacity: int) -> Share:
    return lambda rate, _: f"{min(1.0, capacity / rate)}"


def found(load: Known) -> tuple[dict[float | None, float], str]:
    raw = list(load.measure(SETUP))
    values = read_values(load, raw)
    points = {value.point: value.value for value in values if value.metric == "answered"}
    (knee,) = (value.value for value in values if value.metric == "knee")
    return {None: knee, **points}, "".join(each.client_limit for each in raw)


@pytest.mark.parametrize("capacity", [37, 950, 1000, 1999, 19_000, 28_123, 123_456])
def test_the_knee_is_the_highest_sustained_rate_within_the_resolution(capacity: int) -> None:
    values, doubt = found(Known(share_at=with_capacity(capacity)))
    most = capacity / 0.95  # by the tolerance
    assert most / 1.01 - 1 <= values[None] <= most
    assert doubt == ""


def test_rates_rise_then_double_and_then_the_interval_is_halved() -> None:
    load = Known(rates=(1000, 1500), runs=1, resolution=0.1, share_at=with_capacity(5000))
    values, _ = found(load)
    assert load.tried == [1000, 1500, 3000, 6000, 4500, 5250, 5625]
    assert values == {None: 5250.0, 1000.0: 1000.0, 1500.0: 1500.0, 3000.0: 3000.0, 6000.0: 5000.0}


def test_rates_halve_where_not_even_the_first_is_followed() -> None:
    load = Known(runs=1, resolution=0.5, share_at=with_capacity(200))
    values, _ = found(load)
    assert load.tried == [1000, 500, 250, 125, 187]
    assert values == {None: 187.0, 1000.0: 200.0, 500.0: 200.0, 250.0: 200.0, 125.0: 125.0}


def test_a_server_that_follows_no_rate_fails_the_trial() -> None:
    raw = list((load := Known(share_at=lambda _rate, _number: "0.5")).measure(SETUP))
    with pytest.raises(TrialFailed, match=r"^answers do not even follow 15/s: the server fails$"):
        load.parse(raw)


def test_a_server_that_never_answers_fails_the_trial_at_the_first_rate() -> None:
    load = Known(share_at=lambda _rate, _number: "0")
    with pytest.raises(TrialFailed, match="gave no good answer at all at rate 1000/s") as failure:
        list(load.measure(SETUP))
    assert load.tried == [1000] * 3
    assert failure.value.output is not None


def test_a_server_that_hangs_from_a_rate_on_fails_the_trial_and_is_no_knee() -> None:
    tried: list[int] = []

    def hanging(rate: int, _: int) -> str:
        tried.append(rate)
        return "0" if max(tried) >= 4000 else "1"

    with pytest.raises(TrialFailed, match="gave no good answer at all at rate 20"):
        list(Known(share_at=hanging).measure(SETUP))


def test_rates_without_an_answer_in_time_do_not_end_the_search() -> None:
    values, doubt = found(Known(share_at=lambda rate, _: "0" if rate > 3500 else with_capacity(3000)(rate, 0)))
    assert doubt == ""
    assert 3000 <= values[None] <= 3160


def test_a_burst_of_noise_in_one_run_of_three_does_not_end_the_rise() -> None:
    def noisy(rate: int, number: int) -> str:
        return "0.4" if number == 2 else with_capacity(19_000)(rate, number)

    values, _ = found(Known(share_at=noisy))
    assert 19_600 < values[None] <= 20_000
    assert values[8000.0] == 8000.0


def test_each_run_is_a_turn_so_that_stacks_alternate() -> None:
    load = Known(runs=3, share_at=with_capacity(1500))
    assert load.rounds == 3
    assert [raw.label for raw in load.measure(SETUP)][:7] == 3 * ["rate 1000"] + 3 * ["rate 2000"] + ["rate 1500"]


# --- what the client could not do


def test_a_rate_that_the_client_cannot_send_is_not_the_limit_of_the_server() -> None:
    values, doubt = found(
        Known(runs=1, resolution=0.3, share_at=lambda rate, _: "1" if rate < 5000 else "0.4 no ports")
    )
    assert doubt == "the knee is 4000/s or more: at 5000/s, no ports"
    assert values == {None: 4000.0, 1000.0: 1000.0, 2000.0: 2000.0, 4000.0: 4000.0}


def test_a_failed_client_at_a_rate_beyond_the_servers_limit_is_no_doubt() -> None:
    def server(rate: int, _: int) -> str:
        return "0.4 no ports" if rate >= 8000 else with_capacity(5000)(rate, 0)

    load = Known(share_at=server)
    values, doubt = found(load)
    assert doubt == ""
    assert 5200 < values[None] < 5264
    assert 8000.0 not in values
    assert {raw.client_cpu for raw in load.measure(SETUP) if raw.label == "rate 8000"} == {None}


def test_a_run_whose_answers_follow_does_not_count_where_the_client_failed() -> None:
    _, doubt = found(Known(runs=1, resolution=1, share_at=lambda rate, _: "1 fd-unavail 3" if rate > 1000 else "1"))
    assert doubt == "the knee is 1000/s or more: at 2000/s, fd-unavail 3"


@pytest.mark.parametrize(
    ("runs", "doubted"),
    [
        (("1", "0.5", "0.4 no ports"), True),
        (("0.5", "0.5", "0.4 no ports"), False),
        (("1", "1", "0.4 no ports"), None),
        (("1", "0.4 no ports", "0.4 no ports"), True),
    ],
)
def test_the_majority_of_runs_decides_and_without_one_the_client_failed(
    runs: Sequence[str], doubted: bool | None
) -> None:
    load = Known(resolution=1, share_at=lambda rate, number: runs[number - 1] if rate == 2000 else "1")
    raw = []
    for each in load.measure(SETUP):
        raw.append(each)
        if len(raw) == 6:
            break
    search = load._decide_rate(
        KneeSearch((1000,), 1.0, low=1000), [load.read_rate_result(each, 2000) for each in raw[3:]]
    )
    assert (search.high is None) == (doubted is None)
    assert bool(search.client_problem) == bool(doubted)


def test_a_server_faster_than_any_rate_is_said_to_be() -> None:
    values, doubt = found(Known(runs=1))
    assert values[None] == 8_192_000
    assert doubt == "the knee is 8192000/s or more: tare asks for no more than 10000000/s"


# --- parse


def outputs(load: Known) -> list[RawOutput]:
    return list(load.measure(SETUP))


@pytest.mark.parametrize(
    "damaged",
    [
        lambda raw: raw[:0],
        lambda raw: raw[:-1],
        lambda raw: raw[1:],
        lambda raw: raw[:5] + raw[6:],
        lambda raw: [*raw, raw[-1]],
        lambda raw: raw[::-1],
        lambda raw: [*raw[3:6], *raw[:3], *raw[6:]],
    ],
)
def test_outputs_that_are_not_one_whole_search_fail_the_trial(
    damaged: Callable[[list[RawOutput]], list[RawOutput]],
) -> None:
    load = Known(share_at=with_capacity(3000))
    with pytest.raises(TrialFailed, match="expected 3 outputs of rate"):
        load.parse(damaged(outputs(load)))


def test_two_searches_of_a_trial_beside_two_groups_give_the_mean() -> None:
    slow, fast = (Known(runs=1, resolution=1, share_at=with_capacity(each)) for each in (2000, 4000))
    values = {(each.metric, each.point): each.value for each in fast.parse([*outputs(slow), *outputs(fast)])}
    assert values.pop(("knee", None)) == 3000.0
    assert {point: value for (_, point), value in values.items()} == {
        1000.0: 1000.0,
        2000.0: 2000.0,
        4000.0: 3000.0,
        8000.0: 4000.0,
    }


def test_values_of_several_runs_are_medians_without_client_failures() -> None:
    shares = ("0.96", "0.1 no ports", "1")
    load = Known(resolution=1, share_at=lambda rate, number: shares[number - 1] if rate == 1000 else "0.5")
    assert found(load)[0][1000.0] == 980.0


# --- settings


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rates": []}, "rates a second that rise"),
        ({"rates": [5]}, "from 10 to 10000000"),
        ({"rates": [1000, 20_000_000]}, "from 10 to 10000000"),
        ({"rates": [2000, 1000]}, "rates a second that rise"),
        ({"runs": 2}, "odd"),
        ({"runs": 0}, "odd"),
        ({"duration": "10ms"}, "greater than or equal to 0.1"),
        ({"duration": 1.0}, "needs its unit"),
        ({"tolerance": "0%"}, "greater than 0"),
        ({"resolution": "0%"}, "greater than or equal to 0.001"),
        ({"timeout": "1ms"}, "greater than or equal to 0.01"),
    ],
)
def test_settings_that_cannot_be_measured_are_refused_with_the_reason(settings: object, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        TypeAdapter(Bind).validate_python(settings)


def test_a_search_that_has_ended_learns_nothing_more() -> None:
    with pytest.raises(ValueError, match="ended"):
        KneeSearch((1000,), 1.0, low=1000, high=1100).with_result(followed=True)


def test_the_estimate_covers_the_search_of_a_usual_server() -> None:
    load = Known(share_at=with_capacity(20_000))
    runs = len(outputs(load))
    assert runs * load.duration <= load.estimate_seconds() <= 2 * runs * load.duration
