"""Applications of compose files on real instances: names, order, health checks, mounts, users and capabilities.

The services are busybox's, of one tiny image. Each checks what it needs, and ends if it does not find it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from begun import whole_trial
from oci_made import file, folder, layer, layout, link

from tare.features.compose.commands import application as convert
from tare.hosts.ledger import state_folder
from tare.images.build_environment import create_build_folder
from tare.images.foreign_images import ForeignImageBuild, update_accounts
from tare.images.layered import with_files
from tare.loads.application import Application
from tare.loads.application_file import read_application
from tare.model.image import Image, ImageSpec
from tare.plugins import registry
from tare.runner.context import RunContext
from tare.workloads.application import ApplicationWorkload

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(
        not all(map(shutil.which, ("skopeo", "umoci", "busybox"))),
        reason="apt-get install skopeo umoci busybox-static",
    ),
]
SAMPLES = Path(__file__).parents[1] / "samples/compose"
PROGRAMS = ("awk", "cat", "cp", "grep", "hostname", "httpd", "id", "mkdir", "sh", "sleep", "test", "wget")
Prepare = Callable[[str, str], tuple[RunContext, ApplicationWorkload]]
CONFIG = {"Env": ["PATH=/bin"], "Cmd": ["sh"]}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of an image of busybox with a page, and links as many images have them."""
    busybox = Path(str(shutil.which("busybox"))).read_bytes()
    content = layer(
        *(folder(name) for name in ("bin", "www", "run", "var", "tmp")),
        file("bin/busybox", busybox, 0o755),
        *(link(f"bin/{name}", "busybox") for name in PROGRAMS),
        file("www/index.html", b"page\n"),
        link("var/run", "/run"),
    )
    return layout(tmp_path_factory.mktemp("tiny") / "image", content, config=CONFIG)


@pytest.fixture
def prepare(image: Image, tiny: Path, testbed: RunContext, tmp_path: Path) -> Iterator[Prepare]:
    """Convert a sample, and build the images of its services, which are gone after the test."""
    built: list[Image] = []

    def build(spec: ImageSpec) -> Image:
        assert spec.source is not None
        images, busybox = state_folder() / "images", Path(str(shutil.which("busybox")))
        with create_build_folder(images) as scratch:
            found = ForeignImageBuild(spec.source, image, 64 << 20, scratch, busybox).build(images, print)
        whole = with_files(found, spec.files, partial(update_accounts, found), spec.mounts)
        built.extend((found, whole))
        return whole

    def prepare(name: str, service: str) -> tuple[RunContext, ApplicationWorkload]:
        application = application_of(name, service, tiny, tmp_path)
        sidecars = {each.image: build(each.image) for each in application.beside}
        images = replace(testbed.images, main=build(application.under_test.image), sidecars=sidecars)
        return replace(testbed, images=images), ApplicationWorkload(application)

    yield prepare
    for each in built:
        shutil.rmtree(each.archive.parent, ignore_errors=True)


def application_of(name: str, service: str, tiny: Path, path: Path) -> Application:
    """Convert a sample, and let all its services have the tiny image."""
    shutil.copytree(SAMPLES / name, path / name, ignore=shutil.ignore_patterns("application.toml", "printed"))
    convert("from", path / name / "compose.yaml", service)
    target = path / name / "application.toml"
    text = re.sub(r'(?m)^from = ".*"$', f'from = "oci:{tiny}:latest"', target.read_text())
    target.write_text(text.replace("--duration 10s", "--duration 1s"))
    return read_application(path / name)


# One technology each: the shop with its fourteen services alone takes 40 s.
@pytest.mark.parametrize(("name", "service", "technology"), [
    pytest.param("shop", "", "crun", marks=pytest.mark.slow),
    pytest.param("stack", "", "native", marks=pytest.mark.slow),
    pytest.param("stack", "app", "crun", marks=pytest.mark.slow),
    ("voting", "vote", "native"),
])  # fmt: skip
def test_an_application_of_a_compose_file_runs(name: str, service: str, technology: str, prepare: Prepare) -> None:
    context, workload = prepare(name, service)
    trial, raw = whole_trial(context, (registry.find("technologies", technology)(),), workload)
    assert (trial.reason, trial.status) == ("", "ok"), [each.text for each in raw]
    assert trial.values[0].value > 1  # requests in a second
    assert context.live_instances == []
