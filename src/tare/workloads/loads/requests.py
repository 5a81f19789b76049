"""What an HTTP load asks for: requests of the user's, in a file or in the suite, as wrk sends them.

A request file has a JSON object a line. Only `path` is needed:

    {"path": "/search", "method": "POST", "headers": {"Content-Type": "text/plain"}, "body": "word"}

Requests are sent in their order, again and again, by all connections together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError, ValidationInfo

from tare.hosts.host import Host
from tare.hosts.local import contents
from tare.suites.document import folder_of

MOST_REQUESTS, MOST_BYTES = 10_000, 1024**2  # each of up to 256 threads of wrk has them all
_THERE = PurePosixPath("/srv/tare-requests.lua")
_PATH = re.compile(r"/[!-~]{0,8000}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_TEXT = re.compile(r"([!-~]([\t -~]{0,8000}[!-~])?)?", re.ASCII)
_NOT_THE_USERS = ("connection", "content-length", "expect", "transfer-encoding", "upgrade")


def as_path(text: str) -> str:
    """Return a path of a request; raises ValueError for what cannot be one."""
    if not _PATH.fullmatch(text):
        raise ValueError("a path begins with /, and has no blanks and ASCII alone, such as /search?word=caf%C3%A9")
    return text


@dataclass(frozen=True)
class Request:
    """One request. There is no HEAD: wrk would wait for the page that does not come.

    Raises ValueError for what cannot be sent: it would end the request early, or make another one of it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    path: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""

    def __post_init__(self) -> None:
        """Refuse characters that HTTP does not have, and headers that are not the user's to give."""
        as_path(self.path)
        for name, text in self.headers.items():
            if not _NAME.fullmatch(name) or not _TEXT.fullmatch(text):
                raise ValueError(f"{name[:100]!r} is no header: its name has no blanks, its text is one line of ASCII")
            if name.lower() in _NOT_THE_USERS:
                raise ValueError(f"{name} is a header that the load gives itself, or cannot follow")


_REQUEST = TypeAdapter(Request)


def parse_requests(text: str) -> tuple[Request, ...]:
    """Read a request file's text; raises ValueError with the line that is no request, or for a file without any."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise ValueError('it has no request: a line is one, such as {"path": "/"}')
    return _bounded(tuple(_request(line, f"line {number}") for number, line in lines))


def _read(value: object, info: ValidationInfo) -> object:
    """Take a text as the name of a request file, and tables as requests."""
    if isinstance(value, list):
        texts = (json.dumps(each, default=str) for each in value)
        return _bounded(tuple(_request(text, f"request {number}") for number, text in enumerate(texts, start=1)))
    if not isinstance(value, str):
        return value
    try:
        if not (path := folder_of(info) / value).is_file():
            raise ValueError(f"there is no such file: {path.absolute()}")
        return parse_requests(contents(path, MOST_BYTES).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 text: byte {error.start} cannot be read") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {(error.strerror or str(error)).lower()}") from None


Requests = Annotated[tuple[Request, ...], BeforeValidator(_read)]


def as_sent(request: Request, host: str, *, keep_alive: bool) -> bytes:
    """Return the bytes of a request to a host, which is its address and port unless the request names another."""
    body = request.body.encode()
    lines = [f"{request.method} {request.path} HTTP/1.1"]
    lines += [f"{name}: {text}" for name, text in request.headers.items()]
    if "host" not in {name.lower() for name in request.headers}:
        lines.append(f"Host: {host}")
    if body or request.method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    if not keep_alive:
        lines.append("Connection: close")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii") + body


def put_requests(client: Host, requests: Sequence[Request], host: str, *, keep_alive: bool = True) -> tuple[str, ...]:
    """Write requests to the client, for the next wrk that is started; return its script's argument that names them.

    Without requests there is none: the script asks for wrk's own page.
    """
    if not requests:
        return ()
    with NamedTemporaryFile("w", encoding="ascii") as file:
        file.write(as_lua(as_sent(each, host, keep_alive=keep_alive) for each in requests))
        file.flush()
        client.put(Path(file.name), _THERE)
    return (str(_THERE),)


def as_lua(texts: Iterable[bytes]) -> str:
    """Write texts as a list in Lua, each byte by its number, so that none can end a text or the list."""
    written = ("".join(f"\\{byte:03d}" for byte in text) for text in texts)
    return "return {\n" + "".join(f'"{text}",\n' for text in written) + "}\n"


def _request(text: str, where: str) -> Request:
    try:
        return _REQUEST.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{part}: " for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        raise ValueError(f"{where}: {key}{said}") from None


def _bounded(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    size = sum(len(as_sent(each, "", keep_alive=True)) for each in requests)
    if len(requests) > MOST_REQUESTS or size > MOST_BYTES:
        raise ValueError(f"requests are at most {MOST_REQUESTS}, and 1 MiB together")
    return requests
