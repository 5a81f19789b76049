"""A server of a cloud, against a small cloud that stands in for OpenStack and has a real SSH server."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import openstack_stand_in as stand_in
import pytest
from fakes import launch_at
from openstack_stand_in import ADDRESS, CLOUDS, KEYS, State

from tare.guests import ssh_login
from tare.hosts.exec import ExecHost, fresh_root, mount_system_folders
from tare.hosts.ledger import EphemeralLedger, Ledger, create_state_folder
from tare.hosts.local import LocalHost
from tare.model.errors import TareError, TrialFailed, Unavailable
from tare.model.image import Image
from tare.plugins.technology import LaunchRequest
from tare.technologies.openstack import cloud
from tare.technologies.openstack.cloud import Cloud, ServerRequest
from tare.technologies.openstack.technology import Openstack

pytest.importorskip("openstack", reason="openstacksdk is an extra: pip install tare-bench[openstack]")
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of openstacksdk, about itself

HERE = LocalHost()
WANTED = ServerRequest("tare-1-a", "m1.small", "debian-12", "private", "ssh-ed25519 AAAA", timeout_seconds=60.0)


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture(autouse=True)
def _clouds(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the cloud, and write its clouds.yaml."""
    with stand_in.running(state) as url:
        configured(tmp_path, CLOUDS.format(url, stand_in.PASSWORD))
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
        monkeypatch.setattr(ssh_login, "MAX_PAUSE_SECONDS", 0.01)
        yield


def configured(folder: Path, text: str) -> None:
    (folder / "clouds.yaml").write_text(text, encoding="ascii")


def asked(wanted: ServerRequest) -> str:
    """Ask for a server and give its address."""
    with Cloud("stand-in").provision_server(wanted, lambda: None) as server:
        return server.address


def refused(wanted: ServerRequest, error: type[TareError]) -> tuple[str, str]:
    """Return the two lines with which a server was not had."""
    with pytest.raises(error) as found:
        asked(wanted)
    return str(found.value), found.value.hint


def test_a_server_is_asked_for_and_deleted_with_all_that_was_made_for_it(state: State) -> None:
    with Cloud("stand-in").provision_server(WANTED, lambda: None) as server:
        assert server.address == ADDRESS
        assert server.cautions == ()
        assert state.left == ["keypair", "server"]
        assert [port["pairs"] for port in state.ports.values()] == [[{"ip_address": "198.18.0.0/15"}]]
    assert state.left == []
    sent = state.sent("/servers")["server"]
    assert (sent["name"], sent["flavorRef"], sent["imageRef"]) == ("tare-1-a", "f1", "i1")
    assert (sent["networks"], sent["key_name"]) == ([{"uuid": "n1"}], "tare-1-a")
    assert state.sent("/os-keypairs")["keypair"]["public_key"] == "ssh-ed25519 AAAA"


def test_a_group_lets_in_ssh_and_what_tare_starts_from_where_the_user_says(state: State) -> None:
    with Cloud("stand-in").provision_server(replace(WANTED, allow_from="192.0.2.0/24"), lambda: None):
        (group,) = state.groups.values()
        assert group["name"] == "tare-1-a"
        assert [(rule["port_range_min"], rule["port_range_max"]) for rule in group["rules"]] == [
            (22, 22),
            (1024, 65535),
        ]
        assert {rule["remote_ip_prefix"] for rule in group["rules"]} == {"192.0.2.0/24"}
        assert state.sent("/servers")["server"]["security_groups"] == [{"name": "tare-1-a"}]
    assert state.left == []


def test_a_floating_address_is_taken_and_given_back(state: State) -> None:
    with Cloud("stand-in").provision_server(replace(WANTED, floating_network="public"), lambda: None) as server:
        assert server.address == ADDRESS
        (floating,) = state.floating.values()
        assert (floating["floating_network_id"], floating["description"]) == ("n2", "tare-1-a")
    assert state.left == []


def test_a_cloud_that_lets_no_other_addresses_pass_is_a_caution(state: State) -> None:
    state.pairs_allowed = False
    with Cloud("stand-in").provision_server(WANTED, lambda: None) as server:
        (caution,) = server.cautions
        assert caution.kind == "port-security"
        assert "disallowed by policy" in caution.text


def test_a_host_key_of_ours_is_given_to_cloud_init(state: State) -> None:
    asked(replace(WANTED, host_key=("PRIVATE\n", "ssh-ed25519 BBBB")))
    data = base64.b64decode(state.sent("/servers")["server"]["user_data"]).decode()
    assert data.startswith("#cloud-config\n")
    assert json.loads(data.partition("\n")[2]) == {
        "ssh_keys": {"ed25519_private": "PRIVATE\n", "ed25519_public": "ssh-ed25519 BBBB"}
    }


