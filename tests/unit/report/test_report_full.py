"""The page of a full run, with all that lies beside its journal: its size, and what a reader finds in it."""

from __future__ import annotations

from full_run import STACKS, WORKLOADS
from pages import Page


def test_with_raw_output_turns_and_telemetry_it_is_smaller_than_three_megabytes(full_page: str) -> None:
    assert (len(STACKS), len(WORKLOADS)) == (11, 10)
    assert 2_000_000 < len(full_page.encode()) < 3_000_000


def test_each_cell_has_its_telemetry_and_what_the_machine_lacked_meanwhile(full_page: str) -> None:
    assert full_page.count('aria-label="Used along ') == 110
    assert full_page.count("CPUs stolen from the machine") == 110


def test_all_blocks_of_what_takes_turns_are_drawn_and_lead_to_each_trial(full_page: str) -> None:
    page = Page(full_page)
    drawn = {name for name in page.named("id") if name.startswith("turns-")}
    assert len(drawn) == 8 * 10
    linked = {link[1:] for link in page.named("href") if link.startswith("#turns-")}
    assert linked < drawn
    assert {f"turns-{at}-0" for at in range(8)} < linked
