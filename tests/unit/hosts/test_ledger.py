from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tare.hosts.host import HostCache
from tare.hosts.ledger import (
    Ledger,
    PendingUndo,
    create_state_folder,
    read_pending_undos,
    rewrite_ledger,
    run_undo,
    shorten_command,
    state_folder,
)
from tare.hosts.local import LocalHost
from tare.model.errors import TareError
from tare.model.trial import Output


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger/tare-1.jsonl")


def _removal(path: Path) -> tuple[str, ...]:
    return ("rm", "-f", str(path))


def test_an_undo_is_written_before_the_block_and_run_after_it(ledger: Ledger, tmp_path: Path) -> None:
    thing = tmp_path / "tare-thing"
    with ledger.register_undo(*_removal(thing)):
        assert ledger.path.read_text(encoding="utf-8") == json.dumps(list(_removal(thing))) + "\n"
        thing.touch()
    assert not thing.exists()
    assert not ledger.path.exists()


def test_an_undo_is_run_when_the_block_raises(ledger: Ledger, tmp_path: Path) -> None:
    thing = tmp_path / "tare-thing"

    def interrupted() -> None:
        with ledger.register_undo(*_removal(thing)):
            thing.touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not thing.exists()
    assert not ledger.path.exists()


@pytest.mark.parametrize("gone", [True, False])
def test_what_is_known_to_be_gone_after_the_block_is_not_undone(ledger: Ledger, tmp_path: Path, gone: bool) -> None:
    thing, states = tmp_path / "tare-thing", ["there"]
    with ledger.register_undo(*_removal(thing), unless=lambda: states == ["gone"]):
        assert len(ledger.path.read_text(encoding="utf-8").splitlines()) == 1
        thing.touch()
        states[:] = ["gone"] if gone else ["there"]
    assert thing.exists() == gone
    assert not ledger.path.exists()


def test_what_is_inside_is_undone_first(ledger: Ledger, tmp_path: Path) -> None:
    outer, inner = tmp_path / "tare-outer", tmp_path / "tare-outer/tare-inner"
    with ledger.register_undo("rmdir", str(outer)):
        outer.mkdir()
        with ledger.register_undo("rmdir", str(inner)):
            inner.mkdir()
            assert len(ledger.path.read_text(encoding="utf-8").splitlines()) == 2
        assert len(ledger.path.read_text(encoding="utf-8").splitlines()) == 1
    assert not outer.exists()


def _slow_removal(path: Path) -> tuple[str, ...]:
    return ("sh", "-c", 'sleep 0.5; rm "$1"', "sh", str(path))


def _removal_beside_another(path: Path, begun: Path) -> tuple[str, ...]:
    """Return the removal of a file that waits for the start of another; each start writes a line to the same file."""
    script = 'echo >>"$2"; until [ "$(wc -l <"$2")" = 2 ]; do sleep 0.01; done; rm "$1"'
    return ("sh", "-c", script, "sh", str(path), str(begun))


def test_undo_commands_of_different_lanes_overlap_and_keep_order_in_a_lane(ledger: Ledger, tmp_path: Path) -> None:
    outer, inner, other = tmp_path / "tare-outer", tmp_path / "tare-outer/tare-inner", tmp_path / "tare-other"
    with (
        ledger.undo_in_background(),
        ledger.register_undo("rmdir", str(outer), lane="root"),
        ledger.register_undo(*_removal_beside_another(inner, tmp_path / "tare-begun"), lane="root"),
        ledger.register_undo(*_removal_beside_another(other, tmp_path / "tare-begun"), lane="group"),
    ):
        outer.mkdir()
        inner.touch()
        other.touch()
    assert not outer.exists()
    assert not other.exists()
    assert not ledger.path.exists()


def test_an_undo_without_a_lane_waits_for_those_before_it(ledger: Ledger, tmp_path: Path) -> None:
    outer, inner = tmp_path / "tare-outer", tmp_path / "tare-outer/tare-inner"
    with ledger.undo_in_background():
        with ledger.register_undo("rmdir", str(outer)):
            outer.mkdir()
            with ledger.register_undo(*_slow_removal(inner), lane="root"):
                inner.touch()
        assert not outer.exists()


def test_lanes_do_not_overlap_outside_of_such_a_block(ledger: Ledger, tmp_path: Path) -> None:
    thing = tmp_path / "tare-thing"
    with ledger.register_undo(*_slow_removal(thing), lane="root"):
        thing.touch()
    assert not thing.exists()
    assert not ledger.path.exists()


def test_what_cannot_be_undone_in_a_lane_stays_written(ledger: Ledger, tmp_path: Path) -> None:
    thing = tmp_path / "tare-thing"
    with ledger.undo_in_background(), ledger.register_undo("rmdir", str(thing), lane="root"):
        thing.touch()
    assert ledger.path.read_text(encoding="utf-8") == json.dumps(["rmdir", str(thing)]) + "\n"


