"""Blocks are dealt out to machines, and what a dead one leaves goes to those that have the fewest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.features.fleet.state import assign_blocks, format_blocks, reassign_missing_blocks
from tare.hosts.facts import parse_cpu_list

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=9, unique=True)


@given(st.integers(1, 60), NAMES)
def test_each_block_has_one_machine_and_block_counts_differ_by_at_most_one(blocks: int, names: list[str]) -> None:
    dealt = assign_blocks(blocks, names)
    assert sorted(block for each in dealt.values() for block in each) == list(range(blocks))
    assert max(map(len, dealt.values())) - min(map(len, dealt.values())) <= 1


@given(st.integers(1, 60), NAMES, st.data())
def test_what_a_dead_machine_leaves_is_dealt_out_evenly(blocks: int, names: list[str], data: st.DataObject) -> None:
    dealt = assign_blocks(blocks, [*names, "dead"])
    missing = frozenset(data.draw(st.sets(st.sampled_from(sorted(dealt["dead"]))) if dealt["dead"] else st.just(set())))
    alive = {name: each for name, each in dealt.items() if name != "dead"}
    after = reassign_missing_blocks(missing, alive)
    assert all(alive[name] <= after[name] for name in alive)
    assert sorted(block for name in alive for block in after[name] - alive[name]) == sorted(missing)
    assert max(map(len, after.values())) - min(map(len, after.values())) <= 1


@pytest.mark.parametrize(
    ("blocks", "text"), [((), ""), ((0,), "1"), ((0, 1), "1-2"), ((0, 2), "1,3"), ((8, 0, 1, 2, 3), "1-4,9")]
)
def test_numbers_are_written_as_tare_run_reads_them(blocks: tuple[int, ...], text: str) -> None:
    assert format_blocks(blocks) == text
    assert {number - 1 for number in parse_cpu_list(text)} == set(blocks)
