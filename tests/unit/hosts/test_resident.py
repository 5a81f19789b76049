"""Tests of the resident agent on this machine, with the program compiled as in the image."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path, PurePosixPath

import pytest
from busy import SPIN
from compiled import compiled
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import comes_true, sleepers, wait_until

from tare.hosts.exec import ExecHost, ensure_resident
from tare.hosts.host import CommandScope
from tare.hosts.local import LocalHost
from tare.hosts.resident import MAX_INPUT_BYTES, ResidentEnded, quote, unquote
from tare.hosts.ssh import unreachable_error
from tare.loads import turns
from tare.model.errors import TimedOut, TrialFailed, Unreachable
from tare.model.trial import OutputLine
from tare.runner.layers import CommandRecorder

BUSY = f'"{sys.executable}" -c "{SPIN}"; true'


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "supervise") / "supervise"


def _inside(program: Path, *prefix: str) -> ExecHost:
    host = ExecHost(LocalHost(), *prefix)
    host.supervisor = str(program)
    return host


@pytest.fixture
def host(program: Path) -> Iterator[ExecHost]:
    found = _inside(program)
    with ensure_resident(found):
        yield found


def _pid(host: ExecHost) -> int:
    """Return the PID of the resident agent, the grandparent of each command, whose parent is `supervise`."""
    return int(host.run("sh", "-c", 'cut -d " " -f 4 "/proc/$PPID/stat"', timeout=SECONDS).text)


def _is_there(seconds: int) -> bool:
    return bool(sleepers(seconds))


def _comes_true(seconds: int, there: bool) -> bool:
    return comes_true(lambda: _is_there(seconds) == there)


def test_any_bytes_are_quoted_as_visible_ones_and_come_back() -> None:
    generator = random.Random(1)  # noqa: S311 - no secret
    alike = b"=%.\n\r \t ab3DF25_~!"
    for length in [*range(200), 5000]:
        for data in (generator.randbytes(length), bytes(generator.choices(alike, k=length))):
            assert all(0x21 <= ord(letter) <= 0x7E for letter in quote(data))
            assert unquote(quote(data)) == data


def test_the_way_inside_is_gone_once(program: Path, tmp_path: Path) -> None:
    counted = _inside(program, "sh", "-c", 'echo x >> "$0"; exec "$@"', str(tmp_path / "ways"))
    with ensure_resident(counted):
        assert [counted.run("echo", str(number), timeout=SECONDS).text for number in range(5)] == [
            f"{number}\n" for number in range(5)
        ]
    assert (tmp_path / "ways").read_text() == "x\n"


def test_waiting_for_one_that_does_not_come_reports_its_last_words(program: Path) -> None:
    nobody = _inside(program, "sh", "-c", "echo no such instance >&2; exit 1")
    with nobody.start_resident() as resident, pytest.raises(ResidentEnded) as caught:
        resident.await_ready(SECONDS)
    assert caught.value.last_output == "no such instance"
    silent = _inside(program, "sh", "-c", "exec sleep 70213")
    with silent.start_resident() as resident, pytest.raises(TimedOut, match=r"did not answer within 0\.1 s"):
        resident.await_ready(0.1)


def test_a_resident_process_that_is_there_already_starts_all_commands(program: Path) -> None:
    inside = _inside(program, "false")
    with LocalHost().spawn(str(program), "--resident", die_with_parent=True) as process:
        with inside.attach_resident(lambda: nullcontext(process)), ensure_resident(inside):
            assert _pid(inside) == process.pid
        assert process.is_running()
        assert inside.resident is None
    assert process.exit_code() == 0


def test_where_that_has_ended_each_command_fails_with_its_last_words(program: Path) -> None:
    inside = _inside(program, "false")
    begin = ("sh", "-c", "echo its last words >&2; sleep 0.1")
    with LocalHost().spawn(*begin) as process, inside.attach_resident(lambda: nullcontext(process)):
        for _ in range(2):
            with pytest.raises(ResidentEnded, match="echo: its resident process ended: its last words"):
                inside.run("echo", timeout=SECONDS)


def test_the_exit_code_and_errors_of_a_process_are_known_after_its_block(host: ExecHost) -> None:
    with host.spawn("sh", "-c", "read x; echo words >&2; exit 3", die_with_parent=True) as process:
        assert process.exit_code() is None
    assert (process.exit_code(), process.errors()) == (3, "words\n")


def test_the_cpu_time_of_a_command_and_of_its_children_is_known(host: ExecHost) -> None:
    busy = host.run("sh", "-c", BUSY, timeout=SECONDS)
    idle = host.run("sleep", "0.3", timeout=SECONDS)
    assert busy.cpu_seconds is not None
    assert idle.cpu_seconds is not None
    own_seconds = float(busy.text)
    assert idle.cpu_seconds < 0.2 * own_seconds
    assert own_seconds <= busy.cpu_seconds <= min(1.5 * own_seconds, busy.seconds)


def test_a_mebibyte_passes_unchanged_both_ways_and_more_takes_the_old_way(host: ExecHost, tmp_path: Path) -> None:
    data = os.urandom(MAX_INPUT_BYTES)
    assert host.run("cat", timeout=SECONDS, input=data).stdout == data
    (tmp_path / "more").write_bytes(data + b"x")
    assert host.run("cat", timeout=SECONDS, input=tmp_path / "more").stdout == data + b"x"
    assert host.run("cat", timeout=SECONDS, input=data + b"x").stdout == data + b"x"


def test_a_command_that_prints_without_end_is_ended_and_fills_no_memory(host: ExecHost) -> None:
    with pytest.raises(TrialFailed, match="it printed more than 64 MiB, and was ended"):
        host.run("yes", timeout=SECONDS)
    assert host.run("echo", "well", timeout=SECONDS).text == "well\n"


def test_input_that_nobody_reads_does_no_harm(host: ExecHost) -> None:
    assert host.run("true", timeout=SECONDS, input=b"x" * MAX_INPUT_BYTES).exit_code == 0


def test_files_are_put_got_read_written_and_gathered(host: ExecHost, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "source").chmod(0o750)
    host.put(tmp_path / "source", PurePosixPath(tmp_path / "a file's $name"))
    assert (tmp_path / "a file's $name").stat().st_mode & 0o777 == 0o750
    host.get(PurePosixPath(tmp_path / "a file's $name"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == bytes(range(256)) * 100
    host.write(str(tmp_path / "name"), "words\n")
    assert (host.read(str(tmp_path / "name")), host.read(str(tmp_path / "nothing"))) == ("words\n", "")
    assert host.read_matching(str(tmp_path), "name") == "words\n"


def test_a_time_out_ends_the_whole_tree(host: ExecHost) -> None:
    with pytest.raises(TimedOut, match=r"^sh: did not end within 0\.3 s$"):
        host.run("sh", "-c", "setsid sleep 70211 & sleep 70211", timeout=0.3)
    assert not _is_there(70211)


def test_many_threads_use_it_at_once(host: ExecHost) -> None:
    def one(number: int) -> bool:
        data = str(number).encode() * 3000
        return host.run("cat", timeout=SECONDS, input=data).stdout == data

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(200)))


def test_a_started_command_takes_words_and_answers_in_lines(host: ExecHost) -> None:
    with host.spawn("sh", "-c", "while read -r word; do echo got $word; done") as process:
        before = time.monotonic()
        process.send("one\ntw")
        assert process.read_line(SECONDS).text == "got one"
        process.send("o\n")
        line = process.read_line(SECONDS)
        assert line.text == "got two"
        assert before < line.seconds < time.monotonic()
        assert process.is_running()
        with pytest.raises(TimedOut, match=r"^sh: printed nothing for 0\.05 s"):
            process.read_line(0.05)


def test_a_word_to_a_command_that_has_ended_fails(host: ExecHost) -> None:
    with host.spawn("true") as process:
        with pytest.raises(TrialFailed, match=r"^true: ended: no output"):
            process.read_line(SECONDS)
        with pytest.raises(TrialFailed, match=r"^true: takes no more input"):
            process.send("x\n")
        assert not process.is_running()


def test_reading_on_after_the_end_fails_with_the_last_words(host: ExecHost) -> None:
    with host.spawn("sh", "-c", "printf 'no end of line'; echo no more >&2; exit 1") as process:
        assert process.read_line(SECONDS).text == "no end of line"
        with pytest.raises(TrialFailed, match=r"^sh: ended: no more$"):
            process.read_line(SECONDS)
        assert process.errors() == "no more\n"


def test_a_command_with_a_life_line_ends_with_its_input(host: ExecHost, tmp_path: Path) -> None:
    script = 'echo up; cat > /dev/null; echo by itself > "$1"'
    with host.spawn("sh", "-c", script, "sh", str(tmp_path / "ended"), die_with_parent=True) as process:
        process.read_line(SECONDS)
    assert (tmp_path / "ended").read_text() == "by itself\n"


def test_lines_can_be_listened_to(host: ExecHost) -> None:
    heard: list[OutputLine | None] = []
    over = threading.Event()

    def listen(line: OutputLine | None) -> None:
        heard.append(line)
        if line is None:
            over.set()

    with host.spawn("sh", "-c", "echo one; read -r word; echo $word; exec >&-; sleep 70214") as process:
        time.sleep(0.1)  # the first line is there already
        process.listen(listen)
        process.send("two\n")
        wait_until(lambda: len(heard) == 2)
        os.kill(_pid(host), signal.SIGKILL)
        assert over.wait(SECONDS)
    assert [line.text if line else None for line in heard] == ["one", "two", None]


def test_a_host_behind_a_host_has_its_own_on_top(host: ExecHost, program: Path) -> None:
    behind = ExecHost(host, "env", "LAYER=two")
    behind.supervisor = str(program)
    with ensure_resident(behind):
        assert behind.run("sh", "-c", "echo $LAYER", timeout=SECONDS).text == "two\n"
        data = os.urandom(300_000)
        assert behind.run("cat", timeout=SECONDS, input=data).stdout == data
        with behind.spawn("cat") as process:
            process.send("through two\n")
            assert process.read_line(SECONDS).text == "through two"


def test_when_it_is_killed_all_who_wait_fail_at_once_and_what_ran_is_gone(host: ExecHost) -> None:
    number = _pid(host)
    with ThreadPoolExecutor(2) as pool, host.spawn("sleep", "70215") as process:
        waiting = [pool.submit(host.run, "sleep", "70215", timeout=2 * SECONDS) for _ in range(2)]
        wait_until(lambda: len(sleepers(70215)) == 3)
        threading.Timer(0.3, os.kill, (number, signal.SIGKILL)).start()
        for fails in (lambda: process.read_line(SECONDS), lambda: process.send("go\n")):
            with pytest.raises(ResidentEnded, match=r"^sleep: its resident process ended: it printed nothing$"):
                fails()
        # A program with turns adds its output to the error.
        message = "sleep: its resident process ended: it printed nothing; it printed ''"
        with pytest.raises(ResidentEnded, match=f"^{message}$") as failure:
            turns.ResidentProgram(process, ("sleep",), "done").run_turn("turn", "go", SECONDS)
        assert failure.value.output is not None
        for each in waiting:
            assert isinstance(each.exception(SECONDS), ResidentEnded)
            assert str(each.exception()) == "sleep: its resident process ended: it printed nothing"
    assert _comes_true(70215, there=False)


class Far(ExecHost):
    """Host whose connection is lost whenever its resident agent is lost, as over SSH."""

    def connection_error(self, last_output: str) -> TrialFailed:
        return unreachable_error("far.example", last_output)


def test_a_lost_connection_ends_every_wait_also_on_a_host_behind_it(program: Path) -> None:
    far = Far(LocalHost(), "sh", "-c", '"$@"; echo Connection reset by peer >&2', "sh")
    behind = ExecHost(CommandRecorder(far, []), "env")
    far.supervisor = behind.supervisor = str(program)
    message = r"^SSH to far\.example: Connection reset by peer$"
    with ensure_resident(far), ensure_resident(behind), ThreadPoolExecutor(2) as pool:
        with far.spawn("cat") as near, behind.spawn("cat") as inner:
            waiting = [pool.submit(host.run, "sleep", "70218", timeout=SECONDS) for host in (far, behind)]
            assert _comes_true(70218, there=True)
            os.kill(_pid(far), signal.SIGKILL)
            for process in (near, inner):
                with pytest.raises(Unreachable, match=message):
                    process.read_line(SECONDS)
                with pytest.raises(Unreachable, match=message):
                    process.send("go\n")
            for each in waiting:
                with pytest.raises(Unreachable, match=message):
                    each.result(SECONDS)
        assert behind.run("echo", "again", timeout=SECONDS).text == "again\n"


def test_the_end_of_the_block_asks_for_no_connection(program: Path) -> None:
    outputs: list[str] = []

    class Recorder(ExecHost):
        def connection_error(self, last_output: str) -> None:
            outputs.append(last_output)

    host = Recorder(LocalHost())
    host.supervisor = str(program)
    with ensure_resident(host):
        assert host.run("echo", "on", timeout=SECONDS).text == "on\n"
    assert outputs == []


def test_after_its_end_the_next_command_starts_another(host: ExecHost) -> None:
    number = _pid(host)
    with pytest.raises(TrialFailed, match="its resident process ended"):
        host.run("sh", "-c", 'kill -9 "$1"; sleep 600', "sh", str(number), timeout=SECONDS)
    assert _pid(host) != number


GARBAGE = (
    "hello",
    "ready\\nwhat is this",
    "ready\\nout",
    "ready\\nended 1 0",
    "ready\\nended 1 zero 0 0",
    "ready\\nsing 1 x",
)


def test_garbage_fails_what_waits(program: Path) -> None:
    def failed(number: int, prints: str) -> str:
        garbage = _inside(program, "sh", "-c", f"printf '{prints}\\n'; exec sleep {number}", "sh")
        with ensure_resident(garbage), pytest.raises(ResidentEnded) as caught:
            garbage.run("echo", timeout=SECONDS)
        assert not _is_there(number)
        return str(caught.value)

    numbers = range(70230, 70230 + len(GARBAGE))
    with ThreadPoolExecutor(len(GARBAGE)) as pool:  # each waits some seconds for its end
        found = pool.map(failed, numbers, GARBAGE)
        for text, prints in zip(found, GARBAGE, strict=True):
            words = prints.removeprefix("ready\\n")
            assert text.startswith(f"echo: its resident process ended: it printed '{words}'")


def test_nothing_is_left_when_the_block_is_over(program: Path) -> None:
    host = _inside(program)
    with ensure_resident(host):
        number = _pid(host)
    assert not Path(f"/proc/{number}").exists()
    assert host.resident is None
    assert host.run("echo", "without it", timeout=SECONDS).text == "without it\n"


def test_an_interrupt_ends_the_command_that_is_waited_for(host: ExecHost) -> None:
    threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        host.run("sleep", "70217", timeout=SECONDS)
    assert not _is_there(70217)
    assert host.run("echo", "on", timeout=SECONDS).text == "on\n"


# --- commands of a resident agent on this machine that end when their scope is cancelled -----------------------------

WHY = "ended, as its server has"


def test_waiting_for_a_command_ends_at_once_when_its_purpose_is_gone(host: ExecHost, tmp_path: Path) -> None:
    purpose = CommandScope()
    load = host.with_scope(purpose)
    with ThreadPoolExecutor(1) as pool:
        begun = tmp_path / "begun"
        waiting = pool.submit(load.run, "sh", "-c", 'echo $$ >"$1"; exec sleep 600', "sh", str(begun), timeout=SECONDS)
        wait_until(lambda: begun.exists() and begun.read_text())
        purpose.cancel(WHY)
        with pytest.raises(TrialFailed, match=rf"^sh: {WHY}$") as caught:
            waiting.result()
    assert not isinstance(caught.value, TimedOut)
    assert not Path(f"/proc/{begun.read_text().strip()}").exists()


def test_reading_its_lines_ends_too(host: ExecHost) -> None:
    purpose = CommandScope()
    with host.with_scope(purpose).spawn("sh", "-c", "echo begun; exec sleep 600") as process:
        assert process.read_line(SECONDS).text == "begun"
        threading.Timer(0.05, purpose.cancel, (WHY,)).start()
        with pytest.raises(TrialFailed, match=rf"^sh: {WHY}$"):
            process.read_line(SECONDS)
        assert not process.is_running()


def test_what_is_begun_later_is_ended_too_and_other_commands_go_on(host: ExecHost) -> None:
    purpose = CommandScope()
    load = host.with_scope(purpose)
    with host.with_scope(CommandScope()).spawn("sh", "-c", "read -r line; echo $line") as other:
        assert load.run("echo", "before", timeout=SECONDS).text == "before\n"
        purpose.cancel(WHY)
        purpose.cancel("a later reason")
        with pytest.raises(TrialFailed, match=rf"^sleep: {WHY}$"):
            load.run("sleep", "600", timeout=SECONDS)
        with pytest.raises(TrialFailed, match=rf"^sleep: {WHY}$"), load.spawn("sleep", "600"):
            pass
        assert host.run("echo", "after", timeout=SECONDS).text == "after\n"
        other.send("still there\n")
        assert other.read_line(SECONDS).text == "still there"
