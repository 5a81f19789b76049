"""The ground of the contract tests: the real image, network and client, and an instance of every technology.

They are run on this machine, or on one over SSH that the environment names (docs/contributing.md):

    TARE_TEST_MACHINE=tare-lab-kvm TARE_TEST_SSH_CONFIG=… TARE_TEST_TECHNOLOGIES=crun,qemu pytest tests/contract/…
"""

from __future__ import annotations

import functools
import os
import shlex
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from calls import NothingLeft
from contract_stacks import ASKED, MACHINE, TECHNOLOGIES, mark_stacks, variants
from own_testbed import spec_of
from todays import TODAYS, todays_runsc, todays_shim
from waiting import ENOUGH_SECONDS as _PATIENCE_SECONDS

from plug_ins import own
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.hosts.local import isolate_mounts
from tare.images.image import ensure_image
from tare.images.recipes import client_recipe, guest_recipe
from tare.model.architecture import Architecture, this_architecture
from tare.model.image import Image
from tare.model.machine import Hosts
from tare.model.trial import LimitsSpec
from tare.plugins import registry
from tare.plugins.instance import Instance
from tare.plugins.technology import Technology
from tare.runner.context import RunContext, RunImages, TelemetryConfig
from tare.runner.layers import StartedLayers, start_stack
from tare.runner.machines import connect_machines, find_target_architecture, open_context
from tare.runner.trial_log import TrialLog
from tare.technologies.kubernetes.technology import Kubernetes

# Several pods are alive together on a node that may have two CPUs.
_LITTLE = {"container": {"resources": {"requests": {"cpu": "50m"}}}}
# What could be left on a machine over SSH; what engines make once and keep is their own.
# Without shells: tare's helpers on a machine over SSH are some, until the run ends.
_PROGRAMS = sorted(registry.process_names() - {"sh"})
_STATE = f"""
ip -o link | cut -d : -f 2
ip netns | cut -d ' ' -f 1
cut -d ' ' -f 2 /proc/mounts | grep -v '^/run/netns$'
find /sys/fs/cgroup -type d | grep -vE '/(docker|lxc.pivot)$'
ls /var/lib/tare/instances
ls /dev/mapper /run | grep tare-
losetup --list --noheadings
pgrep -l '^({"|".join(_PROGRAMS)})$'
{{ {"; ".join(map(shlex.join, sorted(registry.list_commands())))}; }} 2>/dev/null | grep -o 'tare-[^ ,]*'
true
"""
PORT = 16379


@pytest.fixture(scope="session")
def architecture() -> Architecture:
    """The architecture of the machine of the tests."""
    return find_target_architecture(MACHINE)


@pytest.fixture(scope="session")
def image(architecture: Architecture, request: pytest.FixtureRequest) -> Image:
    """The image of all usual workloads, for the machine of the tests."""
    if architecture is this_architecture():
        return typing.cast("Image", request.getfixturevalue("image"))
    return ensure_image(print, replace(guest_recipe(), architecture=architecture))


@pytest.fixture
def ledger(tmp_path: Path, image: Image) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "tare-test.jsonl")
    with made.open_setup_helper(image.root):
        yield made


@pytest.fixture(scope="session", autouse=True)
def _own_mounts() -> None:
    if os.geteuid():
        pytest.skip("only root can start containers, machines and networks")
    isolate_mounts()


@pytest.fixture(scope="session")
def testbed(image: Image, architecture: Architecture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunContext]:
    """The testbed of a run, made as `tare run` makes it; once, as each engine imports the image for it."""
    client = ensure_image(print, replace(client_recipe(), architecture=architecture))
    sampling = TelemetryConfig(tmp_path_factory.mktemp("run") / "telemetry")
    with (
        connect_machines(Hosts(MACHINE, MACHINE), (image,), 1) as hosts,
        open_context(hosts, RunImages(image, client), LimitsSpec(), sampling) as context,
    ):
        yield context


@pytest.fixture(scope="module")
def nothing_left(request: pytest.FixtureRequest, nothing_left: NothingLeft) -> NothingLeft:
    """Return a block after which the machine must be as it was before: the one that the instances are on."""
    if MACHINE is None:
        return nothing_left
    return functools.partial(_nothing_left_on, request.getfixturevalue("testbed").host)


@pytest.fixture(scope="module", params=mark_stacks())
def technology(request: pytest.FixtureRequest, testbed: RunContext) -> Technology:
    return _made(request.param, testbed.host)


