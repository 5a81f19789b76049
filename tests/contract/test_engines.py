"""Container engines that are configured otherwise, or are not the one that is named: real ones, of the test alone."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS, wait_until

from tare.features.advise.profiler.command import find_container
from tare.hosts.engines import find_daemon
from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.errors import UsageError
from tare.model.trial import Output
from tare.plugins.instance import Instance
from tare.plugins.technology import ENVIRONMENT, LaunchRequest, Technology
from tare.runner.context import RunContext
from tare.technologies.docker import Docker, run_daemon
from tare.technologies.podman import Podman

pytestmark = pytest.mark.machine

ALONE = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave")
PROXY = "http://127.0.0.1:9"
CONTAINERS_CONF = """
[containers]
init = true
init_path = "INIT"
http_proxy = true
env = ["FROM_CONFIGURATION=1"]
volumes = ["/usr/share:/srv/shared:ro"]
"""


class Within(ExecHost):
    """This machine, with its commands behind a prefix."""

    def __init__(self, *prefix: str) -> None:
        super().__init__(LocalHost(), *prefix)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        return self.outer.run(*self.prefix, *argv, timeout=timeout, input=input, check=check)


def dockerd(folder: Path, *options: str) -> tuple[str, ...]:
    """Return the command of a daemon that leaves the machine's rules and bridges alone; its socket is in the folder."""
    paths = (f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid")
    return ("dockerd", *paths, f"--host=unix://{folder}/sock", "--iptables=false", *options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


@pytest.fixture(scope="module")
def bridge() -> Iterator[str]:
    name = f"eng{os.getpid() % 10**8}"
    host = LocalHost()
    host.run("ip", "link", "add", name, "type", "bridge", timeout=ENOUGH_SECONDS)
    host.run("ip", "address", "add", "172.31.251.1/24", "dev", name, timeout=ENOUGH_SECONDS)
    host.run("ip", "link", "set", name, "up", timeout=ENOUGH_SECONDS)
    yield name
    host.run("ip", "link", "delete", name, timeout=ENOUGH_SECONDS)


@pytest.fixture(scope="module", params=["docker", "podman"])
def technology(request: pytest.FixtureRequest, folder: Path, bridge: str) -> Iterator[Technology]:
    """An engine whose configuration, client and environment ask for other containers than tare does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("http_proxy", PROXY)
        patch.setenv("HTTP_PROXY", PROXY)
        if request.param == "podman":
            (folder / "containers.conf").write_text(CONTAINERS_CONF.replace("INIT", shutil.which("docker-init") or ""))
            patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
            yield Podman()
            return
        limits = {"memlock": {"Name": "memlock", "Hard": 65536, "Soft": 65536}}
        settings = {"init": True, "no-new-privileges": True, "default-ulimits": limits}
        (folder / "daemon.json").write_text(json.dumps(settings))
        (folder / "config.json").write_text(json.dumps({"proxies": {"default": {"httpProxy": PROXY}}}))
        patch.setenv("DOCKER_CONFIG", str(folder))
        patch.setenv("DOCKER_HOST", f"unix://{folder}/sock")
        command = dockerd(folder, f"--bridge={bridge}", f"--config-file={folder}/daemon.json")
        with run_daemon(LocalHost(), f"{folder}/sock", *command):
            yield Docker()


def command_of(host: Host, pid: int) -> str:
    return host.read(f"/proc/{pid}/cmdline").replace("\0", " ")


# The first test: the others share an instance, which has this one's network.
def test_the_engines_process_is_found_whoever_is_the_parent_of_the_first(
    technology: Technology, start: Callable[[], AbstractContextManager[Instance]], testbed: RunContext
) -> None:
    """Let the engine put its own first process into the container, as where nothing undid its configuration."""
    with pytest.MonkeyPatch.context() as patch:
        assert isinstance(technology, Docker)
        command = type(technology)._command

        def with_init(self: Docker, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
            return tuple("--init" if word == "--init=false" else word for word in command(self, host, launch))

        patch.setattr(type(technology), "_command", with_init)
        with start() as instance:
            commands = [command_of(testbed.host, pid) for pid in instance.processes()]
            assert instance.inside is not None
            assert not instance.inside.read("/proc/1/cmdline").startswith("/usr/lib/tare/init")
    assert len([each for each in commands if "conmon" in each or "containerd-shim" in each.partition(" ")[0]]) == 1
    assert len([each for each in commands if "init --" in each]) == 1  # catatonit's, or Docker's own


def test_the_inside_has_the_images_variables_alone(instance: Instance) -> None:
    assert instance.inside is not None
    printed = instance.inside.run("env", "-0", timeout=ENOUGH_SECONDS).text.split("\0")
    assert {each for each in printed if each and not each.startswith("TARE_")} == set(ENVIRONMENT)


def test_no_process_of_the_engines_is_put_before_the_instances_first(instance: Instance, testbed: RunContext) -> None:
    assert instance.inside is not None
    assert instance.inside.read("/proc/1/cmdline").startswith("/usr/lib/tare/init")
    commands = [command_of(testbed.host, pid) for pid in instance.processes()]
    assert not any("docker-init" in each or "catatonit" in each for each in commands)


def test_the_engines_process_for_the_container_counts_once(
    technology: Technology, instance: Instance, testbed: RunContext
) -> None:
    pids = instance.processes()
    assert len(set(pids)) == len(pids)
    name = "conmon" if isinstance(technology, Podman) else "containerd-shim"
    assert len([pid for pid in pids if name in command_of(testbed.host, pid).partition(" ")[0]]) == 1


def test_privileges_are_not_taken_by_the_configuration(instance: Instance) -> None:
    assert instance.inside is not None
    assert "\nNoNewPrivs:\t0\n" in instance.inside.read("/proc/self/status")


def test_what_cannot_be_undone_is_a_caution_with_file_and_key(
    technology: Technology, instance: Instance, folder: Path
) -> None:
    [caution] = instance.cautions
    key = f"{folder}/containers.conf: volumes"
    assert caution.kind == "engine-configuration"
    assert caution.text.endswith(key if isinstance(technology, Podman) else f"{folder}/daemon.json: default-ulimits")


def test_a_docker_that_talks_to_podman_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "podman.sock"
    with run_daemon(LocalHost(), str(path), "podman", "system", "service", "--time=0", f"unix://{path}"):
        [problem] = Docker().problems(Within("env", f"DOCKER_HOST=unix://{path}"))
        assert problem.what == f"docker is Podman here: Podman answers at unix://{path}"
        [remote] = Podman().problems(Within("env", f"CONTAINER_HOST=unix://{path}"))
        assert remote.what == f"podman is the client of a service at unix://{path}, and runs no containers itself"


@pytest.mark.parametrize("endpoint", ["tcp://192.0.2.1:2375", "ssh://root@192.0.2.1"])
def test_a_docker_of_another_machine_is_refused_at_once(endpoint: str) -> None:
    [problem] = Docker().problems(Within("env", f"DOCKER_HOST={endpoint}"))
    assert problem.what.startswith("the engine is not on this machine, or ")
    assert problem.what.endswith(endpoint)  # it is not asked: nothing answers at this address


def test_a_docker_in_other_namespaces_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with LocalHost().spawn(*ALONE, *dockerd(tmp_path, "--bridge=none")):
        with_host = Within("env", f"DOCKER_HOST=unix://{path}")
        wait_until(lambda: not with_host.run("docker", "version", timeout=ENOUGH_SECONDS, check=False).exit_code)
        [problem] = Docker().problems(with_host)
    assert problem.what.startswith(f"the engine at {path} is not on this machine: no dockerd of its process")


def test_a_container_of_an_engine_elsewhere_is_not_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask an engine in other namespaces, in which the number of the container's process is another one."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/sock")
    host = LocalHost()
    with host.spawn(*ALONE, *dockerd(tmp_path, "--bridge=none")):
        wait_until(lambda: not host.run("docker", "version", timeout=ENOUGH_SECONDS, check=False).exit_code)
        root = tmp_path / "root"
        root.mkdir()
        busybox = shutil.which("busybox")
        assert busybox
        shutil.copy(busybox, root / "busybox")
        packed = host.run("tar", "-C", str(root), "-cf", "-", ".", timeout=ENOUGH_SECONDS).stdout
        host.run("docker", "import", "-", "tiny", timeout=ENOUGH_SECONDS, input=packed)
        run = ("run", "--detach", "--network=none", "--name=elsewhere", "tiny", "/busybox", "sleep", "60")
        host.run("docker", *run, timeout=ENOUGH_SECONDS)
        with pytest.raises(UsageError, match=r"--container elsewhere: docker reports process [0-9]+, which is not the"):
            find_container(host, "elsewhere")


def test_who_listens_on_a_socket_is_known_in_the_same_namespaces_alone(tmp_path: Path) -> None:
    program = LocalHost().read("/proc/self/comm").strip()
    path, link = tmp_path / "here.sock", tmp_path / "link.sock"
    link.symlink_to(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        found = [find_daemon(LocalHost(), program, str(each)) for each in (path, link, tmp_path / "other.sock")]
        assert found == [os.getpid(), os.getpid(), None]
        assert find_daemon(LocalHost(), "dockerd", str(path)) is None  # such as a tunnel to another machine
        assert find_daemon(Within("unshare", "--net"), program, str(path)) is None
        assert find_daemon(Within("unshare", "--pid", "--fork", "--mount-proc"), program, str(path)) is None
