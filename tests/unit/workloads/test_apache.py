"""Apache: its server. tests/unit/workloads/loads/test_httperf.py has the parser's tests."""

from __future__ import annotations

from tare.workloads.apache import Apache


def test_apache_has_the_modules_of_debian_and_a_log_and_listens_on_the_given_address() -> None:
    service = Apache(size=2048).service("198.18.0.10")
    files = dict(service.files)
    configuration = files["/srv/tare-apache.conf"].splitlines()
    assert service.argv == ("/usr/sbin/apache2", "-D", "FOREGROUND", "-f", "/srv/tare-apache.conf")
    assert service.port == 18080
    assert [line for line in configuration if line.startswith("Listen")] == ["Listen 198.18.0.10:18080"]
    assert "IncludeOptional mods-enabled/*.load" in configuration
    assert "IncludeOptional mods-enabled/*.conf" in configuration
    assert "Alias /file /srv/tare-apache-file" in configuration
    assert 'LogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" combined' in configuration
    assert len(files["/srv/tare-apache-file"]) == 2048
    assert "CustomLog /dev/null combined" in configuration, "a log would fill the instance's disk"
    assert Apache.paths == ("/srv/tare-apache-file",)
