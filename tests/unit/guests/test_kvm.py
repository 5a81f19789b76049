from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tare.guests import kvm
from tare.hosts.local import LocalHost
from tare.model.trials import Image

PATH = Path("/nonexistent")
PACKAGES = "bash 5.2\nlinux-image-6.1.0-56-cloud-amd64 6.1.192-2\n"
QEMU = """\
#!/bin/sh
test "$1" != --version || exec echo QEMU emulator version 7.2.22
echo probe >> {folder}/probes
echo 'Decompressing Linux...'
echo '{last}'
"""


@pytest.mark.parametrize(("last", "works"), [("Run /init as init process", True), ("Kernel panic", False)])
def test_what_is_known_of_kvm_holds_for_each_image_with_the_same_kernel(
    last: str, works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / kvm.PROGRAM).write_text(QEMU.format(folder=tmp_path, last=last))
    (tmp_path / kvm.PROGRAM).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    image = Image("1" * 64, PATH, PATH, PATH, PATH, PATH, PACKAGES)
    other = replace(image, digest="2" * 64, packages=f"{PACKAGES}redis-server 7.0\n")
    newer = replace(image, digest="3" * 64, packages=PACKAGES.replace("6.1.192-2", "6.1.193-1"))
    assert [kvm._boots(LocalHost(), each, 20.0) for each in (image, other, image)] == [works] * 3
    assert (tmp_path / "probes").read_text().count("probe") == 1
    assert kvm._boots(LocalHost(), newer, 20.0) == works
    assert (tmp_path / "probes").read_text().count("probe") == 2
