"""Inventories are read by Ansible itself; what would measure the wrong thing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.features.fleet.ansible import read_inventory
from tare.model.errors import UsageError


def inventory(folder: Path, text: str, name: str = "inventory.ini") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_servers_are_those_of_the_group_and_of_the_groups_in_it(tmp_path: Path) -> None:
    text = "[servers:children]\nold\nnew\n[old]\nb\na\n[new]\nc ansible_host=203.0.113.9\n[monitor]\nwatch\n"
    assert read_inventory(inventory(tmp_path, text)).servers == ("b", "a", "c")


def test_an_inventory_may_be_yaml(tmp_path: Path) -> None:
    text = "servers:\n  hosts:\n    web1:\n      ansible_host: 203.0.113.1\n"
    assert read_inventory(inventory(tmp_path, text, "inventory.yml")).servers == ("web1",)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[clients]\na\n", "no machines in the group servers"),
        ("", "no machines in the group servers"),
        (
            "[servers]\na ansible_host=203.0.113.1\nb ansible_host=203.0.113.1\n",
            "a and b are one machine, 203.0.113.1",
        ),
        (
            "[servers]\na ansible_host=203.0.113.1\n[clients]\nl ansible_host=203.0.113.1\n",
            "l is a client, and the server a",
        ),
        ("[servers]\na\n[clients]\na\n", "a is a client, and the server a"),
        ("[servers]\n../a ansible_host=203.0.113.1\n", "can be no folder's name"),
    ],
)
def test_what_would_measure_the_wrong_thing_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        read_inventory(inventory(tmp_path, text))
    assert what in str(error.value)
    assert error.value.hint


def test_two_ports_of_one_address_are_two_machines(tmp_path: Path) -> None:
    text = "[servers]\na ansible_host=203.0.113.1 ansible_port=22\nb ansible_host=203.0.113.1 ansible_port=2222\n"
    assert read_inventory(inventory(tmp_path, text)).servers == ("a", "b")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_inventory(tmp_path / "inventory.ini")
