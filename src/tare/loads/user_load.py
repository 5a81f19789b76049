"""User-defined metrics and loads: the number of each metric in a program's output, and commands that drive a server.

A regular expression has one group, which holds the number; `{number}` is a group for a number with a sign, an exponent
or separators of thousands. The expression is searched in standard output and standard error (`^` and `$` match at line
boundaries), and must match once. A JSON pointer (RFC 6901), such as `/results/0/time`, leads to a number of the only
JSON document on standard output. A trial fails if the number is missing, occurs twice, or is part of a longer number. A
program may change its unit from run to run (`1.09 ms`, `944 us`): the unit after the number is recorded.

The load of a user-supplied server is one of tare's HTTP loads with user-defined requests, or a command on the client.
Each run of a command is a turn, however long it takes, so that stacks alternate. Runs begin until the duration is over,
at most 20. The first run warms up the server, and does not count. The CPU time of a command is a share of all CPUs of
the client, because the number that it can use is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

from tare.hosts.host import Host
from tare.loads.client_load import count_client_cpus, run_load, server_address, server_port
from tare.loads.http import HTTP_PORT, HttpLoad, Request, WrkLoad
from tare.loads.latency import LatencyLoad
from tare.loads.parsing import ReportObject, check_labels, find_report
from tare.model.errors import TimedOut, TrialFailed, quote_output
from tare.model.trial import Better, Metric, RawOutput, Value
from tare.model.units import GivenName, format_duration
from tare.plugins.workload import MeasurementContext, Workload

_WHOLE_HINT = "`tare show` has the whole output; `tare shell STACK -- COMMAND` prints it"
_NUMBER_HINT = "write {number} in place of the group: it takes a sign, an exponent and separators of thousands"
_COMMA_HINT = "let it print a decimal point (LC_ALL=C); write a comma between columns next to the group: {number},"
_JSON_HINT = "a pointer needs one JSON document on standard output; lines of text may stand before and after it"

_PLACEHOLDER = "{number}"
_SEPARATORS = ",_'\u00a0\u202f"  # of thousands; the last two are the spaces of French locales
# `1,234,567`, or digits without separators. The comma of `1,23` separates no thousands, and ends the number.
_DIGITS = rf"[0-9]{{1,3}}(?:[{_SEPARATORS}][0-9]{{3}})+(?![0-9])|[0-9]*"
_NUMBER = rf"[+\-\u2212]?(?=\.?[0-9])(?:{_DIGITS})(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
# For `float`, which reads neither the minus sign U+2212 nor separators.
_TO_FLOAT = str.maketrans({"\u2212": "-"} | dict.fromkeys(_SEPARATORS))
_UNIT = re.compile(  # a spread, as in `1.09 ± 0.05 ms`, may come between a number and its unit
    rf"(?:[^\S\n]*(?:±|\+/?-)[^\S\n]*{_NUMBER})?[^\S\n]*[\[(]?"
    r"((?:[^\W\d_]|[%°]|/(?=[^\W\d_]))[^\s,;:=|\[\](){}<>\"']*)"
)
MAX_RUNS = 20
_USUAL_SECONDS = 0.2  # estimate of a run, whose length is unknown beforehand
LABEL = "load"


def _check_one_group(text: str) -> str:
    """Return a pattern; raises ValueError if it is no regular expression, or does not have one group."""
    try:
        groups = re.compile(_expand_pattern(text)).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"this is no regular expression: {error}") from error
    if groups != 1 and text:
        raise ValueError(
            f"put one group in parentheses around the number, or write {_PLACEHOLDER} for it; it has {groups}"
        )
    return text


def _expand_pattern(pattern: str) -> str:
    """Return the regular expression of a pattern: each `{number}` becomes a group for a number."""
    return pattern.replace(_PLACEHOLDER, f"({_NUMBER})")


def _number_pattern(pattern: str) -> re.Pattern[str]:
    """Return an expression for a complete number in a text, with its sign, separators, fraction and exponent.

    A sign or comma that the pattern has right before or after its group is no part of the number, as between columns.
    """
    place = re.escape(_PLACEHOLDER)
    adjacent = re.findall(rf"([-+,])(?:\(|{place})|(?:\)|{place})(,)(?![?*{{])", pattern)
    excluded = {before or after for before, after in adjacent}
    sign, separators = ("".join(each for each in group if each not in excluded) for group in ("+-\u2212", _SEPARATORS))
    front = rf"(?:(?<![\w.)%])[{re.escape(sign)}]?\.?)?"
    return re.compile(rf"{front}(?:0[xX][0-9a-fA-F]+|[0-9]+(?:[.{separators}][0-9]+)*(?:[eE][+-]?[0-9]+)?)")


def _check_pointer(text: str) -> str:
    """Return a JSON pointer, or an empty text; raises ValueError for any other text."""
    if text and (not text.startswith("/") or re.search(r"~(?![01])", text)):
        raise ValueError("write a JSON pointer, such as /results/0/time; ~1 stands for / and ~0 for ~ in a name")
    return text


@dataclass(frozen=True, kw_only=True)
class UserMetric(Metric):
    """User-defined metric, whose number is found by `pattern` or by `pointer`; an empty title stands for the name."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: GivenName
    title: str = ""
    unit: Annotated[str, Field(max_length=32)] = ""
    better: Better
    pattern: Annotated[str, AfterValidator(_check_one_group)] = ""
    pointer: Annotated[str, AfterValidator(_check_pointer)] = ""

    def __post_init__(self) -> None:
        """Raise ValueError unless the metric has exactly one of pattern and pointer."""
        if bool(self.pattern) == bool(self.pointer):
            raise ValueError("a metric has either a pattern or a pointer")

    @property
    def metric(self) -> Metric:
        """The metric as the report has it, without how to find its number."""
        return Metric(self.name, self.title or self.name, self.unit, self.better, self.headline, self.overall)

    def value(self, output: str, errors: str) -> Value:
        """Return the metric's value in a program's standard output and standard error; raises TrialFailed."""
        if self.pointer:
            return Value(self.name, None, self._read_pointer(output))
        number, unit = self._match_pattern(f"{output}\n{errors}")
        return Value(self.name, None, number, unit)

    def _match_pattern(self, text: str) -> tuple[float, str]:
        """Return the number that the pattern finds in a text, and the unit after it, or ""; raises TrialFailed."""
        matches = list(re.finditer(_expand_pattern(self.pattern), text, re.MULTILINE))
        if len(matches) != 1:
            often = f"matches {len(matches)} times" if matches else "does not match"
            raise TrialFailed(f"the pattern of {self.name} {often}; {quote_output(text.strip())}", _WHOLE_HINT)
        number, (start, end) = matches[0][1], matches[0].span(1)
        self._refuse_part(text, start, end)
        if number is None or not re.fullmatch(_NUMBER, number.strip()):  # None: an optional group that did not match
            raise TrialFailed(f"the pattern of {self.name} finds {number!r}, which is no number", _NUMBER_HINT)
        try:
            value = self._check_finite(float(number.translate(_TO_FLOAT)))
        except ValueError:
            raise TrialFailed(f"the pattern of {self.name} finds {number!r}, which is no number", _WHOLE_HINT) from None
        unit = _UNIT.match(text, end)
        return value, unit[1].rstrip(".") if unit else ""

    def _refuse_part(self, text: str, start: int, end: int) -> None:
        """Raise TrialFailed if the group matches only a part of a number, such as 3.03 of 3.03e-08.

        `start` and `end` are the group's bounds in the text, -1 if the group did not match.
        """
        line = text.rfind("\n", 0, max(start, 0)) + 1  # numbers do not cross lines
        for whole in _number_pattern(self.pattern).finditer(text, line):
            if whole.start() >= end:
                return
            if whole.end() > start and (whole.start() < start or whole.end() > end):
                what = f"the pattern of {self.name} takes {text[start:end]!r} of {whole[0]!r}"
                raise TrialFailed(what, _NUMBER_HINT if _PLACEHOLDER not in self.pattern else _COMMA_HINT)

    def _read_pointer(self, output: str) -> float:
        """Return the number at the pointer in the JSON document of an output; raises TrialFailed."""
        part = find_report(output, "the command", _JSON_HINT)
        for token in self.pointer.split("/")[1:]:
            part = _descend(part, token.replace("~1", "/").replace("~0", "~"))
        value = part.content
        if isinstance(value, bool) or not isinstance(value, int | float):
            part.refuse(f"has no number at {self.pointer}")
        try:
            return self._check_finite(float(value))
        except (OverflowError, ValueError):
            part.refuse(f"has {str(value)[:50]} at {self.pointer}")

    def _check_finite(self, number: float) -> float:
        """Return a finite number; raises ValueError for infinity and NaN."""
        if not math.isfinite(number):
            raise ValueError
        return number


