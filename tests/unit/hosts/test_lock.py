"""Tests of the machine lock, held by a tare on the machine or on another machine."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from waiting import wait_until

from tare.hosts.ledger import EphemeralLedger
from tare.hosts.local import LocalHost
from tare.hosts.lock import (
    LockHeld,
    LockHolder,
    lock_remote_machine,
    lock_this_machine,
    machine_lock_path,
    read_lock_holder,
)
from tare.hosts.network import Network
from tare.model.errors import TareError
from tare.model.machine import Hosts, SshTarget
from tare.runner import machines
from tare.runner.cleanup import HostInventory, filter_tare_names, read_command_output, read_mount_points, take_inventory

OTHER = """
import sys, time
from tare.hosts.local import LocalHost
from tare.hosts.lock import lock_remote_machine
with lock_remote_machine(LocalHost(), "there", sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def _is_free(path: Path) -> bool:
    try:
        with lock_remote_machine(LocalHost(), "root@there", str(path)):
            return True
    except TareError:
        return False


def test_two_controllers_do_not_measure_on_one_machine(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    with subprocess.Popen((sys.executable, "-c", OTHER, str(path)), stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        message = rf"^another tare runs on root@there \(process {other.pid} of its controller\)$"
        with pytest.raises(TareError, match=message), lock_remote_machine(LocalHost(), "root@there", str(path)):
            pytest.fail("the block must not begin")
        other.kill()
    wait_until(lambda: _is_free(path))


def test_it_is_the_lock_that_a_tare_on_that_machine_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "one"))
    code = OTHER.replace('lock_remote_machine(LocalHost(), "there", sys.argv[1])', "lock_this_machine()").replace(
        "remote", "this"
    )
    with subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert not _is_free(tmp_path / "lock")
        other.kill()
    with lock_this_machine(), lock_remote_machine(LocalHost(), "root@here", str(tmp_path / "lock")):
        pass  # a server that is this machine, over SSH


def _with_other_home(home: Path, tmp_path: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds the lock with another home, and wait until it does."""
    code = OTHER.replace('lock_remote_machine(LocalHost(), "there", sys.argv[1])', "lock_this_machine()").replace(
        "remote", "this"
    )
    environment = os.environ | {"TARE_HOME": str(home), "TARE_LOCK": str(tmp_path / "lock")}
    other = subprocess.Popen((sys.executable, "-c", code, "run"), stdout=subprocess.PIPE, env=environment)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    return other


def test_the_lock_is_per_machine_for_any_home_and_names_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TARE_LOCK", raising=False)
    assert machine_lock_path() == Path("/run/lock/tare/lock")
    monkeypatch.setenv("TARE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "ours"))
    theirs = tmp_path / "theirs"
    with _with_other_home(theirs, tmp_path) as other:
        message = rf"^another tare runs on this machine: tare run \(process {other.pid}, TARE_HOME={theirs}\)$"
        with pytest.raises(LockHeld, match=message), lock_this_machine():
            pytest.fail("the block must not begin")
        holder, is_held = read_lock_holder()
        assert (holder.pid, holder.home, is_held) == (other.pid, str(theirs), True) if holder else False
        other.kill()
        other.wait()
    assert read_lock_holder() == (holder, False), "who was killed is known"
    with lock_this_machine():
        pass
    assert read_lock_holder() == (None, False)


def test_looking_at_the_lock_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_LOCK", str(tmp_path / "lock"))
    with lock_this_machine():
        pass
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.03, file.close).start()
        with lock_this_machine():
            pass


@pytest.mark.parametrize("trick", ["link to a folder", "dangling link", "writable by others", "a file"])
def test_a_lock_in_a_folder_that_others_could_change_is_refused(
    trick: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "tare"
    if trick == "writable by others":
        folder.mkdir()
        folder.chmod(0o777)
    elif trick == "a file":
        folder.touch()
    else:
        folder.symlink_to(elsewhere)
        if trick == "link to a folder":
            elsewhere.mkdir()
    monkeypatch.setenv("TARE_LOCK", str(folder / "lock"))
    with pytest.raises(TareError, match=f"^{folder}: ") as caught, lock_this_machine():
        pytest.fail("the block must not begin")
    assert caught.value.hint.startswith(f"remove {folder} as root")
    if trick.startswith("link"):
        with (
            pytest.raises(TareError, match=r"^there: "),
            lock_remote_machine(LocalHost(), "there", str(folder / "lock")),
        ):
            pytest.fail("the block must not begin")
        assert list(elsewhere.iterdir()) == []


def test_names_elsewhere_are_not_those_of_other_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Hosts(server=SshTarget("root@there"))
    assert machines._name_prefix(Hosts()) == f"tare-{os.getpid():x}"
    mine = machines._name_prefix(there)
    monkeypatch.setattr(LocalHost, "read", lambda _, path: f"another controller's {path}")
    assert mine != machines._name_prefix(there)
    assert (
        len(
            Network(mine, IPv4Network("198.18.0.0/24"), EphemeralLedger(LocalHost(), Path("/nowhere")))
            .with_slot(63)
            .device("i")
        )
        <= 15
    )


def test_the_process_number_of_a_killed_run_is_not_reused_before_its_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    number, names = os.getpid(), []
    for _ in range(3):
        names.append(machines._name_prefix(Hosts()))
        (tmp_path / "ledger").mkdir(exist_ok=True)
        (tmp_path / f"ledger/{names[-1]}.jsonl").touch()
    assert names == [f"tare-{number:x}", f"tare-{number + (1 << 22):x}", f"tare-{number + (2 << 22):x}"]
    assert {len(name) for name in names[1:]} == {len("tare-400000")}


def test_machines_that_are_lent_at_a_time_have_names_of_their_own() -> None:
    first, second = (machines._name_prefix(Hosts(server=SshTarget(f"tare-1-0{slot}-5f"))) for slot in (0, 1))
    assert first != second


# --- leftovers of tare on a machine, before and after -----------------------------------------------------------------

SOME = HostInventory({"links": frozenset({"tare-1", "tare-2"})}, {"sysctl": frozenset({"vm/swappiness = 60"})})
LATER = HostInventory({"links": frozenset({"tare-2", "tare-3"})}, {"sysctl": frozenset({"vm/swappiness = 10"})})


def test_what_is_new_and_what_stays() -> None:
    new = LATER.subtract(SOME)
    assert new == HostInventory({"links": frozenset({"tare-3"})}, {"sysctl": frozenset({"vm/swappiness = 10"})})
    assert new
    assert not LATER.subtract(LATER)
    assert new.intersect(SOME) == HostInventory({"links": frozenset()}, {"sysctl": frozenset()})


def test_a_kind_that_was_not_there_before_is_new() -> None:
    assert LATER.subtract(HostInventory({})) == LATER


def test_names_of_tare_are_told_from_others() -> None:
    assert filter_tare_names(["tare-3-a", "docker0", "stare", "share-1", "inode-7", "netns-1a"]) == {
        *("tare-3-a", "inode-7", "netns-1a"),
    }


def test_what_an_engine_lists_counts_and_one_that_fails_lists_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    found = take_inventory((), [("printf", r"web\ntare-7f,RUNNING\n"), ("false",), ("tare-no-such-program",)])
    assert found.ours[r"printf web\ntare-7f,RUNNING\n"] == {"tare-7f"}
    assert found.ours["false"] == found.ours["tare-no-such-program"] == frozenset()
    assert read_command_output("tare-no-such-program") == ""


def test_mounts_of_a_process_that_is_gone_are_none(tmp_path: Path) -> None:
    assert read_mount_points(str(tmp_path / "none")) == frozenset()


def test_a_document_is_sorted() -> None:
    assert SOME.to_document() == {
        "ours": {"links": ["tare-1", "tare-2"]},
        "settings": {"sysctl": ["vm/swappiness = 60"]},
    }


def test_what_a_run_under_way_has_is_told_from_what_other_runs_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "ours"))
    (tmp_path / "theirs/ledger").mkdir(parents=True)
    (tmp_path / "theirs/ledger/tare-5f0e1d-sockets.jsonl").touch()
    holder = replace(LockHolder.this_process(), pid=0x1EF1, home=str(tmp_path / "theirs"))
    its = ("tare-1ef1-m", "tare-1ef1", "/x/tare-1ef1.z/root", "tare-5f0e1d-c", "netns-0a", "/var/lib/tare-homes")
    others = ("tare-1ef10-m", "tare-abc1", "/x/tare-2/root")
    found = HostInventory({"links": frozenset((*its, *others)), "ledgers": frozenset({"tare-1ef1.jsonl"})})
    left = HostInventory({"links": frozenset(others), "ledgers": frozenset({"tare-1ef1.jsonl"})})
    assert found.select_of_other_runs(holder) == left, "a ledger in our home is of another run"
    monkeypatch.setenv("TARE_HOME", holder.home)
    assert found.select_of_other_runs(holder).ours["ledgers"] == frozenset()
    elsewhere = replace(holder, boot_id="another machine's")
    assert not found.select_of_other_runs(replace(elsewhere, home=holder.home)), (
        "the names of a controller's run are not known"
    )


def test_a_process_is_a_runs_by_its_words(tmp_path: Path) -> None:
    holder = replace(LockHolder.this_process(), home=str(tmp_path))
    with subprocess.Popen(("sleep", "600"), env={"X": f"tare-{os.getpid():x}-1"}) as process:
        try:
            # Popen returns while the kernel still sets up the new program, which has no environment until then.
            wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes() != b"")
            found = HostInventory({"processes": frozenset({f"sleep {process.pid}"})})
            assert not found.select_of_other_runs(holder)
            assert found.select_of_other_runs(replace(holder, pid=1)) == found
        finally:
            process.kill()
