"""Runtimes of containerd: their names, the names of their shims, and those that a host has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from tare.hosts.host import Host

_SECONDS = 60.0
# containerd looks for shims on its PATH, which may differ from tare's: both are searched, containerd's first.
_LIST_RUNTIMES = """
for process in $(pgrep -x containerd); do
    tr '\\0' '\\n' <"/proc/$process/environ" | sed -n 's/^PATH=//p'
done 2>/dev/null | { cat; echo "$PATH"; } | tr : '\\n' | while read -r folder; do
    ls -d "$folder"/containerd-shim-* "$folder/runc" "$folder/runsc" 2>/dev/null
done
true
"""
INSTALL_HINTS = {  # by the shim's name
    "containerd-shim-runsc-v1": "install gVisor's runsc and shim on containerd's PATH: https://gvisor.dev/docs/user_guide/install/",
    "containerd-shim-kata-v2": "put Kata's bin folder on containerd's PATH: https://github.com/kata-containers/kata-containers",
    "containerd-shim-urunc-v2": "install urunc on containerd's PATH: https://urunc.io/installation/",
}
RUNSC = "runsc"


def full_runtime_name(runtime: str) -> str:
    """Return the full name of an abbreviated runtime; other names and paths are returned unchanged.

    Shims have version 2 of containerd's interface in their names, except gVisor's, which is called v1.
    """
    if not re.fullmatch(r"[a-z0-9-]+", runtime):
        return runtime
    name = RUNSC if runtime == "gvisor" else runtime
    return f"io.containerd.{name}.{'v1' if name == RUNSC else 'v2'}"


def shim_program(runtime: str) -> str:
    """Return the path or name of a runtime's shim, as containerd derives it; "" if `runtime` is no runtime's name."""
    *before, name, version = ("", *full_runtime_name(runtime).split("."))
    return runtime if runtime.startswith("/") else f"containerd-shim-{name}-{version}" if before and name else ""


def runtime_of_shim(program: str) -> str:
    """Return the full name of the runtime with this shim; "" if the program is no shim."""
    match = re.fullmatch(r"containerd-shim-(.+)-(v\d+)", program)
    return f"io.containerd.{match[1]}.{match[2]}" if match else ""


def short_runtime_name(program: str) -> str:
    """Return the abbreviated name of the runtime with this shim; "" if it has none."""
    name = program.removeprefix("containerd-shim-").rpartition("-")[0]
    word = "gvisor" if name == RUNSC else name
    return word if shim_program(word) == program else ""


def find_runtimes(host: Host) -> Mapping[str, str]:
    """Return the paths of the runtimes' programs on a host by name; the first on the PATH wins."""
    paths = host.run("sh", "-c", _LIST_RUNTIMES, timeout=_SECONDS, check=False).text.split()
    return {PurePosixPath(path).name: path for path in reversed(paths)}
