"""Plug-ins are found by their names; the last tests install packages of others in a folder of their own."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import json
import re
import sys
from pathlib import Path

import pytest
from declared import packages, startable

from plug_ins import own
from tare.cli.catalogue import technologies, workloads
from tare.model.errors import SuiteError, UsageError
from tare.model.isolation import LEVELS
from tare.model.trial import Metric
from tare.plugins import registry
from tare.plugins.descriptions import format_settings
from tare.plugins.registry import PluginType
from tare.plugins.technology import KERNEL_DIFFERENCES
from tare.plugins.workload import Workload
from tare.suites.suite import parse_suite

KINDS: tuple[PluginType, ...] = ("technologies", "workloads")
ALL = [(kind, name) for kind in KINDS for name in own(kind)]

BHYVE = '''"""bhyve: somebody else's technology.

More of it.
"""

from dataclasses import dataclass

from tare.plugins.technology import Technology
from tare.model.isolation import Isolation


@dataclass(frozen=True)
class Bhyve(Technology):
    name = "bhyve"
    title = "bhyve"
    family = "type 2"
    isolation = Isolation("own kernel", "a guest")
    network_path = "tap"
    memory: int = 7

    def problems(self, host):
        return ()

    def version(self, host):
        return "1"

    def launch(self, host, launch):
        raise NotImplementedError
'''


WORKLOAD = '''"""bhyve: somebody else's workload."""

from dataclasses import dataclass

from tare.plugins.workload import Workload
from tare.model.trial import Metric


@dataclass(frozen=True)
class Bhyve(Workload):
    name = "bhyve"
    title = "bhyve"
    metrics = (Metric("speed", "Speed", "runs/s", "higher"),)

    def measure(self, setup):
        return ()

    def parse(self, raw):
        return ()

    def estimate_seconds(self):
        return 0.0
