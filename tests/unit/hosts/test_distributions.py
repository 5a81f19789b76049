"""Packages of other distributions: the page and the data agree, and what tare itself needs is looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tare.hosts.distributions import _known
from tare.hosts.local import LocalHost
from tare.hosts.needs import own_problems, refuse_incomplete

PAGE = (Path(__file__).parents[3] / "docs/packages.md").read_text(encoding="utf-8")
COLUMNS = ("fedora", "opensuse", "arch", "alpine")


def rows() -> list[list[str]]:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
    ]
    return [row for row in cells if len(row) == 5 and row[0] not in ("Debian", "---")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_the_page_has_verified_is_what_doctor_names(row: list[str]) -> None:
    for debian in row[0].removesuffix(", static").replace("incus, or lxd", "incus, lxd").split(", "):
        for distribution, cell in zip(COLUMNS, row[1:], strict=True):
            named = _known()[distribution].names.get(debian)
            verified = not cell.endswith("?")
            if cell == "\N{EN DASH}":
                assert named == "", (debian, distribution)
            elif not verified:
                assert not named, (debian, distribution)
            else:
                options = cell.split(" (")[0].split(", or ")[0].split(", ")
                assert set((named or "").split()) <= set(options), (debian, distribution, named, cell)
                assert named, (debian, distribution)


def test_the_page_has_rows() -> None:
    assert len(rows()) > 20


def test_this_machine_has_what_tare_needs() -> None:
    assert own_problems(LocalHost()) == ()
    refuse_incomplete(LocalHost())


def test_tools_that_are_missing_or_of_another_kind_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sh", "grep", "cat", "mke2fs", "nsenter", "setpriv", "tar", "unshare"):
        (tmp_path / name).symlink_to(
            next(path for folder in os.get_exec_path() if (path := Path(folder) / name).exists())
        )
    other = tmp_path / "taskset"
    other.write_text("#!/bin/sh\necho BusyBox\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = own_problems(LocalHost())
    assert [each.what for each in found] == [
        "ip is not installed",
        "taskset has no --cpu-list: it is not that of util-linux",
    ]
    assert [each.fix for each in found] == ["apt-get install iproute2", "apt-get install util-linux"]
