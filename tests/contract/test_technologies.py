"""The contract of a technology: each one is really run, and all of them run the same bytes within the same limits."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from own_testbed import VOLUME_BYTES, spec_of
from waiting import ENOUGH_SECONDS

from tare.hosts.cgroups import memory_limit_of, processes_below
from tare.hosts.facts import has_private_kernel
from tare.hosts.filesystems import begin_write_tracking, read_file_systems, read_used_file_systems
from tare.hosts.host import Host, HostCache
from tare.hosts.local import LocalHost
from tare.model.image import Image
from tare.model.observed_isolation import find_contradictions
from tare.model.trial import LimitsCheck
from tare.plugins import registry
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.technology import ENVIRONMENT, HOST_NAME, START_TIMEOUT_SECONDS, Technology
from tare.runner.context import RunContext
from tare.runner.extra_instances import measure_layer_footprint
from tare.runner.inside_check import Conditions, compare_conditions, parse_conditions, run_inspect
from tare.runner.layers import PROBE, StartedLayers, start_stack
from tare.runner.observe_isolation import observe_layer
from tare.runner.sanity_checks import limit_cautions, read_observed_limits
from tare.runner.trial_log import TrialLog
from tare.technologies.docker import Docker
from tare.technologies.native import Native
from tare.telemetry.kernel_files import read_files
from tare.telemetry.procfs import parse_process_times
from tare.telemetry.turn_usage import CpuUsage, IdleWatch, TurnBoundary, create_boundary

pytestmark = pytest.mark.machine

PORT = 16379  # the one that conftest's instances are given
COMPARED = (
    "/usr/lib/tare/dhrystone",
    "/usr/lib/tare/supervise",
    "/usr/bin/redis-server",
    "/usr/sbin/nginx",
    "/etc/passwd",
)
REDIS = ("redis-server", "--port", str(PORT), "--protected-mode", "no", "--save", "", "--bind")


@pytest.fixture
def processes(technology: Technology, instance: Instance) -> Callable[[], Sequence[int]]:
    """What finds the processes of the instance, which guests of Xen are not."""
    if technology.family == "type 1":
        pytest.skip("a hypervisor below the machine runs it, no process of the machine's")
    return instance.processes


def test_a_technology_that_can_run_reports_its_version(technology: Technology, testbed: RunContext) -> None:
    assert any(letter.isdigit() for letter in technology.version(testbed.host))


def test_a_process_inside_finds_the_declared_isolation_level_and_filter(
    technology: Technology, instance: Instance, testbed: RunContext
) -> None:
    inside, (level, reason) = _inside(instance), (technology.isolation.level, technology.isolation.reason)
    assert has_private_kernel(testbed.host, inside) == (level in {"user-space kernel", "own kernel"})
    if level == "shared kernel":  # a second kernel makes the filtered calls itself, outside of what the process sees
        status = inside.run("grep", "^Seccomp:", "/proc/self/status", timeout=ENOUGH_SECONDS).text
        assert status.split()[1] == ("0" if "no filter" in reason else "2")
        assert ("no filter" in reason) != ("seccomp filter" in reason)


def test_the_isolation_that_is_read_is_no_weaker_than_declared(
    technology: Technology, instance: Instance, testbed: RunContext
) -> None:
    inside = _inside(instance)
    found = observe_layer(technology.name, testbed.host, inside, instance.processes(), run_inspect(inside), HostCache())
    assert found.inside is not None
    assert found.inside.capabilities is not None
    assert found.landlock is not None or found.landlock_note == "refused"
    assert [*find_contradictions(technology.isolation, found)] == []


def test_every_stack_runs_the_same_bytes(instance: Instance, image: Image) -> None:
    lines = _print(instance, "sha256sum", *COMPARED).splitlines()
    own = [hashlib.sha256((image.root / name[1:]).read_bytes()).hexdigest() for name in COMPARED]
    assert [line.split()[0] for line in lines] == own


def test_the_limits_that_are_seen_are_those_that_were_asked_for(parts: StartedLayers, testbed: RunContext) -> None:
    seen = read_observed_limits(parts[0])
    assert (seen.cpus, seen.open_files) == (1, 4096)
    assert 0.85 * 512 * 2**20 <= (seen.memory_bytes or 0) <= 512 * 2**20
    assert limit_cautions(LimitsCheck(testbed.limits, seen)) == ()


@pytest.fixture
def _with_mounts(technology: Technology) -> None:
    if "mount *" in technology.expected_differences:
        pytest.skip("it hides its mounts from programs inside")


@pytest.mark.usefixtures("_with_mounts")
def test_workload_files_are_on_the_root_of_the_instance_and_not_in_memory(instance: Instance) -> None:
    own = [path for name in registry.names("workloads") for path in registry.find("workloads", name)().paths]
    paths = [*own, "/tmp/file", "/var/tmp/file", "/root/file"]  # noqa: S108 - where programs put theirs
    root, *used = read_file_systems(_inside(instance), ("/", *paths))
    assert "/srv/tare-nginx-file" in paths
    assert [(found.path, found.type, found.options) for found in used] == [
        (path, root.type, root.options) for path in paths
    ]
    assert root.type not in {"tmpfs", "ramfs"}
    assert not {"volatile", "fsync=volatile"} & set(root.options)  # fsync would do nothing


@pytest.mark.usefixtures("_with_mounts")
def test_file_systems_of_written_files_and_of_the_working_folder_are_found(instance: Instance) -> None:
    inside = _inside(instance)
    begin_write_tracking(inside)
    script = "sleep 0.1; mkdir -p /srv/a/b && touch /srv/a/b/file /run/file && touch /tmp/gone && rm /tmp/gone"
    inside.run("sh", "-c", script, timeout=ENOUGH_SECONDS)
    found = {each.path: each for each in read_used_file_systems(inside)}
    root, run = read_file_systems(inside, ("/", "/run/file"))
    assert {"/run", "/srv", "/tmp"} <= set(found)  # noqa: S108 - the instance's own
    assert not {"/srv/a", "/root", "/usr/lib/tare/begun"} & set(found)
    assert not found["/"].written  # commands run there, in every technology
    assert (found["/srv"].type, found["/tmp"].type, found["/run"].type) == (root.type, root.type, run.type)  # noqa: S108
    assert found["/srv"].written


def test_a_data_volume_is_empty_and_on_a_separate_file_system_with_room(
    technology: Technology, instance: Instance
) -> None:
    if not technology.has_volumes:
        pytest.skip("it gives none, and a workload that wants one is skipped")
    assert _list(instance, VOLUME) in ([], ["lost+found"])
    if found := read_file_systems(_inside(instance), (f"{VOLUME}/files",)):
        _print(instance, "mountpoint", VOLUME)
        assert found[0].type not in {"overlay", "tmpfs", "ramfs"}
    else:  # the mounts are hidden
        volume, above = _print(instance, "stat", "--format=%d", VOLUME, f"{VOLUME}/..").split()
        assert volume != above
    room = _print(instance, "df", "--block-size=1", "--output=avail", VOLUME).split()[-1]
    assert int(room) >= VOLUME_BYTES


def test_the_machine_holds_the_instance_to_a_memory_limit(
    instance: Instance, processes: Callable[[], Sequence[int]], testbed: RunContext
) -> None:
    limit = memory_limit_of(testbed.host, processes()[0])
    assert limit is not None
    # A virtual machine has its emulator beside the guest's memory, which has a limit of its own.
    assert limit <= (512 << 20) + (2 << 30) if instance.network_path == "tap" else limit == 512 << 20


def test_the_instance_runs_on_the_cpus_that_were_asked_for(
    technology: Technology, instance: Instance, testbed: RunContext
) -> None:
    asked = ",".join(map(str, testbed.limits.cpus))
    if technology.family == "type 1":
        assert instance.proof["CPUs by xl vcpu-list"] == asked
    elif _shares_the_kernel(instance, testbed.host):
        assert _cpus_allowed(_print(instance, "cat", "/proc/self/status")) == {asked}
    else:
        # What a runtime has outside of the group, such as a shim, runs where its daemon or its node lets it.
        group = instance.proof.get("control group")
        pids = processes_below(testbed.host, group) if group else instance.processes()
        threads = [testbed.host.read_matching(f"/proc/{pid}/task", "status") for pid in pids]
        assert _cpus_allowed("".join(threads)) == {asked}


def test_a_kernel_of_its_own_is_not_the_machines(instance: Instance, testbed: RunContext) -> None:
    own = not _shares_the_kernel(instance, testbed.host)
    assert has_private_kernel(testbed.host, _inside(instance)) is own
    assert has_private_kernel(testbed.host, Wordless(_inside(instance))) is own  # by when it was started, alone


@pytest.fixture(scope="module")
def bare_conditions(testbed: RunContext) -> Conditions:
    """The conditions of a process on bare metal."""
    with start_stack(testbed, spec_of(testbed, Native(), slot=40, port=PORT), TrialLog()) as found:
        return parse_conditions(run_inspect(_inside(found[0].instance)))


def test_a_process_has_the_same_conditions_as_on_bare_metal(
    technology: Technology, instance: Instance, bare_conditions: Conditions
) -> None:
    found = parse_conditions(run_inspect(_inside(instance)))
    assert found
    assert [str(each) for each in compare_conditions(found, bare_conditions, (technology,)) if not each.reason] == []


def test_the_environment_is_the_images_alone(instance: Instance) -> None:
    variables = _print(instance, "env", "-0").rstrip("\0").split("\0")
    assert sorted(each for each in variables if not each.startswith("TARE_RUN_")) == sorted(ENVIRONMENT)


def test_the_name_of_the_instance_is_resolved_at_once_to_an_address_of_it(
    technology: Technology, instance: Instance
) -> None:
    inside = _inside(instance)
    assert inside.run("hostname", timeout=ENOUGH_SECONDS).text.strip() == HOST_NAME
    if "host name in /etc/hosts" in technology.expected_differences:
        pytest.skip("it makes up the hosts file and the addresses")
    found = inside.run("getent", "ahostsv4", HOST_NAME, timeout=ENOUGH_SECONDS)
    assert found.seconds < 5  # a name server that cannot be reached takes 10 s
    address = found.text.split()[0]
    assert f" {address}/" in inside.run("ip", "-4", "address", timeout=ENOUGH_SECONDS).text
    assert not address.startswith("127.")
    assert inside.run("getent", "hosts", "no-such-name.test", timeout=5, check=False).exit_code == 2


def test_files_of_the_image_below_run_are_there(instance: Instance, image: Image) -> None:
    own = sorted(each.name for each in (image.root / "run").iterdir())
    assert set(own) <= set(_list(instance, "/run"))
    assert own


@pytest.fixture
def _other_users(technology: Technology) -> None:
    if reason := technology.expected_differences.get("other users"):
        pytest.skip(reason)


AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")


@pytest.mark.usefixtures("_other_users")
def test_every_user_may_listen_on_every_port(technology: Technology, instance: Instance) -> None:
    if "sysctl *" in technology.expected_differences and technology.family == "bare metal":
        pytest.skip("it uses the machine's network, whose settings stay as they are")
    inside = _inside(instance)
    server = "redis-server --port 80 --bind 127.0.0.1 --save '' --dir /tmp --daemonize yes"
    inside.run(*AS_NOBODY, "sh", "-c", server, timeout=ENOUGH_SECONDS)
    ping = "for each in $(seq 100); do redis-cli -p 80 ping && exit; sleep 0.1; done; exit 1"
    assert "PONG" in inside.run("sh", "-c", ping, timeout=ENOUGH_SECONDS).text
    inside.run("redis-cli", "-p", "80", "shutdown", "nosave", timeout=ENOUGH_SECONDS, check=False)


@pytest.mark.usefixtures("_other_users")
def test_setuid_programs_work_unless_the_technology_declares_otherwise(
    technology: Technology, instance: Instance
) -> None:
    _print(instance, "sh", "-c", "cp /usr/bin/id /srv/id && chmod 4755 /srv/id")
    user = _print(instance, *AS_NOBODY, "/srv/id", "--user").strip()
    assert user == ("65534" if "setuid" in technology.expected_differences else "0")


def test_the_client_runs_on_other_cpus(testbed: RunContext) -> None:
    status = testbed.client.run("cat", "/proc/self/status", timeout=ENOUGH_SECONDS).text
    assert _cpus_allowed(status) == {",".join(map(str, testbed.hosts.placement.client))}
    assert testbed.hosts.placement.cautions or not set(testbed.hosts.placement.client) & set(testbed.limits.cpus)


def test_the_start_has_its_moments_in_their_order(instance: Instance, notes: TrialLog) -> None:
    moments = {mark.name: mark.seconds for mark in notes.marks}
    order = ("requested", "started", "scheduled", "sandbox", "kernel", "userspace", "ready")
    names = [name for name in order if name in moments]
    assert {"requested", "started", "ready"} <= set(names)
    assert [moments[name] for name in names] == sorted(moments[name] for name in names)
    # containerd reports a container that may have answered by then, and the cluster hears of it last.
    assert set(moments) - set(order) in (set(), {"container", "reported"})
    assert 0 < moments["ready"] - moments["requested"] < START_TIMEOUT_SECONDS
    assert instance.name.startswith("tare-")


@pytest.mark.usefixtures("instance")
def test_a_virtual_machine_reports_when_its_kernel_and_user_space_started(
    technology: Technology, notes: TrialLog
) -> None:
    names = {mark.name for mark in notes.marks}
    if technology.network_path == "tap":
        assert {"kernel", "userspace"} <= names
    else:
        assert "kernel" not in names


def test_the_processes_of_the_instance_are_there_and_cost_memory(
    parts: StartedLayers, processes: Callable[[], Sequence[int]], testbed: RunContext
) -> None:
    pids = processes()
    assert pids
    assert [pid for pid in pids if not testbed.host.read(f"/proc/{pid}/stat")] == []
    assert not isinstance(testbed.host, LocalHost) or os.getpid() not in pids
    found = measure_layer_footprint(parts[0])
    assert (found.memory_bytes or 0) > 50_000
    assert found.processes >= 1
    assert found.disk_bytes is not None


def test_an_instance_still_starts_programs_after_repeated_pauses(
    instance: Instance, testbed: RunContext, processes: Callable[[], Sequence[int]]
) -> None:
    """A runtime may take a signal to one of its processes for its end, as gVisor does."""
    quiet = IdleWatch(testbed.host, processes)
    quiet._share = 1.0  # it did not rest
    edges = TurnBoundary(testbed.host, CpuUsage(testbed.limits.cpus), quiet)
    for _ in range(6):
        edges.begin_turn()
        edges.end_turn(0.0)
        time.sleep(0.05)
    edges.resume()
    for _ in range(3):
        assert _print(instance, "sh", "-c", "sleep 0.01; echo on") == "on\n"


def test_writes_inside_count_as_disk_except_on_the_data_volume(technology: Technology, instance: Instance) -> None:
    before = _disk_with(instance, "")
    after = _disk_with(instance, "/var/written")
    assert after - before > 4 << 20
    if technology.has_volumes:
        assert _disk_with(instance, f"{VOLUME}/written") - after < 4 << 20


def test_computation_inside_is_cpu_time_of_the_processes_of_the_instance(
    instance: Instance, processes: Callable[[], Sequence[int]], testbed: RunContext
) -> None:
    spin = ("timeout", "120", "sh", "-c", "while :; do :; done")
    before = _cpu_seconds(testbed.host, processes())
    with _inside(instance).spawn(*spin):
        deadline = time.monotonic() + ENOUGH_SECONDS
        while (used := _cpu_seconds(testbed.host, processes()) - before) < 0.5 and time.monotonic() < deadline:
            time.sleep(0.1)
    assert used >= 0.5


def test_a_turn_has_its_cpu_time_and_what_another_process_took(
    instance: Instance, processes: Callable[[], Sequence[int]], testbed: RunContext
) -> None:
    """Loops inside share the CPUs with as many loops outside."""
    spin = ("timeout", "120", "sh", "-c", "echo on; while :; do :; done")
    cpus = testbed.limits.cpus
    with ExitStack() as stack:
        pinned = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
        for host, argv in [(_inside(instance), spin), (testbed.host, (*pinned, *spin))] * len(cpus):
            assert stack.enter_context(host.spawn(*argv)).read_line(ENOUGH_SECONDS).text == "on"
        boundary = create_boundary(testbed.host, processes, cpus, sidecar_cpus=(), takes_turns=False)
        # Of an instance with many tasks, a turn reads some: it takes several to find those that run.
        for turn_seconds in (*[0.1] * 30, 2.0):
            boundary.begin_turn()
            began = time.monotonic()
            time.sleep(turn_seconds)
            usage = boundary.end_turn(0.0)
        seconds = time.monotonic() - began
    assert 0 < (usage.cpu_seconds or 0) <= 0.9 * seconds * len(cpus)
    assert (usage.waited_seconds or 0) >= 0.1 * seconds
    assert "preempted" in {caution.kind for caution in boundary.cautions()}


def test_the_instance_says_what_it_is(technology: Technology, instance: Instance) -> None:
    assert instance.proof
    assert all(name and value for name, value in instance.proof.items())
    if technology.name in ("qemu-tcg", "qemu-microvm-tcg"):
        assert instance.proof["accelerator"] == "tcg,thread=multi"
        assert [caution.kind for caution in instance.cautions] == ["emulated"]


def test_the_service_answers_the_client_and_sees_it_as_itself(
    technology: Technology, instance: Instance, testbed: RunContext
) -> None:
    network = testbed.network
    assert instance.network_path == technology.network_path
    addresses = {
        "host": network.machine_address,
        "nat": network.machine_address,
        "tap": network.instance_address,
        "bridge": str(network.engine_subnet[10]) if isinstance(technology, Docker) else network.instance_address,
    }
    assert instance.address == addresses.get(instance.network_path, instance.address)  # a cluster chooses its pods'
    # Only what is on the machine's own network must not listen on its other addresses.
    listen = instance.address if instance.network_path == "host" else "0.0.0.0"  # noqa: S104 - inside
    with _inside(instance).spawn(*REDIS, listen or ""):
        probe = (PROBE, instance.address or "", str(PORT), "30", "connect")
        testbed.client.run(*probe, timeout=ENOUGH_SECONDS)
        redis = ("redis-cli", "-h", instance.address or "", "-p", str(PORT))
        assert testbed.client.run(*redis, "ping", timeout=ENOUGH_SECONDS).text == "PONG\n"
        # No proxy stands between: the service sees the client's own address. rootless Podman's ports have a proxy.
        proxy = ("10.0.2.100",) if instance.network_path == "rootlesskit" else ()
        seen = testbed.client.run(*redis, "client", "info", timeout=ENOUGH_SECONDS).text
        own = (network.client_address, str(network.engine_subnet[2]))
        assert any(f" addr={address}:" in seen for address in proxy or own), seen


def _inside(instance: Instance) -> Host:
    assert instance.inside is not None
    return instance.inside


def _print(instance: Instance, *argv: str) -> str:
    """Return what a command prints inside."""
    return _inside(instance).run(*argv, timeout=ENOUGH_SECONDS).text


def _list(instance: Instance, folder: str) -> list[str]:
    """Return the names in a folder. gVisor of 2022 refuses the call of the stat that `ls` makes today."""
    return _print(instance, "find", folder, "-mindepth", "1", "-printf", "%f\n").split()


def _disk_with(instance: Instance, file: str) -> int:
    """Write 8 MiB to a file, if one is given; return the bytes that the instance has on its disk then."""
    if file:
        _print(instance, "dd", "if=/dev/urandom", f"of={file}", "bs=1M", "count=8", "conv=fsync")
        _print(instance, "sync")
    found = instance.written_bytes()
    assert found is not None, instance.name
    return found


@dataclass(frozen=True)
class Wordless(LocalHost):
    """A host that does not tell the words with which its kernel was started."""

    host: Host

    def read(self, path: str) -> str:
        return "" if path == "/proc/cmdline" else self.host.read(path)


def _shares_the_kernel(instance: Instance, host: Host) -> bool:
    """Compare the kernels' versions: LXD gives every container a boot ID of its own."""
    version = _print(instance, "cat", "/proc/version")
    return instance.network_path != "tap" and version == host.read("/proc/version")


def _cpu_seconds(host: Host, pids: Sequence[int]) -> float:
    """Return the CPU time of processes so far, without those that have ended meanwhile."""
    texts = read_files(host, [f"/proc/{pid}/stat" for pid in pids]).values()
    return sum(times.user_seconds + times.system_seconds for times in map(parse_process_times, texts))


def _cpus_allowed(status: str) -> set[str]:
    """Read the lists of CPUs from the texts of /proc/PID/status."""
    lines = (line.partition(":") for line in status.splitlines())
    return {value.strip() for name, _, value in lines if name == "Cpus_allowed_list"}
