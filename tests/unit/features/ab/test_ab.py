from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from called import Call
from waiting import wait_until

# Prints a time around 1 s with a deviation of 1 %: a command whose value the machine's load does not change.
NOISY = 'perl -e \'srand; print "v: ", {} * (1 + (rand() + rand() + rand() - 1.5) / 50), " s\\n"\''
METRIC = ("--metric", "v: {number} -> v s lower")


def noisy(seconds: float) -> str:
    return NOISY.format(seconds)


def test_a_slower_command_is_found_and_the_exit_code_says_so(call: Call) -> None:
    printed = call("ab", noisy(1.0), noisy(1.2), *METRIC, code=1)
    assert re.search(r"B takes (19|20|21)(\.\d)? % longer than A \[", printed.out)
    assert "slower" in printed.out


def test_a_faster_command_passes_unless_any_difference_fails(call: Call) -> None:
    assert re.search(
        r"B takes (19|20|21)(\.\d)? % less time than A \[", call("ab", noisy(1.0), noisy(0.8), *METRIC).out
    )
    assert "less time than A" in call("ab", noisy(1.0), noisy(0.8), *METRIC, "--fail-on", "different", code=1).out


def test_equal_commands_are_equivalent(call: Call) -> None:
    printed = call("ab", noisy(1.0), noisy(1.0), *METRIC, "--fail-on", "different,undecided")
    assert "B and A are equivalent within 3 %" in printed.out


def test_a_command_several_times_as_slow_is_described_by_a_factor(call: Call) -> None:
    printed = call("ab", noisy(1.0), noisy(3.0), *METRIC, code=1)
    assert re.search(r"B takes (2\.9|3\.0)\d times as long as A \[", printed.out)


def test_an_undecided_comparison_says_how_long_it_would_take(call: Call) -> None:
    words = ("ab", noisy(1.0), noisy(1.0), *METRIC, "--margin", "0.01%", "--budget", "1s")
    printed = call(*words, code=3)
    assert "Undecided: " in printed.out
    assert "the budget is used up" in printed.out
    call(*words, "--bisect", code=125)
    call(*words, "--fail-on", "undecided", code=1)


def test_wall_time_cpu_time_and_memory_are_compared(call: Call) -> None:
    document = call("ab", "sleep 0.002", "sleep 0.1", "--export", "json", code=1).document
    assert document["verdicts"] == {"B": "slower"}
    assert document["commands"] == {"A": "sleep 0.002", "B": "sleep 0.1"}
    assert document["exit_code"] == 1
    assert {cell["metric"] for cell in document["cells"]} == {"time", "cpu", "user", "system", "memory"}
    [time] = [cell for cell in document["cells"] if (cell["metric"], cell["command"]) == ("time", "B")]
    assert 1 < time["low"] < time["ratio"] < time["high"]
    assert time["usual"] == pytest.approx(0.1, rel=0.5)


def test_data_is_exported_as_csv_and_markdown(call: Call) -> None:
    words = ("ab", noisy(1.0), noisy(1.2), *METRIC, "-n", "old", "-n", "new")
    rows = list(csv.DictReader(io.StringIO(call(*words, "--export", "csv", code=1).out)))
    [row] = [each for each in rows if (each["metric"], each["command"]) == ("v", "new")]
    assert 1.1 < float(row["low"]) < float(row["high"]) < 1.3
    assert row["verdict"] == "slower"
    text = call(*words, "--export", "markdown", code=1).out
    assert text.startswith("### tare ab\n")
    assert "| v | new |" in text or "|  | new |" in text


def test_a_single_command_is_measured_and_compared_with_itself(call: Call) -> None:
    printed = call("ab", noisy(1.0), *METRIC)
    assert "A: v " in printed.out
    assert "compared with itself, it differs by " in printed.out
    assert "A again" in printed.out


def test_several_commands_are_each_compared_with_the_first(call: Call) -> None:
    printed = call("ab", noisy(1.0), noisy(1.5), noisy(1.2), *METRIC, code=1)
    assert printed.out.index("C takes") < printed.out.index("B takes")


def test_a_variable_and_a_folder_are_those_of_one_command(call: Call, tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "v").write_text("2")
    (tmp_path / "v").write_text("1")
    line = 'perl -e \'$_ = `cat v`; print "v: ", $_ * $ENV{X} * (1 + rand() / 100), " s\\n"\''
    words = ("ab", line, *METRIC, "--cwd-a", str(tmp_path))
    call(*words, "--env-a", "X=1", "--env-b", "X=1", "--cwd-b", str(tmp_path / "slow"), code=1)
    call(*words, "--env-a", "X=1", "--env-b", "X=2", "--cwd-b", str(tmp_path), code=1)
    call(*words, "--env-a", "X=1", "--env-b", "X=1", "--cwd-b", str(tmp_path))


@pytest.mark.parametrize("failing", ["false", "nosuchprogram"])
def test_git_bisect_skips_a_commit_whose_command_fails(call: Call, failing: str) -> None:
    printed = call("ab", "true", failing, "--bisect", code=125)
    assert printed.err.startswith("error: B: ")


def test_git_bisect_ends_if_the_good_version_fails(call: Call) -> None:
    assert call("ab", "false", "true", "--bisect", code=128).err.startswith("error: A: ")


def test_an_error_before_a_pipe_is_told(call: Call) -> None:
    printed = call("ab", "sleep 0.02", "nosuchprogram | sleep 0.02", "--budget", "500ms", code=None)
    assert re.search(r"warning: B succeeds, and prints an error: .*nosuchprogram.*\nhint: .*pipefail", printed.err)


