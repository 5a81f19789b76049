from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sampled import BEGAN, sampled_run

from tare.features.export.openmetrics import (
    FAMILIES,
    FAMILY_OF_COLUMN,
    INTERRUPTS,
    SWAP,
    escape_label_value,
    format_runs,
    format_series,
)
from tare.model.errors import UsageError
from tare.model.run_folder import load_run
from tare.telemetry.parquet import COLUMNS as ALL_COLUMNS

BLOCK, ALONE = "dhrystone-000.parquet", "dhrystone-001-00.parquet"
SERIES = re.compile(r"^([a-z_]+)\{(.*)\} (\S+) (\d+\.\d{3})$")


def exported(folder: Path) -> list[str]:
    return "".join(format_runs([load_run(folder)])).splitlines()


def labels_in(lines: list[str]) -> list[dict[str, str]]:
    """Return the labels of each series, without those of its metric, in order."""
    own = {"mode", "cpu", "direction", "resource", "share"}
    series = dict.fromkeys(match[2] for line in lines if (match := SERIES.match(line)))
    found = [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in series]
    return [{name: value for name, value in labels.items() if name not in own} for labels in found]


def replace_columns(file: Path, projection: str) -> None:
    """Replace columns of a telemetry file."""
    with duckdb.connect() as connection:
        connection.read_parquet(str(file)).project(projection).write_parquet(f"{file}.new")
    Path(f"{file}.new").replace(file)


def test_samples_are_written_with_type_unit_and_help_of_their_family(tmp_path: Path) -> None:
    lines = exported(sampled_run(tmp_path / "run", count=2))
    begin = lines.index("# TYPE tare_memory_bytes gauge")
    assert lines[begin + 1 : begin + 3] == [
        "# UNIT tare_memory_bytes bytes",
        "# HELP tare_memory_bytes Of a host, memory that is not available; of an instance, resident set sizes.",
    ]
    labels = 'run="run",scope="host",workload="dhrystone",block="0"'
    assert re.fullmatch(rf"tare_memory_bytes\{{{labels}\}} \d+ {BEGAN:.0f}\.000", lines[begin + 3])
    assert lines[-1] == "# EOF"


def test_families_and_series_are_contiguous_and_their_timestamps_increase(tmp_path: Path) -> None:
    lines = exported(sampled_run(tmp_path / "run"))
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len({*families}) == len(FAMILIES)
    series = [match.groups() for line in lines if (match := SERIES.match(line))]
    assert len(series) == len(lines) - sum(line.startswith("#") for line in lines)
    seen, last = set[tuple[str, str]](), ("", "", 0.0)
    for name, labels, _, seconds in series:
        if (name, labels) == last[:2]:
            assert float(seconds) > last[2]
        else:
            assert (name, labels) not in seen
        seen.add((name, labels))
        last = (name, labels, float(seconds))


def test_no_run_is_an_empty_text() -> None:
    assert "".join(format_runs([])) == "# EOF\n"


def test_what_is_no_number_is_no_sample(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / "run", count=2)
    replace_columns(folder / "telemetry" / BLOCK, "* replace ('nan'::double AS cpu_user, 'inf'::double AS cpu_steal)")
    written = {line.partition(" ")[0] for line in exported(folder)}
    assert {series for series in written if 'block="0",mode="' in series and 'mode="user"' in series} == set()
    assert any('block="0",mode="system"' in series for series in written)


def test_every_column_of_the_telemetry_has_a_family() -> None:
    assert {*ALL_COLUMNS} - {"seconds", "scope", "trial", "time"} == {*FAMILY_OF_COLUMN}


def test_a_family_name_ends_with_its_unit_and_counters_with_their_suffix() -> None:
    for family in FAMILIES:
        assert family.name.endswith(f"_{family.unit}" if family.unit else "")
        assert family.metric.endswith("_total") == (family.metric_type == "counter")


def test_a_series_has_the_labels_of_its_sample_and_its_own() -> None:
    assert format_series(INTERRUPTS, (("run", "a"),), (("cpu", "1"),)) == 'tare_interrupts_total{run="a",cpu="1"}'
    assert format_series(SWAP, (), (("cpu", "1"),)) == 'tare_swap_bytes{cpu="1"}'
    assert format_series(SWAP, (("run", "a"),), ()) == 'tare_swap_bytes{run="a"}'
    assert format_series(SWAP, (), ()) == "tare_swap_bytes{}"


def test_the_value_of_a_label_is_escaped() -> None:
    assert escape_label_value('a "b" \\ c\nd, {e}') == 'a \\"b\\" \\\\ c\\nd, {e}'


# --- samples ---------------------------------------------------------------------------------------------------------


def test_each_series_has_the_names_of_what_it_is_of(tmp_path: Path) -> None:
    found = labels_in(exported(sampled_run(tmp_path / "run", count=2)))
    block = {"run": "run", "workload": "dhrystone", "block": "0"}
    first = block | {"scope": "instance", "stack": "native", "trial": "dhrystone-000-00"}
    second = block | {"scope": "instance", "stack": "docker/qemu", "trial": "dhrystone-000-01"}
    alone = {"run": "run", "workload": "dhrystone", "block": "1", "stack": "native", "trial": "dhrystone-001-00"}
    for labels in (block | {"scope": "host"}, first, second, alone | {"scope": "host"}, alone | {"scope": "instance"}):
        assert labels in found
        found = [each for each in found if each != labels]
    assert not found


