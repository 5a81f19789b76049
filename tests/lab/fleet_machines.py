"""A fleet for tests: real SSH servers, each in namespaces and on a file system of its own, with Python and tare.

    this machine ── a1, a2, …      198.19.250.0/24, a /30 each

They run the image of machines that are hosts. What tests have of Python and tare is mounted, read-only, where it is
here, and the images, too, but for those that are to take them from archives. A machine may be of another CPU model, or
have a full disk, as far as its files say. What is made of control groups, they share with this machine.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ssh_machines import ENTER_ROOT, MOUNT_ROOT, make_keys, server, spaces
from waiting import wait_until

from tare.hosts.host import Process
from tare.hosts.local import LocalHost
from tare.model.image import Image

_HOST = LocalHost()
_SECONDS = 30.0
_PROJECT = Path(__file__).parents[2]
_PIDS = 100_000  # of a machine's processes, apart from another's: names of control groups have them
_START = f"""
set -e
image=$1 place=$2 disk=$3 pid=$4 model=$5 images=$6 full=$7 name=$8
shift 8
{MOUNT_ROOT}
while [ "$1" != -- ]; do
    mkdir -p ".$1" && mount --rbind -o ro "$1" ".$1"
    shift
done
shift
touch usr/bin/cc
mount --bind "$(realpath /usr/bin/cc)" usr/bin/cc # whose version is in the names of images
mount --bind "$disk" var/lib/tare
[ -z "$images" ] || {{ mkdir -p var/lib/tare/images && mount --bind "$images" var/lib/tare/images; }}
[ -z "$full" ] || {{ mkdir var/lib/tare-fleet && mount -t tmpfs -o size=4k tmpfs var/lib/tare-fleet &&
    head -c 4096 /dev/zero >var/lib/tare-fleet/.full; }}
sed "s/^model name.*/model name\\t: $model/" proc/cpuinfo >run/cpuinfo
[ -z "$model" ] || mount --bind run/cpuinfo proc/cpuinfo
echo "$pid" >proc/sys/kernel/ns_last_pid
{ENTER_ROOT}
hostname "$name"
exec "$@"
"""


@dataclass(frozen=True)
class Kept:
    """How a machine is unlike the others: its CPU's model, whether it has images, and whether its disk is full."""

    cpu_model: str = ""
    has_images: bool = True
    full: bool = False


@dataclass(frozen=True)
class Fleet:
    """Machines that an inventory names."""

    folder: Path
    inventory: Path
    running: Mapping[str, ExitStack] = field(default_factory=dict)

    def kill(self, name: str) -> None:
        """End all that runs on a machine at once, as when it loses its power."""
        self.running[name].close()

    def on(self, name: str, script: str) -> str:
        """Run a script on a machine; return what it prints."""
        return _HOST.run(*_ssh(self.folder, _number(name)), script, timeout=_SECONDS, check=False).text


@contextmanager
def fleet(folder: Path, image: Image, images: Path, machines: Mapping[str, Kept]) -> Iterator[Fleet]:
    """Start machines, whose names end in a number; all of it is gone after the block."""
    make_keys(folder, [_address(_number(name)) for name in machines])
    inventory = folder / "inventory.ini"
    inventory.write_text(_inventory(folder, machines))
    with ExitStack() as stack:
        running = {name: stack.enter_context(ExitStack()) for name in machines}
        for name, own in running.items():
            own.enter_context(_network(name))
            own.enter_context(_machine(folder, image, images, name, machines[name]))
        for name in machines:
            _wait_for(folder, name)
        yield Fleet(folder, inventory, running)


