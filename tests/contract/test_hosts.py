"""The contract of a host: the same for this machine, for a chroot, and for the inside of every technology."""

from __future__ import annotations

import time
from pathlib import Path, PurePosixPath

import pytest
from waiting import ENOUGH_SECONDS, in_time

from tare.hosts.host import Host
from tare.model.errors import TimedOut, TrialFailed

pytestmark = pytest.mark.machine

WORDS = (
    *("", " ", "two words", "it's", '"quoted"', "line\nbreak", "tab\tstop", "trailing\n", "$HOME", "${PATH}", "$(id)"),
    *("`id`", ";", "a;b", "|", "&", ">", "*", "?", "~", "\\", "\\n", "--", "-t", "#", "!", "%s", "ünïcödé ☃ 語", ""),
)
# A daemon that nobody's process group, session or parent number leads to: it has forked twice and leads a session.
DAEMON = 'setsid sh -c \'(echo up > "$1/up"; exec sleep "$2") &\' sh "$1" "$2" >/dev/null 2>&1 &'
SIGNALS = ("KILL", "SEGV", "TERM")


def test_a_command_gives_its_exit_code(host: Host) -> None:
    codes = [0, 3, 255]
    assert [
        host.run("sh", "-c", f"exit {code}", timeout=ENOUGH_SECONDS, check=False).exit_code for code in codes
    ] == codes


def test_a_program_that_is_not_there_gives_127(host: Host) -> None:
    assert host.run("no-such-program-anywhere", timeout=ENOUGH_SECONDS, check=False).exit_code == 127


def test_a_program_that_is_not_there_fails_where_success_is_asked_for(host: Host) -> None:
    with pytest.raises(TrialFailed, match="no-such-program-anywhere: exit code 127: "):
        host.run("no-such-program-anywhere", timeout=ENOUGH_SECONDS)


def test_a_command_that_a_signal_ended_gives_128_and_its_number(host: Host) -> None:
    codes = [
        host.run("sh", "-c", f"kill -{name} $$", timeout=ENOUGH_SECONDS, check=False).exit_code for name in SIGNALS
    ]
    assert codes == [137, 139, 143]


def test_every_byte_passes_unchanged_in_and_out(host: Host, round_trip_seconds: float) -> None:
    repeats = 4096 if round_trip_seconds < 0.5 else 256
    data = bytes(range(256)) * repeats
    assert host.run("cat", timeout=ENOUGH_SECONDS, input=data).stdout == data


def test_a_command_without_input_sees_its_end(host: Host) -> None:
    assert host.run("cat", timeout=ENOUGH_SECONDS).stdout == b""


def test_standard_error_is_kept_apart(host: Host) -> None:
    output = host.run("sh", "-c", "echo out; echo err >&2", timeout=ENOUGH_SECONDS)
    assert (output.stdout, output.stderr) == (b"out\n", b"err\n")


def test_arguments_arrive_unchanged(host: Host) -> None:
    output = host.run("printf", "%s\\0", *WORDS, timeout=ENOUGH_SECONDS)
    assert output.text.split("\0")[:-1] == list(WORDS)


def test_a_failure_reports_the_last_words(host: Host) -> None:
    with pytest.raises(TrialFailed, match=r"exit code 3: .*the last words$"):
        host.run("sh", "-c", "echo first words >&2; echo the last words >&2; exit 3", timeout=ENOUGH_SECONDS)


def test_a_time_out_ends_the_whole_tree(host: Host, room: str, round_trip_seconds: float) -> None:
    def run(seconds: float) -> None:
        allowed = seconds + 10 * round_trip_seconds
        with pytest.raises(TimedOut, match="did not end within"):
            host.run("sh", "-c", f"{DAEMON}\nsleep 70001 & exec sleep 70001", "sh", room, "70001", timeout=allowed)
        assert _sleepers(host, "70001") == ""

    up = ("cat", f"{room}/up")
    in_time(run, lambda: host.run(*up, timeout=ENOUGH_SECONDS, check=False).text == "up\n")


def test_what_a_command_leaves_behind_goes_on(host: Host, room: str) -> None:
    # As the monitor of a container has to, that its engine starts and does not wait for.
    host.run("sh", "-c", DAEMON, "sh", room, "70005", timeout=ENOUGH_SECONDS)
    _wait_for(host, f"{room}/up")
    assert _sleepers(host, "70005") != ""
    host.run("sh", "-c", 'pkill -x -f "sleep 70005"', timeout=ENOUGH_SECONDS)


