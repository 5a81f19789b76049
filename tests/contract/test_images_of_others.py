"""An image that others have built: every stack runs its very bytes, as its user, with its environment and its words.

Each has one program of musl's that prints how it was started, or serves that: no shell, no tools.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from marks import slow
from oci_made import file, folder, layer, layout, link
from own_testbed import spec_of

from tare.hosts.exec import TOOLS
from tare.hosts.host import Host
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost
from tare.images.build_environment import create_build_folder
from tare.images.cache import remove_engine_copies
from tare.images.foreign_images import ForeignImageBuild
from tare.model.image import Image, ImageReference
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.plugins.workload import MeasurementContext
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.service import start_service
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.technologies.native import Native
from tare.workloads.command import UserCommand
from tare.workloads.service import UserServer

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(
        not all(map(shutil.which, ("skopeo", "umoci", "musl-gcc", "busybox"))),
        reason="apt-get install skopeo umoci musl-tools busybox-static",
    ),
]
PROBE = Path(__file__).parents[1] / "support/probe.c"
QUICK = ("native", "crun", "docker", "podman", "gvisor", "nspawn", "bubblewrap", "lxc")
CONFIG = {
    "Entrypoint": ["probe", "first word", "$HOME;"],
    "Env": ["PATH=/app", "GREETING=a b=c"],
    "User": "4711:4712",
    "WorkingDir": "/srv/work",
}
SEEN = """user 4711 4711 4712 4712
groups
folder /srv/work
argument [probe]
argument [first word]
argument [$HOME;]
argument [given]
argument []
argument [code=7]
variable [GREETING=a b=c]
variable [HOME=/]
variable [PATH=/app]
/proc/self there
/dev/null there
/dev/shm there
/dev/pts there
/dev/fd there
/etc/hosts there
/etc/resolv.conf there
shared memory allowed
terminals allowed
loopback there
"""
LIBRARIES = {
    "glibc": ("cc", ("/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6")),
    "musl": ("musl-gcc", ("/lib/ld-musl-x86_64.so.1",)),
}
SCRIPT = """(true &)
echo "user $(id -u) $(id -u) $(id -g) $(id -g)"
echo "folder $PWD argument [$0] argument [$1]"
exit 7"""
SERVERS = ("native", "docker", "podman", "gvisor", "nspawn", "qemu-tcg")
SERVER = {
    "Entrypoint": ["probe", "first word"],
    "Cmd": ["$HOME;", "serve=18081"],
    "Env": ["PATH=/app", "GREETING=a b=c"],
    "User": "app",
    "WorkingDir": "/srv/work",
    "ExposedPorts": {"18081/tcp": {}},
    "StopSignal": "SIGUSR1",
}
ACCOUNTS = layer(
    folder("srv/work", 0o555),  # not even its owner may write there
    folder("etc", 0o555),
    file("etc/passwd", b"root:x:0:0::/root:/bin/sh\napp:x:4711:4712::/srv/work:/bin/false\n", 0o444),
    file("etc/group", b"root:x:0:\napp:x:4712:\nmore:x:5001:app\nothers:x:5002:root\nlast:x:5003:root,app\n", 0o444),
)
SERVED = (
    SEEN.replace("groups\n", "groups 5001 5003\n")
    .replace("argument [given]\nargument []\nargument [code=7]", "argument [serve=18081]")
    .replace("HOME=/]", "HOME=/srv/work]")
)


@pytest.fixture(scope="module")
def lone(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image of one file."""
    with with_probe(image, tmp_path_factory.mktemp("lone"), (), CONFIG) as found:
        yield found


