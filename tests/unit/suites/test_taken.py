from __future__ import annotations

from pathlib import Path

import pytest

from tare.errors import UsageError
from tare.suites.suite import parse_suite
from tare.suites.taken import Taken, taken_along
from tare.suites.tried import Tried
from tare.workloads.command import Command


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    (folder / "data").mkdir(parents=True)
    monkeypatch.chdir(folder)
    program(folder / "bench.sh")
    (folder / "data/small.csv").write_text("1\n")
    return folder


def program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def taken(*command: str, files: tuple[str, ...] = (), of_others: bool = False) -> Taken:
    return taken_along(command, files, of_others)


@pytest.mark.parametrize("word", ["./bench.sh", "data/../bench.sh", "../here/bench.sh", "{here}/bench.sh"])
def test_a_program_of_this_machine_is_taken_along_by_itself(word: str, here: Path) -> None:
    found = taken(word.format(here=here), "--fast")
    assert found.command == ("/srv/bench.sh", "--fast")
    assert [place for place, _ in found.files] == ["/srv/bench.sh"]
    assert Path(found.files[0][1]).samefile(here / "bench.sh")
    assert Path(found.files[0][1]).is_absolute()


@pytest.mark.parametrize("word", ["bench.sh", "./missing.sh", "/usr/bin/env", "/bin/sh", "./data"])
def test_words_that_name_no_program_of_this_machine_are_the_images(word: str) -> None:
    assert taken(word) == Taken((word,))


def test_an_absolute_path_is_of_the_image_that_others_have_built_and_a_relative_one_of_this_machine(here: Path) -> None:
    absolute = str(here / "bench.sh")
    assert taken(absolute, of_others=True) == Taken((absolute,))
    assert taken("./bench.sh", of_others=True).command == ("/srv/bench.sh",)


def test_other_files_keep_their_folders_and_the_command_finds_them(here: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("2\n")
    found = taken("./bench.sh", "data/small.csv", str(other), "small.csv", files=("data/small.csv", str(other)))
    assert found.command == ("/srv/bench.sh", "/srv/data/small.csv", "/srv/other.csv", "small.csv")
    assert found.files == (
        ("/srv/bench.sh", str(here / "bench.sh")),
        ("/srv/data/small.csv", str(here / "data/small.csv")),
        ("/srv/other.csv", str(other)),
    )
    assert taken("sh", "./bench.sh", files=("./bench.sh",)).command == ("sh", "/srv/bench.sh")


def test_a_folder_is_taken_whole_and_the_current_one_by_its_name(here: Path) -> None:
    assert taken("ls", files=("data/",)).files == (("/srv/data", str(here / "data")),)
    assert taken("ls", files=(".",)).files == (("/srv/here", str(here)),)


def test_a_file_named_twice_is_taken_once_and_two_of_one_name_are_refused(here: Path, tmp_path: Path) -> None:
    assert len(taken("./bench.sh", files=("bench.sh", str(here / "bench.sh"))).files) == 1
    program(tmp_path / "bench.sh")
    with pytest.raises(UsageError, match=r"\.\./bench\.sh: .*/here/bench\.sh has the same name"):
        taken("./bench.sh", files=("../bench.sh",))


def test_what_cannot_be_taken_or_started_is_refused_with_what_to_do(here: Path) -> None:
    with pytest.raises(UsageError, match="--file none: there is no such file or folder"):
        taken("true", files=("none",))
    (here / "bench.sh").chmod(0o644)
    with pytest.raises(UsageError, match=r"\./bench\.sh: the file is not executable") as refused:
        taken("./bench.sh")
    interpreted = "or let an interpreter run it: tare try --file ./bench.sh -- sh /srv/bench.sh"
    assert refused.value.hint == f"chmod +x ./bench.sh, {interpreted}"
    with pytest.raises(UsageError, match="data/: a folder is no command"):
        taken("data/", files=("data/",))


def test_what_is_taken_along_are_files_of_the_suites_image(here: Path) -> None:
    odd = program(here / 'a "b" ü.sh')
    found = taken(f"./{odd.name}", files=("data",))
    suite = parse_suite(Tried(found.command, ("native",), files=found.files).suite(), "try")
    assert suite.image.files == ((f"/srv/{odd.name}", str(odd)), ("/srv/data", str(here / "data")))
    workload = suite.workloads[0].workload
    assert isinstance(workload, Command)
    assert workload.command == (f"/srv/{odd.name}",)
    others = Tried(found.command, ("native",), source="oci:app", files=found.files).suite()
    assert parse_suite(others, "try").image.files == suite.image.files
