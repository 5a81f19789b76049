"""A small catalogue of plug-ins for the tests of suites, and short ways to read one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from tare.model.errors import SuiteError, UsageError
from tare.model.units import Duration, Size
from tare.plugins import registry
from tare.suites.suite import PlannedWorkload, Suite, parse_suite


@dataclass(frozen=True)
class Native:
    name: ClassVar[str] = "native"
    can_be_nested: ClassVar[bool] = True


@dataclass(frozen=True)
class Docker:
    name: ClassVar[str] = "docker"
    can_be_nested: ClassVar[bool] = True
    network: Literal["nat", "bridge"] = "nat"
    storage: Size = 1024

    @property
    def needs_local_client(self) -> bool:
        return self.network == "bridge"


@dataclass(frozen=True)
class Qemu:
    name: ClassVar[str] = "qemu"
    can_host: ClassVar[bool] = True


@dataclass(frozen=True)
class Lender:
    name: ClassVar[str] = "lender"
    can_host: ClassVar[bool] = True
    provisions_machine: ClassVar[bool] = True
    cloud: str = ""


@dataclass(frozen=True)
class Remote:
    address: str
    name: ClassVar[str] = "remote"
    can_be_nested: ClassVar[bool] = True


@dataclass(frozen=True)
class Cluster:
    name: ClassVar[str] = "cluster"
    needs: ClassVar[str] = "a cluster"
    short_name: ClassVar[str] = "pod"
    variant_setting: ClassVar[str] = "kind"
    needs_local_client: ClassVar[bool] = True
    kind: str = ""
    room: Size = 1024


@dataclass(frozen=True)
class Redis:
    name: ClassVar[str] = "redis"
    operations: tuple[str, ...] = ("GET",)
    clients: tuple[int, ...] = (1, 50)
    keep_alive: bool = True
    timeout: Duration = 5.0
    share: float = 0.5
    pipeline: int | None = None

    def __post_init__(self) -> None:
        if list(self.clients) != sorted(self.clients):
            raise ValueError("the clients must rise")


@dataclass(frozen=True)
class Fixed:
    size: Size
    name: ClassVar[str] = "fixed"


class Shelf:
    """A catalogue of the classes above, and a plug-in that cannot be imported."""

    def names(self, kind: registry.PluginType) -> tuple[str, ...]:
        return tuple(sorted(self.classes(kind)))

    def find(self, kind: registry.PluginType, name: str) -> type[Any]:
        found = self.classes(kind)[name]
        if found is None:
            raise UsageError(f"the plug-in {name!r} is broken: no module named 'gone'", "repair or remove its package")
        return found

    def classes(self, kind: registry.PluginType) -> dict[str, type[Any] | None]:
        if kind == "technologies":
            known = (Native, Docker, Qemu, Lender, Remote, Cluster)
            return {each.name: each for each in known} | {"broken": None, "plain": object}
        return {"redis": Redis, "fixed": Fixed, "broken": None}


REDIS = '[[workloads]]\nuse = "redis"\n'
NATIVE = '[suite]\nstacks = ["native"]\n'


def read(text: str) -> Suite:
    return parse_suite(text, "quick.toml", Shelf())


def settings(planned: PlannedWorkload) -> object:
    return planned.workload


def faults(text: str) -> list[tuple[str, str]]:
    with pytest.raises(SuiteError) as caught:
        read(text)
    return [(fault.message, fault.hint) for fault in caught.value.faults]