@pytest.fixture(scope="module")
def every_usable(testbed: RunContext) -> tuple[Technology, ...]:
    """All technologies that run here without a build, once for each network that they can be given."""
    found = []
    for name, kind in own("technologies").items():
        for variant in sorted({*variants(name)} - {*TODAYS}) if kind.tested == "real" else ():
            with suppress(pytest.skip.Exception):
                made = _made(variant, testbed.host)
                found.append(replace(made, pod=_LITTLE) if isinstance(made, Kubernetes) else made)
    return tuple(found)


@pytest.fixture(scope="module")
def notes(technology: Technology) -> TrialLog:  # noqa: ARG001 - one for each
    """What is noted while the instance starts."""
    return TrialLog()


@pytest.fixture(scope="module")
def parts(testbed: RunContext, technology: Technology, notes: TrialLog) -> Iterator[StartedLayers]:
    """One instance of a technology, which answers the client, for all tests of a module."""
    with start_stack(testbed, spec_of(testbed, technology, port=PORT), notes) as found:
        yield found


@pytest.fixture(scope="module")
def instance(parts: StartedLayers) -> Instance:
    return parts[0].instance


@pytest.fixture
def start(testbed: RunContext, technology: Technology) -> Callable[[], AbstractContextManager[Instance]]:
    """Start an instance of the technology, as a trial does."""

    @contextmanager
    def one() -> Iterator[Instance]:
        with start_stack(testbed, spec_of(testbed, technology, port=PORT), TrialLog()) as found:
            yield found[0].instance

    return one


@pytest.fixture(scope="module", params=("local" if MACHINE is None else "ssh", "chroot", *TECHNOLOGIES))
def host(request: pytest.FixtureRequest, testbed: RunContext) -> Iterator[Host]:
    """Every host that there is: the machine itself, a chroot, and the inside of every technology."""
    with ExitStack() as stack:
        if request.param in ("local", "ssh"):
            yield testbed.host
        elif request.param == "chroot":
            yield testbed.client
        else:
            (found,) = stack.enter_context(
                start_stack(testbed, spec_of(testbed, _made(request.param, testbed.host), port=PORT), TrialLog())
            )
            assert found.instance.inside is not None
            yield found.instance.inside


@pytest.fixture(scope="module")
def round_trip_seconds(host: Host) -> float:
    """How long a host takes to run nothing: emulation takes a hundred times as long as bare metal."""
    return host.run("true", timeout=60).seconds


@pytest.fixture
def room(host: Host, tmp_path: Path) -> Iterator[str]:
    """A folder on the host, empty and gone after the test."""
    name = f"/tmp/{tmp_path.parent.name}-{tmp_path.name}"  # noqa: S108 - on the host, where there is no tmp_path
    host.run("mkdir", "-p", name, timeout=60)
    yield name
    host.run("rm", "-r", name, timeout=60)


@contextmanager
def _nothing_left_on(host: Host) -> Iterator[None]:
    def state() -> set[str]:
        return set(host.run("sh", "-c", _STATE, timeout=60).text.splitlines())

    before = state()
    yield
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (left := state() - before) and time.monotonic() < deadline:
        time.sleep(1)
    assert left == set()


@pytest.fixture(scope="module")
def usable(testbed: RunContext) -> Callable[[Technology], Technology]:
    """Return a technology back, or skip its test where it cannot run."""
    return functools.partial(_usable, testbed.host)


def _made(stack: str, host: Host) -> Technology:
    name, _, variant = stack.partition(":")
    return _usable(host, registry.find("technologies", name)(**_settings(name, variant)))


def _settings(name: str, variant: str) -> dict[str, str]:
    if variant == "today":
        return {"program": todays_runsc()}
    if name == "containerd" and variant:
        return {"runtime": todays_shim()}
    setting = "runtime_class" if name == "kubernetes" else "network"
    return {setting: variant} if variant else {}


def _usable(host: Host, technology: Technology) -> Technology:
    if MACHINE and technology.name not in ASKED:
        pytest.skip(f"{technology.name}: not asked for")
    if problems := technology.problems(host):
        words = f"{technology.name}: {'; '.join(problem.what for problem in problems)}"
        (pytest.fail if MACHINE else pytest.skip)(words)  # what was asked for there has to run
    return technology
