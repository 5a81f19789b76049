"""The table [image] of a suite, and the names of images that others have built."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shelf import NATIVE, REDIS, read

from tare.model.errors import UsageError
from tare.model.image import ImageReference, ImageSpec
from tare.suites.suite import read_suite
from tare.suites.tables import read_source

DIGEST = f"sha256:{'0' * 64}"


def wanted(table: str) -> ImageSpec:
    return read(f"{NATIVE}[image]\n{table}\n{REDIS}").image


def test_packages_and_files_are_put_into_debians_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = wanted('packages = ["php-fpm", "g++"]\nfiles = { "/srv/b" = "b", "/srv/a" = "/own/a" }')
    files = (("/srv/a", "/own/a"), ("/srv/b", f"{tmp_path}/b"))
    assert found == ImageSpec("bookworm", ("php-fpm", "g++"), files)


def test_paths_are_relative_to_the_suites_file_wherever_tare_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    image = 'from = "oci:a"\ncredentials = "auth.json"\nfiles = { "/b" = "../b", "/c" = "/c" }\n'
    own = '[stacks.new]\nstack = "native"\nimage = "docker-archive:new.tar"\n'
    (tmp_path / "sub/suite.toml").write_text(f'[suite]\nstacks = ["native", "new"]\n{own}[image]\n{image}{REDIS}')
    for folder in (tmp_path, tmp_path / "sub", Path("/")):
        monkeypatch.chdir(folder)
        suite = read_suite(Path(os.path.relpath(tmp_path / "sub/suite.toml")))
        assert suite.image.source is not None
        paths = (suite.image.source.name, suite.image.source.credentials, *(path for _, path in suite.image.files))
        expected = [tmp_path / "sub/a", tmp_path / "sub/auth.json", tmp_path / "b", Path("/c")]
        assert [Path(os.path.normpath(path)) for path in paths] == expected
        assert suite.stacks[1].override.source is not None
        assert Path(os.path.normpath(suite.stacks[1].override.source.name)) == tmp_path / "sub/new.tar"
    copy = tmp_path / "suite.toml"
    copy.write_text(suite.text)
    files = read_suite(copy, folder=tmp_path / "sub").image.files
    assert files == (("/b", f"{tmp_path}/sub/../b"), ("/c", "/c"))


def test_an_image_of_others_has_its_own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = wanted('from = "docker://r.example/a:1"\ncredentials = "auth.json"\nlimit = "2GiB"')
    assert found == ImageSpec(source=ImageReference("docker://", "r.example/a:1", f"{tmp_path}/auth.json", 2 << 30))
    usual = wanted('from = "oci:a"\nfiles = { "/b" = "b" }')
    assert usual == ImageSpec(
        files=(("/b", f"{tmp_path}/b"),), source=ImageReference("oci:", f"{tmp_path}/a", "", 8 << 30)
    )


@pytest.mark.parametrize(
    ("text", "transport", "name"),
    [
        ("docker-archive:/a/b.tar:app:1", "docker-archive:", "/a/b.tar:app:1"),
        ("oci:/a:latest", "oci:", "/a:latest"),
        ("oci-archive:/a.tar", "oci-archive:", "/a.tar"),
        ("containers-storage:localhost/app:1", "containers-storage:", "localhost/app:1"),
        ("docker-daemon:app:1", "docker-daemon:", "app:1"),
        ("docker://registry.example:5000/a/b@" + DIGEST, "docker://", "registry.example:5000/a/b@" + DIGEST),
        ("/srv/root", "", "/srv/root"),
        ("/srv/root:1.tar", "", "/srv/root:1.tar"),
    ],
)
def test_an_image_is_named_as_skopeo_names_it_or_by_a_path(text: str, transport: str, name: str) -> None:
    assert read_source(text) == ImageReference(transport, name)
    assert str(read_source(text)) == text


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_source("docker-archive:a.tar").name == f"{tmp_path}/a.tar"
    assert read_source("./a:1").name == f"{tmp_path}/a:1"
    with pytest.raises(UsageError):
        read_source("a:1")


@pytest.mark.parametrize("name", ["r.example:5000/a/b", "r.example:5000/a/b:1", f"r.example:5000/a/b:1@{DIGEST[:-1]}1"])
def test_a_registrys_image_is_pinned_by_its_digest_alone(name: str) -> None:
    assert ImageReference("docker://", name).name_with_digest(DIGEST) == f"docker://r.example:5000/a/b@{DIGEST}"


def test_a_resumed_run_takes_only_the_exact_image_of_a_registry() -> None:
    wanted = ImageReference("docker://", "r.example/a:1", "auth.json")
    assert wanted.with_origin("") == wanted
    assert wanted.with_origin(wanted.name_with_digest(DIGEST)) == ImageReference(
        "docker://", f"r.example/a@{DIGEST}", "auth.json"
    )
    archive = ImageReference("docker-archive:", "/a.tar")
    assert archive.with_origin(archive.name_with_digest(DIGEST)) == archive


def test_other_images_keep_their_name_beside_the_digest() -> None:
    assert ImageReference("docker-daemon:", "app:1").name_with_digest(DIGEST) == f"docker-daemon:app:1@{DIGEST}"
