"""The page, on a made-up run with everything that can go wrong in it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pages import Page, html_of
from runs import MACHINE, NO_KVM, believable_run, make_run, make_trial, measured, pairs

from tare.model.journal import Run
from tare.model.machine import Tuning
from tare.model.trial import Caution, Footprint, Limits, Lowered, Mark, Metric, SeenLimits, SetLimits
from tare.report.writer import find
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


def test_the_page_is_smaller_than_three_megabytes(html: str) -> None:
    assert len(html.encode()) < 3_000_000


def test_a_value_is_shown_with_its_interval_and_its_n(page: Page) -> None:
    run = pairs([80, 90, 100, 85, 95], [100] * 5)
    text = Page(html_of(run)).text
    assert "90 %" in text
    assert "[65, 124] n=5" in text
    assert "n=8" in page.text


def test_skipped_and_failed_cells_say_why(page: Page) -> None:
    assert f"{NO_KVM} (qemu: all workloads)" in page.text
    assert "nginx did not answer on port 8080 within 20 s (gvisor: nginx (8 trials)) Hint: see" in page.text
    assert page.text.count("Hint: see its raw output") == 1
    assert "1 failed" in page.text


def test_all_that_is_to_be_read_with_care_is_in_one_table(html: str) -> None:
    table = html[html.index('<table class="values care">') :]
    rows = re.findall(
        r'<tr.*?<th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td></tr>', table[: table.index("</table>")]
    )
    whats = [re.sub(r"<.*?>", "", what).lstrip("0123456789 ") for what, _, _ in rows]
    cautions = ["steal", "emulated", "file-system-differs", "client-bound", "correlated-blocks"]
    beside = ["undecided", "too few blocks", "noise", "close decisions"]
    assert [*dict.fromkeys(whats)] == ["no value", *cautions, *beside]
    assert all(where and why for _, where, why in rows)
    few = next(row for row, what in zip(rows, whats, strict=True) if what == "too few blocks")
    assert "Hint: More blocks decide more." in few[2]
    assert html.index('id="cautions"') < html.index('id="in-words"') < html.index('id="matrix"')


def test_a_page_without_doubts_says_so() -> None:
    run = make_run([make_trial("native", block, [measured("speed", 1.0)]) for block in range(6)])
    text = Page(html_of(run)).text
    assert "Read with care Nothing speaks against the numbers." in text


def test_a_caution_is_marked_beside_its_value_and_printed_in_the_list(html: str, page: Page) -> None:
    assert 'title="client-bound: native, 3 of 8 trials"' in html
    said = "was at its limit, so the server may be faster than this (the client used 97 % of its CPU; "
    assert said in page.text
    assert "redis: native 3 of 8" in page.text


def test_the_page_shows_the_machine_the_image_and_the_packages(page: Page) -> None:
    for words in (
        "Imaginary CPU 9000",
        "8 GiB",
        "tsc",
        "sha256:5e5e",
        "redis-server 5:7.0.15-1",
        "0.4 % in the last second",
    ):
        assert words in page.text


def test_the_page_says_which_settings_of_a_workload_were_lowered_to_fit_its_limits() -> None:
    run = pairs([90], [100])
    room, time = "an instance has 1 CPU and 64 MiB of memory", "a trial may measure for 2 s"
    lowered = (Lowered("sizes", '["4KiB", "8KiB"]', '["4KiB"]', room), Lowered("duration", '"1s"', '"310ms"', time))
    workload = replace(run.record.workloads[0], lowered=lowered)
    text = Page(html_of(replace(run, record=replace(run.record, workloads=(workload,))))).text
    assert f'sizes = ["4KiB"] instead of ["4KiB", "8KiB"]: {room}. duration = "310ms" instead of "1s": {time}.' in text
    assert "instead of" not in Page(html_of(run)).text


def test_the_limits_of_a_stack_bear_the_names_of_their_workloads_where_these_have_others() -> None:
    run = narrowed(believable_run(blocks=2), "dhrystone", "redis")
    assert "memory (" not in Page(html_of(run)).text
    asked = Limits((0,), 64 << 20, 4096)
    narrow = SetLimits(asked, SeenLimits(1, 64 << 20, 4096))
    trials = tuple(replace(each, limits=narrow) if each.workload == "redis" else each for each in run.trials)
    text = Page(html_of(replace(run, trials=trials))).text
    assert "memory (redis)" in text
    assert "memory (dhrystone)" in text


def test_the_page_shows_which_settings_of_the_machine_were_set_and_no_heading_for_a_run_of_before() -> None:
    run = pairs([90], [100])
    settings = (
        Tuning("governor", "powersave", "performance", fits=False),
        Tuning("ASLR", "2", "2", fits=True),
        Tuning("turbo (cpufreq/boost)", "", "0", fits=True),
    )
    text = Page(html_of(replace(run, record=replace(run.record, tuning=settings)))).text
    for words in ("powersave; wanted: performance", "2, as wanted", "not on this machine"):
        assert words in text
    assert "would set" not in Page(html_of(run)).text


def test_the_page_shows_commands_that_can_be_pasted(page: Page) -> None:
    assert "docker run --name tare-dhrystone-docker-0 --memory 512m dhrystone" in page.text
    assert "sh -c 'echo" in page.text


def test_of_commands_that_differ_in_their_numbers_alone_one_is_shown() -> None:
    loads = tuple(("load", "-c", str(clients), "-n", f"{number}.5") for clients in (1, 50) for number in range(20))
    run = pairs([90], [100])
    one = replace(run.trials[0], commands=(("start", "it"), *loads, ("load", "--help")))
    html = html_of(replace(run, trials=(one, run.trials[1])))
    lines = "start it\nload -c 1 -n 0.5\n# … and 39 more like it, with other numbers\nload --help"
    assert f">{lines}</pre>" in html


def test_a_limit_seen_differently_is_pointed_out(page: Page) -> None:
    assert "512 MiB 480 MiB" in page.text
    assert page.text.count("limits not equal") == 1
    assert "path: bridge" in page.text


def test_the_file_systems_under_what_a_workload_uses_are_facts_of_a_stack(page: Page) -> None:
    assert page.text.count("file system under /srv/file ext4 (relatime)") == 1
    assert "file system under /srv/file overlay (relatime)" in page.text
    assert "the baseline's on overlay (relatime): a disk or a layer of its own belongs to the stack" in page.text


def test_the_page_states_how_headlines_are_made(page: Page) -> None:
    assert "The headline of redis is: geometric mean of GET and SET, each over 5 points. More is better." in page.text
    assert "The headline of startup is: Total. Less is better." in page.text


def test_every_chart_is_drawn_in_the_ink_of_the_page(html: str, page: Page) -> None:
    # the map, ratios of 5 workloads and 4 of them enlarged, 4 sweeps, 3 in percent, 3 strips, 2 starts, memory, disk;
    # and a panel of the figure for each of 5 headlines, two of cost against memory and start-up, 4 of claims
    assert page.tags.count("svg") == 24 + 5 + 2 + 4
    assert "#1b1f24" not in html.split("</style>")[1]


def test_a_footprint_that_is_not_known_is_left_out_of_its_chart() -> None:
    run = pairs([90], [100])
    unknown = replace(run.trials[0], footprint=Footprint(None, None, None, 1))
    known = replace(run.trials[1], footprint=Footprint(12 << 20, None, None, 1))
    text = Page(html_of(replace(run, trials=(unknown, known)))).text
    assert "12.0 MiB" in text
    assert "Bytes that an instance wrote" not in text


def test_the_table_of_values_has_the_stacks_of_a_point_below_each_other(page: Page) -> None:
    rows = re.findall(r"GET (\d+) (\S+) [\d.]+ ± [\d.]+ k \S+/s ", page.text)
    assert rows[:3] == [("1", "native"), ("1", "native-again"), ("1", "crun")]


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


def test_the_page_shows_each_machine_with_its_roles_and_says_what_was_measured_on() -> None:
    run = narrowed(believable_run(blocks=2), "dhrystone")
    cloud = replace(MACHINE, cpu_model="Cloud CPU 7")
    machines = {"controller": MACHINE, "client": MACHINE, "lent": cloud}
    run = replace(run, record=replace(run.record, machines=machines))
    page = Page(find("html")(summarize(run), run)["index.html"].decode())
    assert "Controller, client" in page.text
    assert "Lent" in page.text
    assert "on this machine (Cloud CPU 7, " in page.text
    assert page.text.count(MACHINE.cpu_model) == 1
