"""Sandbox Runtime: how its programs are found and started, on hosts that lack one or have other kinds of them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.model.errors import Unavailable
from tare.model.trial import Output
from tare.plugins import registry
from tare.technologies import srt
from tare.technologies.srt import Srt, parse_programs

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PACKAGE = "/usr/local/lib/node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js"
FOUND = f"""{PACKAGE}
/usr/bin/node
/usr/bin/bwrap
/usr/bin/socat1
/opt/rg/bin/rg
{LIBRARIES}/ld-linux-x86-64.so.2
{LIBRARIES}/libc.so.6
/opt/rg/lib/libpcre2-8.so.0
"""


def test_all_folders_of_the_programs_are_mounted_and_nothing_else() -> None:
    options = parse_programs(FOUND).mount_options
    assert set(options[0::3]) == {"--ro-bind"}
    assert options[1::3] == (
        "/opt/rg/bin",
        "/opt/rg/lib",
        "/usr/bin",
        LIBRARIES,
        "/usr/local/lib/node_modules",
    )
    assert options[2::3] == tuple(f"/tare-srt{folder}" for folder in options[1::3])


def test_node_of_debian_gets_the_files_that_it_reads_by_their_fixed_path() -> None:
    options = parse_programs(f"{FOUND}{LIBRARIES}/libnode.so.108\n").mount_options
    assert options[-3:] == ("--ro-bind-try", "/usr/share/nodejs", "/usr/share/nodejs")


def test_a_program_is_started_with_the_libraries_of_the_host() -> None:
    folders = f"/tare-srt{LIBRARIES}:/tare-srt/opt/rg/lib"
    command = (f"/tare-srt{LIBRARIES}/ld-linux-x86-64.so.2", "--library-path", folders, "/tare-srt/opt/rg/bin/rg")
    programs = parse_programs(FOUND)
    assert programs.command(programs.rg) == command


def test_programs_without_a_dynamic_linker_are_refused() -> None:
    programs = parse_programs("\n".join(FOUND.splitlines()[:5]) + "\n")
    with pytest.raises(Unavailable, match="no dynamic linker"):
        programs.command(programs.node)


@pytest.mark.parametrize(
    ("path", "modules"),
    [
        (PACKAGE, "/usr/local/lib/node_modules"),
        ("/a/node_modules/.pnpm/x/node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js", "/a/node_modules"),
        ("/usr/bin/srt", ""),
        ("", ""),
    ],
)
def test_the_outermost_folder_of_packages_has_all_that_srt_imports(path: str, modules: str) -> None:
    assert parse_programs(FOUND.replace(PACKAGE, path)).modules == modules


def test_an_srt_of_another_kind_is_a_problem() -> None:
    other = "\n".join(("/usr/bin/srt", *FOUND.splitlines()[1:]))

    @dataclass(frozen=True)
    class Other(LocalHost):
        def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
            return Output(argv, 0, other.encode() if "ldd" in argv[2] else b"", b"", timeout)

    assert [each.what for each in Srt().problems(Other())] == ["/usr/bin/srt is not in an npm package"]


def test_a_machine_without_srt_is_told_how_to_install_it() -> None:
    @dataclass(frozen=True)
    class Without(LocalHost):
        def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
            return Output(argv, 0, b"srt\n" if argv[-1] == "srt" else b"", b"", timeout)

    (problem,) = Srt().problems(Without())
    assert problem.fix.startswith("npm install --global @anthropic-ai/sandbox-runtime@")


def test_a_missing_program_leaves_an_empty_line_in_its_place() -> None:
    found = subprocess.run(
        ("sh", "-c", srt._FIND_PROGRAMS, "sh", "no-such-srt", "sh", "no-such-bwrap", "cat", "ls"),
        capture_output=True,
        text=True,
        check=True,
    )
    programs = parse_programs(found.stdout)
    assert (programs.srt, programs.bwrap) == ("", "")
    assert (Path(programs.node).name, Path(programs.socat).name) == (Path("/bin/sh").resolve().name, "cat")
    assert any("/libc.so" in path for path in programs.libraries)


def test_the_new_network_is_dropped_and_all_other_words_are_kept(tmp_path: Path) -> None:
    words = (str(tmp_path / "files"), json.dumps({"a": "b"}), "printf '%s|'", "printf '%s|'")
    (tmp_path / "files").mkdir()
    subprocess.run(("sh", "-c", srt._WRITE_FILES, "sh", *words), check=True)
    assert json.loads((tmp_path / "files/settings.json").read_text()) == {"a": "b"}
    given = ("--unshare-net", "--dev", "/dev", "", "a 'b' $c", "--unshare-net")
    assert _printed(tmp_path / "files/bwrap", *given) == "--dev|/dev||a 'b' $c|"
    assert _printed(tmp_path / "files/socat", *given) == "|".join((*given, ""))


def test_a_workload_that_changes_its_user_is_refused_in_one_sentence() -> None:
    refused = {
        name
        for name in registry.names("workloads")
        if Srt().unsupported_reason(registry.find("workloads", name)()) is not None
    }
    assert refused == {"apache", "apache-memory", "pgbench"}


def _printed(program: Path, *argv: str) -> str:
    return subprocess.run((str(program), *argv), capture_output=True, text=True, check=True).stdout
