"""crun with WasmEdge: machines that lack a part of it, and how its bundle differs from crun's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import launch_at

from tare.hosts.cgroups import ControlGroup, Layout
from tare.hosts.local import LocalHost
from tare.images.micro import WEBASSEMBLY
from tare.model.trial import Output, Problem
from tare.plugins.sandbox import InstanceSandbox
from tare.technologies.crun import bundle_configuration
from tare.technologies.crun_wasm import CrunWasm, _module_configuration
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.micro_http import MicroHttp
from tare.workloads.micro_redis import MicroRedis
from tare.workloads.startup import Startup

VERSION = "crun version {}\ncommit: 10269840\nrundir: /run/crun\nspec: 1.0.0\n+SYSTEMD +SELINUX {}+YAJL\n"
LIBRARIES = "\tlibwasmedge.so.0 (libc6,x86-64) => /lib/x86_64-linux-gnu/libwasmedge.so.0\n"


@dataclass
class Machine(LocalHost):
    """A host whose crun prints this version, and with these libraries."""

    version: str = VERSION.format("1.21", "+CRIU +WASM:wasmedge ")
    libraries: str = LIBRARIES

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        printed = {"crun": self.version, "sh": self.libraries if "ldconfig" in argv[-1] else ""}
        return Output(argv, 0, printed.get(argv[0], "").encode(), b"", 0.0)


@pytest.fixture(autouse=True)
def _built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is built already."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    WEBASSEMBLY.folder.mkdir(parents=True)


def test_a_machine_with_all_parts_has_no_problem() -> None:
    assert tuple(CrunWasm().problems(Machine())) == ()
    assert CrunWasm().version(Machine()) == "1.21"


def test_a_crun_without_wasmedge_is_a_problem() -> None:
    fix = "install a crun that is built with WasmEdge, as in Debian 13"
    found = tuple(CrunWasm().problems(Machine(VERSION.format("1.8.1", ""))))
    assert found == (Problem("this crun cannot run WebAssembly", fix, missing="program"),)


def test_a_missing_wasmedge_is_a_missing_package() -> None:
    found = tuple(CrunWasm().problems(Machine(libraries="\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6\n")))
    assert found == (Problem.from_packages("WasmEdge is not installed", "libwasmedge0"),)


def test_it_serves_only_its_workloads() -> None:
    words = "a WebAssembly module has no shell: this one only serves micro-http and micro-redis"
    assert CrunWasm().unsupported_reason(Dhrystone()) == words
    assert [CrunWasm().unsupported_reason(each) for each in (Startup(), MicroHttp(), MicroRedis())] == [None] * 3


def test_the_bundle_is_that_of_crun_with_the_module_as_the_process(tmp_path: Path) -> None:
    launch = launch_at(tmp_path)
    group = ControlGroup(LocalHost(), launch.name, Layout(2, {"cpu": "/sys/fs/cgroup"}), "/usr/lib/tare/enter")
    sandbox = InstanceSandbox(launch, group, tmp_path / "root")
    found, ordinary = (
        _module_configuration(sandbox, "tare-ns", "/built/micro.wasm"),
        bundle_configuration(sandbox, "tare-ns"),
    )
    assert found.pop("annotations") == {"run.oci.handler": "wasm"}
    assert found["process"].pop("args") == ["/micro.wasm", "--listen", launch.network.instance_address]
    assert found["mounts"].pop() == {
        "destination": "/micro.wasm",
        "source": "/built/micro.wasm",
        "options": ["bind", "ro"],
    }
    assert ordinary["process"].pop("args")
    assert found == ordinary