def test_what_was_not_read_is_missing_and_cpus_are_by_number(tmp_path: Path) -> None:
    lines = exported(sampled_run(tmp_path / "run", count=2))
    host = 'run="run",scope="host",workload="dhrystone",block="0"'
    second = f"{BEGAN:.0f}.100"
    for series, value in {
        f'each_cpu_seconds_total{{{host},cpu="0",mode="user"}}': 0.05,
        f'each_cpu_seconds_total{{{host},cpu="1",mode="user"}}': 0.04,
        f'each_cpu_seconds_total{{{host},cpu="1",mode="steal"}}': 0.0,
        f"interrupts_total{{{host}}}": 100,
        f'cpu_seconds_total{{{host},mode="user"}}': 0.1,
    }.items():
        assert f"tare_{series} {value} {second}" in lines
    assert not any(line.startswith(f"tare_charged_bytes{{{host}}}") for line in lines)


def test_lists_of_cpus_may_differ_in_length_in_an_untrusted_file(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / "run", count=2)
    replace_columns(
        folder / "telemetry" / BLOCK, "* replace ([1.0::double, 2.0] AS cpus_user, [0.5::double] AS cpus_steal)"
    )
    lines = [line for line in exported(folder) if line.startswith("tare_each") and 'scope="host"' in line]
    found = {tuple(re.findall(r'(?:cpu|mode)="(\w+)"', line)) for line in lines if 'block="0"' in line}
    assert {("0", "user"), ("1", "user"), ("0", "steal")} <= found
    assert ("1", "steal") not in found


@pytest.mark.parametrize("content", [b"", b"garbage", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    run = load_run(sampled_run(tmp_path / "run"))
    (run.folder / "telemetry" / BLOCK).write_bytes(content)
    with pytest.raises(UsageError, match=r"dhrystone-000\.parquet: cannot be read: "):
        exported(run.folder)


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    run = load_run(sampled_run(tmp_path / "run"))
    with duckdb.connect() as connection:
        connection.sql("SELECT 1 AS one").write_parquet(str(run.folder / "telemetry" / BLOCK))
    with pytest.raises(UsageError, match=r"dhrystone-000\.parquet: cannot be read: "):
        exported(run.folder)


def test_a_run_without_telemetry_is_refused(tmp_path: Path) -> None:
    run = load_run(sampled_run(tmp_path / "run"))
    for name in (BLOCK, ALONE):
        (run.folder / "telemetry" / name).unlink()
    with pytest.raises(UsageError, match="no telemetry"):
        exported(run.folder)


def test_a_folder_whose_name_has_wildcards_is_read_itself(tmp_path: Path) -> None:
    for name in ("run[1]*", "run1"):
        sampled_run(tmp_path / name, count=2)
    assert {labels["run"] for labels in labels_in(exported(tmp_path / "run[1]*"))} == {"run[1]*"}


def test_a_folder_whose_name_looks_like_a_value_is_no_column(tmp_path: Path) -> None:
    lines = exported(sampled_run(tmp_path / "cpu_user=7", count=2))
    values = {line.split()[1] for line in lines if line.startswith("tare_cpu_seconds") and 'mode="user"' in line}
    assert "0.0" in values
    assert not {"7", "7.0"} & values


def test_unknown_columns_are_omitted_and_those_of_another_type_are_refused(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / "run", count=2)
    file = folder / "telemetry" / BLOCK
    replace_columns(file, "* replace ('x' AS cpu_user), 5 AS strange")
    lines = exported(folder)
    assert not any(
        "strange" in line or ('block="0"' in line and ',mode="user"' in line) for line in lines if ",cpu=" not in line
    )
    replace_columns(file, "* replace ('x' AS seconds)")
    with pytest.raises(UsageError, match="cannot be read"):
        exported(folder)


# --- the dashboards in share/grafana ask for what the writer of OpenMetrics writes -----------------------------------

SHARE = Path(__file__).parents[4] / "share" / "grafana"
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
    kinds = {family.metric: family.metric_type for family in FAMILIES}
    known = {
        (family.metric, f'{name}="{value}"') for family, labels in FAMILY_OF_COLUMN.values() for name, value in labels
    }
    written = "".join(format_runs([load_run(sampled_run(tmp_path / "run", count=11))]))
    names = {*re.findall(r'[{,](\w+)="', written)}
    for query in queries(read(path)):
        ((metric, inside),) = SELECTOR.findall(query)
        assert f"# TYPE {metric.removesuffix('_total')} {kinds[metric]}\n" in written
        assert ("rate(" in query) <= (kinds[metric] == "counter") <= ("last_over_time(" not in query)
        for matcher in filter(None, inside.split(",")):
            name, value = re.split("=~?", matcher)
            chosen = value == f'"${name}"' or (name, value) in {("scope", '"instance"'), ("scope", '"host"')}
            assert name in names
            assert chosen or (metric, matcher) in known


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
