"""Pods of a real cluster, on its node: `make test-kubernetes` starts it, and runs these and contract tests there."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab_runs import TARE, done, ended
from node_ssh import node_over_ssh
from registry import registry
from waiting import ENOUGH_SECONDS

from tare.model.run_folder import Run, load_raw, load_run

pytestmark = [pytest.mark.machine, pytest.mark.lab]

EXAMPLES = Path(__file__).parents[2] / "examples"
BLOCKS = 5
BOTH = ("server", "client")
# The image is the example's: none can be built on the node, whose network leads nowhere.
HEAD = '[suite]\nstacks = ["native", "pod"]\nblocks = 1\n[image]\npackages = ["nginx-light", "redis-server"]\n'
STARTS = '[[workloads]]\nuse = "startup"\n'
LONG = '[[workloads]]\nuse = "redis"\noperations = ["GET"]\nclients = [50]\nduration = "5s"\n'


@pytest.fixture(autouse=True)
def _on_a_node() -> Iterator[None]:
    """Skip elsewhere; nothing of tare's is left in the cluster after a test."""
    if not os.environ.get("TARE_LAB_GUEST"):
        pytest.skip("not on the node of a cluster: make test-kubernetes")
    yield
    assert _ours() == []


def _kubectl(*words: str) -> str:
    done_ = subprocess.run(("kubectl", *words), capture_output=True, text=True, timeout=60, check=True)
    return done_.stdout


def _ours() -> list[str]:
    """Name tare's namespaces, and its pods with their phases."""
    names = _kubectl("get", "namespaces", "-o", "name").split()
    form = 'jsonpath={range .items[*]}{.metadata.name}={.status.phase}{"\\n"}{end}'
    pods = _kubectl("get", "pods", "--all-namespaces", "-o", form).split()
    return [name for name in (*names, *pods) if "tare-" in name]


def _suite(folder: Path, workload: str, **settings: object) -> Path:
    """Write a suite of bare metal and a pod with these settings."""
    folder.mkdir(parents=True, exist_ok=True)
    table = "".join(f"{key} = {_toml(value)}\n" for key, value in {"stack": "kubernetes", **settings}.items())
    path = folder / "suite.toml"
    path.write_text(f"{HEAD}{workload}[stacks.pod]\n{table}")
    return path


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


def _reason(run: Run) -> tuple[str, str]:
    """Return how the pod's only trial has ended, and why."""
    (trial,) = [trial for trial in run.trials if trial.stack == "pod"]
    return trial.status, trial.reason or ""


def _outcomes(run: Run) -> set[tuple[str, str, str]]:
    return {(trial.stack, trial.status, trial.reason or "") for trial in run.trials}


def _all_ok(*stacks: str) -> set[tuple[str, str, str]]:
    return {(stack, "ok", "") for stack in stacks}