def read_metrics(metrics: Iterable[UserMetric], output: str, errors: str) -> tuple[Value, ...]:
    """Return the values of user-defined metrics in a program's output; raises TrialFailed."""
    return tuple(each.value(output, errors) for each in metrics)


def _descend(part: ReportObject, token: str) -> ReportObject:
    """Return the part of a JSON document at a pointer's next token: a key, or a position in a list."""
    found = part.content
    if isinstance(found, list) and re.fullmatch(r"0|[1-9][0-9]{0,9}", token) and int(token) < len(found):
        return part.of(found[int(token)])
    return part.child(token)


def fill_placeholders(text: str, **places: object) -> str:
    """Return a text with values in place of the placeholders `{NAME}`. All other braces stay."""
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


@dataclass(frozen=True)
class _UserHttpLoad(WrkLoad):
    """HTTP load that sends user-defined requests to a user-supplied server."""

    service_name = "service"
    page_bytes = 0
    is_user_server = True

    requests_to_send: tuple[Request, ...] = ()
    port: int = HTTP_PORT


@dataclass(frozen=True)
class ClosedLoopHttpLoad(_UserHttpLoad, HttpLoad):
    """Closed-loop load of user-defined requests."""

    name = "without-pause"
    title = "HTTP without a pause"


@dataclass(frozen=True)
class ConstantRateHttpLoad(_UserHttpLoad, LatencyLoad):
    """Open-loop load of user-defined requests at constant rates."""

    name = "at-rates"
    title = "HTTP at constant rates"


