"""What pods cost their node as Kubernetes' own form has it: amounts with their intervals, rounded up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from idle_pods import idle_run, idle_trials, proof
from pages import rendered

from tare.model.trial import Trial


def _written(trials: Sequence[Trial], folder: Path) -> str:
    return rendered(idle_run(trials, folder), "yaml")["pod-overhead.yaml"]


def test_the_manifest_is_valid_and_has_the_upper_end_of_the_interval(tmp_path: Path) -> None:
    text = _written([*idle_trials([70.0, 70.5, 71.0])], tmp_path)
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
    text = _written([*idle_trials([70.0, 70.5, 71.0], (("kubelet", "v1.34.4"),))], tmp_path)
    assert [each for each in yaml.safe_load_all(text) if each] == []
    assert "# pod: the cluster's default runtime, by no RuntimeClass\n# memory: 70.5 MiB, 95 % interval" in text


def test_too_few_blocks_give_no_amount_and_a_run_without_pods_no_file(tmp_path: Path) -> None:
    assert "# not known: it takes 3 blocks of idle" in _written([*idle_trials([70.0, 70.5])], tmp_path)
    bare = [trial for trial in idle_trials([70.0, 70.5, 71.0]) if trial.stack == "native"]
    assert rendered(idle_run(bare, tmp_path), "yaml") == {}


def test_names_of_an_untrusted_run_stay_texts_in_their_lines(tmp_path: Path) -> None:
    hostile = proof("a\nkind: Secret", "{}", "none\nkind: \x00Secret")
    text = _written([*idle_trials([70, 71, 72], hostile)], tmp_path)
    (document,) = (each for each in yaml.safe_load_all(text) if each)
    assert (document["kind"], document["metadata"]["name"]) == ("RuntimeClass", "a\nkind: Secret")
    assert document["handler"] == "{}"
