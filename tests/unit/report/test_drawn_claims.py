"""The figure of claims: what was published and what was found, in a panel for each workload."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from claimed import claims
from runs import pairs

from tare.answers.judging import judge
from tare.journal import Run
from tare.report.drawn_claims import Panel, Row, drawn, panels

SLOWER = pairs([90.0 + number % 3 for number in range(12)], [100.0] * 12)


def panel_of(run: Run, *changes: dict[str, object]) -> Panel:
    [found] = panels(judge(run, claims(*changes)))
    return found


def rows_of(run: Run, *changes: dict[str, object]) -> tuple[Row, ...]:
    return panel_of(run, *changes).rows


def test_what_is_contradicted_comes_first_and_the_dot_of_what_is_reproduced_lies_in_its_band() -> None:
    contradicted, reproduced = rows_of(SLOWER, {"size": "91%", "tolerance": "3%"}, {"direction": "more"})
    assert (contradicted.judgement, contradicted.glyph) == ("contradicted", "✘")
    assert (reproduced.judgement, reproduced.published, reproduced.here) == ("reproduced", "91 %", "91.0 %")
    assert not contradicted.band[0] <= contradicted.dot <= contradicted.band[1]
    assert reproduced.ends is not None
    assert reproduced.band[0] < reproduced.ends[0] < reproduced.dot < reproduced.ends[1] < reproduced.band[1]


@pytest.mark.parametrize(
    ("claim", "published", "ends"),
    [
        ({"direction": "less"}, "less", (0.0, None)),
        ({"direction": "more"}, "more", (None, 1.0)),
        ({"direction": "less", "least": "50%", "most": "95%"}, "50\N{EN DASH}95 %", (None, None)),
        ({"direction": "less", "most": "95%"}, "≤ 95 %", (0.0, None)),
        ({"direction": "equivalent", "least": "94%"}, "≥ 94 %", (None, 1.0)),
        ({"direction": "equivalent"}, "equal", (None, None)),
    ],
)
def test_a_region_without_an_end_reaches_the_end_of_the_axis(
    claim: dict[str, object], published: str, ends: tuple[float | None, float | None]
) -> None:
    panel = panel_of(SLOWER, claim)
    [row] = panel.rows
    assert (row.published, row.size) == (published, None)
    for place, end in zip(row.band, ends, strict=True):
        assert place == end if end is not None else 0 < place < 1
    assert 0 < panel.even < 1
    assert (panel.even, "100 %") in panel.ticks


def test_too_few_blocks_have_a_dot_without_an_interval() -> None:
    [row] = rows_of(pairs([90.0, 91.0], [100.0, 100.0]), {"direction": "less"})
    assert (row.judgement, row.ends) == ("undecided", None)


def test_what_is_far_beyond_the_axis_lies_at_its_end() -> None:
    [row] = rows_of(pairs([1e6 + number for number in range(8)], [1.0] * 8), {"direction": "more"})
    assert row.dot == 1.0


def test_nothing_is_drawn_of_a_run_that_judges_nothing() -> None:
    assert drawn(judge(SLOWER, claims({"stack": "podman"}))) == ()


def test_the_drawing_escapes_what_a_claim_says_and_says_in_words_what_it_shows() -> None:
    judgements = judge(SLOWER, claims({"direction": "less", "says": "<script>alert(1)</script> is slower."}))
    [svg] = drawn(judgements)
    assert "<script" not in svg
    assert re.search(r"<desc>&lt;script&gt;.*here 91\.0 % \[90\.\d, 91\.\d\]: reproduced", svg)


def test_each_point_of_a_claim_leads_to_its_own_row_of_the_table() -> None:
    [judged] = judge(SLOWER, claims({"direction": "less"})).all
    part = judged.findings[0].part
    several = replace(
        judged, findings=tuple(replace(judged.findings[0], part=replace(part, point=point)) for point in (1.0, 50.0))
    )
    [panel] = panels(replace(judge(SLOWER, claims({"direction": "less"})), all=(several,)))
    assert [row.anchor.rpartition("-")[2] for row in panel.rows] == ["1", "50"]
    assert len({row.anchor for row in panel.rows}) == 2
