"""Apache: a static file over HTTP, and the highest rate of new connections at which it still answers.

An Apache in the instance serves a file from the instance's disk. httperf on the client opens a connection for each
request, at rates that rise until answers no longer follow. The 2015 paper (section 3.2, Figure 4) ran Apache 2.4.7 of
Ubuntu in its default configuration on Linux, for ten seconds at each rate: at about 4000/s the answers dropped
dramatically. Here every stack runs the same Apache, with the modules and settings of Debian's default (the event MPM,
150 threads). Its access log has the default format, but goes to /dev/null, so that it fills no disk. Port and file
differ from the default. The workers run as www-data, a user that the instance must have.

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

_CONFIGURATION_PATH = "/srv/tare-apache.conf"
_FILE_PATH = "/srv/tare-apache-file"
_CONFIGURATION = f"""\
ServerRoot /etc/apache2
ServerName tare
DefaultRuntimeDir /srv
PidFile /srv/tare-apache.pid
Listen LISTEN:{HTTP_PORT}
ErrorLog /dev/stderr
User www-data
Group www-data
IncludeOptional mods-enabled/*.load
IncludeOptional mods-enabled/*.conf
DocumentRoot /srv
Alias /file {_FILE_PATH}
<Directory /srv>
    Options FollowSymLinks
    AllowOverride None
    Require all granted
</Directory>
LogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{{Referer}}i\\" \\"%{{User-Agent}}i\\"" combined
CustomLog /dev/null combined
"""


@dataclass(frozen=True)
class Apache(HttperfLoad):
    """Static file over new connections."""

    name = "apache"
    title = "Apache: static file over new connections"
    needs_other_user = True
    packages = ("apache2",)
    paths = (_FILE_PATH,)

    def service(self, listen: str) -> Service:
        """Return Apache in the foreground."""
        files = ((_CONFIGURATION_PATH, _CONFIGURATION.replace("LISTEN", listen)), (_FILE_PATH, create_page(self.size)))
        return Service(("/usr/sbin/apache2", "-D", "FOREGROUND", "-f", _CONFIGURATION_PATH), HTTP_PORT, files)
