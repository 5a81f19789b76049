"""Values of a trial: fixes of problems by packages are told by values, and outputs that hold no value are marked."""

from __future__ import annotations

from tare.model.trial import Problem, RawOutput, combined_fix


def test_packages_that_mend_several_problems_are_named_once_in_one_command() -> None:
    problems = (Problem.from_packages("no cc", "gcc", "libc6-dev"), Problem.from_packages("no headers", "libc6-dev"))
    assert combined_fix(problems) == "apt-get install gcc libc6-dev"


def test_there_is_no_such_command_where_something_else_is_missing_too() -> None:
    assert combined_fix((Problem.from_packages("no cc", "gcc"), Problem("no KVM", "turn it on"))) == ""
    assert combined_fix(()) == ""


def test_a_warm_up_keeps_its_output_and_throws_no_doubt_on_the_client() -> None:
    raw = RawOutput("run", ("load",), "rate: 7\n", 1.5, client_cpu=0.97, errors="slow")
    assert raw.as_warm_up() == RawOutput("run", ("load",), "rate: 7\n", 1.5, warm_up=True, errors="slow")
