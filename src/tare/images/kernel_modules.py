"""Modules of the image's kernel: the order of loading, and copies of them for images that others have built.

Such an image boots tare's kernel, and has no modules of that kernel. Those that a monitor's initial RAM disk may need
are put next to tare's programs in it.
"""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

from tare.model.errors import TrialFailed

CARRIED_MODULES = "usr/lib/tare/modules"  # in the image; `modules.dep` there has the dependencies
# All modules that technologies load before the disk of the image is there.
DRIVERS = (
    *("virtio_mmio", "virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net"),
    *("sd_mod", "BusLogic", "vmw_pvscsi", "vmxnet3"),
)
_DEPENDENCIES = "modules.dep"


def order_modules(dependencies: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files of modules in the order of loading, with each after its dependencies.

    `dependencies` is the text of the kernel's `modules.dep`. Raises TrialFailed for a module that the kernel lacks.
    """
    needs = _parse_dependencies(dependencies)
    names = _files_by_module(needs)
    ordered: dict[str, None] = {}

    def add_with_dependencies(file: str) -> None:
        if file not in ordered:
            for needed in reversed(needs[file]):
                add_with_dependencies(needed)
            ordered[file] = None

    for module in modules:
        if module not in names:
            raise TrialFailed(f"the image's kernel has no module {module}", "`tare image` builds one that has it")
        add_with_dependencies(names[module])
    return tuple(ordered)


def copy_drivers(root: Path, target: Path) -> None:
    """Copy the drivers that the kernel of the image `root` has as modules to a new folder, with their dependencies."""
    for folder in (root / "lib/modules").glob("*"):  # a single one, or none
        text = (folder / _DEPENDENCIES).read_text(encoding="utf-8")
        needs = _parse_dependencies(text)
        known = _files_by_module(needs)
        files = order_modules(text, tuple(name for name in DRIVERS if name in known))
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / file, target / file)
        lines = [f"{file}: {' '.join(needs[file])}".rstrip() + "\n" for file in files]
        (target / _DEPENDENCIES).write_text("".join(lines), encoding="utf-8")


def _parse_dependencies(text: str) -> dict[str, list[str]]:
    """Return the files that the file of each module needs."""
    return {file: needed.split() for file, _, needed in (line.partition(":") for line in text.splitlines())}


def _files_by_module(needs: dict[str, list[str]]) -> dict[str, str]:
    return {PurePosixPath(file).name.partition(".ko")[0].replace("-", "_"): file for file in needs}
