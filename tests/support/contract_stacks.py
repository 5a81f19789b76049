"""Stacks and machine of the contract tests: what the environment asks for (tests/contract/conftest.py)."""

from __future__ import annotations

import os
import typing
from typing import Any

from marks import slow

from plug_ins import own
from tare.model.machine import SshTarget
from tare.plugins import registry
from tare.plugins.technology import Technology

_NAMED = os.environ.get("TARE_TEST_MACHINE", "")
ASKED = os.environ.get("TARE_TEST_TECHNOLOGIES", "native").split(",")
MACHINE = SshTarget(_NAMED, os.environ.get("TARE_TEST_SSH_CONFIG", "")) if _NAMED else None
# On the node of a cluster (tests/lab/cluster.py), the tests are of pods alone, one for each of these RuntimeClasses.
CLASSES = tuple(os.environ.get("TARE_TEST_CLASSES", "").split())
# Sandboxes that Debian does not package, and those that take long: `make test-sandboxes` has them in the contract, too.
_SANDBOXES = {"nsjail", "podman-rootless", "qemu-microvm-tcg", "sandlock", "srt", "youki"}
_LEFT_OUT = set() if os.environ.get("TARE_TEST_SANDBOXES") else _SANDBOXES


def variants(name: str) -> list[str]:
    """Name a technology once for each network that it can be given, such as `docker:bridge`; gVisor of today, too."""
    if name == "gvisor" and MACHINE is None:
        return ["gvisor", "gvisor:today"]
    if name == "containerd" and MACHINE is None:
        return ["containerd", "containerd:gvisor"]
    if name == "kubernetes":
        return [f"kubernetes:{each}" for each in CLASSES] or [name]
    network = typing.get_type_hints(registry.find("technologies", name)).get("network")
    return [f"{name}:{each}" for each in typing.get_args(network)] or [name]


def _has_the_contract(found: type[Technology]) -> bool:
    """Return whether these tests are for it.

    What the tests only meet as a stand-in, or in the lab, would be skipped everywhere by hundreds of tests, which says
    nothing: see tests/unit/technologies and tests/lab. Others say that their tests are elsewhere, as unikernels do,
    which have no inside. On a machine over SSH, those that are asked for.
    """
    if MACHINE:
        return found.family != "unikernel" and found.name in ASKED
    if CLASSES:
        return found.name == "kubernetes"
    return found.tested == "real" and found.tests_path == "tests/contract" and found.name not in _LEFT_OUT


TECHNOLOGIES = tuple(name for name, found in own("technologies").items() if _has_the_contract(found))
STACKS = tuple(stack for name in TECHNOLOGIES for stack in variants(name))
# Each technology once, for tests that do not depend on the network.
ONE_EACH = tuple(variants(name)[0] for name in TECHNOLOGIES)
# An emulated guest and LXD's daemon take half a minute.
LATE = {"lxd", "qemu-tcg"}


def mark_stacks(*further: str) -> list[Any]:
    """Return all stacks as parameters, with the mark `slow` for further networks and runtimes and for named stacks.

    None has it where the environment asks for each technology by its name.
    """
    return slow(STACKS, () if MACHINE or CLASSES else {*STACKS} - {*ONE_EACH} | {*further})
