"""Claims judged by runs: every rule of docs/papers.md, and every reason not to judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from claimed import claims, judged, remarks
from compared import STACKS, changed, ends, made, with_trials
from runs import DHRYSTONE, REDIS, make_run, make_trial, measured, write

from tare.features.papers.judging import judge, no_judgement_error
from tare.model.run_folder import Run
from tare.model.trial import Caution, Footprint, Status, Trial
from tare.statistics.summarize import summarize

# Docker has 90.1 % of native, [89.5, 90.7], 12 blocks.
RUN = made(Path("run"), STACKS)
ALIKE = made(Path("run"), {"native": 1.0, "docker": 1.0}, blocks=30)


def served(ratios: dict[float, float], blocks: int = 12) -> Run:
    """A run of Redis's GET, in which docker has a ratio for each number of clients; its SET is as native's."""
    chance = np.random.default_rng(3)
    trials = []
    for block in range(blocks):
        for stack in ("native", "docker"):
            speeds = {clients: ratio if stack == "docker" else 1.0 for clients, ratio in ratios.items()}
            noisy = {at: 1e5 * speed * float(np.exp(chance.normal(0, 0.01))) for at, speed in speeds.items()}
            values = [measured("get", speed, at) for at, speed in noisy.items()]
            values += [measured("set", 1e5, at) for at in noisy]
            trials.append(make_trial(stack, block, values, "redis"))
    return make_run(trials, [REDIS])


# --- the rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "judgement"), [
    ({"direction": "less"}, "reproduced"),
    ({"direction": "more"}, "contradicted"),
    ({"direction": "equivalent"}, "contradicted"),
    ({"direction": "equivalent", "tolerance": "15%"}, "reproduced"),
    ({"size": "90%", "tolerance": "3%"}, "reproduced"),
    ({"size": "90.5%", "tolerance": "0.5%"}, "undecided"),  # from 90.05 %
    ({"size": "95%", "tolerance": "3%"}, "contradicted"),  # from 92.2 %
    ({"size": "95%", "tolerance": "3%", "reading": "5%"}, "reproduced"),  # from 87.8 %
    ({"size": "80%", "tolerance": "3%"}, "contradicted"),
    ({"least": "80%", "most": "95%"}, "reproduced"),
    ({"least": "90%"}, "undecided"),
    ({"least": "90%", "tolerance": "1%"}, "reproduced"),  # from 89.1 %
    ({"least": "92%"}, "contradicted"),
    ({"most": "90%"}, "undecided"),
    ({"most": "92%"}, "reproduced"),
    ({"most": "85%"}, "contradicted"),
    ({"stack": "native", "than": "docker", "direction": "more"}, "reproduced"),
    ({"stack": "native", "than": "docker", "direction": "more", "size": "111%", "tolerance": "3%"}, "reproduced"),
    ({"stack": "native", "than": "docker"}, "contradicted"),
    ({"inverse": True, "direction": "more", "size": "111%", "tolerance": "3%"}, "reproduced"),
    ({"inverse": True}, "contradicted"),
])  # fmt: skip
def test_a_claim_is_judged_by_where_the_interval_lies(claim: dict[str, object], judgement: str) -> None:
    found = judged(RUN, **claim)
    assert found.judgement == judgement
    assert (found.reason, found.test, found.stack) == ("", "", claim.get("stack", "docker"))
    assert found.points[0].claim_point.estimate.n == 12


def test_equivalence_contradicts_only_a_difference_with_a_stated_size() -> None:
    assert judged(ALIKE, direction="equivalent").judgement == "reproduced"
    assert judged(ALIKE, size="95%", tolerance="1%").judgement == "contradicted"
    undecided = judged(ALIKE)
    assert undecided.judgement == "undecided"
    assert remarks(undecided) == ["equivalent within the run's margin"]


def test_a_claim_of_the_right_direction_and_the_wrong_size_says_so() -> None:
    assert remarks(judged(RUN, size="80%", tolerance="3%")) == ["less, as claimed, but by another size"]
    assert remarks(judged(RUN, direction="more", size="110%", tolerance="3%")) == []


def test_a_size_within_its_tolerance_but_of_the_other_direction_says_so() -> None:
    run = made(Path("run"), {"native": 1.0, "docker": 1.02}, blocks=30)
    found = judged(run, size="99.6%", tolerance="5%")
    assert found.judgement == "reproduced"
    assert remarks(found) == ["more, not less as claimed, but within the tolerance of the size"]
    assert remarks(judged(RUN, size="90%", tolerance="3%")) == []


def test_without_enough_blocks_nothing_is_decided() -> None:
    found = judged(made(Path("run"), STACKS, blocks=4))
    assert found.judgement == "undecided"
    assert remarks(found) == ["4 blocks have no interval: 5 are needed"]
    assert found.points[0].claim_point.estimate.low is None


def test_judgements_hold_together() -> None:
    run = made(Path("run"), STACKS, blocks=5)
    sure: dict[str, object] = {"most": "94%"}
    assert judged(run, **sure).judgement == "reproduced"
    open_ones: list[dict[str, object]] = [{"size": "90%"}] * 60
    first = judge(run, claims(sure, *open_ones)).verdicts[0]
    assert first.judgement == "undecided"
    assert remarks(first) == ["reproduced by its own interval, but not certain together with 60 others"]


def test_a_claim_does_not_get_the_verdict_of_a_headline_among_others() -> None:
    stacks = {"native": 1.0, "docker": 0.98, **dict.fromkeys(("crun", "lxc", "podman", "runc"), 1.0)}
    run = made(Path("run"), stacks, 7, seed=5)
    assert summarize(run).headline("dhrystone", "docker").verdict == "undecided"
    assert (judged(run).judgement, remarks(judged(run))) == ("reproduced", [])


# --- points ----------------------------------------------------------------------------------------------------------

GET: dict[str, object] = {"workload": "redis", "metric": "get"}


def test_a_claim_about_several_points_is_reproduced_if_all_of_them_are() -> None:
    run = served({1: 0.9, 50: 0.8, 200: 1.1})
    assert judged(run, points=[1, 50], **GET).judgement == "reproduced"
    assert judged(run, to_point=50, **GET).judgement == "reproduced"
    over_all = judged(run, from_point=1, **GET)
    assert over_all.judgement == "contradicted"
    assert [finding.judgement for finding in over_all.points] == ["reproduced", "reproduced", "contradicted"]
    assert [finding.claim_point.point for finding in over_all.points] == [1, 50, 200]
    assert judged(run, points=[50, 200, 1000], **GET).judgement == "contradicted"


def test_an_undecided_point_leaves_a_claim_undecided() -> None:
    run = served({1: 0.9, 50: 1.0})
    assert judged(run, points=[1, 50], **GET).judgement == "undecided"


def test_without_points_the_mean_over_all_of_the_metric_counts() -> None:
    run = served({1: 0.9, 50: 0.8, 200: 1.1})
    found = judged(run, **GET)
    assert found.points[0].claim_point.estimate.value == pytest.approx((0.9 * 0.8 * 1.1) ** (1 / 3), rel=0.01)
    assert remarks(found) == ["GET, geometric mean over 3 points"]
    headline = judged(run, workload="redis").points[0].claim_point.estimate.value
    assert headline == pytest.approx((0.9 * 0.8 * 1.1) ** (1 / 6), rel=0.01)  # SET, too


def test_a_ratio_is_compared_with_the_one_at_another_point() -> None:
    run = served({1: 0.9, 50: 0.8, 200: 0.6})
    found = judged(run, points=[200], than_point=1, **GET)
    assert found.judgement == "reproduced"
    assert found.points[0].claim_point.estimate.value == pytest.approx(0.6 / 0.9, rel=0.01)
    assert judged(run, points=[200], than_point=1, direction="more", **GET).judgement == "contradicted"
    assert [finding.claim_point.point for finding in judged(run, from_point=1, than_point=1, **GET).points] == [50, 200]
    over_all = judged(run, than_point=1, **GET).points[0].claim_point.estimate.value
    assert over_all == pytest.approx((0.8 / 0.9 * 0.6 / 0.9) ** 0.5, rel=0.01)
    assert judged(run, points=[200], than_point=500, **GET).reason.startswith(
        "redis: no get of both docker and native at 200 relative to 500"
    )


# --- not tested ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "reason"), [
    ({"workload": "whetstone"}, "the run has no workload whetstone"),
    ({"stack": "podman"}, "the run has no stack podman"),
    ({"than": "podman"}, "the run has no stack podman"),
    ({"metric": "footprint"}, "dhrystone: no footprint of both docker and native (no trial has it)"),
])  # fmt: skip
def test_what_the_run_lacks_is_not_tested(claim: dict[str, object], reason: str) -> None:
    found = judged(RUN, **claim)
    assert (found.judgement, found.reason.partition(" (")[0]) == ("not tested", reason.partition(" (")[0])
    assert found.test == "tare run examples/quick.toml"
    assert found.points == ()


def test_a_point_that_the_run_has_not_measured_is_not_tested() -> None:
    run = served({1: 0.9})
    assert judged(run, points=[600, 700], **GET).reason == "redis: no get of both docker and native at 600, 700"
    assert judged(run, from_point=600, **GET).reason == "redis: no get of both docker and native from 600"


def test_a_skipped_or_failed_stack_is_not_tested_and_the_reason_is_named() -> None:
    statuses: tuple[Status, ...] = ("skipped", "failed")
    for status in statuses:
        found = judged(ends(RUN, "docker", status))
        assert (found.judgement, found.reason) == ("not tested", "dhrystone on docker: it broke")
    assert judged(ends(RUN, "native", "failed")).reason == "dhrystone on native: it broke"


def test_what_would_test_a_claim_names_a_suite_or_what_it_must_have() -> None:
    assert judged(RUN, workload="fio", suite="").test == 'a suite with use = "fio" on docker and native'
    assert judged(RUN, workload="fio", suite="mine.toml").test == "tare run mine.toml"
    assert judged(RUN, stack="osv").test == "tare run examples/quick.toml, with your osv as a stack"
    assert judged(RUN, stack="native/openstack").test.endswith("with your openstack as a stack")
    value = {"unit": "s", "most": 1.0}
    keys = {"workload": "startup", "metric": "total", "value": value, "direction": None, "suite": ""}
    assert judged(RUN, **keys).test == 'a suite with use = "startup" on docker'


def test_a_stack_whose_name_has_a_word_is_one_of_its_technology() -> None:
    found = judged(made(Path("run"), {"native": 1.0, "pod-gvisor": 0.5}), stack="kubernetes")
    assert (found.stack, found.judgement) == ("pod-gvisor", "reproduced")


def test_a_run_without_any_claim_is_an_error_that_names_what_to_run() -> None:
    error = no_judgement_error(judge(RUN, claims({"stack": "podman"}, {"workload": "fio"})))
    assert str(error) == "run: no claim can be judged by this run: none of 2 is about what it has measured"
    assert (error.hint, error.exit_code) == ("tare run examples/quick.toml", 3)


def test_an_empty_run_tests_nothing() -> None:
    assert judged(replace(RUN, trials=())).reason == "dhrystone on docker: no trial was run"
    empty = changed(replace(RUN, trials=()), workloads=(), stacks=())
    assert judged(empty).reason == "the run has no workload dhrystone"


# --- not comparable --------------------------------------------------------------------------------------------------


def emulated(trial: Trial) -> Trial:
    return replace(trial, cautions=(Caution("emulated", "QEMU emulates"),)) if trial.stack == "docker" else trial


def test_an_emulated_stack_is_not_comparable() -> None:
    found = judged(with_trials(RUN, emulated))
    assert (found.judgement, found.reason) == ("not comparable", "docker: QEMU emulates")
    assert (found.stack, found.than) == ("docker", "native")


@pytest.mark.parametrize(("has", "wanted"), [("qemu-tcg", "qemu"), ("docker/qemu-tcg", "docker/qemu")])
def test_emulation_in_place_of_virtualization_is_not_comparable(has: str, wanted: str) -> None:
    found = judged(made(Path("run"), {"native": 1.0, has: 0.1}), stack=wanted)
    assert found.judgement == "not comparable"
    assert found.reason == f"{has} emulates the processor, {wanted} does not"


def test_other_settings_of_the_workload_are_not_comparable() -> None:
    run = served({1: 0.9})
    one = {"workload": "redis", "metric": "get", "settings": {"pipeline": 16}}
    (record,) = run.record.workloads
    with_settings = {depth: replace(record, settings={"pipeline": depth, "clients": [1]}) for depth in (1, 16)}
    found = judged(changed(run, workloads=(with_settings[1],)), **one)
    assert (found.judgement, found.reason) == ("not comparable", "redis: pipeline is 1, not 16")
    assert judged(changed(run, workloads=(with_settings[16],)), **one).judgement == "reproduced"
    assert judged(run, **one).reason == "redis: pipeline is unknown, not 16"


def test_a_setting_that_is_a_list_or_a_size_is_compared_as_the_run_has_it() -> None:
    run = served({1: 0.9})
    (record,) = run.record.workloads
    run = changed(run, workloads=(replace(record, settings={"operations": ["GET"], "duration": 1.0}),))
    assert judged(run, settings={"operations": ["GET"], "duration": "1s"}, **GET).judgement == "reproduced"
    assert judged(run, settings={"duration": "2s"}, **GET).reason == "redis: duration is 1.0, not 2.0"


SPEED: dict[str, object] = {"metric": "speed", "direction": None}


def test_a_value_is_judged_on_a_machine_like_the_sources_alone() -> None:
    near = {"unit": "dhrystones/s", "size": 1.8e7}
    run = changed(RUN, workloads=(replace(DHRYSTONE, metrics=(replace(DHRYSTONE.metrics[0], unit="dhrystones/s"),)),))
    run = with_trials(run, lambda trial: replace(trial, values=tuple(replace(v, unit="") for v in trial.values)))
    found = judged(run, value=near, tolerance="10%", **SPEED)
    assert found.judgement == "reproduced"
    assert found.points[0].claim_point.estimate.value == pytest.approx(1.8e7, rel=0.05)
    assert found.than == ""
    few = judged(replace(run, trials=tuple(each for each in run.trials if each.block < 3)), value=near, **SPEED)
    assert (few.judgement, remarks(few)) == ("undecided", ["5 blocks or more are needed"])
    assert judged(run, value={"unit": "dhrystones/s", "most": 1e7}, **SPEED).judgement == "contradicted"
    assert judged(run, value={"unit": "dhrystones/s", "least": 1e7}, **SPEED).judgement == "reproduced"
    other = changed(run, machine=replace(run.record.machine, cpu_model="Intel(R) Xeon(R) E5530"))
    unlike = judged(other, value=near, **SPEED)
    assert unlike.judgement == "not comparable"
    assert unlike.reason == "a number of another machine: Imaginary CPU 9000, here Intel(R) Xeon(R) E5530"
    assert judged(other, value=near | {"anywhere": True}, tolerance="10%", **SPEED).judgement == "reproduced"


@pytest.mark.parametrize(("program", "seen", "reason"), [
    ("docker", "Docker version 19.3.1", ""),
    ("docker", "20.10.24", "docker 19.03.8 there, 20.10.24 here"),
    ("docker", "", "docker 19.03.8 there, an unknown version here"),
    ("redis-server", "", ""),
    ("kernel", "", "kernel 4.19.0 there, 6.1.0-18-amd64 here"),
    ("unheard-of", "", "unheard-of 1 there, an unknown version here"),
])  # fmt: skip
def test_a_claim_of_a_version_is_not_comparable_with_another_one(program: str, seen: str, reason: str) -> None:
    run = with_trials(RUN, lambda trial: replace(trial, proof=(("version", seen),) if seen else ()))
    found = judged(run, same_versions=[program])
    assert found.reason == reason
    assert found.judgement == ("not comparable" if reason else "reproduced")


# --- what a run calls things -----------------------------------------------------------------------------------------


def test_a_variant_counts_for_what_it_is_made_of(tmp_path: Path) -> None:
    run = made(tmp_path / "run", {"native": 1.0, "mine": 0.9})
    write(run)
    (run.folder / "suite.toml").write_text('[stacks.mine]\nstack = "docker"\nnetwork = "bridge"\n')
    found = judged(run)
    assert (found.judgement, found.stack) == ("reproduced", "mine")
    for text in ("[stacks.mine]\n", "stacks = 1\n", "no TOML", '[stacks]\nmine = "docker"\n'):
        (run.folder / "suite.toml").write_text(text)
        assert judged(run).reason == "the run has no stack docker"


def test_a_footprint_is_compared_like_a_metric() -> None:
    def sized(trial: Trial) -> Trial:
        size = 3_000_000 if trial.stack == "docker" else 2_000_000
        return replace(trial, footprint=Footprint(size + 100 * trial.block, 0, None, 1))

    run = with_trials(RUN, sized)
    found = judged(run, metric="footprint", direction="more", size="150%", tolerance="3%")
    assert found.judgement == "reproduced"
    value = {"unit": "bytes", "most": 4e6, "anywhere": True}
    assert judged(run, metric="footprint", direction=None, value=value).judgement == "reproduced"


def test_cautions_stay_beside_the_number_and_a_stack_says_what_it_ran() -> None:
    def stolen(trial: Trial) -> Trial:
        return replace(trial, cautions=(Caution("steal", "3 %"),), proof=(("version", "20.10.24"),), path="nat")

    found = judged(with_trials(RUN, stolen))
    assert {caution.kind for caution in found.points[0].claim_point.cautions} == {"steal"}
    assert dict(found.stack_proof) == {"version": "20.10.24", "network path": "nat"}


def test_the_control_takes_part_only_in_comparisons_with_the_baseline() -> None:
    run = made(Path("run"), {"native": 1.0, "native-again": 1.0, "docker": 0.9, "crun": 0.9})
    assert judged(run).judgement == "reproduced"
    beside_another = judged(run, than="crun")
    assert beside_another.judgement == "undecided"
    assert beside_another.points[0].claim_point.estimate.value == pytest.approx(1.0, abs=0.01)