def test_an_undo_that_fails_stays_in_the_ledger_and_the_rest_is_undone(ledger: Ledger, tmp_path: Path) -> None:
    busy, thing = tmp_path / "tare-busy", tmp_path / "tare-thing"
    (busy / "somebody's").mkdir(parents=True)
    with ledger.register_undo(*_removal(thing)), ledger.register_undo("rmdir", str(busy)):
        thing.touch()
    assert not thing.exists()
    assert read_pending_undos(ledger.path.parent) == {ledger.path: PendingUndo(None, (("rmdir", str(busy)),))}
    (busy / "somebody's").rmdir()
    ledger.undo_all()
    assert not busy.exists()
    assert not ledger.path.exists()


def test_a_full_disk_does_not_keep_things_from_being_undone(ledger: Ledger, tmp_path: Path) -> None:
    outer, inner = tmp_path / "tare-outer", tmp_path / "tare-inner"
    with ledger.register_undo(*_removal(outer)):
        with ledger.register_undo(*_removal(inner)):
            outer.touch()
            inner.touch()
            ledger.path.with_suffix(".new").symlink_to("/dev/full")
        assert not inner.exists()
    assert not outer.exists()
    assert not ledger.path.exists()


def test_an_undo_that_takes_too_long_ends_neither_the_block_nor_the_sweep(ledger: Ledger, tmp_path: Path) -> None:
    class Hasty(LocalHost):
        def run(self, *argv: str, timeout: float, **options: Any) -> Output:
            return super().run(*argv, timeout=timeout / 200, **options)

    ledger.host = Hasty()
    thing, slow = tmp_path / "tare-thing", ("sh", "-c", "sleep 60", "tare-slow")
    with ledger.register_undo(*_removal(thing)), ledger.register_undo(*slow):
        thing.touch()
    ledger.undo_all()
    assert not thing.exists()
    assert read_pending_undos(ledger.path.parent) == {ledger.path: PendingUndo(None, (slow,))}


# Message of current runsc about a container whose tare was killed. Nothing of the container is left.
_FILESTORE = "/var/lib/tare/instances/tare-4b40-11-11323e6/root/.gvisor.filestore.tare-4b40-11-11323e6"
KILLED_RUNSC = (
    f'destroying container: failed to delete filestore file "{_FILESTORE}": remove '
    f"{_FILESTORE}: no such file or directory"
)


@pytest.mark.parametrize(
    ("argv", "trouble"),
    [
        (("ip", "link", "delete", "tare-none"), ""),
        (("ip", "-n", "tare-none", "link", "delete", "tare-none"), ""),
        (("ip", "netns", "delete", "tare-none"), ""),
        (("umount", "--lazy", "/var/tare-none"), ""),
        (("rmdir", "/tare-none"), ""),
        (("sh", "-c", f"echo {shlex.quote(KILLED_RUNSC)} >&2; exit 128"), ""),
        (("rmdir", "/proc"), "rmdir: exit code 1: rmdir: failed to remove '/proc': "),
        (("tare-no-such-tool", "x"), "tare-no-such-tool: exit code 127: "),
        (("sh", "-c", "echo 'Cannot find device' >&2; exit 127"), "sh: exit code 127: Cannot find device"),
        (("false", "tare-x"), "false: exit code 1: it printed nothing"),
    ],
)
def test_what_is_already_gone_is_undone_and_any_other_failure_is_reported(argv: tuple[str, ...], trouble: str) -> None:
    found = run_undo(LocalHost(), argv)
    assert found.startswith(trouble) if trouble else found == ""


def test_what_was_in_a_network_namespace_that_went_with_its_tare_is_undone() -> None:
    script = (
        "mount -t tmpfs tare /run && mkdir /run/netns && touch /run/netns/tare-dead && ip -n tare-dead link delete x"
    )
    argv = ("unshare", "--map-root-user", "--mount", "sh", "-c", script)
    assert run_undo(LocalHost(), argv) == ""


@pytest.mark.parametrize("argv", [("rm", "-rf", "/"), ("tare-looks-like-ours", "/etc"), ("true",)])
def test_an_undo_that_names_nothing_of_tare_is_refused(ledger: Ledger, argv: tuple[str, ...]) -> None:
    with pytest.raises(TareError, match="refused"), ledger.register_undo(*argv):
        pytest.fail("the block must not begin")
    assert not ledger.path.exists()


def test_a_sweep_undoes_all_that_is_left_with_the_last_thing_first(ledger: Ledger, tmp_path: Path) -> None:
    outer = tmp_path / "tare-outer"
    (outer / "tare-inner").mkdir(parents=True)
    ledger._entries += [("rmdir", str(outer)), ("rmdir", str(outer / "tare-inner"))]
    ledger.undo_all()
    assert not outer.exists()
    assert not ledger.path.exists()


def test_the_ledger_of_a_killed_run_is_read_with_the_last_thing_first(ledger: Ledger, tmp_path: Path) -> None:
    ledger._entries += [("rmdir", "/tmp/tare-outer"), ("rmdir", "/tmp/tare-outer/tare-inner")]  # noqa: S108 - only read
    ledger._write()
    assert read_pending_undos(tmp_path / "ledger") == {
        ledger.path: PendingUndo(None, (("rmdir", "/tmp/tare-outer/tare-inner"), ("rmdir", "/tmp/tare-outer")))  # noqa: S108
    }


