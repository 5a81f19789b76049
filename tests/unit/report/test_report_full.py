"""The page of a full run, with all that lies beside its journal: its size, and what a reader finds in it."""

from __future__ import annotations

import pytest
from full_run import STACKS, WORKLOADS, full_run
from pages import Page, html_of


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return html_of(full_run(tmp_path_factory.mktemp("full") / "run", blocks=10))


def test_with_raw_output_turns_and_telemetry_it_is_smaller_than_three_megabytes(html: str) -> None:
    assert (len(STACKS), len(WORKLOADS)) == (11, 10)
    assert 2_000_000 < len(html.encode()) < 3_000_000


def test_each_cell_has_its_telemetry_and_what_the_machine_lacked_meanwhile(html: str) -> None:
    assert html.count('<svg class="small trace"') == 110
    assert html.count("CPUs stolen from the machine") == 110


def test_all_blocks_of_what_takes_turns_are_drawn_and_lead_to_each_trial(html: str) -> None:
    page = Page(html)
    drawn = {name for name in page.named("id") if name.startswith("turns-")}
    assert len(drawn) == 8 * 10
    linked = {link[1:] for link in page.named("href") if link.startswith("#turns-")}
    assert linked < drawn
    assert {f"turns-{at}-0" for at in range(8)} < linked
