from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
from plain import Plain

from tare.model.errors import TrialFailed
from tare.model.trial import CpuShare, MeasuredValue, Metric, RawOutput, Value
from tare.runner.values import read_values


@dataclass(frozen=True)
class Pair(Plain):
    """A workload of two points, each of which prints its value."""

    name: ClassVar[str] = "pair"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("rate", "Rate", "requests/s", "higher"),)

    rounds: int = 3

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        return tuple(Value("rate", float(each.label), float(each.text)) for each in raw)


def outputs(*texts: tuple[str, str], warm_up: bool = False) -> list[RawOutput]:
    return [RawOutput(label, (), text, 0.1, warm_up=warm_up) for label, text in texts]


def test_output_n_with_a_label_is_of_round_n_and_the_value_is_the_mean() -> None:
    raw = outputs(("1", "10"), ("50", "100"), ("1", "20"), ("50", "100"), ("1", "60"), ("50", "160"))
    assert read_values(Pair(), raw) == (
        MeasuredValue("rate", 1.0, 30.0, "requests/s", "higher", (10.0, 20.0, 60.0), "1"),
        MeasuredValue("rate", 50.0, 120.0, "requests/s", "higher", (100.0, 100.0, 160.0), "50"),
    )


def test_a_value_equal_in_the_first_and_the_last_round_has_its_label() -> None:
    raw = outputs(("1", "10"), ("50", "100"), ("1", "20"), ("50", "110"), ("1", "30"), ("50", "100"))
    assert [value.label for value in read_values(Pair(), raw)] == ["1", "50"]


def test_a_value_that_several_outputs_make_has_the_label_of_none() -> None:
    class Sum(Pair):
        def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
            return (Value("rate", None, sum(float(each.text) for each in raw)),)

    raw = outputs(("1", "10"), ("50", "100"), ("1", "20"), ("50", "200"))
    assert [value.label for value in read_values(Sum(), raw)] == [""]
    assert [value.label for value in read_values(Sum(), outputs(("1", "10"), ("1", "20")))] == ["1"]


def test_outputs_that_can_only_be_parsed_one_round_at_a_time_have_no_label() -> None:
    class Strict(Pair):
        def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
            if len({each.text for each in raw}) > 1:
                raise TrialFailed("outputs of several rounds")
            return super().parse(raw)

    raw = outputs(("1", "10"), ("50", "10"), ("1", "20"), ("50", "20"))
    assert {value.label for value in read_values(Strict(), raw)} == {""}


def test_what_only_warms_up_is_no_value() -> None:
    raw = [*outputs(("1", "1"), warm_up=True), *outputs(("1", "10"), ("1", "20"))]
    assert read_values(Pair(), raw)[0].turns == (10.0, 20.0)


def test_a_workload_of_one_round_has_values_without_turns() -> None:
    assert read_values(Pair(rounds=1), outputs(("1", "10"), ("50", "20"))) == (
        MeasuredValue("rate", 1.0, 10.0, "requests/s", "higher"),
        MeasuredValue("rate", 50.0, 20.0, "requests/s", "higher"),
    )


@dataclass(frozen=True)
class InUnits(Pair):
    """A workload that prints its value with a unit."""

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        number, unit = raw[0].text.split()
        return (Value("rate", None, float(number), unit),)


@dataclass(frozen=True)
class Computing(Pair):
    """A workload that prints its value with its CPU share, if that is known."""

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        number, *shares = map(float, raw[0].text.split())
        return (Value("rate", None, number, cpu_share=CpuShare(*shares) if shares else None),)


def test_the_cpu_shares_of_turns_count_if_the_hosts_kernel_measured_them() -> None:
    raw = outputs(("1", "10 0.5 1.1"), ("1", "20 0.25 0.9"))
    [value] = read_values(Computing(), raw, has_host_clock=True)
    assert (value.cpu_shares, value.cpu_wanted) == ((0.5, 0.25), 0.95)  # rounding is no more than all of the time
    assert read_values(Computing(), raw, has_host_clock=False)[0].cpu_shares == ()


def test_a_turn_without_a_cpu_share_leaves_the_value_without_any() -> None:
    raw = outputs(("1", "10 0.5 1.0"), ("1", "20"))
    assert read_values(Computing(), raw, has_host_clock=True)[0].cpu_shares == ()


def test_a_trial_has_the_unit_that_all_its_turns_were_printed_in() -> None:
    (value,) = read_values(InUnits(), outputs(("1", "1 second"), ("1", "3 seconds")))
    assert (value.value, value.printed_unit) == (2.0, "second")


def test_a_unit_that_changes_within_a_trial_fails_it_with_both() -> None:
    with pytest.raises(TrialFailed, match=r"^two units of rate: the command printed 'ms', and later 'us'$"):
        read_values(InUnits(), outputs(("1", "1.09 ms"), ("1", "944 us")))


def test_a_point_that_had_fewer_turns_than_another_fails_the_trial() -> None:
    raw = outputs(("1", "10"), ("50", "100"), ("1", "20"))
    with pytest.raises(TrialFailed, match=r"^pair gave turns unevenly: 2 of 1, 1 of 50$"):
        read_values(Pair(), raw)


def test_another_point_in_a_later_round_fails_the_trial() -> None:
    class Wandering(Pair):
        def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
            return tuple(Value("rate", float(each.text), 1.0) for each in raw)

    with pytest.raises(TrialFailed, match=r"^pair gave other points in round 2$"):
        read_values(Wandering(), outputs(("1", "10"), ("1", "20")))


@pytest.mark.parametrize("text", ["nan", "inf"])
def test_a_value_that_is_no_number_fails_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match=f"^pair gave {text} for 'rate'$"):
        read_values(Pair(), outputs(("1", text)))


def test_outputs_of_a_searching_workload_are_read_together_without_rounds() -> None:
    class Searching(Pair):
        is_adaptive: ClassVar[bool] = True

    raw = outputs(("1", "10"), ("50", "100"), ("1", "20"), ("70", "5"), ("9", "1"))
    assert [(value.point, value.value, value.turns) for value in read_values(Searching(), raw)] == [
        (point, value, ()) for point, value in ((1.0, 10.0), (50.0, 100.0), (1.0, 20.0), (70.0, 5.0), (9.0, 1.0))
    ]
