"""Pods, containers and refusals as they were recorded of Kubernetes 1.34 and containerd 1.6."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tare.guests import kvm
from tare.hosts.local import LocalHost
from tare.model.errors import OutOfMemory, TrialFailed, Unschedulable
from tare.model.trial import Output
from tare.technologies.containerd.technology import find_helpers
from tare.technologies.kata import instance_cautions, is_kata, is_machine_process, kernel_cautions, pin_processes
from tare.technologies.kubernetes.node import (
    Container,
    ContainerEvent,
    PodOnNode,
    parse_container,
    parse_event,
    translate_error,
)
from tare.technologies.kubernetes.pod import PodState, image_fault, pod_fault, pod_state, warning_fault

SAMPLES = Path(__file__).parents[2] / "samples" / "pods"
SANDBOX = "792b0fa7ebe04da5164deafaa7b9a8d6ae77b14acb9da3d941083cb6310ce0cd"
CONTAINER = "aef4d09bff802330058e3759b239fb4e117ca364f09547777bcce1ac1571419c"


def _pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / f"{name}.json").read_text())
    return found


def _changes() -> list[dict[str, Any]]:
    return [json.loads(line)["object"] for line in (SAMPLES / "watch.jsonl").read_text().splitlines()]


def test_a_pod_gets_its_node_its_address_and_its_container_while_it_starts() -> None:
    states = [pod_state(pod) for pod in _changes()[:4]]
    uid = "8b0b11a4-21d6-42ee-8def-16788c29e6fa"
    assert states[0] == PodState(uid)
    assert states[1] == PodState(uid, "tare-lab")
    assert (states[3].address, states[3].container, states[3].ready) == ("10.88.0.2", CONTAINER, True)


def test_a_pod_that_starts_or_runs_has_no_fault() -> None:
    assert [pod_fault(pod) for pod in _changes()[:4]] == [None] * 4
    assert pod_fault(_pod("no-handler")) is None  # which only a warning tells


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("no-image", 'ErrImageNeverPull: Container image "localhost/none:1" is not present', "lost the image"),
        ("no-registry", "ErrImagePull: failed to pull and unpack image", "can the node pull"),
        ("no-room", "cannot be scheduled: 0/1 nodes are available: 1 Insufficient cpu", "room for all pods"),
        ("rejected", "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu", "room for all pods"),
        ("ended", "the pod's container has ended with 3: Error", ""),
    ],
)
def test_a_pod_that_will_not_run_says_why(name: str, words: str, hint: str) -> None:
    fault = pod_fault(_pod(name))
    assert fault is not None
    assert words in str(fault)
    assert hint in fault.hint


def test_a_pod_that_the_kernel_has_ended_was_out_of_memory() -> None:
    assert isinstance(pod_fault(_pod("out-of-memory")), OutOfMemory)


@pytest.mark.parametrize(("name", "full"), [("no-room", True), ("rejected", True), ("ended", False)])
def test_a_node_without_room_differs_from_other_reasons(name: str, full: bool) -> None:
    assert isinstance(pod_fault(_pod(name)), Unschedulable) is full


@pytest.mark.parametrize(
    ("message", "full"),
    [
        ("0/1 nodes are available: 1 Insufficient memory. no new claims to deallocate", True),
        ("0/1 nodes are available: 1 Too many pods.", True),
        ("0/1 nodes are available: 1 node(s) had untolerated taint {a: b}", False),
        ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector", False),
    ],
)
def test_what_the_scheduler_refuses_for_lack_of_room(message: str, full: bool) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    fault = pod_fault({"status": {"phase": "Pending", "conditions": [condition]}})
    assert str(fault) == f"the pod cannot be scheduled: {message}"
    assert isinstance(fault, Unschedulable) is full


ONE, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
NAME = "registry.example/tare:1"


def test_a_pod_may_run_what_its_name_pins_and_earlier_pods_ran() -> None:
    ran = f"registry.example/tare@{ONE}"
    assert image_fault(NAME, ran, ran) is None
    assert image_fault(f"{NAME}@{ONE}", ran, ran) is None
    assert image_fault(NAME, f"docker-pullable://{ran}", ran) is None
    assert image_fault(NAME, ONE, ONE) is None  # imported by hand: the digest of its configuration


def test_a_tag_that_has_moved_in_mid_run_is_found() -> None:
    fault = image_fault(NAME, f"registry.example/tare@{OTHER}", f"registry.example/tare@{ONE}")
    assert fault is not None
    assert str(fault) == f"the pod ran the image {OTHER}, but the first one of this run {ONE}: {NAME} has moved"
    assert fault.hint == f'name the image by its digest: image = "…@{OTHER}"'


@pytest.mark.parametrize("ran", [f"registry.example/tare@{OTHER}", ONE[:-1], OTHER])
def test_another_image_than_the_name_pins_is_found_in_the_first_pod(ran: str) -> None:
    fault = image_fault(f"{NAME}@{ONE}", ran, ran)
    assert fault is not None
    assert str(fault).endswith(f", and not {ONE}, which `image` names")


def test_an_image_that_the_cluster_does_not_report_cannot_be_compared() -> None:
    assert str(image_fault(NAME, "", "")) == "the cluster does not report the digest of the pod's image"
    assert image_fault(NAME, ONE, "") is None


def test_an_evicted_pod_says_what_its_node_lacked() -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    assert str(pod_fault({"status": status})) == "the pod has failed: Evicted: The node was low on resource: memory."


def test_a_handler_that_the_node_lacks_is_named() -> None:
    message = (
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: "
        'no runtime for "absent" is configured'
    )
    fault = warning_fault(message)
    assert str(fault) == 'the node has no runtime handler "absent", which the RuntimeClass names'
    assert warning_fault("kubelet does not have ClusterDNS IP configured") is None


def test_events_are_of_containers_and_some_name_their_pod() -> None:
    events = [parse_event(line) for line in (SAMPLES / "events.txt").read_text().splitlines()]
    assert events[:3] == [
        None,
        ContainerEvent("/containers/create", SANDBOX),
        ContainerEvent("/containers/update", SANDBOX, "tare-p1"),
    ]
    starts = [event.container for event in events if event and event.topic == "/tasks/start"]
    assert starts == [SANDBOX, CONTAINER]
    assert parse_event("garbage") is None


def test_a_sandbox_has_the_address_and_a_container_has_not() -> None:
    sandbox, container = (parse_container((SAMPLES / f"{name}.json").read_text()) for name in ("sandbox", "container"))
    assert sandbox.is_sandbox
    assert sandbox.address.startswith("10.88.0.")
    around = "ecf891e6c0eae780d0eec090a12b32ff81edb8a0de70782cd128faea15767f6e"
    assert container == Container(
        container.container_id,
        "io.containerd.runsc.v1",
        "tare-good",
        sandbox.uid,
        is_sandbox=False,
        address="",
        sandbox_id=around,
    )
    assert sandbox.sandbox_id == ""


REFUSALS = [
    (
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
        "no answer of the cluster: The connection to the server localhost:8080 was refused",
        "name the cluster: KUBECONFIG",
    ),
    ('error: context "absent" does not exist', 'context "absent" does not exist', "kubectl config get-contexts"),
    (
        'Error from server (Forbidden): pods "p1" is forbidden: pod rejected: RuntimeClass "nope" not found',
        'the cluster refuses: pods "p1" is forbidden: pod rejected: RuntimeClass "nope" not found',
        "kubectl get runtimeclass",
    ),
    (
        'Error from server (Forbidden): pods is forbidden: User "guest" cannot create resource "pods" in API group ""',
        'the cluster refuses: pods is forbidden: User "guest" cannot create resource "pods"',
        "ask the cluster's administrator",
    ),
    (
        'Error from server (Forbidden): pods "p8" is forbidden: exceeded quota: q, requested: limits.memory=64Mi',
        "exceeded quota: q, requested: limits.memory=64Mi",
        "raise the quota",
    ),
    ('Error from server (AlreadyExists): namespaces "tare-e1" already exists', "already exists", "tare clean"),
    (
        "Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
        "the cluster does not answer within 5 s",
        "kubectl config current-context",
    ),
]


@pytest.mark.parametrize(("printed", "words", "hint"), REFUSALS)
def test_what_the_client_prints_becomes_an_error_with_a_hint(printed: str, words: str, hint: str) -> None:
    error = translate_error(Output(("kubectl",), 1, b"", printed.encode(), 0.1))
    assert isinstance(error, TrialFailed)
    assert words in str(error)
    assert hint in error.hint


# --- kata's machine as its host sees it: whose process is which, and which kernel it must have -----------------------

KATA_SANDBOX, KATA_CONTAINER, KATA_OTHER = "5a" * 32, "c0" * 32, "0f" * 32


def processes(sandbox: str) -> str:
    """What `ps -eo pid=,ppid=,args=` prints of one sandbox of Kata 3 with QEMU, and of another one."""
    shared = f"/run/kata-containers/shared/sandboxes/{sandbox}/shared"
    return f"""\
    1     0 /sbin/init
  100     1 /usr/bin/containerd
  200     1 /opt/kata/bin/containerd-shim-kata-v2 -namespace tare-1 -address /run/c.sock -id {sandbox}
  201   200 /opt/kata/libexec/virtiofsd --syslog --cache=auto --shared-dir={shared} --fd=3
  202   201 /opt/kata/libexec/virtiofsd --syslog --cache=auto --shared-dir={shared} --fd=3
  203     1 /opt/kata/bin/qemu-system-x86_64 -name sandbox-{sandbox} -machine q35,accel=kvm -daemonize
  300     1 /opt/kata/bin/containerd-shim-kata-v2 -namespace tare-1 -address /run/c.sock -id {KATA_OTHER}
  301     1 /opt/kata/bin/qemu-system-x86_64 -name sandbox-{KATA_OTHER} -machine q35,accel=kvm -daemonize
  400   390 ctr -n tare-1 run --cgroup=/{sandbox}/tare-container tare-image:1 {sandbox} /usr/lib/tare/init
