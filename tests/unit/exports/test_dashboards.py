"""The dashboards in share/grafana ask for what the writer of OpenMetrics writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from sampled import sampled_run

from tare.exports.openmetrics import COLUMNS, FAMILIES, texts
from tare.exports.samples import samples_of
from tare.journal import load

SHARE = Path(__file__).parents[3] / "share" / "grafana"
DASHBOARDS = pytest.mark.parametrize("path", sorted(SHARE.glob("*.json")), ids=lambda path: path.stem)
SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")


def read(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return made


def queries(made: dict[str, Any]) -> list[str]:
    """Return the queries of all panels and variables."""
    panels = [target["expr"] for panel in made["panels"] for target in panel["targets"]]
    return panels + [each["query"] for each in made["templating"]["list"] if each["type"] == "query"]


def test_there_is_a_dashboard_of_samples_and_one_of_totals() -> None:
    assert [path.name for path in sorted(SHARE.iterdir())] == ["tare-run.json", "tare-totals.json"]


@DASHBOARDS
def test_every_query_names_a_family_with_labels_that_the_writer_writes(path: Path, tmp_path: Path) -> None:
    kinds = {family.metric: family.kind for family in FAMILIES}
    own = {(family.metric, f'{name}="{value}"') for family, labels in COLUMNS.values() for name, value in labels}
    written = "".join(texts(samples_of(load(sampled_run(tmp_path / "run", count=11)))))
    names = {*re.findall(r'[{,](\w+)="', written)}
    for query in queries(read(path)):
        ((metric, inside),) = SELECTOR.findall(query)
        assert f"# TYPE {metric.removesuffix('_total')} {kinds[metric]}\n" in written
        assert ("rate(" in query) <= (kinds[metric] == "counter") <= ("last_over_time(" not in query)
        for matcher in filter(None, inside.split(",")):
            name, value = re.split("=~?", matcher)
            chosen = value == f'"${name}"' or (name, value) in {("scope", '"instance"'), ("scope", '"host"')}
            assert name in names
            assert chosen or (metric, matcher) in own


@DASHBOARDS
def test_panels_do_not_overlap_and_variables_are_those_of_the_dashboard(path: Path) -> None:
    made = read(path)
    places = [panel["gridPos"] for panel in made["panels"]]
    covered = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(covered) == len({*covered})
    assert max(x for x, _ in covered) < 24
    assert len({panel["id"] for panel in made["panels"]}) == len(places)
    names = {variable["name"] for variable in made["templating"]["list"]}
    assert {*re.findall(r"\$\{?(\w+)", json.dumps(made))} <= names | {"__all"}
