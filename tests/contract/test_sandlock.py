"""sandlock: a command is confined, whether the resident agent of `init` starts it or a second sandbox does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from own_testbed import spec_of
from waiting import ENOUGH_SECONDS

from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.plugins.technology import HOST_NAME, Technology
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.technologies.sandlock import Sandlock

pytestmark = pytest.mark.machine


@pytest.fixture(scope="module", params=[Sandlock()], ids=["sandlock"])
def technology(request: pytest.FixtureRequest) -> Technology:
    made: Technology = request.param
    return made


@pytest.fixture(scope="module", params=["agent", "second sandbox"])
def inside(request: pytest.FixtureRequest, technology: Technology, testbed: RunContext) -> Iterator[Host]:
    """The inside of an instance, reached through the agent of `init` or without it."""
    if problems := technology.problems(testbed.host):
        pytest.skip(problems[0].what)
    with start_stack(testbed, spec_of(testbed, technology), TrialLog()) as found:
        host = found[0].instance.inside
        assert isinstance(host, ExecHost)
        host.write("/srv/file", "of the instance")
        yield host if request.param == "agent" else ExecHost(host.outer, *host.prefix)


def test_a_command_has_the_filter_and_the_files_of_the_instance(inside: Host) -> None:
    status = inside.read("/proc/self/status")
    assert "\nNoNewPrivs:\t1\n" in status
    assert "\nSeccomp:\t2\n" in status
    assert inside.read("/srv/file") == "of the instance"
    assert inside.run("hostname", timeout=ENOUGH_SECONDS).text.strip() == HOST_NAME


@pytest.mark.parametrize(
    "forbidden",
    [
        "unshare --user true",  # by the seccomp filter
        "mount -t tmpfs none /mnt",
        "head -c 1 /proc/1/comm",  # by the supervisor, which hides the machine's processes
        "kill -0 1",  # by Landlock
    ],
)
def test_a_command_cannot_leave_the_sandbox(inside: Host, forbidden: str) -> None:
    output = inside.run("sh", "-c", forbidden, timeout=ENOUGH_SECONDS, check=False)
    assert output.exit_code != 0
    assert "not found" not in output.stderr.decode()
