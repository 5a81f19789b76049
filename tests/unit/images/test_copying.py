"""Tests of copies of foreign images: complete content, no escaping path, and refusals with a reason."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import json
import lzma
import os
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from images_taken import APP, CAN_TAKE, CONFIG, names, taken
from oci_made import KIND, file, folder, hard_link, layer, layout, link, write_index

from tare.images import skopeo as copying
from tare.images.layers import UnpackedSize
from tare.model.errors import TareError, UsageError
from tare.model.image import ImageReference

pytestmark = CAN_TAKE
# What `zstd -19` makes of an archive of the file `a`, of 10,000 letters x.
ZSTD = "KLUv/QRo3QEAAgIHDNA9gMi1wKwssRbBU17/PktU++CIKKGRm6huCwogEKt67AYvDAd/56DOs3nLDY6B6OCgAPaTawOzXD70"


def skopeo(*words: str) -> None:
    subprocess.run(("skopeo", *words), check=True, capture_output=True, timeout=60)


def source(tmp_path: Path, kind: str) -> ImageReference:
    """Name the image at `tmp_path`/image in another form, which is made."""
    name = f"{tmp_path}/made-{kind}{':app:1' if kind == 'docker-archive' else ':1'}"
    if kind == "oci":
        name = f"{tmp_path}/image:latest"
    else:
        skopeo("copy", "--quiet", f"oci:{tmp_path}/image:latest", f"{kind}:{name}")
    return ImageReference(f"{kind}:", name)


@pytest.mark.parametrize("kind", ["docker-archive", "oci", "oci-archive"])
def test_every_form_of_an_image_gives_the_same_files(kind: str, tmp_path: Path, made: Path, scratch: Path) -> None:  # noqa: ARG001
    root = taken(source(tmp_path, kind), scratch)
    assert names(root) == ["app", "app/new", "app/run"]  # the whiteout is obeyed, and no file
    assert stat.S_IMODE((root / "app/run").stat().st_mode) == 0o755


@pytest.mark.parametrize("kind", ["docker-archive", "oci", "oci-archive"])
def test_the_digest_is_that_of_the_very_image(kind: str, tmp_path: Path, made: Path, scratch: Path) -> None:  # noqa: ARG001
    reference = source(tmp_path, kind)
    digest = copying.resolve_digest(reference, scratch)
    assert copying.resolve_digest(reference, scratch) == digest
    here = copying.copy_to_layout(reference, digest, scratch)
    (text,) = [path.read_text() for path in (here / "blobs/sha256").iterdir() if b"Entrypoint" in path.read_bytes()]
    assert json.loads(text)["config"] == CONFIG
    manifest = copying.read_layout_manifest(here)
    assert copying.blob_path(here, manifest.configuration).read_text() == text
    assert copying.check_layers(reference, here, manifest) == UnpackedSize(9, 5)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "tar.gz": gzip.compress,
    "tar.xz": lzma.compress,
    "tar.bz2": bz2.compress,
}


@pytest.mark.parametrize("form", ["folder", "tar", *COMPRESSORS])
def test_a_root_file_system_is_an_image_without_a_program(form: str, tmp_path: Path, scratch: Path) -> None:
    root = tmp_path / "plain"
    (root / "srv").mkdir(parents=True)
    (root / "srv/page").write_text("page")
    os.chown(root / "srv/page", 33, 33)
    reference = ImageReference("", str(root))
    if form != "folder":
        reference = ImageReference("", str(tmp_path / "plain.tar"))
        copying.pack_folder(root, Path(reference.name))
    if form in COMPRESSORS:
        Path(reference.name).write_bytes(COMPRESSORS[form](Path(reference.name).read_bytes()))
    found = taken(reference, scratch)
    assert names(found) == ["srv", "srv/page"]
    assert (found / "srv/page").stat().st_uid == 33
    text = copying.blob_path(
        scratch / "layout", copying.read_layout_manifest(scratch / "layout").configuration
    ).read_text()
    assert json.loads(text)["config"] == {}


def test_two_packings_of_a_folder_have_the_same_bytes(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / "plain" / name).mkdir(parents=True)
    for number in range(2):
        copying.pack_folder(tmp_path / "plain", tmp_path / f"{number}")
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


# --- strangers' layers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile",
    [
        lambda _: [layer(file("../../../../outside/new", b"evil"))],
        lambda out: [layer(file(f"{out}/new", b"evil"))],
        lambda out: [layer(link("way", out), file("way/new", b"evil"))],
        lambda out: [layer(link("way", f"../../../../../../../../..{out}")), layer(file("way/new", b"evil"))],
        lambda out: [layer(link("way", out)), layer(file("way/.wh.kept"))],
        lambda out: [layer(link("way", out)), layer(file("way/.wh..wh..opq"))],
        lambda out: [layer(link("way", f"{out}/kept"), file("way", b"evil"))],
        lambda out: [layer(folder("way")), layer(link("way", out)), layer(file("way/kept", b"evil"))],
        lambda _: [layer(file(".wh..."))],
        lambda _: [layer(file("../.wh.outside"))],
    ],
)
def test_nothing_outside_is_changed_whatever_paths_and_links_lead_to(
    hostile: Callable[[str], list[bytes]], tmp_path: Path, scratch: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    layout(tmp_path / "image", *hostile(str(outside)))
    before = sorted(path.name for path in tmp_path.iterdir())
    with suppress(TareError):  # that umoci gives up is right, too
        taken(ImageReference("oci:", f"{tmp_path}/image:latest"), scratch)
    assert (outside / "kept").read_text() == "kept"
    assert names(outside) == ["kept"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert {path.name for path in scratch.iterdir()} <= {"layout", "root"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../../../etc/passwd", "way/passwd"])
def test_a_hard_link_to_a_file_outside_is_refused(target: str, tmp_path: Path, scratch: Path) -> None:
    data = layer(link("way", "/etc"), hard_link("secret", target))
    with pytest.raises(TareError, match=r"cannot be unpacked: .*secret"):
        taken(ImageReference("oci:", f"{layout(tmp_path / 'image', data)}:latest"), scratch)


def test_links_of_the_image_and_setuid_bits_are_kept(tmp_path: Path, scratch: Path) -> None:
    data = layer(file("a", b"x", 0o4755), hard_link("b", "a"), link("c", "/a"))
    root = taken(ImageReference("oci:", f"{layout(tmp_path / 'image', data)}:latest"), scratch)
    assert (root / "a").samefile(root / "b")
    assert stat.S_IMODE((root / "b").stat().st_mode) == 0o4755
    assert str((root / "c").readlink()) == "/a"


def test_a_layer_cannot_redirect_an_overlay(tmp_path: Path, scratch: Path) -> None:
    data = layer(file("a", b"x", attributes={"SCHILY.xattr.trusted.overlay.redirect": "/etc"}))
    root = taken(ImageReference("oci:", f"{layout(tmp_path / 'image', data)}:latest"), scratch)
    assert os.listxattr(root / "a") == []


def test_an_opaque_folder_hides_what_was_below_it(tmp_path: Path, scratch: Path) -> None:
    data = (layer(folder("a"), file("a/x"), file("a/y")), layer(file("a/.wh..wh..opq"), file("a/z")))
    assert names(taken(ImageReference("oci:", f"{layout(tmp_path / 'image', *data)}:latest"), scratch)) == ["a", "a/z"]


# --- refusals ------------------------------------------------------------------------------------------------------


def test_an_image_that_says_that_it_is_too_large_is_not_even_copied(tmp_path: Path, made: Path, scratch: Path) -> None:  # noqa: ARG001
    reference = ImageReference("oci:", f"{tmp_path}/image:latest", most_bytes=100)
    with pytest.raises(TareError, match="unpacks to more than 0 MiB"):
        copying.resolve_digest(reference, scratch)
    assert list(scratch.iterdir()) == []


def test_an_image_that_unpacks_to_more_than_it_may_is_not_unpacked(tmp_path: Path, scratch: Path) -> None:
    bomb = layer(file("zeros", bytes(32 << 20)))
    reference = ImageReference("oci:", f"{layout(tmp_path / 'image', APP, bomb)}:latest", most_bytes=16 << 20)
    with pytest.raises(TareError, match="the image unpacks to more than 16 MiB"):
        taken(reference, scratch)
    assert not (scratch / "root").exists()


def test_a_root_folder_that_is_too_large_is_refused_before_it_is_packed(tmp_path: Path, scratch: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (root / "sparse").touch()
    os.truncate(root / "sparse", 200 << 30)
    with pytest.raises(TareError, match="the image unpacks to more than 8192 MiB"):
        copying.resolve_digest(ImageReference("", str(root)), scratch)
    os.truncate(root / "sparse", 1 << 43)
    with pytest.raises(TareError, match="MiB of disk are free, and it needs 8388608"):
        copying.resolve_digest(ImageReference("", str(root), most_bytes=1 << 60), scratch)
    assert list(scratch.iterdir()) == []


def test_a_root_folder_counts_links_once_and_no_special_files(tmp_path: Path, scratch: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (root / "a").write_bytes(bytes(60_000))
    (root / "b").hardlink_to(root / "a")
    (root / "c").symlink_to("/dev/zero")
    os.mkfifo(root / "d")
    assert copying.resolve_digest(ImageReference("", str(root), most_bytes=100_000), scratch)


@pytest.mark.parametrize(
    ("start", "program"), [(base64.b64decode(ZSTD), "zstd"), (b"\x04\x22\x4d\x18" + bytes(100), "lz4")]
)
def test_a_compression_that_tare_lacks_is_refused_by_name(
    start: bytes, program: str, tmp_path: Path, scratch: Path
) -> None:
    (tmp_path / "root.tar").write_bytes(start)
    with pytest.raises(UsageError, match=f"is compressed by {program}, and tare reads gzip, xz and bzip2") as refused:
        taken(ImageReference("", f"{tmp_path}/root.tar"), scratch)
    assert refused.value.hint == f"unpack it first: {program} -d {tmp_path}/root.tar"


@pytest.mark.parametrize("form", COMPRESSORS)
def test_a_truncated_root_file_system_is_refused(form: str, tmp_path: Path, scratch: Path) -> None:
    packed = COMPRESSORS[form](layer(file("a", os.urandom(200_000))))
    for name, content in (("cut", packed[:-100_000]), ("changed", packed[:50] + os.urandom(100_000))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match="this is no whole tar file"):
            taken(ImageReference("", f"{tmp_path}/{name}"), scratch)


def test_an_archive_whose_first_file_is_named_like_a_compression_is_taken(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "root.tar").write_bytes(layer(file("BZh9", b"x")))
    assert names(taken(ImageReference("", f"{tmp_path}/root.tar"), scratch)) == ["BZh9"]


def test_an_image_that_does_not_fit_on_the_disk_is_refused(tmp_path: Path, made: Path, scratch: Path) -> None:
    _with_manifest(made, lambda fields: fields["layers"][0].update(size=1 << 50))
    reference = ImageReference("oci:", f"{tmp_path}/image:latest", most_bytes=1 << 60)
    with pytest.raises(TareError, match="MiB of disk are free, and it needs 1073741824"):
        copying.resolve_digest(reference, scratch)


def _with_manifest(made: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write another manifest into an image."""
    described = json.loads((made / "index.json").read_bytes())["manifests"][0]
    fields = json.loads(copying.blob_path(made, described["digest"]).read_bytes())
    change(fields)
    text = json.dumps(fields).encode()
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    copying.blob_path(made, digest).write_bytes(text)
    write_index(made, [{**described, "digest": digest, "size": len(text)}])