@contextmanager
def _going(suite: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a run that goes on beside the block; it is ended with it."""
    run = subprocess.Popen((str(TARE), "run", str(suite), "--out", str(out)), stderr=subprocess.DEVNULL)
    try:
        yield run
    finally:
        if run.poll() is None:
            run.kill()
        run.wait(ENOUGH_SECONDS)


def _await(what: Callable[[], Sequence[str]]) -> Sequence[str]:
    deadline = time.monotonic() + ENOUGH_SECONDS
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def _running_pods() -> list[str]:
    return [name.partition("=")[0] for name in _ours() if name.endswith("=Running")]


def test_the_example_runs_pods_of_both_classes_and_skips_a_missing_class(tmp_path: Path) -> None:
    run = done(_with_few_blocks("kubernetes.toml", BLOCKS, tmp_path), tmp_path / "run")
    assert {(trial.stack, trial.status) for trial in run.trials} == {
        (stack, "ok") for stack in ("native", "native-again", "pod", "pod-gvisor")
    } | {("pod-kata", "skipped")}
    none = 'the cluster has no RuntimeClass "kata", but absent, gvisor, kata-stand-in, runc'
    assert {trial.reason for trial in run.trials if trial.stack == "pod-kata"} == {
        f"{none} (fix: kubectl get runtimeclass)"
    }
    proof = {trial.stack: dict(trial.proof)["runtime"] for trial in run.trials if trial.stack in ("pod", "pod-gvisor")}
    assert proof == {"pod": "io.containerd.runc.v2", "pod-gvisor": "io.containerd.runsc.v1"}
    for trial in run.trials:
        if trial.stack in ("pod", "pod-gvisor"):
            names = {mark.name for mark in trial.timeline}
            assert {"requested", "scheduled", "sandbox", "container", "ready", "reported"} <= names


def _with_few_blocks(example: str, blocks: int, folder: Path) -> Path:
    few = folder / "suite.toml"
    text = (EXAMPLES / example).read_text().replace("blocks = 30", f"blocks = {blocks}")
    few.write_text(text.replace('budget = "5m"\n', ""))
    return few


def test_one_gvisor_is_measured_by_itself_in_containerd_and_in_a_pod(tmp_path: Path) -> None:
    run = done(_with_few_blocks("gvisor-layers.toml", 1, tmp_path), tmp_path / "run")
    assert _outcomes(run) == _all_ok("gvisor", "gvisor-again", "containerd-gvisor", "pod-gvisor")
    runtimes = {trial.stack: dict(trial.proof)["runtime"].split()[0] for trial in run.trials}
    assert runtimes["containerd-gvisor"] == runtimes["pod-gvisor"] == "io.containerd.runsc.v1"


def test_pods_and_containers_are_tried_by_their_names(tmp_path: Path) -> None:
    image = ("--package", "nginx-light", "--package", "redis-server")
    words = ("try", "--on", "native,pod,pod-gvisor,containerd-gvisor", *image, "--budget", "1s")
    run = ended(*words, "--", "sh", "-c", "sleep 0.01", folder=tmp_path / "run")
    assert _outcomes(run) == _all_ok("native", "native-again", "pod", "pod-gvisor", "containerd-gvisor")


def test_doctor_names_the_pods_that_the_cluster_can_start() -> None:
    said = subprocess.run((str(TARE), "doctor", "--json"), capture_output=True, text=True, timeout=300, check=True)
    found = {each["name"]: each for each in json.loads(said.stdout)["technologies"]}
    assert found["kubernetes"]["also"] == ["pod", "pod-absent", "pod-gvisor", "pod-kata-stand-in", "pod-runc"]
    assert "containerd-gvisor" in found["containerd"]["also"]


def test_a_node_over_ssh_runs_pods_as_it_does_by_itself(tmp_path: Path) -> None:
    suite = _suite(tmp_path, STARTS, runtime_class="gvisor")
    (tmp_path / "there").mkdir()
    with node_over_ssh(tmp_path / "there") as there:
        hosts = (f'[hosts.{name}]\nssh = "{there.ssh}"\nssh_config = "{there.ssh_config}"\n' for name in BOTH)
        suite.write_text(suite.read_text() + "".join(hosts))
        run = done(suite, tmp_path / "run")
    assert _outcomes(run) == _all_ok("native", "native-again", "pod")


def test_a_kata_pod_counts_and_pins_its_vm_and_warns_of_a_shared_kernel(tmp_path: Path) -> None:
    run = done(_suite(tmp_path, STARTS, runtime_class="kata-stand-in"), tmp_path / "run")
    (trial,) = [trial for trial in run.trials if trial.stack == "pod"]
    proof = dict(trial.proof)
    assert trial.status == "ok", trial.reason
    assert (proof["runtime"], proof["handler"]) == ("io.containerd.kata.v2", "kata")
    assert proof["podFixed"] == "cpu 250m, memory 160Mi"
    assert proof["kernel"].startswith("Linux version")
    assert {"never-run", "shared-kernel"} <= {caution.kind for caution in trial.cautions}
    assert trial.footprint is not None
    assert trial.footprint.processes >= 4  # the pod's own two, the shim, and the stand-in for the machine's monitor


def test_tare_clean_deletes_what_a_killed_run_has_left_in_the_cluster(tmp_path: Path) -> None:
    with _going(_suite(tmp_path, LONG, runtime_class="gvisor"), tmp_path / "run") as run:
        _await(_running_pods)
        run.send_signal(signal.SIGKILL)
        run.wait(ENOUGH_SECONDS)
    assert [name for name in _ours() if name.startswith("namespace/tare-")]
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    subprocess.run((str(TARE), "clean"), env=environment, timeout=ENOUGH_SECONDS, check=True)
    assert _ours() == []


def test_a_pod_that_somebody_deletes_costs_a_trial_and_its_reason_says_so(tmp_path: Path) -> None:
    with _going(_suite(tmp_path, LONG, runtime_class="runc"), tmp_path / "run") as run:
        (pod,) = _await(_running_pods)
        time.sleep(3)  # the pod is entered by then
        _kubectl("delete", "pod", pod, f"--namespace={'-'.join(pod.split('-')[:2])}", "--grace-period=1")
        run.wait(ENOUGH_SECONDS)
    status, reason = _reason(load_run(tmp_path / "run"))
    assert status == "failed"
    assert "somebody else has deleted the pod" in reason


@pytest.mark.parametrize(
    ("settings", "status", "words"),
    [
        ({"runtime_class": "absent"}, "failed", 'the node has no runtime handler "absent"'),
        ({"runtime_class": "gvizor"}, "skipped", 'the cluster has no RuntimeClass "gvizor", but absent, gvisor, kata'),
        ({"context": "elsewhere"}, "skipped", 'context "elsewhere" does not exist'),
        ({"node": "elsewhere"}, "skipped", "the cluster has no node elsewhere; this machine is tare-lab"),
        ({"namespace": "absent"}, "failed", 'namespaces "absent" not found'),
        ({"image": "localhost:9/none:1"}, "failed", "ErrImagePull: "),
        (
            {"pod": {"container": {"resources": {"requests": {"cpu": "64"}, "limits": {"cpu": "64"}}}}},
            "failed",
            "the pod cannot be scheduled: 0/1 nodes are available: 1 Insufficient cpu",
        ),
        ({"pod": {"containers": []}}, "failed", "pod: containers is set by tare"),
    ],
    ids=["handler", "class", "context", "node", "namespace", "image", "room", "own"],
)
def test_what_is_wrong_with_a_pod_is_the_reason_of_its_trial(
    settings: dict[str, object], status: str, words: str, tmp_path: Path
) -> None:
    run = done(_suite(tmp_path, STARTS, **settings), tmp_path / "run")
    became, reason = _reason(run)
    assert (became, words in reason) == (status, True), reason


def test_pods_are_counted_until_the_node_has_no_room_for_another_one(tmp_path: Path) -> None:
    cpus = os.cpu_count() or 1
    most = f'[[workloads]]\nuse = "redis-density"\nmost = {cpus + 1}\ngoal = "60s"\n'
    run = done(_suite(tmp_path, most, runtime_class="gvisor"), tmp_path / "run")
    (trial,) = [trial for trial in run.trials if trial.stack == "pod"]
    assert (trial.status, trial.reason) == ("ok", "")
    last = load_raw(run.folder, trial.trial)[-1]
    assert (last.label, "Insufficient cpu" in last.text) == ("end: no room", True), last.text
    found = {value.metric: value.value for value in trial.values if value.point is None}
    assert found["instances"] == cpus
    assert found["further"] > 0


def _served_image(folder: Path) -> tuple[Path, Path]:
    """Write the image that the node has as a layout, and another one that differs in its configuration alone."""
    names = _ctr("images", "list", "--quiet").split()
    archive, one, other = folder / "image.tar", folder / "one", folder / "other"
    _ctr("images", "export", str(archive), next(name for name in names if name.startswith("localhost/tare-image:")))
    with tarfile.open(archive) as packed:
        packed.extractall(one, filter="data")
    archive.unlink()
    blobs = one / "blobs/sha256"

    def keep(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    index = json.loads((one / "index.json").read_bytes())
    manifest = json.loads((blobs / index["manifests"][0]["digest"].removeprefix("sha256:")).read_bytes())
    config = json.loads((blobs / manifest["config"]["digest"].removeprefix("sha256:")).read_bytes())
    manifest["config"] |= keep(json.dumps(config | {"author": "another"}).encode())
    index["manifests"][0] |= keep(json.dumps(manifest).encode())
    other.mkdir()
    (other / "blobs").symlink_to(one / "blobs")
    (other / "index.json").write_text(json.dumps(index))
    return one, other


def _ctr(*words: str) -> str:
    return subprocess.run(("ctr", "-n", "k8s.io", *words), capture_output=True, text=True, check=True).stdout


def _lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


def test_a_registry_tag_that_moves_during_a_run_fails_the_later_trials(tmp_path: Path) -> None:
    done(_suite(tmp_path / "import", STARTS), tmp_path / "import" / "run")
    one, other = _served_image(tmp_path)
    (described,) = json.loads((one / "index.json").read_bytes())["manifests"]
    layouts = {"tare": one}
    pulled = {"container": {"imagePullPolicy": "Always"}}
    with registry(layouts) as address:
        pinned = _suite(tmp_path / "pinned", STARTS, image=f"{address}/tare@{described['digest']}")
        assert _reason(done(pinned, tmp_path / "pinned" / "run")) == ("ok", "")
        suite = _suite(tmp_path, STARTS, image=f"{address}/tare:latest", pod=pulled)
        suite.write_text(suite.read_text().replace("blocks = 1\n", 'blocks = 3\nuntil = "blocks"\n'))
        with _going(suite, tmp_path / "run") as run:
            _await(lambda: _lines(tmp_path / "run" / "trials.jsonl"))
            layouts["tare"] = other
            run.wait(ENOUGH_SECONDS)
    ended = [(trial.status, trial.reason) for trial in load_run(tmp_path / "run").trials if trial.stack == "pod"]
    assert ended[0] == ("ok", "")
    assert ended[-1][0] == "failed"
    assert f"the first one of this run {described['digest']}: {address}/tare:latest has moved" in ended[-1][1]


def test_who_may_nothing_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.environ["TARE_LAB_GUEST"])
    status, reason = _reason(done(_suite(tmp_path, STARTS), tmp_path / "run"))
    assert status == "skipped"
    assert 'User "guest" cannot list resource "runtimeclasses"' in reason


def test_a_cluster_that_does_not_answer_takes_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        (sys.executable, "-c", silent), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{server.stdout.readline().strip()}"
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        run = done(_suite(tmp_path, STARTS), tmp_path / "run")
        server.terminate()
    status, reason = _reason(run)
    assert status == "skipped"
    assert "the cluster does not answer within 5 s" in reason
