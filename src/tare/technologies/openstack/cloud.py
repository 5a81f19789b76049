"""Servers of an OpenStack cloud, by openstacksdk.

Everything that is made for a server has its name, so that one name is enough to delete it all:

    python -m tare.technologies.openstack.cloud delete CLOUD tare-NAME
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tare.guests import ssh_login
from tare.model.errors import TareError, TrialFailed, Unavailable, UsageError, did_you_mean
from tare.model.trial import Caution

INSTALL = "pip install tare-bench[openstack]"
_ANSWER_SECONDS = 30.0  # for one request of ours
_INSTANCES = "198.18.0.0/15"  # the addresses of instances in the server
_HOST_KEYS = re.compile(r"BEGIN SSH HOST KEY KEYS-+\s(.*?)-+END SSH HOST KEY KEYS", re.DOTALL)
_PORTS = ((22, 22), (1024, 65535))


@dataclass(frozen=True)
class Wanted:
    """The server to ask for, by the cloud's own names. `host_key` is its private and public SSH host key, if given."""

    name: str
    flavor: str
    image: str
    network: str
    public_key: str
    floating_network: str = ""
    allow_from: str = ""
    host_key: tuple[str, str] | None = None
    timeout_seconds: float = 900.0


@dataclass(frozen=True)
class Server:
    """A running server: its ID in the cloud, its address, and cautions."""

    id: str
    address: str
    cautions: tuple[Caution, ...]


