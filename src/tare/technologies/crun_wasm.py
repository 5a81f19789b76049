"""crun with WasmEdge: a WebAssembly module as a container, from an OCI bundle with the annotation `run.oci.handler`.

The module is tare's server `micro`, built for WebAssembly without an operating system. It calls WASI and WasmEdge's
functions for sockets, which WASI lacks. The container has crun's namespaces, capabilities and control group, and a root
with nothing but the module. WasmEdge interprets the module, as crun asks for no compilation. Debian 13's crun loads
WasmEdge from the package libwasmedge0; Debian 12's cannot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tare.guests.unikernel import Unikernel
from tare.hosts.cgroups import ControlGroup
from tare.hosts.host import Host
from tare.hosts.ledger import UndoStep
from tare.images.micro import WEBASSEMBLY
from tare.model.architecture import ARM64, X86_64
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Limits, Problem
from tare.plugins.sandbox import InstanceSandbox
from tare.plugins.technology import LaunchRequest, first_line
from tare.technologies.crun import bundle_configuration

_CRUN = "crun"
_FEATURE = "+WASM:wasmedge"  # in crun's version
_LIBRARY = "libwasmedge.so.0"  # crun loads it by this name
_FIX = "install a crun that is built with WasmEdge, as in Debian 13"
_MODULE = "/micro.wasm"  # in the container


@dataclass(frozen=True)
class CrunWasm(Unikernel):
    """Runs `micro` as a WebAssembly module in a container."""

    name = "crun-wasm"
    title = "WebAssembly in crun"
    family = "sandbox"
    isolation = Isolation(
        "shared kernel",
        "a container whose module WasmEdge, in user space, confines to its own memory and to WASI's calls",
    )
    network_path = "bridge"
    tests_path = "tests/lab/test_debian_13.py"
    architectures = (X86_64, ARM64)
    tools: ClassVar[Mapping[str, str]] = {_CRUN: "crun", "ip": "iproute2"}
    build = WEBASSEMBLY
    file = "micro.wasm"
    noun = "WebAssembly module"

    def version(self, host: Host) -> str:
        """Return crun's version; "" if crun is not installed."""
        return first_line(host, _CRUN, "--version").rpartition("version ")[2]

    def proof(self, host: Host) -> dict[str, str]:
        """Return the runtime with its version."""
        return {"runtime": f"{_CRUN} {self.version(host)} {_FEATURE}"}

    def cautions(self, limits: Limits) -> tuple[Caution, ...]:  # noqa: ARG002 - the container has all CPUs
        """Return no caution: `micro` has one thread on every stack."""
        return ()

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return what is missing for the build or the start, such as a crun or a machine without WasmEdge."""
        if missing := super().problems(host):
            return missing
        if _FEATURE not in host.run(_CRUN, "--version", timeout=10, check=False).text:
            return (Problem("this crun cannot run WebAssembly", _FIX, missing="program"),)
        # Ordinary users, who may ask `tare doctor`, do not have the folder of ldconfig in their PATH.
        if _LIBRARY not in host.run("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin ldconfig -p", timeout=10, check=False).text:
            return (Problem.from_packages("WasmEdge is not installed", "libwasmedge0"),)
        return ()

    def prepare(self, launch: LaunchRequest, folder: str, group: ControlGroup, stack: ExitStack) -> tuple[str, ...]:
        """Make the network namespace and a bundle with the module; return the command that runs the bundle."""
        bundle = str(launch.folder)
        root = f"{bundle}/root"
        network = stack.enter_context(launch.network.create_namespace())
        steps = (("folder", bundle), ("folder", root))
        stack.enter_context(launch.ledger.create(steps, UndoStep.for_folder(bundle)))
        sandbox = InstanceSandbox(launch, group, Path(root))
        configuration = _module_configuration(sandbox, network, f"{folder}/{self.file}")
        launch.ledger.host.write(f"{bundle}/config.json", json.dumps(configuration))
        stack.enter_context(launch.ledger.register_undo(_CRUN, "delete", "--force", launch.name))
        return (_CRUN, "run", "--bundle", bundle, launch.name)


def _module_configuration(sandbox: InstanceSandbox, network: str, module: str) -> dict[str, Any]:
    """Return crun's configuration with the module at this path of the host as the process."""
    configuration = bundle_configuration(sandbox, network)
    configuration["annotations"] = {"run.oci.handler": "wasm"}
    configuration["process"]["args"] = [_MODULE, "--listen", sandbox.launch.network.instance_address]
    configuration["mounts"].append({"destination": _MODULE, "source": module, "options": ["bind", "ro"]})
    return configuration
