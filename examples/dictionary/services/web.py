"""The web service, which is under test: nginx, PHP, a cache in memcached, and both search daemons.

These are together in VTmark's section 6.1, too: nginx redirects requests to sites in PHP, which "use Memcache for query
optimisation", with "15 minutes of standard cache timeout for all semi-static data", and the daemons are its components:
the four services that section 6.2 puts on another host are others.

    web.py --address 198.18.0.10 --port 80 --database-address database --sessions sessions:11211 --log log:8103
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from database import add_database_options
from together import Program, run_together

CACHE_SECONDS = 15 * 60  # section 6.1
_HERE = "127.0.0.1"
_CACHE, _SEARCH, _FUZZY, _PHP = 8100, 8101, 8102, 9000
_FOLDER = Path(__file__).resolve().parent

NGINX = """\
daemon off;
user www-data;
worker_processes {processes};
pid {state}/nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    types {{ text/css css; text/javascript js; }}
    server {{
        listen {address}:{port} backlog=1024;
        root {site};
        location = /style.css {{ }}
        location = /dictionary.js {{ }}
        location / {{
            fastcgi_pass {here}:{php};
            fastcgi_connect_timeout 30s;
            fastcgi_read_timeout 30s;
            fastcgi_param SCRIPT_FILENAME {site}/index.php;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
        }}
    }}
}}
"""

PHP = """\
[global]
daemonize = no
error_log = {state}/php-fpm.log
[www]
user = www-data
group = www-data
listen = {here}:{php}
listen.backlog = 1024
pm = static
pm.max_children = {workers}
catch_workers_output = yes
clear_env = yes
env[DATABASE_ADDRESS] = "{database}"
env[DATABASE_PORT] = "{database_port}"
env[DATABASE_PASSWORD] = "{password}"
env[SESSIONS] = "{sessions}"
env[LOG] = "{log}"
env[CACHE] = "{here}:{cache}"
env[CACHE_SECONDS] = "{cache_seconds}"
env[SEARCH] = "{here}:{search}"
env[FUZZY] = "{here}:{fuzzy}"
"""


def options_of(arguments: list[str] | None = None) -> Namespace:
    """Read the options; what is written into a configuration is refused if it could end its line or its quotes."""
    parser = ArgumentParser(description="Start the web service of the dictionary.")
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sessions", required=True, help="ADDRESS:PORT of the sessions' memcached")
    parser.add_argument("--log", required=True, help="ADDRESS:PORT of the log service")
    parser.add_argument("--factor", type=float, default=1.0, help="by which time is compressed, for the cache as well")
    parser.add_argument("--php-workers", type=int, default=8 * len(os.sched_getaffinity(0)))
    parser.add_argument("--cache-megabytes", type=int, default=64)
    parser.add_argument("--state", type=Path, default=Path("/srv"), help="where configurations are written")
    add_database_options(parser)
    options = parser.parse_args(arguments)
    if not options.factor > 0:
        parser.error("--factor is more than 0")
    texts = (options.address, options.sessions, options.log, options.database_address, options.database_password)
    if any(not text.isprintable() or set(text) & set("\"'$;{}\\ ") for text in (*texts, str(options.state))):
        parser.error("an address, a folder or a password has a quote, a blank or another character of configurations")
    return options


def configurations(options: Namespace) -> dict[str, str]:
    """Give the configurations of nginx and PHP by the names of their files."""
    values = {
        "here": _HERE,
        "cache": _CACHE,
        "search": _SEARCH,
        "fuzzy": _FUZZY,
        "php": _PHP,
        "processes": len(os.sched_getaffinity(0)),
        "workers": options.php_workers,
        "state": options.state,
        "site": _FOLDER / "site",
        "address": options.address,
        "port": options.port,
        "database": options.database_address,
        "database_port": options.database_port,
        "password": options.database_password,
        "sessions": options.sessions,
        "log": options.log,
        "cache_seconds": max(1, round(CACHE_SECONDS / options.factor)),
    }
    return {"nginx.conf": NGINX.format(**values), "php-fpm.conf": PHP.format(**values)}


def programs(options: Namespace, php: str) -> tuple[Program, ...]:
    """Give what the web service consists of, in the order of starting; `php` is the path of php-fpm."""
    database = (
        f"--database-address={options.database_address}",
        f"--database-port={options.database_port}",
        f"--database-password={options.database_password}",
    )
    cache = ("memcached", "-u", "nobody", "-l", _HERE, "-p", str(_CACHE), "-m", str(options.cache_megabytes))
    search = (sys.executable, str(_FOLDER / "search_daemon.py"), "--port", str(_SEARCH), *database)
    fuzzy = (sys.executable, str(_FOLDER / "fuzzy_daemon.py"), "--port", str(_FUZZY), *database)
    nginx = ("nginx", "-c", str(options.state / "nginx.conf"))
    return (
        Program(cache, _HERE, _CACHE),
        Program(search, _HERE, _SEARCH),
        Program(fuzzy, _HERE, _FUZZY),
        Program((php, "-F", "-O", "-y", str(options.state / "php-fpm.conf")), _HERE, _PHP),
        Program(nginx, options.address, options.port),
    )


def main() -> int:
    """Write the configurations, and start all programs."""
    options = options_of()
    found = sorted(Path("/usr/sbin").glob("php-fpm[0-9]*"))  # its name has PHP's version, which is Debian's
    if not found:
        sys.stderr.write("there is no php-fpm in /usr/sbin\n")
        return 1
    for name, text in configurations(options).items():
        (options.state / name).write_text(text, encoding="utf-8")
    return run_together(programs(options, str(found[-1])))


if __name__ == "__main__":
    sys.exit(main())
