"""Runs a command on the one node of a Kubernetes cluster, which lives as long as the command does.

    python tests/lab/cluster.py .venv/bin/tare run examples/kubernetes.toml

Node and command are in mount, process and network namespaces of their own, whose first process this script is: when it
ends, the kernel ends all others. What is left are control groups and a folder, which its parent removes, and after a
kill, the next one that starts. The RuntimeClasses are `runc` and `gvisor`, `kata-stand-in`, which runs runc under
Kata's name (tests/lab/shims), and `absent`, whose handler the node lacks.
In the environment, KUBECONFIG names the administrator's file, and TARE_LAB_GUEST one of a user who may do nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gvisor_built import NotBuilt, shim
from kube_built import PAUSE, built

from tare.hosts.ledger import create_state_folder

_NODE, _ADDRESS = "tare-lab", "10.99.0.1"
_SUBNET = "10.88.0.0/24"
_READY_SECONDS = 120.0
_SOCKET = "/run/containerd/containerd.sock"
_SERVER = "https://127.0.0.1:6443"
# Written by kubelet, which the machine must not notice.
_KERNEL = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_OWN = ("/run", "/var/log", "/var/lib/cni", "/usr/libexec")
_KUBELET = "/var/lib/kubelet"
_CLASSES = {"runc": "runc", "gvisor": "runsc", "kata-stand-in": "kata", "absent": "absent"}
_KATA_COSTS: dict[str, object] = {"overhead": {"podFixed": {"memory": "160Mi", "cpu": "250m"}}}  # as of Kata's own
_KATA_SHIM = Path(__file__).parent / "shims/containerd-shim-kata-v2"
_GROUPS = ("kubepods", "k8s.io")
_END_SECONDS = 20.0
_INSIDE = "--inside"
_ALONE = ("setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")


def main(argv: Sequence[str]) -> int:
    """Run a command in a cluster; return its exit code."""
    if argv[:1] == [_INSIDE]:
        return _first_process(Path(argv[1]), Path(argv[2]), argv[3:])
    if not argv or os.geteuid():
        sys.stderr.write("usage, by root: cluster.py COMMAND…\n")
        return 2
    try:
        programs = built()
    except NotBuilt as error:
        sys.stderr.write(f"error: the cluster's programs: {error}\n")
        return 3
    with _folder() as folder:
        inner = (sys.executable, __file__, _INSIDE, str(folder), str(programs), *argv)
        return subprocess.run((*_ALONE, *inner), check=False).returncode


@contextmanager
def _folder() -> Iterator[Path]:
    """Make the folder of the cluster; remove it afterwards, with the control groups. There is one cluster at a time."""
    folder = create_state_folder() / "cluster"
    with Path("/run/lock/tare-lab-cluster").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        _remove(folder)  # of one that was killed
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    tops = [top for group in _GROUPS for top in Path("/sys/fs/cgroup").glob(f"**/{group}") if top.is_dir()]
    deadline = time.monotonic() + _END_SECONDS
    while any(top.exists() for top in tops) and time.monotonic() < deadline:
        subprocess.run(
            ("find", *tops, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"), check=False, stderr=subprocess.DEVNULL
        )
        time.sleep(0.1)


def _first_process(folder: Path, programs: Path, argv: Sequence[str]) -> int:
    """Start the cluster and the command, as the first process of the namespaces."""
    (folder / "logs").mkdir()
    _prepare_node(folder)
    environment = _environment(folder, programs)
    cluster = _Cluster(folder, programs, environment)
    _start_servers(cluster)
    _make_ready(cluster, programs)
    command = subprocess.Popen(argv, env=environment)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: command.send_signal(number))
    while True:  # all that lost its parent is this process's child
        child, status = os.wait()
        if child == command.pid:
            return os.waitstatus_to_exitcode(status) % 256


def _prepare_node(folder: Path) -> None:
    """Set up mounts, an address and kernel settings of the node's own."""
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "proc", "proc", "/proc")
    if " /sys/fs/cgroup/unified cgroup2 " in Path("/proc/self/mounts").read_text():
        _run("umount", "/sys/fs/cgroup/unified")
    for place in _OWN:
        Path(place).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", place)
    for place in ("/run/lock", "/run/netns"):
        Path(place).mkdir()
    on_disk = folder / "kubelet"  # pods' data volumes are there
    for each in (on_disk, Path(_KUBELET)):
        each.mkdir(exist_ok=True)
    _run("mount", "--bind", str(on_disk), _KUBELET)
    _run("mount", "--make-rshared", "/")
    for name in _KERNEL:
        copy = Path("/run", name.replace("/", "-"))
        copy.write_text(Path("/proc/sys", name).read_text())
        _run("mount", "--bind", str(copy), f"/proc/sys/{name}")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{_ADDRESS}/32", "dev", "lo")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _environment(folder: Path, programs: Path) -> dict[str, str]:
    """Write the files of the cluster; return the environment of all its processes."""
    binaries = folder / "bin"
    binaries.mkdir()
    for program in (programs / "kubectl", programs / "etcd", shim(), shim().with_name("runsc"), _KATA_SHIM):
        (binaries / program.name).symlink_to(program)
    _write_containerd(folder)
    _write(folder / "kubelet.json", _kubelet(folder))
    (folder / "tokens.csv").write_text('admin,admin,1,"system:masters"\nguest,guest,2\n')
    for user in ("admin", "guest"):
        _write(folder / f"{user}.json", _config_of(user))
    _run("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", str(folder / "key"))
    home = folder / "home"
    home.mkdir()
    return os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "HOME": str(home),
        "KUBECONFIG": str(folder / "admin.json"),
        "TARE_LAB_GUEST": str(folder / "guest.json"),
        "no_proxy": "*",
    }


