"""Which technologies can be used here, and what fixes the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tare.hosts.distributions import distribution_of, find_missing_tools, localize_problems
from tare.hosts.host import Host
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost
from tare.images.image import build_fix, build_problems
from tare.model.errors import TareError
from tare.model.trial import Problem, combined_fix
from tare.plugins import registry
from tare.plugins.descriptions import other_names
from tare.plugins.technology import NEEDS_ROOT, Technology


@dataclass(frozen=True)
class TechnologyStatus:
    """A technology here: usable if it has no problems. `advice` is optional; `also` are its other names here."""

    name: str
    title: str
    family: str
    version: str
    problems: tuple[Problem, ...]
    advice: tuple[Problem, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Whether it has no problems."""
        return not self.problems


def list_usable(host: Host, *, quick_only: bool = False) -> tuple[str, ...]:
    """Return the names of the technologies that can be used here and run commands: bare metal first.

    `quick_only`: only those that start quickly.
    """
    found = [each for name in registry.names("technologies") if (each := _load_if_usable(name, host, quick_only))]
    return tuple(each.name for each in sorted(found, key=lambda one: (one.family != "bare metal", one.name)))


def _load_if_usable(name: str, host: Host, quick_only: bool) -> Technology | None:
    try:
        technology: Technology = registry.find("technologies", name)()
        runs_commands = technology.family != "unikernel" and not technology.provisions_machine
        fits = runs_commands and (technology.starts_quickly or not quick_only)
        return technology if fits and not technology.problems(host) else None
    except Exception:  # noqa: BLE001 - a plug-in breaks only itself
        return None


def check_technologies(host: Host, names: Iterable[str] | None = None) -> Iterator[TechnologyStatus]:
    """Check technologies with their default settings, one after the other: all, or those with these names.

    It runs their programs, which takes seconds. A broken technology breaks only itself.
    """
    there = distribution_of(host)
    for name in registry.names("technologies") if names is None else names:
        try:
            technology = registry.find("technologies", name)()
            problems = tuple(map(there.localize, technology.problems(host)))
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
    """Return the technologies that packages alone make usable, and the command that installs all of these.

    It also installs what `tare_problems`, of tare itself, can be fixed by.
    """
    found = [each for each in technologies if combined_fix(problems_except_root(each))]
    fixed = [each for each in tare_problems if each.packages]
    return found, combined_fix((*fixed, *(problem for each in found for problem in problems_except_root(each))))


def find_tare_problems() -> tuple[Problem, ...]:
    """Find what tare itself lacks on this machine, whatever it measures: its tools, and a way to build images.

    Whether there is a root to build them in is hidden from all but root.
    """
    here = LocalHost()
    hidden = state_folder().exists() and not os.access(state_folder(), os.R_OK)
    building = () if hidden else build_problems()
    problems = localize_problems(here, building)
    if building and not combined_fix(problems):
        what = "; ".join(dict.fromkeys(each.what for each in building))
        problems = (Problem(f"no image can be built: {what}", build_fix(building)),)
    return (*find_missing_tools(here), *problems)
