"""A container of each engine is found by its name, for `tare profile --container`: its processes, and no others."""

from __future__ import annotations

import pytest
from own_testbed import spec_of
from waiting import wait_until

from tare.features.advise.profiler.command import find_container
from tare.features.advise.profiler.recording import Target
from tare.hosts.local import LocalHost
from tare.plugins.technology import Technology
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.technologies.containerd.technology import Containerd
from tare.technologies.docker import Docker
from tare.technologies.podman import Podman

pytestmark = pytest.mark.machine


@pytest.mark.parametrize(
    "technology", [Docker(), Podman(), pytest.param(Containerd(), marks=pytest.mark.slow)], ids=lambda each: each.name
)
def test_a_container_is_found_by_its_name(testbed: RunContext, technology: Technology) -> None:
    with start_stack(testbed, spec_of(testbed, technology), TrialLog()) as (part,):
        inside = part.instance.inside
        assert inside is not None
        with inside.spawn("sleep", "70311"):
            found = find_container(LocalHost(), part.instance.name)
            wait_until(lambda: "sleep\x0070311\0" in commands(found))
        assert set(found.processes()) <= set(part.instance.processes())
    assert found.name == f"{part.instance.name} ({technology.title})"
    assert found.processes() == ()


def commands(target: Target) -> list[str]:
    return [LocalHost().read(f"/proc/{pid}/cmdline") for pid in target.processes()]
