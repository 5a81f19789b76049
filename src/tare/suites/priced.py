"""The suite of a price list: what one unit of each kind of work takes in each of some stacks."""

from __future__ import annotations

from collections.abc import Sequence

from tare.units import written

_SUITE = """\
[suite]
name = "prices"
stacks = {stacks}
blocks = 30
until = "blocks"
budget = {budget}

[limits]
cpus = 1
memory = "512MiB"

[[workloads]]
use = "prices"

[[workloads]]
use = "network-prices"
"""


def price_suite(stacks: Sequence[str], budget: str) -> str:
    """Return the suite's text. It goes on while there is time, as each price counts and not only a difference."""
    return _SUITE.format(stacks=written(tuple(stacks)), budget=written(budget))
