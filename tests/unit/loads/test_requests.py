"""Requests of the user's: what is read, what is refused, and the bytes that are sent."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import TypeAdapter, ValidationError

from tare.hosts.local import LocalHost
from tare.loads.http import Request, Requests, as_lua, encode_request, parse_requests, put_requests

TWO = """\
{"path": "/"}

{"path": "/search?q=caf%C3%A9", "method": "POST", "headers": {"Content-Type": "text/plain"}, "body": "café"}
"""
POST = Request("/search?q=caf%C3%A9", "POST", {"Content-Type": "text/plain"}, "café")


def read(value: object) -> tuple[Request, ...]:
    adapter: TypeAdapter[tuple[Request, ...]] = TypeAdapter(Requests)
    return adapter.validate_python(value, strict=True)


# --- reading them


def test_a_line_is_a_request_and_empty_lines_are_none() -> None:
    assert parse_requests(TWO) == (Request("/"), POST)
    assert parse_requests(TWO.replace("\n", "\r\n")) == (Request("/"), POST)


def test_what_some_take_for_the_end_of_a_line_is_part_of_a_body() -> None:
    assert parse_requests('{"path": "/", "body": "a\u2028b\u0085c"}')[0].body == "a\u2028b\u0085c"


def test_a_file_and_tables_of_the_suite_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("\ufeff" + TWO, encoding="utf-8")
    table = {"path": POST.path, "method": "POST", "headers": POST.headers, "body": POST.body}
    assert read(str(file)) == read([{"path": "/"}, table]) == (Request("/"), POST)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("GET /", "Invalid JSON"),
        ('{"path": "/"', "Invalid JSON"),
        ('"/"', "it should be an object"),
        ("[]", "it should be an object"),
        ("{}", "path: "),
        ('{"path": 1}', "path: "),
        ('{"path": "search"}', "a path begins with /"),
        ('{"path": "/a b"}', "a path begins with /"),
        ('{"path": "/\\r\\nHost: other"}', "a path begins with /"),
        ('{"path": "/café"}', "a path begins with /"),
        ('{"path": "/%s"}' % ("a" * 8001), "a path begins with /"),
        ('{"path": "/", "method": "HEAD"}', "method: it should be 'GET'"),
        ('{"path": "/", "method": "get"}', "method: it should be 'GET'"),
        ('{"path": "/", "methd": "POST"}', "methd: "),
        ('{"path": "/", "headers": {"A": 1}}', "headers: A: "),
        ('{"path": "/", "headers": {"A": "1\\r\\nB: 2"}}', "'A' is no header"),
        ('{"path": "/", "headers": {"A": "caf\u00e9"}}', "'A' is no header"),
        ('{"path": "/", "headers": {"A:": "1"}}', "'A:' is no header"),
        ('{"path": "/", "headers": {"": "1"}}', "'' is no header"),
        ('{"path": "/", "headers": {"content-length": "1"}}', "content-length is a header that the load gives itself"),
        ('{"path": "/", "headers": {"Expect": "100-continue"}}', "Expect is a header that the load gives itself"),
        ('{"path": "/", "body": "\\ud800"}', "Invalid JSON"),
        ("[" * 5000, "Invalid JSON"),
    ],
)
def test_a_line_that_is_no_request_is_refused_with_its_number(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^line 2: {re.escape(said)}") as refusal:
        parse_requests(f'{{"path": "/"}}\n{line}')
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it has no request"),
        (b"\n\n", "it has no request"),
        (b"GET /\n", "line 1: Invalid JSON"),
        (b'{"path": "/\xff"}\n', "it is no UTF-8 text: byte 11"),
        (b'{"path": "/"}\n' * 10_001, "at most 10000"),
        (b'{"path": "/", "body": "%s"}\n' % (b"a" * 1_000_000) * 2, "file too large"),
    ],
)
def test_a_file_that_is_no_request_file_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "requests").write_bytes(content)
    with pytest.raises(ValidationError, match=said):
        read(str(tmp_path / "requests"))


@pytest.mark.parametrize("name", ["", "none.jsonl", ".", "/dev/zero", "a\0b", "a" * 5000])
def test_a_file_that_is_not_there_or_has_no_end_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=r"there is no such file|it cannot be read"):
        read(name)


def test_tables_that_are_no_requests_are_refused_with_their_number() -> None:
    with pytest.raises(ValidationError, match="request 2: a path begins with /"):
        read([{"path": "/"}, {"path": ""}])
    assert read([]) == ()


# --- sending them


def test_a_request_is_sent_with_its_host_and_content_length_in_bytes() -> None:
    assert encode_request(POST, "198.18.0.10:80", keep_alive=True) == (
        b"POST /search?q=caf%C3%A9 HTTP/1.1\r\nContent-Type: text/plain\r\n"
        b"Host: 198.18.0.10:80\r\nContent-Length: 5\r\n\r\ncaf\xc3\xa9"
    )


def test_without_keep_alive_a_request_says_that_its_connection_ends() -> None:
    assert (
        encode_request(Request("/"), "x:1", keep_alive=False)
        == b"GET / HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n"
    )


def test_a_host_of_the_users_is_the_only_one() -> None:
    sent = encode_request(Request("/", headers={"host": "example.org"}), "x:1", keep_alive=True)
    assert sent == b"GET / HTTP/1.1\r\nhost: example.org\r\n\r\n"


def test_a_post_without_a_body_has_a_length_of_zero() -> None:
    assert b"\r\nContent-Length: 0\r\n" in encode_request(Request("/", "POST"), "x", keep_alive=True)
    assert b"Content-Length" not in encode_request(Request("/", "DELETE"), "x", keep_alive=True)


@given(some.lists(some.binary(max_size=50), min_size=1, max_size=5))
def test_texts_in_lua_are_read_back_as_they_were_whatever_they_have(texts: list[bytes]) -> None:
    written = as_lua(texts)
    assert re.fullmatch(r'return \{\n("(\\\d{3})*",\n)+\}\n', written)
    lines = written.splitlines()[1:-1]
    assert [bytes(int(byte) for byte in re.findall(r"\\(\d{3})", line)) for line in lines] == texts


def test_the_script_gets_the_file_of_the_requests(tmp_path: Path) -> None:
    class Client(LocalHost):
        def put(self, source: Path, target: PurePosixPath) -> None:
            assert target == PurePosixPath("/srv/tare-requests.lua")
            (tmp_path / "put").write_text(source.read_text())

    assert put_requests(Client(), (), "x:1") == ()
    assert put_requests(Client(), (POST, Request("/")), "x:1") == ("/srv/tare-requests.lua",)
    expected = as_lua(encode_request(each, "x:1", keep_alive=True) for each in (POST, Request("/")))
    assert (tmp_path / "put").read_text() == expected
