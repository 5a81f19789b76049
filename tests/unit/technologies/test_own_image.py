"""Images of the user's own: the documented command lines, and real kernels that stand in for the images."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import LIMITS, launch_on
from pydantic import TypeAdapter, ValidationError

from plug_ins import own
from tare.guests.unikernel import UserUnikernel
from tare.guests.user_files import create_overlay, ensure_on_host, hash_files, locate_file
from tare.guests.user_guest import UserGuestBoot
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import Network
from tare.loads.client_load import server_port
from tare.model.errors import TrialFailed, Unavailable
from tare.model.image import Image
from tare.model.trial import Output
from tare.plugins.instance import Instance
from tare.plugins.workload import MeasurementContext, Workload
from tare.technologies.mirage import Mirage
from tare.technologies.nanos import Nanos
from tare.technologies.osv import Osv
from tare.technologies.rumprun import Rumprun
from tare.technologies.unikraft import Unikraft
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.nginx import Nginx
from tare.workloads.redis import Redis
from tare.workloads.startup import Startup

ALL = [found for found in own("technologies").values() if issubclass(found, UserUnikernel)]
HERE = Image("0" * 64, Path("/root"), Path("/archive"), Path("/disk"), Path("/kernel"), Path("/initrd"), "")


@pytest.fixture
def boot(tmp_path: Path) -> UserGuestBoot:
    """What a monitor would be given on a network that is never made."""
    network = Network("tare-own", ipaddress.IPv4Network("198.18.0.0/24"), Ledger(tmp_path / "ledger"))
    launch = launch_on(network, HERE, tmp_path / "instance")
    return UserGuestBoot(
        launch, "/images/kernel", "/instance/disk.qcow2", "tare-own-t00", {"/images/root": "/carried/root"}
    )


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def test_osv_gets_its_address_as_from_run_py(boot: UserGuestBoot) -> None:
    command = Osv("/images/kernel", "redis", disk="/usr.img", arguments="/redis-server --port 6379").command(boot)
    assert option(command, "-append") == (
        "--ip=eth0,198.18.0.10,255.255.255.0 --defaultgw=198.18.0.1 --nameserver=198.18.0.1 /redis-server --port 6379"
    )
    assert option(command, "-kernel") == "/images/kernel"
    assert option(command, "-drive") == "file=/instance/disk.qcow2,if=none,id=hd0,format=qcow2"
    assert option(command, "-m") == "256M"


def test_rumprun_gets_its_address_in_json(boot: UserGuestBoot) -> None:
    rumprun = Rumprun("/images/nginx.bin", "nginx", arguments="-c /data/nginx.conf", disk="/data.iso")
    assert json.loads(option(rumprun.command(boot), "-append")) == {
        "net": {
            "if": "vioif0",
            "type": "inet",
            "method": "static",
            "addr": "198.18.0.10",
            "mask": "24",
            "gw": "198.18.0.1",
        },
        "blk": {"source": "dev", "path": "/dev/ld0a", "fstype": "blk", "mountpoint": "/data"},
        "cmdline": "nginx.bin -c /data/nginx.conf",
    }


def test_rumprun_has_one_env_for_each_variable(boot: UserGuestBoot) -> None:
    rumprun = Rumprun("/images/redis.bin", "redis", environment=("RUMPRUN_SYSPROXY=tcp://0:12345", "A=1"))
    line = option(rumprun.command(replace(boot, disk="")), "-append")
    assert line.startswith('{"env":"RUMPRUN_SYSPROXY=tcp://0:12345","env":"A=1","net":{')


def test_unikraft_parameters_precede_the_dashes_and_program_words_follow(boot: UserGuestBoot) -> None:
    fstab = 'vfs.fstab=[ "initrd0:/:extract::ramfs=1:" ]'
    unikraft = Unikraft("/k", "redis", initrd="/images/root", parameters=fstab, arguments="/redis-server --port 6379")
    command = unikraft.command(boot)
    assert option(command, "-append") == f"netdev.ip=198.18.0.10/24:198.18.0.1 {fstab} -- /redis-server --port 6379"
    assert option(command, "-initrd") == "/carried/root"


def test_nanos_boots_its_disk_as_ops_does(boot: UserGuestBoot) -> None:
    command = Nanos("/images/disk", "redis").command(boot)
    assert "-kernel" not in command
    assert option(command, "-drive") == "file=/instance/disk.qcow2,format=qcow2,if=none,id=hd0"
    assert "scsi-hd,bus=scsi0.0,drive=hd0" in command
    assert "virtio-balloon" in command
    assert "virtio-net,bus=pci.4,addr=0x0,netdev=net0,mac=02:74:61:72:65:01" in command


def test_mirage_runs_in_the_tender_of_its_target(boot: UserGuestBoot) -> None:
    arguments = ("--ipv4=198.18.0.10/24", "--ipv4-gateway=198.18.0.1", "--hello=a b")
    hvt = Mirage("/u.hvt", "micro-http", arguments="--hello='a b'").command(boot)
    network = ("--net:service=tare-own-t00", "--net-mac:service=02:74:61:72:65:01")
    assert hvt == ("solo5-hvt", "--mem=256", *network, "--", "/images/kernel", *arguments)
    assert Mirage("/u.spt", "micro-http", tender="spt", device="net").command(boot)[0] == "solo5-spt"


def test_mirage_for_virtio_runs_in_qemu_emulated_or_not(boot: UserGuestBoot) -> None:
    kvm = Mirage("/u.virtio", "micro-http", tender="virtio").command(boot)
    assert (option(kvm, "-accel"), option(kvm, "-cpu"), option(kvm, "-M")) == ("kvm", "host", "pc,acpi=off")
    tcg = Mirage("/u.virtio", "micro-http", tender="virtio", accelerator="tcg").command(boot)
    assert (option(tcg, "-accel"), option(tcg, "-cpu")) == ("tcg", "Westmere")
    assert option(tcg, "-append") == "--ipv4=198.18.0.10/24 --ipv4-gateway=198.18.0.1"


def test_only_what_uses_one_cpu_has_one_and_a_caution_for_it(boot: UserGuestBoot) -> None:
    two = replace(boot, launch=replace(boot.launch, limits=replace(LIMITS, cpus=(2, 3))))
    assert option(Osv("/k", "redis").command(two), "-smp") == "2"
    assert option(Rumprun("/k", "redis").command(two), "-smp") == "1"
    assert Osv("/k", "redis").cautions(two.launch) == ()
    assert [caution.kind for caution in Rumprun("/k", "redis", accelerator="tcg").cautions(two.launch)] == [
        "emulated",
        "limits-differ",
    ]


def test_an_image_runs_its_own_workload_and_its_start_and_nothing_else() -> None:
    osv = Osv("/k", "redis")
    assert osv.unsupported_reason(Redis()) is None
    assert osv.unsupported_reason(Startup()) is None
    assert osv.unsupported_reason(Nginx()) == "a unikernel has no shell: this image only serves redis"
    assert osv.unsupported_reason(Dhrystone()) == "a unikernel has no shell: this image only serves redis"


def test_the_port_is_the_services_usual_one_unless_said() -> None:
    assert Osv("/k", "redis").served_ports == {"redis": 6379}
    assert Osv("/k", "nginx").served_ports == {"nginx": 80}
    assert Osv("/k", "redis", port=16379).served_ports == {"redis": 16379}


@pytest.mark.parametrize("workload", [found() for found in own("workloads").values() if found().port])
def test_every_workload_with_a_server_declares_where_an_image_has_it(workload: Workload) -> None:
    assert Osv("/k", workload.name).served_ports == {workload.name: workload.usual_port or workload.port}


def test_an_image_that_serves_several_workloads_is_named_once() -> None:
    both = TypeAdapter(Osv).validate_python({"image": "/k", "service": ["redis", "nginx"]})
    assert both.served_ports == {"redis": 6379, "nginx": 80}
    assert both.setting_problems() == ()
    assert (both.unsupported_reason(Redis()), both.unsupported_reason(Nginx()), both.unsupported_reason(Startup())) == (
        None,
        None,
        None,
    )
    assert both.unsupported_reason(Dhrystone()) == "a unikernel has no shell: this image only serves redis and nginx"
    (problem,) = replace(both, port=80).setting_problems()
    assert problem.what == "one port is given for several services"
    (problem,) = replace(both, service=("redis", "ngin")).setting_problems()
    assert problem.what == 'service = "ngin": no workload of this name'
    (problem,) = replace(both, service=()).setting_problems()
    assert problem.what == "the stack does not name the service in /k"


@pytest.mark.parametrize("wrong", [{"port": -1}, {"port": 65536}, {"accelerator": "hvf"}])
def test_a_setting_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Osv).validate_python({"image": "/k", "service": "redis"} | wrong)


@pytest.mark.parametrize("technology", ALL)
def test_without_an_image_it_says_what_to_write(technology: type[UserUnikernel]) -> None:
    (problem,) = technology().setting_problems()
    assert problem.what == "it boots an image that you supply, but the stack names none"
    assert f'stack = "{technology.name}"' in problem.fix


def test_settings_that_cannot_be_served_are_problems() -> None:
    (problem,) = Osv("/k", "rediss").setting_problems()
    assert (problem.what, problem.fix) == ('service = "rediss": no workload of this name', 'did you mean "redis"?')
    (problem,) = Osv("/k", "dhrystone").setting_problems()
    assert problem.what == "the port of dhrystone is not given"
    (problem,) = Nanos("/k", "redis", arguments="--port 1").problems(LocalHost())
    assert problem.what == "arguments cannot reach an image of nanos"


def test_a_file_that_is_missing_is_named_with_its_layer(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"unikraft: there is no file {tmp_path}/root.cpio"):
        locate_file(LocalHost(), str(tmp_path / "root.cpio"), "unikraft")


def test_a_file_of_this_machine_is_carried_to_another_for_one_instance(boot: UserGuestBoot, tmp_path: Path) -> None:
    class Elsewhere(LocalHost):
        """A host that has no file of this machine's."""

        def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
            if argv[0] == "test":
                return Output(argv, 1, b"", b"", 0.0)
            return super().run(*argv, timeout=timeout, input=input, check=check)

    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"kernel")
    boot.launch.folder.mkdir()
    carried = ensure_on_host(Elsewhere(), boot.launch, str(kernel), "osv")
    assert carried == str(boot.launch.folder / "kernel")
    assert Path(carried).read_bytes() == b"kernel"
    assert ensure_on_host(LocalHost(), boot.launch, str(kernel), "osv") == str(kernel)