def _inventory(folder: Path, machines: Mapping[str, Kept]) -> str:
    lines = [f"{name} ansible_host={_address(_number(name))}" for name in machines]
    variables = {
        "ansible_user": "root",
        "ansible_python_interpreter": sys.executable,
        "ansible_ssh_private_key_file": folder / "key",
        "ansible_ssh_common_args": f"'{' '.join(_ssh_options(folder))}'",
        "tare_install": "false",
        "tare_command": Path(sys.executable).with_name("tare"),
        "tare_archives": folder / "archives",
    }
    return "\n".join(
        ["[servers]", *lines, "", "[servers:vars]", *(f"{key}={value}" for key, value in variables.items())]
    )


@contextmanager
def _network(name: str) -> Iterator[None]:
    space, device, number = f"tare-test-{name}", f"tare-t{name}", _number(name)
    with ExitStack() as stack:
        stack.callback(_ip, "netns", "delete", space, check=False)
        _ip("netns", "add", space)
        stack.callback(_ip, "link", "delete", device, check=False)
        _ip("link", "add", device, "type", "veth", "peer", "name", "up0", "netns", space)
        _ip("addr", "add", f"{_address(number, 1)}/30", "dev", device)
        _ip("link", "set", device, "up")
        _ip("-n", space, "addr", "add", f"{_address(number)}/30", "dev", "up0")
        for each in ("lo", "up0"):
            _ip("-n", space, "link", "set", each, "up")
        yield


@contextmanager
def _machine(folder: Path, image: Image, images: Path, name: str, kept: Kept) -> Iterator[Process]:
    place, disk = folder / name, folder / f"{name}-disk"
    for each in (place, disk):
        each.mkdir(exist_ok=True)
    kind = (str(_number(name) * _PIDS), kept.cpu_model, str(images) if kept.has_images else "", "full" * kept.full)
    shown = sorted({str(_PROJECT), os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)})
    start = ("sh", "-c", _START, "sh", str(image.root), str(place), str(disk), *kind, f"tare-test-{name}", *shown, "--")
    try:
        with _HOST.spawn(*spaces(f"tare-test-{name}"), *start, *server(folder)) as process:
            yield process
    finally:
        _remove_groups(_number(name))


def _remove_groups(number: int) -> None:
    """Remove the control groups of a machine that has ended: a real one's go with its kernel."""
    tops = [group for group in Path("/sys/fs/cgroup").rglob("tare-*-*") if _made_by(group.name, number)]
    groups = {each for top in tops for each in (top, *top.rglob("*/"))}
    for group in sorted(groups, key=lambda path: len(path.parts), reverse=True):
        wait_until(partial(_removed, group))


def _made_by(group: str, number: int) -> bool:
    """Return whether a process of this machine made a group such as `tare-30da9-00-148bda6`."""
    found = re.match("tare-([0-9a-f]+)-", group)
    return found is not None and int(found[1], 16) // _PIDS == number


def _removed(group: Path) -> bool:
    with suppress(OSError):  # what ran in it has not quite ended
        group.rmdir()
    return not group.exists()


def _wait_for(folder: Path, name: str) -> None:
    for _ in range(100):
        asked = _HOST.run(*_ssh(folder, _number(name)), "true", timeout=_SECONDS, check=False)
        if asked.exit_code == 0:
            return
    raise AssertionError(asked.stderr.decode())


def _ssh(folder: Path, number: int) -> Sequence[str]:
    return ("ssh", *_ssh_options(folder), "-i", str(folder / "key"), "-o", "BatchMode=yes", f"root@{_address(number)}")


def _ssh_options(folder: Path) -> Sequence[str]:
    options = (f"UserKnownHostsFile={folder / 'known_hosts'}", "GlobalKnownHostsFile=/dev/null", "ConnectTimeout=3")
    return ("-F", "/dev/null", *(word for option in options for word in ("-o", option)))


def _number(name: str) -> int:
    return int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))


def _address(number: int, end: int = 2) -> str:
    return f"198.19.250.{4 * number + end}"


def _ip(*words: str, check: bool = True) -> None:
    _HOST.run("ip", *words, timeout=_SECONDS, check=check)
