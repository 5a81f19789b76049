"""Tests of changed and restored settings in a tree of real files: kills, reboots, other programs' changes, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tare.hosts.tuning import FileResult, SettingsStore
from tare.model.errors import TareError

BOOT = "/proc/sys/kernel/random/boot_id"
PORTS = "/proc/sys/net/ipv4/ip_local_port_range"
REUSE = "/proc/sys/net/ipv4/tcp_tw_reuse"
ASLR = "/proc/sys/kernel/randomize_va_space"
FILES = "/proc/sys/fs/file-max"
GOVERNOR = "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"
# As the kernel shows them.
MACHINE = {
    BOOT: "c40cf4f4-5ca9-42da-8d35-5b098efdb59c\n",
    FILES: "8192\n",
    PORTS: "32768\t60999\n",
    REUSE: "2\n",
    ASLR: "0\n",
    "/sys/devices/system/cpu/online": "0-1\n",
    GOVERNOR: "powersave\n",
}
SET = {FILES: "20000", PORTS: "1024 65535", REUSE: "1", ASLR: "2", GOVERNOR: "performance"}
# Changes one file for each line that it is sent.
IN_STEPS = """
import sys
from pathlib import Path
from tare.hosts.tuning import SettingsStore
for done in getattr(SettingsStore(Path(sys.argv[1]), Path(sys.argv[2])), sys.argv[3])():
    print(done.path, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "root", MACHINE)
    return tmp_path / "root"


@pytest.fixture
def tuned(root: Path, tmp_path: Path) -> SettingsStore:
    return SettingsStore(root, tmp_path / "home/tuned.json")


def fill(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        file = root / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def values(tuned: SettingsStore) -> dict[str, str]:
    return {path: " ".join(tuned.read(path).split()) for path in SET}


BEFORE = {path: " ".join(MACHINE[path].split()) for path in SET}


def results(done: list[FileResult]) -> dict[str, str]:
    return {each.path: each.result for each in done}


def killed_in(action: str, root: Path, tuned: SettingsStore, after: int) -> None:
    """Kill a process that applies or restores, with SIGKILL, when it has changed this number of files."""
    argv = (sys.executable, "-c", IN_STEPS, str(root), str(tuned.record), action)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        for number in range(after):
            assert process.stdout.readline()
            if number + 1 < after:
                process.stdin.write("\n")
                process.stdin.flush()
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_what_is_applied_is_put_back_and_nothing_is_left_of_it(tuned: SettingsStore) -> None:
    assert set(results(list(tuned.apply())).values()) == {"set"}
    assert values(tuned) == SET
    assert set(tuned.changed_paths()) == set(SET)
    assert results(list(tuned.restore())) == dict.fromkeys(SET, "put back")
    assert values(tuned) == BEFORE
    assert list(tuned.record.parent.iterdir()) == []
    assert list(tuned.restore()) == []


def test_what_fits_already_is_neither_changed_nor_noted(tuned: SettingsStore, root: Path) -> None:
    fill(root, {FILES: "2466170\n", REUSE: "1\n"})
    assert FILES not in results(list(tuned.apply()))
    assert not {FILES, REUSE} & set(tuned.changed_paths())
    list(tuned.restore())
    assert (tuned.read(FILES), tuned.read(REUSE)) == ("2466170\n", "1\n")


def test_a_machine_that_is_as_wanted_needs_no_record(tuned: SettingsStore, root: Path) -> None:
    fill(root, {path: f"{text}\n" for path, text in SET.items()})
    assert list(tuned.apply()) == []
    assert not tuned.record.exists()


def test_all_is_on_the_disk_before_anything_is_changed(tuned: SettingsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, dict[str, str]]] = []

    def watched(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), values(tuned)))
        sync(descriptor)

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", watched)
    first = next(tuned.apply())
    home = tuned.record.parent
    assert synced == [(home / "tuned.new", BEFORE), (home, BEFORE)]
    noted = {each["path"]: each["before"] for each in json.loads(tuned.record.read_text())["changes"]}
    assert noted == BEFORE
    assert values(tuned) == BEFORE | {first.path: SET[first.path]}


