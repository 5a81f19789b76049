from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sampled import BEGAN, sampled_run

from tare.features.export import openmetrics
from tare.features.export.openmetrics import (
    FAMILIES,
    FAMILY_OF_COLUMN,
    INTERRUPTS,
    SWAP,
    TelemetrySample,
    escape_label_value,
    format_samples,
    format_series,
    samples_of,
)
from tare.model.errors import UsageError
from tare.model.run_folder import load_run
from tare.telemetry.parquet import COLUMNS as ALL_COLUMNS

SERIES = re.compile(r"^([a-z_]+)\{(.*)\} (\S+) (\d+\.\d{3})$")


def exported(folder: Path) -> list[str]:
    return "".join(format_samples(samples_of(load_run(folder)))).splitlines()


def test_samples_are_written_with_type_unit_and_help_of_their_family() -> None:
    sample = TelemetrySample((("run", "a"),), 1_700_000_000_120_000_000, {"cpu_user": 0.5, "memory_bytes": 4096}, {})
    assert "".join(format_samples([sample])).splitlines() == [
        "# TYPE tare_cpu_seconds counter",
        "# UNIT tare_cpu_seconds seconds",
        "# HELP tare_cpu_seconds CPU time of all CPUs; softirq is part of system.",
        'tare_cpu_seconds_total{run="a",mode="user"} 0.5 1700000000.120',
        "# TYPE tare_memory_bytes gauge",
        "# UNIT tare_memory_bytes bytes",
        "# HELP tare_memory_bytes Of a host, memory that is not available; of an instance, resident set sizes.",
        'tare_memory_bytes{run="a"} 4096 1700000000.120',
        "# EOF",
    ]


def test_families_and_series_are_contiguous_and_their_timestamps_increase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmetrics, "_MAX_BUFFERED_LINES", 7)  # so that all goes through files, many times
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


def test_a_run_without_samples_is_an_empty_text() -> None:
    assert "".join(format_samples([])) == "# EOF\n"


def test_what_is_no_number_is_no_sample() -> None:
    assert (
        "".join(format_samples([TelemetrySample((), 0, {"cpu_user": math.nan, "cpu_steal": math.inf}, {})]))
        == "# EOF\n"
    )


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pieces = format_samples([TelemetrySample((), 0, {"cpu_user": 1.0}, {})])
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_every_column_of_the_telemetry_has_a_family() -> None:
    others = {"seconds", "scope", "trial", "time"}
    assert {name for name in ALL_COLUMNS if name not in others and not name.startswith("cpus_")} == {*FAMILY_OF_COLUMN}


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

BLOCK, ALONE = "dhrystone-000.parquet", "dhrystone-001-00.parquet"


def test_each_sample_has_the_names_of_what_it_is_of_and_its_time(tmp_path: Path) -> None:
    found = list(samples_of(load_run(sampled_run(tmp_path / "run", count=2))))
    labels = [dict(sample.labels) for sample in found]
    block = {"run": "run", "workload": "dhrystone", "block": "0"}
    first = block | {"scope": "instance", "stack": "native", "trial": "dhrystone-000-00"}
    second = block | {"scope": "instance", "stack": "docker/qemu", "trial": "dhrystone-000-01"}
    alone = {"run": "run", "workload": "dhrystone", "block": "1", "stack": "native", "trial": "dhrystone-001-00"}
    each = (block | {"scope": "host"}, first, second, alone | {"scope": "host"}, alone | {"scope": "instance"})
    assert labels == [labels for labels in each for _ in range(2)]
    assert [sample.nanoseconds for sample in found[:2]] == [int(BEGAN * 1e9), int(BEGAN * 1e9) + 100_000_000]


def test_what_was_not_read_is_missing_and_cpus_are_by_number(tmp_path: Path) -> None:
    machine, *_ = [
        sample for sample in samples_of(load_run(sampled_run(tmp_path / "run"))) if sample.nanoseconds % 10**9
    ]
    assert machine.cpus == {
        0: {"user": 0.05, "system": 0.02, "iowait": 0.0, "softirq": 0.01, "steal": 0.0},
        1: {"user": 0.04, "system": 0.02, "iowait": 0.0, "softirq": 0.0, "steal": 0.0},
    }
    assert "charged_bytes" not in machine.values
    assert (machine.values["interrupts"], machine.values["cpu_user"]) == (100, 0.1)


def test_lists_of_cpus_may_differ_in_length_in_an_untrusted_file() -> None:
    assert openmetrics._times_by_cpu({"user": [1.0, 2.0], "steal": [0.5]}) == {
        0: {"user": 1.0, "steal": 0.5},
        1: {"user": 2.0},
    }


@pytest.mark.parametrize("content", [b"", b"garbage", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    run = load_run(sampled_run(tmp_path / "run"))
    (run.folder / "telemetry" / BLOCK).write_bytes(content)
    with pytest.raises(UsageError, match=r"dhrystone-000\.parquet: cannot be read: "):
        list(samples_of(run))


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    run = load_run(sampled_run(tmp_path / "run"))
    with duckdb.connect() as connection:
        connection.sql("SELECT 1 AS one").write_parquet(str(run.folder / "telemetry" / BLOCK))
    with pytest.raises(UsageError, match=r"dhrystone-000\.parquet: cannot be read: "):
        list(samples_of(run))


def test_a_run_without_telemetry_is_refused(tmp_path: Path) -> None:
    run = load_run(sampled_run(tmp_path / "run"))
    for name in (BLOCK, ALONE):
        (run.folder / "telemetry" / name).unlink()
    with pytest.raises(UsageError, match="no telemetry"):
        list(samples_of(run))


def test_a_folder_whose_name_has_wildcards_is_read_itself(tmp_path: Path) -> None:
    for name in ("run[1]*", "run1"):
        sampled_run(tmp_path / name, count=2)
    assert {dict(sample.labels)["run"] for sample in samples_of(load_run(tmp_path / "run[1]*"))} == {"run[1]*"}


def test_a_folder_whose_name_looks_like_a_value_is_no_column(tmp_path: Path) -> None:
    first, *_ = samples_of(load_run(sampled_run(tmp_path / "cpu_user=7", count=2)))
    assert first.values["cpu_user"] == 0.0


def test_unknown_columns_are_omitted_and_those_of_another_type_are_refused(tmp_path: Path) -> None:
    run = load_run(sampled_run(tmp_path / "run", count=2))
    file = run.folder / "telemetry" / BLOCK
    with duckdb.connect() as connection:
        table = connection.read_parquet(str(file))
        table.project("* replace ('x' AS cpu_user), 5 AS strange").write_parquet(str(tmp_path / "strange"))
        table.project("* replace ('x' AS seconds)").write_parquet(str(tmp_path / "wrong"))
    (tmp_path / "strange").replace(file)
    first, *_ = samples_of(run)
    assert not {"strange", "cpu_user"} & first.values.keys()
    (tmp_path / "wrong").replace(file)
    with pytest.raises(UsageError, match="cannot be read"):
        list(samples_of(run))


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
    written = "".join(format_samples(samples_of(load_run(sampled_run(tmp_path / "run", count=11)))))
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