def test_a_file_is_put_with_its_bytes_and_permission_bits(host: Host, room: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", f"{room}/a file's $name"
    source.write_bytes(bytes(range(256)) * 100)
    source.chmod(0o750)
    host.put(source, PurePosixPath(target))
    # find, not stat: gVisor of 2022 refuses the call of today's stat
    assert host.run("find", target, "-printf", "%m", timeout=ENOUGH_SECONDS).text == "750"
    assert host.run("cat", target, timeout=ENOUGH_SECONDS).stdout == source.read_bytes()


def test_a_file_is_got_with_its_bytes(host: Host, room: str, tmp_path: Path) -> None:
    data = bytes(range(255, -1, -1)) * 100
    host.run("sh", "-c", 'cat > "$1"', "sh", f"{room}/file", timeout=ENOUGH_SECONDS, input=data)
    host.get(PurePosixPath(f"{room}/file"), tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data


def test_getting_a_file_that_is_not_there_fails(host: Host, room: str, tmp_path: Path) -> None:
    with pytest.raises((TrialFailed, OSError), match=r"[Nn]o such file"):
        host.get(PurePosixPath(f"{room}/missing"), tmp_path / "target")


def test_lines_of_a_started_command_arrive_while_it_runs(host: Host) -> None:
    before = time.monotonic()
    with host.spawn("sh", "-c", "echo one; echo two; exec sleep 70003") as process:
        first, second = process.read_line(ENOUGH_SECONDS), process.read_line(ENOUGH_SECONDS)
        assert (first.text, second.text, process.is_running()) == ("one", "two", True)
        assert before <= first.seconds <= second.seconds <= time.monotonic()
        with pytest.raises(TimedOut, match="printed nothing"):
            process.read_line(0.05)


def test_a_started_command_takes_words_while_it_runs(host: Host) -> None:
    with host.spawn("sh", "-c", 'while read -r word; do echo "got $word"; done') as process:
        for word in ("one", "ünïcödé ☃"):
            process.send(f"{word}\n")
            assert process.read_line(ENOUGH_SECONDS).text == f"got {word}"


def test_a_spawned_command_and_its_children_are_gone_after_the_block(host: Host, room: str) -> None:
    with host.spawn("sh", "-c", f"{DAEMON}\nsleep 70004 & echo up; exec sleep 70004", "sh", room, "70004") as process:
        process.read_line(ENOUGH_SECONDS)
        _wait_for(host, f"{room}/up")
        assert _sleepers(host, "70004") != ""
    assert _sleepers(host, "70004") == ""


def test_a_started_command_is_gone_when_the_block_raises(host: Host) -> None:
    def broken() -> None:
        with host.spawn("sh", "-c", "sleep 70005 & echo up; exec sleep 70005") as process:
            process.read_line(ENOUGH_SECONDS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert _sleepers(host, "70005") == ""


def test_reading_on_after_the_end_fails_with_the_last_words(host: Host) -> None:
    with host.spawn("sh", "-c", "echo one; echo no more >&2; exit 1") as process:
        assert process.read_line(ENOUGH_SECONDS).text == "one"
        with pytest.raises(TrialFailed, match="ended: no more"):
            process.read_line(ENOUGH_SECONDS)
        assert "no more\n" in process.errors()


def test_a_host_reports_its_facts(host: Host) -> None:
    facts = host.facts()
    release = host.run("uname", "-r", timeout=ENOUGH_SECONDS).text.strip()
    assert facts.kernel in (release, "")  # gVisor of 2022 does not say it in /proc
    assert facts.architecture == "x86_64"
    assert facts.operating_system.startswith("Debian GNU/Linux 12")
    assert facts.cpus >= 1
    assert facts.memory_bytes > 100 << 20


def _sleepers(host: Host, seconds: str) -> str:
    found = host.run("pgrep", "-x", "-f", f"sleep {seconds}", timeout=ENOUGH_SECONDS, check=False)
    assert found.exit_code == (0 if found.stdout else 1)
    return found.text


def _wait_for(host: Host, path: str) -> None:
    script = 'for try in $(seq 600); do [ -e "$1" ] && exit; sleep 0.1; done; exit 1'
    host.run("sh", "-c", script, "sh", path, timeout=ENOUGH_SECONDS)
