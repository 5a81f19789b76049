"""The wheel: built, installed in an environment of its own, and used from there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tare.images.micro import LINUX, SOLO5

CHECKOUT = Path(__file__).parents[2]
PYTHON = sys.executable


def said(*argv: str | Path, folder: Path) -> str:
    """Run a command to its end, in a folder far from the checkout; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    command = tuple(map(str, argv))
    output = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=folder, env=environment
    )
    assert output.returncode == 0, output.stderr
    return output.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, uv: str, wheel: Path) -> Path:
    """The bin folder of an environment with the wheel; what it depends on is that of this environment."""
    place = tmp_path_factory.mktemp("wheel") / "venv"
    said(PYTHON, "-m", "venv", "--without-pip", place, folder=place.parent)
    python = place / "bin" / "python"
    said(uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel, folder=place.parent)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def test_the_wheel_is_for_every_python_and_named_tare_bench(wheel: Path) -> None:
    assert wheel.name.startswith("tare_bench-")
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_has_all_that_is_not_python_and_nothing_of_the_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    programs = {f"tare/programs/{path.name}" for path in (CHECKOUT / "programs").iterdir() if path.is_file()}
    assert {"tare/programs/dhrystone.c", "tare/programs/supervise.c", "tare/programs/guest_init.c"} <= programs
    assert programs <= names
    sources = (CHECKOUT / "programs" / "unikernel").rglob("*")
    server = {f"tare/{path.relative_to(CHECKOUT)}" for path in sources if path.is_file()}
    assert {f"tare/programs/unikernel/{name}" for name in ("build", "Cargo.lock", "linux/src/main.rs")} <= server
    assert server <= names
    others = (path for path in (CHECKOUT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {str(path.relative_to(CHECKOUT / "src")) for path in others} <= names
    assert {"tare/report/html/page.html.j2", "tare/report/html/style.css", "tare/commit"} <= names
    for path in (CHECKOUT / "share").rglob("*"):
        assert path.is_dir() or any(name.endswith(f".data/data/{path.relative_to(CHECKOUT)}") for name in names)
    assert {"tare/claims/published.toml", "tare/claims/second-reading.toml"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if not name.startswith(("tare/", "tare_bench-"))]
    assert not [name for name in names - server if "tests" in name.split("/") or "/test_" in name]


def test_the_installed_command_prints_its_version_and_plans_a_suite(installed: Path, tmp_path: Path) -> None:
    tare = installed / "tare"
    assert re.fullmatch(r"tare 0\.\d+\.\d+ \([0-9a-f]{12}\)\n", said(tare, "--version", folder=tmp_path))
    assert "total: at most about " in said(tare, "plan", CHECKOUT / "examples" / "quick.toml", folder=tmp_path)


def test_the_installed_package_is_the_wheel_and_finds_its_programs(installed: Path, tmp_path: Path) -> None:
    code = (
        "import tare; from tare.images import image, micro; print(tare.__file__);"
        "print(*sorted(map(str, image.program_sources()))); print(micro.LINUX.key, micro.SOLO5.key)"
    )
    where, sources, keys = said(installed / "python", "-c", code, folder=tmp_path).splitlines()
    assert Path(where).is_relative_to(installed.parent)
    assert {Path(source).name for source in sources.split()} >= {"dhrystone.c", "ramspeed.c", "init.c", "guest_init.c"}
    # What is built from the wheel is what is built from the checkout.
    assert keys.split() == [LINUX.key, SOLO5.key]
    assert all(Path(source).is_relative_to(installed.parent) for source in sources.split())


def test_the_installed_command_writes_a_report(installed: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.append({str(CHECKOUT / 'tests' / 'support')!r})\n"
        "from pathlib import Path\nfrom runs import believable_run, write\nwrite(believable_run(Path('run'), blocks=2))"
    )
    said(installed / "python", "-c", code, folder=tmp_path)
    assert "index.html" in said(installed / "tare", "report", "run", folder=tmp_path)
    assert "<style" in (tmp_path / "run" / "report" / "index.html").read_text()
    assert "vtmark-2021-fig4-docker-dhrystone" in said(installed / "tare", "claims", "run", folder=tmp_path)


def test_the_bill_of_materials_has_all_that_tare_depends_on(uv: str, tmp_path: Path) -> None:
    rule = re.search(r"^wheel:.*\n(?:\t.*\n)*", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    words = re.search(r"uv (export .*?) \\\n", rule[0])
    assert words is not None
    bill = json.loads(said(uv, *words[1].split(), "--project", CHECKOUT, folder=tmp_path))
    assert bill["bomFormat"] == "CycloneDX"
    known = {each["name"] for each in bill["components"]}
    metadata = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert known > {re.split("[<>=]", each)[0] for each in metadata}
    assert all(each["version"] for each in bill["components"])
    assert not known & {"pytest", "hypothesis", "atheris", "ruff"}
