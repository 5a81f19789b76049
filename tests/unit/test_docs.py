"""The documents say what the code does: their examples work, their links lead somewhere, and no setting is missing."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import inspect
import re
import shlex
import tomllib
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from documents import DOCS, RESEARCH, ROOT, anchors, blocks, by_path, examples, rows, section, settings

from plug_ins import own
from tare.cli import app, doctor
from tare.cli.app import load_command
from tare.guests import kvm
from tare.hosts import ssh
from tare.loads.user_load import UserMetric
from tare.model.errors import SuiteError
from tare.model.machine import Facts, SshTarget
from tare.model.run_folder import RunRecord, WorkloadRecord
from tare.model.trial import (
    Caution,
    Footprint,
    LayerCost,
    Limits,
    LimitsCheck,
    Mark,
    MeasuredValue,
    Metric,
    ObservedLimits,
    RawOutput,
    Status,
    Sweep,
    Trial,
    Turn,
)
from tare.model.units import format_setting
from tare.plugins.technology import START_TIMEOUT_SECONDS
from tare.report import data_files as report_json
from tare.runner.availability import TechnologyStatus
from tare.statistics.cells import Cell, Verdict
from tare.suites.suite import parse_suite
from tare.suites.tables import ImageTable, LimitsTable, SuiteTable, TelemetryTable
from tare.telemetry.noise import Noise
from tare.telemetry.noise import Verdict as NoiseVerdict
from tare.telemetry.parquet import COLUMNS

DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *RESEARCH.glob("*.md")])
COMMANDS: dict[str, Any] = {name: load_command(name) for name in app.command_names()}
TECHNOLOGIES, WORKLOADS = own("technologies"), own("workloads")


def of_its_own(name: str) -> dict[str, str]:
    """Return the defaults that the section of a workload has, by key."""
    table = rows(section(DOCS / "suites.md", f"Workload `{name}`"))
    return {key: cells[0].strip("`") for key, cells in table.items() if key != "key"}


SETTINGS_OF_WORKLOADS = {name: of_its_own(name) for name in ("command", "service")}
SETTINGS_OF_TECHNOLOGIES = settings(DOCS / "suites.md", "Settings of technologies")


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_commands_for_lab_tests_pass_the_mark_that_selects_them(path: Path) -> None:
    commands = re.findall(r"pytest (.*tests/lab/\S+)", path.read_text(encoding="utf-8"))
    assert [command for command in commands if "-m lab" not in command] == []


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if "/redis-server -" in path.read_text()], ids=by_path)
def test_redis_in_an_example_answers_the_client_and_persists_nothing(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "/redis-server -" in line]
    for option in ("--protected-mode no", "--save ''", "--appendonly no"):
        assert [line for line in lines if option not in line] == []


# --- links and commands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_every_link_leads_to_a_file(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_every_anchor_of_a_link_is_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text(encoding="utf-8"))
    pages = [(path.parent / file if file else path, anchor) for file, anchor in links]
    assert [f"{page.name}#{anchor}" for page, anchor in pages if anchor not in anchors(page)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_every_console_line_is_a_command_that_exists(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in "".join(blocks(path, "console")).splitlines():
        sign, program, *words = shlex.split(line)
        assert sign == "$", line
        if program == "make":
            assert words[0] in targets, line
        else:
            assert program in {"tare", ".venv/bin/tare"}, line
            assert faults(words) == [], line


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_commands_in_the_text_exist(path: Path) -> None:
    named = set(re.findall(r"`tare ([a-z]+)\b", path.read_text(encoding="utf-8")))
    assert named <= set(COMMANDS)


def faults(words: Sequence[str]) -> list[str]:
    """Return what a command line has that its command does not take, by the command's own description of itself."""
    if words[0] not in COMMANDS:
        return [words[0]]
    found = COMMANDS[words[0]]
    if commands := getattr(found, "commands", None):
        if words[1] not in commands:
            return [words[1]]
        found, words = commands[words[1]], words[1:]
    parameters = found.params
    options = {name: each for each in parameters for name in each.opts if name.startswith("-")}
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    end = words.index("--") if "--" in words else len(words)  # what comes after it is a command line of its own
    unknown, given, rest = [], len(words[end + 1 :]), iter(words[1:end])
    for word in rest:
        if not word.startswith("-"):
            given += 1
            unknown += [word] if word.startswith("examples/") and not (ROOT / word).exists() else []
        elif word not in options:
            unknown.append(word)
        elif not options[word].is_flag and next(rest, None) is None:
            unknown.append(f"{word} without a value")
    least = sum(each.required for each in arguments)
    most = 99 if any(each.nargs == -1 for each in arguments) else len(arguments)
    return unknown if least <= given <= most else [*unknown, f"{given} arguments"]