'''


# Of the contract, in its order: what the class above does not have itself.
INHERITED = [
    each
    for each in dict.fromkeys((*Workload.__annotations__, *vars(Workload)))
    if not each.startswith("_") and f"    {each} =" not in WORKLOAD and f"def {each}(" not in WORKLOAD
]


def install(folder: Path, group: str, **modules: str) -> None:
    """Make a folder an installed package: each module is a plug-in of its own name; `found` names its class."""
    info = folder / "others-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    lines = [f"{name} = others_{name}:{name.title()}\n" for name in modules]
    (info / "entry_points.txt").write_text(f"[tare.{group}]\n" + "".join(lines))
    for name, text in modules.items():
        sys.modules.pop(f"others_{name}", None)  # that of another test
        (folder / f"others_{name}.py").write_text(text)


def test_the_files_are_the_catalogue() -> None:
    package = Path(registry.__file__).parents[1]
    for kind in KINDS:
        files = {*(package / kind).glob("*.py"), *(path.parent for path in (package / kind).glob("*/__init__.py"))}
        assert own(kind).keys() == {path.stem.replace("_", "-") for path in files} - {"--init--"}


def test_a_plug_in_and_not_the_makefile_declares_what_its_tests_need() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^TEST_PACKAGES := (.*)$", makefile, re.MULTILINE)
    assert found
    assert not set(found[1].split()) & packages(own("technologies").values())
    assert {"user-mode-linux", "ovmf", "isolinux", "libvirt-clients"} <= packages(startable())


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_plugin_says_what_it_is(kind: PluginType, name: str) -> None:
    found = registry.find(kind, name)
    module = inspect.getmodule(found)
    assert found.name == name
    assert module is not None
    assert module.__name__.removesuffix(".technology") == f"tare.{kind}.{name.replace('-', '_')}"
    assert inspect.getdoc(module)
    assert found.title
    assert dataclasses.is_dataclass(found)
    found()  # all settings have defaults


@pytest.mark.parametrize(("kind", "name"), [pair for pair in ALL if pair[0] == "workloads"])
def test_a_workload_declares_its_metrics_once_each(kind: PluginType, name: str) -> None:
    metrics: tuple[Metric, ...] = registry.find(kind, name)().all_metrics
    assert metrics
    assert len({metric.name for metric in metrics}) == len(metrics)
    assert all(metric.unit and metric.title for metric in metrics)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_is_an_error_with_the_command_that_lists_them(kind: PluginType) -> None:
    with pytest.raises(UsageError, match="named 'hyper-v'") as caught:
        registry.find(kind, "hyper-v")
    assert caught.value.hint == f"`tare {kind}` lists them"


def test_installed_packages_are_read_once_for_many_plug_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read, real = [], importlib.metadata.entry_points

    def counted(group: str) -> importlib.metadata.EntryPoints:
        read.append(group)
        return real(group=group)

    monkeypatch.setattr(importlib.metadata, "entry_points", counted)
    monkeypatch.syspath_prepend(tmp_path)  # another path is another set of packages
    for name in registry.names("workloads"):
        registry.find("workloads", name)
    assert read == ["tare.workloads"]


@pytest.mark.parametrize("name", ["../native", "native.sub", "NATIVE", "", "__init__", "qemu_tcg"])
def test_only_whole_names_are_found(name: str) -> None:
    with pytest.raises(UsageError):
        registry.find("technologies", name)


def test_a_package_of_others_adds_a_technology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "technologies", bhyve=BHYVE)
    monkeypatch.syspath_prepend(tmp_path)
    assert "bhyve" in registry.names("technologies")
    assert registry.find("technologies", "bhyve")().memory == 7
    technologies("bhyve", as_json=True)  # the others look at the machine, which takes seconds
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["technologies"]}
    assert listed["bhyve"] == {
        "name": "bhyve",
        "title": "bhyve",
        "family": "type 2",
        "isolation": "own kernel",
        "isolates": "a guest",
        "differs": dict(KERNEL_DIFFERENCES),
        "needs": "",
        "architectures": ["x86-64", "arm64"],
        "tested": "on the real thing",
        "also": [],
        "hosts": False,
        "nests": False,
        "settings": "memory = 7",
        "about": "bhyve: somebody else's technology.",
        "usable": True,
        "problems": [],
    }


@pytest.mark.parametrize("name", own("technologies"))
def test_every_technology_declares_its_level_of_isolation_and_why(name: str) -> None:
    technology = registry.find("technologies", name)()
    level, reason = technology.isolation.level, technology.isolation.reason
    assert level in LEVELS
    assert reason
    if technology.family in {"type 1", "emulator"}:
        assert level == "own kernel"
    if technology.family == "container" or "a process" in reason:
        assert level in {"none", "shared kernel"}
    assert (level == "user-space kernel") == (name == "gvisor")


def test_a_setting_may_decide_the_level_of_isolation() -> None:
    mirage = registry.find("technologies", "mirage")
    levels = {tender: mirage(tender=tender).isolation.level for tender in ("hvt", "spt", "virtio")}
    assert levels == {"hvt": "own kernel", "spt": "shared kernel", "virtio": "own kernel"}
    containerd = registry.find("technologies", "containerd")
    runtimes = ("io.containerd.runc.v2", "gvisor", "kata", "/opt/kata-old/containerd-shim-runsc-v1", "/opt/theirs")
    assert [containerd(runtime=name).isolation.level for name in runtimes] == [
        *("shared kernel", "user-space kernel", "own kernel", "user-space kernel", "shared kernel")
    ]
    assert "a process behind a seccomp filter" in registry.find("technologies", "solo5-spt")().isolation.reason


def test_a_technology_that_declares_no_level_of_isolation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = BHYVE.replace('    isolation = Isolation("own kernel", "a guest")\n', "")
    install(tmp_path, "technologies", bhyve=silent)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="this plug-in lacks isolation: 'bhyve'"):
        registry.find("technologies", "bhyve")


@pytest.mark.parametrize(
    "text", ["import no_such_module_anywhere\n", "1 / 0\n", "def broken(:\n", "", "raise OSError(5)"]
)
def test_a_broken_plugin_breaks_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    for kind in KINDS:
        install(tmp_path / kind, kind, broken=text)
        monkeypatch.syspath_prepend(tmp_path / kind)
        with pytest.raises(UsageError, match="the plug-in 'broken' is broken: ") as caught:
            registry.find(kind, "broken")
        assert caught.value.hint == "repair or remove its package"
    assert registry.find("technologies", "native").name == "native"
    workloads(as_json=True)  # the technologies look at the machine, too, which takes seconds
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["workloads"]}
    assert "is broken: " in listed["broken"]["about"]
    assert listed["redis"]["title"] == "Redis: key-value store"


def test_a_workload_and_a_technology_are_described_in_full_by_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    workloads("fio")
    told = capsys.readouterr().out
    assert told.startswith("fio: fio: reads and writes\n\nReads or writes of one size")
    assert "O_DIRECT bypasses the page cache" in told
    assert '\nSettings and their defaults:\n    place = "root"\n    pattern = "randread"\n' in told
    assert "\nMetrics: rate in requests/s, higher is better; bandwidth in bytes/s" in told
    assert told.endswith("\nPackages in the image: fio\n")
    technologies("lxc")
    told = capsys.readouterr().out
    assert told.startswith("lxc: ")
    assert "\nFamily: container\n" in told


@pytest.mark.parametrize("as_json", [False, True])
def test_a_name_that_no_plug_in_has_is_refused(as_json: bool) -> None:
    with pytest.raises(UsageError, match="no workload named 'nonesuch'") as caught:
        workloads("nonesuch", as_json=as_json)
    assert caught.value.hint == "`tare workloads` lists them"
    with pytest.raises(UsageError, match="no technology named 'nonesuch'"):
        technologies("nonesuch", as_json=as_json)


def test_json_of_one_workload_is_a_list_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    workloads("fio", as_json=True)
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["workloads"]] == ["fio"]


def test_a_broken_technology_is_in_the_catalogue_with_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "technologies", broken="1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    technologies(as_json=True)
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["technologies"]}
    assert "is broken: " in listed["broken"]["about"]
    assert listed["crun"]["title"] == "crun"


@pytest.mark.parametrize(
    ("kind", "text", "lacking"),
    [
        ("technologies", BHYVE.replace("    title =", "    subtitle ="), "title"),
        ("technologies", BHYVE.replace("def launch(", "def launched("), "launch"),
        ("technologies", BHYVE.replace("    network_path =", "    way ="), "network_path"),
        ("workloads", WORKLOAD.replace("def parse(", "def parsed("), "parse"),
        ("workloads", WORKLOAD.replace("    metrics =", "    metric ="), "metrics"),
        ("workloads", WORKLOAD.replace("(Workload)", ""), ", ".join(INHERITED)),
    ],
)
def test_a_plugin_that_lacks_a_member_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: PluginType, text: str, lacking: str
) -> None:
    install(tmp_path, kind, bhyve=text)
    monkeypatch.syspath_prepend(tmp_path)
    said = f"this plug-in lacks {lacking}: 'bhyve'"
    with pytest.raises(UsageError) as caught:
        registry.find(kind, "bhyve")
    assert str(caught.value) == said
    assert caught.value.hint.startswith("inherit from tare.")
    names = ("bhyve", "startup") if kind == "technologies" else ("native", "bhyve")
    with pytest.raises(SuiteError) as faults:
        parse_suite('[suite]\nstacks = ["{}"]\n[[workloads]]\nuse = "{}"\n'.format(*names), "a.toml")
    assert [fault.message.partition(": ")[2].partition(": ")[2] for fault in faults.value.faults] == [said]


def test_the_catalogue_says_what_a_plugin_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "workloads", bhyve=WORKLOAD.replace("def parse(", "def parsed("))
    monkeypatch.syspath_prepend(tmp_path)
    workloads(as_json=True)
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["workloads"]}
    assert listed["bhyve"]["about"] == "this plug-in lacks parse: 'bhyve'"
    assert 'duration = "1s", load = "tare"' in listed["redis"]["settings"]


def test_a_workload_with_a_required_setting_is_listed_without_its_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "workloads", bhyve=WORKLOAD.replace("    metrics =", "    size: int\n    metrics ="))
    monkeypatch.syspath_prepend(tmp_path)
    workloads(as_json=True)
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["workloads"]}
    assert (listed["bhyve"]["title"], listed["bhyve"]["metrics"], listed["bhyve"]["packages"]) == ("bhyve", [], [])
    assert listed["command"]["metrics"][0]["name"] == "time"


def test_a_workload_says_only_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "workloads", bhyve=WORKLOAD)
    monkeypatch.syspath_prepend(tmp_path)
    workload = registry.find("workloads", "bhyve")()
    assert (workload.port, workload.service("192.0.2.1"), workload.sweep, workload.packages) == (None, None, None, ())


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_the_catalogue_writes_settings_as_a_suite_takes_them(kind: PluginType, name: str) -> None:
    found = registry.find(kind, name)
    lines = "\n".join(format_settings(found))
    given = [field for field in dataclasses.fields(found) if field.init and field.default is not None]
    assert len(format_settings(found)) == len(given)
    text = '[suite]\nstacks = ["{}"]\n[[workloads]]\nuse = "{}"\n{}\n'
    if kind == "workloads":
        (planned,) = parse_suite(text.format("native", name, lines), "a.toml").workloads
        assert planned.workload == found()
    elif found.provisions_machine:
        table = f'[stacks.a]\nstack = "native/{name}"\n[stacks.a.{name}]\n{lines}'
        assert parse_suite(text.format("a", "startup", table), "a.toml").stacks[0].layers[-1] == found()
    else:
        table = f'[stacks.a]\nstack = "{name}"\n{lines}'
        assert parse_suite(text.format("a", "startup", table), "a.toml").stacks[0].layers[-1] == found()


def test_the_test_technology_is_found_as_a_package_that_is_not_in_tare() -> None:
    assert registry.find("technologies", "fake").__module__ == "tare_fake.technology"
    assert "fake" not in own("technologies")