@dataclass(frozen=True)
class UserLoad(Workload):
    """User-supplied command on the client, with the server's address and port for {address} and {port}."""

    name = "own-load"
    service_name = "service"
    title = "User-defined load"
    rounds = MAX_RUNS  # at most: runs begin until the duration is over

    argv: tuple[str, ...] = ()
    metrics: tuple[UserMetric, ...] = ()
    port: int = HTTP_PORT
    duration: float = 1.0
    timeout: float = 60.0

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """User-defined metrics, as the report has them."""
        return tuple(each.metric for each in self.metrics)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the load repeatedly; raises TrialFailed if it fails or a metric is missing."""
        address, port = server_address(setup), server_port(setup, self.service_name, self.port)
        argv = tuple(fill_placeholders(word, address=address, port=port) for word in self.argv)
        # The first run is not counted in `spent_seconds`: a slow warm-up would leave less time for runs that count.
        cpus, spent_seconds = count_client_cpus(setup.client), 0.0
        for number in range(1 + self.rounds):
            raw = run_user_load(setup.client, argv, self.timeout, cpus, warm_up=number == 0)
            yield raw
            self.parse((raw,))  # a missing metric fails the trial now, not after its last run
            spent_seconds += raw.seconds if number else 0.0
            if number and spent_seconds >= self.duration:
                return

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the user-defined metrics of a run; raises TrialFailed if one is missing or occurs twice."""
        check_labels(raw, [LABEL])
        return read_metrics(self.metrics, raw[0].text, raw[0].errors)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, as if a run took a fifth of a second."""
        return _USUAL_SECONDS + self.duration


def run_user_load(client: Host, argv: Sequence[str], timeout: float, cpus: int, *, warm_up: bool = False) -> RawOutput:
    """Run a user-supplied load once; raises TrialFailed if it fails, and TimedOut if it does not end."""
    try:
        return run_load(client, LABEL, *argv, timeout=timeout, cpus=cpus, warm_up=warm_up)
    except TimedOut as error:
        what = f"{argv[0]}: did not end within {format_duration(timeout)}"
        raise TimedOut(what, "give it a longer timeout, or less to do", error.output) from error
