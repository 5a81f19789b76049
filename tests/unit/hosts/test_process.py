from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS, comes_true, in_time, sleepers, wait_until
from waiting import ENOUGH_SECONDS as SECONDS

from tare.hosts.local import LocalHost
from tare.hosts.process import LocalProcess, execute, kill_tree, start_process
from tare.hosts.streams import last_lines
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import OutputLine

DAEMON = 'setsid sh -c \'(echo $$ > "$1"; exec sleep 70101) &\' sh "$1" >/dev/null 2>&1 &'
SPAWNING = """
import sys, time
from tare.hosts.process import start_process
with start_process(("sleep", sys.argv[1])) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""


def _is_there(seconds: int) -> bool:
    return bool(sleepers(seconds))


def _comes_true(seconds: int, there: bool) -> bool:
    """Wait until a sleeper runs or has ended: the child of a killed parent ends a moment later."""
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


def test_the_last_words_come_from_stdout_if_stderr_is_empty() -> None:
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
    with start_process(("sh", "-c", script, "sh", str(tmp_path / "words")), die_with_parent=True) as process:
        assert process.read_line(SECONDS).text == "up"
    assert (tmp_path / "words").read_text(encoding="ascii") == "ended in order\n"


def test_a_command_that_ignores_its_life_line_is_killed_after_a_while() -> None:
    with start_process(("sleep", "70106"), die_with_parent=True) as process:
        assert _comes_true(70106, there=True)
    assert not _is_there(70106)
    assert process.exit_code() == 128 + signal.SIGKILL


def test_lines_that_came_before_the_end_can_be_read_after_it() -> None:
    with start_process(("printf", "one\\ntwo\\r\\nth\\377ree")) as process:
        texts = [process.read_line(SECONDS).text for _ in range(3)]
        assert texts == ["one", "two", "th�ree"]
        with pytest.raises(TrialFailed, match="ended: no output"):
            process.read_line(SECONDS)


def test_a_line_knows_when_it_arrived() -> None:
    with start_process(("sh", "-c", "read -r word; echo one; read -r word; echo two")) as process:
        moments, lines = [time.monotonic()], []
        for _ in range(2):
            process.send("go on\n")
            lines.append(process.read_line(SECONDS))
            moments.append(time.monotonic())
    assert isinstance(lines[0], OutputLine)
    assert moments[0] < lines[0].seconds < moments[1] < lines[1].seconds < moments[2]


def test_a_program_that_is_not_there_ends_before_its_first_line() -> None:
    with (
        start_process(("no-such-program-anywhere",)) as process,
        pytest.raises(TrialFailed, match="no-such-program-anywhere"),
    ):
        process.read_line(SECONDS)


def test_the_exit_code_and_the_errors_are_known_after_the_block() -> None:
    with start_process(("sh", "-c", "read x; echo words >&2; exit 3"), die_with_parent=True) as process:
        assert process.exit_code() is None
    assert (process.exit_code(), process.errors()) == (3, "words\n")


def test_errors_keep_the_last_64_kibibytes() -> None:
    with start_process(("sh", "-c", "head -c 100000 /dev/zero >&2; echo last >&2; echo done")) as process:
        process.read_line(SECONDS)
        assert len(process.errors()) == 65536
        assert process.errors().endswith("last\n")


def test_a_tree_that_is_gone_already_is_no_error() -> None:
    kill_tree(4194305, "no tree has this mark")


def test_a_word_to_a_command_that_has_ended_fails() -> None:
    with start_process(("true",)) as process:
        while process.is_running():
            time.sleep(0.01)
        with pytest.raises(TrialFailed, match="takes no more input"):
            process.send("x\n")


def test_a_command_that_does_not_read_its_input_is_ended_despite_a_writer() -> None:
    def write(process: LocalProcess) -> None:
        with pytest.raises(TrialFailed, match="takes no more input"):
            process.send("x" * 1_000_000)

    with start_process(("sleep", "70102")) as process:
        writer = threading.Thread(target=write, args=(process,))
        writer.start()
        time.sleep(0.1)
    writer.join(SECONDS)
    assert not writer.is_alive()


def test_an_interrupt_in_the_middle_of_a_long_text_ends_the_input() -> None:
    with start_process(("sh", "-c", "sleep 0.5; wc -c")) as process:
        threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            process.send("x" * 1_000_000)
        assert int(process.read_line(SECONDS).text) < 1_000_000


# --- local -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [[], ["here"], ["here", "a/here", "a/b/here", "c/other"], ["a/b/c/here", "d/here"]])
def test_files_of_a_name_are_gathered_from_all_folders_below(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n", encoding="ascii")
    (tmp_path / "around").symlink_to(tmp_path)
    lines = LocalHost().read_matching(str(tmp_path), "here").splitlines()
    assert sorted(lines) == sorted(name for name in names if name.endswith("here"))


def test_a_folder_that_is_gone_has_nothing_to_gather(tmp_path: Path) -> None:
    assert LocalHost().read_matching(str(tmp_path / "gone"), "here") == ""


# --- the last output of a command in an error ------------------------------------------------------------------------

# Standard error of redis-benchmark with a server in protected mode: a warning, and a line of 1084 bytes.
REFUSED = Path(__file__).parents[2] / "samples/redis/protected-mode.txt"


def test_a_refusal_in_one_long_line_is_reported_from_its_beginning() -> None:
    with pytest.raises(TrialFailed) as failure:
        LocalHost().run("sh", "-c", 'cat "$1" >&2; exit 1', "sh", str(REFUSED), timeout=30)
    reason = str(failure.value)
    begins = "sh: exit code 1: Error from server: DENIED Redis is running in protected mode because protected mode is"
    assert reason.startswith(f"{begins} enabled and no password is set for the default user. In this mode connections")
    assert reason.endswith(" …")
    assert len(reason) == len("sh: exit code 1: ") + 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (" \n\n", ""),
        ("one\n", "one"),
        ("one\n\n  two\nthree\nfour\n", "two / three / four"),
        (f"{'a' * 299}\ntwo\n", "two"),  # its end alone would be misleading
        (f"one\n{'a' * 299}\nthree\n", "three"),
        (f"{'a' * 294}\ntwo\n", f"{'a' * 294} / two"),
        ("a" * 300, "a" * 300),
        (f"one\n{'a' * 301}", f"{'a' * 298} …"),
    ],
)
def test_the_last_lines_are_whole_or_have_their_beginning(text: str, words: str) -> None:
    assert last_lines(text) == words


FAILED = "docker: Error response from daemon: failed to create shim task: runc create failed: no such file"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Docker 20.10 and 28, as they wrote it here; the warning is Docker's of a kernel without swap limits.
        (f"{FAILED}\nSee 'docker run --help'.\n", FAILED),
        (f"{FAILED}\n\nRun 'docker run --help' for more information\n", FAILED),
        (
            f'{FAILED}\ntime="2026-11-28T08:00:00Z" level=error msg="error waiting for container: context canceled"\n',
            FAILED,
        ),
        (f"WARNING: Your kernel does not support swap limits\n{FAILED}\n", FAILED),
        (f"Unable to find image 'none' locally\n{FAILED}\n", FAILED),
        (f"Error: {'a' * 400}\nSee 'podman run --help'\n", f"Error: {'a' * 291} …"),
        ("Error: it has a list:\none\ntwo\n", "Error: it has a list: / one"),
        ("tool: unknown option\nTry 'tool --help' for more information.\n", "tool: unknown option"),
    ],
)
def test_an_engines_error_is_shown_without_what_follows_it(text: str, words: str) -> None:
    assert last_lines(text) == words


# --- a command on tare's streams: the receiver of the terminal's keys, and the restored terminal -------

CALL = (
    "import sys; from tare.hosts.process import run_interactive; sys.exit(run_interactive(sys.argv[2:], sys.argv[1]))"
)
BASH = ("env", "PS1=ready> ", "bash", "--norc", "-i")
_LINE = "stty sane; exec env 'PS1=ready> ' bash --norc -i"
OWN_TERMINAL = ("script", "--quiet", "--return", "--command", _LINE, "/dev/null")


@contextmanager
def on_terminal(*argv: str) -> Iterator[tuple[int, int]]:
    """Run Python on a new terminal; yield its PID and the test's end of the terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, (sys.executable, "-c", CALL, *argv))  # noqa: S606 - as a shell would
    try:
        yield child, terminal
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.close(terminal)


