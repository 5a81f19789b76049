"""Tests of the setup helper, compiled as in the image, and of the ledger with and without the helper."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled import compiled

from tare.hosts.cgroups import Mount
from tare.hosts.exec import ExecHost, mount_system_folders
from tare.hosts.ledger import EphemeralLedger, Ledger, UndoStep
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.setup_helper import SetupHelper
from tare.model.errors import TareError, TrialFailed
from tare.model.files import read_text

HOST = LocalHost()
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and make namespaces")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an image with nothing but the programs."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "usr/lib/tare").mkdir(parents=True)
    compiled(folder / "usr/lib/tare", "setup_helper", "exec_in", "supervise", alone=True)
    return folder


@pytest.fixture
def helper(root: Path) -> Iterator[SetupHelper]:
    made = SetupHelper(HOST, root)
    yield made
    made.close()


@pytest.fixture
def ledger(root: Path, tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger/tare-1.jsonl")
    with made.open_setup_helper(root):
        yield made


def _exec_in(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = (str(root / "usr/lib/tare/exec_in"), *words)
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_a_folder_is_accessible_to_all_whatever_the_umask_of_the_caller(root: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with contextlib.closing(SetupHelper(HOST, root)) as helper:
            helper.run_steps(("folder", str(tmp_path / "tare-folder")))
    finally:
        os.umask(before)
    assert (tmp_path / "tare-folder").stat().st_mode & 0o777 == 0o755


def test_folders_are_made_measured_and_removed_with_all_that_is_in_them(helper: SetupHelper, tmp_path: Path) -> None:
    folder = tmp_path / "tare a%b"  # words with spaces arrive whole
    helper.run_steps(("folder", str(folder)), ("folder", str(folder)), ("folder", str(folder / "below")))
    before = helper.bytes_below(str(folder))
    (folder / "below/file").write_bytes(b"x" * 100_000)
    (folder / "below/other").hardlink_to(folder / "below/file")
    (folder / "below/gone").symlink_to("/nowhere")
    assert helper.bytes_below(str(folder)) - before in range(100_000, 110_000)
    assert helper.try_steps(("remove", str(folder)))
    assert not folder.exists()
    assert helper.try_steps(("remove", str(folder)), ("unmount", str(folder)), ("ungroup", str(folder)))


def test_a_host_behind_a_resident_agent_has_a_setup_helper(root: Path, tmp_path: Path) -> None:
    host = ExecHost(HOST, "env")
    host.supervisor = str(root / "usr/lib/tare/supervise")
    with host.start_resident():
        helper = SetupHelper(host, root)
        helper.run_steps(("folder", str(tmp_path / "there")))
        assert (tmp_path / "there").is_dir()
        with pytest.raises(TrialFailed, match="No such file"):
            helper.run_steps(("folder", "/nowhere/there"))
        helper.close()
        assert helper.try_steps(("remove", str(tmp_path / "there")))  # starts the helper again
    assert not helper.try_steps(("remove", str(tmp_path / "there")))  # the program of the helper is gone
    helper.close()


def test_the_first_step_that_fails_is_the_last_and_has_its_reason(helper: SetupHelper, tmp_path: Path) -> None:
    before, behind = tmp_path / "before", tmp_path / "behind"
    with pytest.raises(TrialFailed, match=r"/nowhere/there: No such file or directory") as caught:
        helper.run_steps(("folder", str(before)), ("folder", "/nowhere/there"), ("folder", str(behind)))
    assert caught.value.hint.endswith(f"folder /nowhere/there, folder {behind}")
    assert (before.exists(), behind.exists()) == (True, False)
    helper.run_steps(("folder", str(behind)))  # an error does not affect the next request
    with pytest.raises(TrialFailed, match="unknown step: sing"):
        helper.run_steps(("sing",))


def test_a_setup_helper_that_was_killed_is_restarted_with_the_next_request(helper: SetupHelper, tmp_path: Path) -> None:
    helper.run_steps(("folder", str(tmp_path / "one")))
    assert helper._process is not None
    os.kill(helper._process.pid, 9)
    with pytest.raises(TrialFailed):
        helper.run_steps(("folder", str(tmp_path / "two")))
    helper.run_steps(("folder", str(tmp_path / "three")))


def test_a_settings_file_is_written_and_an_optional_one_is_omitted(helper: SetupHelper, tmp_path: Path) -> None:
    (tmp_path / "memory.max").touch()
    helper.run_steps(("set", f"{tmp_path}/memory.max", "17"), ("set-if", f"{tmp_path}/memory.swap.max", "0"))
    assert read_text(f"{tmp_path}/memory.max") == "17"
    assert not (tmp_path / "memory.swap.max").exists()
    with pytest.raises(TrialFailed, match=r"memory\.swap\.max = 0: No such file"):
        helper.run_steps(("set", f"{tmp_path}/memory.swap.max", "0"))


def test_who_settles_waits_until_a_process_has_joined_the_group(helper: SetupHelper, tmp_path: Path) -> None:
    group = tmp_path / "cgroup.procs"
    os.mkfifo(group)  # who joins waits for its reader, as for the kernel
    helper.run_steps(("prime", str(tmp_path)))
    joined = list[str]()

    def become_ready() -> None:
        joined.append("ready")
        joined.append(group.read_text())

    kernel = threading.Timer(0.1, become_ready)
    kernel.start()
    helper.run_steps(("settle",))
    assert "ready" in joined
    kernel.join()
    assert joined == ["ready", "0"]


@only_root
@pytest.mark.machine
def test_mounts_and_namespaces_are_made_and_nothing_of_them_is_left(ledger: Ledger, tmp_path: Path) -> None:
    isolate_mounts()
    name, place = f"tare-setup-helper-{os.getpid():x}", tmp_path / "tare-root"
    mounted = ("mount", "tmpfs", "tmpfs", str(place), "size=4096")
    undos = (
        UndoStep(("remove", str(place)), ("rm", "-rf", str(place))),
        UndoStep(("unmount", str(place)), ("umount", "--lazy", str(place))),
        UndoStep(("unnamespace", name), ("ip", "netns", "delete", name)),
    )
    with ledger.create((("folder", str(place)), mounted, ("namespace", name)), *undos):
        assert len(ledger.path.read_text(encoding="utf-8").splitlines()) == 3
        assert place.is_mount()
        assert HOST.run("ip", "-n", name, "-brief", "link", timeout=60).text.split()[:2] == ["lo", "DOWN"]
    assert not place.exists()
    assert not Path(f"/run/netns/{name}").exists()
    assert not ledger.path.exists()


def test_what_could_not_be_made_is_undone_and_its_reason_reported(ledger: Ledger, tmp_path: Path) -> None:
    place = tmp_path / "tare-place"
    undo = UndoStep(("remove", str(place)), ("rm", "-rf", str(place)))
    with (
        pytest.raises(TrialFailed, match="No such device"),
        ledger.create((("folder", str(place)), ("mount", "nonsense", "-", str(place), "-")), undo),
    ):
        pytest.fail("there is no such file system")
    assert not place.exists()
    assert not ledger.path.exists()


def test_the_undo_command_removes_what_the_setup_helper_cannot(ledger: Ledger, tmp_path: Path) -> None:
    thing = tmp_path / "tare-thing"
    with ledger.create((("folder", str(thing)),), UndoStep(("sing", str(thing)), ("rmdir", str(thing)))):
        pass
    assert not thing.exists()
    assert not ledger.path.exists()


def test_the_ledger_is_written_once_for_all_undos_of_an_overlapping_block(ledger: Ledger, tmp_path: Path) -> None:
    thing = tmp_path / "tare-thing"
    with ledger.undo_in_background():
        with ledger.create((("folder", str(thing)),), UndoStep(("remove", str(thing)), ("rmdir", str(thing)))):
            pass
        assert not thing.exists()
        assert ledger.path.exists()
    assert not ledger.path.exists()


def test_an_undo_that_names_nothing_of_tare_makes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    thing = tmp_path / "thing"
    with (
        pytest.raises(TareError, match="names nothing of tare's"),
        ledger.create((("folder", str(thing)),), UndoStep(("remove", str(thing)), ("rmdir", "/etc/thing"))),
    ):
        pytest.fail("it is not tare's")
    assert not thing.exists()


def test_inside_an_instance_nothing_is_taken_away(root: Path, tmp_path: Path) -> None:
    ledger, thing = EphemeralLedger(HOST, root), tmp_path / "tare-thing"
    with ledger.create((("folder", str(thing)),), UndoStep(("remove", str(thing)), ("rmdir", str(thing)))):
        pass
    ledger.setup_helper.close()
    assert thing.exists()


def test_a_command_is_entered_with_its_limit_and_only_its_environment(root: Path) -> None:
    shown = _exec_in(root, "-f", "64", "-e", "PATH=/usr/bin:/bin", "-e", "A=b c", "--", "sh", "-c", "ulimit -n; env")
    assert {"64", "PATH=/usr/bin:/bin", "A=b c"} <= set(shown.stdout.splitlines())
    assert "HOME=" not in shown.stdout
    assert _exec_in(root, "--", "sh", "-c", "exit 7").returncode == 7
    assert _exec_in(root, "--", "no-such-program").returncode == 127
    assert _exec_in(root, "-g", "/nowhere", "--", "true").returncode == 125
    assert _exec_in(root).returncode == 2


@only_root
@pytest.mark.machine
def test_the_namespaces_root_and_folder_of_a_process_are_entered(root: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    apart = ("unshare", "--pid", "--mount", "--uts", "--ipc", "--net", "--fork", "--mount-proc", "sh", "-c")
    script = f"hostname inside; cd {tmp_path}/in; echo $PPID; exec sleep 600"
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(HOST.spawn(*apart, script))
        process.read_line(60)
        (pid,) = HOST.run("pgrep", "-P", str(process.pid), timeout=60).text.split()
        seen = _exec_in(root, "-p", pid, "--", "sh", "-c", "hostname; pwd; cat /proc/1/comm; ls /sys/class/net; exit 5")
        assert seen.stdout.splitlines()[:3] == ["inside", f"{tmp_path}/in", "sleep"]
        assert seen.returncode == 5
        assert _exec_in(root, "-p", pid, "--", "sh", "-c", "kill -9 $$").returncode == 137


@only_root
@pytest.mark.machine
def test_a_port_that_the_kernel_has_not_taken_away_yet_is_not_in_the_way(ledger: Ledger) -> None:
    lan, inside = (f"tare-{kind}-{os.getpid():x}" for kind in ("lan", "in"))
    card = ("02:74:61:72:65:01", "198.18.0.10", "198.18.0.1")
    with ledger.create((("namespace", lan),), UndoStep(("unnamespace", lan), ("ip", "netns", "delete", lan))):
        HOST.run("ip", "-n", lan, "link", "add", "bridge", "type", "bridge", timeout=60)
        for _ in range(5):
            undo = UndoStep(("unnamespace", inside), ("ip", "netns", "delete", inside))
            with ledger.create((("namespace", inside), ("join", inside, "tare-i", lan, *card)), undo):
                shown = HOST.run("ip", "-n", inside, "-brief", "address", "show", "eth0", timeout=60).text.split()
                assert shown[0].startswith("eth0@")
                assert shown[2] == "198.18.0.10/24"
                assert "master bridge" in HOST.run("ip", "-n", lan, "link", "show", "tare-i", timeout=60).text
                assert "via 198.18.0.1" in HOST.run("ip", "-n", inside, "route", timeout=60).text


@only_root
def test_the_host_name_is_set_in_a_namespace_and_not_on_the_machine(root: Path) -> None:
    before = os.uname().nodename
    assert _exec_in(root, "-u", "tare", "--", "hostname").stdout == "tare\n"
    assert os.uname().nodename == before


@only_root
def test_a_root_has_container_devices_and_cannot_change_machine_settings(ledger: Ledger, tmp_path: Path) -> None:
    isolate_mounts()
    place = tmp_path / "tare-root"
    for name in ("proc", "sys", "dev", "etc"):
        (place / name).mkdir(parents=True)
    group = tmp_path / "group"
    group.mkdir()
    (group / "memory.max").write_text("1048576")
    undo = UndoStep(("unmount", str(place)), ("umount", "--lazy", str(place)))
    with ledger.create([("mount", "-", str(place), str(place), "bind")], undo):
        mount_system_folders(ledger, place, [Mount("bind", str(group), "/sys/fs/cgroup", ("bind", "ro"))])
        devices = sorted(each.name for each in (place / "dev").iterdir())
        names = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero"
        assert devices == names.split()
        (place / "dev/null").write_text("gone")
        assert stat.S_IMODE((place / "dev/shm").stat().st_mode) == 0o1777
        with pytest.raises(OSError, match="Read-only file system"):
            (place / "proc/sys/vm/swappiness").write_text("1")
        with pytest.raises(OSError, match="Read-only file system"):
            (place / "sys/fs/cgroup/memory.max").write_text("1")
        assert (place / "sys/fs/cgroup/memory.max").read_text() == "1048576"
        assert (place / "proc/timer_list").read_text() == ""
    assert list((place / "dev").iterdir()) == []
