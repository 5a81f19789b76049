"""Images as tests take them over: what they are made of, and what is taken."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from oci_made import file, folder, layer

from tare.images import skopeo
from tare.model.image import ImageReference

CAN_TAKE = [
    pytest.mark.skipif(not (shutil.which("skopeo") and shutil.which("umoci")), reason="apt-get install skopeo umoci"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can unpack what belongs to others"),
    pytest.mark.usefixtures("own_settings"),
]
APP = layer(folder("app"), file("app/run", b"#!app\n", 0o755), file("app/old", b"1"))
NEWER = layer(file("app/.wh.old"), file("app/new", b"22"))
CONFIG = {"Entrypoint": ["/app/run"], "User": "7:8"}


def taken(wanted: ImageReference, scratch: Path) -> Path:
    """Return the root of an image, as it is taken over."""
    here = skopeo.copy_to_layout(wanted, skopeo.resolve_digest(wanted, scratch), scratch)
    skopeo.check_layers(wanted, here, skopeo.read_layout_manifest(here))
    skopeo.unpack_layout(wanted, here, scratch / "root")
    return scratch / "root"


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))
