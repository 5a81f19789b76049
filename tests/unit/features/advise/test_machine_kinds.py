"""Kinds of machines: those of the docs, what is wrong in a file, and how many a load takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tare.features.advise.capacity import MachineType, find_cheapest_plan, plan_machines, read_machine_types
from tare.model.errors import TareError

DOCS = Path(__file__).parents[4] / "docs" / "advice.md"


def saved(folder: Path, text: str) -> Path:
    path = folder / "machines.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_file_of_the_docs_is_read(tmp_path: Path) -> None:
    [text] = re.findall(r"```toml\n(\[machines.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert read_machine_types(saved(tmp_path, text)) == (
        MachineType(2, 0.05, 4 << 30, "small"),
        MachineType(8, 0.19, 32 << 30, "large"),
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has no machine type"),
        ("machines = 3", "machines: "),
        ("[machines]\nsmall = 3", "machines.small: "),
        ("[machine.small]\ncpus = 2", "unknown key 'machine'"),
        ('[machines.a]\nprice = "0.05"\ncpus = 2', "machines.a.price: a rate is a number above 0"),
        ("[machines.a]\nprice = 0.05\ncpus = 2", "machines.a.price: a rate is a number above 0"),
        ('[machines.a]\nprice = "-1/h"\ncpus = 2', "machines.a.price: a rate is a number above 0"),
        ('[machines.a]\nprice = "1/h"', "machines.a.cpus: "),
        ('[machines.a]\nprice = "1/h"\ncpus = 0', "machines.a.cpus: "),
        ('[machines.a]\nprice = "1/h"\ncpus = true', "machines.a.cpus: "),
        ('[machines.a]\nprice = "1/h"\ncpus = 1\nmemory = "4"', "machines.a.memory: a size needs its unit"),
        ('[machines.a]\nprice = "1/h"\ncpus = 1\ndisk = 4', "machines.a.disk: "),
        (f'[machines.{"a" * 41}]\nprice = "1/h"\ncpus = 1', "machines.aaa"),
        ("[machines.a", "not TOML"),
        ("#" * ((1 << 20) + 1), "more than 1 MiB"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(TareError) as caught:
        read_machine_types(saved(tmp_path, text))
    assert what in str(caught.value) or any(what in str(fault.what) for fault in getattr(caught.value, "faults", ()))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TareError, match=r"nowhere\.toml"):
        read_machine_types(tmp_path / "nowhere.toml")


def test_the_fewest_machines_that_keep_up_and_how_busy_they_are() -> None:
    # 1,000 requests of 3 ms are 3 CPUs, which two machines of two CPUs have.
    found = plan_machines(MachineType(2, 0.5), 1000, 3e-3)
    assert (found.count, found.hourly) == (2, 1.0)
    assert found.busy == pytest.approx(0.75)
    # M/M/2: a part 2 r^2 / (1 + r) of the requests waits, for 3 ms / (2 (1 - r)).
    assert found.response_seconds == pytest.approx(3e-3 * (1 + 2 * 0.75**2 / 1.75 / (2 * 0.25)))


def test_machines_that_would_be_busy_all_of_the_time_do_not_keep_up() -> None:
    assert plan_machines(MachineType(1), 1000, 1e-3).count == 2


def test_a_machine_type_without_a_price_does_not_win_as_if_it_were_free() -> None:
    unpriced, priced = MachineType(64), MachineType(2, 0.5, memory_bytes=4 << 30)
    cheapest = find_cheapest_plan([unpriced, priced], 1000, 3e-3, None)
    assert cheapest is not None
    assert (cheapest.machine_type, cheapest.hourly) == (priced, 1.0)
    # The priced type has too little memory: the unpriced one is the only choice.
    only = find_cheapest_plan([unpriced, priced], 1000, 3e-3, 8 << 30)
    assert only is not None
    assert only.machine_type == unpriced


def test_without_prices_the_fewest_machines_are_taken() -> None:
    found = find_cheapest_plan([MachineType(1), MachineType(4)], 1000, 3e-3, None)
    assert found is not None
    assert (found.machine_type.cpus, found.count) == (4, 1)
