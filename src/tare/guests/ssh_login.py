"""SSH logins to machines that tare has started: keys, OpenSSH's configuration, and the wait for the first login."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host
from tare.hosts.ssh import SshHost, connect_machine, unreachable_error
from tare.model.errors import TrialFailed, Unreachable
from tare.model.machine import SshTarget
from tare.plugins.technology import LaunchRequest

TOOLS = {"ssh": "openssh-client", "ssh-keygen": "openssh-client", "ssh-keyscan": "openssh-client"}
PORT = 22
MAX_PAUSE_SECONDS = 2.0  # the longest pause between two attempts
_FIRST_PAUSE_SECONDS = 0.1
_SCAN_SECONDS = 10
_COPY_SECONDS = 300.0
_FOLDER = str(Path(SUPERVISE).parent)
_EXEC_IN = f"{_FOLDER}/exec_in"
_UNPACK = 'mkdir -p "$1" && tar -C "$1" -xf -'
_COPY = 'folder=$1; shift; tar -C "$folder" -cf - . | "$@"'


@dataclass(frozen=True)
class Login:
    """SSH login: address, user and private key of a machine.

    `key` is the path of the private key on the host; "" for the default keys of OpenSSH's client.
    """

    address: str
    user: str
    key: str = ""


def create_key(host: Host, path: str) -> str:
    """Make a pair of SSH keys on a host, with the private key at `path`; return the public key."""
    host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path, timeout=30)
    return host.read(f"{path}.pub").strip()


def write_ssh_config(host: Host, folder: Path, login: Login, host_keys: Sequence[str]) -> SshTarget:
    """Write the configuration of OpenSSH's client for a machine into `folder`; return the target, named as the folder.

    Only `host_keys` are accepted: an address may have belonged to another machine before.
    """
    name = folder.name
    host.write(f"{folder}/known_hosts", "".join(f"{name} {key}\n" for key in host_keys))
    lines = (
        *(f"Host {name}", f"HostName {login.address}", f"HostKeyAlias {name}", f"User {login.user}"),
        *((f"IdentityFile {login.key}", "IdentitiesOnly yes") if login.key else ()),
        *(f"UserKnownHostsFile {folder}/known_hosts", "GlobalKnownHostsFile /dev/null", "StrictHostKeyChecking yes"),
    )
    host.write(f"{folder}/ssh_config", "".join(f"{line}\n" for line in lines))
    return SshTarget(name, f"{folder}/ssh_config", login.address)


def await_login(
    host: Host, target: SshTarget, technology_name: str, timeout_seconds: float, refusal_hint: str = ""
) -> None:
    """Wait until a login to a machine succeeds; raises TrialFailed after the timeout.

    By default, it retries after a refused key: cloud-init installs the key after the SSH server has started. With a
    `refusal_hint`, the first refusal is final, and has this hint.
    """
    command = ("ssh", "-F", target.ssh_config, "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", target.ssh, "true")
    began = time.monotonic()
    while (login := host.run(*command, timeout=30, check=False)).exit_code:
        words = (login.stderr + login.stdout).decode("utf-8", "replace")  # cloud-init refuses root on standard output
        if "Host key verification failed" in words:
            hint = "is another machine at its address?"
            raise TrialFailed(f"{technology_name}: the machine's SSH host key is not the one that it should have", hint)
        reason = unreachable_error(target.address, words)
        if refusal_hint and "Permission denied" in words:
            raise TrialFailed(f"{technology_name}: {reason}", refusal_hint)
        if time.monotonic() > began + timeout_seconds:
            raise TrialFailed(f"{technology_name}: {reason} (for {timeout_seconds:g} s)", refusal_hint or reason.hint)
        pause_before_retry(began)


def scan_host_keys(host: Host, address: str, technology_name: str, timeout_seconds: float) -> tuple[str, ...]:
    """Return the public host keys of a machine as soon as its SSH server responds; raises TrialFailed.

    It trusts the first response: use it only on networks of tare, where no other machine can have the address.
    """
    began = time.monotonic()
    while True:
        scan = ("ssh-keyscan", "-T", str(_SCAN_SECONDS), address)
        lines = host.run(*scan, timeout=6 * _SCAN_SECONDS, check=False).text.splitlines()
        if keys := tuple(line.partition(" ")[2] for line in lines if line.startswith(f"{address} ")):
            return keys
        if time.monotonic() > began + timeout_seconds:
            what = f"{technology_name}: no SSH server answers at {address} for {timeout_seconds:g} s"
            raise TrialFailed(what, "have its SSH server start by itself, or leave out user")
        pause_before_retry(began)


def pause_before_retry(began: float) -> None:
    """Sleep before the next check of an operation that began at `began`.

    The pause grows with the elapsed time: quick operations are noticed soon, and slow ones are not checked often.
    """
    time.sleep(min(MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS + (time.monotonic() - began) / 4))


@contextmanager
def enter_as_root(host: Host, launch: LaunchRequest, target: SshTarget, technology_name: str) -> Iterator[SshHost]:
    """Context manager: log in to a machine as root and copy tare's programs to it; yield the machine's host.

    Commands on it have the launch request's limit on open files. Raises TrialFailed.
    """
    socket = f"/run/{launch.name}.ssh"
    with launch.ledger.register_undo("rm", "-f", socket), connect_machine(host, target, socket) as inside:
        unpack = inside.wrap("sh", "-c", _UNPACK, "sh", _FOLDER)
        programs = f"{launch.image.root}{_FOLDER}"
        try:
            host.run("sh", "-c", _COPY, "sh", programs, *unpack, timeout=_COPY_SECONDS)
        except Unreachable:
            raise
        except TrialFailed as error:
            what = f"{technology_name}: tare's programs cannot be copied to {_FOLDER} in the machine: {error}"
            raise TrialFailed(what, "it needs tar, and 20 MB on a file system that can be written") from error
        inside.become = (*inside.become, _EXEC_IN, "-f", str(launch.limits.open_files), "--")
        inside.supervisor = SUPERVISE
        yield inside
