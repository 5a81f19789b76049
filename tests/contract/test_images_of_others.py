"""An image that others have built: every stack runs its very bytes, as its user, with its environment and its words.

It has one file, a program of musl's that prints how it was started: no shell, no tools, no accounts.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from oci_made import file, layer, layout

from tare import plugins
from tare.contracts import Host, Setup
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost
from tare.images.adopted import Adoption
from tare.images.building import building
from tare.images.kept import forgotten
from tare.launch import Technology
from tare.model import Image, Source
from tare.running.layers import Notes, Testbed, started
from tare.technologies.native import Native
from tare.workloads.command import Command

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
shared memory allowed
"""


@pytest.fixture(scope="module")
def lone(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image of one file, taken over; it is gone after the tests, with what engines have of it."""
    folder = tmp_path_factory.mktemp("lone")
    binary = folder / "probe"
    subprocess.run(("musl-gcc", "-static", "-Os", "-o", str(binary), str(PROBE)), check=True, timeout=60)
    made = layout(folder / "image", layer(file("app/probe", binary.read_bytes(), 0o755)), config=CONFIG)
    images, busybox = state_folder() / "images", Path(str(shutil.which("busybox")))
    with building(images) as scratch:
        source = Source("oci:", f"{made}:latest")
        found = Adoption(source, (), image, 64 << 20, scratch, busybox).image(images, print)
    yield found
    forgotten(LocalHost(), found.digest)
    shutil.rmtree(found.root.parent)


def of_name(name: str, host: Host) -> Technology:
    technology: Technology = plugins.find("technologies", name)()
    if problems := technology.problems(host):
        pytest.skip(problems[0].what)
    return technology


@pytest.mark.parametrize("name", QUICK)
def test_user_environment_folder_and_words_are_the_same_everywhere(name: str, lone: Image, testbed: Testbed) -> None:
    technology = of_name(name, testbed.host)
    with started(replace(testbed, image=lone, volume_bytes=0), (technology,), 17008, Notes()) as (part,):
        inside = part.instance.inside
        assert inside is not None
        output = inside.run(*lone.start, "given", "", "code=7", timeout=30, check=False)
        assert (output.text, output.exit_code) == (SEEN, 7)
        assert inside.read("/etc/hosts").startswith("127.0.0.1")  # though the image has no tools
        inside.write("/srv/written", "by tare")
        inside.get(PurePosixPath("/srv/written"), lone.root.parent / "got")
        assert (lone.root.parent / "got").read_text() == "by tare"


def test_a_command_in_it_is_measured_behind_its_entry_point(lone: Image, testbed: Testbed) -> None:
    with started(replace(testbed, image=lone, volume_bytes=0), (Native(),), 17008, Notes()) as (part,):
        workload = Command(("given", "", "code=7"), runs=2, warm_up=0, exit_codes=(7,))
        setup = Setup(part.instance, testbed.client, (), start=lone.start)
        for raw in workload.measure(setup):
            assert raw.text.startswith(SEEN)
            assert min(value.value for value in workload.parse((raw,)) if value.metric in ("time", "memory")) > 0
