from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tare.contracts.workloads import Instance, MeasurementContext
from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.model.trials import LimitsWanted, Output
from tare.suites.bounds import bounded
from tare.workloads.redis_density import RedisDensity

SAMPLES = Path(__file__).parents[2] / "samples/redis"


@dataclass(frozen=True)
class Client(LocalHost):
    """A client whose redis-benchmark prints a captured output."""

    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        self.asked.append(argv)
        return Output(argv, 0, (SAMPLES / "set-1.csv").read_bytes(), b"", 0.1, 0.05)


def test_an_instance_is_asked_over_one_connection_for_a_moment() -> None:
    client, instance = Client(), Instance("tare-x", None, "198.18.0.2", "bridge", processes=tuple, serves={"redis": 7})
    raw = RedisDensity(requests=700).ask(MeasurementContext(instance, client, ()), "instance 1 of 1")
    assert raw.label == "instance 1 of 1"
    line = "redis-benchmark -h 198.18.0.2 -p 7 -t set -n 700 -c 1 -P 1 -k 1 --csv"
    assert client.asked == [tuple(line.split())]
    assert RedisDensity().slow_seconds(raw.text) == 0.000103


@pytest.mark.parametrize(("file", "seconds"), [("set-50.csv", 0.005359), ("set-200.csv", 0.002239)])
def test_the_99th_percentile_is_read_from_what_redis_benchmark_prints(file: str, seconds: float) -> None:
    assert RedisDensity().slow_seconds((SAMPLES / file).read_text()) == pytest.approx(seconds, abs=1e-12)


SET = (SAMPLES / "set-1.csv").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        SET[:-1],
        SET[:140],
        SET + SET,
        SET.replace('"0.103"', '"0.000"'),
        SET.replace('"0.103"', '"nan"'),
        SET.replace('"0.103"', '"-0.103"'),
        SET.replace('"0.103"', f'"{"9" * 400}.0"'),
        SET.replace('"p95_latency_ms","p99_latency_ms"', '"p99_latency_ms","p95_latency_ms"'),
        (SAMPLES / "get-1.csv").read_text(),
        (SAMPLES / "out-of-memory.csv").read_text(),
    ],
)
def test_what_holds_no_latency_fails_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match="gave no latency for SET"):
        RedisDensity().slow_seconds(text)


def test_a_bound_of_time_lowers_how_many_are_started_at_most() -> None:
    fitting, (lowered,) = bounded(RedisDensity(), LimitsWanted(seconds=10.0))
    assert fitting == RedisDensity(most=7)
    assert (lowered.setting, fitting.seconds() <= 10.0) == ("most", True)
