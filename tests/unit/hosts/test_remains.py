"""What tare has on a machine, before and after."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tare.hosts.lock import LockHolder
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


def test_what_a_run_under_way_has_is_told_from_what_other_runs_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "ours"))
    (tmp_path / "theirs/ledger").mkdir(parents=True)
    (tmp_path / "theirs/ledger/tare-5f0e1d-sockets.jsonl").touch()
    holder = replace(LockHolder.this_process(), pid=0x1EF1, home=str(tmp_path / "theirs"))
    its = ("tare-1ef1-m", "tare-1ef1", "/x/tare-1ef1.z/root", "tare-5f0e1d-c", "netns-0a", "/var/lib/tare-homes")
    others = ("tare-1ef10-m", "tare-abc1", "/x/tare-2/root")
    found = Remains({"links": frozenset((*its, *others)), "ledgers": frozenset({"tare-1ef1.jsonl"})})
    left = Remains({"links": frozenset(others), "ledgers": frozenset({"tare-1ef1.jsonl"})})
    assert found.not_of(holder) == left, "a ledger in our home is of another run"
    monkeypatch.setenv("TARE_HOME", holder.home)
    assert found.not_of(holder).ours["ledgers"] == frozenset()
    elsewhere = replace(holder, boot_id="another machine's")
    assert not found.not_of(replace(elsewhere, home=holder.home)), "the names of a controller's run are not known"


def test_a_process_is_a_runs_by_its_words(tmp_path: Path) -> None:
    holder = replace(LockHolder.this_process(), home=str(tmp_path))
    with subprocess.Popen(("sleep", "600"), env={"X": f"tare-{os.getpid():x}-1"}) as process:
        found = Remains({"processes": frozenset({f"sleep {process.pid}"})})
        assert not found.not_of(holder)
        assert found.not_of(replace(holder, pid=1)) == found
        process.kill()
