"""Features: how they are found, and the whole one of docs/contributing.md."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from documents import CONTRIBUTING, fenced, section
from runs import believable_run, pairs, write

from tare import features
from tare.__main__ import run as run_command
from tare.cli.app import app, command_names
from tare.model.errors import UsageError
from tare.plugins import feature
from tare.plugins.feature import HookName
from tare.report.html.page import render
from tare.report.writer import find_renderer, format_names, write_report
from tare.statistics.summarize import summarize

PAGE = section(CONTRIBUTING, "Adding a feature")
RAISING = """from tare.plugins.feature import Feature

RAISES = Feature(sections=(":raises",), markdown=(":raises",), figures=(":raises",), after_run=(":raises",))


def raises(*arguments):
    raise ValueError("no such thing")
"""
OTHERS = """from tare.plugins.feature import Feature

PLAIN = Feature(formats={"plain": ":render"})


def render(summary, run):
    return {"report.txt": b"one run\\n"}
"""


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The feature of the page, beside tare's own."""
    folder = tmp_path / "starts"
    folder.mkdir()
    for name, text in zip(("__init__.py", "slowest.py", "commands.py"), fenced(PAGE, "python"), strict=True):
        (folder / name).write_text(text)
    (template,) = fenced(PAGE, "html")
    (folder / "starts.html.j2").write_text(template)
    monkeypatch.setattr(features, "__path__", [*features.__path__, str(tmp_path)])
    feature.find_features.cache_clear()
    yield
    feature.find_features.cache_clear()
    for name in [name for name in sys.modules if name.startswith("tare.features.starts")]:
        del sys.modules[name]


@pytest.mark.usefixtures("starts")
def test_the_feature_of_the_page_adds_a_command_a_section_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = believable_run(tmp_path / "run")
    write(run)
    assert run_command(app, ["--help"]) == 0
    assert "Print the slowest start of each stack." in " ".join(capsys.readouterr().out.split())
    assert run_command(app, ["starts", str(run.folder)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {line.partition(":")[0] for line in shown} == {trial.stack for trial in run.trials if trial.timeline}
    page = render(summarize(run), run)["index.html"].decode()
    assert '<a href="#slowest">Slowest</a>' in page
    assert "<h2>The slowest start of each stack</h2>" in page
    assert b"slowest start" in find_renderer("markdown")(summarize(run), run)["report.md"]


def test_without_the_folder_the_command_is_gone() -> None:
    assert "starts" not in command_names()


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install another package with features: a module of each, given as its text and the name of its `Feature`."""

    def install(**modules: tuple[str, str]) -> None:
        info = tmp_path / "others-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
        entries = [f"{name} = others_{name}:{of}" for name, (_, of) in modules.items()]
        (info / "entry_points.txt").write_text("\n".join(["[tare.features]", *entries, ""]))
        for name, (text, _) in modules.items():
            (tmp_path / f"others_{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        feature.find_features.cache_clear()

    yield install
    monkeypatch.undo()
    feature.find_features.cache_clear()
    for name in [name for name in sys.modules if name.startswith("others_")]:
        del sys.modules[name]


def test_a_package_adds_a_report_format_and_a_broken_one_gives_a_warning(
    tmp_path: Path, others: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    others(plain=(OTHERS, "PLAIN"), broken=("1 / 0\n", "B"))
    with caplog.at_level(logging.WARNING):
        assert "plain" in format_names()
    assert "the feature 'broken' is broken: division by zero; repair or remove its package" in caplog.text
    (written,) = write_report([pairs([90.0] * 6, [100.0] * 6)], ["plain"], tmp_path / "out")
    assert written.read_bytes() == b"one run\n"
    monkeypatch.undo()
    feature.find_features.cache_clear()
    with pytest.raises(UsageError, match="no report format named 'plain'"):
        find_renderer("plain")


@pytest.mark.parametrize("kind", ["sections", "markdown", "figures", "after_run"])
def test_what_another_package_raises_is_a_warning_that_names_the_feature(
    kind: HookName, tmp_path: Path, others: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    others(raises=(RAISING, "RAISES"))
    run = believable_run(tmp_path / "run")
    write(run)
    arguments: tuple[object, ...] = (run,) if kind == "after_run" else (summarize(run), run)
    arguments += ({},) if kind == "sections" else ()
    with caplog.at_level(logging.WARNING):
        feature.call_hooks(kind, *arguments)
    said = "ValueError: no such thing (others_raises.py, line 7)"
    assert f"the feature 'raises' is left out: its {kind} failed: {said}; repair or remove its package" in caplog.text


def test_the_page_is_written_without_what_another_package_cannot_add(
    tmp_path: Path, others: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    run = believable_run(tmp_path / "run")
    page = render(summarize(run), run)
    others(raises=(RAISING, "RAISES"))
    assert render(summarize(run), run) == page
    assert "the feature 'raises'" in caplog.text


def test_what_a_feature_of_tare_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = feature.Feature(after_run=(":no_such_function",))
    monkeypatch.setattr(feature, "find_features", lambda: {"broken": ("tare.features.broken", mine)})
    monkeypatch.setitem(sys.modules, "tare.features.broken", ModuleType("tare.features.broken"))
    with pytest.raises(AttributeError):
        feature.call_hooks("after_run", None)
