"""OpenStack: a server of a given flavor and image, in which tare measures other technologies; bare metal is a flavor.

tare requests the server through openstacksdk with a new key pair, logs in over SSH, and deletes the server with all
its resources, which are named `tare-…`. The technology only provisions a machine: write the stack as `native/openstack`
or `docker/openstack`. The client must be on the server's network, as in the papers.

tare always checks the server's SSH host key. By default, it reads the key that cloud-init prints on the console. A
machine of bare metal without a console gets a key from tare through cloud-init.

Settings:

- `cloud`: the cloud's name in clouds.yaml.
- `flavor`, `image`, `network`: the cloud's names of these resources.
- `user`: the user of the image for SSH logins, who may use sudo.
- `floating_network`: the network of a floating address; empty for none.
- `allow_from`: addresses such as 192.0.2.0/24, for a security group that lets in SSH and the instances' ports.
- `host_key`: `console` or `cloud-init`.
- `timeout`: the time for each of start, SSH, and deletion.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tare.guests.ssh_login import Login, await_login, create_key, write_ssh_config
from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.ssh import connect_machine
from tare.model.errors import Unavailable, did_you_mean
from tare.model.isolation import Isolation
from tare.model.machine import SshTarget
from tare.model.trial import Problem
from tare.model.units import Duration
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology, find_missing_tools
from tare.technologies.openstack.cloud import INSTALL, Cloud, ServerRequest, known_clouds

_TOOLS = {"ssh": "openssh-client", "ssh-keygen": "openssh-client"}


@dataclass(frozen=True)
class Openstack(Technology):
    """Provisions a server of a cloud."""

    name = "openstack"
    title = "OpenStack server"
    family = "bare metal"
    isolation = Isolation("none", "a whole server, which may be bare metal: tare cannot tell")
    needs = "openstacksdk, a cloud in clouds.yaml"
    tools = _TOOLS
    can_host = True
    tested = "stand-in"
    network_path = "direct"
    provisions_machine = True

    cloud: str = ""
    flavor: str = ""
    image: str = ""
    network: str = ""
    user: str = "debian"
    floating_network: str = ""
    allow_from: str = ""
    host_key: Literal["console", "cloud-init"] = "console"
    timeout: Annotated[Duration, Field(gt=0, le=7200)] = 900.0

    def version(self, host: Host) -> str:  # noqa: ARG002 - openstacksdk runs on this machine
        """Return the version of openstacksdk; "" if it is not installed."""
        try:
            return importlib.metadata.version("openstacksdk")
        except importlib.metadata.PackageNotFoundError:
            return ""

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools or settings, without contacting the cloud."""
        if not isinstance(host, LocalHost):
            return (Problem("openstack provisions its machine itself", "leave out [hosts.server]"),)
        if problems := find_missing_tools(host, self.tools):
            return problems
        if not self.version(host):
            return (Problem("openstacksdk is not installed", INSTALL, missing="program"),)
        if missing := [name for name in ("cloud", "flavor", "image", "network") if not getattr(self, name)]:
            settings = f"{' = …, '.join(missing)} = …"
            table = f'in [stacks.NAME] stack = "native/openstack", below it [stacks.NAME.openstack] with {settings}'
            return (Problem("the settings of the server are missing", table, missing="yours"),)
        if self.cloud not in (known := known_clouds()):
            hint = did_you_mean(self.cloud, known, f"clouds.yaml has {', '.join(known) or 'none'}")
            return (Problem(f"no cloud named {self.cloud}", hint),)
        return ()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Request a server, and log in as root; it is ready when a login over SSH succeeds."""
        if not isinstance(launch.ledger.host, LocalHost):
            hint = "leave out [hosts.server], and write it as the outermost layer"
            raise Unavailable("openstack provisions its machine itself, so it cannot be inside another", hint)
        socket = f"/run/{launch.name}.ssh"
        with ExitStack() as stack:
            stack.enter_context(launch.ledger.register_undo("rm", "-f", socket))
            target, server = stack.enter_context(
                self.provision_machine(host, launch.ledger, launch.folder, launch.timeline.mark)
            )
            inside = stack.enter_context(connect_machine(host, target, socket, launch.image.root / SUPERVISE[1:]))
            yield replace(server, inside=inside)

    def external_effects(self) -> Sequence[str]:
        """Return a line with the cloud and the image of its servers."""
        return (f"starts servers of {self.image} in the cloud {self.cloud}, which may cost",)

    @contextmanager
    def provision_machine(
        self, host: Host, ledger: Ledger, folder: Path, mark: Callable[[str], None]
    ) -> Iterator[tuple[SshTarget, Instance]]:
        """Context manager: provision a server with the name of the `folder`; delete it after the block."""
        with ExitStack() as stack:
            stack.enter_context(ledger.register_undo("rm", "-rf", "--one-file-system", str(folder)))
            request = self._build_request(host, folder)
            cloud = Cloud(self.cloud)
            # The ledger stores a command line, so that `tare clean` can delete the server of a killed run.
            undo = (sys.executable, "-m", "tare.technologies.openstack.cloud", "delete", self.cloud, request.name)
            stack.enter_context(ledger.register_undo(*undo))
            mark("requested")
            server = stack.enter_context(cloud.provision_server(request, lambda: mark("started")))
            keys = request.host_key[1:] if request.host_key else cloud.read_host_keys(server, self.timeout)
            target = write_ssh_config(host, folder, Login(server.address, self.user, f"{folder}/key"), keys)
            await_login(host, target, self.name, self.timeout)
            mark("ready")
            yield (
                target,
                Instance(
                    name=request.name,
                    inside=None,
                    address=server.address,
                    network_path=self.network_path,
                    processes=lambda: (),
                    proof={"server": server.id, "flavor": self.flavor, "image": self.image, "cloud": self.cloud},
                    cautions=server.cautions,
                ),
            )

    def _build_request(self, host: Host, folder: Path) -> ServerRequest:
        """Make the SSH keys of a server in `folder`, and return its request."""
        host.run("mkdir", "-p", "-m", "700", str(folder), timeout=30)
        names = (folder.name, self.flavor, self.image, self.network)
        login_key, host_key = create_key(host, f"{folder}/key"), None
        if self.host_key != "console":
            public_key = create_key(host, f"{folder}/host_key")
            host_key = (host.read(f"{folder}/host_key"), public_key)
        return ServerRequest(*names, login_key, self.floating_network, self.allow_from, host_key, self.timeout)