"""


@dataclass
class Listing(LocalHost):
    """A host with these processes and pods; `find_running` are those that `pgrep` finds for each pattern."""

    listed: str = ""
    groups: str = ""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        if argv[0] == "pgrep":
            numbers = argv[-1].split("|")
            pids = [line.split()[0] for line in self.listed.splitlines() if any(each in line for each in numbers)]
            return Output(argv, 0, "\n".join(pids).encode(), b"", timeout)
        if argv[0] == "find":
            return Output(argv, 0, self.groups.encode(), b"", timeout)
        return Output(argv, 0, self.listed.encode(), b"", timeout)

    def read(self, path: str) -> str:
        return "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n" if path == "/proc/self/mounts" else ""


@pytest.mark.parametrize("name", ["tare-4711-00", KATA_SANDBOX])
def test_a_monitor_that_is_nobodys_child_belongs_to_its_container(name: str) -> None:
    assert set(find_helpers(Listing(listed=processes(name)), name)) == {200, 201, 202, 203}


def test_a_container_whose_name_begins_as_that_of_another_is_another() -> None:
    assert find_helpers(Listing(listed=processes("tare-1-00")), "tare-1-0") == ()


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/tare-1-00/clh-api.sock", True),
        ("/opt/kata/bin/virtiofsd --shared-dir /run/kata/tare-1-00/shared", True),
        ("qemu-system-x86_64 -name sandbox-tare-1-00,debug-threads=on -daemonize", True),
        ("qemu-system-x86_64 -name sandbox-tare-1-001 -daemonize", False),
        ("ctr run --cgroup=/tare-1-00/tare-container image tare-1-00", False),
        ("/usr/lib/tare/init 10.0.0.2:17007 --resident tare-1-00", False),
    ],
)
def test_a_part_of_the_machine_has_its_name_where_kata_writes_it(line: str, part: bool) -> None:
    assert is_machine_process(line, "tare-1-00") is part


@pytest.mark.parametrize("group", [f"kata_{KATA_SANDBOX}", f"kata-overhead-{KATA_CONTAINER[:8]}"])
def test_a_pod_monitor_counts_with_or_without_a_cgroup_of_the_sandbox_id(group: str) -> None:
    host = Listing(listed=processes(KATA_SANDBOX), groups=f"/sys/fs/cgroup/kubepods/pod1/{group}\n")
    pod = PodOnNode.find_running(host, "1", KATA_CONTAINER, KATA_SANDBOX)
    assert {200, 201, 202, 203} <= set(pod.helpers)
    assert not {300, 301} & set(pod.helpers)


@pytest.mark.parametrize(
    ("runtime", "kata"),
    [
        ("io.containerd.kata.v2", True),
        ("io.containerd.kata-qemu.v2", True),
        ("/opt/kata/bin/containerd-shim-kata-clh-v2", True),
        ("io.containerd.runc.v2", False),
        ("/opt/kata/bin/containerd-shim-runsc-v1", False),
        ("", False),
    ],
)
def test_a_runtime_is_katas_by_its_own_name(runtime: str, kata: bool) -> None:
    assert is_kata(runtime) is kata


def test_what_is_outside_of_the_group_is_pinned_with_all_its_threads() -> None:
    host = LocalHost()
    first = min(os.sched_getaffinity(0))
    with host.spawn("sleep", "60") as process:
        pin_processes(host, [process.pid], str(first))
        assert os.sched_getaffinity(process.pid) == {first}


@dataclass
class Booted(LocalHost):
    """A host whose kernel was started with these words."""

    words: str

    def read(self, path: str) -> str:
        return self.words if path == "/proc/cmdline" else "btime 1000\n"


def test_the_machines_own_kernel_under_katas_name_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm, "is_pvm", lambda _: False)
    machine, runtime = Booted("root=/dev/vda"), "io.containerd.kata.v2"
    [caution] = kernel_cautions(machine, machine, runtime)
    assert caution.kind == "shared-kernel"
    assert caution.text.startswith(f"{runtime} promises a separate kernel")
    assert kernel_cautions(machine, Booted("agent.log=info"), runtime) == ()
    assert [each.kind for each in instance_cautions(machine, Booted("agent.log=info"), runtime)] == ["never-run"]
    monkeypatch.setattr(kvm, "is_pvm", lambda _: True)
    assert [each.kind for each in kernel_cautions(machine, Booted("agent.log=info"), runtime)] == ["pvm"]
