"""What `tare advise` shows: the table, the sentence, the JSON, and the picture of the cost breakdowns."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from called import refuse
from documents import DOCS, blocks
from priced import COMPUTING, SCRIPT, SERVER, application, basket, priced
from rich.console import Console

from tare.features.advise.advice import Advice, AdviceOptions, Candidate, Requirements, advise
from tare.features.advise.advice_page import COLORS, PARTS, draw_figure
from tare.features.advise.advice_page import render as advised
from tare.features.advise.advice_text import answer, describe_waiting_load, format_cost, format_interval, sentence
from tare.features.advise.application_profile import ApplicationProfile
from tare.features.advise.cost_model import CORRECTION, REST, CostEstimate
from tare.features.advise.next_step import NextStep, next_step
from tare.model.operations import OPERATION_KINDS
from tare.report.chart_theme import STACKS as TESTED
from tare.suites.suite import parse_suite

SVG = "{http://www.w3.org/2000/svg}"


def found(of: ApplicationProfile | None = None, asked: AdviceOptions | None = None) -> Advice:
    return advise(of or application(), priced(), asked or AdviceOptions())


def shown(advice: Advice, width: int = 180) -> list[str]:
    console = Console(width=width, file=StringIO())
    console.print(answer(advice).table(width))
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_the_table_has_a_row_for_each_stack_with_what_its_cost_is_for() -> None:
    header, _, docker, podman, gvisor, qemu = shown(found())
    assert header.split() == [
        *("rank", "stack", "time", "90", "%", "CPU", "memory", "start-up", "isolation", "mostly", "for")
    ]
    assert docker.split()[:2] == ["1\N{EN DASH}2", "docker"]
    assert docker.endswith("+15 % messages received and answered")
    assert podman.split()[:2] == ["1\N{EN DASH}2", "podman"]
    assert gvisor.split()[2:5] == ["\N{MULTIPLICATION SIGN}3.10", "[3.07,", "3.16]"]
    assert "+540 % user code" in qemu


def test_a_stack_that_is_not_ranked_says_why() -> None:
    rows = shown(found(asked=AdviceOptions(Requirements(isolation="user-space kernel"))))
    assert next(row for row in rows if "docker" in row).endswith("does not meet: isolation: shared kernel")


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (CostEstimate(1.061, 1.052, 1.071), "+6.1 % [+5.2, +7.1]"),
        (CostEstimate(1.4, 1.2, 1.6), "+40 % [+20, +60]"),
        (CostEstimate(0.97, 0.96, 0.98), "\N{MINUS SIGN}3.0 % [\N{MINUS SIGN}4.0, \N{MINUS SIGN}2.0]"),
        (CostEstimate(1.0001), "0 % "),
        (CostEstimate(3.7, 3.0, 4.5), "\N{MULTIPLICATION SIGN}3.7 [3.0, 4.5]"),
        (CostEstimate(3.71, 3.65, 3.77), "\N{MULTIPLICATION SIGN}3.71 [3.65, 3.77]"),
        (CostEstimate(17.2, 15.0, 19.9), "\N{MULTIPLICATION SIGN}17 [15, 20]"),
    ],
)
def test_costs_have_the_digits_that_their_intervals_support(estimate: CostEstimate, text: str) -> None:
    assert f"{format_cost(estimate)} {format_interval(estimate)}" == text


def test_the_sentence_names_the_cheapest_and_those_that_may_be_as_cheap() -> None:
    assert sentence(found()) == (
        "docker probably costs the least: +15.1 % [+14.7, +15.7] relative to native; no certain difference to podman."
    )
    only = found(application(SCRIPT), AdviceOptions(Requirements(isolation="user-space kernel")))
    assert sentence(only).startswith("gvisor costs the least: \N{MULTIPLICATION SIGN}")
    assert sentence(found(asked=AdviceOptions(Requirements(memory_bytes=1)))) == "None of 4 stacks meets the needs."
    other = application(machine=replace(application().machine, kernel="5.0"))
    assert sentence(found(other)).startswith("Cannot tell: docker: unit costs of another machine: kernel: 5.0")


def test_the_command_to_paste_has_the_two_stacks_and_the_application() -> None:
    assert next_step(found()) == NextStep("tare try --on native,docker,podman -- nginx")
    with_command = application(command=("sh", "-c", "gzip < /dev/zero | head -c 1"))
    assert next_step(found(with_command)) == NextStep(
        "tare try --on native,docker,podman -- sh -c 'gzip < /dev/zero | head -c 1'"
    )
    assert next_step(found(asked=AdviceOptions(Requirements(memory_bytes=1)))) is None


def test_the_suite_of_a_next_step_takes_every_letter_and_lists_of_tables(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(
        '[stacks.bridge]\nstack = "docker"\nnetwork = "bridge"\nmounts = [{ path = "/😀" }]\n', encoding="utf-8"
    )
    run = priced({"native": {}, "bridge": {"message": 1.5}})
    step = next_step(advise(application(command=("echo", "😀")), replace(run, folder=tmp_path), AdviceOptions()))
    assert step is not None
    suite = tomllib.loads(step.suite)
    assert suite["workloads"][0]["command"] == ["echo", "😀"]
    assert suite["stacks"]["bridge"]["mounts"] == [{"path": "/😀"}]


@pytest.mark.parametrize("of", [application(), application(command=())], ids=["command", "server"])
def test_the_next_step_with_a_stack_that_has_settings_is_a_suite_with_them(
    of: ApplicationProfile, tmp_path: Path
) -> None:
    tables = '[stacks.bridge]\nstack = "docker"\nnetwork = "bridge"\n[stacks.other]\nstack = "gvisor"\n'
    (tmp_path / "suite.toml").write_text(tables, encoding="utf-8")
    run = priced({"native": {}, "bridge": {"message": 1.5}, "podman": {"message": 1.52}, "other": {"message": 3.0}})
    step = next_step(advise(of, replace(run, folder=tmp_path), AdviceOptions()))
    assert step is not None
    assert step.command == "tare run next.toml"
    suite = parse_suite(step.suite, "next.toml")
    assert [stack.name for stack in suite.stacks] == ["native", "bridge", "podman"]
    assert '[stacks."bridge"]\nstack = "docker"\nnetwork = "bridge"\n' in step.suite
    assert "gvisor" not in step.suite


@pytest.mark.parametrize(
    ("rate", "load"),
    [
        (2, "clients = [50]"),
        (99, "clients = [50]"),
        (130, 'rates = [130]\nduration = "8s"'),
        (70_000, 'rates = [70000]\nduration = "1s"'),
        (200_000, "clients = [50]"),
    ],
)
def test_the_suite_of_a_server_has_a_load_at_its_rate_if_measurable(rate: float, load: str) -> None:
    waits = replace(SERVER, by_cpu=True, elapsed_seconds=1 / rate)
    step = next_step(found(application(waits, command=())))
    assert step is not None
    assert step.suite.endswith(f"\n{load}\n")
    assert parse_suite(step.suite, "next.toml").workloads[0].name == "service"


def test_a_server_without_a_known_rate_is_asked_without_a_pause() -> None:
    step = next_step(found(application(command=(), unit="second of its work")))
    assert step is not None
    assert "clients = [50]" in step.suite
    assert step.to_fill


def test_it_says_what_is_predicted() -> None:
    assert "the inverse of throughput" in answer(found()).legend
    waiting = application(basket({"user": 1e-5, "message": 1.0}, idle=1e-3))
    assert "one after the other" in answer(found(waiting)).legend
    assert describe_waiting_load(found(waiting)) == ""
    server = replace(waiting, operations=replace(waiting.operations, by_cpu=True, elapsed_seconds=4e-3))
    assert answer(found(server)).legend == "CPU: CPU time of a request; relative to native (15 us); 90 % interval"
    assert describe_waiting_load(found(server)).startswith("At this load the server is busy less than 1 % of the time")


def test_without_references_it_says_what_the_interval_lacks() -> None:
    assert answer(found()).remarks[0].startswith("intervals cover noise, but not errors of the model")
    advice = found(application(missing=("disk reads are not known",)))
    assert "profile: disk reads are not known" in answer(advice).remarks


def test_the_document_is_json_without_odd_numbers() -> None:
    whole = json.loads(
        answer(found(asked=AdviceOptions(Requirements(isolation="user-space kernel")))).document(),
        parse_constant=refuse,
    )
    cells = {cell["stack"]: cell for cell in whole["cells"]}
    assert cells["docker"]["decision"] == "excluded"
    assert cells["docker"]["unmet"] == ["isolation: shared kernel"]
    gvisor = cells["gvisor"]
    assert gvisor["decision"] == "ranked"
    assert gvisor["rank"] == [1, 1]
    assert gvisor["time_low"] < gvisor["time"] < gvisor["time_high"]
    assert gvisor["n"] == 8
    assert sum(line["share"] for line in gvisor["lines"]) == pytest.approx(gvisor["time"] - 1)
    assert whole["try"] == "tare try --on native,gvisor,qemu-tcg -- nginx"


def test_every_kind_of_work_is_a_part_of_the_figure_with_a_tested_color() -> None:
    drawn = [kind for kinds in PARTS.values() for kind in kinds]
    assert sorted(drawn) == sorted([*(work.name for work in OPERATION_KINDS), REST, CORRECTION])
    assert len(set(COLORS.values())) == len(PARTS)
    assert set(COLORS.values()) <= set(TESTED)


def test_bars_are_as_long_as_the_costs_and_their_parts_touch() -> None:
    bars = dict(re.findall(r"<title>(\S+): [^<]*</title>(.*?)</g>", str(draw_figure(found()).svg)))
    bars = {stack: drawn for stack, drawn in bars.items() if stack in ("docker", "podman", "gvisor", "qemu-tcg")}
    assert list(bars) == ["docker", "podman", "gvisor", "qemu-tcg"]
    network = {}
    for stack, drawn in bars.items():
        found_parts = re.findall(r'class="segment" d="M([\d.]+) [\d.]+H([\d.]+)v[^"]*" fill="([^"]*)"', drawn)
        parts = sorted((float(start), float(end)) for start, end, _ in found_parts)
        for (_, end), (start, _) in pairwise(parts):
            assert start == pytest.approx(end, abs=0.2)
        network[stack] = next(
            float(end) - float(start) for start, end, fill in found_parts if fill == COLORS["network"]
        )
    assert network["podman"] / network["docker"] == pytest.approx(0.52 / 0.5, rel=0.06)
    assert ['class="further"' in drawn for drawn in bars.values()] == [False, False, True, True]


def test_the_page_has_the_answer_the_picture_and_every_line() -> None:
    page = advised(found(asked=AdviceOptions(node_hourly_price=0.12, load_per_second=1e5))).decode()
    assert "docker probably costs the least" in page
    assert page.count("<details>") == 4
    assert "messages received and answered" in page
    assert "tare try --on native,docker,podman -- nginx" in page


def test_names_from_untrusted_files_are_escaped() -> None:
    page = advised(found(application(name="<script>alert(1)</script>", command=("<b>",)))).decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.parametrize("of", [SERVER, COMPUTING, SCRIPT], ids=["server", "computing", "script"])
def test_a_page_can_be_made_of_any_bill(of: object) -> None:
    assert b"</html>" in advised(found(application(of)))  # type: ignore[arg-type]


def test_a_candidate_without_an_interval_is_drawn() -> None:
    one: Candidate = advise(application(), priced(blocks=1), AdviceOptions()).candidates[0]
    assert one.cost.low is None
    assert b"</html>" in advised(advise(application(), priced(blocks=1), AdviceOptions()))


def test_the_document_shows_what_is_printed_of_the_artificial_prices() -> None:
    advice = found()
    step = next_step(advice)
    assert step is not None
    printed = [
        *shown(advice),
        answer(advice).legend,
        *answer(advice).remarks,
        sentence(advice),
        f"Next: {step.instruction}",
    ]
    assert printed[:1] + printed[2:] == [
        line
        for line in blocks(DOCS / "advice.md", "text")[0].splitlines()
        if line[1:2] != "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
    ]
