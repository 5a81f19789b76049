"""The lock of a machine: whoever measures on it holds it, from that machine or from another."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from waiting import wait_until

from tare.errors import TareError
from tare.hosts.ledger import DoomedLedger
from tare.hosts.local import LocalHost
from tare.hosts.lock import Taken, lock_holder, machine_lock, only_one, only_one_on
from tare.hosts.network import Network
from tare.model.machines import Hosts, Machine
from tare.runner import machines

OTHER = """
import sys, time
from tare.hosts.local import LocalHost
from tare.hosts.lock import only_one_on
with only_one_on(LocalHost(), "there", sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def _is_free(path: Path) -> bool:
    try:
        with only_one_on(LocalHost(), "root@there", str(path)):
            return True
    except TareError:
        return False


def test_two_controllers_do_not_measure_on_one_machine(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    with subprocess.Popen((sys.executable, "-c", OTHER, str(path)), stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        said = rf"^another tare runs on root@there \(process {other.pid} of its controller\)$"
        with pytest.raises(TareError, match=said), only_one_on(LocalHost(), "root@there", str(path)):
            pytest.fail("the block must not begin")
        other.kill()
    wait_until(lambda: _is_free(path))


def test_it_is_the_lock_that_a_tare_on_that_machine_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "one"))
    code = OTHER.replace('only_one_on(LocalHost(), "there", sys.argv[1])', "only_one()").replace("_on\n", "\n")
    with subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert not _is_free(tmp_path / "lock")
        other.kill()
    with only_one(), only_one_on(LocalHost(), "root@here", str(tmp_path / "lock")):
        pass  # a server that is this machine, over SSH


def _with_other_home(home: Path, tmp_path: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds the lock with another home, and wait until it does."""
    code = OTHER.replace('only_one_on(LocalHost(), "there", sys.argv[1])', "only_one()").replace("_on\n", "\n")
    environment = os.environ | {"TARE_HOME": str(home), "TARE_LOCK": str(tmp_path / "lock")}
    other = subprocess.Popen((sys.executable, "-c", code, "run"), stdout=subprocess.PIPE, env=environment)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    return other


def test_the_lock_is_the_machines_whatever_home_a_tare_has_and_names_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TARE_LOCK", raising=False)
    assert machine_lock() == Path("/run/lock/tare/lock")
    monkeypatch.setenv("TARE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "ours"))
    theirs = tmp_path / "theirs"
    with _with_other_home(theirs, tmp_path) as other:
        said = rf"^another tare runs on this machine: tare run \(process {other.pid}, TARE_HOME={theirs}\)$"
        with pytest.raises(Taken, match=said), only_one():
            pytest.fail("the block must not begin")
        holder, is_held = lock_holder()
        assert (holder.pid, holder.home, is_held) == (other.pid, str(theirs), True) if holder else False
        other.kill()
        other.wait()
    assert lock_holder() == (holder, False), "who was killed is known"
    with only_one():
        pass
    assert lock_holder() == (None, False)


def test_looking_at_the_lock_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_LOCK", str(tmp_path / "lock"))
    with only_one():
        pass
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.03, file.close).start()
        with only_one():
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
    with pytest.raises(TareError, match=f"^{folder}: ") as caught, only_one():
        pytest.fail("the block must not begin")
    assert caught.value.hint.startswith(f"remove {folder} as root")
    if trick.startswith("link"):
        with pytest.raises(TareError, match=r"^there: "), only_one_on(LocalHost(), "there", str(folder / "lock")):
            pytest.fail("the block must not begin")
        assert list(elsewhere.iterdir()) == []


def test_names_elsewhere_are_not_those_of_other_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Hosts(server=Machine("root@there"))
    assert machines._own_prefix(Hosts()) == f"tare-{os.getpid():x}"
    mine = machines._own_prefix(there)
    monkeypatch.setattr(LocalHost, "read", lambda _, path: f"another controller's {path}")
    assert mine != machines._own_prefix(there)
    assert (
        len(Network(mine, IPv4Network("198.18.0.0/24"), DoomedLedger(LocalHost(), Path("/nowhere"))).at(63).device("i"))
        <= 15
    )


def test_a_process_number_that_a_killed_run_had_is_not_used_again_before_that_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    number, names = os.getpid(), []
    for _ in range(3):
        names.append(machines._own_prefix(Hosts()))
        (tmp_path / "ledger").mkdir(exist_ok=True)
        (tmp_path / f"ledger/{names[-1]}.jsonl").touch()
    assert names == [f"tare-{number:x}", f"tare-{number + (1 << 22):x}", f"tare-{number + (2 << 22):x}"]
    assert {len(name) for name in names[1:]} == {len("tare-400000")}


def test_machines_that_are_lent_at_a_time_have_names_of_their_own() -> None:
    first, second = (machines._own_prefix(Hosts(server=Machine(f"tare-1-0{slot}-5f"))) for slot in (0, 1))
    assert first != second
