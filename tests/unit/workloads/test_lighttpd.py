"""lighttpd: its server. tests/unit/workloads/loads/test_httperf.py has the parser's tests."""

from __future__ import annotations

import pytest

from tare.workloads.lighttpd import Lighttpd


@pytest.mark.parametrize("size", [1, 1024, 65537])
def test_the_server_listens_on_the_given_address_and_serves_a_file_of_the_size(size: int) -> None:
    service = Lighttpd(size=size).service("198.18.0.10")
    files = dict(service.files)
    assert service.argv == ("/usr/sbin/lighttpd", "-D", "-f", "/srv/tare-lighttpd.conf")
    assert service.port == 18080
    assert 'server.bind = "198.18.0.10"\nserver.port = 18080\n' in files["/srv/tare-lighttpd.conf"]
    assert 'alias.url = ("/file" => "/srv/tare-lighttpd-file")' in files["/srv/tare-lighttpd.conf"]
    assert len(files["/srv/tare-lighttpd-file"]) == size
    assert set(Lighttpd.paths) <= set(files)