def test_a_command_line_that_is_wrong_is_noticed() -> None:
    assert faults(["run", "examples/quick.toml", "--budget", "5m"]) == []
    assert faults(["rum"]) == ["rum"]
    assert faults(["run", "--budgt", "5m"]) == ["--budgt"]
    assert faults(["run", "--budget"]) == ["--budget without a value"]
    assert faults(["compare"]) == ["0 arguments"]
    assert faults(["shell", "crun", "--", "ls", "--all"]) == []
    assert faults(["shell", "crun", "--al", "--", "ls"]) == ["--al"]
    assert faults(["plan", "examples/quik.toml"]) == ["examples/quik.toml"]


def test_the_readme_lists_exactly_the_commands() -> None:
    listed = re.findall(r"`tare (\w+)`", section(ROOT / "README.md", "Commands").partition("\n\nData goes")[0])
    assert sorted(listed) == sorted(COMMANDS)


# --- suites ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*DOCUMENTS, *sorted((ROOT / "examples").glob("*.toml"))], ids=by_path)
def test_every_whole_suite_can_be_read(path: Path, tmp_path: Path) -> None:
    texts = [path.read_text()] if path.suffix == ".toml" else blocks(path, "toml")
    with examples(tmp_path) as catalogue:
        for text in texts:
            if "[suite]" in text:
                parse_suite(text, path.name, catalogue)
            else:
                tomllib.loads(text)


def test_every_key_of_a_suite_is_described() -> None:
    tables = {"Suite": SuiteTable, "Limits": LimitsTable, "Image": ImageTable}
    for heading, table in (tables | {"Telemetry": TelemetryTable}).items():
        described = rows(section(DOCS / "suites.md", heading)).keys() - {"key"}
        read_apart = {"from"} if heading == "Image" else set()  # a word of Python
        assert described == {field.name for field in dataclasses.fields(table)} | read_apart


def test_every_key_of_a_machine_is_described() -> None:
    described = rows(section(DOCS / "suites.md", "Hosts"))
    assert described.keys() - {"key"} == {field.name for field in dataclasses.fields(SshTarget)}


def test_the_defaults_of_a_suite_are_those_described() -> None:
    described = rows(section(DOCS / "suites.md", "Suite"))
    limits = rows(section(DOCS / "suites.md", "Limits"))
    keys = "".join(f"{key} = {described[key][0].strip('`')}\n" for key in ("blocks", "margin", "seed"))
    lines = "".join(f"{key} = {limits[key][0].strip('`')}\n" for key in ("cpus", "memory", "open_files"))
    least = '[suite]\nname = "a"\nstacks = ["native"]\n'
    workload = '[[workloads]]\nuse = "startup"\n'
    said = parse_suite(f"{least}{keys}[limits]\n{lines}{workload}", "said.toml")
    assert dataclasses.replace(said, text="") == dataclasses.replace(parse_suite(least + workload, "a.toml"), text="")


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_describes_its_settings_itself(name: str) -> None:
    about = inspect.getdoc(inspect.getmodule(WORKLOADS[name])) or ""
    assert {f"`{field.name}`" for field in dataclasses.fields(WORKLOADS[name])} <= set(re.findall("`[^`]+`", about))


@pytest.mark.parametrize("name", SETTINGS_OF_WORKLOADS)
def test_every_setting_of_a_workload_is_described_with_its_default(name: str) -> None:
    plugin, defaults = WORKLOADS[name], SETTINGS_OF_WORKLOADS[name]
    assert defaults.keys() == {field.name for field in dataclasses.fields(plugin)}
    lines = "".join(f"{key} = {default}\n" for key, default in defaults.items())
    text = f'[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "{name}"\n{lines}'
    assert parse_suite(text, "said.toml").workloads[0].workload == plugin()


@pytest.mark.parametrize("name", TECHNOLOGIES)
def test_a_technology_or_suites_md_describes_every_setting(name: str) -> None:
    about = inspect.getdoc(inspect.getmodule(TECHNOLOGIES[name])) or ""
    described = {*re.findall(r"`(\w+)", about), *SETTINGS_OF_TECHNOLOGIES.get(name, {})}
    assert {field.name for field in dataclasses.fields(TECHNOLOGIES[name])} - described == set()


