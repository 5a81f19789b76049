"""Ansible for a fleet: inventory, and playbooks through ansible-runner.

An inventory that names a machine twice is refused: two runs at once on a machine disturb each other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from tare.hosts.local import LocalHost, find_shipped_folder
from tare.model.errors import TareError, UsageError

_INSTALL_HINT = "pip install 'tare-bench[fleet]'"
_OUTCOMES = {"runner_on_ok": "ok", "runner_on_failed": "failed", "runner_on_unreachable": "unreachable"}
_SYSTEM_ERROR = re.compile(r"\[Errno \d+\] ([^:\]]+)")  # such as `[Errno 28] No space left on device: '/etc/x'`
_ERROR_PREFIXES = re.compile(r"^(Task failed: |Module failed: |Failed to connect to the host via ssh: )+")
_MAX_MESSAGE_CHARACTERS = 300  # modules report whole scripts and outputs as messages
SERVERS = "servers"
_CLIENTS = "clients"
_TIMEOUT_SECONDS = 60.0
_EXAMPLE = "[servers], and below it a line for each machine: web1 ansible_host=203.0.113.11"


@dataclass(frozen=True)
class TaskResult:
    """Result of a task on a machine: `ok`, `failed` or `unreachable`, the output, and the reason of a failure or ""."""

    machine: str
    task: str
    outcome: str
    text: str
    reason: str

    @property
    def step(self) -> str:
        """The name of the task without that of its role."""
        return self.task.rpartition(" : ")[2]


ResultCallback = Callable[[TaskResult], None]


def find_ansible_command(name: str) -> str:
    """Return the path of one of Ansible's commands; raises TareError if it is not installed."""
    # The environment of the running Python first: it may not be on PATH, as with pipx.
    in_environment = Path(sys.executable).with_name(name)
    path = str(in_environment) if in_environment.exists() else shutil.which(name)
    if not path:
        raise TareError(f"Ansible is not installed: {name} is missing", _INSTALL_HINT)
    return path


def find_collection() -> Path:
    """Return the folder of the collection: in the installed package, or at the top of a checkout."""
    folder = find_shipped_folder("ansible")
    if not folder.is_dir():
        raise TareError("the Ansible collection is missing", "install tare-bench again")
    return folder


@dataclass(frozen=True)
class Playbooks:
    """Playbooks of tare's collection for machines of an inventory; setting `stop` ends them."""

    inventory: Path
    folder: Path  # temporary, for files of ansible-runner
    stop: Event

    def run(self, name: str, machines: Sequence[str], variables: Mapping[str, Any], on_result: ResultCallback) -> None:
        """Run a playbook on these machines; call `on_result` after each task on each machine. Raises TareError.

        A machine that fails does not stop the others. Once `stop` is set, the playbook is ended.
        """
        import ansible_runner  # noqa: PLC0415 - installed only with the extra `fleet`

        def handle_event(event: Mapping[str, Any]) -> bool:
            if result := _to_task_result(event):
                on_result(result)
            return False  # ansible-runner need not store the event in its folder

        done = ansible_runner.run(
            private_data_dir=str(self.folder),
            playbook=str(find_collection() / "playbooks" / f"{name}.yml"),
            inventory=str(self.inventory.resolve()),
            extravars={**variables, "tare_machines": ":".join(machines)},
            envvars=_environment(self.folder, len(machines)),
            event_handler=handle_event,
            cancel_callback=self.stop.is_set,
            quiet=True,
            rotate_artifacts=1,
        )
        if done.status == "failed" and done.rc not in (0, 2, 4):  # 2 and 4: some machines failed, or are unreachable
            raise TareError(
                f"Ansible ended with exit code {done.rc}: {_last_error_line(done)}", "is the inventory right?"
            )


@contextmanager
def open_playbooks(inventory: Path, stop: Event) -> Iterator[Playbooks]:
    """Context manager: prepare a temporary folder for ansible-runner; raises TareError if it is not installed."""
    find_ansible_command("ansible-playbook")
    try:
        import ansible_runner  # noqa: F401, PLC0415 - installed only with the extra `fleet`
    except ImportError as error:
        raise TareError("ansible-runner is not installed", _INSTALL_HINT) from error
    with tempfile.TemporaryDirectory(prefix="tare-fleet-") as name:
        folder = Path(name)
        collections = folder / "collections/ansible_collections/tare"
        collections.mkdir(parents=True)
        (collections / "bench").symlink_to(find_collection())
        yield Playbooks(inventory, folder, stop)


def _environment(folder: Path, machines: int) -> dict[str, str]:
    """Return Ansible's environment; the user's configuration stays, and the path of collections is extended."""
    paths = (str(folder / "collections"), os.environ.get("ANSIBLE_COLLECTIONS_PATH", ""))
    # ansible-runner changes its working directory, where Ansible would look for this file.
    user_config = Path("ansible.cfg")
    return {
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(filter(None, paths)),
        "ANSIBLE_FORKS": os.environ.get("ANSIBLE_FORKS", str(max(5, min(machines, 50)))),
        "ANSIBLE_PIPELINING": os.environ.get("ANSIBLE_PIPELINING", "true"),
        "ANSIBLE_RETRY_FILES_ENABLED": "false",
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
        **(
            {"ANSIBLE_CONFIG": str(user_config.resolve())}
            if user_config.exists() and "ANSIBLE_CONFIG" not in os.environ
            else {}
        ),
    }