def test_a_command_as_short_as_its_shell_keeps_the_time_of_the_shell(call: Call) -> None:
    printed = call("ab", "true", "true && true", "--budget", "2s", "--fail-on", "undecided", code=None)
    assert "B takes hardly longer than its shell" in printed.err
    assert "0 of 5" not in printed.out


def test_markdown_and_json_have_the_commands(call: Call) -> None:
    words = ("ab", noisy(1.0), noisy(1.2), *METRIC, "-n", "old|x", "-n", "new")
    printed = call(*words, "--export", "markdown", code=1)
    assert "change: from old\\|x" in printed.out
    assert "- new: perl -e" in printed.out
    assert "new takes" in printed.err


def test_a_computing_command_is_compared_by_cpu_time_and_has_its_wall_time(call: Call) -> None:
    line = "perl -e 'for my $i (1 .. {}) {{ $x += $i }}'"
    printed = call("ab", line.format(200_000), line.format(400_000), "--budget", "20s", code=None)
    if "by CPU" in printed.out:  # not where others take too much of the first block
        assert "mean wall time: A" in printed.out
    assert "slower" in printed.out


def test_a_command_that_also_waits_is_slower_than_one_that_computes(call: Call) -> None:
    compute = "perl -e 'for my $i (1 .. 200_000) { $x += $i }'"
    wait = "perl -e 'for my $i (1 .. 200_000) { $x += $i } select undef, undef, undef, 0.05'"
    assert "slower" in call("ab", compute, wait, "--budget", "20s", code=1).out


def test_prepare_runs_before_each_run_and_cleanup_once(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "file"
    line = f"sh -c 'rm {file} && echo v: 1 s'"
    call("ab", line, line, *METRIC, "--prepare", f"touch {file}", "--cleanup", f"echo x >> {tmp_path}/end", "--budget",
         "1s", code=None)  # fmt: skip
    assert (tmp_path / "end").read_text() == "x\n" * 2


@pytest.mark.parametrize(("words", "what", "code"), [
    ((), "no command is named", 2),
    (("true", "-n", "x", "-n", "y"), "there are 2 names for 1 command", 2),
    (("true", "--bisect"), "--bisect compares a known good version with the checkout, and there is one command", 2),
    (("true", "--on", "crun"), "--on compares commands, and there is one", 2),
    (("true", "nosuchprogram"), "B: there is no program nosuchprogram in PATH", 2),
    (("true", "true", "-n", "x", "-n", "x"), "-n x: the name is empty or not unique", 2),
    (("true", "true", "-n", "x", "-n", "y", "-n", "z"), "there are 3 names for 2 commands", 2),
    (("true", "true", "--margin", "3"), "--margin 3: a share needs its percent sign", 2),
    (("true", "true", "--budget", "3"), "--budget 3: a duration needs its unit", 2),
    (("true", "true", "--exit-codes", "a"), "--exit-codes a: not a list of numbers", 2),
    (("true", "true", "--fail-on", "worse"), "--fail-on worse: no such verdict", 2),
    (("true", "true", "--input", "/nonexistent"), "--input /nonexistent: there is no such file", 2),
    (("true", "true", "--env-b", "X"), "B: X is no variable", 2),
    (("true", "true", "--cwd-b", "/nonexistent"), "B: there is no folder /nonexistent", 2),
    (("true", "true", "--cpus", "100000"), "--cpus 100000: this process may use", 2),
    (("true", "true", "-n", ""), "-n : the name is empty or not unique", 2),
    (("true", "false"), "B: false: exit code 1 in its first run", 3),
    (("true", "sh -c 'kill -SEGV $$'"), "B: sh -c 'kill -SEGV $$': ended by signal 11 in its first run", 3),
    (("true", "sleep 1000", "--timeout", "200ms"), "B: sleep 1000 did not end within 0.2 s", 3),
    (("true", "true", "--prepare", "false"), "A: --prepare: false: exit code 1", 3),
    (("true", "true", "--metric", "v: {number} -> v s lower"), "v", 3),
])  # fmt: skip
def test_wrong_use_is_reported_in_two_lines(words: tuple[str, ...], what: str, code: int, call: Call) -> None:
    error, hint = call("ab", *words, code=code).error
    assert what in error
    assert len(hint) > 6


def test_a_command_that_consumes_its_input_fails_with_a_hint(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    error, hint = call("ab", f"rm {tmp_path}/file", "true", code=3).error
    assert "in a later run" in error
    assert "--prepare" in hint


def test_a_command_that_changes_a_named_file_is_told(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    printed = call("ab", f"truncate -s +1 {tmp_path}/file", "true", "--budget", "500ms", code=None)
    assert f"warning: A changed {tmp_path}/file, which its line names\nhint: " in printed.err


def test_a_process_left_behind_is_ended_and_told_once(call: Call) -> None:
    printed = call("ab", "sh -c 'sleep 1000 &'", "true", "--budget", "500ms", code=None)
    assert printed.err.count("A left processes behind") == 1


def test_an_interrupted_comparison_prints_what_it_has_and_leaves_nothing(tmp_path: Path) -> None:
    line = f"sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 0.2'"
    argv = (sys.executable, "-m", "tare", "ab", line, line, "--margin", "0.01%", "--budget", "1h")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) > 30)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "Undecided" in out
    assert "interrupted: " in out
    assert "Traceback" not in errors
    last = (tmp_path / "pids").read_text().split()[-1]
    wait_until(lambda: not Path(f"/proc/{last}").exists())
    assert os.getpid() != int(last)
