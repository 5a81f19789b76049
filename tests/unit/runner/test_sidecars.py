"""Sidecar services: start in order, names of the other services, and failure of the trial when one ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import ClassVar

import pytest
from fakes import bare_context
from plain import Plain
from tare_fake.technology import Fake
from waiting import ENOUGH_SECONDS

from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.process import LocalProcess
from tare.model.errors import TrialFailed, Unavailable
from tare.model.image import ImageReference, ImageSpec
from tare.model.sidecar import Sidecar
from tare.model.trial import Output, RawOutput, Service, Value
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.runner.layers import PROBE
from tare.runner.sanity_checks import sidecar_cautions
from tare.runner.service import ServicePlacement
from tare.runner.sidecars import SidecarServices, add_host_names, group_by_instance
from tare.runner.trial import TrialRun
from tare.suites.plan import PlannedTrial

STEP = PlannedTrial("one", "shop", "fake", 0, 0)
DEBIAN = ImageSpec(packages=("memcached",))
OTHERS = ImageSpec(source=ImageReference("docker://", "redis"))


def sidecar(name: str, script: str = "sleep 600", image: ImageSpec = DEBIAN, ready: str = "") -> Sidecar:
    asks = ("sh", "-c", ready) if ready else ()
    return Sidecar(name, image, Service(("sh", "-c", script), 0, ready_argv=asks))


# --- names, and who shares an instance


def test_names_are_added_to_a_hosts_file_and_replace_existing_entries() -> None:
    text = "127.0.0.1\tlocalhost\n127.0.1.1 shop web # mine\n# web is under test\n"
    assert add_host_names(text, {"db": "198.18.0.73", "web": "198.18.0.10"}) == (
        "127.0.0.1\tlocalhost\n# web is under test\n198.18.0.73\tdb\n198.18.0.10\tweb\n"
    )
    assert add_host_names("::1 localhost", {"db": "198.18.0.73"}) == "::1 localhost\n198.18.0.73\tdb\n"


@pytest.mark.parametrize("text", ["", "# 127.0.0.1 localhost\n", "127.0.0.1 db localhost\n"])
def test_a_file_without_localhost_gets_it_as_engines_write_it(text: str) -> None:
    lines = add_host_names(text, {"db": "198.18.0.73"}).splitlines()
    assert "127.0.0.1\tlocalhost" in lines
    assert lines[-1] == "198.18.0.73\tdb"


def test_only_services_from_debian_packages_share_an_instance() -> None:
    services = [sidecar("a"), sidecar("b", image=OTHERS), sidecar("c"), sidecar("d", image=OTHERS)]
    assert [[each.name for each in group] for group in group_by_instance(services)] == [["a", "c"], ["b"], ["d"]]


def test_a_service_has_its_environment_beside_that_of_its_image() -> None:
    service = Service(("app", "-x"), 80, ready_argv=("ping",), environment=("A=b", "C=d"))
    debian, others = ServicePlacement(LocalHost(), "::1"), ServicePlacement(LocalHost(), "::1", ("start",))
    assert debian.argv(service) == ("env", "A=b", "C=d", "app", "-x")
    assert debian.readiness_argv(service) == ("env", "A=b", "C=d", "ping")
    assert others.argv(service) == ("start", "--set", "A=b", "--set", "C=d", "--", "app", "-x")
    assert others.readiness_argv(service) == ("start", "--set", "A=b", "--set", "C=d", "--only", "ping")
    assert debian.argv(Service(("app",), 80)) == ("app",)


@pytest.mark.parametrize(
    ("client", "server", "warns"), [(0.99, 0.5, True), (0.99, None, True), (0.99, 0.99, False), (0.5, 0.5, False)]
)
def test_the_client_side_was_the_bottleneck_if_only_it_was_busy(
    client: float, server: float | None, warns: bool
) -> None:
    assert [each.kind for each in sidecar_cautions(client, server)] == ["client-bound"] * warns
    assert sidecar_cautions(None, server) == ()


# --- a trial


@dataclass(frozen=True)
class Folder(LocalHost):
    """This machine as an inside or a client, whose hosts file is in a folder of the test."""

    hosts: Path = Path("/nowhere")

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if argv == (SUPERVISE, "--limits"):
            return Output(argv, 0, b"cpus: 1\n", b"", 0.0)
        return super().run(*argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[LocalProcess]:
        return super().spawn(*(("echo", "answered") if argv[0] == PROBE else argv), die_with_parent=die_with_parent)

    def read(self, path: str) -> str:
        return self.hosts.read_text(encoding="utf-8") if path == "/etc/hosts" else super().read(path)

    def put(self, source: Path, target: PurePosixPath) -> None:
        assert str(target) == "/etc/hosts"
        self.hosts.write_bytes(source.read_bytes())


@dataclass(frozen=True)
class Reachable(Fake):
    """A fake whose inside is this machine, at another address."""

    file: Path = Path("/nowhere")
    address: str = "127.0.0.1"
    own_address: str = ""  # which the instance has inside, unless others reach it there

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        own_line = f"{self.own_address}\ttare\n" if self.own_address else ""
        self.file.write_text(f"127.0.0.1 localhost\n{own_line}")
        with super().launch(host, launch) as instance:
            yield replace(instance, inside=Folder(self.file), address=self.address)


@dataclass(frozen=True)
class Shop(Plain):
    """A service under test with sidecar services, whose load prints the known names and may end a service."""

    hostname: ClassVar[str] = "web"

    sidecars: tuple[Sidecar, ...] = ()
    pipe: str = ""
    names: tuple[str, ...] = ()
    after: tuple[str, ...] | None = None

    def service(self, listen: str) -> Service:  # noqa: ARG002 - it never listens
        return Service(("sleep", "600"), 1, names=self.names, after=self.after)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        if self.pipe:
            Path(self.pipe).write_text("end\n", encoding="utf-8")
        yield from super().measure(setup)


def bed_in(folder: Path) -> RunContext:
    testbed = bare_context(folder, LocalHost())
    sidecars = dict.fromkeys((DEBIAN, OTHERS), testbed.images.main)
    return replace(testbed, client=Folder(), images=replace(testbed.images, sidecars=sidecars))


def attempt_of(folder: Path, workload: Workload, address: str = "127.0.0.1") -> TrialRun:
    context = bed_in(folder)
    attempt = TrialRun(context, STEP, context.create_spec(Reachable(file=folder / "tested", address=address)), workload)
    attempt._sidecars = SidecarServices(plain_technology=Reachable(file=folder / "plain", address="127.0.0.2"))
    return attempt


def test_all_services_find_each_other_by_name(tmp_path: Path) -> None:
    with attempt_of(tmp_path, Shop((sidecar("db"), sidecar("log")))) as attempt:
        attempt.start()
        attempt.measure_from(0)
        attempt.run_turn(0, time.monotonic())
        attempt.end()
        trial, _ = attempt.to_finished_trial()
    assert (trial.reason, trial.status) == ("", "ok"), trial.reason
    tested, plain = ((tmp_path / name).read_text().splitlines() for name in ("tested", "plain"))
    assert tested == ["127.0.0.1 localhost", "127.0.0.2\tdb", "127.0.0.2\tlog", "127.0.0.1\tweb"]
    assert plain == ["127.0.0.1 localhost", "127.0.0.2\tdb", "127.0.0.2\tlog", "127.0.0.1\tweb"]


def test_a_service_starts_when_the_one_before_it_is_ready(tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    first = sidecar("first", f"sleep 0.1; touch {mark}; sleep 600", ready=f"test -e {mark}")
    second = sidecar("second", f"test -e {mark} || exit 1; sleep 600", ready="true")
    with attempt_of(tmp_path, Shop((first, second))) as attempt:
        attempt.start()
        assert [server.failure_reason() for server in attempt._sidecars.servers] == ["", ""]
        assert attempt.log.status == "ok"


def test_a_service_waits_for_those_that_it_names_and_the_load_for_all(tmp_path: Path) -> None:
    mark, begun = tmp_path / "ready", tmp_path / "begun"
    # The first one is ready when the second one runs, which names nobody. The third one follows the service under test.
    first = sidecar(
        "first", f"until test -e {begun}; do sleep 0.01; done; touch {mark}; sleep 600", ready=f"test -e {mark}"
    )
    second = sidecar("second", f"test -e {mark} && exit 1; touch {begun}; sleep 600")
    third = sidecar("third", f"test -e {mark} || exit 1; sleep 600")
    second = replace(second, service=replace(second.service, after=()))
    third = replace(third, service=replace(third.service, after=("first", "web")), follows_tested=True)
    with attempt_of(tmp_path, Shop((first, second, third), after=())) as attempt:
        attempt.start()
        assert [server.failure_reason() for server in attempt._sidecars.servers] == ["", "", ""]
        assert (attempt.log.reason, attempt.log.status) == ("", "ok")
        assert [server.service_name for server in attempt._sidecars.servers] == ["first", "second", "third"]


def test_a_readiness_command_that_hangs_is_repeated_after_its_time_limit(tmp_path: Path) -> None:
    again = tmp_path / "again"
    slow = sidecar("slow", ready=f"test -e {again} || {{ touch {again}; sleep 600; }}")
    slow = replace(slow, service=replace(slow.service, ready_timeout=0.2))
    with attempt_of(tmp_path, Shop((slow,))) as attempt:
        attempt.start()
        assert (attempt.log.reason, attempt.log.status) == ("", "ok")


def test_all_names_of_services_lead_to_them_and_its_own_to_its_own_address(tmp_path: Path) -> None:
    database = sidecar("db")
    database = replace(database, service=replace(database.service, names=("db-v1", "store.example.org")))
    workload = Shop((database,), names=("www",))
    with attempt_of(tmp_path, workload) as attempt:
        attempt.spec = replace(attempt.spec, stack=(Reachable(file=tmp_path / "tested", own_address="172.17.0.2"),))
        attempt.start()
        assert (attempt.log.reason, attempt.log.status) == ("", "ok")
    names = ["127.0.0.2\tdb", "127.0.0.2\tdb-v1", "127.0.0.2\tstore.example.org"]
    tested, plain = ((tmp_path / name).read_text().splitlines()[-5:] for name in ("tested", "plain"))
    assert tested == [*names, "172.17.0.2\tweb", "172.17.0.2\twww"]  # where it may listen
    assert plain == [*names, "127.0.0.1\tweb", "127.0.0.1\twww"]  # where others reach it


def test_a_service_without_sidecars_knows_its_own_name(tmp_path: Path) -> None:
    with attempt_of(tmp_path, Shop()) as attempt:
        attempt.start()
        assert (attempt.log.reason, attempt.log.status) == ("", "ok")
    assert (tmp_path / "tested").read_text().splitlines()[-1] == "127.0.0.1\tweb"


def test_one_that_does_not_become_ready_fails_the_trial_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.runner.service._MIN_COMMAND_SECONDS", ENOUGH_SECONDS)
    began = tmp_path / "began"
    script = f"echo still filling; touch {began}; sleep 600"
    slow = sidecar("slow", script, ready=f"until [ -e {began} ]; do sleep 0.01; done; echo no table; exit 3")
    slow = replace(slow, service=replace(slow.service, ready_seconds=0.3))
    with attempt_of(tmp_path, Shop((slow,))) as attempt:
        attempt.start()
        attempt.end()
        trial, raw = attempt.to_finished_trial()
    assert trial.status == "failed"
    assert trial.reason == "the service slow is not ready within 0.3 s; sh ended with 3: no table"
    assert ("service slow", "still filling") in [(each.label, each.text) for each in raw]


def test_a_trial_fails_if_a_sidecar_ends_even_if_its_values_are_good(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    log = sidecar("log", f"echo disk is full; read -r _ < {tmp_path / 'pipe'}")
    with attempt_of(tmp_path, Shop((sidecar("db"), log), str(tmp_path / "pipe"))) as attempt:
        attempt.start()
        attempt.measure_from(0)
        attempt.run_turn(0, time.monotonic())
        assert attempt.log.status == "ok"
        while not attempt._sidecars.failure_reason():
            time.sleep(0.01)
        attempt.end()
        trial, raw = attempt.to_finished_trial()
    assert (trial.status, trial.values) == ("failed", ())
    assert trial.reason.startswith(
        "the service log ended in the instance: it printed 'disk is full'; the load measured"
    )
    assert ("service log", "disk is full") in [(each.label, each.text) for each in raw]


@dataclass(frozen=True)
class Unreadable(Shop):
    """Its load prints nothing that can be read."""

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        raise TrialFailed(f"there is no number in {raw[0].text}", "look at it")


def test_sidecars_ended_by_the_trial_are_not_blamed_for_unreadable_output(tmp_path: Path) -> None:
    with attempt_of(tmp_path, Unreadable((sidecar("db"),))) as attempt:
        attempt.start()
        attempt.measure_from(0)
        attempt.run_turn(0, time.monotonic())
        attempt.end()
        trial, _ = attempt.to_finished_trial()
    assert (trial.status, trial.reason, trial.hint) == ("failed", "there is no number in 100", "look at it")


def test_one_that_ends_at_once_is_reported_before_the_load_begins(tmp_path: Path) -> None:
    with attempt_of(
        tmp_path, Shop((sidecar("db", "echo no memory >&2; exit 1", ready="sleep 0.05; false"),))
    ) as attempt:
        attempt.start()
        attempt.end()
        trial, _ = attempt.to_finished_trial()
    assert trial.reason.startswith("the service db ended in the instance: it printed 'no memory'")


def test_one_that_ends_for_lack_of_memory_is_reported_with_what_helps(tmp_path: Path) -> None:
    words = "app: Cannot allocate memory"
    with attempt_of(
        tmp_path, Shop((sidecar("db", f"echo '{words}' >&2; exit 1", ready="sleep 0.05; false"),))
    ) as attempt:
        attempt.start()
        attempt.end()
        trial, _ = attempt.to_finished_trial()
    assert words in trial.reason
    assert trial.hint.startswith("it may want more memory than the instance has: [limits] memory")


def test_an_instance_without_a_network_is_skipped(tmp_path: Path) -> None:
    shop = Shop((sidecar("db"),))
    with ExitStack() as exits, pytest.raises(Unavailable, match="an inside and a network"):
        SidecarServices().start(exits, bed_in(tmp_path), shop, Instance("one", None, "127.0.0.1", "tap", lambda: ()))