def test_layers_of_zstd_are_compressed_again(tmp_path: Path, scratch: Path) -> None:
    made = layout(tmp_path / "image", layer(file("a", b"x" * 10_000)), packed=False)
    packed = base64.b64decode(ZSTD)
    digest = f"sha256:{hashlib.sha256(packed).hexdigest()}"
    copying.blob_path(made, digest).write_bytes(packed)
    part = {"mediaType": f"{KIND}.layer.v1.tar+zstd", "digest": digest, "size": len(packed)}
    _with_manifest(made, lambda fields: fields.update(layers=[part]))
    root = taken(ImageReference("oci:", f"{made}:latest"), scratch)
    assert (root / "a").read_bytes() == b"x" * 10_000


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (("docker-archive:", "none.tar"), "there is no such file"),
        (("oci:", "none"), "there is no such file"),
        (("oci:", "image:other"), "there is no image of this name"),
        (("docker-archive:", "text"), "this is no whole image"),
        (("oci-archive:", "text"), "this is no whole image"),
        (("oci:", "text"), "this is no whole image"),
        (("docker-daemon:", "app:1"), "Docker's daemon does not answer"),
        (("docker://", "127.0.0.1:1/app"), "the registry does not answer"),
        (("", "none"), "there is no such file"),
        (("", "text"), "the image is damaged: a layer of it"),
    ],
)
def test_what_is_no_image_is_refused_with_the_reason(
    reference: tuple[str, str], says: str, tmp_path: Path, scratch: Path
) -> None:
    transport, name = reference
    layout(tmp_path / "image", APP)
    (tmp_path / "text").write_text("no image\n" * 100)
    place = name if transport in ("docker-daemon:", "docker://") else f"{tmp_path}/{name}"
    with pytest.raises(TareError, match=says) as error:
        taken(ImageReference(transport, place), scratch)
    assert error.value.hint
    assert "\n" not in str(error.value) + error.value.hint


