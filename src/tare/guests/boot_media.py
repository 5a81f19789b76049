"""Boot media for monitors that cannot boot the image's disk, kernel and initial RAM disk directly.

- An uncompressed kernel is for monitors that only load ELF files.
- An initial RAM disk has the drivers of a monitor's controllers.
- A CD loads both on monitors that boot like a PC. It uses ISOLINUX with a BIOS, and a unified kernel image with UEFI
  (systemd-stub(7) with the kernel, the initial RAM disk and the command line as sections).

All are made from the image. The kernel and the initial RAM disk do not depend on the instance: they are made once, and
cached next to the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tare.guests import guest
from tare.hosts.facts import architecture_of
from tare.hosts.host import Host, Process
from tare.images.kernel_modules import CARRIED_MODULES, order_modules
from tare.model.errors import Unavailable
from tare.model.image import Image
from tare.model.trial import Problem
from tare.plugins.technology import LaunchRequest

TOOLS: Mapping[str, str] = {"xorriso": "xorriso", "cpio": "cpio", "qemu-img": "qemu-utils"}
ELF_TOOLS: Mapping[str, str] = {"lz4": "lz4", "cpio": "cpio"}
EFI_TOOLS: Mapping[str, str] = {**TOOLS, "objcopy": "binutils", "mcopy": "mtools"}
_EFI_STUB = "/usr/lib/systemd/boot/efi/linux{}.efi.stub"
EFI_STUB_PACKAGE = "systemd-boot-efi"
LOADER = {"/usr/lib/ISOLINUX/isolinux.bin": "isolinux", "/usr/lib/syslinux/modules/bios/ldlinux.c32": "syslinux-common"}
# Modules for disks and network cards of virtio without PCI.
MMIO_DRIVERS = ("virtio_mmio", "virtio_blk", "virtio_net")
_SECONDS = 300.0

# Three formats. A kernel for arm64 (Documentation/arch/arm64/booting.rst, magic number at 56) is not compressed. An EFI
# program that unpacks its kernel (drivers/firmware/efi/libstub/zboot-header.S) has `zimg` at 4, the payload's offset at
# 8 and its length at 12. Linux's x86 boot protocol (Documentation/arch/x86/boot.rst, 2.08 and newer) locates the
# compressed kernel: setup_sects at 0x1f1, payload_offset at 0x248, payload_length at 0x24c. Linux appends the length of
# the kernel to all data but those of gzip (`*_with_size` in scripts/Makefile.lib), in 4 bytes that only payload_length
# counts: they are cut off. The script prints the program that is missing for the compression.
_UNPACK = """
[ -e "$2" ] && exit
number() { od -An -v -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; }
word() { od -An -v -t x1 -j "$2" -N 4 "$1" | tr -d ' '; }
if [ "$(word "$1" 56)" = 41524d64 ]; then ln "$1" "$2"; exit; fi
if [ "$(word "$1" 4)" = 7a696d67 ]; then
    start=$(number "$1" 8 4)
    length=$(number "$1" 12 4)
    appended=0
else
    start=$((($(number "$1" 497 1) + 1) * 512 + $(number "$1" 584 4)))
    length=$(number "$1" 588 4)
    appended=4
fi
case $(word "$1" "$start") in
02214c18) unpack=lz4 ;;
fd377a58) unpack=xz ;;
28b52ffd) unpack=zstd ;;
1f8b*) unpack=gzip ;;
*) echo "$1: unknown compression" >&2; exit 1 ;;
esac
command -v "$unpack" >/dev/null || { echo "$unpack"; exit; }
[ "$unpack" = gzip ] || length=$((length - appended))
tail -c "+$((start + 1))" "$1" | head -c "$length" | "$unpack" -dc >"$2.new" && mv "$2.new" "$2"
"""
_UNPACKERS = {"gzip": "gzip", "lz4": "lz4", "xz": "xz-utils", "zstd": "zstd"}
# `init` of tiny-initramfs loads the modules that the file /modules names, in this order. Linux unpacks concatenated
# archives one after the other, so that the appended files replace those of the image. It loads no compressed modules,
# as those of Debian 13 are. The script prints the program that is missing for the compression.
_EXTEND = """
set -e
target=$1 initrd=$2; shift 2
[ -e "$target" ] && exit
folder=$(mktemp -d "$target.XXXXXX")
for module do
    name=${module##*/} unpack=
    case $name in
    *.xz) unpack=xz ;;
    *.zst) unpack=zstd ;;
    *.gz) unpack=gzip ;;
    esac
    command -v "${unpack:-cat}" >/dev/null || { rm -r "$folder"; echo "$unpack"; exit; }
    "${unpack:-cat}" ${unpack:+-dc} "$module" >"$folder/${name%%.ko*}.ko"
    echo "/${name%%.ko*}.ko" >>"$folder/modules"
done
cp "$initrd" "$target.new"
(cd "$folder" && find . -type f | cpio --quiet -o -H newc -R 0:0 | gzip -1) >>"$target.new"
rm -r "$folder"
mv "$target.new" "$target"
"""
# UEFI runs \EFI\BOOT\BOOTX64.EFI, on arm64 BOOTAA64.EFI, of the file system that the CD's boot record points to. Like
# systemd's ukify, the script puts the section of the kernel after those of the stub, and that of the initial RAM disk
# after the kernel's.
_EFI_CD = """
set -e
folder=$1 kernel=$2 initrd=$3 stub=$4 target=$5 name=$6
after=$((0x2000000 + ($(stat -c %s "$kernel") + 0xfffff) / 0x100000 * 0x100000))
objcopy --add-section ".cmdline=$folder/words" --change-section-vma .cmdline=0x30000 \
    --add-section ".linux=$kernel" --change-section-vma .linux=0x2000000 \
    --add-section ".initrd=$initrd" --change-section-vma ".initrd=$after" "$stub" "$folder/program"
