from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from sampled import sampled_run

from tare.exports import openmetrics
from tare.exports.openmetrics import COLUMNS, FAMILIES, INTERRUPTS, SWAP, label_value, series, texts
from tare.exports.samples import Sample, samples_of
from tare.journal import load
from tare.telemetry.series import COLUMNS as ALL_COLUMNS

SERIES = re.compile(r"^([a-z_]+)\{(.*)\} (\S+) (\d+\.\d{3})$")


def exported(folder: Path) -> list[str]:
    return "".join(texts(samples_of(load(folder)))).splitlines()


def test_samples_are_written_with_type_unit_and_help_of_their_family() -> None:
    sample = Sample((("run", "a"),), 1_700_000_000_120_000_000, {"cpu_user": 0.5, "memory_bytes": 4096}, {})
    assert "".join(texts([sample])).splitlines() == [
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


def test_a_family_is_in_one_piece_and_each_series_in_it_and_their_times_rise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmetrics, "_MOST_WAITING", 7)  # so that all goes through files, many times
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
    assert "".join(texts([])) == "# EOF\n"


def test_what_is_no_number_is_no_sample() -> None:
    assert "".join(texts([Sample((), 0, {"cpu_user": math.nan, "cpu_steal": math.inf}, {})])) == "# EOF\n"


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pieces = texts([Sample((), 0, {"cpu_user": 1.0}, {})])
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_every_column_of_the_telemetry_has_a_family() -> None:
    others = {"seconds", "scope", "trial", "time"}
    assert {name for name in ALL_COLUMNS if name not in others and not name.startswith("cpus_")} == {*COLUMNS}


def test_the_unit_of_a_family_is_the_end_of_its_name_and_counters_end_as_such() -> None:
    for family in FAMILIES:
        assert family.name.endswith(f"_{family.unit}" if family.unit else "")
        assert family.metric.endswith("_total") == (family.kind == "counter")


def test_a_series_has_the_labels_of_its_sample_and_its_own() -> None:
    assert series(INTERRUPTS, (("run", "a"),), (("cpu", "1"),)) == 'tare_interrupts_total{run="a",cpu="1"}'
    assert series(SWAP, (), (("cpu", "1"),)) == 'tare_swap_bytes{cpu="1"}'
    assert series(SWAP, (("run", "a"),), ()) == 'tare_swap_bytes{run="a"}'
    assert series(SWAP, (), ()) == "tare_swap_bytes{}"


def test_the_value_of_a_label_is_escaped() -> None:
    assert label_value('a "b" \\ c\nd, {e}') == 'a \\"b\\" \\\\ c\\nd, {e}'
