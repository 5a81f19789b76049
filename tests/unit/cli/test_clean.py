"""`tare clean` where something is in its way: it goes on with the rest, and keeps what it could not undo."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tare.__main__ import run
from tare.cli.app import app
from tare.hosts.ledger import PendingUndo, read_pending_undos, rewrite_ledger
from tare.hosts.lock import LockHolder
from tare.model.machine import SshTarget
from tare.runner.cleanup import HostInventory

Clean = Callable[..., tuple[int, str]]
SLOW = ("sh", "-c", "sleep 600", "tare-slow")
NOWHERE = SshTarget("root@tare-nowhere.invalid")


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "ledger"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Clean:
    """Call `tare clean` as if by root, in a home of its own, with no engines; return exit code and what it says."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    cleaning = importlib.import_module("tare.runner.cleanup")
    run_undo = cleaning.run_undo
    monkeypatch.setattr(
        cleaning, "run_undo", lambda host, argv, seconds: run_undo(host, argv, 0.5 if argv == SLOW else seconds)
    )

    def call(*options: str) -> tuple[int, str]:
        code = run(app, ["clean", *options])
        return code, capsys.readouterr().err

    return call


def _ledger(path: Path, *entries: tuple[str, ...], machine: SshTarget | None = None) -> Path:
    head = [json.dumps(vars(machine))] if machine else []
    path.write_text("".join(f"{line}\n" for line in [*head, *map(json.dumps, entries)]), encoding="utf-8")
    return path


def _removal(path: Path) -> tuple[str, ...]:
    path.touch()
    return ("rm", "-f", str(path))


def test_all_that_can_be_undone_is_and_the_ledgers_are_gone(ledgers: Path, tmp_path: Path, cleaned: Clean) -> None:
    thing = tmp_path / "tare-thing"
    _ledger(ledgers / "tare-1.jsonl", _removal(thing))
    code, said = cleaned()
    assert (code, said.splitlines()[-1]) == (0, "clean")
    assert not thing.exists()
    assert list(ledgers.iterdir()) == []


def test_a_half_written_ledger_is_removed_and_the_previous_one_counts(
    ledgers: Path, tmp_path: Path, cleaned: Clean
) -> None:
    _ledger(ledgers / "tare-1.jsonl", _removal(tmp_path / "tare-thing"))
    (ledgers / "tare-1.new").write_text('["rm", "-f', encoding="utf-8")
    (ledgers / "tare-2.new").touch()
    code, said = cleaned()
    assert (code, said.splitlines()[-1]) == (0, "clean")
    assert not (tmp_path / "tare-thing").exists()
    assert list(ledgers.iterdir()) == []


def test_a_half_built_image_is_removed_and_complete_ones_stay(tmp_path: Path, cleaned: Clean) -> None:
    images = tmp_path / "home" / "images"
    for name in ("tare-building-x1/root", "0123abcd/root"):
        (images / name).mkdir(parents=True)
    assert cleaned()[0] == 0
    assert [path.name for path in images.iterdir()] == ["0123abcd"]


def test_a_socket_of_a_killed_clean_is_removed_and_one_in_use_stays(
    tmp_path: Path, cleaned: Clean, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("tare.runner.cleanup"), "_SOCKETS", str(tmp_path))
    names = ("tare-clean-7ffffffe.ssh", f"tare-clean-{os.getpid():x}.ssh", "tare-clean-mine.ssh", "tare-run.ssh")
    for name in names:
        (tmp_path / name).touch()
    assert cleaned()[0] == 0
    assert sorted(path.name for path in tmp_path.glob("*.ssh")) == sorted(names[1:])


def test_an_undo_that_takes_too_long_is_kept_and_the_others_are_done(
    ledgers: Path, tmp_path: Path, cleaned: Clean
) -> None:
    first, last, other = (tmp_path / f"tare-{name}" for name in ("first", "last", "other"))
    path = _ledger(ledgers / "tare-1.jsonl", _removal(first), SLOW, _removal(last))
    _ledger(ledgers / "tare-2.jsonl", _removal(other))
    (tmp_path / "home" / "instances" / "tare-1").mkdir(parents=True)
    code, said = cleaned()
    assert code == 3
    error, hint = said.splitlines()[-2:]
    assert error == "error: not everything could be removed: on this machine: sh: did not end within 0.5 s"
    assert hint == f"hint: fix this, then run tare clean again; the rest is recorded in {ledgers}"
    assert not any(thing.exists() for thing in (first, last, other))
    assert {path: left.entries for path, left in read_pending_undos(ledgers).items()} == {path: (SLOW,)}
    assert (tmp_path / "home" / "instances" / "tare-1").exists()