@pytest.mark.parametrize("name", SETTINGS_OF_TECHNOLOGIES)
def test_the_defaults_of_a_technology_are_those_described(name: str) -> None:
    plugin, defaults = TECHNOLOGIES[name], SETTINGS_OF_TECHNOLOGIES[name]
    lines = "".join(f"{key} = {default}\n" for key, default in defaults.items())
    head = f'[suite]\nstacks = ["a"]\n[[workloads]]\nuse = "startup"\n[stacks.a]\nstack = "{name}"\n'
    assert parse_suite(head + lines, "said.toml").stacks[0].layers[-1] == plugin()


def test_every_key_of_a_metric_of_the_users_is_described_with_its_default() -> None:
    described = rows(section(DOCS / "suites.md", "User-defined metrics"))
    assert described.keys() - {"key"} == {field.name for field in dataclasses.fields(UserMetric)}
    said = {key: cells[0].strip("`") for key, cells in described.items() if cells[0] not in {"default", "required"}}
    assert said == {
        field.name: format_setting(field.default) for field in dataclasses.fields(UserMetric) if field.name in said
    }


def test_every_metric_of_your_own_command_or_server_is_described() -> None:
    for name in ("command", "service"):
        text = section(DOCS / "suites.md", f"Workload `{name}`")
        assert {metric.name for metric in WORKLOADS[name].metrics} <= set(re.findall(r"`([^`]+)`", text))


# --- words, technologies, formats, decisions -------------------------------------------------------------------------


def test_every_kind_of_caution_is_described_and_none_that_is_not_there() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    kinds = set(re.findall(r'Caution\(\s*"([a-z-]+)"', sources))
    assert rows(section(DOCS / "method.md", "Cautions")).keys() - {"kind"} == kinds


def test_every_verdict_is_described() -> None:
    described = rows(section(DOCS / "method.md", "Verdicts"))
    assert {*typing.get_args(Verdict), *typing.get_args(Status)} <= described.keys()
    noise = rows(section(DOCS / "method.md", "Noise"))
    assert noise.keys() - {"verdict"} == set(typing.get_args(NoiseVerdict))


def test_every_mark_of_a_timeline_is_described() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    marks = set(re.findall(r'\.mark\("([a-z]+)"', sources))
    assert rows(section(DOCS / "method.md", "Start-up")).keys() - {"mark"} == marks


def test_the_page_says_of_every_technology_how_it_was_tested() -> None:
    text = section(DOCS / "technologies.md", "How each was tested")
    kinds = dict(re.findall(r"^- \*\*([a-z-]+)\*\*: (.*?)(?=^- |^$)", text, re.MULTILINE | re.DOTALL))
    for name, found in TECHNOLOGIES.items():
        assert f"`{name}`" in kinds[found().tested], name


