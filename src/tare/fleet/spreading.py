"""Which machine measures which blocks of a suite.

The machines of a kind measure each block of the suite once. So each block has the random order that it has on one
machine, and another machine can take over what a dead one has left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

Blocks = frozenset[int]


def spread(blocks: int, machines: Sequence[str]) -> dict[str, Blocks]:
    """Deal the blocks of a suite out to the machines of a kind, in turn; a machine may get none."""
    return {name: frozenset(range(at, blocks, len(machines))) for at, name in enumerate(machines)}


def given_over(missing: Collection[int], assigned: Mapping[str, Blocks]) -> dict[str, Blocks]:
    """Deal out blocks that are missing to those machines that have the fewest; return what each has then."""
    now = dict(assigned)
    for block in sorted(missing):
        least = min(now, key=lambda name: len(now[name]))
        now[least] |= {block}
    return now


def written(blocks: Collection[int]) -> str:
    """Return numbers of blocks for `tare run --blocks`, from 1: `1-4,9`."""
    ranges: list[list[int]] = []
    for number in sorted(blocks):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(str(end + 1) for end in each) for each in ranges)
