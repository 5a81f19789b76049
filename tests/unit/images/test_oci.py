"""Tests of an image's configuration: user, environment, folder, platform."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tare.images.oci import (
    CAPABILITIES,
    Configuration,
    User,
    choose_platform,
    override_configuration,
    read_configuration,
    read_manifest,
    refuse_other_platform,
    serialize_configuration,
)
from tare.model.architecture import X86_64
from tare.model.errors import TareError
from tare.model.image import ImageCommand

ACCOUNTS = """root:x:0:0:root:/root:/bin/bash
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
1000:x:4321:77::/home/odd:/bin/sh
broken
app:x:1500:1501:An app,,,:/srv/app:/bin/sh
"""
GROUP = "root:x:0:\nadm:x:4:app,www-data\nvideo:x:44:other,app\napps:x:1501:\nstaff:x:50:\n"
DIGEST = f"sha256:{'0a' * 32}"
DAMAGED = "the image is damaged: "


def configured(passwd: str = ACCOUNTS, group: str = GROUP, **config: Any) -> Configuration:
    return read_configuration(json.dumps({"os": "linux", "config": config}), passwd, group)


@pytest.mark.parametrize(
    ("user_text", "user"),
    [
        ("", User(0, 0, (), "/root")),
        ("app", User(1500, 1501, (4, 44), "/srv/app")),
        ("1500", User(1500, 1501, (4, 44), "/srv/app")),
        ("app:staff", User(1500, 50, (), "/srv/app")),
        ("app:7", User(1500, 7, (), "/srv/app")),
        ("4711", User(4711, 0, (), "/")),  # no account, and none is needed
        ("4711:4712", User(4711, 4712, (), "/")),
        ("1000", User(4321, 77, (), "/home/odd")),  # a name comes before a number
        (":50", User(0, 50, (), "/root")),
    ],
)
def test_users_and_groups_are_those_that_an_engine_finds(user_text: str, user: User) -> None:
    assert configured(User=user_text).user == user


def test_an_image_without_accounts_runs_as_root_or_as_a_number() -> None:
    assert configured("", "").user == User(0, 0, (), "/")
    assert configured("", "", User="65532:65532").user == User(65532, 65532, (), "/")


@pytest.mark.parametrize("user_text", ["nobody-here", "app:nothing", "-1", "2147483648", "0x10", "99999999999"])
def test_a_user_that_the_image_does_not_have_is_refused(user_text: str) -> None:
    with pytest.raises(TareError, match=r"^the image has no (user|group) "):
        configured(User=user_text)


def test_commands_stay_lists_whatever_their_words_are() -> None:
    found = configured(Entrypoint=["/app", "a b", "$HOME", ""], Cmd=["'", ";reboot"])
    assert found.argv() == ("/app", "a b", "$HOME", "", "'", ";reboot")
    assert found.argv(["--quick", ""]) == ("/app", "a b", "$HOME", "", "--quick", "")
    assert configured(Entrypoint=None, Cmd=None).argv() == ()
    assert configured().argv(["x"]) == ("x",)


def test_the_environment_has_a_path_and_the_home_of_the_user() -> None:
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert configured(User="app").environment == (path, "HOME=/srv/app")
    found = configured(Env=["PATH=/app", "A=1", "A=x=y", "B=", "=odd", "odd", "HOME=/h"])
    assert found.environment == ("PATH=/app", "HOME=/h", "A=x=y", "B=")


def test_folder_stop_signal_and_ports_are_kept() -> None:
    found = configured(WorkingDir="srv/a b", StopSignal="SIGQUIT", ExposedPorts={"80/tcp": {}, "53/udp": {}})
    assert (found.folder, found.stop_signal, found.ports) == ("/srv/a b", "SIGQUIT", ("53/udp", "80/tcp"))
    assert (configured().folder, configured().stop_signal) == ("/", "SIGTERM")


def test_ports_that_a_server_may_listen_on_are_numbers_of_tcp() -> None:
    exposed = dict.fromkeys(("443/tcp", "80", "53/udp", "8000-8010/tcp", "0/tcp", "99999", "http"))
    assert configured(ExposedPorts=exposed).tcp_ports == (80, 443)
    assert configured().tcp_ports == ()


def test_the_start_arguments_are_counted_so_that_none_can_be_confused() -> None:
    found = configured(User="app", Entrypoint=["/a", ""], Cmd=["3", "é"], Env=["PATH=/p"], WorkingDir="/w")
    words = ["1500", "1501", "4,44", "", "/w", "2", "PATH=/p", "HOME=/srv/app", "2", "/a", "", "2", "3", "é"]
    assert serialize_configuration(found).decode().split("\0") == [*words, "0", "SIGTERM", ""]
    ports = configured(ExposedPorts={"80/tcp": {}, "53/udp": {}}, StopSignal="SIGQUIT")
    assert serialize_configuration(ports).decode().split("\0")[-5:] == ["2", "53/udp", "80/tcp", "SIGQUIT", ""]


def test_capabilities_that_a_user_does_not_keep_are_dropped_by_number() -> None:
    text = json.dumps({"os": "linux", "config": {"Cmd": ["a"], "tare.capabilities": []}})
    for kept, dropped in ((None, ""), (("CHOWN", "KILL"), "1,3,4,6,7,8,10,13,18,27,29,31"), (tuple(CAPABILITIES), "")):
        found = read_configuration(override_configuration(text, ImageCommand(capabilities=kept)), "", "")
        assert serialize_configuration(found).decode().split("\0")[3] == dropped


def test_what_a_user_says_stands_in_place_of_what_the_image_says() -> None:
    settings: dict[str, Any] = {
        "Entrypoint": ["/a"],
        "Cmd": ["b"],
        "User": "app",
        "WorkingDir": "/w",
        "StopSignal": "SIGINT",
        "Env": ["A=1"],
    }
    text = json.dumps({"os": "linux", "config": settings})

    def found(started: ImageCommand) -> Configuration:
        return read_configuration(override_configuration(text, started), ACCOUNTS, GROUP)

    assert found(ImageCommand()) == configured(**settings)
    changed = found(ImageCommand(("/x", "y"), "1500:staff", "/srv", "SIGQUIT"))
    assert (changed.argv(), changed.user, changed.folder) == (("/x", "y"), User(1500, 50, (), "/srv/app"), "/srv")
    assert (changed.stop_signal, changed.environment[-1]) == ("SIGQUIT", "A=1")
    assert found(ImageCommand(entry_point=())).argv() == ("b",)  # as in engines, an empty one keeps the command
    with pytest.raises(TareError, match=r"^the image has no user nobody-here to run its program$"):
        found(ImageCommand(user="nobody-here"))
    assert read_configuration(override_configuration('{"config": null}', ImageCommand(("/x",))), "", "").argv() == (
        "/x",
    )
    for wrong in ("[]", '{"config": [1]}', "x"):
        with pytest.raises(TareError, match=f"^{DAMAGED}"):
            override_configuration(wrong, ImageCommand())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"Env": "PATH=/"}, "its Env is no list of texts"),
        ({"Cmd": [1]}, "its Cmd is no list of texts"),
        ({"Cmd": ["a\0b"]}, "its Cmd is no list of texts"),
        ({"User": 1000}, "its User is no text"),
        ({"WorkingDir": ["/"]}, "its WorkingDir is no text"),
        ({"ExposedPorts": ["80"]}, "its ports are no table"),
    ],
)
def test_a_configuration_of_other_kinds_is_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(TareError, match=f"^{DAMAGED}{says}$"):
        configured(**config)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"config": 1}'])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(TareError, match=f"^{DAMAGED}its configuration is "):
        read_configuration(text, "", "")


@pytest.mark.parametrize(
    ("system", "architecture", "says"),
    [
        ("linux", "arm64", "is for arm64, and the machine is amd64"),
        ("windows", "amd64", "is for windows, not for Linux"),
        ("", "", "is for no named system, not for Linux"),
        ("linux", "", "is for no named architecture, and the machine is amd64"),
    ],
)
def test_an_image_for_another_machine_is_refused(system: str, architecture: str, says: str) -> None:
    text = json.dumps({"os": system, "architecture": architecture})
    with pytest.raises(TareError, match=f"^the image {says}$"):
        refuse_other_platform(text, X86_64)
    refuse_other_platform('{"os": "linux", "architecture": "amd64"}', X86_64)


def index(*platforms: tuple[str, str]) -> str:
    described = [
        {"digest": f"sha256:{number:064}", "platform": {"os": system, "architecture": architecture}}
        for number, (system, architecture) in enumerate(platforms)
    ]
    return json.dumps({"manifests": described})


def test_of_several_the_one_for_this_machine_is_chosen() -> None:
    assert (
        choose_platform(index(("windows", "amd64"), ("linux", "arm64"), ("linux", "amd64")), X86_64)
        == f"sha256:{2:064}"
    )
    assert choose_platform('{"layers": []}', X86_64) == ""
    with pytest.raises(
        TareError, match=r"^the image is for linux/arm64, windows/amd64, and the machine is linux/amd64"
    ):
        choose_platform(index(("windows", "amd64"), ("linux", "arm64")), X86_64)
    with pytest.raises(TareError, match=f"^{DAMAGED}its index is no list of manifests"):
        choose_platform('{"manifests": [1]}', X86_64)
    with pytest.raises(TareError, match=r"^the image is for nothing, "):
        choose_platform('{"manifests": []}', X86_64)


def test_a_manifest_names_its_parts_and_their_sizes() -> None:
    parts = [{"digest": DIGEST, "size": size} for size in (3, 4)]
    found = read_manifest(json.dumps({"config": {"digest": DIGEST}, "layers": parts}))
    assert (found.configuration, found.size_bytes) == (DIGEST, 7)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"layers": [], "config": {"digest": "sha256:../../etc/passwd"}}',
        '{"layers": [], "config": {"digest": "md5:00"}}',
        f'{{"layers": [{{"digest": "{DIGEST}"}}], "config": {{"digest": "{DIGEST}"}}}}',
        f'{{"layers": [{{"digest": "{DIGEST}", "size": -1}}], "config": {{"digest": "{DIGEST}"}}}}',
        f'{{"layers": ["x"], "config": {{"digest": "{DIGEST}"}}}}',
    ],
)
def test_a_manifest_with_a_part_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(TareError, match=f"^{DAMAGED}"):
        read_manifest(text)
