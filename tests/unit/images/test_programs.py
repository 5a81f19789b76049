"""Whether an image has a program: found as an engine finds it, and nothing outside the image counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.images.programs import missing_programs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image as Debian's are: /bin is a link, and alternatives are links of links."""
    root = tmp_path / "root"
    for folder in ("usr/bin", "usr/local/bin", "etc/alternatives", "opt/app"):
        (root / folder).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    for name in ("usr/bin/sysbench", "usr/bin/mawk", "opt/app/bench"):
        (root / name).write_text("")
        (root / name).chmod(0o755)
    (root / "etc/alternatives/awk").symlink_to("/usr/bin/mawk")
    (root / "usr/bin/awk").symlink_to("/etc/alternatives/awk")
    (root / "usr/bin/notes").write_text("no program")
    (root / "usr/bin/folder").mkdir(mode=0o755)
    (root / "usr/bin/self").symlink_to("self")
    (root / "usr/bin/gone").symlink_to("/usr/bin/nothing")
    (root / "usr/local/bin/up").symlink_to("../../../../../../../../bin/sysbench")
    (root / "usr/bin/outside").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("")
    (tmp_path / "outside").chmod(0o755)
    return root


@pytest.mark.parametrize("program", ["sysbench", "awk", "up", "/bin/sysbench", "/opt/app/bench", "opt/app/bench"])
def test_a_program_of_the_image_is_found(root: Path, program: str) -> None:
    assert missing_programs([root], [program]) == []


@pytest.mark.parametrize(
    "program",
    [
        *("bench", "notes", "folder", "self", "gone", "outside", "/usr/bin/nothing", "/opt/app", "/", "..", "."),
        *(300 * "x", f"/{300 * 'x'}/x"),
    ],
)
def test_what_an_engine_would_not_start_is_missing(root: Path, program: str) -> None:
    (fault,) = missing_programs([root], [program])
    assert fault.what == f"{program}: the image has no such program"


def test_each_missing_program_is_said_once_with_what_helps(root: Path) -> None:
    package = 'give the Debian package that has it: --package P, or packages = ["…"] in a suite'
    faults = missing_programs([root], ["sysbenhc", "fio", "fio", "sysbench cpu run", "/opt/app/bnech"])
    assert [fault.hint for fault in faults] == [
        f'did you mean "sysbench"? or {package}',
        package,
        "it is one word with spaces: leave out its quotes, or write sh -c 'sysbench cpu run'",
        f'did you mean "/opt/app/bench"? or {package}',
    ]
