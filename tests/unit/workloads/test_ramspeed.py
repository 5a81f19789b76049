from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from fakes import LIMITS
from pydantic import TypeAdapter, ValidationError
from tare_fake.technology import FakeHost

from tare.contracts import Instance, Setup, Workload
from tare.errors import TrialFailed
from tare.model import Output, Raw, Value
from tare.workloads.ramspeed import Kind, Ramspeed

SAMPLES = Path(__file__).parents[2] / "samples/ramspeed"
SSE = Ramspeed(kinds=("sse",))
LABELS = ("mem sse", "mark sse read", "mark sse write")


def captured(label: str) -> Raw:
    return Raw(label, ("ramspeed",), (SAMPLES / f"{label.replace(' ', '-')}.txt").read_text(), 0.5)


def mem_with(old: str, new: str) -> list[Raw]:
    first, *others = (captured(label) for label in LABELS)
    assert old in first.text
    return [replace(first, text=first.text.replace(old, new)), *others]


def test_a_captured_run_gives_every_speed_with_its_block_size() -> None:
    values = SSE.parse([captured(label) for label in LABELS])
    assert values[:6] == (
        Value("sse-copy", None, 11133458701.747),
        Value("sse-scale", None, 11589919697.496),
        Value("sse-add", None, 12970594308.793),
        Value("sse-triad", None, 11938645389.274),
        Value("sse-average", None, 11908154524.328),
        Value("sse-read", 4096.0, 84683694543.7),
    )
    assert [(value.metric, value.point) for value in values[6:]] == [
        ("sse-read", 262144.0),
        ("sse-read", 8388608.0),
        ("sse-read", 33554432.0),
        ("sse-write", 4096.0),
        ("sse-write", 262144.0),
        ("sse-write", 8388608.0),
        ("sse-write", 33554432.0),
    ]


def test_all_kinds_together_give_exactly_the_declared_metrics() -> None:
    labels = [
        f"{part}" for kind in get_args(Kind) for part in (f"mem {kind}", f"mark {kind} read", f"mark {kind} write")
    ]
    workload: Workload = Ramspeed(get_args(Kind))
    values = workload.parse([captured(label) for label in labels])
    assert len(values) == 6 * (5 + 2 * 4)
    assert list(dict.fromkeys(value.metric for value in values)) == [metric.name for metric in workload.metrics]
    assert {metric.unit for metric in workload.metrics} == {"bytes/s"}


def test_without_mark_sizes_there_is_no_read_and_no_write() -> None:
    values = Ramspeed(kinds=("sse",), mark_sizes=()).parse([captured("mem sse")])
    assert [value.metric for value in values] == ["sse-copy", "sse-scale", "sse-add", "sse-triad", "sse-average"]


@pytest.mark.parametrize("number", ["0.000", "-1.000", "nan", "inf", "", "fast", "1e400", "9" * 400 + ".0"])
def test_a_speed_that_is_no_positive_number_fails_the_trial_and_is_quoted(number: str) -> None:
    with pytest.raises(TrialFailed, match="no verified speeds for mem sse") as failure:
        SSE.parse(mem_with("11589919697.496", number))
    assert f"scale_bytes_per_second: {number}"[:60] in str(failure.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("verified: yes\n", ""),
        ("verified: yes\n", "verified: no\n"),
        ("add_bytes_per_second: 12970594308.793\n", ""),
        ("add_bytes_per_second: 12970594308.793\n", 2 * "add_bytes_per_second: 12970594308.793\n"),
        ("kind: sse\n", "kind: integer\n"),
        ("array_bytes: 33554432\n", "array_bytes: 4096\n"),
        ("passes: 5\n", "passes: 2\n"),
        ("passes: 5\n", "passes: 5\nKilled\n"),
    ],
)
def test_an_output_that_is_not_what_the_settings_ask_for_fails_the_trial(old: str, new: str) -> None:
    with pytest.raises(TrialFailed, match="it printed 'program: ramspeed mem"):
        SSE.parse(mem_with(old, new))


@pytest.mark.parametrize("text", ["", "Bus error\n"])
def test_garbage_fails_the_trial_and_is_quoted(text: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        Ramspeed(kinds=("sse",), mark_sizes=()).parse([Raw("mem sse", (), text, 0.1)])
    assert f"it printed {text!r}" in str(failure.value)
    assert failure.value.hint


def test_a_block_size_that_was_not_asked_for_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="mark sse read"):
        replace(SSE, mark_sizes=(4096,)).parse([captured(label) for label in LABELS])


@pytest.mark.parametrize("labels", [(), LABELS[:2], (*LABELS, "mem sse"), ("mem float", *LABELS[1:])])
def test_outputs_that_are_missing_or_too_many_fail_the_trial(labels: tuple[str, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        SSE.parse([captured(label) for label in labels])


def test_it_serves_nothing() -> None:
    workload: Workload = Ramspeed()
    assert workload.port is None
    assert workload.service("127.0.0.1") is None


def test_the_sizes_of_a_suite_carry_their_unit() -> None:
    settings = {"kinds": ["float"], "mark_sizes": ["4KiB", "1MiB"], "array_bytes": "16MiB", "passes": 2}
    expected = Ramspeed(kinds=("float",), mark_sizes=(4096, 1048576), array_bytes=16777216, passes=2)
    assert TypeAdapter(Ramspeed).validate_python(settings) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"kinds": ["avx"]},
        {"kinds": []},
        {"kinds": ["sse", "sse"]},
        {"mark_sizes": ["4KiB", "4KiB"]},
        {"mark_sizes": ["100B"]},
        {"array_bytes": 4096},
        {"array_bytes": "0B"},
        {"passes": 0},
    ],
)
def test_settings_that_the_program_cannot_run_are_refused_before_anything_starts(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Ramspeed).validate_python(settings)


@dataclass(frozen=True)
class Limited(FakeHost):
    """A host that notes the time limits of what it runs."""

    limits_seconds: set[float] = field(default_factory=set)

    def run(self, *argv: str, timeout: float, **_: Any) -> Output:
        self.limits_seconds.add(timeout)
        return super().run(*argv, timeout=timeout)


@pytest.mark.parametrize("workload", [Ramspeed(passes=1), Ramspeed(get_args(Kind), passes=100)])
def test_the_limit_is_that_of_a_turn_however_many_there_are(workload: Ramspeed) -> None:
    inside = Limited(1.0, "", LIMITS)
    tuple(workload.measure(Setup(Instance("one", inside, None, "none", processes=tuple), inside, ())))
    [limit_seconds] = inside.limits_seconds
    assert limit_seconds == pytest.approx(30 + 50 * (4 * 96 + 8 * 64) * 2**20 / 6e9)


def test_the_estimate_grows_with_what_is_moved() -> None:
    small = Ramspeed(kinds=("sse",), mark_sizes=(), bytes_per_pass=1500 * 128, array_bytes=128_000_000, passes=10)
    assert small.seconds() == pytest.approx(0.3 + 10 * 4 * 384_000_000 / 6e9)
