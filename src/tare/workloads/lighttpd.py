"""lighttpd: a static file over HTTP, and the highest rate of new connections at which it still answers.

A lighttpd in the instance serves a file from the instance's disk. httperf on the client opens a connection for each
request, at rates that rise until answers no longer follow. The 2015 paper (section 3.2, Figure 4) ran lighttpd 1.4.35
on OSv and Apache on Linux, for ten seconds at each rate up to about 5000/s, where its client had no free port left.
Here every stack runs the same lighttpd, with the modules of Debian's default, as root and without a log.

Values: the knee; by rate the answers a second, the response time and its standard deviation, and each class of errors.
loads.knee defines the knee and its search, loads.httperf lists the limits of the client.

Settings: `rates`, which rise and then double; `duration` of a run; `runs` at each rate, an odd number; `tolerance`, the
share of requests that may lack a good answer; `resolution` of the knee; `timeout` of an answer; `size` of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.http import HTTP_PORT, create_page
from tare.loads.httperf import HttperfLoad
from tare.model.trial import Service

_CONFIGURATION_PATH = "/srv/tare-lighttpd.conf"
_FILE_PATH = "/srv/tare-lighttpd-file"
_CONFIGURATION = f"""\
server.modules = ("mod_indexfile", "mod_access", "mod_alias", "mod_redirect", "mod_dirlisting", "mod_staticfile")
server.bind = "LISTEN"
server.port = {HTTP_PORT}
server.document-root = "/srv"
alias.url = ("/file" => "{_FILE_PATH}")
"""


@dataclass(frozen=True)
class Lighttpd(HttperfLoad):
    """Static file over new connections."""

    name = "lighttpd"
    title = "lighttpd: static file over new connections"
    packages = ("lighttpd",)
    paths = (_FILE_PATH,)

    def service(self, listen: str) -> Service:
        """Return lighttpd in the foreground."""
        files = ((_CONFIGURATION_PATH, _CONFIGURATION.replace("LISTEN", listen)), (_FILE_PATH, create_page(self.size)))
        return Service(("/usr/sbin/lighttpd", "-D", "-f", _CONFIGURATION_PATH), HTTP_PORT, files)