def until(terminal: int, words: str) -> str:
    seen, deadline = "", time.monotonic() + ENOUGH_SECONDS
    while words not in seen:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        try:
            seen += os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:  # the other end is gone
            return seen
    return seen


@pytest.mark.skipif(not shutil.which("script"), reason="script is not installed")
@pytest.mark.parametrize(("keys", "command"), [("shared", BASH), ("passed", OWN_TERMINAL)])
def test_a_shell_gets_every_key_and_an_interrupt_is_only_its_own(keys: str, command: tuple[str, ...]) -> None:
    with on_terminal(keys, *command) as (child, terminal):
        until(terminal, "ready> ")
        os.write(terminal, b"echo $((6 * 7))\n")
        assert "42\r\n" in until(terminal, "42\r\n")
        os.write(terminal, b"sleep 70108\n")
        wait_until(lambda: subprocess.run(("pgrep", "-fx", "sleep 70108"), check=False, capture_output=True).stdout)
        os.write(terminal, b"\x03")
        until(terminal, "ready> ")
        os.write(terminal, b"exit 5\n")
        until(terminal, "what nobody prints")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 5


def test_a_command_does_not_wait_for_keys_that_are_kept() -> None:
    with on_terminal("kept", "cat") as (child, terminal):
        until(terminal, "what nobody prints")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