def test_the_host_keys_are_those_that_cloud_init_has_printed(state: State) -> None:
    lines = "[   12.3] cloud-init[400]: ssh-ed25519 AAAAC3 root@host\r\necdsa-sha2-nistp256 AAAAE2 root@host\r\n"
    state.console = "booting\r\n" + KEYS.format(lines).replace("\n", "\r\n") + "login:"
    there = Cloud("stand-in")
    with there.provision_server(WANTED, lambda: None) as server:
        assert there.read_host_keys(server, 5.0) == ("ssh-ed25519 AAAAC3", "ecdsa-sha2-nistp256 AAAAE2")


@pytest.mark.parametrize(
    ("console", "reason"),
    [
        ("booting", "openstack: the server did not print its SSH host key within 0.1 s"),
        (None, "openstack: the server has no console log: Unable to get console"),
    ],
)
def test_a_console_without_host_keys_is_an_error_with_a_way_out(state: State, console: str | None, reason: str) -> None:
    state.console = console
    there = Cloud("stand-in")
    with pytest.raises(TrialFailed) as found, there.provision_server(WANTED, lambda: None) as server:
        there.read_host_keys(server, 0.1)
    assert str(found.value) == reason
    assert 'host_key = "cloud-init"' in found.value.hint
    assert state.left == []


def test_a_cloud_that_is_not_configured_is_named_with_the_nearest() -> None:
    with pytest.raises(Unavailable) as found:
        Cloud("stand-out")
    assert (str(found.value), found.value.hint) == (
        "openstack: Cloud stand-out was not found.",
        'did you mean "stand-in"?',
    )


def test_a_wrong_password_is_refused_in_two_lines(tmp_path: Path) -> None:
    text = (tmp_path / "clouds.yaml").read_text(encoding="ascii")
    configured(tmp_path, text.replace(f"password: {stand_in.PASSWORD}", "password: wrong"))
    assert refused(WANTED, Unavailable) == (
        "openstack: stand-in refuses user, password or project of clouds.yaml",
        "check it by hand: openstack --os-cloud stand-in token issue",
    )


def test_a_cloud_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    configured(tmp_path, CLOUDS.format("http://127.0.0.1:9/identity/v3", "right"))
    what, hint = refused(WANTED, Unavailable)
    assert what.startswith("openstack: stand-in does not answer: ")
    assert hint == "check auth_url"


@pytest.mark.parametrize(
    ("setting", "value", "hint"),
    [
        ("flavor", "m1.smal", 'did you mean "m1.small"?'),
        ("flavor", "huge", "the cloud has m1.small, metal.large"),
        ("image", "debian-11", 'did you mean "debian-12"?'),
        ("network", "privat", 'did you mean "private"?'),
    ],
)
def test_a_name_that_the_cloud_does_not_know_is_answered_with_the_nearest(
    state: State, setting: str, value: str, hint: str
) -> None:
    names = {"flavor": WANTED.flavor, "image": WANTED.image, "network": WANTED.network} | {setting: value}
    wanted = replace(WANTED, flavor=names["flavor"], image=names["image"], network=names["network"])
    assert refused(wanted, Unavailable) == (f'openstack: no {setting} named "{value}"', hint)
    assert state.left == []


def test_a_full_quota_is_reported_in_the_clouds_words_and_nothing_is_left(state: State) -> None:
    state.quota = 0
    what, hint = refused(WANTED, TrialFailed)
    assert "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances" in what
    assert hint == "delete what is not needed, or ask for a higher quota"
    assert state.left == []


def test_a_server_in_error_names_the_clouds_reason_and_nothing_is_left(state: State) -> None:
    state.fault = "No valid host was found. There are not enough hosts available."
    what, _ = refused(WANTED, TrialFailed)
    assert what == f"openstack: the cloud could not start the server: {state.fault}"
    assert state.left == []


def test_a_server_that_is_never_built_times_out_and_nothing_is_left(state: State) -> None:
    state.stuck = True
    what, hint = refused(replace(WANTED, timeout_seconds=1.0), TrialFailed)
    assert what == "openstack: the server is still in state BUILD after 1 s"
    assert "timeout = " in hint
    assert state.left == []


def test_the_ledgers_command_deletes_what_a_killed_run_has_left(state: State) -> None:
    there = Cloud("stand-in")
    there._create_server(replace(WANTED, allow_from="192.0.2.0/24"), "f1", "i1", "n1")
    assert state.left == ["keypair", "server", "group"]
    argv = (sys.executable, "-m", "tare.technologies.openstack.cloud", "delete", "stand-in", "tare-1-a")
    subprocess.run(argv, check=True, timeout=60)
    assert state.left == []


def test_the_ledger_command_does_not_treat_an_unreachable_cloud_as_empty(tmp_path: Path) -> None:
    configured(tmp_path, CLOUDS.format("http://127.0.0.1:9/identity/v3", "right"))
    argv = (sys.executable, "-m", "tare.technologies.openstack.cloud", "delete", "stand-in", "tare-1-a")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(argv, check=True, timeout=4, capture_output=True)


def test_the_ledgers_command_touches_nothing_of_others(state: State) -> None:
    there = Cloud("stand-in")
    there._create_server(replace(WANTED, name="tare-1-ab"), "f1", "i1", "n1")
    cloud.main(["delete", "stand-in", "tare-1-a"])
    assert state.left == ["keypair", "server"]
    with pytest.raises(TareError, match="no such command"):
        cloud.main(["delete", "stand-in", "production"])


