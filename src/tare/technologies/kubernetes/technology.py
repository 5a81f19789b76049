"""Kubernetes: a pod of a cluster, with the runtime that its RuntimeClass names; the user's `kubectl` controls it.

tare runs on the node of the pods. There, it imports the image into containerd, pins the pod to its CPUs, and measures
the footprint of the pod on its node, including the runtime's helpers outside of the pod's control group. The pod has
the quality-of-service class Guaranteed: its requests equal its limits. The client reaches it at the pod's address.

In suites, `pod` is another name of this technology, and `pod-gvisor` has runtime_class = "gvisor".

Settings: `runtime_class` is the pod's `runtimeClassName`, by default the cluster's default runtime. `context` is a
context of the kubeconfig, by default the current one. `namespace` is an existing namespace for the pods; by default,
tare makes one for the run and deletes it. `node` is the name of this machine's node, by default the node that tare
finds. `pod` is a table that is merged into the pod's `spec`; its `annotations` and `labels` go into the metadata, and
its table `container` into the container. `image` is the name of the image in a registry, for nodes into which tare
cannot import an image. All pods of a run must have the same bytes under this name, and those of the digest if the name
has one (`name@sha256:…`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tare.hosts.facts import kernel_version
from tare.hosts.host import BOOT_ID, Host
from tare.images.skopeo import ensure_archive
from tare.model.errors import TrialFailed, did_you_mean
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Family, Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.technology import (
    CAPABILITIES,
    CGROUP_CONTROLLER_DIFFERENCES,
    ENGINE_FILE_DIFFERENCES,
    ENVIRONMENT,
    HOST_NAME,
    INIT,
    KERNEL_DIFFERENCES,
    UNPRIVILEGED_PORT_SYSCTL,
    LaunchRequest,
    Technology,
    find_missing_tools,
)
from tare.technologies import kata
from tare.technologies.gvisor import RAW_SOCKET_DIFFERENCES, Gvisor
from tare.technologies.kubernetes.node import SPACE, Container, Kubectl, PodOnNode, read_container
from tare.technologies.kubernetes.pod import PodHost, PodStart, image_fault

_SECONDS = 60.0
_CLIENT_PACKAGE = "kubernetes-client"
_CONTAINER = "tare"
_VOLUME = "tare-volume"
_EXEC_IN = "/usr/lib/tare/exec_in"  # in the image: it sets the limit on open files, which Kubernetes cannot set
_FORWARDING = "/proc/sys/net/ipv4/ip_forward"
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_RESERVED_KEYS = ("containers", "nodeName", "restartPolicy", "runtimeClassName")


@dataclass(frozen=True)
class Kubernetes(Technology):
    """Starts the image's `init` as the only container of a pod."""

    name = "kubernetes"
    title = "Kubernetes"
    family: ClassVar[Family] = "container"
    isolation = Isolation(
        "shared kernel",
        "namespaces and a control group, usually no filter of system calls; another RuntimeClass may isolate more",
    )
    needs = "kubectl, a node of a cluster with containerd"
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"kubectl": _CLIENT_PACKAGE, "ctr": "containerd", "iptables": "iptables"}
    list_commands = (("kubectl", "get", "--raw", "/api/v1/namespaces", "--request-timeout=5s"),)
    tests_path = "tests/lab/test_kubernetes.py"
    network_path = "pod"
    short_name = "pod"
    variant_setting = "runtime_class"
    needs_local_client = True  # no route leads to a pod from machines outside of the cluster

    runtime_class: str = ""
    context: str = ""
    namespace: str = ""
    node: str = ""
    pod: Mapping[str, Any] = field(default_factory=dict, hash=False)
    image: str = ""

    @property
    def expected_differences(self) -> Mapping[str, str]:
        """The mounts of the container runtime, and with a runtime class also the differences of another kernel."""
        kernel = (
            {**KERNEL_DIFFERENCES, **Gvisor.expected_differences, **RAW_SOCKET_DIFFERENCES}
            if self.runtime_class
            else {}
        )
        return {
            **ENGINE_FILE_DIFFERENCES,
            **CGROUP_CONTROLLER_DIFFERENCES,
            **kernel,
            "mount /dev/termination-log": "the kubelet mounts it",
        }

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """The packages of its tools except the client: clusters ship a kubectl of their version."""
        return tuple(package for package in super().debian_packages if package != _CLIENT_PACKAGE)

    def kubectl(self, host: Host) -> Kubectl:
        """Return the client for the stack's context."""
        return Kubectl(host, self.context)

    def version(self, host: Host) -> str:
        """Return the version of the cluster's API server; "" if there is no kubectl or no response."""
        if find_missing_tools(host, {"kubectl": ""}):
            return ""
        try:
            return str(self.kubectl(host).get("/version").get("gitVersion", "")).removeprefix("v")
        except TrialFailed:
            return ""

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem of the cluster, of its RuntimeClass, or of this node."""
        if missing := find_missing_tools(host, self.tools):
            return missing
        try:
            return self._cluster_problems(self.kubectl(host))
        except TrialFailed as error:
            return (Problem(str(error), error.hint, missing="yours"),)

    def variants(self, host: Host) -> Sequence[str]:
        """Return the cluster's RuntimeClasses."""
        return _list_runtime_classes(self.kubectl(host))

    def _cluster_problems(self, kubectl: Kubectl) -> tuple[Problem, ...]:
        names = _list_runtime_classes(kubectl)
        if self.runtime_class and self.runtime_class not in names:
            what = f'the cluster has no RuntimeClass "{self.runtime_class}", but {", ".join(names) or "none"}'
            fix = did_you_mean(self.runtime_class, names, "kubectl get runtimeclass")
            return (Problem(what, fix, missing="yours"),)
        self._find_node(kubectl)
        if not self.namespace:
            review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "namespaces"}}}
            response = kubectl.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
            if not response.get("status", {}).get("allowed"):
                return (Problem("you may not create namespaces in the cluster", 'namespace = "NAME"'),)
        return ()

    def _find_node(self, kubectl: Kubectl) -> dict[str, Any]:
        """Return the node on whose machine kubectl runs; raises TrialFailed if the machine is no node."""
        nodes = kubectl.get("/api/v1/nodes")["items"]
        # A node's name need not be the machine's host name, but the boot ID is unique.
        boot = kubectl.host.read(BOOT_ID).strip()
        here = [node for node in nodes if node["status"]["nodeInfo"]["bootID"] == boot]
        names = [node["metadata"]["name"] for node in here]
        if self.node and self.node not in names:
            known = [node["metadata"]["name"] for node in nodes]
            what = f"{self.node} is another machine" if self.node in known else f"the cluster has no node {self.node}"
            raise TrialFailed(f"{what}; this machine is {', '.join(names) or 'no node'}", _other_node_hint(known))
        if not here:
            known = [node["metadata"]["name"] for node in nodes]
            raise TrialFailed("this machine is no node of the cluster", _other_node_hint(known))
        return next(node for node in here if self.node in ("", node["metadata"]["name"]))

    def prepare_image(self, host: Host, image: Image) -> None:
        """Import the image into the node's containerd, unless it has it; the name has the hash of the content."""
        if not self.image and not SPACE.has_image(host, _image_name(image)):
            ensure_archive(host, image)
            SPACE.import_image(host, image, _image_name(image), ENVIRONMENT)

    def remove_images(self, host: Host, tag: str) -> None:
        """Remove the images from the node's containerd."""
        SPACE.remove_images(host, f"localhost/{tag}")

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Create a pod, and wait until the cluster reports that it is ready."""
        launch.prepare_image(self, host)
        kubectl, cache = self.kubectl(host), launch.cache
        node = json.loads(cache.read_once(f"node of {self!r}", lambda: json.dumps(self._find_node(self.kubectl(host)))))
        key = f"namespace of {self.context}"
        namespace = self.namespace or cache.create_once(key, lambda: self._create_namespace(host, launch))
        cache.create_once("forwarding to pods", lambda: _forward_packets(host, launch))
        pod = self._manifest(launch, namespace, node["metadata"]["name"])
        remove = ("delete", "pod", launch.name, f"--namespace={namespace}", "--ignore-not-found", "--grace-period=1")
        with ExitStack() as stack:
            uids: list[str] = []

            def pin() -> None:
                """Pin the pod before its runtime starts: some runtimes read the number of CPUs only at the start."""
                for uid in uids:
                    PodOnNode.find_starting(launch.ledger.host, uid).pin(launch.cpu_list)

            start = PodStart(kubectl, namespace, launch.name, pin, launch.start_probe)
            undo = self._undo_command(host, launch, *remove, "--timeout=50s")
            stack.enter_context(launch.ledger.register_undo(*undo))
            with start.follow(host, has_containerd_events=True):
                launch.timeline.mark("requested")
                launch.timeline.mark("started")
                uids.append(kubectl.create(start.pods, pod)["metadata"]["uid"])
                start.await_ready(launch.start_timeout_seconds)
            self._check_image(launch, start.state.image)
            for name, seconds in start.moments.items():
                launch.timeline.mark(name, seconds)
            yield self._describe_instance(host, launch, start, node)

    def _describe_instance(
        self, host: Host, launch: LaunchRequest, start: PodStart, node: Mapping[str, Any]
    ) -> Instance:
        state, helper, reader = start.state, launch.ledger.setup_helper, launch.ledger.host
        container = read_container(start.kubectl.host, state.container)
        pod = PodOnNode.find_running(reader, state.uid, state.container, container.sandbox_id)
        root = pod.find_root()
        pinned = pod.pin(launch.cpu_list)
        cautions = [] if pinned else [Caution("pod-not-pinned", "the pod may run on every CPU of its node")]
        variables = (word for variable in ENVIRONMENT for word in ("-e", variable))
        enter = (_EXEC_IN, "-f", str(launch.limits.open_files), *variables, "--")
        inside = PodHost(host, start.kubectl, start.path, enter)
        if kata.is_kata(container.runtime):
            kata.pin_processes(reader, pod.helpers, launch.cpu_list)
            cautions += kata.instance_cautions(reader, inside, container.runtime)
        return Instance(
            name=launch.name,
            inside=inside,
            address=state.address,
            network_path=self.network_path,
            processes=pod.processes,
            proof={
                **self._proof(start, node, container),
                "control group": pod.group,
                "kernel": launch.cache.read_once(f"kernel of {self!r}", lambda: kernel_version(inside)),
            },
            written_bytes=lambda: helper.bytes_below(root.upper) if root.upper else None,
            image_bytes=lambda: sum(map(helper.bytes_below, root.lower)) if root.lower else None,
            cautions=tuple(cautions),
        )

    def _check_image(self, launch: LaunchRequest, image_id: str) -> None:
        """Raise TrialFailed if the pod's image differs from that of earlier pods, or from the digest in `image`."""
        if self.image:
            first = launch.cache.read_once(f"what {self.image} of {self.context} is", lambda: image_id)
            if fault := image_fault(self.image, image_id, first):
                raise fault

    def _proof(self, start: PodStart, node: Mapping[str, Any], container: Container) -> dict[str, str]:
        """Return the software that ran the pod, as the cluster and the node's containerd report it."""
        info = node["status"]["nodeInfo"]
        proof = {
            "kubelet": info["kubeletVersion"],
            "container runtime": info["containerRuntimeVersion"],
            "runtime": container.runtime or "unknown",
            "node": node["metadata"]["name"],
            "image": start.state.image,
        }
        if self.runtime_class:
            runtime_class = start.kubectl.get(f"{_CLASSES}/{self.runtime_class}")
            overhead = (runtime_class.get("overhead") or {}).get("podFixed") or {}
            declared = ", ".join(f"{name} {amount}" for name, amount in sorted(overhead.items())) or "none"
            handler = runtime_class["handler"]
            proof |= {"RuntimeClass": self.runtime_class, "handler": handler, "podFixed": declared}
        return proof

    def _manifest(self, launch: LaunchRequest, namespace: str, node: str) -> dict[str, Any]:
        """Return the manifest of the pod; raises TrialFailed if the setting `pod` has a key that tare sets."""
        amounts = {"cpu": str(len(launch.limits.cpus)), "memory": str(launch.limits.memory_bytes)}
        init = (INIT, launch.listen_address("0.0.0.0"))  # noqa: S104 - inside the pod
        user_spec = {key: value for key, value in self.pod.items() if key not in ("annotations", "labels", "container")}
        if reserved := [key for key in user_spec if key in _RESERVED_KEYS]:
            hint = "leave it out; `container` is for the container"
            raise TrialFailed(f"pod: {reserved[0]} is set by tare", hint)
        container = {
            "name": _CONTAINER,
            "image": self.image or _image_name(launch.image),
            "imagePullPolicy": "IfNotPresent" if self.image else "Never",
            "command": [_EXEC_IN, "-f", str(launch.limits.open_files), "--", *init],
            "resources": {"requests": amounts, "limits": amounts},
            "securityContext": {"capabilities": {"drop": ["ALL"], "add": [name[4:] for name in CAPABILITIES]}},
            **({"volumeMounts": [{"name": _VOLUME, "mountPath": VOLUME}]} if launch.volume_bytes else {}),
        }
        # An affinity, not `nodeName`: the scheduler then checks the node's capacity, and reports if there is none.
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
        spec = {
            "affinity": {"nodeAffinity": required},
            "automountServiceAccountToken": False,  # the programs inside must not reach the cluster
            "enableServiceLinks": False,  # its variables would differ from those of other stacks
            "hostname": HOST_NAME,
            "securityContext": {"sysctls": [{"name": UNPRIVILEGED_PORT_SYSCTL, "value": "0"}]},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            **({"runtimeClassName": self.runtime_class} if self.runtime_class else {}),
            **({"volumes": [{"name": _VOLUME, "emptyDir": {}}]} if launch.volume_bytes else {}),
            "containers": [_merge_tables(container, self.pod.get("container", {}))],
        }
        labels = {"app.kubernetes.io/managed-by": "tare", **self.pod.get("labels", {})}
        names = {"name": launch.name, "namespace": namespace, "labels": labels}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**names, "annotations": dict(self.pod.get("annotations", {}))},
            "spec": _merge_tables(spec, user_spec),
        }

    @contextmanager
    def _create_namespace(self, host: Host, launch: LaunchRequest) -> Iterator[str]:
        """Context manager: make the run's namespace; delete it with all its contents after the block."""
        name = launch.network.prefix
        remove = ("delete", "namespace", name, "--ignore-not-found", "--timeout=50s")
        with launch.ledger.register_undo(*self._undo_command(host, launch, *remove)):
            self.kubectl(host).create("/api/v1/namespaces", {"metadata": {"name": name}})
            yield name

    def _undo_command(self, host: Host, launch: LaunchRequest, *words: str) -> tuple[str, ...]:
        """Return a kubectl command with its kubeconfig: `tare clean` may run it in another environment."""
        script = ("sh", "-c", 'printf %s "$KUBECONFIG"')
        config = launch.cache.read_once("KUBECONFIG", lambda: launch.ledger.host.run(*script, timeout=_SECONDS).text)
        return (*(("env", f"KUBECONFIG={config}") if config else ()), *self.kubectl(host).argv(*words))


