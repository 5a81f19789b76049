"""Instances of all technologies, and two of each, are alive together: each answers for itself, and nothing is left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from calls import NothingLeft
from marks import slow
from own_testbed import spec_of
from waiting import ENOUGH_SECONDS

from tare.hosts.network import SLOTS
from tare.plugins import registry
from tare.plugins.instance import VOLUME
from tare.plugins.technology import READINESS_PORT, Technology
from tare.runner import extra_instances
from tare.runner.context import RunContext
from tare.runner.layers import PROBE, StartedLayer, start_stack
from tare.runner.trial_log import TrialLog
from tare.telemetry.processes import measure_proportional_memory

pytestmark = pytest.mark.machine

PORT = 16379  # where redis listens here, and the unikernels' own server
PATIENCE = "100"  # seconds: unikernels that ask their cards all the time leave the others little of the CPUs
REDIS = ("redis-server", "--port", str(PORT), "--protected-mode", "no", "--save", "", "--dbfilename")


@dataclass
class Group:
    """Instances that were started one after the other and are all alive, by their slots."""

    testbed: RunContext
    stack: ExitStack
    parts: list[StartedLayer] = field(default_factory=list)
    notes: list[TrialLog] = field(default_factory=list)

    def start(self, technology: Technology) -> None:
        """Start one more, in the next slot."""
        notes = TrialLog()
        spec = spec_of(self.testbed, technology, port=PORT, slot=len(self.parts))
        self.parts += self.stack.enter_context(start_stack(self.testbed, spec, notes))
        self.notes.append(notes)

    def serve(self, part: StartedLayer) -> None:
        """Run a server in one that has an inside; it knows the name of the instance."""
        instance = part.instance
        assert instance.inside is not None
        listen = (instance.address or "") if instance.network_path == "host" else "0.0.0.0"  # noqa: S104 - inside
        self.stack.enter_context(instance.inside.spawn(*REDIS, instance.name, "--bind", listen))
        self.testbed.client.run(PROBE, instance.address or "", str(PORT), PATIENCE, "connect", timeout=ENOUGH_SECONDS)

    @property
    def addresses(self) -> list[str]:
        return [part.instance.address or "" for part in self.parts]

    def ask(self, *argv: str) -> list[str]:
        """Run a command on the client once for each of them, with the address in place of ADDRESS."""
        client = self.testbed.client
        commands = ([address if word == "ADDRESS" else word for word in argv] for address in self.addresses)
        return [client.run(*command, timeout=ENOUGH_SECONDS).text.strip() for command in commands]


@pytest.fixture
def together(testbed: RunContext, nothing_left: NothingLeft) -> Iterator[Group]:
    """An empty group; nothing of it is left after the test."""
    with nothing_left(), testbed.cache, ExitStack() as stack:
        yield Group(testbed, stack)


def _copies(technology: Technology) -> tuple[Technology, ...]:
    """Return two; one of what an emulated processor boots, which takes its time."""
    emulated = technology.family == "emulator" or getattr(technology, "accelerator", "") == "tcg"
    return (technology,) if emulated else (technology, technology)


def _begins_late(technology: Technology) -> bool:
    """Return whether it may use all of a CPU from then on, as a unikernel does that asks its card all the time."""
    return technology.family == "unikernel"


@pytest.mark.slow
def test_instances_of_all_technologies_run_together_and_answer_separately(
    together: Group, every_usable: Sequence[Technology]
) -> None:
    for technology in every_usable:
        technology.prepare_image(together.testbed.host, together.testbed.images.main)
    wanted = [each for technology in sorted(every_usable, key=_begins_late) for each in _copies(technology)]
    assert len(wanted) <= SLOTS
    for technology in wanted:
        together.start(technology)
    names = [part.instance.name for part in together.parts]
    assert len(set(names)) == len(set(together.addresses)) == len(wanted)

    processes = [pid for part in together.parts for pid in part.instance.processes()]
    assert len(set(processes)) == len(processes)
    _each_says_when_it_began(together)
    _each_serves_its_own(together)
    _each_has_a_volume_of_its_own(together)


ALIKE = ("native", "docker", "runc", "youki", "podman", "lxc", "nspawn", "bubblewrap")


@pytest.mark.parametrize("name", ["crun", *slow(ALIKE, ALIKE)])
def test_an_instance_costs_among_five_what_it_costs_alone(
    together: Group, every_usable: Sequence[Technology], name: str
) -> None:
    bridged = [each for each in every_usable if each.network_path == "bridge"]
    kinds = [each for each in bridged if each.name in {"native", "crun", "docker"}]
    first = next((each for each in bridged if each.name == name), None)
    if first is None:
        pytest.skip(f"{name} cannot run here")
    together.start(first)
    together.serve(together.parts[0])
    alone = _settled(together.parts[0])
    for technology in [first, first, *kinds][:4]:  # its own files may be shared with its like alone
        together.start(technology)
        together.serve(together.parts[-1])
    among_five = _settled(together.parts[0])
    pids = together.parts[0].instance.processes()
    proportional, _ = measure_proportional_memory(together.testbed.host, together.testbed.images.main.root, pids)
    assert proportional is not None
    # Not exactly: programs of the host may begin to map the same libraries, and another Podman the same conmon (3 %).
    assert among_five == pytest.approx(alone, rel=0.05)
    # What Linux calls the proportional set size has become much less: the file pages of redis and its libraries.
    assert proportional < alone - 5_000_000


def _settled(part: StartedLayer) -> int:
    """Read the memory of an instance once it no longer changes: a server that answers is not done with its start."""
    before, deadline = 0, time.monotonic() + ENOUGH_SECONDS
    while time.monotonic() < deadline:
        memory_bytes = extra_instances.measure_layer_footprint(part).memory_bytes
        assert memory_bytes is not None
        if memory_bytes == pytest.approx(before, rel=0.001):
            return memory_bytes
        before = memory_bytes
        time.sleep(1)  # where others take the CPUs, it may stand still for less
    pytest.fail(f"it changes for {ENOUGH_SECONDS:g} s")


def _each_says_when_it_began(group: Group) -> None:
    """Knock at all of them again: what they say is what was heard while they were started, and of each only."""
    said = [text.split() for text in group.ask(PROBE, "ADDRESS", str(READINESS_PORT), PATIENCE)]
    assert {words[1] for words in said} == {"tare"}
    assert len({words[2] for words in said}) == len(said)
    for words, notes in zip(said, group.notes, strict=True):
        # Guests tell by their console when their user space began; others by this very answer, if their clock is ours.
        told = {mark.name: mark.seconds for mark in notes.marks}
        if "userspace" in told and "kernel" not in told:
            assert told["userspace"] == pytest.approx(int(words[2]) / 1e9, abs=1e-6)


def _each_has_a_volume_of_its_own(group: Group) -> None:
    """Write to all volumes, and then look into them: each has what was written to it and nothing else."""
    insides = [part.instance.inside for part in group.parts if registry.find("technologies", part.name).has_volumes]
    assert len(insides) > 1
    for number, inside in enumerate(insides):
        assert inside is not None
        inside.run("mkdir", f"{VOLUME}/{number}", timeout=ENOUGH_SECONDS)
    for number, inside in enumerate(insides):
        assert inside is not None
        found = inside.run("find", VOLUME, "-mindepth", "1", "-printf", "%f\n", timeout=ENOUGH_SECONDS).text.split()
        assert set(found) - {"lost+found"} == {str(number)}


def _each_serves_its_own(group: Group) -> None:
    """Run a server at the same port in each that has an inside; it tells a name that only this one was given."""
    expected = []
    for part in group.parts:
        expected.append(part.instance.name if part.instance.inside else "")
        if part.instance.inside:
            group.serve(part)
    redis = ("redis-cli", "-h", "ADDRESS", "-p", str(PORT))
    assert group.ask(*redis, "ping") == ["PONG"] * len(expected)
    for name, text in zip(expected, group.ask(*redis, "config", "get", "dbfilename"), strict=True):
        assert not name or text.split() == ["dbfilename", name]
