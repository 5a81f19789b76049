"""Modules of a kernel: the order of loading, and those that an image of somebody else gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.guests.boot_media import MMIO_DRIVERS
from tare.images.kernel_modules import DRIVERS, copy_drivers, order_modules
from tare.model.errors import TrialFailed
from tare.technologies import lxd_vm
from tare.technologies.virtualbox import Virtualbox
from tare.technologies.vmware import Vmware

DEPENDENCIES = """\
kernel/drivers/scsi/scsi_common.ko:
kernel/drivers/scsi/scsi_mod.ko: kernel/drivers/scsi/scsi_common.ko
kernel/drivers/scsi/sd_mod.ko: kernel/drivers/scsi/scsi_mod.ko kernel/drivers/scsi/scsi_common.ko
kernel/drivers/scsi/vmw_pvscsi.ko.xz: kernel/drivers/scsi/scsi_mod.ko kernel/drivers/scsi/scsi_common.ko
kernel/fs/xfs/xfs.ko:
"""


def test_a_module_is_loaded_after_those_that_it_needs_and_once() -> None:
    files = order_modules(DEPENDENCIES, ("sd_mod", "vmw_pvscsi"))
    names = ["scsi_common.ko", "scsi_mod.ko", "sd_mod.ko", "vmw_pvscsi.ko.xz"]
    assert [Path(file).name for file in files] == names


def test_a_module_that_the_kernel_does_not_have_is_named() -> None:
    with pytest.raises(TrialFailed, match="no module mptspi"):
        order_modules(DEPENDENCIES, ("mptspi",))


def test_the_drivers_of_a_kernel_are_copied_with_what_they_need(tmp_path: Path) -> None:
    modules, target = tmp_path / "root/lib/modules/6.1.0", tmp_path / "modules"
    for line in DEPENDENCIES.splitlines():
        file = modules / line.partition(":")[0]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    (modules / "modules.dep").write_text(DEPENDENCIES)
    copy_drivers(tmp_path / "root", target)
    wanted = ("sd_mod", "vmw_pvscsi")  # of the drivers, this kernel has no others
    files = order_modules((target / "modules.dep").read_text(), wanted)
    assert files == order_modules(DEPENDENCIES, wanted)
    assert [(target / file).read_text() for file in files] == [Path(file).name for file in files]
    assert not list(target.glob("**/xfs*"))


def test_every_driver_of_a_technology_is_among_them() -> None:
    assert {*MMIO_DRIVERS, *lxd_vm._DRIVERS, *Virtualbox.drivers, *Vmware.drivers} == set(DRIVERS)