def _list_runtime_classes(kubectl: Kubectl) -> list[str]:
    return [item["metadata"]["name"] for item in kubectl.get(_CLASSES)["items"]]


def _other_node_hint(nodes: Sequence[str]) -> str:
    where = " or ".join(nodes) or "a node"
    return f'run tare on {where}, or name it in [hosts.server] and [hosts.client]: ssh = "root@NODE"'


def _image_name(image: Image) -> str:
    return f"localhost/{image.tag}"


def _merge_tables(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` merged with `more`: tables are merged by key, lists of tables joined, other values replaced."""
    return {**base, **{key: _merge_values(base.get(key), value) for key, value in more.items()}}


def _merge_values(base: object, more: object) -> object:
    match base, more:
        case Mapping(), Mapping():
            return _merge_tables(base, more)
        case [Mapping(), *_], [Mapping(), *_]:
            return [*base, *more]
        case _:
            return more


@contextmanager
def _forward_packets(host: Host, launch: LaunchRequest) -> Iterator[str]:
    """Context manager: let the machine forward packets between the client and its pods, despite its firewall."""
    port = f"{launch.network.prefix}-m"
    with ExitStack() as stack:
        for direction in ("-i", "-o"):
            rule = ("FORWARD", direction, port, "-m", "comment", "--comment", launch.network.prefix, "-j", "ACCEPT")
            stack.enter_context(launch.ledger.register_undo("iptables", "-w", "-D", *rule))
            host.run("iptables", "-w", "-I", *rule, timeout=_SECONDS)
        host.run("sh", "-c", f"echo 1 > {_FORWARDING}", timeout=_SECONDS)  # the network's own undo restores it
        yield port
