"""What every workload owes, on what was captured of it (tests/support/captured.py). New ones are included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import pytest
from captured import (
    RUN,
    SAMPLES,
    Case,
    Values,
    broken,
    cases,
    made,
    prefixes,
    reordered,
    replaced,
    sheet_of,
    with_numbers,
)
from fakes import LIMITS
from pydantic import ValidationError
from tare_fake.technology import FakeHost

from plug_ins import own
from tare.hosts.host import Process
from tare.hosts.process import require_success
from tare.model.errors import SuiteError, TareError, TrialFailed
from tare.model.lifecycle import Burst
from tare.model.trial import Footprint, Output, RawOutput
from tare.plugins.instance import Instance, OuterHost
from tare.plugins.workload import ExtraInstance, InstanceStarter, MeasurementContext, Snapshot, Workload
from tare.suites.suite import parse_suite

NAMES = list(own("workloads"))
CASES = cases()
each_case = pytest.mark.parametrize("case", CASES, ids=[f"{case.name}-{case.number}" for case in CASES])
each_name = pytest.mark.parametrize("name", NAMES)
NOWHERE = "runs inside|has no network|starts extra instances|asks for the cost|expected one moment"
ADDRESS = "198.18.0.10"


def refused(case: Case, raw: Sequence[RawOutput], pattern: str) -> TrialFailed:
    """Return why the outputs are refused; they have to be, for a reason in words that match."""
    with pytest.raises(TrialFailed, match=pattern) as failure:
        case.read(*raw)
    return failure.value


def is_possible(case: Case, values: Values) -> bool:
    """Return whether the values are no absurd ones: numbers, and none of them zero where it is a headline."""
    headlines = {metric.name for metric in case.workload.all_metrics if metric.headline}
    return all(math.isfinite(each) and (each > 0 or metric not in headlines) for (metric, _), each in values.items())


def times_count(case: Case) -> bool:
    """Return whether the time that a command took is in the values."""
    return case.outcome((replace(case.raw[0], seconds=99.0), *case.raw[1:])) != case.read(*case.raw)


@dataclass(frozen=True)
class Ending(FakeHost):
    """A host on which the programs of workloads end at once, with one exit code. It notes their time limits."""

    exit_code: int = 127
    words: str = "not found"
    limits_seconds: list[float] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, check: bool = True, **_: object) -> Output:
        if argv[0] in {"mkdir", "nproc", "sleep"}:
            return Output(argv, 0, b"1\n", b"", 0.0)
        self.limits_seconds.append(timeout)
        output = Output(argv, self.exit_code, b"", f"{argv[0]}: {self.words}\n".encode(), 0.1)
        return require_success(output) if check else output

    @contextmanager
    def spawn(self, *argv: str, die_with_parent: bool = False) -> Iterator[Process]:
        del die_with_parent
        self.run(*argv, timeout=math.inf)
        raise AssertionError(argv)
        yield  # a generator all the same

    def put(self, source: Path, target: PurePosixPath) -> None:
        assert source.exists(), target

    def write(self, path: str, text: str) -> None:
        assert path.startswith("/srv/"), text


class Alone(InstanceStarter):
    """Starts no further instance: the one that there is stands for each."""

    memory_limit_bytes = 1 << 30

    def __init__(self, setup: MeasurementContext) -> None:
        self.setup = setup

    def start_instance(
        self, workload: Workload, limit_bytes: int | None = None
    ) -> AbstractContextManager[ExtraInstance]:
        del workload, limit_bytes
        return nullcontext(ExtraInstance(self.setup, lambda: 0))

    def start_neighbor(self, workload: Workload) -> AbstractContextManager[ExtraInstance]:
        return self.start_instance(workload)

    def start_burst(self, count: int, stagger_seconds: float) -> Burst:
        raise AssertionError(count, stagger_seconds)

    def measure_stop(self) -> float:
        raise AssertionError

    def take_snapshot(
        self, workload: Workload, warm_up: Callable[[ExtraInstance], None]
    ) -> AbstractContextManager[Snapshot]:
        del workload
        source = ExtraInstance(self.setup, lambda: 0)
        warm_up(source)
        return nullcontext(Snapshot(ADDRESS, 1, lambda: nullcontext(source), lambda: nullcontext(source)))

    def measure_footprint(self) -> Footprint:
        return Footprint(None, None, None, 1)

    def spare_memory_share(self) -> float:
        return 0.5


def measured(workload: Workload, host: Ending, inside: bool) -> Values:
    """Measure on a host where programs end, or in an instance that has neither an inside nor a network."""
    instance = Instance("tare-x", host if inside else None, ADDRESS if inside else None, "none", processes=tuple)
    setup = MeasurementContext(instance, host, (), outer=OuterHost(host, "/usr/lib/tare", "/nonexistent"))
    raw = tuple(workload.measure(replace(setup, instance_starter=Alone(setup)) if inside else setup))
    return {(each.metric, each.point): each.value for each in workload.parse(raw)}


# --- what it declares


@each_name
def test_it_has_captured_outputs_with_exactly_its_metrics(name: str) -> None:
    found = {metric for case in CASES if case.name == name for metric, _ in case.read(*case.raw)}
    assert found == {metric.name for case in CASES if case.name == name for metric in case.workload.all_metrics}
    assert found


@each_name
def test_its_metrics_have_the_units_and_directions_of_its_sheet(name: str) -> None:
    declared: dict[str, list[str]] = {}
    for each in made(name, {}).all_metrics:
        declared.setdefault(f"{each.unit}, {each.better}{', headline' * each.headline}", []).append(each.name)
    assert declared == {kind: list(names) for kind, names in sheet_of(name).metrics.items()}


@each_name
def test_its_server_listens_on_the_given_address_and_on_its_port(name: str) -> None:
    workload = made(name, {})
    service = workload.service(ADDRESS)
    assert workload.port == sheet_of(name).port
    assert (service is None) == (workload.port is None)
    if service is not None:
        assert service.port == workload.port
        assert ADDRESS in " ".join((*service.argv, *(text for _, text in service.files)))


@each_name
def test_its_estimate_and_its_turns_are_such_as_a_plan_can_use(name: str) -> None:
    workload = made(name, {})
    assert (workload.sweep.name if workload.sweep else None) == sheet_of(name).sweep
    assert workload.rounds >= 1
    assert 0 <= workload.estimate_seconds() < math.inf


# --- settings


@each_name
def test_settings_of_a_suite_are_read_in_base_units(name: str) -> None:
    for read in sheet_of(name).settings.read:
        workload = made(name, read.given)
        assert read.becomes.keys() == read.given.keys()
        for setting, value in read.becomes.items():
            found = getattr(workload, setting)
            assert found == (tuple(value) if isinstance(value, list) else value)
            assert found != getattr(made(name, {}), setting), "a default shows nothing"


@each_name
def test_settings_that_cannot_be_measured_are_refused_at_their_key(name: str) -> None:
    for settings in sheet_of(name).settings.refused:
        with pytest.raises(ValidationError) as refusal:
            made(name, settings)
        place = refusal.value.errors()[0]["loc"]
        assert not place or place[0] in settings, settings


@each_name
def test_a_setting_that_it_has_not_is_a_fault_of_the_suite(name: str) -> None:
    with pytest.raises(SuiteError) as error:
        parse_suite(f'[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "{name}"\nnonesuch = 1\n', "a.toml")
    (fault,) = error.value.faults
    assert fault.message == "a.toml: workloads[0].nonesuch: unknown key"


@each_name
def test_a_duration_and_a_size_need_their_unit(name: str) -> None:
    workload = made(name, {})
    for setting in {"duration", "settle", "timeout", "size", "block_size", "array_bytes"} & vars(workload).keys():
        with pytest.raises(ValidationError, match="needs its unit"):
            made(name, {setting: 1})


# --- outputs


@each_case
def test_a_captured_output_gives_the_values_that_its_sheet_writes_out(case: Case) -> None:
    found = case.read(*case.raw)
    assert {key: found.get(key) for key in case.expected} == pytest.approx(dict(case.expected), rel=1e-6)
    assert case.known.partial or found.keys() == case.expected.keys()
    assert is_possible(case, found)


@each_case
def test_outputs_that_were_kept_in_a_run_folder_give_the_same_values(case: Case) -> None:
    assert case.read(*RUN.validate_json(RUN.dump_json(case.raw))) == case.read(*case.raw)


@each_case
def test_an_incomplete_result_fails_the_trial_and_is_quoted(case: Case) -> None:
    for at in case.distinct():
        for kind, text in broken(case.raw[at].text):
            damaged = case.damaged(at, text)
            if kind in case.sheet.accepts:
                assert case.outcome(damaged) in (None, case.read(*case.raw)), text
            else:
                failure = refused(case, damaged, case.sheet.refused_with)
                assert repr(text.strip()[:60])[1:-1] in str(failure)
                assert failure.hint


@each_case
def test_an_output_that_was_cut_off_fails_the_trial(case: Case) -> None:
    for at in case.distinct() if "cut off" not in case.sheet.accepts else ():
        for text in prefixes(case.raw[at].text, case.known.unread_end):
            assert case.outcome(case.damaged(at, text)) is None, text


@each_case
def test_reordered_missing_or_doubled_lines_fail_or_change_nothing(
    case: Case,
) -> None:
    expected, refusals = case.read(*case.raw), 0
    for at in case.distinct():
        for text in (text for kind, text in reordered(case.raw[at].text) if kind not in case.sheet.accepts):
            outcome = case.outcome(case.damaged(at, text))
            refusals += outcome is None
            assert outcome is None or outcome.items() <= expected.items(), text
    assert refusals, "no order of lines is like another"


@each_case
def test_what_is_no_number_in_place_of_one_that_counts_fails_the_trial(case: Case) -> None:
    expected, counted = case.read(*case.raw), 0
    numbers = ((at, each) for at in case.distinct() for each in with_numbers(case.raw[at].text))
    for at, (number, another, wrong) in numbers if "no number" not in case.sheet.accepts else ():
        counted += case.outcome(case.damaged(at, another)) != expected
        for kind, text in (each for each in wrong if each[0] not in case.sheet.accepts):
            outcome = case.outcome(case.damaged(at, text))
            if kind == "zero":
                assert outcome is None or is_possible(case, outcome), (number, text)
            else:
                assert outcome in (None, expected), (number, text)
    assert counted or times_count(case) or "no number" in case.sheet.accepts, "nothing of the output is in the values"


@each_case
def test_a_time_that_cannot_be_fails_the_trial_where_it_counts(case: Case) -> None:
    for seconds in (0.0, -1.0, math.inf, math.nan) if times_count(case) else ():
        assert case.outcome((replace(case.raw[0], seconds=seconds), *case.raw[1:])) is None


@each_case
def test_missing_extra_or_foreign_outputs_fail_the_trial(case: Case) -> None:
    raw = case.raw
    wrong = [(), raw[1:], (*raw, raw[-1]), (replace(raw[0], label="other"), *raw[1:])]
    if len({each.label for each in raw}) > 1:
        wrong.append(raw[::-1])
    for each in wrong:
        refused(case, each, case.sheet.incomplete_with)


@each_case
def test_outputs_of_other_settings_fail_the_trial(case: Case) -> None:
    for settings in case.known.other_settings:
        with pytest.raises(TrialFailed):
            case.other(settings).parse(case.raw)


@each_case
def test_what_was_captured_of_a_failure_fails_the_trial_with_the_reason(case: Case) -> None:
    for file, reason in case.known.failed:
        text = (SAMPLES / case.name / file).read_text(encoding="utf-8")
        refused(case, case.damaged(0, text), reason)


@each_case
def test_an_output_that_contradicts_itself_or_the_settings_fails_the_trial(case: Case) -> None:
    for old, new, *reasons in case.known.changed:
        text = replaced(case.raw[0].text, old, new)
        refused(case, case.damaged(0, text), "".join(reasons) or case.sheet.refused_with)


# --- measuring


@each_name
def test_without_anything_to_run_on_it_fails_the_trial_with_the_reason(name: str) -> None:
    host = Ending(1.0, "", LIMITS)
    with pytest.raises(TrialFailed, match=NOWHERE):
        measured(made(name, {}), host, inside=False)
    assert host.limits_seconds == [], "nothing was run"


@pytest.mark.parametrize(("exit_code", "words"), [(127, "not found"), (137, "Killed")])
@pytest.mark.parametrize("name", [name for name, found in own("workloads").items() if found.runs_inside])
def test_a_missing_or_killed_program_fails_the_trial_with_its_message(name: str, exit_code: int, words: str) -> None:
    workload, host = made(name, {}), Ending(1.0, "", LIMITS, exit_code, words)
    with pytest.raises(TareError, match=words):
        measured(workload, host, inside=True)
    assert host.limits_seconds[-1] > 0
