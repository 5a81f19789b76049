"""BIND: its server. tests/unit/workloads/loads/test_dnsperf.py has what dnsperf printed."""

from __future__ import annotations

import pytest

from tare.workloads.bind import Bind


@pytest.mark.parametrize(("listen", "written"), [("198.18.0.10", "198.18.0.10"), ("0.0.0.0", "any")])  # noqa: S104
def test_named_is_the_authority_for_one_zone_and_listens_on_the_given_address(listen: str, written: str) -> None:
    service = Bind().service(listen)
    files = dict(service.files)
    assert service.argv == ("/usr/sbin/named", "-g", "-c", "/srv/tare-named.conf")
    assert service.port == Bind().port == 15353
    assert f"listen-on port 15353 {{ {written}; }};" in files["/srv/tare-named.conf"]
    assert 'zone "tare.test" { type primary; file "/srv/tare-zone"; };' in files["/srv/tare-named.conf"]
    assert "recursion no;" in files["/srv/tare-named.conf"]
    assert "www IN A 192.0.2.2" in files["/srv/tare-zone"]


def test_the_name_that_is_asked_for_is_in_the_zone() -> None:
    assert Bind.question == "www.tare.test A"


def test_its_server_is_asked_over_udp() -> None:
    assert Bind.datagrams
    assert Bind.usual_port == 53
