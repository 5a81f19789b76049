"""Technologies that `tare try` chooses by default."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tare_fake.technology import FakeHost

from tare.model.trial import Limits, Output
from tare.plugins import registry
from tare.runner.availability import list_usable

CONFUSED = """from tare_fake.technology import Fake

class Confused(Fake):
    name = "confused"

    def problems(self, host):
        raise ZeroDivisionError("it cannot even tell")
"""


@dataclass(frozen=True)
class Equipped(FakeHost):
    """A host that lacks no tool: whatever it is asked, it has nothing to say against it."""

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        return Output(argv, 0, b"", b"", timeout)


def test_bare_metal_is_first_then_usable_quick_stacks_that_run_commands() -> None:
    first, *others = list_usable(Equipped(1.0, "", Limits((0,), 1 << 29, 4096)), quick_only=True)
    assert first == "native"
    assert others == sorted(others)
    assert {"crun", "fake"} <= {*others}
    taken = [registry.find("technologies", name) for name in others]
    assert {each.family for each in taken} & {"unikernel", "type 1"} == set()
    assert not {"qemu-tcg", "libvirt-tcg", "lxd-vm", "virtualbox", "openstack"} & {*others}


def test_a_broken_plug_in_and_one_with_a_failing_check_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tare.technologies]\nconfused = others_confused:Confused\nbad = none:No\n")
    (tmp_path / "others_confused.py").write_text(CONFUSED)
    monkeypatch.syspath_prepend(tmp_path)
    assert {"bad", "confused"} <= {*registry.names("technologies")}
    found = list_usable(Equipped(1.0, "", Limits((0,), 1 << 29, 4096)), quick_only=True)
    assert found[0] == "native"
    assert not {"bad", "confused"} & {*found}
