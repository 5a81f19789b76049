from __future__ import annotations

from tare.exports.families import COLUMNS, FAMILIES, INTERRUPTS, SWAP, label_value, series
from tare.telemetry.series import COLUMNS as ALL_COLUMNS


def test_every_column_of_the_telemetry_has_a_family() -> None:
    others = {"seconds", "scope", "trial", "time"}
    assert {name for name in ALL_COLUMNS if name not in others and not name.startswith("cpus_")} == {*COLUMNS}


def test_the_unit_of_a_family_is_the_end_of_its_name_and_counters_end_as_such() -> None:
    for family in FAMILIES:
        assert family.name.endswith(f"_{family.unit}" if family.unit else "")
        assert family.metric.endswith("_total") == (family.kind == "counter")


def test_a_series_has_the_labels_of_its_sample_and_its_own() -> None:
    assert series(INTERRUPTS, (("run", "a"),), (("cpu", "1"),)) == 'tare_interrupts_total{run="a",cpu="1"}'
    assert series(SWAP, (), (("cpu", "1"),)) == 'tare_swap_bytes{cpu="1"}'
    assert series(SWAP, (("run", "a"),), ()) == 'tare_swap_bytes{run="a"}'
    assert series(SWAP, (), ()) == "tare_swap_bytes{}"


def test_the_value_of_a_label_is_escaped() -> None:
    assert label_value('a "b" \\ c\nd, {e}') == 'a \\"b\\" \\\\ c\\nd, {e}'
