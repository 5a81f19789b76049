"""Tests of foreign images: unchanged bytes, and a program that starts as in an engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from oci_made import file, folder, layer, layout, link

from tare.hosts.exec import ENTRYPOINT
from tare.images.build_environment import create_build_folder
from tare.images.foreign_images import (
    ForeignImageBuild,
    find_missing_programs,
    load_configuration,
    parse_packages,
    resolve_image,
    update_accounts,
)
from tare.images.layered import with_files
from tare.images.tree import hash_files, put_files, read_text_in
from tare.model.errors import TareError, UsageError
from tare.model.image import Image, ImageCommand, ImageReference, ImageSpec
from tare.model.sidecar import Sidecar
from tare.model.trial import Service
from tare.suites.tables import FILES, STORES, read_source
from tare.workloads.application import ApplicationWorkload

BUSYBOX = Path("/bin/busybox")
PROBE = Path(__file__).parents[2] / "support/probe.c"
CONFIG = {
    "Entrypoint": ["probe", "first word", "$HOME;"],
    "Cmd": ["usual"],
    "Env": ["PATH=/nothing:/app:/usr/bin", "GREETING=a b=c"],
    "User": "4711:4712",
    "WorkingDir": "/srv/work here",
}
needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("skopeo", "umoci", "musl-gcc", "mke2fs"))) or not BUSYBOX.exists(),
    reason="apt-get install skopeo umoci musl-tools e2fsprogs busybox-static",
)
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can unpack what belongs to others")
Adopt = Callable[..., Image]


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A program of musl's that prints how it was started."""
    binary = tmp_path_factory.mktemp("probe") / "probe"
    subprocess.run(("musl-gcc", "-static", "-Os", "-o", str(binary), str(PROBE)), check=True, timeout=60)
    return binary.read_bytes()


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def adopt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]) -> Adopt:
    """Convert an image of these layers, with the files of an image that tare has built."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    images, base = tmp_path / "home/images", tmp_path / "base"
    images.mkdir(parents=True)
    programs = base / "usr/lib/tare"
    programs.mkdir(parents=True)
    (programs / "init").write_bytes(b"init\n")
    (base / "kernel").write_bytes(b"kernel\n")
    ours = Image("0" * 64, base, base, base, base / "kernel", base / "kernel", "")

    def take(*layers: bytes, reference: ImageReference | None = None, files: Any = (), **config: Any) -> Image:
        made = tmp_path / f"image-{len(list(tmp_path.iterdir()))}"
        source = reference or ImageReference("oci:", f"{layout(made, *layers, config=config)}:latest")
        with create_build_folder(images) as scratch:
            image = ForeignImageBuild(source, ours, 1 << 20, scratch, BUSYBOX).build(images, messages.append)
        return with_files(image, files, partial(update_accounts, image))

    return take


def source_of(image: Image) -> ImageReference:
    """Name the layout that an image was taken from."""
    return ImageReference("oci:", image.origin.removeprefix("oci:").partition("@")[0])


def start(image: Image, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the image's program in a chroot, by root and with an environment and groups that it must not get."""
    command = ("chroot", "--groups=5,6", str(image.root), *image.start_command, *arguments)
    environment = {"PATH": os.environ["PATH"], "SECRET": "1", "TARE_RUN_1": "mark"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@needs_tools
@only_root
def test_the_only_program_of_an_image_is_started_as_the_image_says(adopt: Adopt, probe: bytes) -> None:
    image = adopt(layer(file("app/probe", probe, 0o755)), **CONFIG)
    done = start(image)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[:7] == [
        "user 4711 4711 4712 4712",
        "groups",
        "folder /srv/work here",
        "argument [probe]",
        "argument [first word]",
        "argument [$HOME;]",
        "argument [usual]",
    ]
    assert [line for line in lines if line.startswith("variable")] == [
        "variable [GREETING=a b=c]",
        "variable [HOME=/]",
        "variable [PATH=/nothing:/app:/usr/bin]",
    ]
    assert "/etc/hosts there" in lines
    given = start(image, "given", "", "code=41")
    assert given.returncode == 41
    assert "argument [first word]\nargument [$HOME;]\nargument [given]\nargument []\n" in given.stdout
    only = start(image, "--only", "/app/probe", "code=3")
    assert (only.returncode, only.stdout.count("argument")) == (3, 2)
    more = start(image, "--set", "GREETING=new", "--set", "GREET=x=y", "--set", "HOME=", "--only", "/app/probe")
    assert {line for line in more.stdout.splitlines() if line.startswith("variable")} == {
        "variable [GREETING=new]",
        "variable [GREET=x=y]",
        "variable [HOME=]",
        "variable [PATH=/nothing:/app:/usr/bin]",
    }
    assert start(image, "--set", "A=b", "given", "", "code=41").returncode == 41
    for words, code in ((("--only", "none"), 127), (("--only", "/etc/hosts"), 126), (("--only", "/etc/hosts/x"), 127)):
        assert start(image, *words).returncode == code
    noted = image.root / "number"
    done = start(image, "--note", "/number", "--set", "A=b", "code=5")
    assert (done.returncode, noted.read_text().strip().isdigit(), "variable [A=b]" in done.stdout) == (5, True, True)
    likely = (("--set", "x", "code=6"), ("--only", "code=6"), ("--note", "/number", "code=6"), ("--", "code=6"))
    for given_words in likely:
        output = start(image, "--set", "A=b", "--", *given_words)  # a user's words may look like options
        lines = [f"argument [{word}]\n" for word in given_words]
        assert (output.returncode, "".join(lines) in output.stdout, "variable [A=b]" in output.stdout) == (
            6,
            True,
            True,
        )
    assert "argument [usual]" in start(image, "--").stdout
    assert (image.stop_signal, image.ports) == ("SIGTERM", ())
    assert image.packages == ""
    none = ImageCommand(("/app/prob",))
    (fault,) = find_missing_programs(adopt(reference=replace(source_of(image), started=none)), ["given"])
    assert fault.message == "/app/prob: the image has no such program"
    assert (
        fault.hint == f'did you mean "/app/probe"? or name a program of the image: {source_of(image)} is used unchanged'
    )
    assert find_missing_programs(image, ["given"]) == []  # the entry point exists, and gets the word as its argument
    assert load_configuration(image).argv(["x"]) == ("probe", "first word", "$HOME;", "x")
    assert sorted(path.name for path in (image.root / "usr/lib/tare").iterdir()) == [
        *("busybox", "entrypoint", "entrypoint.conf", "init")
    ]


@needs_tools
@only_root
def test_user_settings_of_a_program_make_another_image_of_the_same_files(adopt: Adopt, probe: bytes) -> None:
    data = layer(file("app/probe", probe, 0o755))
    plain = adopt(data, **CONFIG)
    overrides = ImageCommand(("/app/probe", "custom"), "1:2", "/app", "SIGQUIT")
    image = adopt(reference=replace(source_of(plain), started=overrides))
    assert start(image).stdout.splitlines()[:5] == [
        *("user 1 1 2 2", "groups", "folder /app", "argument [/app/probe]", "argument [custom]")
    ]
    assert (image.digest != plain.digest, image.stop_signal, image.origin) == (True, "SIGQUIT", plain.origin)


@needs_tools
@only_root
def test_images_that_differ_only_in_their_configuration_are_distinguished(adopt: Adopt) -> None:
    data = layer(file("app"))
    adopt(data, StopSignal="SIGINT", ExposedPorts={"80/tcp": {}})
    image = adopt(data, StopSignal="SIGQUIT", ExposedPorts={"81/tcp": {}})
    assert (image.stop_signal, image.ports) == ("SIGQUIT", (81,))


@needs_tools
@only_root
def test_the_same_image_in_another_form_gives_the_same_bytes_and_is_cached(
    adopt: Adopt, tmp_path: Path, messages: list[str]
) -> None:
    made = layout(tmp_path / "one", layer(folder("etc"), file("etc/hosts", b"custom\n"), file("app", b"1", 0o4711)))
    archive = tmp_path / "two.tar"
    words = ("skopeo", "copy", "--quiet", f"oci:{made}:latest", f"docker-archive:{archive}:app:1")
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    one = adopt(reference=ImageReference("oci:", f"{made}:latest"))
    os.utime(tmp_path / "base/usr/lib/tare/init", (1, 1))  # as if it had been built long ago
    two = adopt(reference=ImageReference("docker-archive:", str(archive)))
    assert one.digest == two.digest
    assert one.origin.startswith(f"oci:{made}:latest@sha256:")
    assert two.origin.startswith(f"docker-archive:{archive}@sha256:")
    assert (one.start_command, one.disk_bytes) == ((ENTRYPOINT,), 1 << 30)
    assert (one.root / "etc/hosts").read_text() == "custom\n"
    assert (one.root / "app").stat().st_mode & 0o7777 == 0o4711
    assert read_text_in(one.kernel.parent, "kernel") == "kernel\n"
    messages.clear()
    again = adopt(reference=ImageReference("docker-archive:", str(archive)))
    assert again == two
    assert messages == [f"image: looking at docker-archive:{archive}"]
    assert [path for path in one.root.parents[1].iterdir() if path.name.startswith("tare-")] == []


@needs_tools
@only_root
@pytest.mark.parametrize("place", ["proc", "dev", "sys", "usr", "usr/lib", "usr/lib/tare", "srv", "run", "tmp"])
def test_a_link_where_tare_mounts_or_writes_is_refused_and_nothing_is_left(
    place: str, adopt: Adopt, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    with pytest.raises(TareError, match=f"the image has no folder at /{place} but a symbolic link"):
        adopt(layer(link(place, f"{tmp_path}/outside")))
    assert list((tmp_path / "outside").iterdir()) == []
    assert list((tmp_path / "home/images").iterdir()) == []


@needs_tools
@only_root
@pytest.mark.parametrize("name", ["passwd", "group"])
def test_accounts_behind_a_link_are_not_read(name: str, adopt: Adopt, tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text("app:x:1500:1501:::\n")
    with pytest.raises(TareError, match=r"the image has no (user app|group app)"):
        adopt(
            layer(folder("etc"), link(f"etc/{name}", f"{tmp_path}/accounts")),
            User="app" if name == "passwd" else "1:app",
        )


@needs_tools
@only_root
def test_an_image_for_another_machine_is_refused_before_it_is_unpacked(adopt: Adopt, tmp_path: Path) -> None:
    made = layout(tmp_path / "other", layer(file("a")), platform=("linux", "s390x"))
    with pytest.raises(TareError, match=f"^oci:{made}:latest: the image is for s390x, and the machine is "):
        adopt(reference=ImageReference("oci:", f"{made}:latest"))


@needs_tools
@only_root
def test_an_archive_of_images_is_no_root_file_system(adopt: Adopt, tmp_path: Path) -> None:
    made, archive = layout(tmp_path / "one", layer(file("a"))), tmp_path / "image.tar"
    words = ("skopeo", "copy", "--quiet", f"oci:{made}:latest", f"docker-archive:{archive}:app:1")
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    with pytest.raises(TareError, match="this is an archive of images") as error:
        adopt(reference=ImageReference("", str(archive)))
    assert error.value.hint == f"write docker-archive:{archive} or oci-archive:{archive}"


@needs_tools
@only_root
def test_files_of_a_suite_are_laid_over_the_image_and_make_another_one(adopt: Adopt, tmp_path: Path) -> None:
    custom = tmp_path / "custom"
    (custom / "sub").mkdir(parents=True)
    (custom / "sub/tool").write_text("1")
    (custom / "sub/tool").chmod(0o755)
    (custom / "to").symlink_to("sub/tool")
    data, files = layer(file("srv/app/sub", b"in the way")), (("/srv/app", str(custom)),)
    with pytest.raises(TareError, match="the image has no folder at /srv/app/sub but a file"):
        adopt(data, files=files)
    made = layout(tmp_path / "one", layer(file("srv/app/old", b"old")))
    reference = ImageReference("oci:", f"{made}:latest")
    image = adopt(reference=reference, files=files)
    assert image.layer
    assert (image.layer / "srv/app/sub/tool").stat().st_mode & 0o777 == 0o755
    assert str((image.layer / "srv/app/to").readlink()) == "sub/tool"
    assert [(tree / "srv/app/old").exists() for tree in image.layer_roots] == [False, True]
    (custom / "sub/tool").write_text("2")
    assert adopt(reference=reference, files=files).digest != image.digest


@needs_tools
@only_root
def test_an_image_starts_with_the_accounts_that_a_suite_puts_into_it(adopt: Adopt, tmp_path: Path) -> None:
    accounts = file("etc/passwd", b"app:x:4711:4712::/:\n"), file("etc/group", b"app:x:4712:\n")
    plain = adopt(layer(folder("etc"), *accounts), User="app")
    (tmp_path / "passwd").write_text("app:x:5001:5002::/:\n")
    image = adopt(reference=source_of(plain), files=(("/etc/passwd", str(tmp_path / "passwd")),))
    assert image.layer
    texts = [(tree / "usr/lib/tare/entrypoint.conf").read_bytes() for tree in image.layer_roots]
    assert (b"5001" in texts[0], b"4711" in texts[0], b"4711" in texts[1]) == (True, False, True)
    assert (load_configuration(image).user.number, load_configuration(plain).user.number) == (5001, 4711)


def test_files_cannot_leave_the_image(tmp_path: Path) -> None:
    root, custom = tmp_path / "root", tmp_path / "custom"
    root.mkdir()
    custom.write_text("x")
    (root / "way").symlink_to(tmp_path)
    for target in ("/../escaped", "/way/escaped", "/", "/a/../../escaped"):
        with pytest.raises(TareError):
            put_files(root, ((target, str(custom)),))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["custom", "root"]
    put_files(root, (("/", str(_folder(tmp_path / "more"))),))
    assert (root / "there").read_text() == "1"


def _folder(path: Path) -> Path:
    path.mkdir()
    (path / "there").write_text("1")
    return path


def test_the_hash_of_files_follows_names_content_and_permissions(tmp_path: Path) -> None:
    custom = _folder(tmp_path / "custom")
    seen = {hash_files(()), hash_files((("/a", str(custom)),)), hash_files((("/b", str(custom)),))}
    (custom / "there").write_text("2")
    seen.add(hash_files((("/a", str(custom)),)))
    (custom / "there").chmod(0o700)
    seen.add(hash_files((("/a", str(custom)),)))
    assert len(seen) == 5
    with pytest.raises(UsageError, match="there is no such file"):
        hash_files((("/a", f"{custom}/none"),))


@pytest.mark.parametrize("name", ["docker-archive:none.tar", "oci-archive:none.tar:app:1", "oci:none", "none.tar"])
def test_a_missing_image_file_is_a_user_error_and_named_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    source, messages = read_source(name), list[str]()
    sidecar = Sidecar("cache", ImageSpec(source=source), Service((), 0))
    for spec, workloads in ((ImageSpec(source=source), ()), (ImageSpec(), (OfOthers(service_beside=sidecar),))):
        with pytest.raises(UsageError) as error:
            resolve_image(spec, workloads, messages.append)
        assert str(error.value) == f"{source}: there is no such file"
        assert (str(error.value).count("none"), error.value.exit_code) == (1, 2)
    assert (messages, (tmp_path / "home").exists()) == ([], False)  # nothing was begun


@dataclass(frozen=True)
class OfOthers(ApplicationWorkload):
    """Application with this sidecar service."""

    service_beside: Sidecar | None = None

    @property
    def sidecars(self) -> tuple[Sidecar, ...]:
        return (self.service_beside,) if self.service_beside else ()


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("docker-archive:app.tar", False),
        ("docker-archive:app.tar:name:tag", False),
        ("app.tar", False),
        ("app.tar:name", True),  # a path of a root file system has no tag
        ("docker-archive:other.tar:app.tar", True),
        ("docker-daemon:none", False),  # the daemon knows
        ("docker://registry.example/none", False),
        ("containers-storage:none", False),
    ],
)
def test_only_what_is_of_this_machine_can_be_absent_here(name: str, absent: bool, tmp_path: Path) -> None:
    (tmp_path / "app.tar").touch()
    transport = next((each for each in (*FILES, *STORES) if name.startswith(each)), "")
    rest = name.removeprefix(transport)
    source = ImageReference(transport, rest if transport in STORES else str(tmp_path / rest))
    assert source.is_absent == absent


def test_the_packages_of_a_debian_are_read_from_its_status() -> None:
    status = "Package: a\nStatus: install ok installed\nVersion: 1:2-3\n\nPackage: b\nVersion: 4\nDescription: x\n y\n"
    assert parse_packages(status) == "a 1:2-3\nb 4\n"
    assert parse_packages("") == ""
    assert parse_packages("Package: a\n\nVersion: 1\n") == ""