def sdk(module: str = "openstack") -> Any:
    """Import openstacksdk, an optional dependency; raises Unavailable if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable("openstacksdk is not installed", INSTALL) from error


def known_clouds() -> list[str]:
    """Return the names of the clouds in clouds.yaml."""
    names = sdk("openstack.config").OpenStackConfig().get_cloud_names()
    return sorted(name for name in names if name != "envvars")


class Cloud:
    """One cloud of clouds.yaml. Its methods raise Unavailable or TrialFailed with the cloud's message."""

    def __init__(self, name: str) -> None:
        self.name = name
        with self._told():
            self._api = sdk().connect(cloud=name, app_name="tare", api_timeout=_ANSWER_SECONDS)
            self._api.session.get_auth_headers()  # authenticate now

    @contextmanager
    def server(self, wanted: Wanted, asked: Callable[[], None]) -> Iterator[Server]:
        """Yield a server; delete it, and all that was made for it, after the block. Call `asked` after the request."""
        with self._told():
            flavor, image, network = self._named(wanted)
        try:
            with self._told():
                server = self._created(wanted, flavor.id, image.id, network.id)
                asked()
                server = self._active(server, wanted.timeout_seconds)
                given = Server(server.id, self._address(server, wanted), self._opened(server))
            yield given
        finally:
            began = time.monotonic()
            with self._told():
                while self.remove(wanted.name):
                    if time.monotonic() > began + wanted.timeout_seconds:
                        what = f"openstack: {wanted.name} is not gone after {wanted.timeout_seconds:g} s"
                        raise TrialFailed(what, "`tare clean` tries again; or delete it by hand, it costs")
                    ssh_login.pause(began)

    def host_keys(self, server: Server, timeout_seconds: float) -> tuple[str, ...]:
        """Read the public host keys that cloud-init prints on the server's console."""
        hint = 'the image needs cloud-init, and the flavor a console; without one: host_key = "cloud-init"'
        began = time.monotonic()
        while True:
            try:
                log = self._api.compute.get_server_console_output(server.id)["output"]
            except sdk().exceptions.SDKException as error:
                raise TrialFailed(f"openstack: the server has no console log: {_words(error)}", hint) from error
            if keys := _HOST_KEYS.search(log or ""):
                lines = (re.search(r"(?:ssh|ecdsa)-\S+ \S+", line) for line in keys[1].splitlines())
                return tuple(line[0] for line in lines if line)
            if time.monotonic() > began + timeout_seconds:
                what = f"openstack: the server did not print its SSH host key within {timeout_seconds:g} s"
                raise TrialFailed(what, hint)
            ssh_login.pause(began)

    def remove(self, name: str) -> bool:
        """Delete everything of this name; return whether something is left, which a later call deletes."""
        compute, network = self._api.compute, self._api.network
        servers = [each for each in compute.servers(name=f"^{re.escape(name)}$") if each.name == name]
        for server in servers:
            compute.delete_server(server, ignore_missing=True)
        for address in [each for each in network.ips(description=name) if each.description == name]:
            network.delete_ip(address, ignore_missing=True)
        if servers:  # their security group is in use until they are gone
            return True
        for group in [each for each in network.security_groups(name=name) if each.name == name]:
            network.delete_security_group(group, ignore_missing=True)
        compute.delete_keypair(name, ignore_missing=True)
        return False

    def _named(self, wanted: Wanted) -> tuple[Any, Any, Any]:
        """Find flavor, image and network by the settings; raises Unavailable with the nearest name."""
        compute, image, network = self._api.compute, self._api.image, self._api.network
        return (
            _found("flavor", wanted.flavor, compute.find_flavor, compute.flavors),
            _found("image", wanted.image, image.find_image, image.images),
            _found("network", wanted.network, network.find_network, network.networks),
        )

    def _created(self, wanted: Wanted, flavor: str, image: str, network: str) -> Any:
        self._api.compute.create_keypair(name=wanted.name, public_key=wanted.public_key)
        more: dict[str, Any] = {}
        if wanted.allow_from:
            group = self._api.network.create_security_group(name=wanted.name, description="made by tare")
            for first, last in _PORTS:
                self._api.network.create_security_group_rule(
                    security_group_id=group.id,
                    direction="ingress",
                    ethertype="IPv4",
                    protocol="tcp",
                    port_range_min=first,
                    port_range_max=last,
                    remote_ip_prefix=wanted.allow_from,
                )
            more["security_groups"] = [{"name": wanted.name}]
        if wanted.host_key:
            private, public = wanted.host_key
            keys = {"ssh_keys": {"ed25519_private": private, "ed25519_public": public}}
            more["user_data"] = base64.b64encode(b"#cloud-config\n" + json.dumps(keys).encode()).decode()
        return self._api.compute.create_server(
            name=wanted.name,
            flavor_id=flavor,
            image_id=image,
            key_name=wanted.name,
            networks=[{"uuid": network}],
            **more,
        )

    def _active(self, server: Any, timeout_seconds: float) -> Any:
        """Wait until a server runs; raises TrialFailed with the reason of the cloud."""
        compute, began = self._api.compute, time.monotonic()
        while True:
            server = compute.get_server(server.id)
            if server.status == "ACTIVE":
                return server
            if server.status == "ERROR":
                reason = (server.fault or {}).get("message", "the cloud gives no reason")
                raise TrialFailed(
                    f"openstack: the cloud could not start the server: {reason}", "ask the cloud's operators"
                )
            if time.monotonic() > began + timeout_seconds:
                what = f"openstack: the server is still in state {server.status} after {timeout_seconds:g} s"
                raise TrialFailed(what, "a machine of bare metal may need longer: timeout = …")
            ssh_login.pause(began)

    def _address(self, server: Any, wanted: Wanted) -> str:
        """Return the server's address: a new floating one, if the settings ask for it."""
        network = self._api.network
        if wanted.floating_network:
            pool = _found("network", wanted.floating_network, network.find_network, network.networks)
            port = next(iter(network.ports(device_id=server.id)))
            made = network.create_ip(floating_network_id=pool.id, port_id=port.id, description=wanted.name)
            return str(made.floating_ip_address)
        addresses = [each for every in (server.addresses or {}).values() for each in every]
        address = next((str(each["addr"]) for each in addresses if each["version"] == 4), "")
        if not address:
            raise TrialFailed("openstack: the server has no IPv4 address", "choose a network with an IPv4 subnet")
        return address

    def _opened(self, server: Any) -> tuple[Caution, ...]:
        """Allow the addresses of instances on the server's port; return a caution if the cloud refuses."""
        pairs = [{"ip_address": _INSTANCES}]
        try:
            for port in self._api.network.ports(device_id=server.id):
                self._api.network.update_port(port, allowed_address_pairs=pairs)
        except sdk().exceptions.HttpException as error:
            text = f"the cloud may drop the packets of instances in its server: {_words(error)}"
            return (Caution("port-security", text),)
        return ()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn errors of openstacksdk into errors with a hint."""
        exceptions, session = sdk().exceptions, sdk("keystoneauth1.exceptions")
        try:
            yield
        except session.http.Unauthorized as error:
            hint = f"check it by hand: openstack --os-cloud {self.name} token issue"
            raise Unavailable(
                f"openstack: {self.name} refuses user, password or project of clouds.yaml", hint
            ) from error
        except exceptions.ConfigException as error:
            known = known_clouds()
            hint = did_you_mean(self.name, known, f"clouds.yaml has {', '.join(known) or 'none'}")
            raise Unavailable(f"openstack: {_words(error)}", hint) from error
        except (session.connection.ConnectionError, session.DiscoveryFailure) as error:
            raise Unavailable(f"openstack: {self.name} does not answer: {_words(error)}", "check auth_url") from error
        except exceptions.ForbiddenException as error:
            quota = "delete what is not needed, or ask for a higher quota"
            hint = quota if "uota" in _words(error) else "ask the cloud's operators for the permission"
            raise TrialFailed(f"openstack: {_words(error)}", hint) from error
        except _errors() as error:
            raise TrialFailed(f"openstack: {self.name}: {_words(error)}", "the cloud's own logs say more") from error


def _found(kind: str, name: str, find: Callable[[str], Any], every: Callable[[], Sequence[Any]]) -> Any:
    try:
        resource = find(name)
    except sdk().exceptions.NotFoundException:  # from version 6 on, it raises this, as documented
        resource = None
    if resource is None:
        names = sorted(str(each.name) for each in every())
        hint = did_you_mean(name, names, f"the cloud has {', '.join(names[:20]) or 'none'}")
        raise Unavailable(f'openstack: no {kind} named "{name}"', hint)
    return resource


def _errors() -> tuple[type[Exception], ...]:
    """Return the error types of openstacksdk and its dependencies."""
    return sdk().exceptions.SDKException, sdk("keystoneauth1.exceptions").ClientException


def _words(error: Any) -> str:
    """Return the cloud's own sentence out of an exception."""
    return " ".join(str(getattr(error, "details", None) or error).split())[:300]


def _delete(cloud: str, name: str) -> None:
    """Delete everything of this name, and wait until it is gone.

    It never gives up: a server costs money. The ledger ends it after a time-out and keeps the entry.
    """
    expected: tuple[type[Exception], ...] = (TareError, *_errors())
    began = time.monotonic()
    while True:
        try:
            api = Cloud(cloud)
            while api.remove(name):
                ssh_login.pause(began)
        except expected as error:
            sys.stderr.write(f"{name}: {_words(error)}\n")
            time.sleep(ssh_login.LOOK_SECONDS)
        else:
            return


def main(arguments: Sequence[str]) -> int:
    """Run the command that the ledger keeps."""
    match arguments:
        case ["delete", cloud, name] if name.startswith("tare-"):
            _delete(cloud, name)
            return 0
    raise UsageError("no such command", "python -m tare.technologies.openstack.cloud delete CLOUD tare-NAME")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TareError as error:
        sys.stderr.write(f"error: {error}\nhint: {error.hint}\n")
        sys.exit(error.exit_code)
