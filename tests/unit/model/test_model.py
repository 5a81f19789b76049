"""What packages fix is told by values, so that nothing has to read it out of a sentence."""

from __future__ import annotations

from tare.model.trial import Problem, combined_fix


def test_packages_that_mend_several_problems_are_named_once_in_one_command() -> None:
    problems = (Problem.fixed_by("no cc", "gcc", "libc6-dev"), Problem.fixed_by("no headers", "libc6-dev"))
    assert combined_fix(problems) == "apt-get install gcc libc6-dev"


def test_there_is_no_such_command_where_something_else_is_missing_too() -> None:
    assert combined_fix((Problem.fixed_by("no cc", "gcc"), Problem("no KVM", "turn it on"))) == ""
    assert combined_fix(()) == ""