def test_every_outer_layer_is_described_and_no_other() -> None:
    (line,) = re.findall(r"^- \*\*outer layer\*\*: (.*)$", section(DOCS / "technologies.md", "The list"), re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", line)) == {name for name, found in TECHNOLOGIES.items() if found.can_host}
    for stacks in ('"qemu/docker"', '"native", "pod/qemu"'):
        with pytest.raises(SuiteError) as caught:
            parse_suite(f'[suite]\nstacks = [{stacks}]\n[[workloads]]\nuse = "startup"\n', "mine.toml")
        (fault,) = caught.value.faults
        assert f"error: {fault.message}\nhint: {fault.hint}\n" in blocks(DOCS / "technologies.md", "text")


def test_how_long_a_guest_may_take_is_as_described() -> None:
    assert f"within {START_TIMEOUT_SECONDS:g} s has failed" in section(DOCS / "method.md", "Nested stacks")
    assert f"silent for {kvm.PROBE_SECONDS:g} s at most" in section(DOCS / "technologies.md", "qemu and qemu-tcg")
    assert f"up to {ssh._MAX_AWAY_SECONDS:g} s" in section(DOCS / "operations.md", "When the connection is lost")


def test_every_error_of_a_connection_comes_with_a_hint_as_described() -> None:
    assert "connection error has a hint" in section(DOCS / "operations.md", "Other machines")
    for words, hint in ssh._HINTS:
        assert ssh.unreachable_error("far.example", f"ssh: {words}").hint == hint.format(name="far.example")


@pytest.mark.parametrize(("heading", "record", "more"), [
    ("A trial: a line of trials.jsonl", Trial, {"format"}),
    ("The run: run.json", RunRecord, set()),
    ("The raw output: raw/TRIAL.json", RawOutput, set()),
])  # fmt: skip
def test_every_field_of_a_run_folder_is_described(heading: str, record: type[Any], more: set[str]) -> None:
    described = rows(section(DOCS / "data.md", heading)).keys() - {"field", "column"}
    assert described == {field.name for field in dataclasses.fields(record)} | more


def test_every_column_of_the_telemetry_is_described() -> None:
    described = rows(section(DOCS / "data.md", "The telemetry")).keys() - {"column"}
    assert described == {*COLUMNS}


def test_the_fields_within_fields_are_described() -> None:
    named = set(re.findall(r"`([a-z_]+)`", (DOCS / "data.md").read_text(encoding="utf-8")))
    inner = (
        MeasuredValue,
        Mark,
        Turn,
        LayerCost,
        Footprint,
        LimitsCheck,
        Limits,
        ObservedLimits,
        Caution,
        WorkloadRecord,
        Metric,
        Sweep,
        Facts,
    )
    assert {field.name for record in inner for field in dataclasses.fields(record)} <= named


def test_every_field_of_the_report_and_of_doctor_is_described() -> None:
    cell = Cell("redis", "get", None, "docker", "requests/s", "higher", "no value")
    described = rows(section(DOCS / "report.md", "report.json")).keys() - {"field of a cell"}
    assert described == report_json.cell_fields(cell).keys()
    text = section(DOCS / "data.md", "JSON output of commands")
    fields = {field.name for record in (TechnologyStatus, Noise) for field in dataclasses.fields(record)}
    assert fields | {"usable"} <= set(re.findall(r"`([a-z]+)`", text))


def test_the_example_of_doctor_has_the_form_that_doctor_prints() -> None:
    (text,) = (block for block in blocks(DOCS / "getting-started.md", "text") if "Usable, " in block)
    lines = text.splitlines()
    titles = [line.partition(":")[0].partition(",")[0] for line in lines[2:] if not line.startswith(" ")]
    source = inspect.getsource(doctor)
    assert [title for title in titles if f'"{title}' not in source and title not in TECHNOLOGIES] == []
    assert len(lines) <= doctor.LINES
    assert lines[-1] == doctor._LAST


def test_every_dependency_has_a_row_that_names_its_license() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    described = rows(section(DOCS / "decisions" / "libraries.md", "Libraries"))
    for name in [re.split(r"[><=]", dependency)[0] for dependency in project["dependencies"]]:
        about: Any = importlib.metadata.metadata(name)
        said = " ".join(
            [about.get("License-Expression") or about.get("License") or "", *about.get_all("Classifier", [])]
        )
        family = next(word for word in ("BSD", "MIT", "Apache") if word in said)
        assert family in described[name][0], name


def test_the_research_index_lists_exactly_its_programs_and_make_targets() -> None:
    listed = rows((RESEARCH / "README.md").read_text(encoding="utf-8"))
    programs = {path.name for path in RESEARCH.glob("*.py") if '__name__ == "__main__"' in path.read_text("utf-8")}
    assert {re.sub(r"\[(.+)\]\(.+\)", r"\1", name) for name in listed} - {"program"} == programs
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target, recipe in re.findall(r"^([a-z]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE):
        for program in re.findall(r"research/(\w+\.py)", recipe):
            assert listed[f"[{program}]({program})"][1] == f"`make {target}`"
    by_make = {name for name, cells in listed.items() if cells[1].startswith("`make")}
    assert by_make == {f"[{name}]({name})" for name in re.findall(r"research/(\w+\.py)", makefile)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_every_program_of_research_that_a_page_names_exists(path: Path) -> None:
    named = re.findall(r"research/\w+\.(?:py|toml)", path.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    listed = set(re.findall(r"\]\(([a-z0-9-]+\.md)\)", (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in (DOCS / "decisions").glob("*.md")} - {"README.md"}


def test_the_lead_in_to_suites_shows_what_is_really_said() -> None:
    text = '[suite]\nbudgt = "10m"\nstacks = ["native"]\n[limits]\nmemory = 512\n[[workloads]]\nuse = "reddis"\n'
    with pytest.raises(SuiteError) as caught:
        parse_suite(text, "mine.toml")
    said = "".join(f"error: {fault.message}\nhint: {fault.hint}\n" for fault in caught.value.faults)
    assert said in blocks(DOCS / "suites.md", "text")
