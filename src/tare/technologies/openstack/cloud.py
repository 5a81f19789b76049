"""Client of an OpenStack cloud: creates and deletes servers with openstacksdk.

All resources of a server have the server's name, so that one command deletes them:

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
_REQUEST_TIMEOUT_SECONDS = 30.0  # of one request to the cloud
_INSTANCES = "198.18.0.0/15"  # addresses of the instances that run in the server
_HOST_KEYS = re.compile(r"BEGIN SSH HOST KEY KEYS-+\s(.*?)-+END SSH HOST KEY KEYS", re.DOTALL)
_PORTS = ((22, 22), (1024, 65535))


@dataclass(frozen=True)
class ServerRequest:
    """Request for a server, with the cloud's names of its resources.

    `host_key` is the private and the public SSH host key that the server gets; None if it makes its key itself.
    """

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
class CloudServer:
    """Running server: its ID in the cloud, its IPv4 address, and cautions."""

    id: str
    address: str
    cautions: tuple[Caution, ...]


def import_sdk(module: str = "openstack") -> Any:
    """Return a module of openstacksdk, an optional dependency; raises Unavailable if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable("openstacksdk is not installed", INSTALL) from error


def known_clouds() -> list[str]:
    """Return the names of the clouds in clouds.yaml."""
    names = import_sdk("openstack.config").OpenStackConfig().get_cloud_names()
    return sorted(name for name in names if name != "envvars")


