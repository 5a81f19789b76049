"""`tare doctor` in one screen: whatever the machine is like, and nothing that one would copy is cut."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace

import pytest

from tare.cli.doctor import LINES, screen
from tare.model.trial import Problem
from tare.plugins import registry
from tare.plugins.technology import NOT_ROOT
from tare.runner.availability import Usable
from tare.telemetry.noise import Noise

MACHINE = ("Debian GNU/Linux 12 (bookworm), Linux 6.1.0-30-amd64 on x86_64", "some CPU " * 12)
QUIET = (Noise("load", "0.01 on 4 CPUs", "quiet", "Hardly anything else runs.", ""),)
NAMES = registry.names("technologies")
NOISES = (
    *("governor", "turbo", "SMT", "steal", "load", "swap", "transparent huge pages", "ASLR", "cgroups"),
    *("clock source", "virtual machine", "thermal throttling", "free memory"),
)


def technology(name: str, *problems: Problem) -> Usable:
    return Usable(name, name, "container", "1.0", problems)


def said(
    *technologies: Usable, noise: tuple[Noise, ...] = QUIET, width: int = 80, own: tuple[Problem, ...] = ()
) -> list[str]:
    return [line.plain for line in screen(technologies, own, MACHINE, noise, width)]


def test_what_tare_itself_lacks_stands_apart_from_what_technologies_lack() -> None:
    own = (Problem.fixed_by("ip is not installed", "iproute2"), Problem.fixed_by("tar is not installed", "tar"))
    lines = said(technology("native"), technology("crun", Problem.fixed_by("no crun", "crun")), own=own)
    at = lines.index("tare itself: ip is not installed; tar is not installed")
    assert lines[at + 1] == "  apt-get install iproute2 tar"
    assert lines.index("Usable, 1 of 2: native") > at
    assert "tare itself" not in "\n".join(said(technology("native")))


def test_what_is_usable_is_a_list() -> None:
    assert "Usable, 2 of 3: crun native" in said(
        technology("crun"), technology("native"), technology("xen", Problem("no Xen", "boot it"))
    )


def test_what_could_be_better_is_shown_below_what_is_usable_with_its_command() -> None:
    command = f'curl -o /etc/key https://example.org/{"k" * 40} && echo "deb [a=b] https://example.org x" > /etc/list'
    old = Usable("gvisor", "gVisor", "sandbox", "2022", (), (Problem("this runsc is of 2022", command),))
    lines = said(technology("crun"), old)
    first = lines.index("Usable, 2 of 2: crun gvisor") + 1
    assert lines[first] == "gvisor: this runsc is of 2022"
    last = next(index for index, line in enumerate(lines[first + 1 :], first + 1) if not line.endswith("\\"))
    assert last > first + 1
    copied = "\n".join(lines[first + 1 : last + 1]).replace("\\\n", "")
    assert [" ".join(word.split()) for word in shlex.split(copied)] == shlex.split(command)


def test_advice_is_also_shown_where_a_technology_is_not_installed() -> None:
    missing = replace(technology("gvisor", Problem.fixed_by("no runsc", "runsc")), advice=(Problem("old", "get it"),))
    lines = said(missing)
    assert "  apt-get install runsc" in lines
    assert lines[lines.index("gvisor: old") + 1] == "  get it"


def test_the_other_names_of_what_is_usable_are_shown_below_it() -> None:
    pods = Usable("kubernetes", "Kubernetes", "container", "1.34.4", (), (), ("pod", "pod-gvisor"))
    lines = said(technology("crun"), pods)
    assert lines[lines.index("Usable, 2 of 2: crun kubernetes") + 1] == "kubernetes: also pod pod-gvisor"


def test_one_command_installs_all_that_can_be_installed_and_can_be_copied() -> None:
    missing = [technology(name, Problem.fixed_by("not installed", f"{name}-tools", "iproute2")) for name in NAMES]
    lines = said(*missing)
    first = next(index for index, line in enumerate(lines) if "apt-get" in line)
    last = next(index for index, line in enumerate(lines[first:], first) if not line.endswith("\\"))
    words = shlex.split("\n".join(lines[first : last + 1]).replace("\\\n", ""))
    assert words[:2] == ["apt-get", "install"]
    assert sorted(words[2:]) == sorted({"iproute2", *(f"{name}-tools" for name in NAMES)})


def test_what_a_package_alone_does_not_mend_is_not_called_installable() -> None:
    both = (Problem.fixed_by("no qemu", "qemu-system-x86"), Problem("no /dev/kvm", "turn on nesting"))
    assert not any("Installable" in line for line in said(technology("qemu", *both)))


def test_what_is_missing_is_said_to_be_installable_although_root_does_not_ask() -> None:
    problems = (NOT_ROOT, Problem.fixed_by("no crun", "crun"))
    assert "Installable: crun" in said(technology("crun", *problems), technology("native", NOT_ROOT))


def test_what_only_lacks_root_is_a_list() -> None:
    assert "Needs root, as in `sudo tare doctor`: crun native" in said(
        technology("crun", NOT_ROOT), technology("native", NOT_ROOT)
    )


def test_technologies_with_one_reason_share_a_line_with_a_short_fix() -> None:
    problem = Problem("its daemon does not run", "systemctl start docker")
    lines = said(technology("docker", problem), technology("kata", problem))
    assert "  docker kata  its daemon does not run → systemctl start docker" in lines


def test_what_only_the_user_has_and_what_debian_lacks_are_groups_of_their_own() -> None:
    lines = said(
        technology("osv", Problem("no image", "give one", missing="yours")),
        technology("vmware", Problem("not installed", "buy it", missing="program")),
    )
    assert "Needs an image or an account of yours: osv" in lines
    assert "Needs a program of another project: vmware" in lines


def test_reasons_that_do_not_fit_are_counted() -> None:
    lines = said(*(technology(f"technology-{number}", Problem(f"reason {number}", "fix")) for number in range(30)))
    assert len(lines) == LINES
    shown = sum(line.startswith("  technology-") for line in lines)
    assert f"  … and {30 - shown} more" in lines


def test_where_noise_takes_all_lines_reasons_are_one_line() -> None:
    noise = tuple(Noise(f"source {number}", "x" * 70, "noisy", "", "") for number in range(20))
    lines = said(technology("native"), technology("odd", Problem("it is odd", "wait")), noise=noise)
    assert [line for line in lines if "this machine" in line or "odd" in line] == ["Not on this machine: 1 more"]


def test_only_doubtful_noise_has_its_value() -> None:
    noise = (
        Noise("load", "0.1", "quiet", "", ""),
        Noise("swap", "none", "quiet", "", ""),
        Noise("turbo", "on", "watch", "", ""),
    )
    lines = said(technology("native"), noise=noise)
    assert "Noise, watch: turbo (on)" in lines
    assert "Noise, quiet: load, swap" in lines


@pytest.mark.parametrize("seed", range(100))
def test_it_is_one_screen_on_any_machine(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    kinds = (
        (),
        (Problem.fixed_by("qemu-system-x86_64 is not installed", "qemu-system-x86", "qemu-utils"),),
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