def test_nothing_is_changed_where_it_cannot_be_written_down(root: Path, tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    tuned = SettingsStore(root, tmp_path / "home/tuned.json")
    with pytest.raises(TareError, match=r"home/tuned\.json"):
        list(tuned.apply())
    assert values(tuned) == BEFORE


@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_kill_while_it_applies_loses_nothing(tuned: SettingsStore, root: Path, after: int) -> None:
    killed_in("apply", root, tuned, after)
    assert sum(values(tuned)[path] == SET[path] for path in SET) == after
    assert set(results(list(tuned.restore())).values()) == {"put back"}
    assert values(tuned) == BEFORE
    assert not tuned.record.exists()


def test_a_kill_while_it_restores_loses_nothing(tuned: SettingsStore, root: Path) -> None:
    list(tuned.apply())
    killed_in("restore", root, tuned, 2)
    assert len(list(tuned.restore())) == len(SET) - 2
    assert values(tuned) == BEFORE


def test_reapplying_over_a_foreign_value_keeps_the_first_recorded_one(tuned: SettingsStore, root: Path) -> None:
    list(tuned.apply())
    fill(root, {REUSE: "0\n"})
    assert list(tuned.apply()) == [FileResult(REUSE, "set", "0", "1")]
    list(tuned.restore())
    assert values(tuned) == BEFORE


def test_a_value_of_another_tare_counts_as_ours(tuned: SettingsStore, root: Path) -> None:
    """After a kill between record and change, the settings of the earlier tare are still there."""
    list(tuned.apply())
    fill(root, {GOVERNOR: "schedutil\n"})
    record = json.loads(tuned.record.read_text())
    (change,) = (each for each in record["changes"] if each["path"] == GOVERNOR)
    change["written"] = ["schedutil", "performance"]
    tuned.record.write_text(json.dumps(record))
    assert set(results(list(tuned.restore())).values()) == {"put back"}
    assert values(tuned) == BEFORE


def test_what_somebody_else_has_changed_stays_and_is_named(tuned: SettingsStore, root: Path) -> None:
    list(tuned.apply())
    fill(root, {ASLR: "1\n"})
    done = list(tuned.restore())
    assert [each for each in done if each.result != "put back"] == [FileResult(ASLR, "somebody else's", "0", "1")]
    assert values(tuned) == BEFORE | {ASLR: "1"}
    assert list(tuned.restore()) == []


def test_what_somebody_else_has_put_back_needs_no_word(tuned: SettingsStore, root: Path) -> None:
    list(tuned.apply())
    fill(root, {ASLR: "0\n"})
    assert ASLR not in results(list(tuned.restore()))
    assert values(tuned) == BEFORE


def test_a_file_that_is_gone_is_named_and_not_made(tuned: SettingsStore, root: Path) -> None:
    list(tuned.apply())
    (root / GOVERNOR[1:]).unlink()
    done = list(tuned.restore())
    assert [each for each in done if each.result != "put back"] == [FileResult(GOVERNOR, "gone", "powersave", "")]
    assert not (root / GOVERNOR[1:]).exists()


def test_after_a_restart_nothing_is_put_back(tuned: SettingsStore, root: Path) -> None:
    """A reboot has restored the settings; a value that equals tare's was set by chance or by another program."""
    list(tuned.apply())
    fill(root, MACHINE | {BOOT: "0f0f0f0f-5ca9-42da-8d35-5b098efdb59c\n", REUSE: "1\n"})
    assert tuned.is_outdated()
    assert tuned.changed_paths() == ()
    assert list(tuned.restore()) == []
    assert values(tuned) == BEFORE | {REUSE: "1"}
    assert not tuned.record.exists()
    assert not tuned.is_outdated()


def test_applied_after_a_restart_it_keeps_the_values_of_this_start(tuned: SettingsStore, root: Path) -> None:
    list(tuned.apply())
    fill(root, MACHINE | {BOOT: "0f0f0f0f-5ca9-42da-8d35-5b098efdb59c\n", ASLR: "1\n"})
    list(tuned.apply())
    list(tuned.restore())
    assert values(tuned) == BEFORE | {ASLR: "1"}


def test_without_the_name_of_the_boot_nothing_is_changed(tuned: SettingsStore, root: Path) -> None:
    (root / BOOT[1:]).unlink()
    with pytest.raises(TareError, match="boot_id"):
        list(tuned.apply())
    assert values(tuned) == BEFORE


def test_what_the_kernel_refuses_stays_and_the_rest_is_set(tuned: SettingsStore, root: Path) -> None:
    """A file of the kernel's that even root may not write stands for a refusal."""
    (root / GOVERNOR[1:]).unlink()
    (root / GOVERNOR[1:]).symlink_to("/proc/sys/kernel/ostype")
    done = list(tuned.apply())
    (refused,) = (each for each in done if each.result == "refused")
    assert (refused.path, refused.before, refused.now) == (GOVERNOR, "Linux", "Linux")
    assert refused.reason
    assert values(tuned) == SET | {GOVERNOR: "Linux"}
    assert GOVERNOR not in results(list(tuned.restore()))
    assert values(tuned) == BEFORE | {GOVERNOR: "Linux"}


def test_what_cannot_be_put_back_stays_in_the_record(tuned: SettingsStore, root: Path) -> None:
    list(tuned.apply())
    (root / ASLR[1:]).unlink()
    (root / ASLR[1:]).symlink_to("/proc/sys/kernel/ostype")
    record = json.loads(tuned.record.read_text())
    (change,) = (each for each in record["changes"] if each["path"] == ASLR)
    change["written"] = ["Linux"]
    tuned.record.write_text(json.dumps(record))
    assert results(list(tuned.restore()))[ASLR] == "refused"
    assert tuned.record.exists()
    (root / ASLR[1:]).unlink()
    fill(root, {ASLR: "Linux\n"})
    assert results(list(tuned.restore())) == {ASLR: "put back"}
    assert values(tuned) == BEFORE
    assert not tuned.record.exists()


@pytest.fixture
def masked() -> Iterator[Path]:
    """A file of the kernel's that keeps nine bits of the number which is written to it; now it is 0."""
    file = Path("/proc/self/coredump_filter")
    before = file.read_text().strip()
    file.write_text("0")
    yield file
    file.write_text(f"0x{before}")


def test_a_value_of_which_the_kernel_makes_another_is_taken_back(
    tuned: SettingsStore, root: Path, masked: Path
) -> None:
    (root / FILES[1:]).unlink()
    (root / FILES[1:]).symlink_to(masked)
    done = {each.path: each for each in tuned.apply()}
    assert done[FILES] == FileResult(FILES, "refused", "00000000", "00000000", "it becomes 00000020")
    assert masked.read_text() == "00000000\n"


@pytest.mark.parametrize("text", [
    "",
    "{",
    "[]",
    '{"format": 1}',
    '{"format": 2, "boot": "b", "changes": []}',
    '{"format": 1, "boot": "b", "changes": [{"path": "/etc/passwd", "before": "x", "written": ["y"]}]}',
    '{"format": 1, "boot": "b", "changes": [{"path": "/proc/irq/1/../../sys/x", "before": "x", "written": ["y"]}]}',
    '{"format": 1, "boot": "b", "changes": [{"path": "/proc/sys/fs/file-max", "before": 1, "written": ["y"]}]}',
])  # fmt: skip
def test_a_record_that_tare_did_not_write_is_refused_and_nothing_changes(tuned: SettingsStore, text: str) -> None:
    tuned.record.parent.mkdir()
    tuned.record.write_text(text)
    for action in (tuned.apply, tuned.restore):
        with pytest.raises(TareError, match="not a record"):
            list(action())
    assert values(tuned) == BEFORE
    assert tuned.record.read_text() == text


def test_a_record_cut_off_at_any_byte_is_refused(tuned: SettingsStore) -> None:
    list(tuned.apply())
    whole = tuned.record.read_bytes()
    for length in range(0, len(whole) - 2, 7):
        tuned.record.write_bytes(whole[:length])
        with pytest.raises(TareError, match="not a record"):
            list(tuned.restore())
    assert values(tuned) == SET
