from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from browser import CHROMIUM, chromium, new_page
from marks import slow
from pages import Page, html_of
from playwright.sync_api import expect
from runs import Trouble, believable_run, run_in_turns

from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.report.charts import SLOWEST, STEAL
from tare.report.html import sparklines
from tare.report.html.sparklines import TurnStrip, select_strips
from tare.statistics.summarize import summarize

BURST = Trouble(block=2, burst=(2.0, 3.1))
BOX = "((r) => [r.left, r.top, r.width, r.height])(each.getBoundingClientRect())"
STACKS = {"native", "native-again", "crun", "docker", "gvisor", "qemu-tcg"}


def strips_of(run: Run) -> tuple[TurnStrip, ...]:
    return select_strips(summarize(run), run, "redis")


def slow_stacks(strip: TurnStrip) -> set[str]:
    return {bar.stack for bar in strip.bars if bar.speed_class == SLOWEST}


def test_a_burst_of_the_machine_is_seen_to_hit_all_stacks_while_it_lasts() -> None:
    [strip] = strips_of(run_in_turns(BURST))
    assert (strip.block, len(strip.bars)) == (2, 60)
    assert slow_stacks(strip) == STACKS
    assert all(2.0 <= bar.began < 3.1 and bar.steal == 0.45 for bar in strip.bars if bar.speed_class == SLOWEST)
    assert "Turns of block 3, in which they differ most: " in strip.describe(how_to_read=True)
    assert "10 of 60 are slower by 20 % or more (" in strip.describe(how_to_read=True)


def test_a_stall_hits_only_its_stack_next_to_the_block_with_a_burst() -> None:
    burst, stall = strips_of(run_in_turns(replace(BURST, stalls="docker")))
    assert (burst.block, slow_stacks(burst)) == (2, STACKS)
    assert slow_stacks(stall) == {"docker"}
    assert f"Turns of block {stall.block + 1}, in which docker stalls most: " in stall.describe(how_to_read=True)
    assert "2 of 60 are slower by 20 % or more (docker 2)" in stall.describe(how_to_read=True)


def test_a_turn_has_the_speed_of_its_point_and_less_is_faster_if_better() -> None:
    run = run_in_turns(BURST, clients=(1.0, 50.0))
    lower = [
        replace(trial, values=tuple(replace(value, better="lower") for value in trial.values)) for trial in run.trials
    ]
    [strip], [inverse] = strips_of(run), strips_of(replace(run, trials=tuple(lower)))
    assert {bar.stack for bar in strip.bars if bar.speed_class == SLOWEST and not 2.0 <= bar.began < 3.1} == set()
    assert not any(bar.speed_class == SLOWEST for bar in inverse.bars)
    pairs = zip(strip.bars, inverse.bars, strict=True)
    assert all(bar.speed * other.speed == pytest.approx(1.0) for bar, other in pairs)


def test_a_workload_without_turns_has_no_strip() -> None:
    run = believable_run(blocks=2)
    assert strips_of(run) == ()
    assert "Turns of block" not in Page(html_of(run)).text


def test_what_slowed_a_turn_is_said_in_its_title_and_usual_turns_have_none() -> None:
    html = html_of(run_in_turns(BURST))
    titles = re.findall(r"<title>([^<]*in round[^<]*)</title>", html)
    assert len(titles) == 10
    assert all(re.search(r": [45]\d % of its usual speed, 45 % steal time", title) for title in titles)
    assert f">{STEAL}<" in html
    assert f">{STEAL}<" not in html_of(run_in_turns())


def test_of_a_block_with_very_many_turns_the_roughest_stretch_is_drawn() -> None:
    run = run_in_turns(Trouble(burst=(500.0, 503.0)), clients=(1.0, 50.0, 200.0), blocks=1, rounds=300)
    [strip] = strips_of(run)
    assert (len(strip.bars), strip.all_turns) == (500, 5400)
    assert strip.bars[0].began < 500.0
    assert strip.bars[-1].began > 503.0
    assert "(the 500 of 5400 turns that vary most)" in strip.describe(how_to_read=True)
    assert len(html_of(run)) - len(html_of(run_in_turns())) < 200_000