def test_dockers_daemon_is_the_one_of_its_client(tmp_path: Path, scratch: Path) -> None:
    with pytest.raises(TareError, match=f"Cannot connect to the Docker daemon at unix://{tmp_path}/no.sock"):
        copying.resolve_digest(ImageReference("docker-daemon:", "app:1"), scratch)


def test_a_truncated_archive_is_refused(tmp_path: Path, scratch: Path) -> None:
    data = os.urandom(200_000)
    layout(tmp_path / "image", layer(file("a", data)))
    for kind in ("docker-archive", "oci-archive"):
        reference = source(tmp_path, kind)
        path = Path(reference.name.split(":")[0])
        path.write_bytes(path.read_bytes()[:-150_000])
        with pytest.raises(TareError, match=f"^{kind}:.*: (this is no whole image|skopeo cannot copy it)"):
            taken(reference, scratch)


def test_a_layer_of_another_content_than_its_digest_is_refused(tmp_path: Path, made: Path, scratch: Path) -> None:
    largest = copying.read_layout_manifest(made).layers[0]
    path = copying.blob_path(made, largest.digest)
    path.write_bytes(gzip.compress(layer(file("other"))).ljust(path.stat().st_size, b"\0")[: path.stat().st_size])
    with pytest.raises(TareError, match=r"this is no whole image|skopeo cannot copy it"):
        taken(ImageReference("oci:", f"{tmp_path}/image:latest"), scratch)