def test_the_load_asks_the_port_of_the_image() -> None:
    instance = Instance("tare-own", None, "198.18.0.10", "tap", processes=tuple, served_ports={"redis": 6379})
    setup = MeasurementContext(instance, LocalHost(), ())
    assert server_port(setup, "redis", 16379) == 6379
    assert server_port(setup, "nginx", 18080) == 18080


def test_nanos_names_the_address_that_the_image_should_have(boot: UserGuestBoot) -> None:
    hint = Nanos("/images/disk", "redis").silence_hint(boot.launch)
    assert hint.endswith("--ip-address 198.18.0.10 --netmask 255.255.255.0 --gateway 198.18.0.1")


# What 0.17 said in the emulation of QEMU 7.2, and in that of 10.0 of an option that its Redis does not take.
WITHOUT_RDSEED = (
    "[    0.101656] ERR:  [libukrandom] <random.c @   65> Could not initialize the HWRNG (-95)",
    "[    0.102488] ERR:  [libukboot] <boot.c @  427> Init function at 0x14c6c0 returned error -95",
)
BAD_OPTION = ("*** FATAL CONFIG FILE ERROR (Redis 7.0.11) ***", "Bad directive or wrong number of arguments")


def test_unikraft_names_what_newer_ones_need_of_a_processor(boot: UserGuestBoot) -> None:
    hint = _hint_of(boot, WITHOUT_RDSEED)
    assert hint.startswith("its last output: ")
    assert hint.endswith(
        "; from 0.17 on it needs a processor with RDSEED, which QEMU 7.2 does not emulate: "
        'take QEMU 10, or accelerator = "kvm", or Unikraft 0.16.3'
    )
    assert _hint_of(boot, BAD_OPTION) == f"its last output: {' / '.join(BAD_OPTION)}"


