from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import comes_true, in_time, sleepers

from tare.errors import TimedOut, TrialFailed
from tare.hosts.process import LocalProcess, execute, kill_tree, started
from tare.model.trials import Line

DAEMON = 'setsid sh -c \'(echo $$ > "$1"; exec sleep 70101) &\' sh "$1" >/dev/null 2>&1 &'
SPAWNING = """
import sys, time
from tare.hosts.process import started
with started(("sleep", sys.argv[1])) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""


def _is_there(seconds: int) -> bool:
    return bool(sleepers(seconds))


def _comes_true(seconds: int, there: bool) -> bool:
    """Wait until a sleeper is there, or gone: a child of a killed parent ends a moment later."""
    return comes_true(lambda: _is_there(seconds) == there)


def test_input_that_nobody_reads_does_no_harm() -> None:
    assert execute(("true",), SECONDS, b"x" * (1 << 20)).exit_code == 0


def test_much_output_on_both_streams_does_not_block() -> None:
    output = execute(("sh", "-c", "head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero"), SECONDS)
    assert (len(output.stdout), len(output.stderr)) == (1000000, 1000000)


@pytest.mark.parametrize("redirected", ["", ">&2"])
def test_a_command_that_prints_without_end_is_ended_and_fills_no_memory(redirected: str) -> None:
    with pytest.raises(TrialFailed, match="sh: it printed more than 64 MiB, and was ended") as failed:
        execute(("sh", "-c", f"yes {redirected}; echo never"), 60.0)
    output = failed.value.output
    assert output is not None
    assert (output.stdout or output.stderr) == 32768 * b"y\n"


def test_a_program_that_cannot_be_executed_gives_126(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program", encoding="ascii")
    (tmp_path / "text").chmod(0o644)
    output = execute((str(tmp_path / "text"),), SECONDS, check=False)
    assert (output.exit_code, output.stderr) == (126, f"{tmp_path}/text: Permission denied\n".encode())


def test_failure_carries_the_command_as_its_hint() -> None:
    with pytest.raises(TrialFailed, match=r"^sh: exit code 7: it printed nothing$") as caught:
        execute(("sh", "-c", "exit 7"), SECONDS)
    assert caught.value.hint == "the command was: sh -c exit 7"


def test_the_last_words_are_of_standard_output_where_nothing_was_said_on_the_other() -> None:
    with pytest.raises(TrialFailed, match=r"^sh: exit code 1: .*b$"):
        execute(("sh", "-c", "echo a; echo b; exit 1"), SECONDS)


def test_a_time_out_kills_what_has_left_the_session_and_its_parents(tmp_path: Path) -> None:
    def run(seconds: float) -> None:
        with pytest.raises(TimedOut, match=rf"^sh: did not end within {seconds:g} s$"):
            execute(("sh", "-c", f"{DAEMON}\nexec sleep 70101", "sh", str(tmp_path / "pid")), seconds)
        assert not _is_there(70101)

    in_time(run, (tmp_path / "pid").exists)


def test_what_ignores_signals_is_killed_all_the_same() -> None:
    with pytest.raises(TimedOut):
        execute(("sh", "-c", "trap '' TERM INT HUP; while :; do sleep 70102; done"), 0.5)
    assert not _is_there(70102)


def test_an_interrupt_kills_the_tree_and_comes_through() -> None:
    # What Ctrl-C does: the signal's handler raises in the main thread, here while it waits for the command.
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        execute(("sh", "-c", "sleep 70103 & exec sleep 70103"), SECONDS)
    timer.join()
    assert not _is_there(70103)


def test_a_command_dies_with_a_parent_that_is_killed_outright() -> None:
    with subprocess.Popen([sys.executable, "-c", SPAWNING, "70105"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) > 0
        assert _comes_true(70105, there=True)
        parent.kill()
    assert _comes_true(70105, there=False)


def test_a_command_with_a_life_line_sees_it_end_with_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.hosts.process._ENDING_SECONDS", SECONDS)
    script = 'echo up; cat >/dev/null; echo ended in order > "$1"'
    with started(("sh", "-c", script, "sh", str(tmp_path / "words")), life_line=True) as process:
        assert process.read_line(SECONDS).text == "up"
    assert (tmp_path / "words").read_text(encoding="ascii") == "ended in order\n"


def test_a_command_that_does_not_watch_its_life_line_is_killed_after_a_while() -> None:
    with started(("sleep", "70106"), life_line=True) as process:
        assert _comes_true(70106, there=True)
    assert not _is_there(70106)
    assert process.exit_code() == 128 + signal.SIGKILL


def test_lines_that_came_before_the_end_can_be_read_after_it() -> None:
    with started(("printf", "one\\ntwo\\r\\nth\\377ree")) as process:
        texts = [process.read_line(SECONDS).text for _ in range(3)]
        assert texts == ["one", "two", "th�ree"]
        with pytest.raises(TrialFailed, match="ended: no output"):
            process.read_line(SECONDS)


def test_a_line_knows_when_it_arrived() -> None:
    with started(("sh", "-c", "read -r word; echo one; read -r word; echo two")) as process:
        moments, lines = [time.monotonic()], []
        for _ in range(2):
            process.send("go on\n")
            lines.append(process.read_line(SECONDS))
            moments.append(time.monotonic())
    assert isinstance(lines[0], Line)
    assert moments[0] < lines[0].seconds < moments[1] < lines[1].seconds < moments[2]


def test_a_program_that_is_not_there_ends_before_its_first_line() -> None:
    with (
        started(("no-such-program-anywhere",)) as process,
        pytest.raises(TrialFailed, match="no-such-program-anywhere"),
    ):
        process.read_line(SECONDS)


def test_the_exit_code_and_the_errors_are_known_after_the_block() -> None:
    with started(("sh", "-c", "read x; echo words >&2; exit 3"), life_line=True) as process:
        assert process.exit_code() is None
    assert (process.exit_code(), process.errors()) == (3, "words\n")


def test_errors_keep_the_last_64_kibibytes() -> None:
    with started(("sh", "-c", "head -c 100000 /dev/zero >&2; echo last >&2; echo done")) as process:
        process.read_line(SECONDS)
        assert len(process.errors()) == 65536
        assert process.errors().endswith("last\n")


def test_a_tree_that_is_gone_already_is_no_error() -> None:
    kill_tree(4194305, "no tree has this mark")


def test_a_word_to_a_command_that_has_ended_fails() -> None:
    with started(("true",)) as process:
        while process.running():
            time.sleep(0.01)
        with pytest.raises(TrialFailed, match="takes no more input"):
            process.send("x\n")


def test_a_command_that_reads_nothing_is_ended_although_somebody_writes_to_it() -> None:
    def write(process: LocalProcess) -> None:
        with pytest.raises(TrialFailed, match="takes no more input"):
            process.send("x" * 1_000_000)

    with started(("sleep", "70102")) as process:
        writer = threading.Thread(target=write, args=(process,))
        writer.start()
        time.sleep(0.1)
    writer.join(SECONDS)
    assert not writer.is_alive()


def test_an_interrupt_in_the_middle_of_a_long_text_ends_the_input() -> None:
    with started(("sh", "-c", "sleep 0.5; wc -c")) as process:
        threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            process.send("x" * 1_000_000)
        assert int(process.read_line(SECONDS).text) < 1_000_000