class _Cluster:
    """The servers of the cluster, and what is asked of them as the administrator."""

    def __init__(self, folder: Path, programs: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._programs = programs
        self._environment = environment

    def start(self, name: str, *options: str) -> None:
        """Start a server; it writes to the file of its name in `logs`."""
        program = self._programs / name
        log = (self.folder / "logs" / name).open("wb")
        argv = (str(program) if program.exists() else name, *options)
        subprocess.Popen(
            argv, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def ask(self, *words: str, text: str = "") -> str | None:
        """Return what `kubectl` prints, or None if it fails."""
        argv = (str(self._programs / "kubectl"), *words)
        done = subprocess.run(argv, env=self._environment, input=text, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; end with the servers' last words if it never does."""
        deadline = time.monotonic() + _READY_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                logs = [path.read_text(errors="replace")[-800:] for path in sorted((self.folder / "logs").iterdir())]
                sys.exit(f"error: the cluster: no {what} within {_READY_SECONDS:g} s\n" + "\n".join(logs))
            time.sleep(0.1)


def _start_servers(cluster: _Cluster) -> None:
    folder = cluster.folder
    etcd = {name: f"http://127.0.0.1:{port}" for name, port in (("client", 2379), ("peer", 2380))}
    cluster.start(
        "etcd",
        "--data-dir=/run/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={etcd['client']}",
        f"--advertise-client-urls={etcd['client']}",
        f"--listen-peer-urls={etcd['peer']}",
    )
    cluster.start("containerd", f"--config={folder}/containerd.toml")
    cluster.start("kube-apiserver", *_apiserver(folder, etcd["client"]))
    cluster.wait("API server", lambda: cluster.ask("get", "--raw", "/readyz") == "ok")
    cluster.start("kube-scheduler", f"--kubeconfig={folder}/admin.json", "--leader-elect=false", "--secure-port=0")
    cluster.start("namespace-controller")
    node = (f"--hostname-override={_NODE}", f"--node-ip={_ADDRESS}", f"--root-dir={_KUBELET}")
    cluster.start("kubelet", f"--config={folder}/kubelet.json", f"--kubeconfig={folder}/admin.json", *node)


def _make_ready(cluster: _Cluster, programs: Path) -> None:
    """Wait until a pod of each class can be started."""
    pause = ("ctr", "-n", "k8s.io", "images", "import", str(programs / "pause.tar"))
    subprocess.run(pause, capture_output=True, check=True)
    kind: dict[str, object] = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    classes = [
        {**kind, "metadata": {"name": name}, "handler": handler, **(_KATA_COSTS if handler == "kata" else {})}
        for name, handler in _CLASSES.items()
    ]
    cluster.ask("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": classes}))
    ready = 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
    cluster.wait("ready node", lambda: cluster.ask("get", "nodes", "-o", ready) == "True")

    def untainted() -> bool:
        # It is the node controller's to remove the taint, which is not here.
        cluster.ask("taint", "nodes", "--all", "node.kubernetes.io/not-ready-")
        return cluster.ask("get", "nodes", "-o", "jsonpath={.items[*].spec.taints}") == ""

    cluster.wait("node without a taint", untainted)


def _apiserver(folder: Path, etcd: str) -> tuple[str, ...]:
    return (
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        f"--advertise-address={_ADDRESS}",
        "--secure-port=6443",
        f"--cert-dir={folder}/certificates",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/key",
        f"--service-account-signing-key-file={folder}/key",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
    )


def _kubelet(folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": _ADDRESS,
        "healthzBindAddress": "127.0.0.1",
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "imageServiceEndpoint": f"unix://{_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "resolvConf": "",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "podLogsDir": f"{folder}/pods",
    }


def _write_containerd(folder: Path) -> None:
    """Write the settings of containerd, of gVisor's shim, and of the pods' network."""
    options = {
        "runc": ("io.containerd.runc.v2", "SystemdCgroup = false"),
        "runsc": (
            "io.containerd.runsc.v1",
            f'TypeUrl = "io.containerd.runsc.v1.options"\nConfigPath = "{folder}/runsc.toml"',
        ),
        "kata": ("io.containerd.kata.v2", ""),
    }
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    runtimes = "".join(
        f'[{cri}.containerd.runtimes.{name}]\nruntime_type = "{kind}"\n'
        f"{f'[{cri}.containerd.runtimes.{name}.options]' if words else ''}\n{words}\n"
        for name, (kind, words) in options.items()
    )
    (folder / "containerd.toml").write_text(
        f'version = 2\nroot = "{folder}/containerd"\nstate = "/run/containerd"\noom_score = 0\n'
        f'[grpc]\naddress = "{_SOCKET}"\n'
        f'[{cri}]\nsandbox_image = "{PAUSE}"\nrestrict_oom_score_adj = true\n'
        f'[{cri}.cni]\nbin_dir = "/usr/lib/cni"\nconf_dir = "{folder}/network"\n'
        f'[{cri}.containerd]\ndefault_runtime_name = "runc"\n{runtimes}'
    )
    (folder / "runsc.toml").write_text(
        f'binary_name = "{folder}/bin/runsc"\n[runsc_config]\nplatform = "systrap"\nnetwork = "sandbox"\n'
    )
    (folder / "network").mkdir()
    plugin = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/addresses",
            "ranges": [[{"subnet": _SUBNET}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    _write(folder / "network/10-lab.conflist", {"cniVersion": "0.4.0", "name": "lab", "plugins": [plugin]})


def _config_of(user: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": _SERVER, "insecure-skip-tls-verify": True}}],
        "users": [{"name": user, "user": {"token": user}}],
        "contexts": [{"name": user, "context": {"cluster": "lab", "user": user}}],
        "current-context": user,
    }


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
    path.chmod(0o600)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
