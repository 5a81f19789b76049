"""What a fleet needs of a run, stored beside it: the same as computed anew, and not used where it does not hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import Call
from compared import Compare
from runs import believable_run

from tare.features.compare.run_series import RunDigest
from tare.features.fleet import headline_cache
from tare.features.fleet.headline_cache import CACHE_FILE, load_digests, read_caches, write_cache
from tare.features.fleet.random_effects import MachineSample
from tare.hosts.local import sha256_of
from tare.model.errors import UsageError
from tare.model.run_folder import FORMAT, Run, RunWriter, load_record, load_run

Short = RunDigest[MachineSample]
_MACHINES, _BLOCKS = 3, 2


@pytest.fixture
def compare(call: Call) -> Compare:
    return partial(call, "fleet", "compare", code=None)


@pytest.fixture(scope="module", name="template")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with failed and skipped trials, cautions, a control, a sweep, and a workload of which less is better."""
    folder = tmp_path_factory.mktemp("stored")
    for number in range(_MACHINES):
        written(believable_run(folder / "fleet" / f"m{number}", _BLOCKS, seed=number + 1))
    shutil.copytree(folder / "fleet" / "m0", folder / "run")
    write_cache(load_run(folder / "run"))
    return folder


@pytest.fixture(name="fleet")
def copied_fleet(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template / "fleet", tmp_path / "fleet"))


@pytest.fixture(name="run")
def copied_run(template: Path, tmp_path: Path) -> Path:
    """A run that is stored."""
    return Path(shutil.copytree(template / "run", tmp_path / "run"))


