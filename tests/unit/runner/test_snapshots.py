"""The identity of a snapshot: what is refused before anything is restored from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed, Unavailable
from tare.plugins.registry import find
from tare.runner.sanity_checks import reject_unsupported
from tare.runner.snapshots import SnapshotIdentity

TAKEN = SnapshotIdentity("runc", "1.1.5", "sha256-a")


def test_a_snapshot_of_the_same_technology_and_image_is_accepted(tmp_path: Path) -> None:
    TAKEN.write(LocalHost(), str(tmp_path))
    TAKEN.require_equal(LocalHost(), str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [("technology", "crun", "runc"), ("version", "1.2.0", r"1\.1\.5"), ("image", "sha256-b", "sha256-a")],
)
def test_a_snapshot_of_another_technology_version_or_image_is_refused(
    tmp_path: Path, name: str, value: str, taken: str
) -> None:
    TAKEN.write(LocalHost(), str(tmp_path))
    with pytest.raises(TrialFailed, match=rf"^the snapshot is of {name} {taken}, which {value} cannot") as failure:
        replace(TAKEN, **{name: value}).require_equal(LocalHost(), str(tmp_path))
    assert failure.value.hint == "take a new snapshot"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"technology": "runc"}', '{"other": 1}'])
def test_an_incomplete_snapshot_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "tare-snapshot.json").write_text(text, encoding="utf-8")
    with pytest.raises(TrialFailed, match="not a whole snapshot"):
        TAKEN.require_equal(LocalHost(), str(tmp_path))


@pytest.mark.parametrize("stack", [("native",), ("bubblewrap",), ("runc", "qemu-tcg")])
def test_a_stack_without_snapshots_is_refused_by_its_name(stack: tuple[str, ...]) -> None:
    technologies = [find("technologies", name)() for name in stack]
    with pytest.raises(Unavailable, match=f"^{'/'.join(stack)}: it has no snapshots that tare can take$"):
        reject_unsupported(technologies, find("workloads", "restore")())
    reject_unsupported([find("technologies", "runc")()], find("workloads", "restore")())
