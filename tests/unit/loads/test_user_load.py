"""Metrics that users define, and loads of their own: real commands on this machine as the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from setups import serving

from tare.hosts.local import LocalHost
from tare.loads.user_load import MAX_RUNS, UserLoad, UserMetric, fill_placeholders, read_metrics
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Metric, RawOutput, Value
from tare.runner.values import read_values

REPORT = '{"results": [{"a/b": {"m~n": 2.5}, "bad": "7", "flag": true, "huge": 1e999}], "": 3, "00": 4}\n'


def by_pattern(pattern: str) -> UserMetric:
    return UserMetric(name="rate", better="higher", unit="events/s", pattern=pattern)


def by_pointer(pointer: str) -> UserMetric:
    return UserMetric(name="rate", better="higher", pointer=pointer)


def test_a_pattern_finds_its_number_in_either_stream() -> None:
    metric = by_pattern(r"^events: +([0-9.e+-]+)$")
    assert metric.value("first\nevents:   12.5\nlast\n", "").value == 12.5
    assert metric.value("no line's end", "events: -1e3\n").value == -1000.0
    assert read_metrics([metric], "events: 1", "") == (Value("rate", None, 1.0),)


@pytest.mark.parametrize("text", ["", "events: \n", "Events: 5\n", "events: 5 or so\n"])
def test_a_pattern_without_a_match_fails_the_trial_with_the_output(text: str) -> None:
    with pytest.raises(TrialFailed, match="the pattern of rate does not match; it printed") as failure:
        by_pattern(r"^events: +([0-9.]+)$").value(text, "")
    assert repr(text.strip())[1:-1] in str(failure.value)


def test_a_pattern_that_matches_twice_fails_the_trial_even_across_streams() -> None:
    metric = by_pattern(r"([0-9]+) events")
    for output, errors in (("1 events, 2 events", ""), ("1 events", "2 events")):
        with pytest.raises(TrialFailed, match="the pattern of rate matches 2 times"):
            metric.value(output, errors)


CUT = [  # a pattern, what was printed, what the pattern takes, and the whole number
    ("dev: ([0-9.]+)", "dev: 3.03424e-08 s", "3.03424", "3.03424e-08"),
    ("dev: ([0-9.]+)", "dev: 5E+3 s", "5", "5E+3"),
    ("dev: ([0-9.]+)", "dev: 1,234.5 s", "1", "1,234.5"),
    ("dev: ([0-9.]+).*", "dev: 1.234,5 s", "1.234", "1.234,5"),
    ("dev: ([0-9.]+)", "dev: 0,5 s", "0", "0,5"),
    ("dev: ([0-9.]+)", "dev: 1'234'567 s", "1", "1'234'567"),
    ("dev: ([0-9.]+)", "dev: 1_000 s", "1", "1_000"),
    ("dev: ([0-9.]+)", "dev: 1\u202f234,5 s", "1", "1\u202f234,5"),
    ("dev: ([0-9]+)", "dev: 3.5 s", "3", "3.5"),
    ("dev: ([0-9]{3})", "dev: 12345 s", "123", "12345"),
    ("dev: ([0-9]+)", "dev: 0x1f", "0", "0x1f"),
    ("dev: -?([0-9.]+)", "dev: -2.5 s", "2.5", "-2.5"),
    (".*([0-9.]+) s", "dev: 12.75 s", "5", "12.75"),
    ("([0-9.]+) s$", "dev: 1,234.5 s", "234.5", "1,234.5"),
    ("^{number}", "0,5 s", "0", "0,5"),
    ("^{number}", "1.2.3", "1.2", "1.2.3"),
]


@pytest.mark.parametrize(("pattern", "text", "part", "whole"), CUT)
def test_a_part_of_a_number_fails_the_trial_with_the_whole_one(pattern: str, text: str, part: str, whole: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        by_pattern(pattern).value(f"first\n{text}\nlast 7\n", "")
    assert str(failure.value) == f"the pattern of rate takes {part!r} of {whole!r}"
    assert "{number}" in failure.value.hint


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("dev: 3.03424e-08 s", 3.03424e-08),
        ("dev: 1,234.5 s", 1234.5),
        ("dev: 12,345,678", 12_345_678.0),
        ("dev: 1'234'567.25", 1234567.25),
        ("dev: 1_000_000", 1e6),
        ("dev: 1\u202f234\u202f567", 1234567.0),
        ("dev: -2.5", -2.5),
        ("dev: \u22122.5", -2.5),
        ("dev: +1E3", 1000.0),
        ("dev: .5", 0.5),
        ("dev: 5.", 5.0),
        ("dev: 17ms", 17.0),
    ],
)
def test_the_ready_pattern_takes_signs_exponents_and_separators(text: str, number: float) -> None:
    assert by_pattern("dev: {number}").value(text, "").value == number


@pytest.mark.parametrize(("pattern", "number"), [("^([0-9.]+),", 12.0), ("^{number},", 12.0), (",([0-9]+)$", 135.0)])
def test_a_comma_that_the_pattern_names_separates_columns(pattern: str, number: float) -> None:
    assert by_pattern(pattern).value("12,135\n", "").value == number


@pytest.mark.parametrize(
    ("rest", "unit"),
    [
        (" ms", "ms"),
        ("ms", "ms"),
        (" us, all", "us"),
        ("\u00b5s/op", "\u00b5s/op"),
        (" [sec]", "sec"),
        (" (MB/s)", "MB/s"),
        (" %", "%"),
        (" \u00b1 0.05 ms", "ms"),
        (" seconds.", "seconds"),
        ("k", "k"),
        ("", ""),
        (" 0.0123 0.0120", ""),
        (";next=7", ""),
        ("\nms", ""),
    ],
)
def test_the_unit_after_the_number_is_recorded(rest: str, unit: str) -> None:
    assert by_pattern("dev: {number}").value(f"dev: 12.5{rest}", "") == Value("rate", None, 12.5, unit)


@pytest.mark.parametrize("found", ["many", "nan", "inf", "1e999", "1,5", "12 5", ""])
def test_what_a_pattern_finds_must_be_a_finite_number(found: str) -> None:
    with pytest.raises(TrialFailed, match="which is no number"):
        by_pattern("rate=(.*)$").value(f"rate={found}", "")


def test_a_group_that_takes_no_part_is_no_number() -> None:
    with pytest.raises(TrialFailed, match="finds None, which is no number"):
        by_pattern("rate(=[0-9]+)?").value("rate", "")


@pytest.mark.parametrize(("pointer", "number"), [("/results/0/a~1b/m~0n", 2.5), ("/", 3.0), ("/00", 4.0)])
def test_a_pointer_leads_to_its_number(pointer: str, number: float) -> None:
    assert by_pointer(pointer).value(REPORT, "a warning").value == number


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
        by_pointer(pointer).value(REPORT, "")
    assert why in str(failure.value)


@pytest.mark.parametrize("text", ["", "no JSON", REPORT[:-5], f"note\n{REPORT[:-5]}", '{"": NaN}', "[" * 100_000])
def test_a_pointer_wants_one_whole_document(text: str) -> None:
    with pytest.raises(TrialFailed, match="the command gave no JSON") as failure:
        by_pointer("/").value(text, "")
    assert failure.value.hint.startswith("a pointer needs one JSON document on standard output")


def test_several_documents_fail_the_trial_with_their_number() -> None:
    with pytest.raises(TrialFailed, match="the command gave 3 JSON documents; it printed") as failure:
        by_pointer("/").value(REPORT * 3, "")
    assert failure.value.hint.startswith("a pointer needs one JSON document on standard output")


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "note: both iodepth >= 1 and synchronous I/O engine are selected\nsecond note\n{}",
        "[1/3] reading\n[info] {{x}}\n[ ] 0 %\n{}bye\n[2] done\n",
        "  {}\n",
    ],
)
@pytest.mark.parametrize("document", ['{"": 3}\n', '{\n  "a": [\n{"": 4}\n],\n  "": 3\n}\n'])
def test_a_pointer_finds_the_document_among_lines_of_text(around: str, document: str) -> None:
    assert by_pointer("/").value(around.format(document), "").value == 3.0


def test_a_document_that_is_cut_off_is_not_replaced_by_one_within_it() -> None:
    with pytest.raises(TrialFailed, match="the command gave no JSON: Expecting"):
        by_pointer("/").value('{\n "a":\n{"": 4}\n,\n', "")


def test_a_number_with_too_many_digits_fails_the_trial() -> None:
    with pytest.raises(TrialFailed):
        by_pointer("/").value('{"": 1' + 400 * "0" + "}", "")


GOOD = {"name": "rate", "better": "higher", "pattern": "([0-9]+)"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"pattern": "[0-9]+"}, "one group in parentheses"),
        ({"pattern": "([0-9]+)([a-z])"}, "it has 2"),
        ({"pattern": "([0-9]+) of {number}"}, "it has 2"),
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
        TypeAdapter(UserMetric).validate_python(GOOD | changed)
    assert why in str(refused.value)


def test_a_metric_is_recorded_without_the_way_to_find_it() -> None:
    read = TypeAdapter(UserMetric).validate_python(GOOD | {"unit": "s", "headline": False})
    assert read.metric == Metric("rate", "rate", "s", "higher", headline=False)
    assert type(read.metric) is Metric


# --- loads

RATE = UserMetric(name="rate", unit="requests/s", better="higher", pattern=r"^rate: ([0-9.]+)$")
P99 = UserMetric(name="p99", unit="s", better="lower", pointer="/latency/99")


def printing(text: str, **settings: float) -> UserLoad:
    """Return a load that prints a text."""
    return UserLoad(("printf", "%s", text), (RATE,), **settings)  # type: ignore[arg-type] # only times are given


def counting(path: Path) -> UserLoad:
    """Return a load whose rate rises by one with each run."""
    script = 'echo >>"$1"; echo "rate: $(wc -l <"$1")"'
    return UserLoad(("sh", "-c", script, "load", str(path)), (RATE,), duration=600)


def test_it_gets_the_servers_address_and_port_and_other_braces_stay() -> None:
    assert fill_placeholders("http://{address}:{port}/{id}?{}", address="::1", port=80) == "http://::1:80/{id}?{}"
    load = UserLoad(("printf", "rate: 1\n%s", "{address} {port} {x}"), (RATE,), port=81)
    assert next(load.measure(serving(LocalHost()))).text == "rate: 1\n198.18.0.10 81 {x}"


def test_the_first_run_warms_up_and_then_each_run_is_a_turn(tmp_path: Path) -> None:
    load = counting(tmp_path / "runs")
    raw = tuple(load.measure(serving(LocalHost())))
    assert [each.warm_up for each in raw] == [True, *(MAX_RUNS * [False])]
    (value,) = read_values(load, raw)
    assert value.turns == tuple(float(number) for number in range(2, MAX_RUNS + 2))
    assert (value.metric, value.unit, value.better) == ("rate", "requests/s", "higher")


def test_a_run_that_takes_longer_than_the_duration_is_the_only_one() -> None:
    raw = tuple(printing("rate: 7\n", duration=1e-9).measure(serving(LocalHost())))
    assert [each.warm_up for each in raw] == [True, False]


def test_metrics_are_read_from_either_output_and_from_json() -> None:
    raw = (RawOutput("load", ("x",), '{"latency": {"99": 0.25}}', 1.0, errors="rate: 9"),)
    assert [value.value for value in UserLoad(("x",), (P99,)).parse(raw)] == [0.25]
    assert [value.value for value in UserLoad(("x",), (RATE,)).parse(raw)] == [9.0]
    load = UserLoad(("sh", "-c", "echo rate: 8 >&2"), (RATE,), duration=1e-9)
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
def test_a_missing_or_repeated_metric_ends_the_trial_after_its_first_run(text: str, said: str) -> None:
    measuring = printing(text).measure(serving(LocalHost()))
    assert isinstance(measuring, Iterator)
    assert next(measuring).text == text  # what it printed is kept
    with pytest.raises(TrialFailed, match=f"^the pattern of rate .*{said}"):
        next(measuring)


def test_a_load_that_fails_fails_the_trial_with_what_it_said() -> None:
    load = UserLoad(("sh", "-c", "echo cannot connect >&2; exit 3"), (RATE,))
    with pytest.raises(TrialFailed, match="cannot connect") as failure:
        tuple(load.measure(serving(LocalHost())))
    assert failure.value.output is not None
    assert failure.value.output.exit_code == 3


def test_a_load_that_never_ends_is_ended_and_the_setting_is_named() -> None:
    load = UserLoad(("sleep", "600"), (RATE,), timeout=0.1)
    with pytest.raises(TimedOut, match=r"^sleep: did not end within ") as failure:
        tuple(load.measure(serving(LocalHost())))
    assert "timeout" in failure.value.hint


def test_an_instance_without_a_network_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="has no network"):
        tuple(printing("rate: 1\n").measure(serving(LocalHost(), None)))


@pytest.mark.parametrize("labels", [(), ("load", "load"), ("run",)])
def test_outputs_of_other_runs_are_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        printing("").parse([RawOutput(label, (), "rate: 1\n", 1.0) for label in labels])
