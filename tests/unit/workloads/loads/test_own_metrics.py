from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from tare.errors import TrialFailed
from tare.model.trials import Metric, Value
from tare.workloads.loads.own_metrics import OwnMetric, values_of

REPORT = '{"results": [{"a/b": {"m~n": 2.5}, "bad": "7", "flag": true, "huge": 1e999}], "": 3, "00": 4}\n'


def by_pattern(pattern: str) -> OwnMetric:
    return OwnMetric(name="rate", better="higher", unit="events/s", pattern=pattern)


def by_pointer(pointer: str) -> OwnMetric:
    return OwnMetric(name="rate", better="higher", pointer=pointer)


def test_a_pattern_finds_its_number_in_either_stream() -> None:
    metric = by_pattern(r"^events: +([0-9.e+-]+)$")
    assert metric.number("first\nevents:   12.5\nlast\n", "") == 12.5
    assert metric.number("no line's end", "events: -1e3\n") == -1000.0
    assert values_of([metric], "events: 1", "") == (Value("rate", None, 1.0),)


@pytest.mark.parametrize("text", ["", "events: \n", "Events: 5\n", "events: 5 or so\n"])
def test_a_pattern_that_matches_nowhere_fails_the_trial_with_what_was_printed(text: str) -> None:
    with pytest.raises(TrialFailed, match="the pattern of rate does not match; it printed") as failure:
        by_pattern(r"^events: +([0-9.]+)$").number(text, "")
    assert repr(text.strip())[1:-1] in str(failure.value)


def test_a_pattern_that_matches_twice_fails_the_trial_also_once_in_each_stream() -> None:
    metric = by_pattern(r"([0-9]+) events")
    for output, errors in (("1 events, 2 events", ""), ("1 events", "2 events")):
        with pytest.raises(TrialFailed, match="the pattern of rate matches 2 times"):
            metric.number(output, errors)


@pytest.mark.parametrize("found", ["many", "nan", "inf", "1e999", "1,5", ""])
def test_what_a_pattern_finds_must_be_a_finite_number(found: str) -> None:
    with pytest.raises(TrialFailed, match="which is no number"):
        by_pattern("rate=(.*)$").number(f"rate={found}", "")


def test_a_group_that_takes_no_part_is_no_number() -> None:
    with pytest.raises(TrialFailed, match="finds None, which is no number"):
        by_pattern("rate(=[0-9]+)?").number("rate", "")


@pytest.mark.parametrize(("pointer", "number"), [("/results/0/a~1b/m~0n", 2.5), ("/", 3.0), ("/00", 4.0)])
def test_a_pointer_leads_to_its_number(pointer: str, number: float) -> None:
    assert by_pointer(pointer).number(REPORT, "a warning") == number


@pytest.mark.parametrize(
    ("pointer", "why"),
    [
        ("/results/1/x", "has no 1"),
        ("/results/00/bad", "has no 00"),
        ("/results/-/bad", "has no -"),
        ("/results/0/none", "has no none"),
        ("/results/0/bad/7", "has no 7"),
        ("/results/0/bad", "has no number at /results/0/bad"),
        ("/results/0/flag", "has no number"),
        ("/results/0", "has no number"),
        ("/results/0/huge", "has inf at"),
    ],
)
def test_a_pointer_that_leads_to_no_number_fails_the_trial(pointer: str, why: str) -> None:
    with pytest.raises(TrialFailed, match="the command's report ") as failure:
        by_pointer(pointer).number(REPORT, "")
    assert why in str(failure.value)


@pytest.mark.parametrize("text", ["", "no JSON", REPORT * 2, REPORT[:-5], '{"": NaN}', "[" * 100_000])
def test_a_pointer_wants_one_whole_document(text: str) -> None:
    with pytest.raises(TrialFailed, match="the command gave no JSON"):
        by_pointer("/").number(text, "")


def test_a_number_with_too_many_digits_fails_the_trial() -> None:
    with pytest.raises(TrialFailed):
        by_pointer("/").number('{"": 1' + 400 * "0" + "}", "")


GOOD = {"name": "rate", "better": "higher", "pattern": "([0-9]+)"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"pattern": "[0-9]+"}, "one group in parentheses"),
        ({"pattern": "([0-9]+)([a-z])"}, "it has 2"),
        ({"pattern": "([0-9]+"}, "no regular expression"),
        ({"pattern": "(a{99999999999})"}, "no regular expression"),
        ({"pointer": "/a"}, "either a pattern or a pointer"),
        ({"pattern": ""}, "either a pattern or a pointer"),
        ({"pattern": "", "pointer": "a"}, "write a JSON pointer"),
        ({"pattern": "", "pointer": "/a~2"}, "write a JSON pointer"),
        ({"name": "The rate"}, "a letter or digit first"),
        ({"better": "more"}, "'higher' or 'lower'"),
        ({"patern": "(a)"}, "Unexpected keyword argument"),
    ],
)
def test_a_metric_that_cannot_be_found_is_refused_before_anything_starts(changed: dict[str, str], why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(OwnMetric).validate_python(GOOD | changed)
    assert why in str(refused.value)


def test_a_metric_is_recorded_without_the_way_to_find_it() -> None:
    read = TypeAdapter(OwnMetric).validate_python(GOOD | {"unit": "s", "headline": False})
    assert read.metric == Metric("rate", "rate", "s", "higher", headline=False)
    assert type(read.metric) is Metric
