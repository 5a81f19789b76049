"""Images of OCI made by hand, good ones and such as a stranger might send: layers, configuration, index."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

KIND = "application/vnd.oci.image"
Entry = Callable[[tarfile.TarFile], None]


def file(name: str, content: bytes = b"", mode: int = 0o644, attributes: Mapping[str, str] | None = None) -> Entry:
    def add(archive: tarfile.TarFile) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.pax_headers = len(content), mode, dict(attributes or {})
        archive.addfile(entry, io.BytesIO(content))

    return add


def other(name: str, kind: bytes, target: str = "", mode: int = 0o755, device: tuple[int, int] = (0, 0)) -> Entry:
    def add(archive: tarfile.TarFile) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.mode = kind, target, mode
        entry.devmajor, entry.devminor = device
        archive.addfile(entry)

    return add


def folder(name: str, mode: int = 0o755) -> Entry:
    return other(name, tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> Entry:
    return other(name, tarfile.SYMTYPE, target)


def hard_link(name: str, target: str) -> Entry:
    return other(name, tarfile.LNKTYPE, target)


def layer(*entries: Entry, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar archive."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as archive:
        for add in entries:
            add(archive)
    return target.getvalue()


def layout(
    path: Path,
    *layers: bytes,
    config: Mapping[str, Any] | None = None,
    platform: tuple[str, str] = ("linux", "amd64"),
    packed: bool = True,
) -> Path:
    """Write an image with the tag `latest`; return its folder."""
    (path / "blobs/sha256").mkdir(parents=True)
    (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def keep(kind: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (path / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": f"{KIND}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    sums = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    kept = [
        keep("layer.v1.tar+gzip", gzip.compress(each, 1, mtime=0)) if packed else keep("layer.v1.tar", each)
        for each in layers
    ]
    rootfs = {"type": "layers", "diff_ids": sums}
    text = {"os": platform[0], "architecture": platform[1], "config": config or {}, "rootfs": rootfs}
    described = keep("config.v1+json", json.dumps(text).encode())
    whole = {"schemaVersion": 2, "mediaType": f"{KIND}.manifest.v1+json", "config": described, "layers": kept}
    manifest = keep("manifest.v1+json", json.dumps(whole).encode())
    manifest["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    write_index(path, [manifest])
    return path


def write_index(path: Path, manifests: Sequence[Mapping[str, Any]]) -> None:
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
