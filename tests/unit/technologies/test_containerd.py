"""containerd: which program is a runtime's shim, what is missing, and how its client is called."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
import subprocess
import tarfile
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.model.image import Image
from tare.model.trial import Output, Problem
from tare.technologies.containerd.namespace import (
    ContainerdNamespace,
    runtime_of_shim,
    shim_program,
    short_runtime_name,
)
from tare.technologies.containerd.technology import Containerd, daemon_problem

# What ctr 1.6 prints.
NO_SOCKET = (
    'ctr: failed to dial "/run/containerd/containerd.sock": context deadline exceeded: connection error: desc = '
    '"transport: error while dialing: dial unix:///run/containerd/containerd.sock: timeout"'
)
FORBIDDEN = (
    'ctr: failed to dial "/run/containerd/containerd.sock": connection error: desc = "transport: error while dialing: '
    'dial unix /run/containerd/containerd.sock: connect: permission denied"'
)
VERSION = b"""Client:
  Version:  1.7.24
  Revision: unknown

Server:
  Version:  1.6.20~ds1
  Revision: 1.6.20~ds1-1+deb12u3
"""


@dataclass
class Answering(LocalHost):
    """A host on which containerd answers; it has these programs of runtimes, on the PATHs in this order."""

    programs: tuple[str, ...] = ()
    dial: str = ""
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        self.calls.append(argv)
        if "ctr" in argv:
            answer = VERSION if argv[-1] == "version" else b""
            return Output(argv, 1 if self.dial else 0, answer, self.dial.encode(), timeout)
        if argv[:2] == ("sh", "-c") and "containerd-shim-" in argv[2]:
            return Output(argv, 0, "\n".join(self.programs).encode(), b"", timeout)
        if argv[:2] == ("sh", "-c") and "/proc/net/unix" in argv[2]:  # who listens
            return Output(argv, 0, b"1\n", b"", timeout)
        if argv[:2] == ("sh", "-c") and argv[2] == "command -v ctr":
            return Output(argv, 0, b"/usr/bin/ctr\n", b"", timeout)
        if argv[0] == "test":
            return Output(argv, 1, b"", b"", timeout)
        return Output(argv, 0, b"", b"", timeout)


@pytest.mark.parametrize(
    ("runtime", "shim"),
    [
        ("io.containerd.runc.v2", "containerd-shim-runc-v2"),
        ("io.containerd.kata-qemu.v2", "containerd-shim-kata-qemu-v2"),
        ("/opt/bin/containerd-shim-runsc-v1", "/opt/bin/containerd-shim-runsc-v1"),
        ("gvisor", "containerd-shim-runsc-v1"),
        ("runsc", "containerd-shim-runsc-v1"),
        ("kata", "containerd-shim-kata-v2"),
        ("Runsc", ""),
        ("", ""),
    ],
)
def test_a_runtime_is_the_shim_that_containerd_would_start(runtime: str, shim: str) -> None:
    assert shim_program(runtime) == shim
    if runtime.startswith("io."):
        assert runtime_of_shim(shim) == runtime


def test_another_program_is_no_runtime() -> None:
    assert runtime_of_shim("runc") == runtime_of_shim("containerd-shim") == ""
    assert (
        short_runtime_name("runc")
        == short_runtime_name("containerd-shim")
        == short_runtime_name("containerd-shim-runc-v1")
        == ""
    )


def test_the_words_of_the_runtimes_that_are_there_are_known() -> None:
    shims = ("containerd-shim-runc-v1", "containerd-shim-runc-v2", "containerd-shim-runsc-v1", "runsc")
    assert Containerd().variants(Answering(tuple(f"/usr/bin/{name}" for name in shims))) == ["gvisor", "runc"]
    host = Answering(("/usr/bin/containerd-shim-runsc-v1", "/usr/bin/runsc"))
    assert Containerd(runtime="gvisor").problems(host) == ()


def test_a_word_that_is_near_a_runtimes_is_asked_about() -> None:
    [problem] = Containerd(runtime="gvizor").problems(Answering(("/usr/bin/containerd-shim-runc-v2",)))
    assert problem.what.startswith("containerd has no runtime io.containerd.gvizor.v2, but io.containerd.runc.v2: ")
    assert problem.fix == 'did you mean "gvisor"?'


def test_a_runtime_that_is_not_there_is_named_with_those_that_are() -> None:
    host = Answering(("/usr/bin/containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v1", "/usr/sbin/runc"))
    assert Containerd().problems(host) == ()
    [problem] = Containerd(runtime="io.containerd.runsc.v1").problems(host)
    assert problem.what == (
        "containerd has no runtime io.containerd.runsc.v1, but io.containerd.runc.v1, io.containerd.runc.v2: "
        "containerd-shim-runsc-v1 is not installed"
    )
    assert "gvisor.dev" in problem.fix
    [other] = Containerd(runtime="io.containerd.other.v3").problems(host)
    assert other.fix == "install containerd-shim-other-v3 on the PATH of containerd"
    [nameless] = Containerd(runtime="Runsc").problems(host)
    assert nameless.what.startswith("containerd has no runtime Runsc, but io.containerd.runc.v1")


def test_a_path_that_is_no_shim_is_named() -> None:
    [problem] = Containerd(runtime="/nowhere/containerd-shim-runsc-v1").problems(Answering())
    assert problem.what == "/nowhere/containerd-shim-runsc-v1 is no program"


def test_unresponsive_and_inaccessible_daemons_have_different_fixes() -> None:
    [silent] = Containerd().problems(Answering(dial=NO_SOCKET))
    assert silent.what == "no daemon: nothing answers at /run/containerd/containerd.sock"
    assert silent.fix.startswith("systemctl start containerd")
    [forbidden] = Containerd().problems(Answering(dial=FORBIDDEN))
    assert forbidden == Problem("no permission to use containerd at /run/containerd/containerd.sock", "sudo tare …")
    assert daemon_problem("ctr: something else\n").what == "no daemon: ctr: something else"


def test_the_daemon_is_asked_for_no_longer_than_5_seconds() -> None:
    host = Answering(("/usr/bin/containerd-shim-runc-v2",))
    Containerd().problems(host)
    asked = [call for call in host.calls if "namespaces" in call]
    assert asked
    assert all("--connect-timeout=5s" in call for call in asked)


def test_without_a_socket_the_client_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would try for 5 seconds, in each `tare doctor` and `tare clean --check`."""
    client = tmp_path / "ctr"
    client.write_text('#!/bin/sh\necho "asked $*"\n', encoding="utf-8")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CONTAINERD_ADDRESS", str(tmp_path / "s"))

    def ask() -> Output:
        return LocalHost().run(*Containerd.list_commands[0], timeout=60, check=False)

    silent = ask()
    assert (silent.exit_code, silent.text) == (1, "")
    assert daemon_problem(silent.stderr.decode()).what == f"no daemon: nothing answers at {tmp_path}/s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert ask().text == "asked --connect-timeout=5s namespaces list --quiet\n"