@pytest.fixture(name="loads")
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The runs whose journals are read."""
    seen: list[Path] = []

    def counting(folder: Path) -> Run:
        seen.append(folder)
        return load_run(folder)

    monkeypatch.setattr(headline_cache, "load_run", counting)
    return seen


def written(run: Run) -> Path:
    """Write a run without the raw output, and all trials at once."""
    RunWriter(run.folder).create(run.record, "[suite]\n")
    rows = ({"format": FORMAT} | asdict(trial) for trial in run.trials)
    (run.folder / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run.folder


def condensed_of(folders: Sequence[Path], baseline: str = "native") -> list[Short]:
    return load_digests(folders, baseline, lambda _: None)


def test_what_is_stored_gives_the_same_answer_as_the_journals(fleet: Path, compare: Compare, loads: list[Path]) -> None:
    anew = compare(fleet, "--json")
    assert anew.code == 0
    assert len(loads) == _MACHINES
    assert compare(fleet, "--json") == anew
    assert compare(fleet, "--stack", "docker", "--margin", "10%").code == 0
    assert len(loads) == _MACHINES  # from the files, these
    assert compare(fleet, "--baseline", "crun").code == 0
    assert len(loads) == 2 * _MACHINES


def test_it_is_read_back_whole(run: Path, loads: list[Path]) -> None:
    whole = condensed_of([run])
    assert not loads
    (run / CACHE_FILE).unlink()
    assert condensed_of([run]) == whole
    assert loads == [run]
    assert whole[0].cells["dhrystone", "docker"][1].count == _BLOCKS


def test_several_processes_find_the_same(fleet: Path, loads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [fleet / "m0", fleet / "m1"]
    whole = condensed_of(folders)
    monkeypatch.setattr(headline_cache, "_MANY_BYTES", 0)
    for folder in folders:
        (folder / CACHE_FILE).unlink()
    assert condensed_of(folders) == whole
    assert loads == folders  # in this process, before
    assert all((folder / CACHE_FILE).exists() for folder in folders)


def test_a_journal_of_other_values_and_the_same_size_is_noticed(run: Path, loads: list[Path]) -> None:
    old, journal = condensed_of([run]), (run / "trials.jsonl").read_text()
    (run / "trials.jsonl").write_text(journal.replace('"value": 2', '"value": 3'))
    new = condensed_of([run])
    assert loads == [run]
    assert new != old
    assert condensed_of([run]) == new  # it is stored again
    assert loads == [run]


def test_a_journal_copied_without_its_time_is_read_but_not_condensed_again(
    run: Path, loads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    digested = []

    def noted(path: Path) -> str:
        digested.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(headline_cache, "sha256_of", noted)
    condensed_of([run])
    assert digested == ["run.json"]
    os.utime(run / "trials.jsonl", (1.7e9, 1.7e9))
    condensed_of([run])
    assert digested == ["run.json", "run.json", "trials.jsonl"]
    assert not loads


def test_a_run_that_was_copied_without_its_journal_has_what_is_stored(run: Path, loads: list[Path]) -> None:
    whole = condensed_of([run])
    (run / "trials.jsonl").unlink()
    assert condensed_of([run]) == whole
    with pytest.raises(UsageError, match=r"has no trials.jsonl, and report/headlines.parquet is damaged, of another"):
        condensed_of([run], "crun")
    _cut(run)
    with pytest.raises(UsageError, match=r"has no trials.jsonl"):
        condensed_of([run])
    assert not loads


def _more_trials(run: Path) -> None:
    with (run / "trials.jsonl").open("ab") as file:
        file.write((run / "trials.jsonl").read_bytes().splitlines(keepends=True)[0].replace(b"-0", b"-9", 1))


def _other_record(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"margin": 0.5}))


def _cut(run: Path) -> None:
    (run / CACHE_FILE).write_bytes((run / CACHE_FILE).read_bytes()[:-100])


def _flipped(run: Path) -> None:
    """Change the one byte of a number in a column, which is no error in Parquet."""
    path, found = run / CACHE_FILE, read_caches([run])
    ((_, short),) = found
    number = np.float64(short.cells["dhrystone", "docker"][1].mean).tobytes()
    data = path.read_bytes()
    assert data.count(number) == 1
    path.write_bytes(data.replace(number, number[:5] + bytes([number[5] ^ 1]) + number[6:]))


def _other_kind(run: Path) -> None:
    (run / CACHE_FILE).write_bytes(b"PAR1 is no file of this kind PAR1")


def _a_link(run: Path) -> None:
    (run / CACHE_FILE).rename(run / "elsewhere.parquet")
    (run / CACHE_FILE).symlink_to(run / "elsewhere.parquet")


@pytest.mark.parametrize("spoil", [_more_trials, _other_record, _cut, _flipped, _other_kind, _a_link])
def test_a_file_that_does_not_hold_is_not_used(run: Path, loads: list[Path], spoil: Callable[[Path], None]) -> None:
    spoil(run)
    found = condensed_of([run])
    assert loads == [run]
    (run / CACHE_FILE).unlink()
    assert condensed_of([run]) == found


def test_a_damaged_file_among_others_is_the_only_one_that_is_not_used(
    fleet: Path, compare: Compare, loads: list[Path]
) -> None:
    first = compare(fleet, "--json")
    loads.clear()
    _cut(fleet / "m1")
    assert compare(fleet, "--json") == first
    assert loads == [fleet / "m1"]


def test_another_tare_computes_its_own(run: Path, loads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headline_cache, "__version__", "99.0")
    condensed_of([run])
    assert loads == [run]


@pytest.mark.parametrize(
    ("cell", "logs"),
    [
        ({"ratio": float("inf")}, {}),
        ({"mean": float("nan")}, {}),
        ({"verdict": "splendid"}, {}),
        ({"n": "many"}, {}),
        ({}, {"mean": 1e308}),
        ({}, {"mean": float("nan")}),
        ({}, {"count": 0}),
        ({}, {"squares": -1.0}),
        ({}, {"squares": float("inf")}),
    ],
)
def test_no_figure_that_cannot_be_is_read_although_all_digests_are_right(
    run: Path, cell: dict[str, Any], logs: dict[str, Any]
) -> None:
    ((origin, short),) = read_caches([run])
    key = ("dhrystone", "docker")
    wrong = replace(short.cells[key][0], **cell), replace(short.cells[key][1], **logs)
    data = headline_cache._to_parquet(load_run(run), replace(short, cells={**short.cells, key: wrong}), origin)
    (run / CACHE_FILE).write_bytes(data)
    assert not [*read_caches([run])]


def test_a_folder_that_cannot_be_written_to_is_read_each_time(run: Path, loads: list[Path]) -> None:
    whole = condensed_of([run])
    (run / CACHE_FILE).unlink()
    (run / "report").rmdir()
    (run / "report").write_text("no folder")
    assert condensed_of([run]) == whole
    assert condensed_of([run]) == whole
    assert loads == [run, run]


def test_a_run_without_the_baseline_is_refused_as_before(run: Path) -> None:
    with pytest.raises(UsageError, match="has no stack lxd"):
        condensed_of([run], "lxd")
    assert load_record(run).baseline == "native"