@pytest.fixture(scope="module")
def server(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image with a server that is not root, and folders in which nobody may write."""
    with with_probe(image, tmp_path_factory.mktemp("server"), (ACCOUNTS,), SERVER) as found:
        yield found


@pytest.fixture(scope="module", params=["glibc", "musl", "busybox"])
def of_a_kind(
    request: pytest.FixtureRequest, image: Image, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Image]:
    """An image with a C library of its own, and nothing else; or with a shell, and no C library."""
    path = tmp_path_factory.mktemp(request.param)
    shell = Path(str(shutil.which("busybox"))).read_bytes()
    if request.param == "busybox":
        layers, program = [layer(file("bin/busybox", shell, 0o755), link("bin/sh", "busybox"))], ["sh", "-c", SCRIPT]
    else:
        compiler, libraries = LIBRARIES[request.param]
        layers = [layer(*(file(name[1:], Path(name).read_bytes(), 0o755) for name in libraries))]
        layers.append(layer(file("app/probe", compiled(path, compiler), 0o755)))
        program = ["probe", "first word", "$HOME;"]
    with taken_over(image, path, layers, {**CONFIG, "Entrypoint": program, "Env": ["PATH=/bin:/app", "A=1"]}) as found:
        yield found


def compiled(path: Path, *compiler: str) -> bytes:
    """Return the probe's program."""
    subprocess.run((*compiler, "-Os", "-o", str(path / "probe"), str(PROBE)), check=True, timeout=60)
    return (path / "probe").read_bytes()


@contextmanager
def with_probe(base: Image, path: Path, layers: Sequence[bytes], config: Mapping[str, Any]) -> Iterator[Image]:
    """Yield an image with the probe of musl's, which needs no other file."""
    probe = layer(file("app/probe", compiled(path, "musl-gcc", "-static"), 0o755))
    with taken_over(base, path, (*layers, probe), config) as found:
        yield found


@contextmanager
def taken_over(base: Image, path: Path, layers: Sequence[bytes], config: Mapping[str, Any]) -> Iterator[Image]:
    """Yield an image; it is gone after the tests, with what engines have of it."""
    made = layout(path / "image", *layers, config=config)
    images, busybox = state_folder() / "images", Path(str(shutil.which("busybox")))
    with create_build_folder(images) as scratch:
        source = ImageReference("oci:", f"{made}:latest")
        found = ForeignImageBuild(source, base, 64 << 20, scratch, busybox).build(images, print)
    yield found
    remove_engine_copies(LocalHost(), found.digest)
    shutil.rmtree(found.root.parent)


def of_name(name: str, host: Host) -> Technology:
    technology: Technology = registry.find("technologies", name)()
    if problems := technology.problems(host):
        pytest.skip(problems[0].what)
    return technology


@pytest.mark.parametrize("name", QUICK)
def test_user_environment_folder_and_words_are_the_same_everywhere(name: str, lone: Image, testbed: RunContext) -> None:
    technology = of_name(name, testbed.host)
    with start_stack(testbed, spec_of(testbed, technology, image=lone, port=17008), TrialLog()) as (part,):
        inside = part.instance.inside
        assert inside is not None
        output = inside.run(*lone.start_command, "given", "", "code=7", timeout=60, check=False)
        assert (output.text, output.exit_code) == (SEEN, 7)
        assert inside.read("/etc/hosts").startswith("127.0.0.1")  # though the image has no tools
        inside.write("/srv/written", "by tare")
        inside.get(PurePosixPath("/srv/written"), lone.root.parent / "got")
        assert (lone.root.parent / "got").read_text() == "by tare"


@pytest.mark.parametrize("name", ["native", "docker"])
def test_images_with_a_different_c_library_or_a_shell_run_unchanged(
    name: str, of_a_kind: Image, testbed: RunContext
) -> None:
    technology = of_name(name, testbed.host)
    with start_stack(testbed, spec_of(testbed, technology, image=of_a_kind, port=17008), TrialLog()) as (part,):
        inside = part.instance.inside
        assert inside is not None
        output = inside.run(*of_a_kind.start_command, "given", "code=7", timeout=60, check=False)
        assert (output.exit_code, output.text.splitlines()[0]) == (7, "user 4711 4711 4712 4712"), output.stderr
        assert "folder /srv/work" in output.text
        assert "argument [given]" in output.text
        assert "argument [code=7]" in output.text
        left = inside.run(TOOLS, "ps", "-o", "stat,args", timeout=60).text.splitlines()[1:]
        assert name == "native" or [line for line in left if line.startswith("Z")] == []  # all are buried


def test_a_command_in_it_is_measured_behind_its_entry_point(lone: Image, testbed: RunContext) -> None:
    with start_stack(testbed, spec_of(testbed, Native(), image=lone, port=17008), TrialLog()) as (part,):
        workload = UserCommand(("given", "", "code=7"), runs=2, warm_up=0, exit_codes=(7,))
        setup = MeasurementContext(part.instance, testbed.client, (), start_command=lone.start_command)
        for raw in workload.measure(setup):
            assert raw.text.startswith(SEEN)
            assert min(value.value for value in workload.parse((raw,)) if value.metric in ("time", "memory")) > 0


# qemu-microvm-tcg needs modules of tare's kernel before the disk is there.
@pytest.mark.parametrize("name", slow([*SERVERS, "qemu-microvm-tcg"], ["qemu-microvm-tcg"]))
def test_the_server_answers_everywhere_with_the_same_user_and_environment(
    name: str, server: Image, testbed: RunContext
) -> None:
    technology = of_name(name, testbed.host)
    workload = UserServer(ready="/", clients=(1,), duration=0.1).adapt_to_image(server)
    assert workload.port == 18081
    with (
        start_stack(testbed, spec_of(testbed, technology, image=server, port=workload.port), TrialLog()) as (part,),
        start_service(part.instance, workload, server) as running,
    ):
        running.await_ready(testbed.client)
        url = f"http://{part.instance.address}:{workload.port}/"
        assert testbed.client.run("curl", "--silent", "--noproxy", "*", url, timeout=60).text == SERVED
        setup = MeasurementContext(part.instance, testbed.client, (), start_command=server.start_command)
        (throughput,) = read_values(workload, tuple(workload.measure(setup)))
        assert throughput.value > 10
    assert list(running.output_lines) == ["asked to end"]