def _to_task_result(event: Mapping[str, Any]) -> TaskResult | None:
    """Parse an event of ansible-runner; None unless a machine ended a task, and for failures that the task ignores."""
    outcome, data = _OUTCOMES.get(str(event.get("event"))), event.get("event_data") or {}
    if outcome is None or data.get("ignore_errors"):
        return None
    result = data.get("res") or {}
    text = str(result.get("stdout") or "")
    reason = "" if outcome == "ok" else _reason(result)
    return TaskResult(str(data.get("host") or ""), str(data.get("task") or ""), outcome, text, reason)


def _reason(result: Mapping[str, Any]) -> str:
    """Return the most telling line of a failed task, or of its first failed item."""
    failed = next((each for each in result.get("results") or () if each.get("failed")), None)
    if failed:
        return _reason(failed)
    texts = (result.get("stderr"), result.get("msg"), result.get("stdout"), result.get("module_stdout"))
    stripped = (_ERROR_PREFIXES.sub("", line.strip()) for text in texts if text for line in str(text).splitlines())
    lines = [line for line in stripped if line]
    # tare prints its errors after `error: `; a traceback of a module ends in an error of the system.
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    system_errors = [match[1] for line in lines if (match := _SYSTEM_ERROR.search(line))]
    return (errors or system_errors or lines or ["no reason is given"])[0][:_MAX_MESSAGE_CHARACTERS]


def _last_error_line(runner: Any) -> str:
    lines = [line.strip() for line in runner.stdout.read().splitlines() if line.strip()]
    return next((line for line in lines if "ERROR" in line), lines[-1] if lines else "it said nothing")[
        :_MAX_MESSAGE_CHARACTERS
    ]


@dataclass(frozen=True)
class Inventory:
    """Inventory: its file, and the names of the machines to measure."""

    path: Path
    servers: tuple[str, ...]


def read_inventory(path: Path) -> Inventory:
    """Read an inventory; raises UsageError if it has no servers, or a machine twice."""
    if not path.exists():
        raise UsageError(f"{path}: no such file", f"an inventory of Ansible, such as {_EXAMPLE}")
    listing = LocalHost().run(
        find_ansible_command("ansible-inventory"), "-i", str(path), "--list", timeout=_TIMEOUT_SECONDS
    )
    warnings = listing.stderr.decode("utf-8", "replace")
    groups = _parse_groups(listing.stdout, path)
    # Ansible exits with 0 for a file that it cannot parse, and only warns.
    if "Unable to parse" in warnings and not groups.get("_meta", {}).get("hostvars"):
        raise UsageError(f"{path}: Ansible cannot read it", f"ansible-inventory -i {path} --list says why")
    servers = _hosts_of(groups, SERVERS)
    if not servers:
        raise UsageError(f"{path}: no machines in the group {SERVERS}", _EXAMPLE)
    _refuse_odd_names(servers, path)
    variables = groups.get("_meta", {}).get("hostvars", {})
    _refuse_duplicates(servers, variables, path)
    _refuse_clients_as_servers(servers, _hosts_of(groups, _CLIENTS), variables, path)
    return Inventory(path, servers)


def _parse_groups(text: bytes, path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise TareError(f"{path}: Ansible's answer is not understood", "is ansible-core installed well?") from error


def _hosts_of(groups: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the hosts of a group and of its child groups, in their order."""
    group = groups.get(name, {})
    below = (host for child in group.get("children", ()) for host in _hosts_of(groups, child))
    return tuple(dict.fromkeys((*group.get("hosts", ()), *below)))


def _refuse_odd_names(servers: Sequence[str], path: Path) -> None:
    """Raise UsageError for names that cannot be folder names: a run folder is named after its machine."""
    if odd := [name for name in servers if "/" in name or name.startswith(".")]:
        raise UsageError(f"{path}: {odd[0]!r} can be no folder's name", "name the machine, and set its ansible_host")


def _refuse_duplicates(servers: Sequence[str], variables: Mapping[str, Any], path: Path) -> None:
    known: dict[tuple[str, str], str] = {}
    for name in servers:
        address = _address(name, variables)
        if earlier := known.get(address):
            message = f"{path}: {earlier} and {name} are one machine, {address[0]}"
            raise UsageError(message, "its runs would disturb each other: name it once")
        known[address] = name


def _refuse_clients_as_servers(
    servers: Sequence[str], clients: Sequence[str], variables: Mapping[str, Any], path: Path
) -> None:
    servers_by_address = {_address(name, variables): name for name in servers}
    for name in clients:
        if server := servers_by_address.get(_address(name, variables)):
            message = f"{path}: {name} is a client, and the server {server}"
            raise UsageError(message, "a load on the server's machine takes its CPU time: name another machine")


def _address(name: str, variables: Mapping[str, Any]) -> tuple[str, str]:
    """Return the address and the port of a machine."""
    of_machine = variables.get(name, {})
    return str(of_machine.get("ansible_host", name)), str(of_machine.get("ansible_port", 22))