def _hint_of(boot: UserGuestBoot, console: Sequence[str]) -> str:
    """Return the hint for an image that ended after these lines."""
    launch = replace(boot.launch, start_probe=lambda *_: None)
    with (
        LocalHost().spawn("printf", "%s\n", *console) as monitor,
        pytest.raises(TrialFailed, match="did not boot: qemu-system-x86_64 ended") as error,
    ):
        Unikraft("/k", "redis", accelerator="tcg")._await_ready(launch, monitor)
    return error.value.hint


needs_qemu_img = pytest.mark.skipif(not shutil.which("qemu-img"), reason="apt-get install qemu-utils")


@needs_qemu_img
def test_a_raw_disk_that_claims_to_be_another_is_booted_as_it_is(boot: UserGuestBoot, tmp_path: Path) -> None:
    host, secret, disk = LocalHost(), tmp_path / "secret", tmp_path / "disk"
    secret.write_bytes(bytes(1 << 16))
    host.run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(secret), "-F", "raw", str(disk), timeout=60)
    launch = replace(boot.launch, folder=tmp_path / "instance")
    (launch.folder / "written").mkdir(parents=True)
    made = create_overlay(host, launch, str(disk), "raw")
    told = host.run("qemu-img", "info", "--backing-chain", "--output=json", made, timeout=60).text
    assert [each["filename"] for each in json.loads(told)] == [made, str(disk)]


@needs_qemu_img
def test_a_disk_that_names_further_files_is_refused(boot: UserGuestBoot, tmp_path: Path) -> None:
    host, secret, disk = LocalHost(), tmp_path / "secret", tmp_path / "disk"
    secret.write_bytes(bytes(1 << 16))
    host.run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(secret), "-F", "raw", str(disk), timeout=60)
    with pytest.raises(TrialFailed, match=rf"it is only a part of a disk: it refers to {secret}"):
        create_overlay(host, boot.launch, str(disk), "qcow2")


def test_the_disk_and_root_file_system_with_the_application_are_proved_too(boot: UserGuestBoot, tmp_path: Path) -> None:
    for name in ("kernel", "usr.img"):
        (tmp_path / name).write_text(name)
    found = hash_files(boot.launch, {f"/images/{name}": str(tmp_path / name) for name in ("kernel", "usr.img")})
    expected = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("kernel", "usr.img")}
    assert found == {"sha256": expected["kernel"], "sha256 of /images/usr.img": expected["usr.img"]}
