"""`tare popularity`: what it prints of a table, and how it refuses one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from called import Call

# The columns that section 2.2 of VTmark (2021) gives numbers of; 0.3 of Docker's are Kubernetes'.
CONTAINERS = "technology,searches,questions\nKubernetes,30,22500\nDocker,100,75000\n"


@pytest.fixture
def popularity(call: Call) -> Call:
    return partial(call, "popularity")


def test_the_most_popular_comes_first(tmp_path: Path, popularity: Call) -> None:
    path = tmp_path / "containers.csv"
    path.write_text(CONTAINERS)
    said = popularity(path)
    assert said.err == ""
    assert [line.split() for line in said.out.splitlines()] == [
        ["technology", "score", "searches", "questions"],
        ["Docker", "1.000", "1.000", "1.000"],
        ["Kubernetes", "0.300", "0.300", "0.300"],
    ]


@pytest.mark.parametrize("text", [CONTAINERS, "\ufeff" + CONTAINERS.replace("\n", "\r\n"), CONTAINERS + "\n,\n"])
def test_a_program_gets_json_of_any_spreadsheets_file(text: str, tmp_path: Path, popularity: Call) -> None:
    path = tmp_path / "containers.csv"
    path.write_bytes(text.encode())
    printed = popularity(path, "--json").document
    assert printed["format"] == 1
    assert printed["technologies"][0] == {
        "technology": "Docker",
        "score": 1.0,
        "shares": {"searches": 1.0, "questions": 1.0},
    }
    assert printed["technologies"][1]["score"] == pytest.approx(0.3)


def test_equal_scores_stay_in_the_order_of_the_file(tmp_path: Path, popularity: Call) -> None:
    path = tmp_path / "equal.csv"
    path.write_text("name,a,b\nz,2,1\na,1,2\nm,2,2\n")
    assert [each["technology"] for each in popularity(path, "--json").document["technologies"]] == [*"mza"]


def test_names_cannot_steer_the_terminal(tmp_path: Path, popularity: Call) -> None:
    path = tmp_path / "names.csv"
    path.write_text('name,"a\x1b[2J"\n[red]x\x1b[31m,1\n')
    out = popularity(path).out
    assert "\x1b" not in out
    assert "[red]x" in out


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "there is no table of technologies and numbers"),
        ("technology,searches\n", "there is no table of technologies and numbers"),
        ("technology;searches\nDocker;100\n", "there is no table of technologies and numbers"),
        ("technology,searches\nDocker,100,3\n", "line 2: 3 entries, the first line has 2"),
        ("technology,searches\n\nDocker\n", "line 3: 1 entries, the first line has 2"),
        ("technology,searches\nDocker,\n", "line 2: 'searches' is empty"),
        ("technology,searches\nDocker,75K\n", "line 2: 'searches' is no number: '75K'"),
        ('technology,searches\nDocker,"75,000"\n', "line 2: 'searches' is no number: '75,000'"),
        ("technology,searches\nDocker,nan\n", "line 2: 'searches' is no number: 'nan'"),
        ("technology,searches\nDocker,-1\n", "line 2: 'searches' is no number: '-1'"),
        ("technology,searches\nDocker,1_000\n", "line 2: 'searches' is no number: '1_000'"),
        ("technology,searches\nDocker,\u0663\n", "line 2: 'searches' is no number: '\u0663'"),
        ("technology,searches\nDocker,1e999\n", "line 2: 'searches' is no number: '1e999'"),
        ("technology,searches\nDocker,0\nPodman,0\n", "column 'searches' has no number above 0"),
        ("technology,searches\nDocker,1\nDocker,2\n", "two lines are of 'Docker'"),
        ("technology,a,a\nDocker,1,2\n", "two columns are named 'a'"),
        ('technology,searches\n"Docker,1\n', "not CSV: unexpected end of data"),
        ("x" * 1024**2 + "\n", "more than 1 MiB"),
    ],
)
def test_what_is_no_table_is_refused_in_two_lines(text: str, error: str, tmp_path: Path, popularity: Call) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    first, second = popularity(path, code=2).error
    assert first.startswith(f"{path}: {error}")
    assert second


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, popularity: Call) -> None:
    (tmp_path / "latin.csv").write_bytes("name,a\nKöln,1\n".encode("latin-1"))
    for path, error in (
        (tmp_path / "none.csv", "cannot be read: no such file or directory"),
        (tmp_path, "cannot be read: is a directory"),
        (tmp_path / "latin.csv", "not UTF-8 text: byte 8 cannot be read"),
    ):
        assert popularity(path, code=2).error[0] == f"{path}: {error}"
