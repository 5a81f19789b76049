"""Tests of the search for an image: first in the stores of engines, then in registries."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from images_taken import APP, CAN_TAKE, names, taken
from oci_made import file, layer, layout
from registry import USER, registry

from tare.images import skopeo
from tare.model.errors import TareError
from tare.model.image import ImageReference

pytestmark = CAN_TAKE

LOCAL = ImageReference("docker://", "localhost/tare-test-app:1")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A file that allows skopeo to talk to a registry without TLS, as users have one for theirs."""
    path = tmp_path / ".config/containers/registries.conf"  # in the home of these tests
    path.parent.mkdir(parents=True)
    return path


def allow(plain: Path, address: str) -> None:
    plain.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')


def test_an_image_of_a_registry_is_pinned_by_its_digest(plain: Path, made: Path, scratch: Path) -> None:
    with registry({"app": made}) as address:
        allow(plain, address)
        reference = ImageReference("docker://", f"{address}/app:latest")
        digest = skopeo.resolve_digest(reference, scratch)
        assert reference.name_with_digest(digest) == f"docker://{address}/app@{digest}"
        newer = layout(made.parent / "newer", layer(file("newer")))
        for name in ("index.json", *(f"blobs/sha256/{path.name}" for path in (newer / "blobs/sha256").iterdir())):
            shutil.copy(newer / name, made / name)  # the tag moves
        assert skopeo.resolve_digest(reference, scratch) != digest
        pinned = ImageReference("docker://", reference.name_with_digest(digest).removeprefix("docker://"))
        assert names(taken(pinned, scratch)) == ["app", "app/new", "app/run"]


def test_a_registry_refusal_is_reported_and_user_credentials_give_access(
    plain: Path, tmp_path: Path, made: Path, scratch: Path
) -> None:
    with registry({"app": made}, private=True) as address:
        allow(plain, address)
        with pytest.raises(TareError, match="the registry refuses") as error:
            skopeo.resolve_digest(ImageReference("docker://", f"{address}/app"), scratch)
        assert "credentials = " in error.value.hint
        credentials = tmp_path / "auth.json"
        credentials.write_text(json.dumps({"auths": {address: {"auth": base64.b64encode(USER.encode()).decode()}}}))
        assert names(taken(ImageReference("docker://", f"{address}/app", str(credentials)), scratch)) == [
            "app",
            "app/new",
            "app/run",
        ]


def test_a_registry_without_the_image_is_reported(plain: Path, made: Path, scratch: Path) -> None:
    with registry({"app": made}) as address:
        allow(plain, address)
        for name in ("other", "app:2"):
            with pytest.raises(TareError, match=r"the registry has no such image|there is no image of this name"):
                skopeo.resolve_digest(ImageReference("docker://", f"{address}/{name}"), scratch)


@pytest.fixture
def podman_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private store of Podman; skopeo reads the same settings."""
    store = tmp_path / "store"
    roots = f'driver = "vfs"\ngraphroot = "{store}/graph"\nrunroot = "{store}/run"\n'
    (tmp_path / "storage.conf").write_text(f"[storage]\n{roots}")
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))


@pytest.mark.skipif(not shutil.which("podman"), reason="apt-get install podman")
@pytest.mark.usefixtures("podman_store")
def test_what_podman_has_built_here_is_found_before_a_registry_is_asked(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "app.tar").write_bytes(APP)
    podman = ("podman", "import", "--quiet", str(tmp_path / "app.tar"), LOCAL.name)
    subprocess.run(podman, check=True, capture_output=True, timeout=60)
    found, digest = skopeo.find_image(LOCAL, scratch)
    assert found == ImageReference("containers-storage:", LOCAL.name)
    assert digest == skopeo.resolve_digest(found, scratch)
    assert names(taken(found, scratch)) == ["app", "app/old", "app/run"]


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin/skopeo"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def test_what_docker_has_built_here_is_found_where_podman_has_it_not(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = "echo 'level=fatal msg=\"it does not resolve to an image ID\"' >&2; exit 1"
    stand_in(tmp_path, monkeypatch, f"case $* in *docker-daemon:*) echo {{}} ;; *) {absent} ;; esac")
    found, digest = skopeo.find_image(ImageReference("docker://", "localhost/app"), scratch)
    assert found == ImageReference("docker-daemon:", "localhost/app:latest")
    assert digest == f"sha256:{hashlib.sha256(b'{}' + bytes((10,))).hexdigest()}"


@pytest.mark.usefixtures("podman_store")
def test_an_image_that_is_nowhere_is_reported_with_every_place(scratch: Path) -> None:
    with pytest.raises(TareError) as refused:
        skopeo.find_image(LOCAL, scratch)
    what, name = str(refused.value), LOCAL.name
    assert what.startswith(f"{LOCAL}: it is in none of 3 places: containers-storage:{name}: there is no image of this")
    assert f"; docker-daemon:{name}: " in what
    assert f"; docker://{name}: the registry does not answer" in what
    assert "podman build or docker build" in refused.value.hint


def test_what_is_wrong_with_an_image_that_was_found_is_said_of_it_alone(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, """echo '{"config": {"digest": "a"}, "layers": [{"digest": "b", "size": 99}]}'""")
    with pytest.raises(TareError, match="the image is damaged") as refused:
        skopeo.find_image(LOCAL, scratch)
    assert "places" not in str(refused.value)


def test_only_names_of_engines_are_looked_for_in_their_stores() -> None:
    assert [str(place) for place in LOCAL.candidate_sources()] == [
        f"containers-storage:{LOCAL.name}",
        f"docker-daemon:{LOCAL.name}",
        f"docker://{LOCAL.name}",
    ]
    for name in ("localhost:5000/app:1", "registry.example/localhost/app", "nginx"):
        assert ImageReference("docker://", name).candidate_sources() == (ImageReference("docker://", name),)
    assert ImageReference("oci:", "localhost/app").candidate_sources() == (ImageReference("oci:", "localhost/app"),)


def test_an_image_that_dockers_daemon_does_not_have_is_reported() -> None:
    printed = (  # by skopeo 1.9.3 and Docker 20.10
        'time="2026-11-23T22:43:48Z" level=fatal msg="Error parsing image name \\"docker-daemon:none:1\\": '
        'loading image from docker engine: Error response from daemon: reference does not exist"\n'
    )
    error = skopeo.translate_error(ImageReference("docker-daemon:", "none:1"), printed)
    assert str(error).startswith(
        "docker-daemon:none:1: there is no image of this name: loading image from docker engine"
    )