def test_an_undo_that_fails_is_said_and_kept_and_the_others_are_done(
    ledgers: Path, tmp_path: Path, cleaned: Clean
) -> None:
    busy, thing = tmp_path / "tare-busy", tmp_path / "tare-thing"
    (busy / "in-use").mkdir(parents=True)
    path = _ledger(ledgers / "tare-1.jsonl", _removal(thing), ("rmdir", str(busy)), ("rmdir", "/tmp/tare-gone"))  # noqa: S108
    code, said = cleaned()
    assert code == 3
    assert said.splitlines()[0] == "undone: rmdir /tmp/tare-gone"
    assert said.splitlines()[1].startswith(f"not undone: rmdir {busy}"[:120])
    assert (
        "error: not everything could be removed: on this machine: rmdir: exit code 1: rmdir: failed to remove" in said
    )
    assert not thing.exists()
    assert read_pending_undos(ledgers) == {path: PendingUndo(None, (("rmdir", str(busy)),))}


def test_a_machine_that_is_away_keeps_its_ledger_and_is_named(ledgers: Path, tmp_path: Path, cleaned: Clean) -> None:
    entries = (("rmdir", "/tmp/tare-outer"), ("rmdir", "/tmp/tare-outer/tare-inner"))  # noqa: S108 - never run
    away = _ledger(ledgers / "tare-1.jsonl", *entries, machine=NOWHERE)
    before = away.read_text(encoding="utf-8")
    thing = tmp_path / "tare-thing"
    _ledger(ledgers / "tare-2.jsonl", _removal(thing))
    code, said = cleaned()
    assert code == 3
    lines = said.splitlines()
    assert lines[0] == "not undone: 2 things on root@tare-nowhere.invalid"
    assert lines[-2].startswith("error: not everything could be removed: on root@tare-nowhere.invalid: SSH to ")
    assert not thing.exists()
    assert [path.name for path in ledgers.iterdir()] == [away.name]
    assert away.read_text(encoding="utf-8") == before


def test_a_ledger_that_is_kept_is_read_as_it_was(ledgers: Path) -> None:
    path = _ledger(ledgers / "tare-1.jsonl", ("rmdir", "tare-a"), ("rmdir", "tare-b"), machine=NOWHERE)
    found = read_pending_undos(ledgers)[path]
    rewrite_ledger(path, found)
    assert read_pending_undos(ledgers) == {path: found}


def test_leftovers_of_a_run_with_another_home_need_clean_with_that_home(
    ledgers: Path, cleaned: Clean, tmp_path: Path
) -> None:
    _ledger(ledgers / "tare-1.jsonl", ("rmdir", "/tmp/tare-gone"))  # noqa: S108 - never run
    killed = replace(LockHolder.this_process(), home=str(ledgers.parent), command="tare run x.toml")
    hint = importlib.import_module("tare.cli.clean")._removal_hint
    nothing = HostInventory({"links": frozenset({"tare-1"}), "ledgers": frozenset()})
    expected = f"tare run x.toml (process {os.getpid()}) was killed: TARE_HOME={ledgers.parent} tare clean"
    assert hint(nothing, killed) == expected
    assert "by hand" in hint(nothing, replace(killed, home=str(tmp_path)))
    assert "by hand" in hint(nothing, None)
    assert cleaned()[0] == 0


SAYS_WHAT_IT_IS_ASKED = """#!/bin/sh
[ "$1" = --version ] && echo 5.0 && exit
echo "$*" >> {said}
[ "$2" = list ] && printf 'mine\\ntare-image-ab (1 more)\\n\\ntare-image-cd\\n'
"""


@pytest.mark.parametrize("client", ["lxc", "incus"])
def test_images_that_were_given_to_lxd_or_incus_are_removed_and_no_others(
    client: str, tmp_path: Path, cleaned: Clean, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, said = tmp_path / "tools", tmp_path / "said"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    (tools / client).write_text(SAYS_WHAT_IT_IS_ASKED.format(said=said), encoding="ascii")
    (tools / client).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))  # no engine of this machine
    assert cleaned("--images") == (0, "clean\n")
    assert said.read_text(encoding="ascii").splitlines() == [
        "image list --format csv --columns l",
        "image delete tare-image-ab",
        "image delete tare-image-cd",
    ]
