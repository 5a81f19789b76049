"""Machines that do not come up: a clear error, in a stated time, and nothing left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from calls import NothingLeft
from own_testbed import spec_of

from tare.hosts.network import Network
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.runner.context import RunContext
from tare.runner.layers import start_layer, start_stack
from tare.runner.trial_log import TrialLog
from tare.technologies.crun import Crun
from tare.technologies.qemu_tcg import QemuTcg

pytestmark = pytest.mark.machine

BROKEN = "0" * 64  # what is prepared for it is not taken for the image's


@pytest.fixture(scope="module", autouse=True)
def _prepared(testbed: RunContext) -> None:
    QemuTcg().prepare_image(testbed.host, testbed.images.main)


def _fails(testbed: RunContext, nothing_left: NothingLeft, image: Image | None = None) -> TrialFailed:
    """Start a machine that does not come up; return its error, which left nothing."""
    with (
        nothing_left(),
        pytest.raises(TrialFailed) as caught,
        start_layer(testbed, spec_of(testbed, QemuTcg(), image=image or testbed.images.main), TrialLog()),
    ):
        pytest.fail("it must not start")
    return caught.value


def test_a_kernel_that_is_none_is_named_with_what_the_emulator_said(
    testbed: RunContext, tmp_path: Path, nothing_left: NothingLeft
) -> None:
    for name in ("kernel", "vmlinux"):  # as it is packed, and unpacked
        (tmp_path / name).write_bytes(b"no kernel" * 1000)
    broken = replace(testbed.images.main, digest=BROKEN, kernel=tmp_path / "kernel")
    error = _fails(testbed, nothing_left, broken)
    assert not isinstance(error, TimedOut)
    assert str(error).startswith("the guest did not boot: ")
    assert "kernel" in str(error)


def test_a_guest_that_finds_no_disk_is_named_with_its_last_line(
    testbed: RunContext, tmp_path: Path, nothing_left: NothingLeft
) -> None:
    (tmp_path / "disk.ext4").write_bytes(bytes(1 << 20))
    broken = replace(testbed.images.main, digest=BROKEN, disk=tmp_path / "disk.ext4")
    error = _fails(testbed, nothing_left, broken)
    assert not isinstance(error, TimedOut)
    assert str(error).startswith("the guest did not boot: ")
    assert re.match(r"its kernel said: '.*Kernel panic - not syncing: ", error.hint)


@dataclass(frozen=True)
class Unplugged(Network):
    """A network whose taps lead nowhere."""

    @contextmanager
    def create_tap(self, headers: bool = True) -> Iterator[str]:
        with super().create_tap(headers) as name:
            self.run_ip_in(self.lan, f"link set {name} nomaster")
            yield name


@pytest.mark.slow
def test_a_guest_whose_agent_cannot_be_reached_fails(testbed: RunContext, nothing_left: NothingLeft) -> None:
    network = Unplugged(testbed.network.prefix, testbed.network.subnet, testbed.network.ledger)
    error = _fails(replace(testbed, network=network), nothing_left)
    assert str(error).startswith(f"the guest agent cannot be reached: guest_exec: {network.instance_address}: ")
    assert error.hint


def test_a_layer_that_fails_inside_another_is_named(
    testbed: RunContext, nothing_left: NothingLeft, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    outer = replace(testbed.images.main, disk=tmp_path / "images/digest/disk.ext4")
    here = replace(testbed, images=replace(testbed.images, outer=outer))
    with (
        nothing_left(),
        pytest.raises(TrialFailed, match=r"^in the layer qemu-tcg: qemu-img: exit code 1: ") as caught,
        start_stack(here, here.create_spec(Crun(), QemuTcg()), TrialLog()),
    ):
        pytest.fail("there is no such disk")
    assert "nested-" in str(caught.value)