def test_what_is_not_given_or_not_known_is_a_problem() -> None:
    (problem,) = [each for each in Openstack().problems(HERE) if "root" not in each.what]
    assert problem.what == "the settings of the server are missing"
    assert problem.fix.endswith("cloud = …, flavor = …, image = …, network = …")
    (problem,) = [each for each in Openstack("stand-on", "f", "i", "n").problems(HERE) if "root" not in each.what]
    assert (problem.what, problem.fix) == ("no cloud named stand-on", 'did you mean "stand-in"?')
    assert Openstack().version(HERE)


def test_inside_another_layer_it_is_refused(launch: LaunchRequest) -> None:
    inside = replace(launch, ledger=EphemeralLedger(ExecHost(HERE, "env"), launch.image.root))
    with (
        pytest.raises(Unavailable, match="cannot be inside another"),
        Openstack("stand-in", "m1.small", "debian-12", "private").launch(HERE, inside),
    ):
        pass


# --- with a real SSH server ----------------------------------------------------------------------------------------


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    """What a server is asked for with; its image is only needed once it is entered."""
    return launch_at(tmp_path, "tare-cloud")


@pytest.fixture
def server(state: State, ssh_image: Image, tmp_path: Path) -> Iterator[None]:
    """Yield the cloud's server a body: the image in a chroot with its own sshd, which knows our key once it runs."""
    folder = create_state_folder() / "instances" / f"tare-cloud-server-{os.getpid():x}"
    folder.parent.mkdir(exist_ok=True)
    ledger = Ledger(tmp_path / "server.jsonl")
    with ledger.open_setup_helper(ssh_image.root), fresh_root(ledger, ssh_image, folder) as root:
        mount_system_folders(ledger, root)
        HERE.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", f"{root}/etc/host_key", timeout=60)
        HERE.run("mkdir", "-p", f"{root}/run/sshd", timeout=60)
        state.started = lambda found: HERE.write(f"{root}/etc/keys", f"{found['public_key']}\n")
        state.console = KEYS.format(HERE.read(f"{root}/etc/host_key.pub"))
        options = (f"ListenAddress={ADDRESS}", "HostKey=/etc/host_key", "AuthorizedKeysFile=/etc/keys", "UsePAM=no")
        words = [word for option in (*options, "StrictModes=no") for word in ("-o", option)]
        with HERE.spawn("chroot", str(root), "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", *words):
            yield


WHOLE = Openstack("stand-in", "m1.small", "debian-12", "private", user="root", timeout=60.0)


@pytest.mark.machine
@pytest.mark.ssh
@pytest.mark.usefixtures("server")
def test_the_server_is_entered_as_root_and_its_key_is_checked(
    state: State, launch: LaunchRequest, ssh_image: Image
) -> None:
    launch = replace(launch, image=ssh_image)
    with WHOLE.launch(HERE, launch) as instance:
        assert instance.inside is not None
        assert instance.inside.run("id", "-u", timeout=60).text == "0\n"
        assert instance.address == ADDRESS
        assert instance.proof["flavor"] == "m1.small"
        assert [mark.name for mark in launch.timeline.marks] == ["requested", "started", "ready"]
        entries = launch.ledger.path.read_text(encoding="utf-8")
        assert '"tare.technologies.openstack.cloud", "delete", "stand-in", "tare-cloud-1"' in entries
    assert state.left == []
    assert not launch.folder.exists()
    assert not launch.ledger.path.exists()


@pytest.mark.machine
@pytest.mark.ssh
@pytest.mark.usefixtures("server")
def test_a_server_with_another_host_key_is_not_entered(state: State, launch: LaunchRequest, ssh_image: Image) -> None:
    other = launch.folder.with_name("other")
    HERE.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(other), timeout=60)
    state.console = KEYS.format(HERE.read(f"{other}.pub"))
    with (
        pytest.raises(TareError, match="the machine's SSH host key is not the one that it should have"),
        WHOLE.launch(HERE, replace(launch, image=ssh_image)),
    ):
        pass
    assert _everything_is_gone(state, launch) == []


@pytest.mark.machine
@pytest.mark.ssh
def test_a_server_whose_ssh_never_answers_fails_in_its_time(state: State, launch: LaunchRequest) -> None:
    if os.geteuid():
        pytest.skip("the key is made for root's own use")
    state.console = KEYS.format("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA root@x\n")
    with (
        pytest.raises(TrialFailed, match=rf"openstack: SSH to {ADDRESS}: .*Connection refused.* \(for 2 s\)") as found,
        replace(WHOLE, timeout=2.0).launch(HERE, launch),
    ):
        pass
    assert found.value.hint
    assert _everything_is_gone(state, launch) == []


def _everything_is_gone(state: State, launch: LaunchRequest) -> Sequence[str]:
    return [*state.left, *(str(path) for path in (launch.folder, launch.ledger.path) if path.exists())]
