"""The resident agent and its protocol: compiled here as in the image, and run for real."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from busy import SPIN
from compiled import compiled, started
from waiting import ENOUGH_SECONDS, comes_true, rests, sleepers, wait_until

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and make namespaces")


class Resident:
    """A resident process, and the lines that it has given."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._input, self._output = process, process.stdin, process.stdout
        assert self.line() == "ready"

    def tell(self, *lines: str) -> None:
        self._input.write("".join(f"{line}\n" for line in lines).encode())
        self._input.flush()

    def line(self) -> str:
        return self._output.readline().decode().rstrip("\n")

    def until_ended(self, number: int) -> list[str]:
        """Return the lines up to the one that says that a command has ended, less its CPU time."""
        lines = [self.line()]
        while not lines[-1].startswith(f"ended {number} "):
            assert lines[-1], self._said()
            lines.append(self.line())
        return [*lines[:-1], " ".join(lines[-1].split()[:3])]

    def hang_up(self) -> int:
        self._input.close()
        return self.process.wait(ENOUGH_SECONDS)

    def _said(self) -> str:
        self.process.kill()
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "supervise") / "supervise"


@pytest.fixture
def resident(program: Path) -> Iterator[Resident]:
    with started(program, "--resident") as process:
        yield Resident(process)


def _sleeps(seconds: int) -> bool:
    return bool(sleepers(seconds))


def _comes_true(seconds: int, there: bool) -> bool:
    return comes_true(lambda: _sleeps(seconds) == there)


def test_a_command_gives_what_it_printed_and_its_exit_code(resident: Resident) -> None:
    resident.tell("start 7 sh -c echo%20out;%20echo%20err%20>&2;%20exit%203", "close 7")
    lines = resident.until_ended(7)
    assert sorted(lines[:-1]) == ["err 7 err%0A", "out 7 out%0A"]
    assert lines[-1] == "ended 7 3"


def test_arguments_are_taken_apart_at_single_spaces_and_may_be_empty(resident: Resident) -> None:
    resident.tell("start 1 printf <%25s> a%20b  %25 ", "close 1")
    assert resident.until_ended(1) == ["out 1 <a%20b><><%25><>", "ended 1 0"]


def test_input_arrives_byte_for_byte(resident: Resident) -> None:
    every = "".join(f"%{code:02X}" for code in range(256))
    resident.tell("start 1 od -An -v -tx1 -w256", f"input 1 {every}", "close 1")
    shown = "".join(line.split(" ")[2] for line in resident.until_ended(1)[:-1])
    assert shown.replace("%20", "").replace("%0A", "") == "".join(f"{code:02x}" for code in range(256))


def test_commands_run_side_by_side(resident: Resident) -> None:
    resident.tell("start 1 cat", "start 2 sh -c echo%20two", "close 2")
    assert resident.until_ended(2) == ["out 2 two%0A", "ended 2 0"]
    resident.tell("input 1 one", "close 1")
    assert resident.until_ended(1) == ["out 1 one", "ended 1 0"]


def test_a_missing_program_gives_127_and_one_that_cannot_be_executed_126(resident: Resident) -> None:
    resident.tell("start 1 no-such-command")
    assert resident.until_ended(1) == [
        "err 1 supervise:%20no-such-command:%20No%20such%20file%20or%20directory%0A",
        "ended 1 127",
    ]
    resident.tell("start 2 /tmp")
    assert resident.until_ended(2)[-1] == "ended 2 126"


def test_a_command_that_a_signal_ends_gives_128_and_its_number(resident: Resident) -> None:
    resident.tell("start 1 sh -c kill%20-9%20$$")
    assert resident.until_ended(1) == ["ended 1 137"]


def test_cpu_time_is_that_of_the_command_and_its_children(resident: Resident) -> None:
    busy = quote(f"{sys.executable} -c '{SPIN}'; true")
    resident.tell(f"start 1 sh -c {busy}", "start 2 sleep 0.3")
    used, printed = dict[str, float](), ""
    while len(used) < 2:
        kind, number, *rest = resident.line().split()
        if kind == "out":
            printed += unquote(rest[0])
        else:
            used[number] = float(rest[1]) + float(rest[2])
    own_seconds = float(printed)
    assert own_seconds <= used["1"] <= 1.5 * own_seconds  # its end, and the shell, come in addition
    assert used["2"] < 0.2 * own_seconds


def test_a_command_is_asked_to_end(resident: Resident) -> None:
    resident.tell("start 1 sleep 70201")
    assert _comes_true(70201, there=True)
    resident.tell("end 1")
    assert resident.until_ended(1) == ["ended 1 143"]


def test_a_command_that_is_asked_to_end_at_once_ends_at_once(resident: Resident) -> None:
    for number in range(50):
        resident.tell(f"start {number} sleep 70202", f"end {number}")
        assert resident.until_ended(number) == [f"ended {number} 143"]  # not killed, as what does not end by itself


