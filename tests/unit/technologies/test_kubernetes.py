"""Kubernetes: what a pod is asked for, which node it is on, and what is found to be wrong before it is started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import launch_at

from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.trial import Limits, Output
from tare.plugins.instance import VOLUME
from tare.plugins.technology import LaunchRequest
from tare.technologies.kubernetes.technology import Kubernetes

BOOT = "/proc/sys/kernel/random/boot_id"
NODES = {
    "items": [
        {"metadata": {"name": name}, "status": {"nodeInfo": {"bootID": boot}}}
        for name, boot in (("node-1", "one"), ("node-2", "two"))
    ]
}
CLASSES = {"items": [{"metadata": {"name": name}} for name in ("gvisor", "kata")]}


@dataclass
class Answering(LocalHost):
    """A host with kubectl, whose cluster answers with these resources by the last word of their paths."""

    boot: str = "one"
    answers: Mapping[str, Any] = field(
        default_factory=lambda: {
            "nodes": NODES,
            "runtimeclasses": CLASSES,
            "selfsubjectaccessreviews": {"status": {"allowed": True}},
        }
    )

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        path = argv[argv.index("--raw") + 1] if "--raw" in argv else ""
        answer = self.answers.get(path.rpartition("/")[2])
        if path and answer is None:
            text = f'Error from server (Forbidden): User "guest" cannot list resource "{path}"'
            return Output(argv, 1, b"", text.encode(), timeout)
        return Output(argv, 0, json.dumps(answer).encode() if path else b"", b"", timeout)

    def read(self, path: str) -> str:
        return f"{self.boot}\n" if path == BOOT else ""


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    return launch_at(tmp_path, "tare-1", Limits((1, 3), 1 << 29, 4096))


def _problem(technology: Kubernetes, host: Answering) -> tuple[str, str]:
    (problem,) = technology.problems(host)
    return problem.what, problem.fix


def test_a_node_of_a_cluster_has_no_problems() -> None:
    assert tuple(Kubernetes(runtime_class="gvisor").problems(Answering())) == ()


def test_an_unknown_runtime_class_is_refused_with_those_that_there_are() -> None:
    what, fix = _problem(Kubernetes(runtime_class="gvizor"), Answering())
    assert what == 'the cluster has no RuntimeClass "gvizor", but gvisor, kata'
    assert fix == 'did you mean "gvisor"?'
    assert _problem(Kubernetes(runtime_class="runc"), Answering())[1] == "kubectl get runtimeclass"


def test_the_clusters_classes_are_words_that_may_follow_its_name() -> None:
    assert Kubernetes().variants(Answering()) == ["gvisor", "kata"]


def test_a_machine_that_is_no_node_is_refused_with_the_nodes() -> None:
    what, fix = _problem(Kubernetes(), Answering(boot="three"))
    assert what == "this machine is no node of the cluster"
    assert "run tare on node-1 or node-2" in fix


def test_a_node_that_is_another_machine_is_refused() -> None:
    assert _problem(Kubernetes(node="node-2"), Answering())[0] == "node-2 is another machine; this machine is node-1"
    assert (
        _problem(Kubernetes(node="node-3"), Answering())[0] == "the cluster has no node node-3; this machine is node-1"
    )


def test_who_may_not_create_namespaces_is_asked_to_name_one() -> None:
    host = Answering()
    host.answers = {**host.answers, "selfsubjectaccessreviews": {"status": {"allowed": False}}}
    assert _problem(Kubernetes(), host) == (
        "you may not create namespaces in the cluster",
        'namespace = "NAME"',
    )
    assert tuple(Kubernetes(namespace="mine").problems(host)) == ()


def test_what_the_cluster_refuses_is_a_problem() -> None:
    what, fix = _problem(Kubernetes(), Answering(answers={}))
    assert what.startswith('the cluster refuses: User "guest" cannot list resource')
    assert "administrator" in fix


def test_a_pod_is_guaranteed_its_limits_on_this_node(launch: LaunchRequest) -> None:
    pod = Kubernetes(runtime_class="gvisor")._manifest(launch, "tare-1", "node-1")
    (container,) = pod["spec"]["containers"]
    amounts = {"cpu": "2", "memory": str(1 << 29)}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["image"] == "localhost/tare-image:0000000000000000"
    assert container["imagePullPolicy"] == "Never"
    assert container["command"][:3] == ["/usr/lib/tare/exec_in", "-f", "4096"]
    assert pod["spec"]["runtimeClassName"] == "gvisor"
    assert '"values": ["node-1"]' in json.dumps(pod["spec"]["affinity"])


def test_the_default_runtime_is_the_clusters(launch: LaunchRequest) -> None:
    assert "runtimeClassName" not in Kubernetes()._manifest(launch, "tare-1", "node-1")["spec"]


def test_the_user_table_is_merged_into_pod_container_and_metadata(launch: LaunchRequest) -> None:
    table = {
        "annotations": {"dev.gvisor.flag": "yes"},
        "labels": {"team": "a"},
        "tolerations": [{"key": "sandbox", "operator": "Exists"}],
        "affinity": {"podAffinity": {}},
        "container": {"resources": {"requests": {"cpu": "100m"}}},
    }
    pod = Kubernetes(pod=table)._manifest(launch, "tare-1", "node-1")
    assert pod["metadata"]["annotations"] == {"dev.gvisor.flag": "yes"}
    assert pod["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "tare", "team": "a"}
    assert pod["spec"]["tolerations"] == table["tolerations"]
    assert set(pod["spec"]["affinity"]) == {"nodeAffinity", "podAffinity"}
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "100m", "memory": str(1 << 29)}
    assert resources["limits"]["cpu"] == "2"


def test_a_data_volume_is_an_empty_dir_of_the_cluster_next_to_user_volumes(launch: LaunchRequest) -> None:
    table = {"volumes": [{"name": "mine", "emptyDir": {}}], "container": {"volumeMounts": [{"name": "mine"}]}}
    spec = Kubernetes(pod=table)._manifest(replace(launch, volume_bytes=1), "tare-1", "node-1")["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["tare-volume", "mine"]
    mounts = spec["containers"][0]["volumeMounts"]
    assert mounts == [{"name": "tare-volume", "mountPath": VOLUME}, {"name": "mine"}]
    assert "volumes" not in Kubernetes()._manifest(launch, "tare-1", "node-1")["spec"]


@pytest.mark.parametrize("key", ["containers", "nodeName", "runtimeClassName", "restartPolicy"])
def test_what_tare_sets_in_a_pod_cannot_be_set_by_the_user(launch: LaunchRequest, key: str) -> None:
    with pytest.raises(TrialFailed, match=f"pod: {key} is set by tare"):
        Kubernetes(pod={key: []})._manifest(launch, "tare-1", "node-1")


def test_an_image_of_a_registry_is_pulled(launch: LaunchRequest) -> None:
    (container,) = Kubernetes(image="registry.example/tare:1")._manifest(launch, "tare-1", "node-1")["spec"][
        "containers"
    ]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example/tare:1", "IfNotPresent")


def test_pods_of_one_name_must_run_one_image_in_all_stacks_of_a_run(launch: LaunchRequest) -> None:
    pods = (Kubernetes(image="registry.example/tare:1", runtime_class=each) for each in ("", "gvisor", "kata"))
    runc, gvisor, kata = pods
    runc._check_image(launch, "registry.example/tare@sha256:1")
    gvisor._check_image(launch, "registry.example/tare@sha256:1")
    with pytest.raises(TrialFailed, match=r"ran the image sha256:2, but the first one of this run sha256:1"):
        kata._check_image(launch, "registry.example/tare@sha256:2")
    Kubernetes(image="registry.example/tare:2")._check_image(launch, "registry.example/tare@sha256:2")


def test_an_image_that_tare_imports_has_its_bytes_by_its_name(launch: LaunchRequest) -> None:
    Kubernetes()._check_image(launch, "sha256:1")
    Kubernetes()._check_image(launch, "sha256:2")


def test_the_undo_works_without_the_environment_of_the_run(
    launch: LaunchRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/user/.kube/lab")
    undo = Kubernetes(context="lab")._undo_command(LocalHost(), launch, "delete", "namespace", "tare-1")
    assert undo == (
        "env",
        "KUBECONFIG=/home/user/.kube/lab",
        "kubectl",
        "--context=lab",
        "delete",
        "namespace",
        "tare-1",
    )
