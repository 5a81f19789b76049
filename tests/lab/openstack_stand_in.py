"""A small cloud that stands in for OpenStack: the needed part of Keystone v3, Nova, Glance and Neutron, over HTTP.

It checks requests as the real ones do (a token, the required fields, known numbers), keeps state between calls, and has
servers that take a few looks to become active or to be gone. A server's `ssh` is what the test lets it start.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
Routes = tuple[tuple[str, str, Callable[..., tuple[int, Json]]], ...]
PASSWORD = "right"  # noqa: S105 - of a cloud that ends with the test
ADDRESS = "127.77.0.2"
CLOUDS = """
clouds:
  stand-in:
    region_name: one
    auth:
      auth_url: {}
      username: tester
      password: {}
      project_name: benchmarks
      user_domain_name: Default
      project_domain_name: Default
"""
KEYS = "-----BEGIN SSH HOST KEY KEYS-----\n{}-----END SSH HOST KEY KEYS-----\n"


class RefusedError(Exception):
    """A request that the cloud answers with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class State:
    """What the cloud has. The first fields are what a test sets."""

    quota: int = 10
    fault: str = ""
    stuck: bool = False
    address: str = ADDRESS
    console: str | None = ""
    pairs_allowed: bool = True
    started: Callable[[Json], None] = lambda _: None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    keypairs: dict[str, Json] = field(default_factory=dict)
    servers: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    floating: dict[str, Json] = field(default_factory=dict)
    ports: dict[str, Json] = field(default_factory=dict)
    seen: list[tuple[str, str, Json]] = field(default_factory=list)

    @property
    def left(self) -> list[str]:
        """Names of all that is still there."""
        kinds = {"keypair": self.keypairs, "server": self.servers, "group": self.groups, "floating": self.floating}
        return [kind for kind, things in kinds.items() for _ in things]

    def sent(self, path: str) -> Json:
        """Return the body of the last POST to a path."""
        return next(body for method, where, body in reversed(self.seen) if method == "POST" and where.endswith(path))


FLAVORS = {"f1": {"id": "f1", "name": "m1.small"}, "f2": {"id": "f2", "name": "metal.large"}}
IMAGES = {"i1": {"id": "i1", "name": "debian-12", "status": "active"}}
NETWORKS = {"n1": {"id": "n1", "name": "private"}, "n2": {"id": "n2", "name": "public"}}


def _needed(body: Json, *names: str) -> None:
    for name in names:
        if not body.get(name):
            raise RefusedError(400, f"Invalid input for field/attribute: '{name}' is a required property")


def _one(things: dict[str, Json], number: str, kind: str) -> Json:
    if number not in things:
        raise RefusedError(404, f"{kind} {number} could not be found.")
    return things[number]