def test_a_command_that_will_not_end_is_killed_after_three_seconds(resident: Resident) -> None:
    resident.tell("start 1 sh -c trap%20''%20TERM;echo%20up;while%20:;do%20sleep%200.1;done")
    assert resident.line() == "out 1 up%0A"
    began = time.monotonic()
    resident.tell("end 1")
    assert resident.until_ended(1) == ["ended 1 137"]
    assert time.monotonic() - began > 2.5


def test_what_a_command_leaves_behind_is_not_waited_for(resident: Resident) -> None:
    resident.tell("start 1 sh -c sleep%2070203%20&%20echo%20up")
    assert resident.until_ended(1) == ["out 1 up%0A", "ended 1 0"]
    assert _comes_true(70203, there=True)
    (left,) = sleepers(70203)
    os.kill(left, signal.SIGTERM)


def test_what_prints_for_ever_and_is_left_behind_is_not_waited_for(resident: Resident) -> None:
    resident.tell("start 1 sh -c setsid%20yes%20&%20echo%20up%20>&2")
    lines = resident.until_ended(1)
    assert lines[-1] == "ended 1 0"
    resident.tell("start 2 echo still%20there")
    assert resident.until_ended(2) == ["out 2 still%20there%0A", "ended 2 0"]


def test_all_that_a_command_printed_is_given_before_its_end(resident: Resident) -> None:
    resident.tell("start 1 head -c 1000000 /dev/zero")
    lines = resident.until_ended(1)
    assert sum(len(line.split(" ")[2]) // 3 for line in lines[:-1]) == 1000000


def test_a_flood_that_nobody_takes_holds_up_nothing_but_itself(resident: Resident) -> None:
    resident.tell("start 1 yes")
    wait_until(lambda: rests(resident.process.pid))  # its streams are full, and ours
    memory = Path(f"/proc/{resident.process.pid}/status").read_text().partition("VmRSS:")[2].split()[0]
    assert int(memory) < 32 << 10
    resident.tell("end 1", "start 2 echo through")
    lines = resident.until_ended(2)
    assert "out 2 through%0A" in lines
    assert lines[-1] == "ended 2 0"


def test_input_that_nobody_reads_holds_up_nothing(resident: Resident) -> None:
    resident.tell("start 1 sleep 70204")
    for _ in range(100):
        resident.tell(f"input 1 {'x' * 8000}")
    resident.tell("start 2 echo through")
    assert resident.until_ended(2) == ["out 2 through%0A", "ended 2 0"]
    resident.tell("end 1")
    assert resident.until_ended(1) == ["ended 1 143"]


def test_input_for_a_command_that_has_ended_does_no_harm(resident: Resident) -> None:
    resident.tell("start 1 true")
    assert resident.until_ended(1) == ["ended 1 0"]
    resident.tell("input 1 x", "close 1", "end 1", "start 2 true")
    assert resident.until_ended(2) == ["ended 2 0"]


def test_it_is_quiet_while_nothing_happens(resident: Resident) -> None:
    resident.tell("start 1 sleep 70205")
    assert _comes_true(70205, there=True)
    wait_until(lambda: rests(resident.process.pid))
    resident.tell("end 1")


def test_all_commands_end_with_its_standard_input(resident: Resident) -> None:
    resident.tell("start 1 sleep 70206", "start 2 sleep 70206")
    assert _comes_true(70206, there=True)
    assert resident.hang_up() == 0
    assert not _sleeps(70206)


def test_all_commands_end_with_a_signal(resident: Resident) -> None:
    resident.tell("start 1 sleep 70207")
    assert _comes_true(70207, there=True)
    resident.process.terminate()
    assert resident.process.wait(ENOUGH_SECONDS) == 128 + signal.SIGTERM
    assert not _sleeps(70207)


def test_all_commands_end_when_it_is_killed(resident: Resident) -> None:
    resident.tell("start 1 sleep 70208")
    assert _comes_true(70208, there=True)
    resident.process.kill()
    assert _comes_true(70208, there=False)


def test_it_waits_three_seconds_for_commands_at_its_end(resident: Resident) -> None:
    resident.tell("start 1 sh -c trap%20''%20TERM;echo%20up;while%20:;do%20sleep%200.1;done")
    assert resident.line() == "out 1 up%0A"
    began = time.monotonic()
    assert resident.hang_up() == 0
    assert time.monotonic() - began > 2.5


@pytest.mark.parametrize("line", ["sing 1 a%20song", "start", "start 1", "start x echo", "input 1", "", "end"])
def test_a_line_that_is_none_of_its_own_ends_it(resident: Resident, line: str) -> None:
    resident.tell("start 9 sleep 70209", line)
    assert resident.process.wait(ENOUGH_SECONDS) == 0
    assert resident.process.stderr is not None
    assert resident.process.stderr.read().startswith(b"supervise: invalid line: ")
    assert not _sleeps(70209)


def test_a_signal_that_we_ignore_is_not_ignored_by_commands(resident: Resident) -> None:
    # `yes` ends quietly by SIGPIPE; where it was ignored it would say so.
    resident.tell("start 1 sh -c yes%20|%20head%20-n%201", "close 1")
    assert resident.until_ended(1) == ["out 1 y%0A", "ended 1 0"]


CONDITIONS = """
umask; env; id -G; grep -E '^(SigIgn|CapEff|CapBnd|CapInh):' /proc/self/status; hostname
cat /etc/hosts /etc/hostname; wc -c </etc/resolv.conf
"""


@only_root
def test_conditions_do_not_depend_on_what_the_resident_process_was_given(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/tare").mkdir(parents=True)
    compiled(tmp_path / "usr/lib/tare", "supervise", "init", alone=True)
    for name in ("bin", "etc", "proc"):
        (tmp_path / name).mkdir()
    shutil.copy("/bin/busybox", tmp_path / "bin/busybox")
    (tmp_path / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")  # as Ubuntu's images have it
    (tmp_path / "etc/hosts").write_text("192.0.2.1 of-the-builder\n")
    enter = f"exec chroot {tmp_path} /usr/lib/tare/supervise --resident"
    shell = f"trap '' HUP QUIT; umask 077; mount -t proc proc {tmp_path}/proc; hostname tare; {enter}"
    argv = (
        "unshare",
        "--mount",
        "--net",
        "--uts",
        "env",
        "http_proxy=http://127.0.0.1:9",
        "LANG=C.UTF-8",
        "sh",
        "-c",
        shell,
    )
    with started(*argv) as process:
        resident = Resident(process)
        resident.tell("conditions 0", f"start 1 /bin/busybox sh -c {quote(CONDITIONS, safe='')}", "close 1")
        printed = "".join(
            unquote(line.split(" ")[2]) for line in resident.until_ended(1)[:-1] if line.startswith("out")
        )
    lines = [line for line in printed.splitlines() if not line.startswith(("SHLVL=", "PWD="))]
    assert lines == [
        "0022",
        "HOME=/root",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "0",
        "SigIgn:\t0000000000000000",
        "CapInh:\t0000000000000000",
        "CapEff:\t00000000a80425fb",  # Docker's fourteen
        "CapBnd:\t00000000a80425fb",
        "tare",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "127.0.0.1\ttare",  # a namespace without a card
        "tare",
        "0",
    ]


# The kernel's own structure, as the C library refuses the two signals of its threads.
IGNORES_32 = """
import ctypes, os, sys
ctypes.CDLL(None).syscall(13, 32, (ctypes.c_ulong * 4)(1, 0, 0, 0), None, 8)  # rt_sigaction: ignore
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_no_signal_is_ignored_not_even_those_of_the_c_library(program: Path) -> None:
    with started(sys.executable, "-c", IGNORES_32, program, "--resident") as process:
        resident = Resident(process)
        grep = "start %d grep SigIgn: /proc/self/status"
        resident.tell(grep % 1, "close 1")
        assert int(resident.until_ended(1)[0].removesuffix("%0A")[-16:], 16) >> 31 & 1
        resident.tell("conditions 0", grep % 2, "close 2")
        assert resident.until_ended(2)[0].endswith("0000000000000000%0A")


@only_root
def test_hosts_and_name_servers_that_a_suite_gives_are_kept(tmp_path: Path) -> None:
    given = tmp_path / "usr/lib/tare/given"
    given.mkdir(parents=True)
    compiled(tmp_path / "usr/lib/tare", "supervise", "init", alone=True)
    for name in ("bin", "etc"):
        (tmp_path / name).mkdir()
    shutil.copy("/bin/busybox", tmp_path / "bin/busybox")
    (given / "hosts").write_text("192.0.2.7 database")  # without an end of line
    (given / "resolv.conf").write_text("nameserver 192.0.2.8\n")
    (tmp_path / "etc/resolv.conf").write_text("nameserver 192.0.2.9\n")  # as an engine writes its own
    with started("unshare", "--net", "chroot", tmp_path, "/usr/lib/tare/supervise", "--resident") as process:
        resident = Resident(process)
        resident.tell("conditions 0", "start 1 /bin/busybox cat /etc/hosts /etc/resolv.conf", "close 1")
        lines = [unquote(line.split(" ")[2]) for line in resident.until_ended(1)[:-1] if line.startswith("out")]
    assert "".join(lines) == "192.0.2.7 database\n127.0.0.1\ttare\nnameserver 192.0.2.8\n"


def test_outside_of_an_image_no_file_is_changed(resident: Resident) -> None:
    before = Path("/etc/hosts").read_bytes(), Path("/etc/hostname").read_bytes()
    resident.tell("conditions 0", "start 1 cat /etc/hostname", "close 1")
    resident.until_ended(1)
    assert (Path("/etc/hosts").read_bytes(), Path("/etc/hostname").read_bytes()) == before
