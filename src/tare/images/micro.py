"""Build of tare's server `micro`: one application for Linux, as unikernels for Solo5 and ArceOS, and for WebAssembly.

cargo builds the server once from programs/unikernel. The built files are cached under the hash of the sources. The
crates that cargo fetches stay in the state folder, too. Other hosts get the built files. The Linux program is built for
another architecture, too; the unikernels exist for x86-64 only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from tare.hosts.distributions import combine_fixes, localize_problems
from tare.hosts.host import Host
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost
from tare.images.build_environment import (
    build_host,
    c_compiler,
    create_build_folder,
    find_missing_build_tools,
    has_build_root,
    install_packages,
    program_folder,
)
from tare.model.architecture import Architecture, this_architecture
from tare.model.errors import TareError, TrialFailed
from tare.model.trial import Problem

SERVER = "/usr/lib/tare/micro"  # in the image
_HOST = LocalHost()
_BUILD_SECONDS = 3600.0  # with a standard library, on a machine with other work: 29 minutes seen
_REMOTE_UNIKERNELS = PurePosixPath("/var/lib/tare/unikernels")  # on another host
_MIN_RUST_VERSION = (1, 85)  # the first with the edition of 2024
_DEBIAN_RUST = ("/usr/bin/cargo", "/usr/bin/rustc")  # programs/unikernel/build prefers these


@dataclass(frozen=True)
class MicroBuild:
    """Build of some targets of programs/unikernel/build, with their crates.

    `tools` maps the programs for the build to their Debian packages. The files are for the architecture named `machine`
    by the kernel; "" is this machine's.
    """

    about: str
    targets: tuple[str, ...]
    crates: tuple[str, ...]
    tools: Mapping[str, str]
    builds_library: bool = False  # cargo also builds Rust's standard library, as none is installed for the target
    machine: str = ""

    @property
    def key(self) -> str:
        """Hash of the sources, which is the same for all architectures."""
        digest = hashlib.sha256(repr(self.targets).encode())
        folder = _source_folder()
        for source in sorted(self._source_files(folder)):
            digest.update(str(source.relative_to(folder)).encode() + b"\0" + source.read_bytes())
        return digest.hexdigest()

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """The Debian packages for the build."""
        rust = ("cargo-web", "rustc-web", *(("rust-web-src",) if self.builds_library else ()))
        return (*rust, *(package for packages in self.tools.values() for package in packages.split()))

    @property
    def folder(self) -> Path:
        """The folder of the built files on this machine, which may not exist yet."""
        return state_folder() / "unikernels" / (f"{self.key}-{self.machine}" if self.machine else self.key)

    def problems(self) -> tuple[Problem, ...]:
        """Return what this machine lacks for the build; () if the files are built already or a build root exists."""
        if os.access(self.folder, os.R_OK) or has_build_root():
            return ()
        missing = find_missing_build_tools(self.tools)
        if "pkg-config" in self.tools and shutil.which("pkg-config"):
            check = _HOST.run("pkg-config", "--exists", "libseccomp", timeout=10, check=False)
            missing += [_not_installed("libseccomp's headers", "libseccomp-dev")] if check.exit_code else []
        return (*_rust_problems(self.builds_library), *missing)

    def ensure_built(self, say: Callable[[str], None]) -> Path:
        """Return the folder of the built files; build them if needed, which takes minutes.

        Raises TareError with the packages to install, or with cargo's last output.
        """
        folder = self.folder
        if folder.exists():
            return folder
        if problems := self.problems():
            hint = combine_fixes(localize_problems(_HOST, problems))
            raise TareError(f"cannot build micro: {'; '.join(problem.what for problem in problems)}", hint)
        say(f"micro: building {self.about}, which is done once")
        home = folder.parent
        home.mkdir(parents=True, exist_ok=True)
        with create_build_folder(home) as scratch:
            self._build(scratch, home / "cargo")
            scratch.joinpath("output").rename(folder)  # atomic: the folder exists only once the build is complete
        return folder

    def _build(self, scratch: Path, cargo_home: Path) -> None:
        variables = (
            f"CARGO_HOME={cargo_home}",
            f"CARGO_TARGET_DIR={scratch / 'target'}",
            f"MACHINE={self.machine}",
        )
        command = ("sh", str(_source_folder() / "build"), str(scratch / "output"), *self.targets)
        try:
            install_packages(self.debian_packages)
            build_host().run("env", *variables, *command, timeout=_BUILD_SECONDS)
        except TrialFailed as error:
            hint = "check that cargo reaches the registry of crates, from which it must fetch once"
            raise TareError(f"cannot build micro: {error}", hint) from error

    def _source_files(self, folder: Path) -> Iterator[Path]:
        yield from (path for path in folder.iterdir() if path.is_file())
        for crate in self.crates:
            files = (path for path in (folder / crate).rglob("*") if path.is_file())
            # A changed test needs no other build.
            yield from (path for path in files if "tests" not in path.relative_to(folder).parts)


LINUX = MicroBuild(
    "the server for Linux",
    ("linux",),
    ("application", "linux"),
    {"cc": "gcc libc6-dev"},
)
SOLO5 = MicroBuild(
    "the unikernels of Solo5",
    ("solo5",),
    ("application", "network", "solo5"),
    {
        "cc": "gcc libc6-dev",
        "ld.lld": "lld",
        "make": "make",
        "objcopy": "binutils",
        "pkg-config": "pkg-config libseccomp-dev",
    },
    builds_library=True,
)
ARCEOS = MicroBuild(
    "the unikernel of ArceOS",
    ("arceos",),
    ("application", "network", "arceos"),
    {"cc": "gcc libc6-dev", "ld.lld": "lld"},
    builds_library=True,
)
WEBASSEMBLY = MicroBuild(
    "the WebAssembly module",
    ("wasm",),
    ("application", "wasm"),
    {"cc": "gcc libc6-dev", "wasm-ld": "lld"},
    builds_library=True,
)


def linux_build(architecture: Architecture) -> MicroBuild:
    """Return the build of the Linux program for an architecture, which may be another than this machine's."""
    if architecture is this_architecture():
        return LINUX
    tools = {**LINUX.tools, **dict([c_compiler(architecture)])}
    about = f"{LINUX.about} on {architecture.title}"
    return replace(LINUX, about=about, tools=tools, builds_library=True, machine=architecture.machine)


