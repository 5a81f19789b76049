"""What tare has on this machine now: for `tare clean --check`, and to compare the machine before a run and after it.

Names tell whose a thing is: all that tare makes is called `tare-…`, is in tare's folder, or belongs to such a thing.
What has no name, such as a rule of the firewall or a setting of the kernel, can only be compared.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tare.errors import TrialFailed
from tare.hosts.ledger import ledgers, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.lock import LockHolder

# A lock of systemd-nspawn and a network namespace of Podman's are named by numbers.
_OURS = re.compile("tare-|^inode-|^netns-")
_RUN = re.compile(r"tare-[0-9a-f]+(?!\w)")  # what the names of all things of one run begin with
_IN_HOME = ("instances", "ledgers")  # kinds that are looked for in our home alone
_MARKS = ("tare-", "/tare/", "TARE_")  # in a process's words, environment, control group, or root
_PLACES = ("/run", "/var/lib", "/etc")
_DEPTH = "4"  # as deep as /run/systemd/nspawn/locks/inode-…
_SECONDS = 60.0
# Engines put their own store on a mount of its own, and `ip netns` its folder, in whichever mount namespace they are
# used first.
_ENGINES_OWN_MOUNTS = ("/run/netns", "/var/lib/containers/storage/overlay")
_SYSTEM = Path("/proc/sys")
# These change by themselves, and reading one of them makes the kernel work.
_RESTLESS = re.compile(
    r"fs/(dentry-state|file-nr|inode-nr|inode-state|aio-nr|binfmt_misc/.*|quota/.*)|kernel/(random/.*|ns_last_pid|pty/nr|seccomp/.*"
    r"|hostname|domainname|keys/.*)|net/.*/(conf|neigh)/.*|net/netfilter/nf_conntrack_(count|buckets)|net/ipv4/route/flush"
    r"|net/.*/stat.*|vm/(stat_refresh|compact_memory|drop_caches)|dev/.*"
)
_COUNTERS = re.compile(r" \[\d+:\d+\]$|^#.*", re.MULTILINE)


@dataclass(frozen=True)
class Remains:
    """Kinds of things, each with the names of those that are there.

    `ours` bear tare's name. `settings` are the machine's own: the kernel's, and the rules of its firewall.
    """

    ours: Mapping[str, frozenset[str]]
    settings: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def beyond(self, before: Remains) -> Remains:
        """Return what is there and was not before; a setting that has changed is there with its new value."""
        return Remains(_beyond(self.ours, before.ours), _beyond(self.settings, before.settings))

    def within(self, others: Remains) -> Remains:
        """Return what is also there among others."""
        return Remains(_within(self.ours, others.ours), _within(self.settings, others.settings))

    def not_of(self, holder: LockHolder) -> Remains:
        """Return what belongs to another run than that of `holder`, by its name or by the home that it is in."""
        runs = holder.runs()
        ours = holder.home == str(state_folder())

        def is_other(kind: str, name: str) -> bool:
            if kind in _IN_HOME and not ours:
                return True
            named = _RUN.findall(_texts(name.rpartition(" ")[2]) if kind == "processes" else name)
            return bool(runs and named) and not runs.intersection(named)

        return Remains(
            {kind: frozenset(name for name in names if is_other(kind, name)) for kind, names in self.ours.items()}
        )

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return any(self.ours.values()) or any(self.settings.values())

    def lines(self) -> list[str]:
        """Return a line for each thing of tare's, such as `links: tare-1ef1-m`."""
        return [f"{kind}: {name}" for kind, names in self.ours.items() for name in sorted(names)]

    def document(self) -> dict[str, dict[str, list[str]]]:
        """Return it as it stands in JSON."""
        return {
            part: {kind: sorted(names) for kind, names in kinds.items()}
            for part, kinds in (("ours", self.ours), ("settings", self.settings))
        }


