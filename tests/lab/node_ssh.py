"""The node of the cluster as a machine over SSH: a real sshd on it, which shares its cluster, but not tare's folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_built import built

from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost
from tare.model.machine import SshTarget

_HOST = LocalHost()
_NAME, _ADDRESS, _PORT = "tare-lab-node", "10.99.0.1", 2222
_SECONDS = 30.0
# sshd wants a user of this name. Of tare's folder, the machine has what the node needs; images need no copy there.
_START = """
set -e
folder=$1 state=$2
shift 2
(cat /etc/passwd; echo sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin) > "$folder/passwd"
mount --bind "$folder/passwd" /etc/passwd
mkdir -p /run/sshd "$folder/state" /var/lib/tare
mount --rbind "$state" "$folder/state"
mount -t tmpfs tmpfs /var/lib/tare
for name in images tests cluster; do
    mkdir -m 700 "/var/lib/tare/$name"
    mount --rbind "$folder/state/$name" "/var/lib/tare/$name"
done
exec "$@"
"""


@contextmanager
def node_over_ssh(folder: Path) -> Iterator[SshTarget]:
    """Have the SSH server for the block; its sessions know the cluster by the environment of this process."""
    for name in ("host_key", "key"):
        _HOST.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name), timeout=_SECONDS)
    known = f"[{_ADDRESS}]:{_PORT} {(folder / 'host_key.pub').read_text()}"
    (folder / "known_hosts").write_text(known)
    config = folder / "ssh_config"
    settings = {
        "HostName": _ADDRESS,
        "Port": _PORT,
        "User": "root",
        "IdentityFile": folder / "key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
    }
    lines = "".join(f"  {key} {shlex.quote(str(value))}\n" for key, value in settings.items())
    config.write_text(f"Host {_NAME}\n{lines}")
    variables = " ".join(f"{name}={os.environ[name]}" for name in ("KUBECONFIG", "PATH"))
    options = (
        *(f"HostKey={folder / 'host_key'}", f"AuthorizedKeysFile={folder / 'key.pub'}", f"SetEnv={variables}"),
        *("StrictModes=no", "UsePAM=no", "MaxSessions=100", "PidFile=none"),
        *(f"ListenAddress={_ADDRESS}", f"Port={_PORT}"),
    )
    sshd = (str(built() / "sshd"), "-D", "-e", "-f", "/dev/null", *(word for each in options for word in ("-o", each)))
    alone = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", _START, "sh", str(folder))
    with _HOST.spawn(*alone, str(state_folder()), "env", f"LD_LIBRARY_PATH={built()}", *sshd) as process:
        reach = ("ssh", "-F", str(config), "-o", "ConnectTimeout=1", _NAME, "true")
        for _ in range(100):
            if _HOST.run(*reach, timeout=_SECONDS, check=False).exit_code == 0:
                break
        else:
            raise AssertionError(process.errors())
        yield SshTarget(_NAME, str(config))
