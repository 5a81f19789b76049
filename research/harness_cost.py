"""What tare itself costs: how long a word to an instance takes to have its effect, and what a trial adds.

The trial is one around an empty program, less the same program by hand with the technology's tool. All are done in
turn, so that what changes on the machine meanwhile meets them alike; the medians are compared. By hand there is no
network to the client, no telemetry and no answer to wait for: the difference is all of that. What the kernel or the
engine needs for what each trial has, tare cannot take away: a control group with the limits (made as tare makes it),
or a port that Docker or Podman publishes. A column of its own has the command by hand with that; that of an OCI
runtime has the limits in any case. Podman's has no `--rm` there, as a trial has none, and removes the container.

Before each of them the machine rests: who joins a control group waits for the kernel, 10 ms and more, unless somebody
has just joined one.

    make bench
    PYTHONPATH=tests/support with-engines python research/harness_cost.py native crun
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fakes import run_trial
from own_testbed import own_context

from tare.hosts.cgroups import create_limited_cgroup
from tare.hosts.exec import SUPERVISE, fresh_root
from tare.hosts.host import Host
from tare.hosts.local import LocalHost, isolate_mounts
from tare.images.image import ensure_image
from tare.model.trial import Limits, Metric, RawOutput, Value
from tare.plugins import registry
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.suites.plan import PlannedTrial

_TIMES = 9
_REST_SECONDS = 0.1
_EMULATED_TIMES = 3
_WORDS = 101
_NAME = "tare-by-hand"
_BOOT = "/proc/sys/kernel/random/boot_id"
_HOST = LocalHost()


@dataclass(frozen=True)
class Empty(Workload):
    """The empty program."""

    name: ClassVar[str] = "empty"
    title: ClassVar[str] = "Empty program"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("seconds", "seconds inside", "s", "lower"),)

    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:
        """Run `true`."""
        assert setup.instance.inside is not None
        output = setup.instance.inside.run("true", timeout=60)
        return (RawOutput("true", output.argv, output.text, output.seconds),)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the seconds as they are."""
        return (Value("seconds", None, raw[0].seconds),)

    def estimate_seconds(self) -> float:
        """Next to nothing."""
        return 0.0


