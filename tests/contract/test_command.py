"""A command of a user's on bare metal and in a container: what it used, what it finds, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from own_testbed import spec_of
from waiting import in_time

from tare.hosts.host import Host
from tare.loads.user_load import UserMetric
from tare.model.errors import TimedOut, TrialFailed
from tare.plugins.instance import Instance
from tare.plugins.technology import Technology
from tare.plugins.workload import MeasurementContext
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.technologies.crun import Crun
from tare.technologies.native import Native
from tare.workloads.command import UserCommand, read_usage

pytestmark = pytest.mark.machine

LARGE = "dd if=/dev/zero of=/dev/null bs=32M count=4 2>/dev/null"
SCRIPT = f'cat; tty; {LARGE}; sleep 70307 & echo "$1" "$HOME"; echo "rate: 12.5" >&2'
RATE = UserMetric(name="rate", better="higher", pattern="^rate: (.*)$")
COMMAND = UserCommand(("sh", "-c", SCRIPT, "sh", "two  words"), metrics=(RATE,), runs=2, warm_up=0)


@pytest.fixture(scope="module", params=[Native(), Crun()], ids=lambda each: each.name)
def instance(testbed: RunContext, request: pytest.FixtureRequest) -> Iterator[Instance]:
    technology: Technology = request.param
    with start_stack(testbed, spec_of(testbed, technology), TrialLog()) as (part,):
        yield part.instance


@pytest.fixture
def inside(instance: Instance) -> Host:
    assert instance.inside is not None
    return instance.inside


def test_a_command_is_measured_inside_and_what_it_leaves_is_ended(
    testbed: RunContext, instance: Instance, inside: Host
) -> None:
    raws = tuple(COMMAND.measure(MeasurementContext(instance, testbed.client, ())))
    found = {value.metric: value for value in read_values(COMMAND, raws)}
    assert read_usage(raws[0], (0,))[0] == "not a tty\ntwo  words /root\n"
    assert found["rate"].turns == (12.5, 12.5)
    assert all(0 < inside < each.seconds for inside, each in zip(found["time"].turns, raws, strict=True))
    assert 32 << 20 <= found["memory"].value < 64 << 20
    assert found["user"].value + found["system"].value > 0
    assert "sleep 70307" not in inside.run("ps", "-eo", "args", timeout=60).text.splitlines()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (UserCommand("no-such-program"), r"^no-such-program: No such file or directory$"),
        (UserCommand("/etc/passwd"), r"^/etc/passwd: Permission denied$"),
        (UserCommand("sh -c 'echo last words >&2; exit 3'"), r"^sh: exit code 3: last words$"),
        (UserCommand("sh -c 'kill -SEGV $$'"), r"^sh: ended by signal 11: "),
        (UserCommand("true", prepare="false"), r"^false: exit code 1: "),
        (replace(COMMAND, metrics=(replace(RATE, pattern="^speed: (.*)$"),)), "the pattern of rate does not match"),
    ],
)
def test_a_command_that_fails_fails_its_trial_with_its_words(
    testbed: RunContext, instance: Instance, changed: UserCommand, reason: str
) -> None:
    with pytest.raises(TrialFailed, match=reason):
        tuple(changed.measure(MeasurementContext(instance, testbed.client, ())))


def test_a_command_without_an_end_is_ended_with_its_children(
    testbed: RunContext, instance: Instance, inside: Host
) -> None:
    def run(seconds: float) -> None:
        endless = UserCommand("sh -c 'echo begun; sleep 70308 & sleep 70308'", timeout=0.3 * seconds)
        with pytest.raises(TimedOut, match=r"^sh: did not end within [0-9.]+ m?s$") as failed:
            tuple(endless.measure(MeasurementContext(instance, testbed.client, ())))
        assert failed.value.output is not None
        said.append(failed.value.output.text)
        assert "sleep 70308" not in inside.run("ps", "-eo", "args", timeout=60).text.splitlines()

    said: list[str] = []
    in_time(run, lambda: said[-1] == "begun\n")
