"""The kernel build with the real source, which takes minutes: its packages and its room are in the image."""

from __future__ import annotations

from pathlib import Path

import pytest
from disks_made import free_bytes
from lab_runs import done, outcomes

from tare.images.image import cached_image
from tare.images.recipes import guest_recipe
from tare.journal import load_raw
from tare.workloads.kernel_build import KernelBuild

pytestmark = [pytest.mark.machine, pytest.mark.lab]

SUITE = """\
[suite]
stacks = ["native", "crun"]
blocks = 1

[[workloads]]
use = "kernel-build"
config = "tinyconfig"
builds = 2
"""


def test_a_kernel_is_built_on_bare_metal_and_in_a_container(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE, encoding="utf-8")
    run = done(suite, tmp_path / "run")
    assert set(outcomes(run).values()) == {"ok"}
    kernels = {load_raw(tmp_path / "run", trial.trial)[-1].text for trial in run.trials}
    assert len(kernels) == 1  # every stack compiled the same kernel
    image = cached_image(guest_recipe([KernelBuild("tinyconfig")]))
    assert image is not None
    assert free_bytes(image.disk) > 2 << 30
