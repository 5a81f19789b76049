"""A registry of images on this machine's loopback, which serves the images of layouts by HTTP, as distribution says."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

USER = "reader:of-images"
_JSON = "application/json"


class Images(ThreadingHTTPServer):
    """Serves these layouts; to anybody, or only to `USER`."""

    def __init__(self, layouts: dict[str, Path], private: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.layouts, self.private = layouts, private

    def found(self, path: str, authorization: str | None) -> tuple[int, str, bytes]:
        """Return status, kind and content."""
        wanted = f"Basic {base64.b64encode(USER.encode()).decode()}"
        if self.private and authorization != wanted:
            return 401, _JSON, b'{"errors": [{"code": "UNAUTHORIZED"}]}'
        parts = path.strip("/").split("/")
        if parts == ["v2"]:
            return 200, _JSON, b"{}"
        folder = self.layouts.get(parts[1]) if len(parts) == 4 else None
        if folder is None:
            return 404, _JSON, b'{"errors": [{"code": "NAME_UNKNOWN"}]}'
        (described,) = json.loads((folder / "index.json").read_bytes())["manifests"]
        digest = described["digest"] if parts[3] == "latest" else parts[3]
        file = folder / "blobs/sha256" / digest.removeprefix("sha256:")
        if not file.exists():
            return 404, _JSON, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'
        kind = described["mediaType"] if parts[2] == "manifests" else "application/octet-stream"
        return 200, kind, file.read_bytes()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Images

    def do_GET(self) -> None:
        status, kind, body = self.server.found(self.path, self.headers.get("Authorization"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="images"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - its base class calls it so

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def registry(layouts: dict[str, Path], private: bool = False) -> Iterator[str]:
    """Serve layouts under their names, each with the tag `latest`; yield its address."""
    with Images(layouts, private) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
