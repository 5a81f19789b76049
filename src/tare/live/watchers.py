"""Who watches a run: the browsers that have asked lately, and the page that each of them shows."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

RELOAD_SECONDS = 10  # how often a browser without scripts loads the page

_SILENT_SECONDS = 5.0  # a script that has not asked for so long is gone, or in a tab that sleeps
_MOST = 64


@dataclass
class Watchers:
    """The browsers that have asked. Several threads record them. Times are of one monotonic clock."""

    _asked: dict[str, tuple[float, int]] = field(default_factory=dict)  # by name: when, and the page that it shows
    _loaded: float | None = None  # the last time, if no script has asked since: it may come, or there may be none
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def loads(self, moment: float) -> None:
        """Record that a browser has loaded the page."""
        with self._lock:
            self._loaded = moment

    def asks(self, name: str, page: int, moment: float) -> None:
        """Record that a page's script has asked, and which page it shows."""
        with self._lock:
            if name not in self._asked:
                self._loaded = None
                while len(self._asked) >= _MOST:
                    del self._asked[next(iter(self._asked))]
            self._asked[name] = (moment, page)

    def there(self, moment: float) -> bool:
        """Return whether a browser watches."""
        with self._lock:
            lately = [when for when, _ in self._asked.values() if moment - when <= _SILENT_SECONDS]
            return bool(lately) or (self._loaded is not None and moment - self._loaded <= RELOAD_SECONDS + 1)

    def lack(self, page: int, since: float, moment: float) -> bool:
        """Return whether a browser watches that has not got this page, which is there `since` then."""
        with self._lock:
            scripts = [shown for when, shown in self._asked.values() if moment - when <= _SILENT_SECONDS]
            loaded = self._loaded
        without = loaded is not None and loaded < since and moment - loaded <= RELOAD_SECONDS + 1
        return without or any(shown < page for shown in scripts)
