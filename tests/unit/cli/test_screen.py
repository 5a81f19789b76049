"""`tare doctor` in one screen: whatever the machine is like, and nothing that one would copy is cut."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace

import pytest
from golden import PRINTED, assert_as_reviewed

from tare.cli.doctor import LINES, screen_lines
from tare.model.trial import Problem
from tare.plugins import registry
from tare.plugins.technology import NEEDS_ROOT
from tare.runner.availability import TechnologyStatus
from tare.telemetry.noise import Noise

MACHINE = ("Debian GNU/Linux 12 (bookworm), Linux 6.1.0-30-amd64 on x86_64", "some CPU " * 12)
QUIET = (Noise("load", "0.01 on 4 CPUs", "quiet", "Hardly anything else runs.", ""),)
NAMES = registry.names("technologies")
NOISES = (
    *("governor", "turbo", "SMT", "steal", "load", "swap", "transparent huge pages", "ASLR", "cgroups"),
    *("clock source", "virtual machine", "thermal throttling", "free memory"),
)


def technology(name: str, *problems: Problem) -> TechnologyStatus:
    return TechnologyStatus(name, name, "container", "1.0", problems)


def said(
    *technologies: TechnologyStatus, noise: tuple[Noise, ...] = QUIET, width: int = 80, own: tuple[Problem, ...] = ()
) -> list[str]:
    return [line.plain for line in screen_lines(technologies, own, MACHINE, noise, width)]


def test_the_screen_says_what_its_reviewed_file_says() -> None:
    daemon = Problem("its daemon does not run", "systemctl start docker")
    technologies = (
        technology("native"),
        replace(technology("kubernetes"), also=("pod", "pod-gvisor")),
        technology("crun", NEEDS_ROOT),
        technology("lxc", NEEDS_ROOT, Problem.from_packages("no LXC", "lxc")),
        replace(technology("gvisor", Problem.from_packages("no runsc", "runsc")), advice=(Problem("old", "get it"),)),
        technology("docker", daemon),
        technology("kata", daemon),
        technology("osv", Problem("no image", "give one", missing="yours")),
        technology("vmware", Problem("not installed", "buy it", missing="program")),
    )
    own = (
        Problem.from_packages("ip is not installed", "iproute2"),
        Problem.from_packages("tar is not installed", "tar"),
    )
    noise = (*QUIET, Noise("swap", "none", "quiet", "", ""), Noise("turbo", "on", "watch", "", ""))
    lines = said(*technologies, noise=noise, own=own)
    assert_as_reviewed("\n".join(lines), PRINTED / "doctor.txt")


def test_possible_improvements_are_shown_below_usable_ones_with_a_command() -> None:
    command = f'curl -o /etc/key https://example.org/{"k" * 40} && echo "deb [a=b] https://example.org x" > /etc/list'
    old = TechnologyStatus("gvisor", "gVisor", "sandbox", "2022", (), (Problem("this runsc is of 2022", command),))
    lines = said(technology("crun"), old)
    first = lines.index("Usable, 2 of 2: crun gvisor") + 1
    assert lines[first] == "gvisor: this runsc is of 2022"
    last = next(index for index, line in enumerate(lines[first + 1 :], first + 1) if not line.endswith("\\"))
    assert last > first + 1
    copied = "\n".join(lines[first + 1 : last + 1]).replace("\\\n", "")
    assert [" ".join(word.split()) for word in shlex.split(copied)] == shlex.split(command)


def test_one_command_installs_all_that_can_be_installed_and_can_be_copied() -> None:
    missing = [technology(name, Problem.from_packages("not installed", f"{name}-tools", "iproute2")) for name in NAMES]
    lines = said(*missing)
    first = next(index for index, line in enumerate(lines) if "apt-get" in line)
    last = next(index for index, line in enumerate(lines[first:], first) if not line.endswith("\\"))
    words = shlex.split("\n".join(lines[first : last + 1]).replace("\\\n", ""))
    assert words[:2] == ["apt-get", "install"]
    assert sorted(words[2:]) == sorted({"iproute2", *(f"{name}-tools" for name in NAMES)})


def test_what_a_package_alone_does_not_mend_is_not_called_installable() -> None:
    both = (Problem.from_packages("no qemu", "qemu-system-x86"), Problem("no /dev/kvm", "turn on nesting"))
    assert not any("Installable" in line for line in said(technology("qemu", *both)))


def test_reasons_that_do_not_fit_are_counted() -> None:
    lines = said(*(technology(f"technology-{number}", Problem(f"reason {number}", "fix")) for number in range(30)))
    assert len(lines) == LINES
    shown = sum(line.startswith("  technology-") for line in lines)
    assert f"  … and {30 - shown} more" in lines


def test_a_number_of_reasons_without_a_reason_takes_one_line() -> None:
    odd = [technology(f"odd-{number}", Problem(f"reason {number}", "wait")) for number in range(5)]
    shown = []
    for sources in range(LINES):
        noise = tuple(Noise(f"source {number}", "x" * 60, "noisy", "", "") for number in range(sources))
        lines = said(technology("native"), *odd, noise=noise)
        at = next(at for at, line in enumerate(lines) if line.startswith("Not usable here:"))
        shown.append(tuple(lines[at : at + 2]))
    assert ("Not usable here:", "  … and 5 more") not in shown
    assert ("Not usable here:", "  odd-0  reason 0 → wait") in shown
    assert any(first == "Not usable here: 5 more" for first, _ in shown)


def test_where_noise_takes_all_lines_reasons_are_one_line() -> None:
    noise = tuple(Noise(f"source {number}", "x" * 70, "noisy", "", "") for number in range(20))
    lines = said(technology("native"), technology("odd", Problem("it is odd", "wait")), noise=noise)
    assert [line for line in lines if "Not usable" in line or "odd" in line] == ["Not usable here: 1 more"]


@pytest.mark.parametrize("seed", range(100))
def test_it_is_one_screen_on_any_machine(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    kinds = (
        (),
        (Problem.from_packages("qemu-system-x86_64 is not installed", "qemu-system-x86", "qemu-utils"),),
        (Problem("no image is given", "a table [stacks.NAME]", missing="yours"),),
        (Problem("not installed", "put it on the PATH", missing="program"),),
        (Problem("the daemon does not answer " * 4, "systemctl start it"),),
    )
    technologies = [
        technology(name, *(kinds[choice] if (choice := chance.randrange(6)) < 5 else [Problem(name * 9, "fix" * 20)]))
        for name in NAMES
    ]
    noise = tuple(
        Noise(name, "0.12% of the CPU time", chance.choice(("quiet", "watch", "noisy", "unknown")), "", "")
        for name in NOISES
    )
    lines = said(*technologies, noise=noise)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 80
