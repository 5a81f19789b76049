"""nginx: a static file over HTTP, in requests a second over the number of clients.

One nginx worker in the instance serves a file from the instance's disk. The client requests it without a pause over
`clients` connections. The 2017 paper (section V-A, Figure 3) served its institute's favicon to 0 to 1000 clients
in steps of 100 with weighttp, keep-alive on. nginx has its default settings and sendfile, without an access log. It
also has no cache of open files, so that each request opens and reads the file. The worker runs as root, because a
container may have no other user.

A refused or broken connection, a status other than 200 to 399, a page of another size than the file's, or no answer for
half a minute fails the trial. The load is tare's load client (loads.load_client), which takes turns of a few
milliseconds, or wrk (loads.http). Connections stay open between turns, and the time in which they are opened is not
measured.

Settings: `clients`; `duration` of each point; `turn`, the part of a turn that counts, and `discard`, the first part,
which does not count (0: the run chooses both); `keep_alive`, without which every request opens a new connection;
`load`, `tare` or `wrk`; `size` of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.http import HTTP_PORT, HttpLoad, PageSize, create_page
from tare.model.trial import Service

# Not in /tmp, because some technologies keep it in memory and others on a disk.
_CONFIGURATION_PATH = "/srv/tare-nginx.conf"
_FILE_PATH = "/srv/tare-nginx-file"
_CONFIGURATION = """\
daemon off;
user root;
pid /srv/tare-nginx.pid;
error_log stderr;
worker_processes 1;
events { worker_connections 4000; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    server {
        listen LISTEN backlog=1024;
        location = /file { alias FILE; }
        location / { return 404; }
    }
}
"""


@dataclass(frozen=True)
class Nginx(HttpLoad):
    """Static file over HTTP."""

    name = "nginx"
    title = "nginx: static file over HTTP"
    packages = ("nginx-light",)
    usual_port = 80
    paths = (_FILE_PATH,)

    size: PageSize = 1024

    @property
    def page_bytes(self) -> int:
        """Size of the file."""
        return self.size

    def service(self, listen: str) -> Service:
        """Return nginx in the foreground; its backlog is somaxconn of the 2017 paper's Table III."""
        configuration = _CONFIGURATION.replace("LISTEN", f"{listen}:{HTTP_PORT}").replace("FILE", _FILE_PATH)
        argv = ("/usr/sbin/nginx", "-e", "stderr", "-c", _CONFIGURATION_PATH)
        return Service(argv, HTTP_PORT, ((_CONFIGURATION_PATH, configuration), (_FILE_PATH, create_page(self.size))))