class Handler(BaseHTTPRequestHandler):
    """Answers for one cloud, its `state`."""

    state: ClassVar[State]

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        place = urlsplit(self.path)
        self.state.seen.append((method, place.path, body))
        try:
            status, answer = self._routed(method, place.path.rstrip("/"), body)
        except RefusedError as error:
            status, answer = error.status, self._refusal(place.path, error)
        payload = json.dumps(answer).encode() if status != HTTPStatus.NO_CONTENT else b""
        self.send_response(status)
        if place.path.endswith("/auth/tokens") and status == HTTPStatus.CREATED:
            self.send_header("X-Subject-Token", self.state.token)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    @staticmethod
    def _refusal(path: str, error: RefusedError) -> Json:
        """Each service has its own form of error."""
        if path.startswith("/network"):
            return {"NeutronError": {"type": "Refused", "message": str(error), "detail": ""}}
        kind = {403: "forbidden", 404: "itemNotFound", 501: "notImplemented"}.get(error.status, "badRequest")
        return {"error" if path.startswith("/identity") else kind: {"code": error.status, "message": str(error)}}

    def _routed(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        public: Routes = (
            ("GET", "/identity/v3", self._identity),
            ("POST", "/identity/v3/auth/tokens", self._token),
            ("GET", "/compute/v2.1", self._compute_versions),
            ("GET", "/image", self._image_versions),
            ("GET", "/network", self._network_versions),
        )
        private: Routes = (
            *(("GET", r"/compute/v2.1/flavors(?:/detail)?", lambda: self._listed("flavors", FLAVORS)),),
            *(("GET", r"/compute/v2.1/flavors/([^/]+)", lambda n: (200, {"flavor": _one(FLAVORS, n, "Flavor")})),),
            *(("GET", r"/image/v2/images", lambda: self._listed("images", IMAGES)),),
            *(("GET", r"/image/v2/images/([^/]+)", lambda n: (200, _one(IMAGES, n, "Image"))),),
            *(("GET", r"/network/v2.0/networks", lambda: self._listed("networks", NETWORKS)),),
            *(("GET", r"/network/v2.0/networks/([^/]+)", lambda n: (200, {"network": _one(NETWORKS, n, "Network")})),),
            ("POST", r"/compute/v2.1/os-keypairs", lambda: self._add_keypair(body["keypair"])),
            ("DELETE", r"/compute/v2.1/os-keypairs/([^/]+)", self._delete_keypair),
            ("POST", r"/compute/v2.1/servers", lambda: self._add_server(body["server"])),
            ("GET", r"/compute/v2.1/servers(?:/detail)?", lambda: self._listed("servers", self.state.servers)),
            ("GET", r"/compute/v2.1/servers/([^/]+)", self._look_at_server),
            ("DELETE", r"/compute/v2.1/servers/([^/]+)", self._delete_server),
            ("POST", r"/compute/v2.1/servers/([^/]+)/action", lambda n: self._act(n, body)),
            ("GET", r"/network/v2.0/ports", lambda: self._listed("ports", self.state.ports)),
            ("PUT", r"/network/v2.0/ports/([^/]+)", lambda n: self._change_port(n, body["port"])),
            ("GET", r"/network/v2.0/security-groups", lambda: self._listed("security_groups", self.state.groups)),
            ("POST", r"/network/v2.0/security-groups", lambda: self._add_group(body["security_group"])),
            ("DELETE", r"/network/v2.0/security-groups/([^/]+)", self._delete_group),
            ("POST", r"/network/v2.0/security-group-rules", lambda: self._add_rule(body["security_group_rule"])),
            ("GET", r"/network/v2.0/floatingips", lambda: self._listed("floatingips", self.state.floating)),
            ("POST", r"/network/v2.0/floatingips", lambda: self._add_floating(body["floatingip"])),
            ("DELETE", r"/network/v2.0/floatingips/([^/]+)", self._delete_floating),
        )
        for wanted, _, answer in (each for each in public if path == each[1]):
            if wanted == method:
                return answer(body) if method == "POST" else answer()
        if self.headers.get("X-Auth-Token") != self.state.token:
            raise RefusedError(401, "The request you have made requires authentication.")
        for wanted, pattern, answer in private:
            if wanted == method and (found := re.fullmatch(pattern, path)):
                return answer(*found.groups())
        raise RefusedError(404, f"{method} {path}")

    # --- Keystone ---

    @property
    def _root(self) -> str:
        return f"http://{self.headers['Host']}"

    def _links(self, path: str) -> list[Json]:
        return [{"rel": "self", "href": f"{self._root}{path}"}]

    def _identity(self) -> tuple[int, Json]:
        return 200, {"version": {"id": "v3.14", "status": "stable", "links": self._links("/identity/v3/")}}

    def _token(self, body: Json) -> tuple[int, Json]:
        identity, scope = body["auth"]["identity"], body["auth"].get("scope", {})
        user = identity["password"]["user"]
        if identity["methods"] != ["password"] or user["name"] != "tester" or user["password"] != PASSWORD:
            raise RefusedError(401, "The request you have made requires authentication.")
        if scope.get("project", {}).get("name") != "benchmarks":
            raise RefusedError(401, "The project is not known.")
        kinds = (
            ("identity", "/identity/v3"),
            ("compute", "/compute/v2.1"),
            ("image", "/image"),
            ("network", "/network"),
        )
        catalog = [
            {
                "type": kind,
                "name": kind,
                "id": kind,
                "endpoints": [
                    {"interface": "public", "region": "one", "region_id": "one", "id": kind, "url": self._root + path}
                ],
            }
            for kind, path in kinds
        ]
        token = {
            "methods": ["password"],
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "user": {"id": "u1", "name": "tester", "domain": {"id": "default", "name": "Default"}},
            "project": {"id": "p1", "name": "benchmarks", "domain": {"id": "default", "name": "Default"}},
            "roles": [{"id": "r1", "name": "member"}],
            "catalog": catalog,
        }
        return 201, {"token": token}

    def _compute_versions(self) -> tuple[int, Json]:
        version = {"id": "v2.1", "status": "CURRENT", "version": "2.90", "min_version": "2.1"}
        return 200, {"version": version | {"links": self._links("/compute/v2.1/")}}

    def _image_versions(self) -> tuple[int, Json]:
        return 200, {"versions": [{"id": "v2.9", "status": "CURRENT", "links": self._links("/image/v2/")}]}

    def _network_versions(self) -> tuple[int, Json]:
        return 200, {"versions": [{"id": "v2.0", "status": "CURRENT", "links": self._links("/network/v2.0/")}]}

    def _listed(self, kind: str, things: dict[str, Json]) -> tuple[int, Json]:
        """List things, filtered as the query asks for; Nova takes the name as a regular expression."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        found = [
            thing
            for thing in things.values()
            if all(
                re.search(value, str(thing[name])) if (kind, name) == ("servers", "name") else thing[name] == value
                for name, value in query.items()
                if name in thing
            )
        ]
        return 200, {kind: found}

    # --- Nova ---

    def _add_keypair(self, wanted: Json) -> tuple[int, Json]:
        _needed(wanted, "name", "public_key")
        if wanted["name"] in self.state.keypairs:
            raise RefusedError(409, f"Key pair '{wanted['name']}' already exists.")
        self.state.keypairs[wanted["name"]] = {"name": wanted["name"], "public_key": wanted["public_key"]}
        return 200, {"keypair": self.state.keypairs[wanted["name"]]}

    def _delete_keypair(self, name: str) -> tuple[int, Json]:
        _one(self.state.keypairs, name, "Keypair")
        del self.state.keypairs[name]
        return 202, {}

    def _add_server(self, wanted: Json) -> tuple[int, Json]:
        _needed(wanted, "name", "flavorRef", "imageRef", "networks")
        if len(self.state.servers) >= self.state.quota:
            raise RefusedError(403, "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances")
        _one(FLAVORS, wanted["flavorRef"], "Flavor")
        _one(IMAGES, wanted["imageRef"], "Image")
        if wanted["key_name"] not in self.state.keypairs:
            raise RefusedError(400, f"Invalid key_name provided.: {wanted['key_name']}")
        for group in wanted.get("security_groups", []):
            if group["name"] not in {each["name"] for each in self.state.groups.values()}:
                raise RefusedError(400, f"Security group {group['name']} not found.")
        number = uuid.uuid4().hex
        server = {"id": number, "name": wanted["name"], "status": "BUILD", "addresses": {}, "looks": 0}
        self.state.servers[number] = server | {"key": wanted["key_name"], "user_data": wanted.get("user_data", "")}
        port = {"id": f"port-{number}", "device_id": number, "network_id": "n1", "name": "", "pairs": []}
        self.state.ports[f"port-{number}"] = port
        return 202, {"server": {"id": number, "links": []}}

    def _look_at_server(self, number: str) -> tuple[int, Json]:
        server = _one(self.state.servers, number, "Instance")
        server["looks"] += 1
        if server["status"] == "BUILD" and server["looks"] >= 2 and not self.state.stuck:
            if self.state.fault:
                server |= {"status": "ERROR", "fault": {"code": 500, "message": self.state.fault}}
            else:
                server |= {"status": "ACTIVE", "addresses": {"private": [{"version": 4, "addr": self.state.address}]}}
                self.state.started(server | self.state.keypairs[server["key"]])
        return 200, {"server": server}

    def _delete_server(self, number: str) -> tuple[int, Json]:
        server = _one(self.state.servers, number, "Instance")
        server["status"], server["deletes"] = "DELETING", server.get("deletes", 0) + 1
        if server["deletes"] >= 2:  # it takes its time
            del self.state.servers[number]
            self.state.ports.pop(f"port-{number}")
        return 204, {}

    def _act(self, number: str, body: Json) -> tuple[int, Json]:
        _one(self.state.servers, number, "Instance")
        if "os-getConsoleOutput" not in body:
            raise RefusedError(400, f"There is no such action: {next(iter(body))}")
        if self.state.console is None:
            raise RefusedError(501, "Unable to get console")
        return 200, {"output": self.state.console}

    # --- Neutron ---

    def _change_port(self, number: str, wanted: Json) -> tuple[int, Json]:
        port = _one(self.state.ports, number, "Port")
        if not self.state.pairs_allowed:
            raise RefusedError(403, "(rule:update_port:allowed_address_pairs) is disallowed by policy")
        port["pairs"] = wanted["allowed_address_pairs"]
        return 200, {"port": port}

    def _add_group(self, wanted: Json) -> tuple[int, Json]:
        _needed(wanted, "name")
        group = {"id": uuid.uuid4().hex, "name": wanted["name"], "rules": []}
        self.state.groups[group["id"]] = group
        return 201, {"security_group": group}

    def _add_rule(self, wanted: Json) -> tuple[int, Json]:
        _needed(wanted, "security_group_id", "direction")
        _one(self.state.groups, wanted["security_group_id"], "Security group")["rules"].append(wanted)
        return 201, {"security_group_rule": {"id": uuid.uuid4().hex} | wanted}

    def _delete_group(self, number: str) -> tuple[int, Json]:
        _one(self.state.groups, number, "Security group")
        if self.state.servers:
            raise RefusedError(409, f"Security Group {number} in use.")
        del self.state.groups[number]
        return 204, {}

    def _add_floating(self, wanted: Json) -> tuple[int, Json]:
        _needed(wanted, "floating_network_id")
        _one(self.state.ports, wanted["port_id"], "Port")
        number = uuid.uuid4().hex
        self.state.floating[number] = {"id": number, "floating_ip_address": self.state.address} | wanted
        return 201, {"floatingip": self.state.floating[number]}

    def _delete_floating(self, number: str) -> tuple[int, Json]:
        _one(self.state.floating, number, "Floating IP")
        del self.state.floating[number]
        return 204, {}


@contextmanager
def running(state: State) -> Iterator[str]:
    """Run the cloud on a loopback port; yield its auth_url."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"state": state})) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/identity/v3"
        finally:
            server.shutdown()
            thread.join(timeout=10)
