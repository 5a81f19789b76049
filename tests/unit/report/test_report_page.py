"""The page, on a made-up run with everything that can go wrong in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pages import Page, html_of
from runs import MACHINE, believable_run, make_run, make_trial, measured, pairs, write

from tare.model.errors import UsageError
from tare.model.run_folder import Run, load_run
from tare.model.trial import Caution, Footprint, Limits, LimitsCheck, Mark, Metric, ObservedLimits
from tare.report.writer import find_renderer, write_report
from tare.statistics.summarize import summarize

ATTACK = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def html() -> str:
    return html_of(believable_run())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def narrowed(run: Run, *workloads: str) -> Run:
    """Leave these workloads alone: of each, a page takes a second."""
    records = tuple(each for each in run.record.workloads if each.name in workloads)
    trials = tuple(each for each in run.trials if each.workload in workloads)
    return replace(run, trials=trials, record=replace(run.record, workloads=records))


def test_the_page_needs_no_network_and_runs_no_script_but_its_own(html: str, page: Page) -> None:
    [(policy, script)] = re.findall(r"script-src '([^']+)'.*<script>(.*)</script>", html, re.DOTALL)
    assert policy == f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    assert page.tags.count("script") == 1
    assert not {"iframe", "object", "embed", "base"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    links = page.named("href") + page.named("src") + page.named("xlink:href")
    assert [link for link in links if not link.startswith(("#", "data:"))] == []


def test_the_pages_style_loads_nothing(html: str) -> None:
    assert "@import" not in html
    assert re.findall(r"url\((?!['\"]?#)[^)]*\)", html) == []


def test_every_link_within_the_page_has_its_target(page: Page) -> None:
    targets = {link[1:] for link in page.named("href") if link.startswith("#")}
    assert targets <= set(page.named("id"))
    assert {"cautions", "failing", "caution-1"} <= targets


def test_identifiers_of_all_charts_are_unique(page: Page) -> None:
    identifiers = page.named("id")
    assert len(identifiers) == len(set(identifiers))


def test_a_page_without_doubts_says_so() -> None:
    run = make_run([make_trial("native", block, [measured("speed", 1.0)]) for block in range(6)])
    text = Page(html_of(run)).text
    assert "Cautions There are none." in text


def test_limits_are_labeled_by_workload_if_workloads_have_different_ones() -> None:
    run = narrowed(believable_run(blocks=2), "dhrystone", "redis")
    assert "memory (" not in Page(html_of(run)).text
    asked = Limits((0,), 64 << 20, 4096)
    narrow = LimitsCheck(asked, ObservedLimits(1, 64 << 20, 4096))
    trials = tuple(replace(each, limits=narrow) if each.workload == "redis" else each for each in run.trials)
    text = Page(html_of(replace(run, trials=trials))).text
    assert "memory (redis)" in text
    assert "memory (dhrystone)" in text


def test_of_commands_that_differ_in_their_numbers_alone_one_is_shown() -> None:
    loads = tuple(("load", "-c", str(clients), "-n", f"{number}.5") for clients in (1, 50) for number in range(20))
    run = pairs([90], [100])
    one = replace(run.trials[0], commands=(("start", "it"), *loads, ("load", "--help")))
    html = html_of(replace(run, trials=(one, run.trials[1])))
    lines = "start it\nload -c 1 -n 0.5\n# … and 39 more like it, with other numbers\nload --help"
    assert f">{lines}</pre>" in html


def test_a_footprint_that_is_not_known_is_left_out_of_its_chart() -> None:
    run = pairs([90], [100])
    unknown = replace(run.trials[0], footprint=Footprint(None, None, None, 1))
    known = replace(run.trials[1], footprint=Footprint(12 << 20, None, None, 1))
    text = Page(html_of(replace(run, trials=(unknown, known)))).text
    assert "12.0 MiB" in text
    assert "Bytes that an instance wrote" not in text


def test_a_strangers_text_stays_text_everywhere() -> None:
    run = believable_run(blocks=2)
    trials = [
        replace(
            trial,
            stack=trial.stack + ATTACK,
            reason=ATTACK if trial.reason else "",
            path=ATTACK,
            cautions=(Caution(ATTACK, ATTACK),),
            proof=((ATTACK, ATTACK),),
            commands=((ATTACK,),),
            timeline=(*trial.timeline, Mark(ATTACK, 9.0)),
        )
        for trial in run.trials
        if trial.workload in ("dhrystone", "redis")
    ]
    metrics = tuple(
        Metric(metric.name, ATTACK, metric.unit + ATTACK, metric.better) for metric in run.record.workloads[0].metrics
    )
    workloads = (replace(run.record.workloads[0], title=ATTACK, metrics=metrics), run.record.workloads[2])
    record = replace(
        run.record,
        suite=ATTACK,
        baseline="native" + ATTACK,
        stacks=(),
        workloads=workloads,
        image=ATTACK,
        packages=ATTACK,
        machine=replace(MACHINE, cpu_model=ATTACK),
        noise=((ATTACK, ATTACK),),
    )
    page = Page(html_of(Run(Path(ATTACK.replace("/", "")), record, tuple(trials))))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert "onerror" not in {name for name, _ in page.attributes}
    assert ATTACK in page.text


def test_a_run_without_a_single_trial_still_has_a_page() -> None:
    run = pairs([90], [100])
    text = Page(html_of(replace(run, trials=()))).text
    assert "no trial was run" in text


def test_a_value_of_zero_is_said_in_words_and_never_nan() -> None:
    text = Page(html_of(pairs([0.0, 0.0], [100, 100]))).text
    assert "a value is zero or negative, so a ratio has no meaning" in text
    assert not re.search(r"\bnan\b", text.lower())


def test_a_single_stack_run_has_a_page() -> None:
    run = make_run([make_trial("native", block, [measured("speed", 100.0 + block)]) for block in range(3)])
    assert "101.0 ± 1.0 iterations/s" in Page(html_of(run)).text


def test_the_page_shows_each_machine_with_its_roles_and_the_measured_one() -> None:
    run = narrowed(believable_run(blocks=2), "dhrystone")
    cloud = replace(MACHINE, cpu_model="Cloud CPU 7")
    machines = {"controller": MACHINE, "client": MACHINE, "lent": cloud}
    run = replace(run, record=replace(run.record, machines=machines))
    page = Page(find_renderer("html")(summarize(run), run)["index.html"].decode())
    assert "Controller, client" in page.text
    assert "Lent" in page.text
    assert "on this machine (Cloud CPU 7, " in page.text
    assert page.text.count(MACHINE.cpu_model) == 1


# --- runs with very many stacks or trials, with failures alone, cut off, or of another format


@pytest.mark.slow
def test_a_page_of_a_thousand_stacks_stays_small_and_says_what_it_omits() -> None:
    stacks = ("native", *(f"stack-{number}" for number in range(999)))
    trials = [make_trial(stack, block, [measured("speed", 100.0)]) for stack in stacks for block in range(5)]
    html = html_of(make_run(trials))
    assert len(html.encode()) < 3_000_000
    assert (
        "Left out to keep the page readable: charts, because there are 1000 stacks; single trials, which"
        in Page(html).text
    )
    assert html.count('<th scope="row">stack-') >= 999


def test_a_workload_of_very_many_trials_has_no_trial_charts_and_says_so() -> None:
    def text(blocks: int) -> str:
        values = [measured("speed", 100.0)]
        return Page(html_of(make_run([make_trial("native", block, values) for block in range(blocks)]))).text

    assert "the dots are 140 of 1,400 trials" in text(1400)
    many = text(1401)
    assert "a dot" not in many
    assert "Left out to keep the page readable: charts of the single trials of a workload with more" in many


def test_a_run_with_failures_alone_says_why_first() -> None:
    trials = [
        replace(make_trial(stack, block, ()), status="failed", reason=f"{stack} crashed")
        for stack in ("native", "docker")
        for block in range(5)
    ]
    text = Page(html_of(make_run(trials))).text
    first = text[text.index("What does not work") : text.index("Ranking of each workload")]
    assert "stack dhrystone native ✕ fails native crashed docker ✕ fails docker crashed" in first
    assert "docker crashed (docker: dhrystone (5 trials))" in first
    assert not re.search(r"\bnan\b|None", text)


def test_a_journal_that_ends_within_a_line_has_a_page_of_what_is_whole(tmp_path: Path) -> None:
    run = make_run(
        [make_trial("native", block, [measured("speed", 100.0)]) for block in range(3)], folder=tmp_path / "run"
    )
    journal = write(run) / "trials.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    [page] = write_report([load_run(run.folder)], ["html"])
    assert "2 trials (2 ok)" in Page(page.read_text(encoding="utf-8")).text


def test_a_run_of_a_format_that_is_not_known_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = write(make_run([make_trial("native", 0, [measured("speed", 100.0)])], folder=tmp_path / "run"))
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(record | {"format": 999}), encoding="utf-8")
    with pytest.raises(UsageError, match="999"):
        load_run(folder)
