"""Availability of technologies on this machine, and how to fix the missing ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tare.hosts.cgroups import control_group_problem
from tare.hosts.distributions import distribution_of, find_missing_tools, localize_problems
from tare.hosts.host import Host
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost
from tare.images.image import build_fix, build_problems
from tare.model.errors import TareError
from tare.model.trial import Problem, combined_fix
from tare.plugins import registry
from tare.plugins.descriptions import other_names
from tare.plugins.technology import NEEDS_ROOT, Technology, find_problems


@dataclass(frozen=True)
class TechnologyStatus:
    """Status of a technology here: usable without problems. `advice` is optional to follow; `also` are other names."""

    name: str
    title: str
    family: str
    version: str
    problems: tuple[Problem, ...]
    advice: tuple[Problem, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Whether the technology has no problems."""
        return not self.problems


def list_usable(host: Host, *, quick_only: bool = False) -> tuple[str, ...]:
    """Return the names of the technologies that are usable here and can run commands, bare metal first.

    With `quick_only`, only technologies that start quickly.
    """
    usable = [each for name in registry.names("technologies") if (each := _load_if_usable(name, host, quick_only))]
    return tuple(each.name for each in sorted(usable, key=lambda each: (each.family != "bare metal", each.name)))


def _load_if_usable(name: str, host: Host, quick_only: bool) -> Technology | None:
    try:
        technology: Technology = registry.find("technologies", name)()
        runs_commands = technology.family != "unikernel" and not technology.provisions_machine
        fits = runs_commands and (technology.starts_quickly or not quick_only)
        return technology if fits and not find_problems(technology, host) else None
    except Exception:  # noqa: BLE001 - a plug-in breaks only itself
        return None


def check_technologies(host: Host, names: Iterable[str] | None = None) -> Iterator[TechnologyStatus]:
    """Yield the status of technologies with their default settings: of all, or of those in `names`.

    The checks run the technologies' programs, which takes seconds. A broken plug-in yields a status with its error.
    """
    there = distribution_of(host)
    for name in registry.names("technologies") if names is None else names:
        try:
            technology = registry.find("technologies", name)()
            problems = tuple(map(there.localize, find_problems(technology, host)))
            version = technology.version(host)
            advice = tuple(map(there.localize, technology.advice(host)))
            also = () if problems else other_names(type(technology), technology.variants(host))
        except TareError as error:
            yield TechnologyStatus(name, name, "", "", (Problem(str(error), error.hint),))
        except Exception as error:  # noqa: BLE001 - a plug-in breaks only itself
            yield TechnologyStatus(
                name, name, "", "", (Problem(f"the plug-in is broken: {error!r}", "repair its package"),)
            )
        else:
            yield TechnologyStatus(name, technology.title, technology.family, version, problems, advice, also)


def problems_except_root(technology: TechnologyStatus) -> tuple[Problem, ...]:
    """Return a technology's problems, except that tare is not root."""
    return tuple(each for each in technology.problems if each != NEEDS_ROOT)


def find_installable(
    technologies: Iterable[TechnologyStatus], tare_problems: Iterable[Problem] = ()
) -> tuple[list[TechnologyStatus], str]:
    """Return the technologies that only lack packages, and the command that installs these packages.

    The command also installs the packages that fix `tare_problems`, which are those of tare itself.
    """
    installable = [each for each in technologies if combined_fix(problems_except_root(each))]
    fixed = [each for each in tare_problems if each.packages]
    problems = (problem for each in installable for problem in problems_except_root(each))
    return installable, combined_fix((*fixed, *problems))


def find_tare_problems() -> tuple[Problem, ...]:
    """Return the problems of tare itself here: missing tools, no control groups, and no means to build images."""
    here = LocalHost()
    # Only root may list the folder that has the root for builds: other users get no answer that may be wrong.
    hidden = state_folder().exists() and not os.access(state_folder(), os.R_OK)
    building = () if hidden else build_problems()
    problems = localize_problems(here, building)
    if building and not combined_fix(problems):
        what = "; ".join(dict.fromkeys(each.what for each in building))
        problems = (Problem(f"no image can be built: {what}", build_fix(building)),)
    groups = control_group_problem(here)
    return (*find_missing_tools(here), *((groups,) if groups else ()), *problems)