sectors=$(($(stat -c %s "$folder/program") / 512 + 4096))
truncate -s "$((sectors * 512))" "$folder/efi"
mformat -i "$folder/efi" -T "$sectors" -h 16 -s 63 ::
mmd -i "$folder/efi" ::/EFI ::/EFI/BOOT
mcopy -i "$folder/efi" "$folder/program" "::/EFI/BOOT/$name"
xorriso -as mkisofs -quiet -o "$target" -e efi -no-emul-boot -graft-points "/efi=$folder/efi"
rm -r "$folder"
"""
# The shell ends with the command. The command's output goes to standard error: standard output is the serial port.
_FOLLOW_AND_RUN = 'file=$1; shift; tail --follow=name --retry --lines=+1 "$file" 2>/dev/null & "$@" >&2; kill $!'


def unpacked_kernel_path(image: Image) -> Path:
    """Return the path of the image's uncompressed kernel, which may not exist yet."""
    return image.kernel.with_name("vmlinux")


def ensure_elf_kernel(host: Host, image: Image) -> Path:
    """Return the path of the image's uncompressed kernel, after unpacking it if it does not exist."""
    kernel = unpacked_kernel_path(image)
    unpack_kernel(host, str(image.kernel), str(kernel))
    return kernel


def unpack_kernel(host: Host, kernel: str, target: str) -> None:
    """Unpack a compressed Linux kernel to `target`, unless the target exists.

    Raises Unavailable if the host lacks the program that unpacks it, which depends on the kernel's release.
    """
    _unpack(host, "the kernel", _UNPACK, kernel, target)


def _unpack(host: Host, what: str, script: str, *arguments: str) -> None:
    """Run a script that prints the program it lacks; raises Unavailable with the package of that program."""
    if missing := host.run("sh", "-c", script, "sh", *arguments, timeout=_SECONDS).text.strip():
        problem = Problem.from_packages(f"{missing}, which unpacks {what}, is not installed", _UNPACKERS[missing])
        raise Unavailable(problem.what, problem.fix)


def initrd_path(image: Image, *modules: str) -> Path:
    """Return the path of the initial RAM disk that loads kernel modules, which may not exist yet."""
    return image.initrd.with_name(f"initrd-{'-'.join(modules)}")


def make_initrd(host: Host, image: Image, *modules: str) -> Path:
    """Return the path of an initial RAM disk that loads kernel modules and their dependencies; make it once.

    Raises Unavailable if the host lacks the program that unpacks the modules.
    """
    target = initrd_path(image, *modules)
    folder = image.root / CARRIED_MODULES
    if host.run("test", "-d", str(folder), timeout=30, check=False).exit_code:
        (version,) = host.run("ls", str(image.root / "lib/modules"), timeout=30).text.split()
        folder = image.root / "lib/modules" / version
    # The order matters: tiny-initramfs loads modules one by one, without resolving dependencies.
    files = [str(folder / file) for file in order_modules(host.read(str(folder / "modules.dep")), modules)]
    _unpack(host, "the kernel's modules", _EXTEND, str(target), str(image.initrd), *files)
    return target


def make_cd(host: Host, launch: LaunchRequest, initrd: Path, command_line: str) -> str:
    """Make the CD that boots the image's kernel with a BIOS; return its path in the instance's folder."""
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


def make_efi_cd(host: Host, launch: LaunchRequest, initrd: Path, command_line: str) -> str:
    """Make the CD that boots the image's kernel with UEFI; return its path in the instance's folder."""
    folder, target, suffix = launch.folder / "cd", str(launch.folder / "cd.iso"), launch.image.architecture.efi
    host.run("mkdir", "-p", str(folder), timeout=30)
    host.write(str(folder / "words"), command_line)
    files = (str(folder), str(launch.image.kernel), str(initrd), _EFI_STUB.format(suffix), target)
    host.run("sh", "-c", _EFI_CD, "sh", *files, f"BOOT{suffix.upper()}.EFI", timeout=_SECONDS)
    return target


def find_missing_efi_stub(host: Host) -> tuple[Problem, ...]:
    """Return the problem that the stub of EFI programs is missing, or ()."""
    return find_missing_files(host, {_EFI_STUB.format(architecture_of(host).efi): EFI_STUB_PACKAGE})


def find_missing_files(host: Host, packages: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return a problem for each missing file of a boot loader; `packages` has the Debian package of each file."""
    return tuple(
        Problem.from_packages(f"{file} is missing", package)
        for file, package in packages.items()
        if host.run("test", "-e", file, timeout=10, check=False).exit_code
    )


@contextmanager
def follow_console(host: Host, path: str) -> Iterator[Process]:
    """Context manager: yield a process that prints the file to which a daemon writes a machine's serial output."""
    with host.spawn("tail", "--follow=name", "--retry", "--lines=+1", path) as process:
        yield process


def with_console_output(path: str, *command: str) -> tuple[str, ...]:
    """Return a command that runs a machine, and prints the file of its serial port until the machine ends."""
    return ("sh", "-c", _FOLLOW_AND_RUN, "sh", path, *command)


def command_line(launch: LaunchRequest, console: str = "") -> str:
    """Return the kernel's command line for a machine that boots from the CD and has a SCSI disk."""
    return guest.command_line(launch, "/dev/sda", console)
