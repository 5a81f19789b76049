"""The ground of the contract tests: the real image, network and client, and an instance of every technology."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tare import plugins
from tare.cpus import place as placed
from tare.doctor.machine import read_cores
from tare.hosts.local import LocalHost, isolate_mounts, read_text
from tare.image import built_image
from tare.journal import Journal
from tare.launch import Technology
from tare.layers import Notes, Parts, Place, started
from tare.model import Host, Image, Instance, Limits
from tare.places import Reached, prepared_place

PORT = 16379
MEMORY_BYTES = 512 << 20
OPEN_FILES = 4096


def _variants(name: str) -> list[str]:
    """Name a technology once for each network that it can be given, such as `docker:bridge`."""
    network = typing.get_type_hints(plugins.find("technologies", name)).get("network")
    return [f"{name}:{each}" for each in typing.get_args(network)] or [name]


def _technologies() -> tuple[str, ...]:
    names = plugins.names("technologies")
    return tuple(name for name in names if not getattr(plugins.find("technologies", name), "hidden", False))


def _has_the_contract(found: type[Technology]) -> bool:
    """Tell whether these tests are for it.

    Unikernels have no inside, and tests of their own: test_unikernels.py, and tests/unit/test_own_image.py. What the
    tests only meet as a stand-in, or in the lab, would be skipped everywhere by hundreds of tests, which says nothing:
    see tests/unit/test_monitors.py, tests/unit/test_openstack.py and tests/lab/test_lab.py. libvirt is booted, with a
    daemon of the test's own, in tests/unit/test_monitors_boot.py.
    """
    return found.family != "unikernel" and found.tested == "real" and not found.name.startswith("libvirt")


TECHNOLOGIES = tuple(name for name in _technologies() if _has_the_contract(plugins.find("technologies", name)))


@pytest.fixture(scope="session", autouse=True)
def _own_mounts() -> None:
    if os.geteuid():
        pytest.skip("only root can start containers, machines and networks")
    isolate_mounts()


@pytest.fixture(scope="session")
def image(_own_mounts: None) -> Image:
    return built_image(print)


@pytest.fixture(scope="module")
def place(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The place of a run, made as `tare run` makes it."""
    allowed = os.sched_getaffinity(0)
    cores = [core for each in read_cores(read_text) if (core := tuple(cpu for cpu in each if cpu in allowed))]
    placement = placed(cores, 1)
    limits = Limits(placement.server, MEMORY_BYTES, OPEN_FILES)
    journal = Journal(tmp_path_factory.mktemp("run"))
    with prepared_place(Reached(), (image, None), limits, placement, journal) as found:
        yield found


@pytest.fixture(scope="module", params=[stack for name in TECHNOLOGIES for stack in _variants(name)])
def technology(request: pytest.FixtureRequest) -> Technology:
    return _usable(request.param)


@pytest.fixture(scope="module")
def notes(technology: Technology) -> Notes:  # noqa: ARG001 - one for each
    """What is noted while the instance starts."""
    return Notes()


@pytest.fixture(scope="module")
def parts(place: Place, technology: Technology, notes: Notes) -> Iterator[Parts]:
    """One instance of a technology, which answers the client, for all tests of a module."""
    with started(place, (technology,), PORT, notes) as found:
        yield found


@pytest.fixture(scope="module")
def instance(parts: Parts) -> Instance:
    return parts[0].instance


@pytest.fixture
def start(place: Place, technology: Technology) -> Callable[[], AbstractContextManager[Instance]]:
    """Start an instance of the technology, as a trial does."""

    @contextmanager
    def one() -> Iterator[Instance]:
        with started(place, (technology,), PORT, Notes()) as found:
            yield found[0].instance

    return one


@pytest.fixture(scope="module", params=("local", "chroot", *TECHNOLOGIES))
def host(request: pytest.FixtureRequest, place: Place) -> Iterator[Host]:
    """Every host that there is: this machine, a chroot, and the inside of every technology."""
    with ExitStack() as stack:
        if request.param == "local":
            yield LocalHost()
        elif request.param == "chroot":
            yield place.client
        else:
            (found,) = stack.enter_context(started(place, (_usable(request.param),), PORT, Notes()))
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


def _usable(stack: str) -> Technology:
    name, _, network = stack.partition(":")
    found: Technology = plugins.find("technologies", name)(**({"network": network} if network else {}))
    if problems := found.problems(LocalHost()):
        pytest.skip(f"{stack}: {'; '.join(problem.what for problem in problems)}")
    return found