def by_hand(name: str, here: RunContext, root: Path, folder: Path) -> tuple[str, ...]:
    """Return the command line that somebody would type to run `true` with a technology; empty where none is known."""
    image, oci = here.images.main, {"crun": "crun", "runc": "runc", "gvisor": "runsc"}
    if name in oci:
        options = ("--platform=ptrace", "--network=none", "--ignore-cgroups") if name == "gvisor" else ()
        _write_bundle(oci[name], root, folder, here.limits)
        return (oci[name], *options, "run", "--bundle", str(folder), _NAME)
    machine = ("-M", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-m", "512M")
    drive = ("-snapshot", "-drive", f"file={image.disk},if=virtio,format=raw")
    boot = ("-kernel", str(image.kernel), "-initrd", str(image.initrd))
    line = ("-append", "root=/dev/vda rw console=ttyS0 panic=-1 init=/bin/true")
    (folder / "config").write_text(
        f"lxc.rootfs.path = dir:{root}\nlxc.apparmor.profile = unconfined\n", encoding="utf-8"
    )
    lxc = ("--name", _NAME, "--lxcpath", str(folder), "--rcfile", str(folder / "config"))
    return {
        "native": ("chroot", str(root), "true"),
        "bubblewrap": ("bwrap", "--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "true"),
        "nspawn": ("systemd-nspawn", "-q", "--register=no", "--keep-unit", "--console=pipe", "-D", str(root), "true"),
        "lxc": ("lxc-execute", *lxc, "--", "/bin/true"),
        "docker": ("docker", "run", "--rm", image.tag, "true"),
        "podman": ("podman", "run", "--rm", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", image.tag, "true"),
        "qemu-tcg": ("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", *machine, *drive, *boot, *line),
    }.get(name, ())


def run_alike(here: RunContext, argv: tuple[str, ...]) -> None:
    """Run a command line in a group with the limits of a trial; an engine's with a published port."""
    if argv[0] in ("docker", "podman"):
        lasting = (f"--name={_NAME}",) if argv[0] == "podman" else ("--rm",)
        port, words = "--publish=127.0.0.1:17007:17007", (word for word in argv[2:] if word != "--rm")
        _HOST.run(*argv[:2], *lasting, port, *words, timeout=60)
        if argv[0] == "podman":
            _HOST.run("podman", "rm", _NAME, timeout=60)
    else:
        with create_limited_cgroup(here.ledger, _NAME, here.limits) as group:
            _HOST.run(*group.join, *argv, timeout=60)


def _write_bundle(runtime: str, root: Path, folder: Path, limits: Limits) -> None:
    """Write what the runtime proposes, with our root, program and limits."""
    (folder / "config.json").unlink(missing_ok=True)
    _HOST.run("env", f"--chdir={folder}", runtime, "spec", timeout=60)
    bundle = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    bundle["root"] = {"path": str(root)}
    bundle["process"] |= {"args": ["/bin/true"], "terminal": False}
    cpus = ",".join(map(str, limits.cpus))
    bundle["linux"].setdefault("resources", {}).update(memory={"limit": limits.memory_bytes}, cpu={"cpus": cpus})
    (folder / "config.json").write_text(json.dumps(bundle), encoding="utf-8")


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes, after a rest."""
    time.sleep(_REST_SECONDS)
    began = time.monotonic()
    call()
    return time.monotonic() - began


def compare(here: RunContext, name: str) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of trials, and of the program by hand, alone and with limits or a port, done in turn."""
    technology = registry.find("technologies", name)()
    ours: list[float] = []
    raw: list[float] = []
    alike: list[float] = []
    for number in range(1 + (_EMULATED_TIMES if name == "qemu-tcg" else _TIMES)):
        step = PlannedTrial(f"bench-{name}-{number}", "empty", name, number, 0)
        time.sleep(_REST_SECONDS)
        trial, _ = run_trial(here, step, here.create_spec(technology), Empty())
        if trial.status != "ok":
            raise SystemExit(f"{name}: {trial.reason}")
        with fresh_root(here.ledger, here.images.main, here.instances_folder / _NAME) as root:
            plain = by_hand(name, here, root, here.instances_folder / _NAME)
            if plain:
                raw.append(timed(functools.partial(_HOST.run, *plain, timeout=60, check=name != "qemu-tcg")))
            if name in ("bubblewrap", "docker", "lxc", "native", "nspawn", "podman"):
                alike.append(timed(functools.partial(run_alike, here, plain)))
        ours.append(trial.seconds)
    return ours[1:], raw[1:], alike[1:]  # the first ones only warm caches


def words_of(inside: Host) -> tuple[float, float]:
    """Return the seconds from a word to an instance's resident process until a program begins, or a running one hears.

    A guest's clock is not the machine's: there, both are half of the way there and back.
    """
    same_clock = inside.read(_BOOT) == _HOST.read(_BOOT) != ""
    starting, telling = [], []
    for _ in range(_WORDS):
        began = time.monotonic()
        clock = int(inside.run(SUPERVISE, "--clock", timeout=60).text) / 1e9
        starting.append(clock - began if same_clock else (time.monotonic() - began) / 2)
    with inside.spawn("cat") as process:
        for _ in range(_WORDS):
            began = time.monotonic()
            process.send("go\n")
            telling.append((process.read_line(60).seconds - began) / 2)
    return statistics.median(starting), statistics.median(telling)


def print_words(here: RunContext, names: Sequence[str]) -> None:
    """Print how long words to an instance of each technology take."""
    print("| technology | a program begins after, ms | a running one hears after, ms |\n| --- | --- | --- |")
    for name in names:
        with start_stack(here, here.create_spec(registry.find("technologies", name)()), TrialLog()) as parts:
            inside = parts[0].instance.inside
            if inside is not None:
                print(f"| {name} | {' | '.join(f'{each * 1e3:.2f}' for each in words_of(inside))} |", flush=True)
    print(flush=True)


def usable(name: str) -> bool:
    """Return whether the empty program can be run in a technology here."""
    technology = registry.find("technologies", name)()
    return not technology.problems(_HOST) and not technology.unsupported_reason(Empty())


def main() -> None:
    """Print two Markdown tables, of all technologies or those that are named."""
    isolate_mounts()
    image = ensure_image(lambda text: print(text, file=sys.stderr))
    with own_context(image, image) as here:
        names = [name for name in sys.argv[1:] or registry.names("technologies") if usable(name)]
        print_words(here, names)
        print("| technology | trial, s | by hand, s | the same with limits or a port, s | tare adds, s |")
        print("| --- | --- | --- | --- | --- |")
        for name in names:
            ours, raw, alike = (statistics.median(each) if each else None for each in compare(here, name))
            adds = ours - (alike or raw) if ours and raw else None
            cells = (ours, raw, alike, adds)
            text = " | ".join("" if cell is None else f"{cell:.3f}" for cell in cells)
            print(f"| {name} | {text} |", flush=True)


if __name__ == "__main__":
    main()
