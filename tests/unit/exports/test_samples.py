from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from sampled import BEGAN, sampled_run

from tare.errors import UsageError
from tare.exports.samples import samples_of
from tare.journal import load

BLOCK, ALONE = "dhrystone-000.parquet", "dhrystone-001-00.parquet"


def test_each_sample_has_the_names_of_what_it_is_of_and_its_time(tmp_path: Path) -> None:
    found = list(samples_of(load(sampled_run(tmp_path / "run", count=2))))
    labels = [dict(sample.labels) for sample in found]
    block = {"run": "run", "workload": "dhrystone", "block": "0"}
    first = block | {"scope": "instance", "stack": "native", "trial": "dhrystone-000-00"}
    second = block | {"scope": "instance", "stack": "docker/qemu", "trial": "dhrystone-000-01"}
    alone = {"run": "run", "workload": "dhrystone", "block": "1", "stack": "native", "trial": "dhrystone-001-00"}
    each = (block | {"scope": "host"}, first, second, alone | {"scope": "host"}, alone | {"scope": "instance"})
    assert labels == [labels for labels in each for _ in range(2)]
    assert [sample.nanoseconds for sample in found[:2]] == [int(BEGAN * 1e9), int(BEGAN * 1e9) + 100_000_000]


def test_what_was_not_read_is_missing_and_cpus_are_by_number(tmp_path: Path) -> None:
    machine, *_ = [sample for sample in samples_of(load(sampled_run(tmp_path / "run"))) if sample.nanoseconds % 10**9]
    assert machine.cpus == {
        0: {"user": 0.05, "system": 0.02, "iowait": 0.0, "softirq": 0.01, "steal": 0.0},
        1: {"user": 0.05, "system": 0.02, "iowait": 0.0, "softirq": 0.0, "steal": 0.0},
    }
    assert "charged_bytes" not in machine.values
    assert (machine.values["interrupts"], machine.values["cpu_user"]) == (100, 0.1)


@pytest.mark.parametrize("content", [b"", b"garbage", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    run = load(sampled_run(tmp_path / "run"))
    (run.folder / "telemetry" / BLOCK).write_bytes(content)
    with pytest.raises(UsageError, match=r"dhrystone-000\.parquet: cannot be read: "):
        list(samples_of(run))


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    run = load(sampled_run(tmp_path / "run"))
    with duckdb.connect() as connection:
        connection.sql("SELECT 1 AS one").write_parquet(str(run.folder / "telemetry" / BLOCK))
    with pytest.raises(UsageError, match=r"dhrystone-000\.parquet: cannot be read: "):
        list(samples_of(run))


def test_a_run_without_telemetry_is_refused(tmp_path: Path) -> None:
    run = load(sampled_run(tmp_path / "run"))
    for name in (BLOCK, ALONE):
        (run.folder / "telemetry" / name).unlink()
    with pytest.raises(UsageError, match="no telemetry"):
        list(samples_of(run))


def test_a_folder_whose_name_has_wildcards_is_read_itself(tmp_path: Path) -> None:
    for name in ("run[1]*", "run1"):
        sampled_run(tmp_path / name, count=2)
    assert {dict(sample.labels)["run"] for sample in samples_of(load(tmp_path / "run[1]*"))} == {"run[1]*"}


def test_a_folder_whose_name_looks_like_a_value_is_no_column(tmp_path: Path) -> None:
    first, *_ = samples_of(load(sampled_run(tmp_path / "cpu_user=7", count=2)))
    assert first.values["cpu_user"] == 0.0


def test_unknown_columns_are_left_out_and_those_of_another_type_are_refused(tmp_path: Path) -> None:
    run = load(sampled_run(tmp_path / "run", count=2))
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