def unikernels_folder(host: Host, build: MicroBuild) -> str:
    """Return the path of the folder of the unikernels on a host, which may not exist yet."""
    return str(build.folder if isinstance(host, LocalHost) else _REMOTE_UNIKERNELS / build.key)


def has_unikernels(host: Host, build: MicroBuild) -> bool:
    """Return whether the unikernels are on a host."""
    return not host.run("test", "-d", unikernels_folder(host, build), timeout=30, check=False).exit_code


def ensure_unikernels(host: Host, say: Callable[[str], None], build: MicroBuild) -> str:
    """Return the folder of the unikernels on a host; build them here and copy them to the host if needed."""
    target = unikernels_folder(host, build)
    if has_unikernels(host, build):
        return target
    here = build.ensure_built(say)
    if not isinstance(host, LocalHost):
        fresh = f"{target}.new"
        host.run("mkdir", "-p", fresh, timeout=30)
        for file in sorted(path for path in here.iterdir() if path.is_file()):
            host.put(file, PurePosixPath(fresh) / file.name)
        host.run("mv", "-T", fresh, target, timeout=30)
    return target


def crate_version(crate: str) -> str:
    """Return the version of a crate of the unikernels; "" for a crate that they do not use."""
    lock = (_source_folder() / "Cargo.lock").read_text(encoding="utf-8")
    match = re.search(rf'^name = "{crate}"\nversion = "([^"]+)"$', lock, re.MULTILINE)
    return match[1] if match else ""


def _source_folder() -> Path:
    return program_folder() / "unikernel"


def _rust_problems(with_library_source: bool) -> tuple[Problem, ...]:
    """Return a problem if Rust is missing or too old, or lacks the required source of its standard library."""
    debian = all(map(shutil.which, _DEBIAN_RUST))
    if not debian and not (shutil.which("cargo") and shutil.which("rustc")):
        return (_not_installed("cargo", "cargo-web", "rustc-web", *(["rust-web-src"] if with_library_source else [])),)
    rustc = _DEBIAN_RUST[1] if debian else "rustc"
    version = _HOST.run(rustc, "--version", timeout=30, check=False).text
    match = re.match(r"rustc (\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < _MIN_RUST_VERSION:
        what = f"{version.strip() or rustc} is too old: it has to be {'.'.join(map(str, _MIN_RUST_VERSION))} or newer"
        return (Problem.from_packages(what, "cargo-web", "rustc-web"),)
    root = _HOST.run(rustc, "--print", "sysroot", timeout=30, check=False).text.strip()
    if with_library_source and not (Path(root) / "lib/rustlib/src/rust/library/core").is_dir():
        if debian:
            return (_not_installed("the source of Rust's standard library", "rust-web-src"),)
        return (Problem("the source of Rust's standard library is not installed", "rustup component add rust-src"),)
    return ()


def _not_installed(what: str, *packages: str) -> Problem:
    return Problem.from_packages(f"{what} {'are' if what.endswith('s') else 'is'} not installed", *packages)
