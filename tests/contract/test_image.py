"""The image: built once, named by its content, with the list of what is in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from disks_made import free_bytes, zeroed
from marks import slow
from waiting import wait_until

from tare.hosts.local import LocalHost
from tare.images.cache import write_seal
from tare.images.image import ensure_image
from tare.images.layered import with_files
from tare.images.recipes import MAKE_INITRD, Recipe
from tare.images.tree import TIME_OF_FILES
from tare.model.files import read_text
from tare.model.image import Image
from tare.plugins import registry

pytestmark = pytest.mark.machine

TARE = (sys.executable, "-m", "tare")
SMALL = """
from tare.images.image import ensure_image
from tare.images.cache import write_seal
from tare.images.recipes import Recipe
print(ensure_image(print, Recipe(packages=("busybox-static",), kernel="", server=False)).root)
"""
BUILD = """
from tare.images.image import ensure_image
from tare.model.errors import TareError
try:
    ensure_image(print)
except TareError as error:
    print(f"error: {error}")
    print(f"hint: {error.hint}")
"""


def test_an_image_that_is_cached_is_not_built_again(image: Image) -> None:
    said: list[str] = []
    before = [path.stat() for path in (image.archive, image.disk)]
    assert ensure_image(said.append) == image
    assert said == []
    assert [path.stat() for path in (image.archive, image.disk)] == before


@pytest.mark.slow
def test_an_image_with_one_changed_byte_is_built_anew_and_it_is_said(tmp_path: Path) -> None:
    """What is changed was not built, to save the time; what is built in its place is."""
    home = tmp_path / "images" / ("0" * 64)
    (home / "root").mkdir(parents=True)
    (home / "root/program").write_bytes(b"program")
    link = tmp_path / "images/roots" / Recipe(packages=("busybox-static",), kernel="", server=False).key
    link.parent.mkdir()
    link.symlink_to(Path("..") / home.name)
    write_seal(home)
    with (home / "root/program").open("r+b") as file:
        file.write(b"P")
    said = _small(tmp_path).splitlines()
    assert said[0] == "image: root was modified after the build: building the image again"
    root = Path(said[-1])
    assert (root / "bin/busybox").exists()
    assert not home.exists()
    assert link.resolve() == root.parent
    assert _small(tmp_path).splitlines() == [str(root)]


def _small(home: Path) -> str:
    """Return what is said, and the root of the image."""
    environment = os.environ | {"TARE_HOME": str(home)}
    command = (sys.executable, "-c", SMALL)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_digest_is_the_hash_of_the_archive(image: Image) -> None:
    with image.archive.open("rb") as archive:
        assert hashlib.file_digest(archive, "sha256").hexdigest() == image.digest
    assert image.tag == f"tare-image:{image.digest[:16]}"


def test_no_guest_has_to_zero_the_inode_tables_of_the_disk(image: Image) -> None:
    """Each guest wrote 30 MB for it while it was measured."""
    assert zeroed(image.disk) == [True] * (image.disk.stat().st_size >> 27)


def test_the_list_of_packages_has_versions(image: Image) -> None:
    versions = dict(line.split(" ") for line in image.packages.splitlines())
    assert versions["redis-server"].startswith("5:7.0.")
    assert versions["nginx-light"].startswith("1.22.")
    assert all(versions.values())
    assert list(versions) == sorted(versions)


def test_the_image_has_every_form_and_nothing_specific_to_a_machine(image: Image) -> None:
    assert (image.root / "usr/lib/tare/init").stat().st_mode & 0o777 == 0o755
    assert image.disk.stat().st_size == image.disk_bytes
    assert free_bytes(image.disk) >= 1 << 30
    assert image.kernel.stat().st_size > 1 << 20
    assert image.initrd.stat().st_size > 1 << 14
    assert list((image.root / "etc/ssh").glob("ssh_host_*")) == []
    assert not (image.root / "etc/machine-id").exists()
    assert not (image.root / "etc/hostname").exists()
    assert (image.root / "etc/resolv.conf").read_bytes() == b""
    assert (image.root / "etc/hosts").read_text().startswith("127.0.0.1\tlocalhost\n")
    assert list((image.root / "var/log").iterdir()) == []


def test_files_have_a_time_that_every_program_takes(image: Image) -> None:
    times = [path.lstat().st_mtime for path in image.root.rglob("*")]
    assert min(times) > 86400 * 365
    assert max(times) == TIME_OF_FILES


MAKE_AGAIN = """
mount -t tmpfs tmpfs "$2" && mkdir "$2/upper" "$2/work" "$2/root" || exit 1
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root" || exit 1
chroot "$2/root" sh -c "$3" sh "$4" && cat "$2/root/boot/initrd"
"""


def test_the_initrd_has_the_same_bytes_whenever_it_is_made(image: Image, tmp_path: Path) -> None:
    words = (str(image.root), str(tmp_path), MAKE_INITRD, ",".join(Recipe().modules))
    command = ("unshare", "--mount", "sh", "-c", MAKE_AGAIN, "sh", *words)
    made = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert made == image.initrd.read_bytes()


@pytest.mark.slow
def test_two_builds_of_a_recipe_with_the_same_packages_have_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    for name in ("one", "two"):
        monkeypatch.setenv("TARE_HOME", str(tmp_path / name))
        built.append(ensure_image(print, Recipe(server=False)))  # the server is built once, by another test
    one, two = built
    assert one.packages == two.packages  # otherwise the mirror has changed meanwhile
    assert one.initrd.read_bytes() == two.initrd.read_bytes()
    assert one.digest == two.digest


@pytest.mark.parametrize("name", slow(["docker", "podman"], ["podman"]))
def test_an_engine_has_a_suites_files_over_the_image_and_nothing_else(name: str, image: Image, tmp_path: Path) -> None:
    host, engine = LocalHost(), registry.find("technologies", name)()
    if problems := engine.problems(host):
        pytest.skip(problems[0].what)
    (tmp_path / "file").write_text("of the suite\n")
    layered = with_files(image, (("/srv/file", str(tmp_path / "file")),))
    assert layered.layer
    engine.prepare_image(host, image)
    engine.prepare_image(host, layered)
    try:
        show = 'cat /srv/file; stat -c "%Y %a %u %n" /srv /srv/file; env | cut -d = -f 1 | sort'
        limits = ("--ulimit=nofile=512:512", "--ulimit=nproc=512:512")  # Podman raises them, which may not be allowed
        run = (name, "run", "--rm", "--network=none", *limits)
        said = host.run(*run, layered.tag, "sh", "-c", show, timeout=60).text
        below = host.run(*run, image.tag, "sh", "-c", show, timeout=60, check=False).text
    finally:
        engine.remove_images(host, layered.tag)
        shutil.rmtree(layered.layer.parent)
    times = f"{TIME_OF_FILES} 755 0 /srv\n"
    assert said.splitlines(keepends=True)[:3] == ["of the suite\n", times, f"{TIME_OF_FILES} 644 0 /srv/file\n"]
    assert said.splitlines()[3:] == below.splitlines()[1:], "the variables are those of the image alone"


@pytest.mark.slow
def test_a_killed_build_leaves_only_folders_that_the_next_tare_removes(
    tmp_path: Path,
) -> None:
    for name in ("home", "scratch"):
        (tmp_path / name).mkdir()
    environment = os.environ | {"TARE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "scratch")}
    command = (sys.executable, "-c", SMALL)
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: bool(mounted(tmp_path)) or process.poll() is not None)
        assert process.poll() is None, "it has ended before anything was mounted"
        process.kill()
    wait_until(lambda: not mounted(tmp_path) and not at_work(tmp_path))
    assert len(list(tmp_path.glob("*/**/tare-building-*"))) == 2  # the image's, and that of mmdebstrap
    clean = subprocess.run((*TARE, "clean"), env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (clean.returncode, clean.stderr) == (0, "clean\n")
    assert list(tmp_path.glob("*/**/tare-building-*")) == []


def mounted(folder: Path) -> list[str]:
    """Name the processes that see something mounted in a folder."""
    return [str(path) for path in Path("/proc").glob("[0-9]*/mountinfo") if f" {folder}/" in read_text(str(path))]


def at_work(folder: Path) -> list[str]:
    """Name the processes that are told of a folder by their environment."""
    return [str(path) for path in Path("/proc").glob("[0-9]*/environ") if f"={folder}/scratch" in read_text(str(path))]


def test_a_missing_mmdebstrap_is_reported_with_its_install_command(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cc", "mke2fs", "sh"):
        (programs / name).symlink_to(f"/usr/bin/{name}" if name != "mke2fs" else "/usr/sbin/mke2fs")
    environment = os.environ | {"PATH": str(programs), "TARE_HOME": str(tmp_path / "home")}
    output = subprocess.run(
        [sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert output.stdout == (
        "error: cannot build the image: mmdebstrap is not installed\n"
        "hint: apt-get install mmdebstrap; or build it in an image of Debian: tare image --from docker://debian:12\n"
    )
    assert not (tmp_path / "home/images").exists()
