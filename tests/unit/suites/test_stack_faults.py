"""Faults of stacks whose names have a word, and of those that only some machines and clients can have."""

from __future__ import annotations

import pytest
from shelf import REDIS, faults

STACK = '[suite]\nstacks = ["%s"]\n' + REDIS
BESIDE = "only a client on the same machine reaches its instances, but it is"
BOTH = "write [hosts.server] and [hosts.client], both with the ssh of that machine"


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        # what a machine that tare boots does not have, and what only a client beside it reaches
        (
            STACK % "pod-a/qemu",
            "suite.stacks[0]: pod-a cannot be in a machine that tare boots: it needs a cluster",
            'name a machine that can run it: [hosts.server] ssh = "root@HOST"',
        ),
        (
            STACK % "lender/qemu",
            "suite.stacks[0]: lender can only be the outermost layer",
            'the outer layer comes last: did you mean "qemu/lender"?',
        ),
        (
            STACK % "pod" + '[hosts.server]\nssh = "a"\n',
            f"suite.stacks: pod: {BESIDE} on another machine",
            BOTH,
        ),
        (
            STACK % "pod/lender",
            f"suite.stacks: pod/lender: {BESIDE} outside of lender",
            BOTH,
        ),
        # names with a word
        (STACK % "pdo-a", 'suite.stacks[0]: no stack named "pdo-a"', 'did you mean "pod-a"?'),
        (STACK % "pod_a", 'suite.stacks[0]: no stack named "pod_a"', 'did you mean "pod-a"?'),
        (STACK % "pod-", 'suite.stacks[0]: no stack named "pod-"', 'did you mean "pod"?'),
        (STACK % "docker-a", 'suite.stacks[0]: no stack named "docker-a"', 'did you mean "docker"?'),
        (
            STACK % "pod/cluster",
            "suite.stacks[0]: pod/cluster names cluster twice",
            "a technology can be in a stack once",
        ),
    ],
)
def test_a_fault_of_a_stack_says_what_to_write(text: str, what: str, hint: str) -> None:
    assert faults(text) == [(f"quick.toml: {what}", hint)]
