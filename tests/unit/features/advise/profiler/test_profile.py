"""A profile's file, and the basket that it comes to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tare.features.advise.profiler.profile import (
    CallCount,
    Counts,
    Profile,
    Usage,
    count_operations,
    dump_profile,
    parse_profile,
    read_profile,
    with_possible_rate,
)
from tare.model.errors import UsageError
from tare.model.machine import Facts

MACHINE = Facts("6.1.0", "x86_64", "Debian GNU/Linux 12", "AMD EPYC", 2, 25 << 30, "tsc", "kvm")


def profile_of(*calls: CallCount, units: float = 10.0, user_seconds: float = 2.0) -> Profile:
    counts = Counts(0.5, calls, 30, 40, 10, 2, 3, 5, units)
    usage = Usage(user_seconds, 1.0)
    return Profile(
        1,
        "0.1.0",
        "2026-11-25T12:00:00+00:00",
        "server (process 7)",
        MACHINE,
        "request",
        100.0,
        10.0,
        usage,
        counts=counts,
    )


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile = replace(
        profile_of(CallCount("read", 7, "network", seconds=0.25, bytes=700, pieces=7)), missing=("page faults",)
    )
    (tmp_path / "app.json").write_text(dump_profile(profile), encoding="utf-8")
    assert read_profile(tmp_path / "app.json") == profile


def test_a_unit_of_work_has_its_cpu_and_its_time() -> None:
    assert profile_of().cpu_seconds == pytest.approx(0.03)
    assert profile_of().elapsed_seconds == pytest.approx(0.1)


def test_user_code_covers_the_whole_time_and_the_rest_the_counted_time() -> None:
    found = count_operations(profile_of(CallCount("getpid", 20)))
    assert found["user"] == pytest.approx(0.02)
    assert found["call"] == pytest.approx(2.0)
    assert found["switch"] == pytest.approx(5.0)
    assert found["fault"] == pytest.approx(3.0)
    assert found["process"] == pytest.approx(0.3)
    assert found["thread"] == pytest.approx(0.5)


def test_a_basket_has_every_kind_of_work_that_was_counted() -> None:
    assert len(count_operations(profile_of())) == 19
    assert {name for name, number in count_operations(profile_of()).items() if not number} == {
        *("call", "file-read", "file-write", "sync", "open", "stat", "map", "futex", "poll", "pipe"),
        *("connection", "message", "received", "sent"),
    }


@pytest.mark.parametrize(
    ("call", "works"),
    [
        (CallCount("read", 10, "network", bytes=500, pieces=10), {"message": 5, "received": 500}),
        (CallCount("writev", 10, "network", bytes=9000, pieces=30), {"message": 5, "sent": 9000}),
        (CallCount("recvmmsg", 10, "network", pieces=80), {"message": 40}),
        (CallCount("sendmsg", 10, "local", bytes=10, pieces=10), {"pipe": 5}),
        (CallCount("write", 10, "pipe", bytes=10, pieces=10), {"pipe": 5}),
        (CallCount("read", 10, "file", bytes=80000, pieces=24), {"file-read": 24}),
        (CallCount("read", 10, "file", bytes=20000, pieces=6), {"file-read": 6, "call": 4}),
        (CallCount("pwrite64", 10, "file", bytes=80000, pieces=20), {"file-write": 20}),
        (CallCount("pread64", 10), {"file-read": 10}),
        (CallCount("read", 10, "device", bytes=10, pieces=10), {"call": 10}),
        (CallCount("write", 10, "other", bytes=80, pieces=10), {"call": 10}),
        (CallCount("read", 10), {"call": 10}),
        (CallCount("read", 10, "network", failed=True), {"call": 10}),
        (CallCount("openat", 10), {"open": 10}),
        (CallCount("openat", 10, failed=True), {"call": 10}),
        (CallCount("newfstatat", 10), {"stat": 10}),
        (CallCount("fdatasync", 10), {"sync": 10}),
        (CallCount("mmap", 10), {"map": 10}),
        (CallCount("futex", 10), {"futex": 10}),
        (CallCount("epoll_wait", 10), {"poll": 10}),
        (CallCount("accept4", 10, "network"), {"connection": 10}),
        (CallCount("accept4", 10, "local"), {"call": 10}),
        (CallCount("connect", 10, "network", failed=True), {"connection": 10}),
        (CallCount("close", 10), {"call": 10}),
        (CallCount("munmap", 10), {"call": 10}),
        (CallCount("execve", 10), {}),
        (CallCount("execve", 10, failed=True), {"call": 10}),
        (CallCount("clone3", 10), {}),
        (CallCount("call-999", 10), {"call": 10}),
    ],
)
def test_a_system_call_counts_as_the_kinds_of_work_that_it_is(call: CallCount, works: dict[str, float]) -> None:
    without = count_operations(profile_of(units=1.0))
    found = count_operations(profile_of(call, units=1.0))
    assert {name: found[name] - without[name] for name in found if found[name] != without[name]} == works


def accepting(connections: int, received: int) -> Profile:
    """A server of ten requests by its stated rate, a hundred in all."""
    read = CallCount("recvfrom", 10, "network", bytes=received, pieces=10)
    return profile_of(CallCount("accept4", connections, "network"), read)


def test_a_rate_of_fewer_requests_than_connections_is_that_of_connections() -> None:
    found = with_possible_rate(accepting(connections=25, received=900))
    assert found.counts is not None
    assert (found.units, found.counts.units) == pytest.approx((250.0, 25.0))
    assert count_operations(found)["connection"] == pytest.approx(1.0)
    [caution] = found.cautions
    assert caution == (
        "the stated rate of 10 requests a second contradicts 2.50 connections accepted for each of them: the rate of"
        " connections is used in its place, 25 a second"
    )
    assert with_possible_rate(found) == found


def test_a_rate_of_more_requests_than_bytes_has_a_caution() -> None:
    found = with_possible_rate(accepting(connections=1, received=5))
    assert found.units == 100.0
    [caution] = found.cautions
    assert caution.startswith("the stated rate of 10 requests a second contradicts 0.5 bytes received for each of them")
    assert with_possible_rate(found) == found


@pytest.mark.parametrize(
    "profile",
    [
        accepting(connections=10, received=900),
        accepting(connections=0, received=10),
        profile_of(CallCount("accept4", 25, "local"), CallCount("read", 10)),  # not known of what
        profile_of(CallCount("connect", 30, "network"), CallCount("read", 10, "pipe", bytes=500)),
        profile_of(CallCount("io_uring_enter", 5)),
        replace(accepting(connections=25, received=900), unit="second"),
    ],
)
def test_a_rate_that_the_counts_do_not_contradict_is_left_alone(profile: Profile) -> None:
    assert with_possible_rate(profile) == profile


def test_a_call_that_undoes_another_is_paid_for_with_it() -> None:
    found = count_operations(
        profile_of(
            CallCount("openat", 20),
            CallCount("accept4", 10, "network"),
            CallCount("close", 70),
            CallCount("close", 10, failed=True),
            CallCount("mmap", 50),
            CallCount("munmap", 20),
        )
    )
    assert found["call"] == pytest.approx((70 - 20 - 10 + 10) / 10)
    assert (found["open"], found["connection"], found["map"]) == pytest.approx((2.0, 1.0, 5.0))


def test_packets_are_messages_where_they_are_more() -> None:
    profile = profile_of(CallCount("read", 20, "network", bytes=20), CallCount("write", 20, "network", bytes=20))
    assert profile.counts is not None
    for packets, messages in ((None, 2.0), (10, 2.0), (60, 6.0)):
        assert (
            count_operations(replace(profile, counts=replace(profile.counts, packets=packets)))["message"] == messages
        )


def test_kernel_packets_are_not_charged_to_a_command_without_a_network() -> None:
    for call, messages in ((CallCount("write", 20, "pipe"), 0.0), (CallCount("io_uring_enter", 20), 0.2)):
        profile = profile_of(call)
        assert profile.counts is not None
        assert count_operations(replace(profile, counts=replace(profile.counts, packets=2)))["message"] == messages


def test_what_was_not_counted_is_missing_from_the_basket_and_not_zero() -> None:
    profile = profile_of()
    assert profile.counts is not None
    assert "fault" not in count_operations(replace(profile, counts=replace(profile.counts, faults=None)))
    assert count_operations(replace(profile, counts=None)).keys() == {"user"}


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    fields = json.loads(dump_profile(profile_of(CallCount("read", 7, "network", seconds=0.25, bytes=700, pieces=7))))
    change(fields)
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (b"", "not a profile", "write it anew"),
        (b"[]", "not a profile", "write it anew"),
        (b'"format"', "not a profile", "write it anew"),
        (b"\xff", "not a profile", "write it anew"),
        (b"[" * 100_000, "not a profile", "write it anew"),
        (b"{}", "not a profile", "write it anew"),
        (b'{"format": 1}', "tare: Field required", "write it anew"),
        (b'{"format": 2}', "format 2, and this tare reads 1", "use a newer tare"),
        (b'{"format": 0}', "format 0, and this tare reads 1", "write it anew"),
        (b'{"format": "x"}', "format 'x', and this tare reads 1", "write it anew"),
        (changed(lambda f: f.update(units=0)), "units: Input should be greater than", "write it anew"),
        (changed(lambda f: f.update(seconds=float("nan"))), "seconds: Input should be", "write it anew"),
        (changed(lambda f: f.update(cost=float("inf"))), "cost: Input should be", "write it anew"),
        (changed(lambda f: f.update(unit="fortnight")), "unit: Input should be 'run'", "write it anew"),
        (changed(lambda f: f["usage"].update(user_seconds=-1)), "usage.user_seconds: Input should be", "write it anew"),
        (changed(lambda f: f["counts"]["calls"][0].update(count=-1)), "counts.calls.0.count", "write it anew"),
        (changed(lambda f: f["counts"]["calls"][0].update(count=1 << 70)), "counts.calls.0.count", "write it anew"),
        (changed(lambda f: f["counts"]["calls"][0].update(on="moon")), "counts.calls.0.on", "write it anew"),
        (changed(lambda f: f.update(machine=None)), "machine: ", "write it anew"),
    ],
)
def test_an_edited_profile_or_another_file_is_refused_with_its_place(content: bytes, what: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_profile(content, "app.json")
    assert str(raised.value).startswith(f"app.json: {what}")
    assert hint in raised.value.hint


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b" " * (1 << 21))
    with pytest.raises(UsageError, match=r"large\.json: more than 1 MiB"):
        read_profile(tmp_path / "large.json")
    with pytest.raises(UsageError, match=r"gone\.json: cannot be read: no such file"):
        read_profile(tmp_path / "gone.json")
