"""A simulated user on the line: a session, and the ten requests of a search, over a connection of its own.

VTmark (section 6.3): "each synthetic user loaded the page and performed a series of requests, amounting to 250 queries.
If the synthetic user received a failure (a 50* error or a transport-level error, like a timeout) the follow-up HTTP
request in the search activity was dropped". What the requests are, it does not tell; README.md has ours.

The client is Python's own, on a connection that each search opens and closes: others try a request again that was cut
off, and would hide what is counted here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlencode

from tally import Tally

REQUESTS = 10  # of a search


@dataclass
class Visitor:
    """A user: who it is, where it asks, and what it counts; `now` gives the seconds of the load."""

    name: str
    server: tuple[str, int]
    timeout_seconds: float
    tally: Tally
    now: Callable[[], float] = time.monotonic
    session: str = ""
    _connection: HTTPConnection = field(init=False)

    def search(self, word: str) -> bool:
        """Make the requests of a search; False if the rest was dropped after a failure."""
        self._connection = HTTPConnection(*self.server, timeout=self.timeout_seconds)
        try:
            return self._requested(word)
        finally:
            self._connection.close()

    def _requested(self, word: str) -> bool:
        before = ("/style.css", "/dictionary.js", _with("/suggest", q=word[:2]), _with("/suggest", q=word[:4]))
        if self._page() is None or any(self._ask("GET", path) is None for path in before):
            return False
        answer = self._ask("GET", _with("/search", q=word))
        if answer is None:
            return False
        found = _words_in(answer) or (word,)
        after = (
            _with("/entry", word=found[0]),
            _with("/entry", word=found[min(1, len(found) - 1)]),
            "/user",
            "/popular",
        )
        return all(self._ask("GET", path) is not None for path in after)

    def _page(self) -> bytes | None:
        if self.session:
            return self._ask("GET", "/")
        return self._ask("POST", "/", urlencode({"name": self.name, "password": f"{self.name}-password"}))

    def _ask(self, method: str, path: str, form: str | None = None) -> bytes | None:
        """Make a request and count its answer; gives the body of a good one."""
        headers = {"Cookie": f"session={self.session}"} if self.session else {}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        status, body, began = None, b"", self.now()
        try:
            self._connection.request(method, path, form, headers)
            answer = self._connection.getresponse()
            body = answer.read()
            status = answer.status
            self.session = _session_in(answer.headers.get_all("Set-Cookie", [])) or self.session
        except (OSError, HTTPException):
            self._connection.close()  # what is left on it belongs to no later request
        ended = self.now()
        self.tally.count_answer(ended, status, ended - began)
        return body if status == 200 else None


def _with(path: str, **values: str) -> str:
    return f"{path}?{urlencode(values)}"


def _words_in(body: bytes) -> tuple[str, ...]:
    """Read the words that a search has found; none if it is no list of words."""
    try:
        found = json.loads(body)
    except ValueError:
        return ()
    return tuple(word for word in found if isinstance(word, str)) if isinstance(found, list) else ()


def _session_in(cookies: Sequence[str]) -> str:
    """Read the session that an answer begins, if it does."""
    jar = SimpleCookie()
    try:
        for each in cookies:
            jar.load(each)
    except CookieError:
        return ""
    return jar["session"].value if "session" in jar else ""