def test_the_version_is_the_daemons_not_the_clients() -> None:
    assert Containerd().version(Answering()) == "1.6.20~ds1"
    assert Containerd().version(Answering(dial=NO_SOCKET)) == "1.6.20~ds1"


def test_a_socket_of_the_suites_is_what_every_command_is_given() -> None:
    host = Answering(("/usr/bin/containerd-shim-runc-v2",))
    Containerd(address="/run/k3s/containerd/containerd.sock").problems(host)
    asked = [call for call in host.calls if "namespaces" in call]
    assert asked
    assert {call[:2] for call in asked} == {("env", "CONTAINERD_ADDRESS=/run/k3s/containerd/containerd.sock")}


def test_what_removes_a_namespace_and_a_container_may_stand_in_the_ledger(tmp_path: Path) -> None:
    space = ContainerdNamespace("tare-1-containerd", "/run/k3s/containerd/containerd.sock")
    ledger = Ledger(tmp_path / "ledger.jsonl", Answering())
    with (
        ledger.register_undo(*space.namespace_removal_command()),
        ledger.register_undo(*space.removal_command("tare-1-00")),
    ):
        kept = [json.loads(line) for line in ledger.path.read_text(encoding="utf-8").splitlines()]
    assert [entry[-1] for entry in kept] == ["tare-1-containerd", "tare-1-00"]


