"""The suite of a price list."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tare.suites.priced import price_suite
from tare.suites.suite import parse_suite

EXAMPLE = Path(__file__).parents[3] / "examples/prices.toml"


def test_it_is_the_example_for_other_stacks() -> None:
    example = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    del example["stacks"]  # variants, which have a name of their own
    assert tomllib.loads(price_suite(example["suite"]["stacks"], example["suite"]["budget"])) == example


def test_it_measures_all_stacks_as_long_as_there_is_time() -> None:
    suite = parse_suite(price_suite(["native", "gvisor"], "90s"), "prices")
    assert [stack.name for stack in suite.stacks] == ["native", "gvisor"]
    assert (suite.until, suite.budget_seconds, suite.limits.cpus) == ("blocks", 90, 1)
    assert [each.use for each in suite.workloads] == ["prices", "network-prices"]
