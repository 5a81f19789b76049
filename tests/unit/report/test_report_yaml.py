"""What pods cost their node as Kubernetes' own form has it: amounts with their intervals, rounded up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from runs import make_run

from tare.journal import WorkloadRecord
from tare.model.trials import Measured, Metric, Trial
from tare.report.yaml import idle_cpus, render
from tare.statistics.pod_overhead import amount, pod_overheads
from tare.statistics.summarize import summarize
from tare.telemetry.series import Sample, Series

MIB = 1 << 20
IDLE = WorkloadRecord("idle", "idle", "Idle", (Metric("memory", "Memory", "bytes", "lower"),), None)
DEFAULT = (("kubelet", "v1.34.4"),)
PROOF = (*DEFAULT, ("RuntimeClass", "gvisor"), ("handler", "runsc"), ("podFixed", "none"))


def _trial(stack: str, block: int, mebibytes: float, proof: tuple[tuple[str, str], ...] = ()) -> Trial:
    value = Measured("memory", None, mebibytes * MIB, "bytes", "lower")
    name = f"idle-{block:03}-{stack}"
    return Trial(name, block, 0, "idle", stack, "ok", "", 0.0, 1.0, values=(value,), proof=proof)


def _idle(pods: Sequence[float]) -> Iterator[Trial]:
    """Make blocks of bare metal, which takes 1, 2, 3 … MiB, and of a pod that takes so much more."""
    for block, more in enumerate(pods):
        yield _trial("native", block, block + 1)
        yield _trial("pod", block, block + 1 + more, PROOF)


def _written(trials: Sequence[Trial], folder: Path) -> str:
    run = make_run(trials, (IDLE,), folder)
    return render(summarize(run), run)["pod-overhead.yaml"].decode()


def test_an_amount_is_a_mean_of_differences_with_students_interval() -> None:
    found = amount([10.0, 12.0, 14.0])
    assert found is not None
    # 12 ± 4.302653 · 2 / √3
    assert (found.mean, found.n) == (12.0, 3)
    assert found.low == pytest.approx(7.0317, abs=1e-4)
    assert found.high == pytest.approx(16.9683, abs=1e-4)
    assert amount([10.0, 12.0]) is None


def test_the_overhead_is_what_a_pod_takes_beyond_the_baseline_of_its_own_block() -> None:
    cpus = {f"idle-{block:03}-{stack}": used for block in range(3) for stack, used in (("native", 0.1), ("pod", 0.12))}
    (found,) = pod_overheads([*_idle([70, 70, 70])], "native", cpus)
    assert (found.runtime_class, found.handler, found.declared) == ("gvisor", "runsc", "none")
    assert found.memory is not None
    assert found.cpu is not None
    assert (found.memory.mean, found.memory.n) == (70 * MIB, 3)
    assert found.cpu.mean == pytest.approx(0.02)


def test_a_pod_of_a_block_without_its_baseline_does_not_count() -> None:
    trials = [trial for trial in _idle([70, 70, 70, 999]) if trial.trial != "idle-003-native"]
    (found,) = pod_overheads(trials, "native", {})
    assert found.memory is not None
    assert (found.memory.n, found.cpu) == (3, None)


def test_the_form_is_one_that_kubernetes_takes_with_the_upper_end_of_the_interval(tmp_path: Path) -> None:
    text = _written([*_idle([70.0, 70.5, 71.0])], tmp_path)
    (document,) = (each for each in yaml.safe_load_all(text) if each)
    assert document == {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "runsc",
        "overhead": {"podFixed": {"memory": "72Mi"}},
    }
    assert "# memory: 70.5 MiB, 95 % interval 69.3 to 71.7, n = 3 blocks" in text


def test_pods_of_the_default_runtime_have_amounts_and_nothing_to_paste(tmp_path: Path) -> None:
    trials = [replace(trial, proof=DEFAULT) if trial.proof else trial for trial in _idle([70.0, 70.5, 71.0])]
    text = _written(trials, tmp_path)
    assert [each for each in yaml.safe_load_all(text) if each] == []
    assert "# pod: the cluster's default runtime, by no RuntimeClass\n# memory: 70.5 MiB, 95 % interval" in text


def test_too_few_blocks_give_no_amount_and_a_run_without_pods_no_file(tmp_path: Path) -> None:
    assert "# not known: it takes 3 blocks of idle" in _written([*_idle([70.0, 70.5])], tmp_path)
    bare = [trial for trial in _idle([70.0, 70.5, 71.0]) if trial.stack == "native"]
    run = make_run(bare, (IDLE,), tmp_path)
    assert render(summarize(run), run) == {}


def test_names_of_an_untrusted_run_stay_texts_in_their_lines(tmp_path: Path) -> None:
    proof = (*DEFAULT, ("RuntimeClass", "a\nkind: Secret"), ("handler", "{}"), ("podFixed", "none\nkind: Secret"))
    trials = [trial if trial.stack == "native" else replace(trial, proof=proof) for trial in _idle([70, 71, 72])]
    text = _written(trials, tmp_path)
    (document,) = (each for each in yaml.safe_load_all(text) if each)
    assert (document["kind"], document["metadata"]["name"]) == ("RuntimeClass", "a\nkind: Secret")
    assert document["handler"] == "{}"


def test_idle_cpus_are_those_of_the_second_half() -> None:
    samples = [Sample(second, used, None) for second, used in enumerate([0.0, 3.0, 4.0, 4.1, 4.2, 4.3])]
    assert idle_cpus(Series(samples, [])) == pytest.approx(0.1)
    assert idle_cpus(Series(samples[:1], [])) is None
