"""The plug-ins of the documents are such as they tell their readers to write."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import declared
import pytest
from documents import CONTRIBUTING, EXAMPLES, ROOT, example, examples, fenced, file_of, section

from plug_ins import own
from tare.model.errors import TrialFailed
from tare.model.trial import RawOutput
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload


def test_the_plug_ins_of_the_documents_satisfy_their_protocols(tmp_path: Path) -> None:
    lines = []
    with examples(tmp_path):
        for _, name, cls, protocol in EXAMPLES.values():
            module, _, last = protocol.rpartition(".")
            stem = Path(file_of(name)).stem
            lines += [f"import {stem}\n", f"import {module}\n", f"a_{stem}: {module}.{last} = {stem}.{cls}()\n"]
    (tmp_path / "satisfied.py").write_text("".join(lines), encoding="utf-8")
    argv = (sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "satisfied.py"))
    checked = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("heading", EXAMPLES)
def test_the_plug_ins_of_the_documents_pass_the_linter(heading: str) -> None:
    kind, name, *_ = EXAMPLES[heading]
    text = example(heading)
    place = ("--stdin-filename", f"src/tare/{kind}/{file_of(name)}", "-")
    for command in (("check",), ("format", "--check")):
        argv = (sys.executable, "-m", "ruff", *command, *place)
        checked = subprocess.run(argv, cwd=ROOT, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert checked.returncode == 0, checked.stdout


def test_the_workload_of_the_documents_reads_its_sample(tmp_path: Path) -> None:
    (printed,) = fenced(section(CONTRIBUTING, "Adding a workload"), "text")
    with examples(tmp_path) as catalogue:
        workload = catalogue.find("workloads", "byte-copies")()
        (value,) = workload.parse([RawOutput("dd", (), printed, 0.3)])
        assert (value.metric, value.point) == ("rate", None)
        assert value.value == pytest.approx(4_535_043.65)  # 2 x 50000 calls in 0.0220505 s
        for wrong in ("", "0+0 records in\n", printed.replace("50000 bytes", "40000 bytes")):
            with pytest.raises(TrialFailed, match="dd did not copy 50000 bytes"):
                workload.parse([RawOutput("dd", (), wrong, 0.3)])


def test_the_items_of_the_lists_say_what_the_plug_ins_do() -> None:
    lists: dict[str, list[str]] = {}
    for page in declared.PAGES:
        lists |= declared.lists(page.read_text(encoding="utf-8"))
    assert lists.keys() == declared.LISTS.keys()
    for name, items in lists.items():
        assert items
        assert items == [*declared.LISTS[name]()]


def test_make_docs_writes_each_plug_in() -> None:
    text = "<!-- workloads -->\n<!-- end -->\n<!-- technologies -->\n<!-- end -->\n"
    lists = declared.lists(declared.written(text))
    assert [item.split("`")[1] for item in lists["workloads"]] == list(own("workloads"))
    levels = "".join(item for item in lists["technologies"] if item.startswith("- **isolation"))
    assert sorted(re.findall(r"`([^`]+)`", levels)) == list(own("technologies"))


@pytest.mark.parametrize(("kind", "contract"), [("technology", Technology), ("workload", Workload)])
def test_every_member_of_a_plug_in_is_described(kind: str, contract: type[Technology | Workload]) -> None:
    text = section(CONTRIBUTING, f"Members of a {kind}") + (contract.__doc__ or "")
    described = set(re.findall(r"`([a-z_]+)[(`]", text))
    members = {name for name in {*vars(contract), *contract.__annotations__} if not name.startswith("_")}
    has_docstring = {name for name in members if inspect.getdoc(vars(contract).get(name))}
    assert members - described - has_docstring == set()
