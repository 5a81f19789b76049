"""The Ansible collection: its roles' variables are documented, and Ansible packs it."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tare.features.fleet.ansible import find_ansible_command, find_collection

ROLES = sorted(path.name for path in (find_collection() / "roles").iterdir())
KEY = re.compile(r"^(tare_\w+):", re.MULTILINE)


def _defaults(role: str) -> str:
    return (find_collection() / "roles" / role / "defaults/main.yml").read_text()


@pytest.mark.parametrize("role", ROLES)
def test_each_default_has_a_comment(role: str) -> None:
    lines = _defaults(role).splitlines()
    keys = [at for at, line in enumerate(lines) if KEY.match(line)]
    assert keys
    assert [lines[at] for at in keys if not lines[at - 1].startswith("# ")] == []


@pytest.mark.parametrize("role", ROLES)
def test_each_variable_that_a_role_uses_has_a_default(role: str) -> None:
    folder = find_collection() / "roles" / role
    files = [path for name in ("tasks", "handlers", "templates") for path in folder.glob(f"{name}/*")]
    used = {name for path in files for name in re.findall(r"\btare_\w+", path.read_text())}
    assert used
    assert used - set(KEY.findall(_defaults(role))) == set()


def test_ansible_packs_it(tmp_path: Path) -> None:
    command = find_ansible_command("ansible-galaxy")
    subprocess.run((command, "collection", "build", find_collection(), "--output-path", tmp_path), check=True)
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as packed:
        names = set(packed.getnames())
    roles = {name.split("/")[1] for name in names if name.startswith("roles/") and name.endswith("/tasks/main.yml")}
    assert roles == set(ROLES)
    assert {"README.md", "playbooks/site.yml", "roles/prepare/templates/suite.toml.j2"} <= names
