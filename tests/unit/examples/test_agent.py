"""The files of an agent's session: one repository wherever it is made, wheels, and a program that compiles."""

from __future__ import annotations

import base64
import csv
import hashlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import repository
import transactions
import wheels

PROJECT = repository.PROJECT


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_the_repository_is_the_same_wherever_it_is_made(tmp_path: Path) -> None:
    for name in ("one", "two"):
        repository.main(str(tmp_path / name))
    heads = {git(tmp_path / name, "rev-parse", "main") for name in ("one", "two")}
    assert len(heads) == 1
    assert git(tmp_path / "one", "rev-list", "--count", "main") == str(repository.COMMITS + 1)
    git(tmp_path / "one", "fsck", "--strict")
    repository.main(str(tmp_path / "one"))  # it is there: nothing happens
    assert git(tmp_path / "one", "rev-parse", "main") in heads


def test_the_last_commit_has_the_project(tmp_path: Path) -> None:
    repository.main(str(tmp_path / "origin"))
    files = git(tmp_path / "origin", "ls-tree", "-r", "--name-only", "main").splitlines()
    own = {str(each.relative_to(PROJECT)) for each in PROJECT.rglob("*.[pc]*") if each.is_file()}
    assert {each for each in own if "__pycache__" not in each} <= set(files)
    text = git(tmp_path / "origin", "show", "main:native/calculate.c")
    assert text == (PROJECT / "native" / "calculate.c").read_text().strip()


def test_wheels_have_records_of_all_their_files_and_are_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        wheels.main(str(tmp_path / name))
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
        with ZipFile(path) as wheel:
            (record,) = [each for each in wheel.namelist() if each.endswith("RECORD")]
            rows = {name: digest for name, digest, _ in csv.reader(wheel.read(record).decode().splitlines())}
            assert set(rows) == set(wheel.namelist())
            for name in rows.keys() - {record}:
                digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
                assert rows[name] == f"sha256={digest}"


def test_transactions_are_all_in_the_database(tmp_path: Path) -> None:
    path = tmp_path / "parcels.db"
    for _ in range(2):  # the second run begins with an empty one
        transactions.main(str(path))
        with sqlite3.connect(path) as database:
            assert database.execute("SELECT count(*), sum(grams) FROM parcel").fetchone() == (200, 39900)


def test_the_program_compiles_without_warnings_and_calculates(tmp_path: Path) -> None:
    program = tmp_path / "calculate"
    source = PROJECT / "native" / "calculate.c"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source, "-lm"], check=True)
    lines = "x = 3\nmax(x^2, 2*4) + sqrt(16)\n-(1+2)*3 < 4\nchoose(x > 2, 1.5, 0)\n2^3^2\n"
    found = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["3", "13", "1", "1.5", "512"]
    wrong = subprocess.run(
        [program], input="1 +\ny\nf(1)\nmax(1)\n(1\n1 2\n", capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 1
    assert len(wrong.stderr.splitlines()) == 6


@pytest.mark.slow
def test_the_tests_of_the_project_pass() -> None:
    arguments = ["-q", "-p", "no:cacheprovider", str(PROJECT)]
    command = [sys.executable, "-B", "-m", "pytest", *arguments]  # compiled files would be part of images
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    assert " passed" in found.stdout
