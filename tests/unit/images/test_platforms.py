"""Foreign images of several platforms: made by umoci, chosen by skopeo for the machine under test."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from oci_made import file, layer

from tare.images.build_environment import create_build_folder
from tare.images.foreign_images import ForeignImageBuild
from tare.model.architecture import ARM64, X86_64, Architecture, read_elf_architecture, this_architecture
from tare.model.errors import TareError
from tare.model.image import Image, ImageReference

BUSYBOX = Path("/bin/busybox")
INDEX = "application/vnd.oci.image.index.v1+json"
TOOLS = ("skopeo", "umoci", "mke2fs", "aarch64-linux-gnu-gcc", "cc")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can unpack what belongs to others"),
    pytest.mark.skipif(this_architecture() is not X86_64, reason="the other architecture is arm64 here"),
    pytest.mark.skipif(
        not (all(map(shutil.which, TOOLS)) and BUSYBOX.exists()),
        reason="apt-get install skopeo umoci e2fsprogs busybox-static gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    ),
]
Platforms = tuple[Mapping[str, str], ...]
ARM64_V8 = {"os": "linux", "architecture": "arm64", "variant": "v8"}
AMD64 = {"os": "linux", "architecture": "amd64"}
ATTESTATION = {"os": "unknown", "architecture": "unknown"}
Adopt = Callable[[ImageReference, Architecture], Image]


def umoci(*words: str | Path) -> None:
    subprocess.run(("umoci", *words), check=True, capture_output=True, timeout=60)


def several(folder: Path, platforms: Platforms) -> ImageReference:
    """Make a layout whose image `app` has an index with a manifest for each platform, as BuildKit does."""
    layout, content = folder / "layout", folder / "layer.tar"
    umoci("init", "--layout", layout)
    for number, platform in enumerate(platforms):
        image = f"{layout}:{number}"
        content.write_bytes(layer(file("platform", "/".join(platform.values()).encode())))
        umoci("new", "--image", image)
        umoci("config", "--image", image, "--os", platform["os"], "--architecture", platform["architecture"])
        umoci("raw", "add-layer", "--image", image, content)
    described = json.loads((layout / "index.json").read_text())["manifests"]
    by_tag = {int(each.pop("annotations")["org.opencontainers.image.ref.name"]): each for each in described}
    manifests = [by_tag[number] | {"platform": dict(platform)} for number, platform in enumerate(platforms)]
    text = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()
    digest = hashlib.sha256(text).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(text)
    named = {"org.opencontainers.image.ref.name": "app"}
    entry = {"mediaType": INDEX, "digest": f"sha256:{digest}", "size": len(text), "annotations": named}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return ImageReference("oci:", f"{layout}:app")


@pytest.fixture
def adopt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adopt:
    """Convert an image for an architecture, with the files of an image that tare has built."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    images, base = tmp_path / "home/images", tmp_path / "base"
    (base / "usr/lib/tare").mkdir(parents=True)
    images.mkdir(parents=True)
    (base / "kernel").write_bytes(b"kernel\n")
    ours = Image("0" * 64, base, base, base, base / "kernel", base / "kernel", "")

    def take(source: ImageReference, architecture: Architecture) -> Image:
        its = replace(ours, digest=architecture.debian, architecture=architecture)
        with create_build_folder(images) as scratch:
            return ForeignImageBuild(source, its, 1 << 20, scratch, BUSYBOX).build(images, print)

    return take


def test_the_platform_of_the_machine_under_test_is_taken(adopt: Adopt, tmp_path: Path) -> None:
    source = several(tmp_path, (ATTESTATION, AMD64, ARM64_V8))
    for architecture, platform in ((X86_64, "linux/amd64"), (ARM64, "linux/arm64/v8"), (X86_64, "linux/amd64")):
        image = adopt(source, architecture)
        assert (image.root / "platform").read_text() == platform
        assert read_elf_architecture(image.root / image.start_command[0][1:]) is architecture


@pytest.mark.parametrize(
    ("platforms", "architecture", "offered"),
    [
        ((AMD64, ATTESTATION), ARM64, "linux/amd64"),
        ((ARM64_V8, {"os": "windows", "architecture": "amd64"}), X86_64, "linux/arm64/v8, windows/amd64"),
        (({"os": "linux", "architecture": "arm", "variant": "v7"}, AMD64), ARM64, "linux/amd64, linux/arm/v7"),
    ],
)
def test_a_missing_platform_is_refused_with_those_that_exist(
    platforms: Platforms, architecture: Architecture, offered: str, adopt: Adopt, tmp_path: Path
) -> None:
    source, wanted = several(tmp_path, platforms), f"linux/{architecture.debian}"
    with pytest.raises(TareError) as error:
        adopt(source, architecture)
    assert str(error.value) == f"{source}: the image is for {offered}, and the machine is {wanted}"
    assert error.value.hint == f"build it for {wanted}, too"


def test_an_image_of_one_other_platform_is_refused(adopt: Adopt, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    umoci("init", "--layout", layout)
    umoci("new", "--image", f"{layout}:app")
    umoci("config", "--image", f"{layout}:app", "--architecture", "amd64", "--os", "linux")
    source = ImageReference("oci:", f"{layout}:app")
    with pytest.raises(TareError, match=r"the image is for amd64, and the machine is arm64$"):
        adopt(source, ARM64)


def test_a_plain_root_is_taken_for_the_machine_under_test(adopt: Adopt, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("content\n")
    image = adopt(ImageReference("", str(root)), ARM64)
    assert (image.root / "file").read_text() == "content\n"
    assert read_elf_architecture(image.root / image.start_command[0][1:]) is ARM64
