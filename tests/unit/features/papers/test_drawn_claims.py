"""The figure of claims: what was published and what was found, in a panel for each workload."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from claimed import claims, text_of
from pages import Page, html_of
from runs import pairs

from tare.features.papers.claims_page import (
    ClaimBar,
    ClaimsFigure,
    ClaimsPanel,
    draw_file_figure,
    draw_page_figure,
    lay_out_panels,
)
from tare.features.papers.judging import judge
from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.report.writer import find_renderer
from tare.statistics.summarize import summarize

TIMES = "\N{MULTIPLICATION SIGN}"
SVG = "{http://www.w3.org/2000/svg}"
SLOWER = pairs([90.0 + number % 3 for number in range(12)], [100.0] * 12)


def panel_of(run: Run, *changes: dict[str, object]) -> ClaimsPanel:
    [found] = lay_out_panels(judge(run, claims(*changes)))
    return found


def rows_of(run: Run, *changes: dict[str, object]) -> tuple[ClaimBar, ...]:
    return panel_of(run, *changes).rows


def test_contradicted_claims_come_first_and_reproduced_ones_are_in_band() -> None:
    contradicted, reproduced = rows_of(SLOWER, {"size": "91%", "tolerance": "3%"}, {"direction": "more"})
    assert (contradicted.judgement, contradicted.glyph) == ("contradicted", "✘")
    assert (reproduced.judgement, reproduced.published, reproduced.here) == (
        "reproduced",
        "91 %",
        "\N{MINUS SIGN}9.0 %",
    )
    assert not contradicted.band.start <= contradicted.dot <= contradicted.band.end
    band, bar = reproduced.band, reproduced.bar
    assert bar is not None
    assert band.start < bar.start < reproduced.dot < bar.end < band.end
    assert not any((band.before, band.after, bar.before, bar.after))


@pytest.mark.parametrize(
    ("claim", "published", "is_open"),
    [
        ({"direction": "less"}, "less", (True, False)),
        ({"direction": "more"}, "more", (False, True)),
        ({"direction": "less", "least": "50%", "most": "95%"}, "50\N{EN DASH}95 %", (False, False)),
        ({"direction": "less", "most": "95%"}, "≤ 95 %", (True, False)),
        ({"direction": "equivalent", "least": "94%"}, "≥ 94 %", (False, True)),
        (
            {"direction": "more", "least": "90%", "most": "250%"},
            "90 %\N{EN DASH}\N{MULTIPLICATION SIGN}2.5",
            (False, False),
        ),
        ({"direction": "equivalent"}, "equal", (False, False)),
    ],
)
def test_a_region_without_an_end_goes_on_beyond_the_axis(
    claim: dict[str, object], published: str, is_open: tuple[bool, bool]
) -> None:
    panel = panel_of(SLOWER, claim)
    [row] = panel.rows
    assert (row.published, row.size) == (published, None)
    assert (row.band.before, row.band.after) == is_open
    assert (row.band.start == 0.0, row.band.end == 1.0) == is_open
    assert 0 < panel.even < 1
    assert (panel.even, "0 %") in panel.ticks


def test_the_axis_holds_wide_intervals_and_the_whole_of_what_was_published() -> None:
    noisy = pairs([60.0, 140.0, 80.0, 150.0, 70.0, 90.0], [100.0] * 6)
    [row] = rows_of(noisy, {"direction": "less", "size": "50%", "tolerance": "20%"})
    assert row.bar is not None
    assert row.bar.start < row.dot < row.bar.end
    assert all(0 < place < 1 for place in (row.band.start, row.band.end, row.bar.start, row.bar.end))
    assert not any((row.band.before, row.band.after, row.bar.before, row.bar.after))


def test_too_few_blocks_have_a_dot_without_an_interval() -> None:
    [row] = rows_of(pairs([90.0, 91.0], [100.0, 100.0]), {"direction": "less"})
    assert (row.judgement, row.bar) == ("undecided", None)


def test_what_lies_near_even_can_be_read_beside_what_is_far_off() -> None:
    near: dict[str, object] = {"direction": "equivalent", "tolerance": "3%"}
    even = pairs([100.0 + number % 2 / 10 for number in range(12)], [100.0] * 12)
    far, beside = rows_of(even, {"direction": "more", "size": "2500%"}, near)
    assert (far.published, beside.published) == (f"{TIMES}25", "equal")
    assert beside.band.end - beside.band.start > 0.1


@pytest.mark.parametrize("blocks", [2, 8])
def test_what_is_far_beyond_the_axis_lies_at_its_end_with_an_arrow(blocks: int) -> None:
    [row] = rows_of(pairs([1e6 + number for number in range(blocks)], [1.0] * blocks), {"direction": "more"})
    assert row.dot == 1.0
    assert row.bar is not None
    assert (row.bar.before, row.bar.after, row.bar.end) == (False, True, 1.0)


def test_an_interval_without_a_width_is_a_point() -> None:
    [row] = rows_of(pairs([100.0] * 12, [100.0] * 12), {"direction": "equivalent"})
    assert row.bar is not None
    assert row.bar.end - row.bar.start < row.band.end - row.band.start
    assert "nan" not in drawing_of(pairs([100.0] * 12, [100.0] * 12), {"direction": "equivalent"})


def drawing_of(run: Run, *changes: dict[str, object]) -> str:
    found = draw_page_figure(judge(run, claims(*changes)))
    assert found is not None
    [svg] = found.panels
    return svg


def only_failed() -> Run:
    run = pairs([90.0] * 6, [100.0] * 6)

    def failed(trial: Trial) -> Trial:
        return replace(trial, status="failed", reason="it broke", values=())

    return replace(run, trials=tuple(failed(each) if each.stack == "docker" else each for each in run.trials))


@pytest.mark.parametrize(
    ("run", "claim"),
    [
        (SLOWER, {"stack": "podman"}),
        (SLOWER, {"value": {"unit": "dhrystones/s", "most": 99.0}, "metric": "speed", "direction": None}),
        (only_failed(), {"direction": "less"}),
    ],
    ids=["no such stack", "a value in units", "failed"],
)
def test_nothing_is_drawn_where_no_ratio_is_judged(run: Run, claim: dict[str, object], tmp_path: Path) -> None:
    assert draw_page_figure(judge(run, claims(claim))) is None
    asked = replace(run, claims=(claim_file(tmp_path, claim),))
    assert draw_file_figure(asked) == ""
    assert "figures/00-claims.svg" not in find_renderer("svg")(summarize(asked), asked)
    assert 'id="claimed"' not in html_of(asked)


def claim_file(folder: Path, *changes: dict[str, object]) -> str:
    mine = folder / "mine.toml"
    mine.write_text(text_of(*changes), encoding="utf-8")
    return str(mine)


def test_the_drawing_escapes_what_a_claim_says_and_has_each_row_in_words() -> None:
    svg = drawing_of(SLOWER, {"direction": "less", "says": "<script>alert(1)</script> is slower."})
    assert "<script" not in svg
    assert re.search(r"<title>&lt;script&gt;.*here \S9\.0 % \[\S9\.\d, \S8\.\d\]: reproduced", svg)


def test_files_have_the_figure_with_its_counts_and_nothing_to_follow(tmp_path: Path) -> None:
    asked = replace(SLOWER, claims=(claim_file(tmp_path, {"direction": "less", "says": "A & <B>."}, {"size": "50%"}),))
    svg = find_renderer("svg")(summarize(asked), asked)["figures/00-claims.svg"]
    root = ET.fromstring(svg)  # noqa: S314 - ours
    words = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert any("1 contradicted, 1 reproduced" in text for text in words)
    assert "dhrystone" in words
    assert "A & <B>." in " ".join(each.text or "" for each in root.iter(f"{SVG}title"))
    assert not list(root.iter(f"{SVG}a"))
    assert "A & <B>. paper, Table 1: less; here \N{MINUS SIGN}9.0 %" in " ".join(
        each.text or "" for each in root.iter(f"{SVG}desc")
    )
    files = find_renderer("pdf")(summarize(asked), asked)
    assert files["figures/00-claims.pdf"].startswith(b"%PDF")
    assert b"figures/00-claims.pdf" in files["figures/figures.tex"]


def test_the_rows_of_the_page_lead_to_the_table(tmp_path: Path) -> None:
    asked = replace(SLOWER, claims=(claim_file(tmp_path, {"direction": "less"}, {"direction": "more"}),))
    page = Page(html_of(asked))
    anchors = {"claim-claim-0", "claim-claim-1"}
    assert {f"#{each}" for each in anchors} <= set(page.named("href"))
    assert anchors <= set(page.named("id"))


def many(claims_each: int, workloads: int, speed_in_the_last: float = 100.0) -> ClaimsFigure:
    """Draw so many claims of each of the workloads w0, w1, …: that they are equivalent."""
    said = claims({"direction": "equivalent"})
    natives = [100.0 + block % 3 / 10 for block in range(12)]
    quiet, last = (judge(pairs([speed] * 12, natives), said).verdicts[0] for speed in (100.0, speed_in_the_last))
    each = [quiet] * (workloads - 1) + [last]
    rows = tuple(replace(one, workload=f"w{at}") for at, one in enumerate(each) for _ in range(claims_each))
    drawn = draw_page_figure(replace(judge(SLOWER, said), verdicts=rows))
    assert drawn is not None
    return drawn


def titles(panels: tuple[str, ...]) -> list[str]:
    return [name for svg in panels for name in re.findall(r'class="head">(\w+)<', svg)]


def test_of_very_many_claims_those_without_contradiction_are_folded() -> None:
    few, lots = many(20, 3), many(20, 6)
    assert (len(few.panels), few.folded, few.summary_of_folded) == (3, (), "")
    assert titles(lots.panels) == ["w0", "w1", "w2"]
    assert lots.summary_of_folded == "60 more, without contradiction: w3, w4, w5"
    assert titles(lots.folded) == ["w3", "w4", "w5"]


def test_a_contradiction_comes_first_and_is_never_folded() -> None:
    assert titles(many(20, 6, 50.0).panels) == ["w5", "w0", "w1"]
    assert titles(many(100, 2, 50.0).panels) == ["w1"]
    assert titles(many(100, 2).panels) == ["w0"]


@pytest.mark.parametrize(
    ("metrics", "title", "names"),
    [(("speed", "speed"), "dhrystone speed", {"docker"}), (("speed", ""), "dhrystone", {"docker", "docker speed"})],
)
def test_a_metric_that_all_rows_share_is_in_the_title(metrics: tuple[str, str], title: str, names: set[str]) -> None:
    changes: list[dict[str, object]] = [{"direction": "less", "metric": each or None} for each in metrics]
    panel = panel_of(SLOWER, *changes)
    assert (panel.title, {row.name for row in panel.rows}) == (title, names)


def test_each_point_of_a_claim_leads_to_its_own_row_of_the_table() -> None:
    [judged] = judge(SLOWER, claims({"direction": "less"})).verdicts
    part = judged.points[0].claim_point
    several = replace(
        judged, points=tuple(replace(judged.points[0], claim_point=replace(part, point=point)) for point in (1.0, 50.0))
    )
    [panel] = lay_out_panels(replace(judge(SLOWER, claims({"direction": "less"})), verdicts=(several,)))
    assert [row.anchor.rpartition("-")[2] for row in panel.rows] == ["1", "50"]
    assert len({row.anchor for row in panel.rows}) == 2
