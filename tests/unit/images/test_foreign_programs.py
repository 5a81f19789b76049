"""tare's programs for arm64: cross-compiled as for an image of that architecture, and run by qemu-user."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS

from tare.images.build_environment import c_compiler, program_folder
from tare.images.image import build_fix, build_problems, compile_program
from tare.images.micro import LINUX, SOLO5, linux_build
from tare.images.recipes import Recipe, program_sources
from tare.model.architecture import ARM64, X86_64, read_elf_architecture, this_architecture
from tare.model.errors import TareError

pytestmark = pytest.mark.skipif(this_architecture() is not X86_64, reason="the other architecture is arm64 here")
EMULATOR, COMPILER = "qemu-aarch64-static", "aarch64-linux-gnu-gcc"
needs_tools = pytest.mark.skipif(
    not (shutil.which(EMULATOR) and shutil.which(COMPILER)),
    reason="qemu-user-static or gcc-aarch64-linux-gnu is not installed",
)
SOURCES = [path for path in program_sources() if path.suffix == ".c"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with all programs of instances for arm64; a warning of the compiler is an error."""
    folder = tmp_path_factory.mktemp("arm64")
    for source in (*SOURCES, program_folder() / "image/entrypoint.c"):
        compile_program(source, folder / source.stem, ARM64)
    return folder


def run(program: Path, *arguments: str, data: str = "") -> subprocess.CompletedProcess[str]:
    argv = (EMULATOR, str(program), *arguments)
    return subprocess.run(argv, input=data, capture_output=True, text=True, check=False, timeout=ENOUGH_SECONDS)


@needs_tools
def test_each_program_is_compiled_for_arm64_and_starts_there(programs: Path) -> None:
    built = sorted(programs.iterdir())
    assert len(built) == len(SOURCES) + 1
    assert {read_elf_architecture(program) for program in built} == {ARM64}
    # Not all are started: `guest_init` would mount file systems over those of this machine.
    for name in ("dhrystone", "init", "load_client", "probe", "ramspeed", "supervise", "unit_cost"):
        assert "usage: " in run(programs / name, "--no").stderr


@needs_tools
@pytest.mark.parametrize("kind", ["integer", "float", "sse"])
def test_ramspeed_verifies_each_kind_of_number_on_arm64(kind: str, programs: Path) -> None:
    small = ("--bytes-per-pass", "64KiB", "--passes", "1", "--kind", kind)
    done = [run(programs / "ramspeed", "mem", "--array", "64KiB", *small)]
    done += [run(programs / "ramspeed", "mark", "--operation", each, *small) for each in ("read", "write")]
    assert [each.stdout.splitlines()[-1:] for each in done] == [["verified: yes"]] * 3, [each.stderr for each in done]


@needs_tools
def test_a_kind_of_number_that_arm64_lacks_is_refused(programs: Path) -> None:
    done = run(programs / "ramspeed", "mem", "--kind", "sse-nt")
    assert done.returncode == 2
    assert done.stderr == "ramspeed: sse-nt needs registers of x86-64: use integer, float or sse\n"


class Page(BaseHTTPRequestHandler):
    """Answer with a small page over connections that stay open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"tare\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is given
        """Print nothing."""


@contextmanager
def served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()


@needs_tools
def test_the_load_client_of_arm64_counts_what_a_server_answers(programs: Path, tmp_path: Path) -> None:
    request = "GET / HTTP/1.1\r\nHost: tare\r\n\r\n"
    requests = tmp_path / "requests"
    requests.write_bytes(f"{len(request)}\n{request}".encode())
    with served() as port:
        options = (port, "2", str(requests), "--body", "5")
        done = run(programs / "load_client", "http", "127.0.0.1", *options, data="go 0.01 0.1\n")
    lines = dict(line.partition(": ")[::2] for line in done.stdout.splitlines())
    assert int(lines["requests"]) > 0, done
    assert lines["errors"] == "connect 0, read 0, status 0, short 0"


def test_a_machine_without_a_cross_compiler_is_told_its_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))  # this machine may have built the server before
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == COMPILER else found(name) or f"/usr/bin/{name}")
    problems = build_problems(Recipe(architecture=ARM64, server=False))
    assert [problem.what for problem in problems] == ["aarch64-linux-gnu-gcc is not installed"]
    assert build_fix(problems) == "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    with pytest.raises(TareError, match="aarch64-linux-gnu-gcc is not installed"):
        linux_build(ARM64).ensure_built(print)


def test_recipes_of_this_architecture_need_no_cross_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert linux_build(X86_64) is LINUX
    assert c_compiler(X86_64) == ("cc", "gcc libc6-dev")
    key = Recipe().key
    assert Recipe(architecture=X86_64).key == key
    assert Recipe(architecture=ARM64).key != key
    # Two machines find each other's archives of an image, whichever of them is of that architecture.
    assert linux_build(ARM64).key == LINUX.key
    assert linux_build(ARM64).folder != LINUX.folder
    monkeypatch.setattr("tare.images.build_environment.this_architecture", lambda: ARM64)
    assert c_compiler(X86_64) == ("x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross")


@pytest.mark.parametrize(
    ("machine", "target", "flags", "library"),
    [
        ("", "x86_64-unknown-linux-gnu", "", False),
        ("x86_64", "x86_64-unknown-linux-gnu", "", False),
        ("aarch64", "aarch64-unknown-linux-gnu", " -C linker=aarch64-linux-gnu-gcc", True),
    ],
)
def test_the_server_is_built_for_the_requested_architecture(
    machine: str, target: str, flags: str, library: bool, tmp_path: Path
) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text(
        f'#!/bin/sh\nmkdir -p "$CARGO_TARGET_DIR/{target}/release"\n'
        f'echo "$RUSTFLAGS|$*" >"$CARGO_TARGET_DIR/{target}/release/micro"\n'
    )
    cargo.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "CARGO": str(cargo), "MACHINE": machine}
    build = ("sh", program_folder() / "unikernel/build", tmp_path / "built", "linux")
    subprocess.run(build, env=environment, check=True, timeout=ENOUGH_SECONDS)
    given, _, words = (tmp_path / "built/micro").read_text().partition("|")
    assert given == f"-C target-feature=+crt-static{flags}"
    assert f"--target {target} " in words
    assert ("-Z build-std=std,panic_abort" in words) == library


def test_the_servers_build_for_arm64_names_all_packages() -> None:
    rust = ("cargo-web", "rustc-web")
    compiler = ("gcc", "libc6-dev")
    assert LINUX.debian_packages == (*rust, *compiler)
    cross = ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")
    assert linux_build(ARM64).debian_packages == (*rust, "rust-web-src", *compiler, *cross)
    assert "rust-web-src" in SOLO5.debian_packages


@needs_tools
@pytest.mark.slow
def test_the_server_of_arm64_answers_requests() -> None:
    """Cargo also builds Rust's standard library, which took 140 s of CPU time."""
    program = linux_build(ARM64).ensure_built(print) / "micro"
    assert read_elf_architecture(program) is ARM64
    with subprocess.Popen((EMULATOR, program, "--listen", "127.18.0.64"), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"micro: ready\n"
            done = subprocess.run(
                ("curl", "-sS", "http://127.18.0.64:18080/"), capture_output=True, check=True, timeout=ENOUGH_SECONDS
            )
            assert done.stdout == (b"tare\n" * 205)[:1024]
        finally:
            process.kill()
