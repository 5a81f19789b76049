"""A load of the user's own: real commands on this machine as the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from setups import serving

from tare.errors import TimedOut, TrialFailed
from tare.hosts.local import LocalHost
from tare.model.trials import Raw
from tare.runner.values import read_values
from tare.workloads.loads.own_load import MOST_RUNS, OwnLoad, filled
from tare.workloads.loads.own_metrics import OwnMetric

RATE = OwnMetric(name="rate", unit="requests/s", better="higher", pattern=r"^rate: ([0-9.]+)$")
P99 = OwnMetric(name="p99", unit="s", better="lower", pointer="/latency/99")


def printing(text: str, **settings: float) -> OwnLoad:
    """Return a load that prints a text."""
    return OwnLoad(("printf", "%s", text), (RATE,), **settings)  # type: ignore[arg-type] # only times are given


def counting(path: Path) -> OwnLoad:
    """Return a load whose rate rises by one with each run."""
    script = 'echo >>"$1"; echo "rate: $(wc -l <"$1")"'
    return OwnLoad(("sh", "-c", script, "load", str(path)), (RATE,), duration=600)


def test_it_gets_the_servers_address_and_port_and_other_braces_stay() -> None:
    assert filled("http://{address}:{port}/{id}?{}", address="::1", port=80) == "http://::1:80/{id}?{}"
    load = OwnLoad(("printf", "rate: 1\n%s", "{address} {port} {x}"), (RATE,), port=81)
    assert next(load.measure(serving(LocalHost()))).text == "rate: 1\n198.18.0.10 81 {x}"


def test_the_first_run_warms_up_and_then_each_run_is_a_turn(tmp_path: Path) -> None:
    load = counting(tmp_path / "runs")
    raw = tuple(load.measure(serving(LocalHost())))
    assert [each.warm_up for each in raw] == [True, *(MOST_RUNS * [False])]
    (value,) = read_values(load, raw)
    assert value.turns == tuple(float(number) for number in range(2, MOST_RUNS + 2))
    assert (value.metric, value.unit, value.better) == ("rate", "requests/s", "higher")


def test_a_run_that_takes_longer_than_the_duration_is_the_only_one() -> None:
    raw = tuple(printing("rate: 7\n", duration=1e-9).measure(serving(LocalHost())))
    assert [each.warm_up for each in raw] == [True, False]


def test_metrics_are_read_from_either_output_and_from_json() -> None:
    raw = (Raw("load", ("x",), '{"latency": {"99": 0.25}}', 1.0, errors="rate: 9"),)
    assert [value.value for value in OwnLoad(("x",), (P99,)).parse(raw)] == [0.25]
    assert [value.value for value in OwnLoad(("x",), (RATE,)).parse(raw)] == [9.0]
    load = OwnLoad(("sh", "-c", "echo rate: 8 >&2"), (RATE,), duration=1e-9)
    assert [value.value for value in read_values(load, tuple(load.measure(serving(LocalHost()))))] == [8.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not match"),
        ("rate: many\n", "does not match"),
        ("rate: 1\nrate: 1\n", "matches 2 times"),
        ("rate: 1.2.3\n", "which is no number"),
    ],
)
def test_a_metric_that_is_not_there_or_twice_ends_the_trial_with_its_first_run(text: str, said: str) -> None:
    measuring = printing(text).measure(serving(LocalHost()))
    assert isinstance(measuring, Iterator)
    assert next(measuring).text == text  # what it printed is kept
    with pytest.raises(TrialFailed, match=f"^the pattern of rate .*{said}"):
        next(measuring)


def test_a_load_that_fails_fails_the_trial_with_what_it_said() -> None:
    load = OwnLoad(("sh", "-c", "echo cannot connect >&2; exit 3"), (RATE,))
    with pytest.raises(TrialFailed, match="cannot connect") as failure:
        tuple(load.measure(serving(LocalHost())))
    assert failure.value.output is not None
    assert failure.value.output.exit_code == 3


def test_a_load_that_never_ends_is_ended_and_the_setting_is_named() -> None:
    load = OwnLoad(("sleep", "600"), (RATE,), timeout=0.1)
    with pytest.raises(TimedOut, match=r"^sleep: did not end within ") as failure:
        tuple(load.measure(serving(LocalHost())))
    assert "timeout" in failure.value.hint


def test_an_instance_without_a_network_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="has no network"):
        tuple(printing("rate: 1\n").measure(serving(LocalHost(), None)))


@pytest.mark.parametrize("labels", [(), ("load", "load"), ("run",)])
def test_outputs_of_other_runs_are_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        printing("").parse([Raw(label, (), "rate: 1\n", 1.0) for label in labels])