@dataclass
class Importing(LocalHost):
    """A host whose `ctr` only keeps what it is given."""

    folder: Path

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        ctr = self.folder / "ctr"
        ctr.write_text(f'#!/bin/sh\necho "$@" > {self.folder}/words\ncat > {self.folder}/imported\n', encoding="utf-8")
        ctr.chmod(0o755)
        return super().run("env", f"PATH={self.folder}:/usr/bin:/bin", *argv, timeout=timeout, input=input, check=check)


def test_an_image_is_imported_as_an_unchanged_layer_with_a_folder_in_tmp(tmp_path: Path) -> None:
    archive = tmp_path / "root.tar"
    archive.write_bytes(b"the file system")
    digest = sha256(b"the file system").hexdigest()
    image = Image(digest, tmp_path, archive, tmp_path, tmp_path, tmp_path, "")
    space = ContainerdNamespace("tare-1-containerd")
    space.import_image(Importing(tmp_path), image, "localhost/tare-image:1", ("HOME=/root",))
    assert (tmp_path / "words").read_text() == "--namespace tare-1-containerd images import -\n"
    with tarfile.open(tmp_path / "imported") as made:
        files = {entry.name: made.extractfile(entry) for entry in made}
        texts = {name: file.read() for name, file in files.items() if file}
    [manifest], settings = json.loads(texts["manifest.json"]), json.loads(texts["config.json"])
    assert manifest["RepoTags"] == ["localhost/tare-image:1"]
    layers = [texts[name] for name in manifest["Layers"]]
    assert layers[0] == b"the file system"
    assert settings["rootfs"]["diff_ids"] == [f"sha256:{sha256(layer).hexdigest()}" for layer in layers]
    assert settings["config"]["Env"] == ["HOME=/root"]
    assert not list(tmp_path.glob("*tare-import*"))
    with tarfile.open(fileobj=io.BytesIO(texts["tmp.tar"])) as top:
        assert [(entry.name, entry.isdir()) for entry in top] == [("tmp/.tare", True)]


# As containerd writes it: one line without an end.
BUNDLE = '{"process":{"rlimits":[{"type":"RLIMIT_NOFILE","hard":1024,"soft":1024}],"cwd":"/"},"hard":1}'


@pytest.mark.parametrize(
    ("action", "limits"), [("start", {"NOFILE": 4096, "NPROC": 777}), ("delete", {"NOFILE": 1024})]
)
def test_the_limits_are_in_the_bundle_when_the_shim_starts(tmp_path: Path, action: str, limits: dict[str, int]) -> None:
    shim = tmp_path / "containerd-shim-own-v1"
    shim.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    (tmp_path / "front").mkdir()
    path = Containerd(runtime=str(shim)).write_shim_wrapper(LocalHost(), str(tmp_path / "front"), 4096, "777")
    assert Path(path).stat().st_mode & stat.S_IXUSR
    (tmp_path / "config.json").write_text(BUNDLE, encoding="utf-8")
    words = ("-namespace", "tare-1", "-id", "tare-1-00", action)
    done = subprocess.run((path, *words), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{' '.join(words)}\n"
    bundle = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    expected = [{"type": f"RLIMIT_{name}", "hard": value, "soft": value} for name, value in limits.items()]
    assert bundle["process"]["rlimits"] == expected
    assert bundle["hard"] == 1