def test_a_locked_ledger_is_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.lock(), ledger.register_undo(*_removal(tmp_path / "tare-thing")):
        assert read_pending_undos(ledger.path.parent) == {}
    assert list(ledger.path.parent.iterdir()) == []


def test_the_lock_of_a_killed_process_keeps_nothing(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.register_undo(*_removal(tmp_path / "tare-thing")):
        ledger.path.with_suffix(".lock").touch()
        ((path, pending),) = read_pending_undos(ledger.path.parent).items()
        rewrite_ledger(path, replace(pending, entries=()))
        assert list(ledger.path.parent.iterdir()) == []


def test_a_machine_without_ledgers_has_no_leftovers(tmp_path: Path) -> None:
    assert read_pending_undos(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    "line",
    [
        '["rm", "-rf", "/home"]',
        '["tare-evil", "/home"]',
        '["rm", "-rf", 5, "tare-x"]',
        '"rm -rf tare-x"',
        '{"rm": "tare-x"}',
        "5",
        "rm -rf tare-x",
        "[]",
        '["rm", "-rf", "tare-x"]]',
    ],
)
def test_a_ledger_that_has_been_tampered_with_is_refused_as_a_whole(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tare-1.jsonl"
    path.write_text(f'["rmdir", "/tmp/tare-good"]\n{line}\n', encoding="utf-8")
    with pytest.raises(TareError, match="not a ledger of tare's") as caught:
        read_pending_undos(tmp_path)
    assert caught.value.hint == "inspect the file, then remove it by hand"


def test_a_ledger_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tare-1.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TareError, match="not a ledger of tare's"):
        read_pending_undos(tmp_path)


def test_the_folder_of_ledgers_is_for_its_owner_alone(ledger: Ledger) -> None:
    assert ledger.path.parent.stat().st_mode & 0o777 == 0o700


def test_state_is_kept_where_TARE_HOME_says(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802 - the variable's name
    monkeypatch.setenv("TARE_HOME", "/somewhere/else")
    assert state_folder() == Path("/somewhere/else")
    monkeypatch.setenv("TARE_HOME", "here")
    assert state_folder() == Path.cwd() / "here"
    monkeypatch.setenv("TARE_HOME", "")
    assert state_folder() == Path("/var/lib/tare")
    monkeypatch.delenv("TARE_HOME")
    assert state_folder() == Path("/var/lib/tare")


def test_state_is_private_to_its_owner_and_an_existing_folder_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "fresh"))
    assert create_state_folder().stat().st_mode & 0o777 == 0o700
    older = tmp_path / "older"
    (older / "images").mkdir(parents=True)
    older.chmod(0o755)
    (older / "images").chmod(0o755)
    monkeypatch.setenv("TARE_HOME", str(older))
    assert create_state_folder().stat().st_mode & 0o777 == 0o755
    assert (older / "images").stat().st_mode & 0o777 == 0o700


# --- short names of undo commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "short"),
    [
        (("ip", "link", "delete", "tare-1"), "ip link delete tare-1"),
        (("sh", "-c", 'rm -r "$1"', "sh", "/run/tare-1"), 'sh -c rm -r "$1" sh /run/tare-1'),
        (("sh", "-c", "\nfor each\n", "sh", "docker", "tare-1"), "docker tare-1"),
        (("env", "A=b", "sh", "-c", "one\ntwo", "sh", "tare-1"), "tare-1"),
    ],
)
def test_a_script_of_several_lines_is_named_by_what_it_is_called_with(argv: tuple[str, ...], short: str) -> None:
    assert shorten_command(argv) == short


# --- HostCache: facts and resources are read or created once per run, and removed in reverse order -------------------


def test_a_thing_is_made_once_removed_at_the_end_and_can_be_made_again() -> None:
    events: list[str] = []

    @contextmanager
    def making(name: str) -> Iterator[str]:
        events.append(f"made {name}")
        yield name
        events.append(f"gone {name}")

    with HostCache() as cache:
        assert [cache.create_once("network", lambda: making("first")) for _ in range(2)] == ["first", "first"]
        assert cache.create_once("bridge", lambda: making("second")) == "second"
        assert events == ["made first", "made second"]
        cache.close()
        assert events[2:] == ["gone second", "gone first"]
        assert cache.create_once("network", lambda: making("third")) == "third"
    assert events[4:] == ["made third", "gone third"]


def test_what_cannot_be_found_out_is_asked_for_again() -> None:
    answers = iter(["", "20.10"])

    def find() -> str:
        if not (answer := next(answers)):
            raise OSError
        return answer

    cache = HostCache()
    try:
        cache.read_once("version", find)
    except OSError:
        assert [cache.read_once("version", find) for _ in range(2)] == ["20.10", "20.10"]
