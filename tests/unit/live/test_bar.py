from __future__ import annotations

from dataclasses import replace

from tare.live.bar import Ended, Going, bar, last_bar
from tare.live.board import Now

TRIAL = Now(100.0, "redis", "docker", "crun, redis", block=3, blocks=12, spent_seconds=30.0, left_seconds=90.0)
TURNS = replace(TRIAL, stack="", following="", turn=4, turns=10, stacks=5)


def test_before_anything_is_measured_it_says_so() -> None:
    assert "The run begins: nothing is measured yet." in bar(1, Going(None, 5.0))


def test_a_trial_is_named_with_the_next_one_and_the_time_goes_on() -> None:
    text = bar(7, Going(TRIAL, 130.0))
    assert 'data-page="7" data-state="running"' in text
    assert "docker, redis, 30 s" in text
    assert "next crun, redis" in text
    assert "block 3 of 12" in text
    assert "about 1 min left" in text
    assert '<progress max="1000" value="500"' in text
    assert "about 0 s left" in bar(7, Going(TRIAL, 1000.0))
    assert "the last one" in bar(7, Going(replace(TRIAL, following=""), 130.0))


def test_turns_are_counted() -> None:
    assert "redis, turn 4 of 10" in bar(7, Going(TURNS, 100.0))
    assert "5 stacks in turns" in bar(7, Going(TURNS, 100.0))
    assert "redis, turn 10 of 10" in bar(7, Going(replace(TURNS, turn=12), 100.0))
    assert "redis, turn 4</span>" in bar(7, Going(replace(TURNS, turns=0), 100.0))
    assert "1 stack takes turns" in bar(7, Going(replace(TURNS, stacks=1), 100.0))


def test_what_turns_show_is_listed_and_open_in_the_first_block() -> None:
    latest = (("crun", "speed 48.2M dhrystones/s"), ("native", "speed <49M"))
    text = bar(7, Going(replace(TURNS, latest=latest, block=1), 100.0))
    assert "<details open>" in text
    assert "<dt>crun</dt><dd>speed 48.2M dhrystones/s</dd>" in text
    assert "&lt;49M" in text
    assert "<details>" in bar(7, Going(replace(TURNS, latest=latest), 100.0))
    assert "details" not in bar(7, Going(TURNS, 100.0))


def test_what_comes_from_a_suite_is_escaped() -> None:
    text = bar(1, Going(replace(TRIAL, stack="<script>", following='"<b>"'), 100.0, "<u>", "no <i>page</i>"))
    assert "<script>" not in text
    assert "<b>" not in text
    assert "<i>" not in text
    assert 'data-run="&lt;u&gt;"' in text
    assert "&lt;script&gt;, redis" in text


def test_in_the_end_it_says_why_and_where_the_report_is() -> None:
    text = last_bar(9, Ended("all is decided", "/runs/<x>/report/index.html"))
    assert 'data-state="ended"' in text
    assert "The run has ended: all is decided." in text
    assert "Its report is /runs/&lt;x&gt;/report/index.html." in text
    assert "It has no report." in last_bar(9, Ended("stopped"))
