"""What tare has on a machine, before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.hosts.remains import Remains, mounts, of_tare, remains, said

SOME = Remains({"links": frozenset({"tare-1", "tare-2"})}, {"sysctl": frozenset({"vm/swappiness = 60"})})
LATER = Remains({"links": frozenset({"tare-2", "tare-3"})}, {"sysctl": frozenset({"vm/swappiness = 10"})})


def test_what_is_new_and_what_stays() -> None:
    new = LATER.beyond(SOME)
    assert new == Remains({"links": frozenset({"tare-3"})}, {"sysctl": frozenset({"vm/swappiness = 10"})})
    assert new
    assert not LATER.beyond(LATER)
    assert new.within(SOME) == Remains({"links": frozenset()}, {"sysctl": frozenset()})


def test_a_kind_that_was_not_there_before_is_new() -> None:
    assert LATER.beyond(Remains({})) == LATER


def test_names_of_tare_are_told_from_others() -> None:
    assert of_tare(["tare-3-a", "docker0", "stare", "share-1", "inode-7", "netns-1a"]) == {
        *("tare-3-a", "inode-7", "netns-1a"),
    }


def test_what_an_engine_lists_counts_and_one_that_fails_lists_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    found = remains((), [("printf", r"web\ntare-7f,RUNNING\n"), ("false",), ("tare-no-such-program",)])
    assert found.ours[r"printf web\ntare-7f,RUNNING\n"] == {"tare-7f"}
    assert found.ours["false"] == found.ours["tare-no-such-program"] == frozenset()
    assert said("tare-no-such-program") == ""


def test_mounts_of_a_process_that_is_gone_are_none(tmp_path: Path) -> None:
    assert mounts(str(tmp_path / "none")) == frozenset()


def test_a_document_is_sorted() -> None:
    assert SOME.document() == {"ours": {"links": ["tare-1", "tare-2"]}, "settings": {"sysctl": ["vm/swappiness = 60"]}}