def _beyond(now: Mapping[str, frozenset[str]], before: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {kind: names - before.get(kind, frozenset()) for kind, names in now.items()}


def _within(some: Mapping[str, frozenset[str]], others: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {kind: names & others.get(kind, frozenset()) for kind, names in some.items()}


def remains(programs: Collection[str], lists: Iterable[tuple[str, ...]]) -> Remains:
    """Return what tare has on this machine; root sees all of it.

    `programs` are the names of the processes that it may have started. `lists` are commands that print the names of
    what engines keep: one that fails, as an engine without its daemon does, lists nothing.
    """
    home = state_folder()
    ours = {
        "links": of_tare(link["ifname"] for link in json.loads(said("ip", "-json", "link") or "[]")),
        "mounts": of_tare(mounts("/proc/1/mountinfo")),
        "control groups": _groups(),
        "processes": _processes(programs),
        "instances": _names(home / "instances"),
        "ledgers": _names(ledgers()),
        "images under way": frozenset(_building(home)),
        "files": _files(home),
        "dead network namespaces": _dead_namespaces(),
        "disks": of_tare(_disks(home)),
        "tracing": of_tare(path.name for path in Path("/sys/kernel/tracing/instances").glob("*")),
    }
    commands = sorted(lists)
    with ThreadPoolExecutor() as pool:  # an engine without its daemon takes seconds to say so
        texts = pool.map(lambda words: said(*words), commands)
        kept = {
            " ".join(words): of_tare(re.split(r"[\s,]+", text)) for words, text in zip(commands, texts, strict=True)
        }
    return Remains(ours | kept)


def settings() -> Mapping[str, frozenset[str]]:
    """Return the settings of the kernel that are not of one network device, and the rules of the firewall."""
    return {
        "sysctl": frozenset(_sysctls()),
        "nft": frozenset(said("nft", "--stateless", "list", "ruleset").splitlines()),
        **{name: frozenset(_COUNTERS.sub("", said(name)).splitlines()) for name in ("iptables-save", "ip6tables-save")},
    }


def of_tare(names: Iterable[str]) -> frozenset[str]:
    """Return the names that are tare's."""
    return frozenset(name for name in names if _OURS.search(name))


def mounts(path: str) -> frozenset[str]:
    """Return the places of the mounts in a file such as /proc/1/mountinfo, without those that engines make once."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    places = (line.split()[4] for line in lines)
    return frozenset(place for place in places if place not in _ENGINES_OWN_MOUNTS)


def said(*argv: str) -> str:
    """Return what a command prints, or an empty text where it fails."""
    try:
        output = LocalHost().run(*argv, timeout=_SECONDS, check=False)
    except TrialFailed:  # it takes too long
        return ""
    return output.text


def _building(home: Path) -> Iterator[str]:
    """Name the folders in which images are built: what is kept, and what mmdebstrap makes."""
    for folder in (home / "images", Path(tempfile.gettempdir())):
        yield from (path.name for path in folder.glob("tare-building-*"))


def _files(home: Path) -> frozenset[str]:
    """Find what bears tare's name where engines keep their state; tare's own folder is looked at by itself."""
    found = said("find", *_PLACES, "-maxdepth", _DEPTH, "-path", str(home), "-prune", "-o", "-print").splitlines()
    return frozenset(path for path in found if _OURS.search(Path(path).name))


def _groups() -> frozenset[str]:
    kinds = ("(", "-fstype", "cgroup", "-o", "-fstype", "cgroup2", ")")
    names = ("(", "-name", "*tare-*", "-prune", ")")  # those within it go with it
    return of_tare(said("find", "/sys/fs/cgroup", "-mindepth", "1", "-type", "d", *kinds, *names).splitlines())


def _processes(programs: Collection[str]) -> frozenset[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text(encoding="utf-8").partition("(")[2].rpartition(") ")
        except (OSError, UnicodeDecodeError):
            continue
        # What has ended is the machine's first process's to reap.
        if name in programs and not rest.startswith("Z") and _is_ours(path.parent):
            found.add(f"{name} {path.parent.name}")
    return frozenset(found)


def _is_ours(process: Path) -> bool:
    """Return whether tare has started a process: by its words, its environment, its control group or its root."""
    return any(mark in _texts(process.name) for mark in _MARKS)


def _texts(pid: str) -> str:
    """Return a process's words, environment, control groups and root as one text; empty if it has ended."""
    process = Path("/proc", pid)
    try:
        texts = [(process / name).read_bytes() for name in ("cmdline", "environ", "cgroup")]
        return "\n".join((*(text.decode("utf-8", "replace") for text in texts), str((process / "root").readlink())))
    except OSError:
        return ""


def _dead_namespaces() -> frozenset[str]:
    """Return the names of network namespaces that are gone: nothing is mounted at them, here or for the machine."""
    places = mounts("/proc/1/mountinfo") | mounts("/proc/self/mountinfo")
    return frozenset(name for name in _names(Path("/run/netns")) if f"/run/netns/{name}" not in places)


def _disks(home: Path) -> Iterator[str]:
    """Name loop devices with their files, those in tare's folder as tare's, and devices of the device mapper."""
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        file = _line(path)
        mark = "tare-loop " if Path(file).is_relative_to(home) else ""
        yield f"{mark}{path.parts[3]} {file}"
    yield from (_line(path) for path in Path("/sys/block").glob("dm-*/dm/name"))


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def _sysctls() -> Iterator[str]:
    for path in _SYSTEM.rglob("*"):
        name = str(path.relative_to(_SYSTEM))
        if not _RESTLESS.fullmatch(name) and path.is_file():
            try:
                yield f"{name} = {path.read_text(encoding='utf-8', errors='replace').strip()}"
            except OSError:
                continue
