from __future__ import annotations

import pytest
from called import Call

from tare.features.ab.measurement import Settings
from tare.features.ab.stacks import StackComparison, to_slug
from tare.model.errors import SuiteError

SETTINGS = Settings(margin=0.03, budget_seconds=60.0, timeout_seconds=60.0, prepare="rm -f /tmp/x", exit_codes=(0, 1))


def test_each_command_is_a_stack_of_one_technology() -> None:
    wanted = StackComparison("crun", {"old": "gzip -6 -c /f", "B": "cat /f | gzip -9"}, packages=("gzip",))
    suite = wanted.suite(SETTINGS, "60s", "3%")
    assert [stack.name for stack in suite.stacks] == ["old", "b"]
    assert {layer.name for stack in suite.stacks for layer in stack.layers} == {"crun"}
    assert suite.baseline == "old"
    assert [stack.override.command for stack in suite.stacks] == [(), ("/bin/sh", "-c", "cat /f | gzip -9")]
    (planned,) = suite.workloads
    assert getattr(planned.workload, "command") == ("gzip", "-6", "-c", "/f")  # noqa: B009 - of one plug-in
    assert getattr(planned.workload, "prepare") == ("/bin/sh", "-c", "rm -f /tmp/x")  # noqa: B009
    assert (suite.budget_seconds, suite.margin) == (60.0, 0.03)


def test_each_command_may_have_an_image() -> None:
    images = {"A": "docker-archive:/old.tar", "B": "docker-archive:/new.tar"}
    suite = StackComparison("crun", {"A": "true", "B": "true"}, images=images).suite(SETTINGS, "60s", "3%")
    assert suite.image.source is not None
    assert suite.image.source.name == "/old.tar"
    [source] = [stack.override.source for stack in suite.stacks if stack.override.source]
    assert source.name == "/new.tar"


def test_an_unknown_stack_is_refused() -> None:
    with pytest.raises(SuiteError, match="nosuch"):
        StackComparison("nosuch", {"A": "true", "B": "true"}).suite(SETTINGS, "60s", "3%")


def test_names_become_names_of_stacks() -> None:
    assert [to_slug(each) for each in ("A", "gzip -6", "v1.2", "Ä")] == ["a", "gzip-6", "v1.2", "x"]


@pytest.mark.parametrize(("words", "what"), [
    (("--on", "crun", "--env-a", "X=1"), "--env-a is for commands on this machine"),
    (("--on", "crun", "--input", "/etc/passwd"), "--input is for commands on this machine"),
    (("--from", "x.tar"), "--from and --package are for commands in stacks"),
    (("--on", "nosuch"), "nosuch"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(words: tuple[str, ...], what: str, call: Call) -> None:
    assert what in call("ab", "true", "true", *words, code=2).error[0]
