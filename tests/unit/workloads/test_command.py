"""A command of the user's: raw outputs of real runs on several stacks, how it is run, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import TypeAdapter
from setups import Inside, running_in, sample
from tare_fake.technology import FakeHost

from tare.hosts.exec import ENTRYPOINT
from tare.loads.user_load import UserMetric
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Caution, Output, RawOutput
from tare.runner.values import read_values
from tare.suites.suite import parse_suite
from tare.workloads.command import UserCommand

MEASURED = ("/usr/lib/tare/supervise", "--", "/usr/lib/tare/rusage")
LINE = "\ntare-rusage: wall 0.250000001 user 0.200000 system 0.012500 waited 0.030000 memory 1048576 exit 0\n"
RATE = UserMetric(name="rate", unit="events/s", better="higher", pattern=r"^ +events per second: +([0-9.]+)$")


def trial(name: str) -> tuple[RawOutput, ...]:
    """Return the raw output of a real trial, as a run folder has it."""
    return TypeAdapter(tuple[RawOutput, ...]).validate_json(sample(f"command/{name}.json"))


def values(workload: UserCommand, raw: RawOutput) -> dict[str, float]:
    return {value.metric: value.value for value in workload.parse((raw,))}


def raw(text: str, errors: str = "") -> RawOutput:
    return RawOutput("run", (*MEASURED, "bench"), text, 0.3, errors=errors)


def test_the_wall_time_of_a_command_has_its_cpu_share() -> None:
    shares = {value.metric: value.cpu_share for value in UserCommand("bench").parse((raw(f"done{LINE}"),))}
    time = shares["time"]
    assert time
    assert (time.had, time.wanted) == pytest.approx((0.85, 0.97))
    assert {shares[name] for name in ("user", "system", "memory")} == {None}


# --- what is read ----------------------------------------------------------------------------------------------------


def test_the_plan_lists_command_and_preparation_as_run_on_bare_metal() -> None:
    assert UserCommand().external_effects("in every instance") == ("in every instance: true",)
    assert UserCommand(("rm", "-r", "a b"), prepare="touch x").external_effects("inside") == (
        "inside: touch x",
        "inside: rm -r 'a b'",
    )


@pytest.mark.parametrize("text", ["", LINE, "no end", f"a line like ours{LINE}and more", "\0\ud7ff\r\n"])
def test_whatever_the_command_prints_the_last_line_counts(text: str) -> None:
    assert values(UserCommand(), raw(text + LINE))["time"] == 0.250000001


def test_user_metrics_are_the_headline_and_without_them_the_wall_time_is() -> None:
    mine = UserCommand(metrics=(RATE,))
    assert [metric.name for metric in UserCommand().all_metrics] == ["time", "user", "system", "memory"]
    assert [metric.name for metric in UserCommand().all_metrics if metric.headline] == ["time"]
    assert [metric.name for metric in mine.all_metrics] == ["rate", "time", "user", "system", "memory"]
    assert [metric.name for metric in mine.all_metrics if metric.headline] == ["rate"]


def test_a_run_without_the_users_metric_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="the pattern of rate does not match"):
        UserCommand(metrics=(RATE,)).parse((raw(f"events: 5{LINE}"),))


# --- commands that fail ----------------------------------------------------------------------------------------------


def failure(text: str, errors: str, code: int) -> TrialFailed:
    with pytest.raises(TrialFailed) as failed:
        UserCommand().parse((raw(text + LINE.replace("exit 0", f"exit {code}"), errors),))
    return failed.value


def test_an_unaccepted_exit_code_fails_the_trial_with_the_last_words() -> None:
    failed = failure("half a result\n", "first\nno such table\n", 3)
    assert str(failed) == "bench: exit code 3: first / no such table"
    assert failed.hint.endswith("other exit codes may be accepted: exit_codes = [0, 3]")
    assert str(failure("half a result\n", "", 3)) == "bench: exit code 3: half a result"
    assert str(failure("", "", 3)) == "bench: exit code 3: it printed nothing"


def test_an_exit_code_that_is_accepted_is_no_failure() -> None:
    accepted = UserCommand(exit_codes=(0, 3))
    assert values(accepted, raw(LINE.replace("exit 0", "exit 3")))["time"] == 0.250000001
    with pytest.raises(TrialFailed, match="exit code 0"):
        UserCommand(exit_codes=(3,)).parse((raw(LINE),))


@pytest.mark.parametrize(
    ("errors", "hint"),
    [
        ("/usr/bin/env: 'python3': No such file or directory\n", "the image has no python3: add the Debian package"),
        ("env: can't execute 'python3': No such file or directory\n", "the image has no python3: add the Debian"),
        ("sh: 1: python3: not found\n", "the image has no python3: add the Debian package that has it"),
        ("/srv/p.sh: line 3: jq: command not found\n", "the image has no jq: add the Debian package that has it"),
        (
            "/srv/p.py: No such file or directory\n",
            "the image lacks the program, or the interpreter that its first line",
        ),
        ("sh: exec: line 0: /opt/none: not found\n", "the image has no /opt/none: --file PATH puts a file"),
    ],
)
def test_a_program_that_the_image_lacks_is_named_with_the_way_to_add_it(errors: str, hint: str) -> None:
    failed = failure("", errors, 127)
    assert failed.hint.startswith(hint)
    assert "exit_codes" not in failed.hint


def test_a_program_missing_from_an_external_image_is_added_at_build_time() -> None:
    text = LINE.replace("exit 0", "exit 127")
    own = raw(text, "sh: python3: not found\n")
    with pytest.raises(TrialFailed) as failed:
        UserCommand().parse((replace(own, argv=(*own.argv[:3], ENTRYPOINT, *own.argv[3:])),))
    assert failed.value.hint == "the image has no python3: it is taken as it is, so build it with python3"


@pytest.mark.parametrize(
    ("errors", "hint"),
    [
        (
            "gzip: stdin: warning: file timestamp out of range\n",
            "`tare show` has the whole output; ",
        ),
        ("sh: can't open FILE: no such file\n", "--file PATH puts a file of this machine into the image"),
        ("cat: FILE: No such file or directory\n", "--file PATH puts a file of this machine into the image"),
        (
            "gzip: stdin: unexpected end of file\n",
            "it has no terminal, and nothing on its standard input: ",
        ),
        ("the input device is not a TTY\n", "it has no terminal, and nothing on its standard input: "),
        ("no data on stdin\n", "it has no terminal, and nothing on its standard input: "),
        ("", "it has no terminal, and nothing on its standard input; other exit codes may be accepted"),
    ],
)
def test_a_hint_speaks_of_standard_input_only_where_the_command_does(errors: str, hint: str) -> None:
    assert failure("", errors, 2).hint.startswith(hint)


@pytest.mark.parametrize(
    ("code", "errors"),
    [
        (126, "sh: 1: /srv/p: Permission denied\n"),
        (126, ""),
        (1, "cat: /etc/shadow: Permission denied\n"),
        (2, "sh: 1: cannot execute: required file not found\n"),
        (2, "cat: FILE: No such file or directory\n"),
    ],
)
def test_no_exit_code_is_accepted_with_which_nothing_is_measured(code: int, errors: str) -> None:
    hint = failure("", errors, code).hint
    assert "exit_codes" not in hint
    assert "`tare show` has the whole output" in hint


def test_a_signal_is_named_and_the_one_of_a_lack_of_memory_hints_at_it() -> None:
    failed = failure("", "", 137)
    assert str(failed) == "bench: ended by signal 9: it printed nothing"
    assert "it may want more memory than the instance has" in failed.hint
    assert str(failure("", "", 139)).startswith("bench: ended by signal 11: ")


@pytest.mark.parametrize("name", ["top", "stty", "tty"])
def test_a_command_that_needs_a_terminal_is_refused(name: str) -> None:
    (words,) = (each for each in trial("terminal") if each.argv[3] == name)
    with pytest.raises(TrialFailed) as failed:
        UserCommand().parse((words,))
    assert "it has no terminal, and nothing on its standard input" in failed.value.hint


# --- how it is run ---------------------------------------------------------------------------------------------------


def inside(*outputs: Output) -> Inside:
    """Return an inside that answers each run of the command with the next output; the last one stays."""
    left = [*(outputs or (Output((), 0, LINE.encode(), b"", 0.25),))]

    def answer(argv: tuple[str, ...]) -> str | Output:
        if argv[:3] != MEASURED:
            return ""
        return left.pop(0) if len(left) > 1 else left[0]

    return Inside(answer=answer)


def runs(workload: UserCommand, host: FakeHost | None, start: tuple[str, ...] = ()) -> tuple[RawOutput, ...]:
    return tuple(workload.measure(replace(running_in(host), start_command=start)))


def test_a_run_is_a_turn_and_as_many_count_as_begin_within_the_duration() -> None:
    found = runs(UserCommand("bench --quick 'two words'", duration=0.6, warm_up=2), host := inside())
    assert host.calls == 5 * [(*MEASURED, "bench", "--quick", "two words")]
    assert [each.warm_up for each in found] == [True, True, False, False, False]
    assert next(value.turns for value in read_values(UserCommand(), found)) == 3 * (0.250000001,)


def test_a_run_that_takes_longer_than_the_duration_counts_once() -> None:
    assert [each.warm_up for each in runs(UserCommand("bench", duration=0.1), inside())] == [True, False]


def test_short_runs_are_twenty_at_most() -> None:
    short = Output((), 0, LINE.encode(), b"", 0.001)
    assert sum(not each.warm_up for each in runs(UserCommand("bench", duration=60.0), inside(short))) == 20


def test_a_number_of_runs_counts_whatever_they_take() -> None:
    workload = UserCommand(("bench",), runs=3, duration=0.1, warm_up=0)
    assert [each.warm_up for each in runs(workload, inside())] == 3 * [False]
    assert (workload.rounds, workload.duration_setting) == (3, "runs")
    assert (UserCommand().rounds, UserCommand().duration_setting) == (20, "duration")
    assert [workload.estimate_seconds(), UserCommand().estimate_seconds()] == pytest.approx([0.6, 1.2])


def test_what_prepares_it_runs_before_each_run_and_does_not_count() -> None:
    found = runs(UserCommand("bench", prepare="sync -f /srv", runs=2, timeout=7.0), host := inside())
    assert host.calls == 3 * [("sync", "-f", "/srv"), (*MEASURED, "bench")]
    assert set(host.limits_seconds) == {7.0}
    assert [each.argv for each in found] == 3 * [(*MEASURED, "bench")]


def test_in_an_external_image_it_starts_as_told_and_keeps_its_name() -> None:
    workload = UserCommand("bench --quick", prepare="sync /srv", runs=1, warm_up=0, timeout=7.0)
    runs(workload, host := inside(), (ENTRYPOINT,))
    assert host.calls == [(ENTRYPOINT, "--only", "sync", "/srv"), (*MEASURED, ENTRYPOINT, "--", "bench", "--quick")]
    lacks = Output(
        (), 0, LINE.replace("exit 0", "exit 127").encode(), b"entrypoint: bench: No such file or directory\n", 0.1
    )
    with pytest.raises(TrialFailed, match=r"^bench: exit code 127: bench: No such file or directory$"):
        runs(UserCommand("bench"), inside(lacks), (ENTRYPOINT,))
    with pytest.raises(TimedOut, match=r"^bench: did not end within 1 min$"):
        runs(UserCommand("bench"), endless(), (ENTRYPOINT,))


def test_a_failure_ends_the_trial_with_the_first_run_that_shows_it() -> None:
    fails = Output((), 0, LINE.replace("exit 0", "exit 1").encode(), b"no disk\n", 0.1)
    host = inside(fails)
    with pytest.raises(TrialFailed, match="bench: exit code 1: no disk"):
        runs(UserCommand("bench"), host)
    assert len(host.calls) == 1


def test_a_command_that_cannot_be_started_has_the_reason_of_the_system() -> None:
    missing = Output((), 127, b"", b"rusage: bench: No such file or directory\n", 0.1)
    with pytest.raises(TrialFailed, match=r"^bench: No such file or directory$"):
        runs(UserCommand("bench"), inside(missing))


def test_more_output_than_a_run_folder_should_keep_fails_the_trial() -> None:
    most = Output((), 0, (600 << 10) * b"a" + LINE.encode(), (400 << 10) * b"b", 0.1)
    assert runs(UserCommand("bench", runs=1), inside(most))
    with pytest.raises(TrialFailed, match=r"^bench: it printed 1.1\d MiB, and a run folder keeps 1 MiB of each run$"):
        runs(UserCommand("bench"), inside(replace(most, stderr=(600 << 10) * b"b")))


def endless() -> Inside:
    """Return an inside where nothing ends."""

    def answer(argv: tuple[str, ...]) -> str:
        raise TimedOut(f"{argv[0]}: did not end", "", Output(argv, 124, b"so far", b"", 60.0))

    return Inside(answer=answer)


def test_a_command_without_an_end_fails_with_what_it_had_printed() -> None:
    with pytest.raises(TimedOut, match=r"^bench: did not end within 1 min$") as failed:
        runs(UserCommand("bench"), endless())
    assert failed.value.output is not None
    assert failed.value.output.stdout == b"so far"
    assert "no terminal" in failed.value.hint


def test_the_program_that_must_be_there_is_the_first_that_runs() -> None:
    assert UserCommand("bench --quick").programs == ("bench",)
    assert UserCommand("/srv/built", prepare="cp /opt/bench /srv/built").programs == ("cp",)


# --- what a suite says -----------------------------------------------------------------------------------------------


def planned(lines: str) -> UserCommand:
    text = f'[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "command"\n{lines}'
    workload = parse_suite(text, "mine.toml").workloads[0].workload
    assert isinstance(workload, UserCommand)
    return workload


def test_a_suite_has_a_command_as_a_line_or_as_words_and_metrics_as_tables() -> None:
    table = '[[workloads.metrics]]\nname = "iops"\npointer = "/jobs/0/read/iops"\nunit = "operations/s"\n'
    found = planned(f'command = ["fio", "a file"]\npackages = ["fio"]\nexit_codes = [0, 3]\n{table}better = "higher"\n')
    assert (found.command, found.packages, found.exit_codes) == (("fio", "a file"), ("fio",), (0, 3))
    assert [(each.name, each.pointer, each.unit) for each in found.metrics] == [
        ("iops", "/jobs/0/read/iops", "operations/s")
    ]
    assert planned("command = \"grep -c '|' 'a file'\"").command == "grep -c '|' 'a file'"


# --- real runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["native", "crun", "gvisor"])
def test_real_runs_of_sysbench_give_its_rate_and_what_it_used(stack: str) -> None:
    raws = trial(f"sysbench-{stack}")
    found = {value.metric: value for value in read_values(UserCommand(metrics=(RATE,)), raws)}
    assert found.keys() == {"rate", "time", "user", "system", "memory"}
    assert 0.05 < found["time"].value < 0.5
    assert found["user"].value + found["system"].value <= 1.5 * found["time"].value
    assert found["rate"].value > 100
    assert len(found["rate"].turns) == sum(not each.warm_up for each in raws)


def test_a_real_report_in_json_is_read_by_a_pointer() -> None:
    counted = [each for each in trial("fio") if not each.warm_up]
    iops = UserMetric(name="iops", unit="operations/s", better="higher", pointer="/jobs/0/read/iops")
    assert values(UserCommand(metrics=(iops,)), counted[0])["iops"] > 0


def test_a_real_result_on_standard_error_is_found_there() -> None:
    counted = trial("dd")[-1]
    rate = UserMetric(name="rate", unit="GB/s", better="higher", pattern=r", ([0-9.]+) [GM]B/s$")
    assert counted.errors.endswith("B/s\n")
    assert values(UserCommand(metrics=(rate,)), counted)["rate"] > 0


def test_a_command_that_succeeds_and_prints_an_error_has_a_caution() -> None:
    run = RawOutput("run", ("sh",), "", 1.0)
    assert UserCommand().find_cautions([run, replace(run, errors="\n")]) == ()
    [caution] = UserCommand().find_cautions([run, replace(run, errors="\nwords.txt: not found\nmore\n")])
    assert caution == Caution("printed-errors", "it succeeded and wrote to standard error: words.txt: not found")
