"""The claims that come with tare: enough of them, each read twice, and each tested by the suite that is said to."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import asdict, replace

import pytest
from documents import ROOT
from scipy import stats

from tare.features.papers.claim_file import built_in_claims_path, read_claims
from tare.features.papers.claims import FOOTPRINT, Claim
from tare.features.papers.judging import needs_settings
from tare.model.units import parse_percent
from tare.statistics.anytime import min_value_count
from tare.suites.stacks import split_stack
from tare.suites.suite import PlannedWorkload, read_suite

READ = read_claims(built_in_claims_path())
SECOND = tomllib.loads(built_in_claims_path().with_name("second-reading.toml").read_text(encoding="utf-8"))
NAMES = {
    "KVM": "qemu",
    "OpS bare-metal": "native/openstack",
    "Bare-metal": "native",
    "Docker in KVM": "docker/qemu",
    "LXD in KVM": "lxd/qemu",
    "Docker without NAT": "docker-bridge",
}
SETTINGS = ("keep_alive", "cap", "users")  # those that the papers have; other settings are defaults of tare
METRICS = {
    "Dhrystone": "dhrystone",
    "Whetstone": "whetstone",
    "Kcbench": "kernel-build",
    "RAMspeed": "ramspeed",
    "Iperf3": "iperf3",
    "Input, Per Char": "input-character",
    "Input, Block": "input-block",
    "Output, Per Char": "output-character",
    "Output, Block": "output-block",
    "Output, Rewrite": "rewrite",
}


def of_table(claim: Claim) -> str:
    return next((name for name in SECOND["tables"] if claim.place.startswith(f"{name}, ")), "")


def percent(number: float) -> str:
    return f"{number * 100:.6g}"


# --- the second reading ----------------------------------------------------------------------------------------------


def cells(table: str) -> dict[tuple[str, str], str]:
    """The cells of a table as they were read the second time, without the row of bare metal."""
    rows = dict(SECOND["tables"][table])
    columns = rows.pop("columns")
    rows.pop("Bare-metal", None)
    return {(row, column): cell for row in rows for column, cell in zip(columns, rows[row], strict=True)}


@pytest.mark.parametrize("table", ["Figure 4", "Figure 5"])
def test_every_cell_of_a_figure_is_a_claim_with_the_number_read_twice(table: str) -> None:
    found = {}
    for claim in (claim for claim in READ.claims if of_table(claim) == table):
        row, column = re.fullmatch(rf"{table}, row (.*?), column (.*)", claim.place, re.ASCII).groups()  # type: ignore[union-attr]
        assert claim.stack == NAMES.get(row, row.lower())
        assert METRICS[column] in (claim.workload, claim.metric)
        found[row, column] = claim
    read = cells(table)
    assert found.keys() == read.keys()
    for cell, claim in found.items():
        assert claim.size is not None
        deviation = f" ({claim.sd * 100:.2f})" if table == "Figure 5" and claim.sd is not None else ""
        assert percent(claim.size) + deviation == read[cell]
        assert claim.printed.replace("%", "") == read[cell]


def test_the_deviations_of_bare_metal_are_those_that_were_read_twice() -> None:
    columns, row = SECOND["tables"]["Figure 5"]["columns"], SECOND["tables"]["Figure 5"]["Bare-metal"]
    read = {METRICS[column]: cell for column, cell in zip(columns, row, strict=True)}
    for claim in (claim for claim in READ.claims if of_table(claim) == "Figure 5"):
        assert claim.sd_of_other is not None
        assert f"100 ({claim.sd_of_other * 100:.2f})" == read[claim.metric]


def test_each_order_of_the_table_of_idle_memory_is_that_of_the_numbers() -> None:
    memory = {row: cells[0] for row, cells in SECOND["tables"]["Table 4"].items()}
    claims = [claim for claim in READ.claims if of_table(claim) == "Table 4"]
    compared_with_bare_metal = set()
    for claim in claims:
        more, less = claim.printed.split(" against ")
        rows = {NAMES.get(row, row.lower()): row for row in memory}
        assert (memory[rows[claim.stack]], memory[rows[claim.than]]) == (more, less)
        assert (claim.direction, float(more) > float(less)) == ("more", True)
        compared_with_bare_metal |= {rows[claim.stack]} if claim.than == "native" else set()
    assert compared_with_bare_metal == memory.keys() - {"columns", "Bare-metal"}


def what(claim: Claim) -> str:
    """What a claim is about, as the second reading writes it: with the settings and points that the paper has."""
    text = (
        f"{claim.workload}, inverse of {claim.metric}" if claim.inverse else f"{claim.workload} {claim.metric}".rstrip()
    )
    settings = claim.settings | claim.settings.get("parameters", {})
    named = [name if settings[name] is True else f"{name} {settings[name]}" for name in SETTINGS if name in settings]
    text += f" with {' and '.join(named)}" if named else ""
    text += f" at {', '.join(f'{point:g}' for point in claim.points)}" if claim.points else ""
    return text if claim.than_point is None else f"{text} beside {claim.than_point:g}"


def states(claim: Claim) -> str:
    """What a claim states, as the second reading writes it."""
    stated, write = (claim.value, lambda number: f"{number:.10g}") if claim.value else (claim, percent)
    assert stated is not None
    text: str = claim.direction or "value"
    if stated.size is not None:
        text += f" {write(stated.size)}"
    elif stated.least is not None and stated.most is not None:
        text += f" {write(stated.least)} to {write(stated.most)}"
    elif stated.least is not None:
        text += f", {write(stated.least)} or more"
    elif stated.most is not None:
        text += f", {write(stated.most)} or less"
    elif claim.tolerance:
        text += f", under {percent(claim.tolerance)}"
    text += f", from {claim.from_point:g}" if claim.from_point is not None else ""
    text += f", up to {claim.to_point:g}" if claim.to_point is not None else ""
    text += f", p {claim.p}" if claim.p else ""
    return f"{text}, n {claim.n}" if claim.n else text


def in_tares_names(text: str) -> str:
    """A line of the second reading, with tare's names of stacks in place of the paper's."""
    compared, rest = text.split(", ", 1)
    return f"{' beside '.join(NAMES.get(stack, stack.lower()) for stack in compared.split(' beside '))}, {rest}"


def in_words(claim: Claim) -> str:
    """A claim as the second reading writes it."""
    compared = claim.stack if claim.value else f"{claim.stack} beside {claim.than}"
    return f"{compared}, {what(claim)}: {states(claim)}"


def test_every_other_claim_is_what_was_read_the_second_time() -> None:
    read = {name: in_tares_names(text) for name, text in SECOND["text"].items()}
    assert {claim.id: in_words(claim) for claim in READ.claims if not of_table(claim)} == read


def test_what_was_measured_with_what_was_read_twice() -> None:
    assert READ.origins.keys() == SECOND["sources"].keys()
    for name, origin in READ.origins.items():
        read = dict(SECOND["sources"][name])
        assert [part for part in read.pop("hardware") if part not in origin.hardware] == []
        assert origin.versions == read


def test_repetitions_and_deviations_of_figure_cells_were_read_twice() -> None:
    counts, below = SECOND["repetitions"], SECOND["deviations_below"]
    for claim in (claim for claim in READ.claims if of_table(claim) in ("Figure 4", "Figure 5")):
        column = claim.place.rpartition("column ")[2]
        assert claim.n == counts.get(of_table(claim), counts.get(column)), claim.id
        if of_table(claim) == "Figure 4":
            assert claim.sd == claim.sd_of_other == (parse_percent(below[column]) if column in below else None)


# --- what they are ---------------------------------------------------------------------------------------------------


def test_the_three_papers_have_more_than_the_120_requested_claims() -> None:
    assert len(READ.claims) >= 390
    assert (
        {claim.source for claim in READ.claims}
        == READ.origins.keys()
        == {"vtmark-2021", "lightweight-2017", "osv-2015"}
    )
    assert sum(bool(claim.quotes) for claim in READ.claims) >= 50
    assert not any(claim.reading for claim in READ.claims)  # no paper's pictures were to be had


def test_contradictory_claims_share_a_ratio_only_within_their_tolerances() -> None:
    by_id = {claim.id: claim for claim in READ.claims}
    pairs = [(claim, by_id[other]) for claim in READ.claims for other in claim.contradicts]
    assert len(pairs) >= 20
    for one, other in pairs:
        assert {one.stack, one.than} == {other.stack, other.than}
        exact = (replace(claim, tolerance=0.0).region(0.03) for claim in (one, other))
        lower, higher = sorted(exact, key=lambda region: region.low)
        if (one.stack, one.workload, one.metric) == (other.stack, other.workload, other.metric):
            assert lower.high <= higher.low, (one.id, other.id)


def test_a_tolerance_is_half_a_t_interval_if_known_and_at_least_the_margin() -> None:
    known = [claim for claim in READ.claims if claim.sd is not None and claim.sd_of_other is not None]
    assert len(known) == 35 + 21
    for claim in known:
        assert claim.n is not None
        spread = math.hypot(claim.sd or 0, claim.sd_of_other or 0) / math.sqrt(claim.n)
        half = 100 * float(stats.t.ppf(0.975, 2 * claim.n - 2)) * spread
        assert claim.tolerance * 100 == pytest.approx(max(3.0, math.ceil(half * 10 - 1e-9) / 10))


# --- what would test them --------------------------------------------------------------------------------------------


def suite_of(claim: Claim) -> str:
    return READ.origins[claim.source].suite if claim.suite is None else claim.suite


def measures(planned: PlannedWorkload, claim: Claim) -> bool:
    """Return whether a workload of a suite measures what a claim is about."""
    workload = planned.workload
    if planned.use != claim.workload or planned.exclude:
        return False
    settings = {name: getattr(workload, name) for name in claim.settings}
    metrics = {metric.name for metric in workload.all_metrics} | {FOOTPRINT, ""}
    modes = getattr(workload, "modes", None) or tuple(word.lower() for word in getattr(workload, "operations", ()))
    points = getattr(workload, "clients", ()) or getattr(workload, "rates", ()) or getattr(workload, "processes", ())
    low, high = claim.from_point or -math.inf, math.inf if claim.to_point is None else claim.to_point
    return (
        settings == claim.settings
        and claim.metric in metrics
        and (not modes or claim.metric in {*modes, FOOTPRINT, ""})
        and {*claim.points} | ({claim.than_point} - {None}) <= {*points}
        and (low == -math.inf or any(low <= point <= high for point in points))
    )


@pytest.mark.parametrize("path", sorted({suite_of(claim) for claim in READ.claims} - {""}))
def test_the_suite_that_is_said_to_test_claims_does(path: str) -> None:
    suite = read_suite(ROOT / path)
    assert suite.blocks >= min_value_count()  # fewer have no interval, and decide nothing
    stacks = {stack.name for stack in suite.stacks}
    for claim in (claim for claim in READ.claims if suite_of(claim) == path):
        assert any(measures(planned, claim) for planned in suite.workloads), claim.id
        for stack in {claim.stack} | (set() if claim.value else {claim.than}):
            assert stack in stacks or any(needs_settings(name) for name in split_stack(stack)), (claim.id, stack)


def test_a_claim_is_written_whole() -> None:
    for claim in READ.claims:
        assert claim.says.endswith(".")
        assert claim.says not in (other.says for other in READ.claims if other is not claim) or claim.quotes, claim.id
        assert all(value != "" for name, value in asdict(claim).items() if name in ("place", "stack", "workload"))
