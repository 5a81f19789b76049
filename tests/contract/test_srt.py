"""Sandbox Runtime: a program in an instance has srt's filter and proxy, as the tools of an agent have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from own_testbed import spec_of
from waiting import ENOUGH_SECONDS

from tare.hosts.host import Host
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.technologies.srt import Srt

pytestmark = pytest.mark.machine

PORT = 16379
# The proxy wants a password, which only srt's own variables have.
REQUEST = r"""
exec 3<>/dev/tcp/127.0.0.1/3128
printf 'GET http://example.com/ HTTP/1.0\r\nHost: example.com\r\n\r\n' >&3
read -r answer <&3
echo "$answer"
"""


@pytest.fixture(scope="module")
def inside(testbed: RunContext) -> Iterator[Host]:
    if problems := Srt().problems(testbed.host):
        pytest.skip(problems[0].what)
    with start_stack(testbed, spec_of(testbed, Srt(), slot=41, port=PORT), TrialLog()) as found:
        instance = found[0].instance
        assert [each.kind for each in instance.cautions] == ["added-network"]
        assert instance.inside is not None
        yield instance.inside


def test_the_proxy_of_srt_answers_a_program(inside: Host) -> None:
    answer = inside.run("bash", "-c", REQUEST, timeout=ENOUGH_SECONDS).text
    assert answer.startswith("HTTP/1.1 407"), answer


def test_the_filter_refuses_unix_sockets_and_user_namespaces(inside: Host) -> None:
    socket = inside.run("redis-cli", "-s", "/run/none", "ping", timeout=ENOUGH_SECONDS, check=False)
    assert "Operation not permitted" in socket.text + socket.stderr.decode()
    refused = inside.run("unshare", "--user", "true", timeout=ENOUGH_SECONDS, check=False)
    assert "Operation not permitted" in refused.stderr.decode()