class Cloud:
    """Cloud of clouds.yaml; its methods raise Unavailable or TrialFailed with the cloud's message."""

    def __init__(self, name: str) -> None:
        self.name = name
        with self._translate_errors():
            self._api = import_sdk().connect(cloud=name, app_name="tare", api_timeout=_REQUEST_TIMEOUT_SECONDS)
            self._api.session.get_auth_headers()  # authenticate now

    @contextmanager
    def provision_server(self, request: ServerRequest, on_requested: Callable[[], None]) -> Iterator[CloudServer]:
        """Context manager: yield a server; delete it with all its resources after the block.

        It calls `on_requested` right after the cloud has accepted the request.
        """
        with self._translate_errors():
            flavor, image, network = self._find_resources(request)
        try:
            with self._translate_errors():
                server = self._create_server(request, flavor.id, image.id, network.id)
                on_requested()
                server = self._await_active(server, request.timeout_seconds)
                address = self._assign_address(server, request)
                running = CloudServer(server.id, address, self._allow_instance_addresses(server))
            yield running
        finally:
            began = time.monotonic()
            with self._translate_errors():
                while self.remove(request.name):
                    if time.monotonic() > began + request.timeout_seconds:
                        what = f"openstack: {request.name} still exists after {request.timeout_seconds:g} s"
                        raise TrialFailed(what, "`tare clean` tries again; or delete it by hand, it costs money")
                    ssh_login.pause_before_retry(began)

    def read_host_keys(self, server: CloudServer, timeout_seconds: float) -> tuple[str, ...]:
        """Return the public host keys that cloud-init prints on the server's console; raises TrialFailed."""
        hint = 'the image needs cloud-init, and the flavor a console; without one: host_key = "cloud-init"'
        began = time.monotonic()
        while True:
            try:
                log = self._api.compute.get_server_console_output(server.id)["output"]
            except import_sdk().exceptions.SDKException as error:
                raise TrialFailed(f"openstack: the server has no console log: {_error_text(error)}", hint) from error
            if keys := _HOST_KEYS.search(log or ""):
                lines = (re.search(r"(?:ssh|ecdsa)-\S+ \S+", line) for line in keys[1].splitlines())
                return tuple(line[0] for line in lines if line)
            if time.monotonic() > began + timeout_seconds:
                what = f"openstack: the server did not print its SSH host key within {timeout_seconds:g} s"
                raise TrialFailed(what, hint)
            ssh_login.pause_before_retry(began)

    def remove(self, name: str) -> bool:
        """Delete all resources with this name; return whether some are left, which a later call deletes."""
        compute, network = self._api.compute, self._api.network
        # Clouds may ignore a filter that they do not know, so names are compared before anything is deleted.
        servers = [server for server in compute.servers(name=f"^{re.escape(name)}$") if server.name == name]
        for server in servers:
            compute.delete_server(server, ignore_missing=True)
        for address in [ip for ip in network.ips(description=name) if ip.description == name]:
            network.delete_ip(address, ignore_missing=True)
        if servers:  # their security group is in use until they no longer exist
            return True
        for group in [group for group in network.security_groups(name=name) if group.name == name]:
            network.delete_security_group(group, ignore_missing=True)
        compute.delete_keypair(name, ignore_missing=True)
        return False

    def _find_resources(self, request: ServerRequest) -> tuple[Any, Any, Any]:
        """Return the flavor, image and network of a request; raises Unavailable with the most similar name."""
        compute, image, network = self._api.compute, self._api.image, self._api.network
        return (
            _find_resource("flavor", request.flavor, compute.find_flavor, compute.flavors),
            _find_resource("image", request.image, image.find_image, image.images),
            _find_resource("network", request.network, network.find_network, network.networks),
        )

    def _create_server(self, request: ServerRequest, flavor: str, image: str, network: str) -> Any:
        self._api.compute.create_keypair(name=request.name, public_key=request.public_key)
        more: dict[str, Any] = {}
        if request.allow_from:
            group = self._api.network.create_security_group(name=request.name, description="made by tare")
            for first, last in _PORTS:
                self._api.network.create_security_group_rule(
                    security_group_id=group.id,
                    direction="ingress",
                    ethertype="IPv4",
                    protocol="tcp",
                    port_range_min=first,
                    port_range_max=last,
                    remote_ip_prefix=request.allow_from,
                )
            more["security_groups"] = [{"name": request.name}]
        if request.host_key:
            private, public = request.host_key
            keys = {"ssh_keys": {"ed25519_private": private, "ed25519_public": public}}
            more["user_data"] = base64.b64encode(b"#cloud-config\n" + json.dumps(keys).encode()).decode()
        return self._api.compute.create_server(
            name=request.name,
            flavor_id=flavor,
            image_id=image,
            key_name=request.name,
            networks=[{"uuid": network}],
            **more,
        )

    def _await_active(self, server: Any, timeout_seconds: float) -> Any:
        """Wait until a server is active, and return its new state; raises TrialFailed with the cloud's reason."""
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
            ssh_login.pause_before_retry(began)

    def _assign_address(self, server: Any, request: ServerRequest) -> str:
        """Return the server's IPv4 address: a new floating address if requested, or its first one."""
        network = self._api.network
        if request.floating_network:
            pool = _find_resource("network", request.floating_network, network.find_network, network.networks)
            port = next(iter(network.ports(device_id=server.id)))
            floating = network.create_ip(floating_network_id=pool.id, port_id=port.id, description=request.name)
            return str(floating.floating_ip_address)
        addresses = [address for addresses in (server.addresses or {}).values() for address in addresses]
        address = next((str(each["addr"]) for each in addresses if each["version"] == 4), "")
        if not address:
            raise TrialFailed("openstack: the server has no IPv4 address", "choose a network with an IPv4 subnet")
        return address

    def _allow_instance_addresses(self, server: Any) -> tuple[Caution, ...]:
        """Allow the addresses of instances on the server's ports; return a caution if the cloud refuses, or ().

        By default, OpenStack's port security drops packets whose source is not an address of the server.
        """
        pairs = [{"ip_address": _INSTANCES}]
        try:
            for port in self._api.network.ports(device_id=server.id):
                self._api.network.update_port(port, allowed_address_pairs=pairs)
        except import_sdk().exceptions.HttpException as error:
            text = f"the cloud may drop the packets of instances in its server: {_error_text(error)}"
            return (Caution("port-security", text),)
        return ()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Context manager: turn errors of openstacksdk into errors with a hint."""
        exceptions, session = import_sdk().exceptions, import_sdk("keystoneauth1.exceptions")
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
            raise Unavailable(f"openstack: {_error_text(error)}", hint) from error
        except (session.connection.ConnectionError, session.DiscoveryFailure) as error:
            raise Unavailable(
                f"openstack: {self.name} does not answer: {_error_text(error)}", "check auth_url"
            ) from error
        except exceptions.ForbiddenException as error:
            quota = "delete what is not needed, or ask for a higher quota"
            hint = quota if "uota" in _error_text(error) else "ask the cloud's operators for the permission"
            raise TrialFailed(f"openstack: {_error_text(error)}", hint) from error
        except _error_types() as error:
            raise TrialFailed(f"openstack: {self.name}: {_error_text(error)}", "look at the cloud's logs") from error


def _find_resource(
    resource_type: str, name: str, find: Callable[[str], Any], every: Callable[[], Sequence[Any]]
) -> Any:
    try:
        resource = find(name)
    except import_sdk().exceptions.NotFoundException:  # versions before 6 return None, contrary to the documentation
        resource = None
    if resource is None:
        names = sorted(str(resource.name) for resource in every())
        hint = did_you_mean(name, names, f"the cloud has {', '.join(names[:20]) or 'none'}")
        raise Unavailable(f'openstack: no {resource_type} named "{name}"', hint)
    return resource


def _error_types() -> tuple[type[Exception], ...]:
    """Return the error types of openstacksdk and its dependencies."""
    return import_sdk().exceptions.SDKException, import_sdk("keystoneauth1.exceptions").ClientException


def _error_text(error: Any) -> str:
    """Return the cloud's message from an exception, on one line of at most 300 characters."""
    return " ".join(str(getattr(error, "details", None) or error).split())[:300]


def _delete_all(cloud: str, name: str) -> None:
    """Delete all resources with this name, and wait until they no longer exist.

    It retries for ever, because a server costs money. The undo ledger ends it after a timeout, and keeps the entry.
    """
    expected: tuple[type[Exception], ...] = (TareError, *_error_types())
    began = time.monotonic()
    while True:
        try:
            api = Cloud(cloud)
            while api.remove(name):
                ssh_login.pause_before_retry(began)
        except expected as error:
            sys.stderr.write(f"{name}: {_error_text(error)}\n")
            time.sleep(ssh_login.MAX_PAUSE_SECONDS)
        else:
            return


def main(arguments: Sequence[str]) -> int:
    """Run the command that the undo ledger stores."""
    match arguments:
        case ["delete", cloud, name] if name.startswith("tare-"):
            _delete_all(cloud, name)
            return 0
    raise UsageError("no such command", "python -m tare.technologies.openstack.cloud delete CLOUD tare-NAME")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TareError as error:
        sys.stderr.write(f"error: {error}\nhint: {error.hint}\n")
        sys.exit(error.exit_code)
