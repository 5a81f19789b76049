"""`tare application from`: it writes an application beside a compose file, and says what it leaves out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from called import Call

from tare.features.compose.commands import parse_compose
from tare.loads.application_file import read_application
from tare.model.errors import UsageError

SHOP = "services:\n  web:\n    image: nginx:1.25\n    ports: ['8080:80']\n    restart: always\n"


@pytest.fixture
def convert(call: Call) -> Callable[..., str]:
    """Convert a compose file; return what is said of it."""

    def convert(path: Path, code: int = 0) -> str:
        said = call("application", "from", path, code=code)
        assert said.out == ""
        return said.err

    return convert


@pytest.fixture
def compose(tmp_path: Path) -> Path:
    path = tmp_path / "compose.yaml"
    path.write_text(SHOP)
    return path


def test_it_writes_an_application_and_says_what_it_leaves_out(compose: Path, convert: Callable[..., str]) -> None:
    told = convert(compose)
    left_out, written = told.splitlines()
    assert left_out == "left out: services.web.restart: a service that ends fails the trial"
    assert written.startswith(f"{compose.parent}/application.toml is the application; its load is an example.")
    assert read_application(compose.parent).under_test.port == 80


def test_an_application_that_is_there_stays_as_it_is(compose: Path, convert: Callable[..., str]) -> None:
    target = compose.parent / "application.toml"
    target.write_text("mine")
    told = convert(compose, code=2)
    assert told.splitlines()[0] == f"error: {target}: already exists"
    assert target.read_text() == "mine"


def test_unsupported_entries_get_two_lines_each_and_nothing_is_written(
    compose: Path, convert: Callable[..., str]
) -> None:
    compose.write_text(SHOP + "    privileged: true\n    pid: host\n")
    told = convert(compose, code=2)
    assert [line.partition(": ")[0] for line in told.splitlines()] == ["error", "hint"] * 2
    assert f"error: {compose}: services.web.privileged: cannot be kept\n" in told
    assert not (compose.parent / "application.toml").exists()


def test_a_folder_that_is_mounted_and_not_there_is_an_empty_one(compose: Path, convert: Callable[..., str]) -> None:
    compose.write_text(SHOP + "    volumes: ['./none:/x']\n")
    told = convert(compose)
    assert "empty folder: services.web.volumes: /x, as there is no none in the folder of the file\n" in told
    assert read_application(compose.parent).under_test.image.mounts == (("/x", "empty"),)
    assert not (compose.parent / "none").exists()


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("    volumes: ['./way:/x']\n", "services.web.volumes: ./way is a link that leads out of the folder"),
        ("    volumes: ['./way/etc:/x']\n", "services.web.volumes: ./way/etc is a link that leads out of the folder"),
        ("    volumes: ['./loop:/x']\n", ""),
        ("    env_file: way/a.env\n", "services.web.env_file: way/a.env is a link that leads out of the folder"),
        (
            "    secrets: [x]\nsecrets: {x: {file: ./way/a.env}}\n",
            "secrets.x.file: ./way/a.env is a link that leads out of the folder",
        ),
    ],
)
def test_no_link_leads_out_of_the_folder(
    setting: str, key: str, compose: Path, convert: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.env").write_text("PASSWORD=x\n")
    (compose.parent / "way").symlink_to(outside)
    (compose.parent / "loop").symlink_to("loop")
    (compose.parent / "inside").symlink_to("conf")
    compose.write_text(SHOP + setting)
    told = convert(compose, code=2 if key else 0)
    assert (f"error: {compose}: {key}\n" if key else "empty folder: ") in told


def test_a_link_within_the_folder_is_followed(compose: Path, convert: Callable[..., str]) -> None:
    (compose.parent / "conf").mkdir()
    (compose.parent / "current").symlink_to("conf")
    compose.write_text(SHOP + "    volumes: ['./current:/x']\n")
    convert(compose)
    assert read_application(compose.parent).under_test.image.mounts == (("/x", str(compose.parent / "current")),)


def test_variables_of_a_link_out_of_the_folder_are_not_read(
    compose: Path, convert: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    (compose.parent / ".env").symlink_to(tmp_path_factory.mktemp("outside") / "secret")
    told = convert(compose, code=2)
    assert told.splitlines()[0] == f"error: {compose.parent}/.env: a link that leads out of the folder"


def test_a_fault_of_the_application_is_one_of_the_compose_file(compose: Path, convert: Callable[..., str]) -> None:
    compose.write_text(SHOP + "    user: 'a b'\n")
    told = convert(compose, code=2)
    assert told.startswith(f'error: {compose}: services.web.user: "a b" cannot be used\nhint: write a name or a number')
    assert "application.toml" not in told


def test_variables_are_those_of_the_shell_and_of_a_file_beside(
    compose: Path, convert: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_TEST_TAG", "1.26")
    monkeypatch.setenv("TARE_TEST_ODD", os.fsdecode(b"\xff"))
    (compose.parent / ".env").write_text("TARE_TEST_TAG=1.25\nTARE_TEST_WORD=secret\n")
    (compose.parent / "web.env").write_text("WORD=${TARE_TEST_WORD}\n")
    (compose.parent / "compose.override.yml").touch()
    compose.write_text(
        SHOP.replace("1.25", "${TARE_TEST_TAG}") + "    env_file: web.env\n    environment: [TARE_TEST_ODD]\n"
    )
    told = convert(compose)
    service = read_application(compose.parent).under_test
    assert (str(service.image.source), service.environment) == ("docker://nginx:1.26", (("WORD", "secret"),))
    target = compose.parent / "application.toml"
    assert told.splitlines()[:-1] == [
        "left out: compose.override.yml, which engines read, too: `docker compose config` writes one file of all",
        "left out: services.web.restart: a service that ends fails the trial",
        "left out: services.web.environment.TARE_TEST_ODD: it is not set",
        f"filled in: TARE_TEST_TAG, WORD: {target} has their values, so protect it as you do the variables",
    ]


def test_a_file_of_variables_that_cannot_be_read_is_reported(compose: Path, convert: Callable[..., str]) -> None:
    (compose.parent / ".env").write_text("A=1\n???\n")
    told = convert(compose, code=2)
    error = f"error: {compose.parent}/.env: line 2: neither NAME=value nor a comment"
    assert told.splitlines() == [error, "hint: write NAME=value in each line"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"services:\n\tweb:\n", "compose.yaml: line 2: not YAML: found character"),
        (b"a: !!python/object/apply:os.system [id]\n", "compose.yaml: line 1: not YAML: could not determine"),
        (b"a: [" * 5000, "compose.yaml: not YAML: "),
        (b"a: \xff\n", "compose.yaml: not UTF-8 text: byte 3"),
        (b"#" * (1 << 20) + b"#", "compose.yaml: more than 1 MiB"),
        (b"a: \x00\n", "compose.yaml: not YAML: "),
    ],
)
def test_what_is_no_yaml_is_refused(content: bytes, said: str, compose: Path, convert: Callable[..., str]) -> None:
    compose.write_bytes(content)
    told = convert(compose, code=2)
    assert said in told


def test_a_file_that_is_not_there_is_reported(tmp_path: Path, convert: Callable[..., str]) -> None:
    convert(tmp_path / "none.yaml", code=2)


def test_words_are_texts_as_engines_read_them() -> None:
    text = "a: 22:22\nb: no\nc: 010\nd: 1.10\ne: 2026-01-01\nf: true\ng:\nh: &x {y: z}\ni: {<<: *x}\n"
    assert parse_compose(text, "compose.yaml") == {
        "a": "22:22",
        "b": "no",
        "c": "010",
        "d": "1.10",
        "e": "2026-01-01",
        "f": True,
        "g": None,
        "h": {"y": "z"},
        "i": {"y": "z"},
    }


def test_a_key_that_is_a_list_is_no_bug() -> None:
    with pytest.raises(UsageError, match="not YAML"):
        parse_compose("? [a]\n: b\n", "compose.yaml")
