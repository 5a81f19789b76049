"""Kata Containers: Docker containers, each in a separate virtual machine.

Kata's shim starts a file server as its child, and a monitor that may have no parent (QEMU becomes a daemon). Unless
Kata's configuration has `sandbox_cgroup_only`, both stay outside of the instance's control group, and only the threads
of the virtual CPUs are moved into it (docs/design/host-cgroups.md of Kata 3). tare recognizes the processes by the ID
of the container, or of the pod's sandbox, on their command lines.

This technology is written to documentation and has never run on real Kata: docs/Limitations.md,
docs/design/vcpu-handling and docs/design/host-cgroups.md of Kata 3, and Docker's "Alternative container runtimes".
Docker 23.0 and newer start a shim such as `io.containerd.kata.v2` without configuration; older versions only know the
runtimes in their daemon.json. The machine has the CPU and the memory of Kata's configuration in addition to the
container's `--cpus` and `--memory`. The inside may therefore have more than the limits, which is a caution of every
trial.

Settings: `runtime` is the name by which Docker knows Kata. `network` is `nat` (default) or `bridge`, as for `docker`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from tare.guests import kvm, monitors
from tare.hosts.facts import has_private_kernel
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import KERNEL_DIFFERENCES, LaunchRequest, find_missing_tools, first_line, missing_program
from tare.technologies.docker import Docker

# Memory of a machine in addition to its container's limit: Kata's default of 2 GiB, and the monitor.
MACHINE_BYTES = 4 << 30
_KATA = re.compile(r"[.-]kata[.-]")
_SECONDS = 30.0
_PIN = 'for pid do taskset --all-tasks --cpu-list --pid "$0" "$pid"; done >/dev/null 2>&1'
_SHIM = "containerd-shim-kata-v2"
_INSTALL = "put a release of github.com/kata-containers/kata-containers under /opt/kata, and its bin folder on the PATH"


def is_kata(runtime: str) -> bool:
    """Return whether a runtime is Kata's, by its name or the path of its shim."""
    return bool(_KATA.search(runtime.rpartition("/")[2]))


def is_machine_process(command_line: str, name: str) -> bool:
    """Return whether a process belongs to the machine of the container or sandbox `name`, by its command line."""
    name = re.escape(name)
    return bool(re.search(rf" sandbox-{name}([ ,]|$)|/run/(vc|kata)\S*/{name}/", command_line))


def pin_processes(host: Host, pids: Iterable[int], cpus: str) -> None:
    """Pin processes and all their threads to the instance's CPUs, because its control group does not contain them."""
    host.run("sh", "-c", _PIN, cpus, *map(str, pids), timeout=_SECONDS, check=False)


def instance_cautions(host: Host, inside: Host, runtime: str) -> tuple[Caution, ...]:
    """Return the cautions of an instance of Kata that containerd has started: tare's tests only had a stand-in."""
    text = f"tare's tests have run {runtime} only against a shim that replaces Kata's"
    return (Caution("never-run", text), *kernel_cautions(host, inside, runtime))


def kernel_cautions(host: Host, inside: Host, runtime: str) -> tuple[Caution, ...]:
    """Return a caution if an instance of Kata has the machine's kernel, so that it cannot be Kata, or if KVM is PVM."""
    if has_private_kernel(host, inside):
        return (kvm.PVM_CAUTION,) if kvm.is_pvm(host) else ()
    return (Caution("shared-kernel", f"{runtime} promises a separate kernel, but this is the machine's"),)


@dataclass(frozen=True)
class Kata(Docker):
    """Starts the image's `init` with `docker run --runtime`."""

    name = "kata"
    title = "Kata Containers, by Docker"
    family = "type 2"
    isolation = Isolation("own kernel", "a guest on virtual hardware for each container")
    needs = "Docker's daemon, containerd-shim-kata-v2, KVM that boots a guest"
    can_be_nested = False
    has_volumes = False
    tested = "stand-in"
    expected_differences: ClassVar[Mapping[str, str]] = {**Docker.expected_differences, **KERNEL_DIFFERENCES}

    runtime: str = "io.containerd.kata.v2"

    def version(self, host: Host) -> str:
        """Return the shim's version; "" if it is not installed."""
        return first_line(host, _SHIM, "--version").partition("version: ")[2].partition(",")[0]

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return the problem of Docker or the runtime, or missing tools, or the problem of KVM."""
        problems = super().problems(host) or self.runtime_problems(host)
        return problems or find_missing_tools(host, monitors.KVM_TOOLS) or kvm.problems(host)

    def runtime_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the problem that prevents Docker from starting the runtime, or ()."""
        listed = host.run("docker", "info", "--format", "{{json .Runtimes}}", timeout=20, check=False).text
        try:
            known = json.loads(listed or "{}") or {}
        except ValueError:
            known = {}
        if self.runtime in known:
            return ()
        if not self.runtime.startswith("io.containerd."):
            what = f"Docker knows no runtime {self.runtime}, but {', '.join(sorted(known)) or 'none'}"
            return (Problem(what, 'add it to "runtimes" in /etc/docker/daemon.json'),)
        if missing := missing_program(host, _INSTALL, _SHIM):
            return missing
        major = first_line(host, "docker", "version", "--format", "{{.Server.Version}}").partition(".")[0]
        if major.isdigit() and int(major) < 23:
            what = f"Docker {major} starts only runtimes that its daemon.json names"
            return (Problem(what, 'update Docker, or add a runtime, and give the stack runtime = "its name"'),)
        return ()

    def limit_options(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
        """Return the options that choose the runtime and set the limits."""
        return (f"--runtime={self.runtime}", f"--cpus={len(launch.limits.cpus)}", *super().limit_options(host, launch))

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Run a container in a machine; its processes include the monitor, the shim and the file server."""
        with super().launch(host, launch) as instance:
            inspected = host.run("docker", "container", "inspect", "--format", "{{.Id}}", launch.name, timeout=20)
            # All processes outside of the control group have the container's ID on their command lines.
            listed = host.run("pgrep", "--full", inspected.text.strip(), timeout=20, check=False).text.split()
            pids = {int(number) for number in listed}
            pin_processes(host, pids, launch.cpu_list)
            cautions = instance.cautions
            if instance.inside:
                cautions += kernel_cautions(host, instance.inside, self.runtime)
            proof = {**instance.proof, "runtime": self.runtime}
            yield replace(
                instance,
                proof=proof,
                cautions=cautions,
                processes=lambda: tuple({*instance.processes(), *pids}),
            )
