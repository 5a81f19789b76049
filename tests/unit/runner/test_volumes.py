"""Data volumes in the loop, on fakes."""

from __future__ import annotations

from fakes import Bench, by_stack, suite


def test_a_stack_that_gives_no_volume_is_skipped_with_its_reason_where_a_workload_wants_one(bench: Bench) -> None:
    bench.work(suite("plain:", 'r: stack = "roomy"', blocks=1, workloads=("stored", "dhrystone")))
    [skipped], [has] = by_stack(bench.trials, "plain", "stored"), by_stack(bench.trials, "r", "stored")
    said = 'fake: it gives its instances no data volume (fix: write place = "root")'
    assert (skipped.status, skipped.reason, skipped.values) == ("skipped", said, ())
    assert (has.status, has.proof) == ("ok", (("volume", str(1 << 20)),))


def test_a_workload_that_wants_no_volume_gets_none(bench: Bench) -> None:
    bench.work(suite("plain:", 'r: stack = "roomy"', blocks=1, workloads=("stored", "dhrystone")))
    [plain], [roomy] = by_stack(bench.trials, "plain"), by_stack(bench.trials, "r")
    assert (plain.status, roomy.status, roomy.proof) == ("ok", "ok", (("volume", "0"),))
