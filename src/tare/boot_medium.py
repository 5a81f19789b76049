"""What a monitor boots that does not take the image's disk, kernel and initial RAM disk as they are.

An uncompressed kernel for those that load ELF files alone; an initial RAM disk with the drivers of their controllers;
and, for those that only boot as a PC does, a CD that loads both by ISOLINUX. All of it is made from the image that
everything else runs; what does not depend on the instance is made once and kept beside the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from tare import guest
from tare.errors import TrialFailed
from tare.launch import Launch
from tare.model import Host, Image, Process

TOOLS: Mapping[str, str] = {"xorriso": "xorriso", "cpio": "cpio", "qemu-img": "qemu-utils"}
ELF_TOOLS: Mapping[str, str] = {"lz4": "lz4", "cpio": "cpio"}
LOADER = {"/usr/lib/ISOLINUX/isolinux.bin": "isolinux", "/usr/lib/syslinux/modules/bios/ldlinux.c32": "syslinux-common"}
_SECONDS = 300.0

# Where the compressed kernel is in the file, by Linux's x86 boot protocol (Documentation/arch/x86/boot.rst, 2.08 and
# newer): setup_sects at 0x1f1, payload_offset at 0x248, payload_length at 0x24c. LZ4 alone has its length appended.
_UNPACK = """
[ -e "$2" ] && exit
number() { od -An -v -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; }
start=$((($(number "$1" 497 1) + 1) * 512 + $(number "$1" 584 4)))
length=$(number "$1" 588 4)
case $(od -An -v -t x1 -j "$start" -N 4 "$1" | tr -d ' ') in
02214c18) length=$((length - 4)); unpack=lz4 ;;
fd377a58) unpack=xz ;;
28b52ffd) unpack=zstd ;;
1f8b*) unpack=gzip ;;
*) echo "$1: compressed in a way that is not known" >&2; exit 1 ;;
esac
tail -c "+$((start + 1))" "$1" | head -c "$length" | "$unpack" -dc >"$2.new" && mv "$2.new" "$2"
"""
# The names of the modules, in the order of their loading, are what tiny-initramfs' `init` reads. A later archive's
# files replace those of an earlier one.
_EXTEND = """
set -e
target=$1 initrd=$2; shift 2
[ -e "$target" ] && exit
folder=$(mktemp -d "$target.XXXXXX")
for module do cp "$module" "$folder"; echo "/${module##*/}" >>"$folder/modules"; done
cp "$initrd" "$target.new"
(cd "$folder" && find . -type f | cpio --quiet -o -H newc -R 0:0 | gzip -1) >>"$target.new"
rm -r "$folder"
mv "$target.new" "$target"
"""
# What follows the file has the machine's own end, and its last words on standard error.
_FOLLOW = 'file=$1; shift; tail --follow=name --retry --lines=+1 "$file" 2>/dev/null & "$@" >&2; kill $!'


def elf_kernel(host: Host, image: Image) -> Path:
    """Unpack the image's kernel, once, for monitors that load an uncompressed one."""
    kernel = image.kernel.with_name("vmlinux")
    host.run("sh", "-c", _UNPACK, "sh", str(image.kernel), str(kernel), timeout=_SECONDS)
    return kernel


def initrd(host: Host, image: Image, *modules: str) -> Path:
    """Make an initial RAM disk, once, that loads these kernel modules and all that they need."""
    target = image.initrd.with_name(f"initrd-{'-'.join(modules)}")
    (version,) = host.run("ls", str(image.root / "lib/modules"), timeout=30).text.split()
    folder = image.root / "lib/modules" / version
    files = [str(folder / file) for file in in_order(host.read(str(folder / "modules.dep")), modules)]
    host.run("sh", "-c", _EXTEND, "sh", str(target), str(image.initrd), *files, timeout=_SECONDS)
    return target


def in_order(dependencies: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Give the files of modules so that each comes after those that it needs; from the text of `modules.dep`.

    Raises TrialFailed for a module that the kernel does not have.
    """
    needs = {file: found.split() for file, _, found in (line.partition(":") for line in dependencies.splitlines())}
    names = {PurePosixPath(file).name.partition(".ko")[0].replace("-", "_"): file for file in needs}
    ordered: dict[str, None] = {}

    def add(file: str) -> None:
        if file not in ordered:
            for needed in reversed(needs[file]):
                add(needed)
            ordered[file] = None

    for module in modules:
        if module not in names:
            raise TrialFailed(f"the image's kernel has no module {module}", "`tare image` builds one that has it")
        add(names[module])
    return tuple(ordered)


def cd(host: Host, launch: Launch, initrd: Path, command_line: str) -> str:
    """Make the CD that boots the image's kernel with a command line; gives its path in the instance's folder."""
    folder, target = launch.folder / "cd", str(launch.folder / "cd.iso")
    host.run("mkdir", "-p", str(folder), timeout=30)
    host.run("cp", *LOADER, str(folder), timeout=30)
    lines = ("default tare", "prompt 0", "label tare", "kernel /kernel", "initrd /initrd", f"append {command_line}")
    host.write(str(folder / "isolinux.cfg"), "\n".join(lines) + "\n")
    boot = ("-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table")
    files = (f"/kernel={launch.image.kernel}", f"/initrd={initrd}", f"/={folder}")
    make = ("xorriso", "-as", "mkisofs", "-quiet", "-o", target, *boot, "-graft-points", *files)
    host.run(*make, timeout=_SECONDS)
    return target


def missing_loader(host: Host) -> dict[str, str]:
    """Find which files of the boot loader a host lacks, each with its Debian package."""
    return {
        file: package
        for file, package in LOADER.items()
        if host.run("test", "-e", file, timeout=10, check=False).exit_code
    }


@contextmanager
def console(host: Host, path: str) -> Iterator[Process]:
    """Follow the file into which somebody else's daemon writes what the machine says on its serial port."""
    with host.spawn("tail", "--follow=name", "--retry", "--lines=+1", path) as process:
        yield process


def with_console(path: str, *command: str) -> tuple[str, ...]:
    """Give the command that runs a machine and prints what comes into the file of its serial port, until it ends."""
    return ("sh", "-c", _FOLLOW, "sh", path, *command)


def command_line(launch: Launch, key: str, root: str = "/dev/sda") -> str:
    """Write the kernel's command line for a machine that is booted from the CD and has its disk behind SCSI."""
    return guest.command_line(launch, key, root=root)