def test_numbers_that_no_machine_gives_break_no_strip() -> None:
    def odd(trial: Trial, numbers: tuple[float, ...], began: float) -> Trial:
        [value] = trial.values
        changed = replace(value, turns=(*numbers, *value.turns[len(numbers) :]))
        return replace(trial, values=(changed,), turns=(replace(trial.turns[0], began=began), *trial.turns[1:-1]))

    run = run_in_turns()
    numbers = [(1e-300, 1e300), (0.0,), (float("nan"),), (float("inf"),), (-1.0,), (5.0,)]
    odd_trials = [
        replace(trial, turns=(*trial.turns[:-1], replace(trial.turns[-1], began=float("nan"), steal=2.0)))
        if index % 7
        else odd(trial, numbers[index // 7], began=float("inf"))
        for index, trial in enumerate(run.trials)
    ]
    odd_trials[1] = replace(run.trials[1], values=(replace(run.trials[1].values[0], turns=(1e-300, 1e300) * 5),))
    html = html_of(replace(run, trials=tuple(odd_trials)))
    assert "Turns of block" in html
    assert not re.search(r"\bnan\b", html.lower())


def test_a_strangers_label_stays_text() -> None:
    attack = "<script>alert('x')</script>"
    run = run_in_turns(BURST)
    trials = [
        replace(
            trial,
            values=tuple(replace(value, label=attack) for value in trial.values),
            turns=tuple(replace(turn, label=attack) for turn in trial.turns),
        )
        for trial in run.trials
    ]
    html = html_of(replace(run, trials=tuple(trials)))
    assert Page(html).tags.count("script") == 1
    assert "&lt;script&gt;alert" in html


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
@pytest.mark.parametrize("width", slow([1280, 390], [1280]))
def test_a_browser_draws_slow_turns_thin_each_in_the_row_of_its_stack(tmp_path: Path, width: int) -> None:
    (tmp_path / "page.html").write_text(html_of(run_in_turns(BURST)), encoding="utf-8")
    with chromium() as browser:
        page = new_page(browser, viewport={"width": width, "height": 900})
        page.goto((tmp_path / "page.html").as_uri())
        strip = page.locator(".drawings svg[aria-label^='Turns of block 3']")
        texts = strip.locator("text").evaluate_all(f"(all) => all.map((each) => [each.textContent, {BOX}])")
        slow = strip.locator("path:has(title)").evaluate_all(f"(all) => all.map((each) => [each.textContent, {BOX}])")
        whole = strip.evaluate(f"(each) => {BOX}")
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    rows = {text: top + height / 2 for text, (_, top, _, height) in texts if text in STACKS}
    assert rows.keys() == STACKS
    assert len(slow) == 10
    for title, (left, top, across, thick) in slow:
        assert top + thick / 2 == pytest.approx(rows[title.split(",")[0]], abs=3)
        assert 4 < thick < 11  # half as thick as a row
        assert whole[0] < left < left + across < whole[0] + whole[2]
    assert overflow <= 0  # the strip scrolls by itself on a narrow screen


def test_of_very_many_blocks_the_first_are_drawn_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparklines, "_TURNS", 400)
    run = run_in_turns(blocks=6)
    shown = sparklines.draw_turns_by_workload(summarize(run), run)["redis"]
    assert (list(shown.blocks), shown.more) == ([0, 1], 4)
    assert (shown.of(1), shown.of(2)) == ("turns-0-1", "")
    assert "The turns of 4 more blocks are in" in Page(html_of(run)).text


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_the_block_of_a_trial_leads_to_the_turns_of_all_stacks_in_it(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html_of(run_in_turns(BURST)), encoding="utf-8")
    with chromium() as browser:
        page = new_page(browser)
        page.goto(f"{(tmp_path / 'page.html').as_uri()}#trials-0-3")
        page.locator("#trials-0-3 tbody tr").nth(2).locator("a[href^='#turns']").click()
        strip = page.locator("#turns-0-2")
        expect(strip).to_be_in_viewport()
        texts = set(strip.locator("svg text").all_text_contents())
        expect(page.locator("#turns-0-1")).to_be_hidden()
    assert texts >= {*STACKS, STEAL, "seconds since the block's first turn"}
