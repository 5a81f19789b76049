"""Every monitor boots the image and leaves nothing: QEMU's emulation stands in for what cannot be had here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from marks import slow
from own_testbed import second_prefix
from waiting import wait_until

from tare.guests import boot_media, guest, monitor_api
from tare.hosts.exec import ExecHost
from tare.hosts.host import BOOT_ID
from tare.hosts.ledger import Ledger, create_state_folder
from tare.hosts.local import LocalHost
from tare.hosts.network import create_local_network
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.trial import Limits, Output
from tare.plugins import registry
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, StartTimeline
from tare.technologies.cloud_hypervisor import CloudHypervisor
from tare.technologies.firecracker import Firecracker
from tare.technologies.machine.technology import UserMachine

pytestmark = pytest.mark.machine

STAND_INS = Path(__file__).parents[2] / "stand_ins"
VMWARE = Path("/etc/vmware")
# libvirt asks QEMU again at every step where its own user may not open a /dev/kvm that works for root: ours is root.
LIBVIRTD = """
if grep -q " /sys/fs/cgroup/unified cgroup2 " /proc/self/mounts; then umount /sys/fs/cgroup/unified; fi
mount --bind "$1" /etc/libvirt/qemu.conf
exec libvirtd
"""


@pytest.fixture
def launch(image: Image, tmp_path: Path) -> Iterator[LaunchRequest]:
    prefix = second_prefix()
    ledger = Ledger(tmp_path / "ledger")
    cpus = (max(os.sched_getaffinity(0)),)
    folder = create_state_folder() / "instances" / f"{prefix}-boot"
    folder.parent.mkdir(exist_ok=True)
    with ledger.open_setup_helper(image.root), create_local_network(ledger, prefix) as network:
        probed: list[tuple[str, int | None]] = []

        def probe(address: str, port: int | None = None) -> None:
            probed.append((address, port))

        limits = Limits(cpus, 512 << 20, 4096)
        yield LaunchRequest(f"{prefix}-boot", image, limits, network, (17007,), folder, ledger, probe, StartTimeline())
        assert probed in [[(network.instance_address, port)] for port in (None, 17007)]


@pytest.fixture
def _on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Image) -> None:
    monkeypatch.setenv("PATH", f"{STAND_INS}:{os.environ['PATH']}")
    monkeypatch.setenv("TARE_STAND_INS", str(tmp_path))
    monkeypatch.setenv("TARE_STAND_IN_IMAGE", str(image.kernel.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.fixture
def _stand_ins(_on_the_path: None) -> Iterator[None]:
    if VMWARE.exists():
        pytest.skip("there is a VMware here")
    VMWARE.mkdir()
    (VMWARE / "networking").write_text("VERSION=1,0\nanswer VNET_2_DHCP no\n")
    yield
    shutil.rmtree(VMWARE)


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize(
    ("name", "disk", "driver"),
    [
        ("firecracker", "vda", "virtio_net"),
        pytest.param("cloud-hypervisor", "vda", "virtio_net", marks=pytest.mark.slow),
        pytest.param("virtualbox", "sda", "virtio_net", marks=pytest.mark.slow),
        ("vmware", "sda", "vmxnet3"),
        ("uml", "vda", "virtio_net"),
    ],
)
def test_the_image_boots_with_the_devices_of_the_tool_and_nothing_is_left(
    name: str, disk: str, driver: str, launch: LaunchRequest
) -> None:
    technology = registry.find("technologies", name)()
    technology.prepare_image(LocalHost(), launch.image)
    with technology.launch(LocalHost(), launch) as instance:
        _answers_within_its_limits(instance, launch)
        assert instance.inside is not None
        assert disk in instance.inside.read("/proc/partitions")
        link = instance.inside.run("readlink", "/sys/class/net/eth0/device/driver", timeout=60).text
        assert link.strip().endswith(f"/{driver}")
    assert _left(launch) == []
    if name == "vmware":
        assert (VMWARE / "networking").read_text() == "VERSION=1,0\nanswer VNET_2_DHCP no\n"


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize("name", ["firecracker", "virtualbox"])
def test_a_machine_that_does_not_start_fails_at_once_with_the_tool_s_words(name: str, launch: LaunchRequest) -> None:
    technology = registry.find("technologies", name)()
    technology.prepare_image(LocalHost(), launch.image)
    huge = replace(launch, limits=replace(launch.limits, cpus=launch.limits.cpus * 300))
    with (
        pytest.raises(TrialFailed, match=r"vCPU number is invalid|Invalid SMP CPUs") as caught,
        technology.launch(LocalHost(), huge),
    ):
        pytest.fail("it started")
    assert not isinstance(caught.value, TimedOut)
    assert _left(launch) == []


@pytest.mark.usefixtures("_on_the_path")
@pytest.mark.parametrize("name", slow(["firecracker", "cloud-hypervisor"], ["cloud-hypervisor"]))
def test_a_kernel_and_a_disk_of_the_users_boot_with_a_copy_of_the_disk(
    name: Literal["firecracker", "cloud-hypervisor"], launch: LaunchRequest
) -> None:
    image, before = launch.image, launch.image.disk.stat()
    without_pci = boot_media.make_initrd(LocalHost(), image, *boot_media.MMIO_DRIVERS)
    machine = UserMachine(
        disk=str(image.disk),
        kernel=str(image.kernel),
        initrd=str(without_pci if name == "firecracker" else image.initrd),
        arguments=guest.command_line(launch),
        monitor=name,
        address="static",
        service="micro-http",
        port=17007,  # where the image's first program answers
    )
    with machine.launch(LocalHost(), launch) as instance:
        assert instance.disk_file == str(launch.folder / "written/disk.raw")
        assert instance.proof["monitor"].startswith(f"{name} ")
        assert len(instance.processes()) == 1
    after = image.disk.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)
    assert _left(launch) == []


@pytest.mark.usefixtures("_on_the_path")
@pytest.mark.parametrize("technology", slow([Firecracker(), CloudHypervisor()], [CloudHypervisor()]))
def test_a_restored_machine_continues_with_the_changed_disk(
    technology: Firecracker | CloudHypervisor, launch: LaunchRequest, tmp_path: Path
) -> None:
    host, folder = LocalHost(), str(tmp_path / "snapshot")
    (tmp_path / "snapshot").mkdir()
    with technology.launch(host, launch) as instance:
        assert isinstance(instance.inside, ExecHost)
        instance.inside.write("/srv/changed", "by the first instance")
        instance.inside.run("sync", timeout=60)
        booted = instance.inside.read(BOOT_ID)
        assert instance.take_snapshot is not None
        instance.take_snapshot(folder)
        wait_until(lambda: not instance.processes())
    restored = replace(
        launch,
        name=f"{launch.name}-2",
        folder=launch.folder.with_name(f"{launch.name}-2"),
        start_probe=lambda *_: None,
        timeline=StartTimeline(),
    )
    with technology.restore(host, restored, folder) as instance:
        assert instance.inside is None
        with guest.enter_guest(host, restored) as inside:
            assert inside.read("/srv/changed") == "by the first instance"
            assert inside.read(BOOT_ID) == booted
    assert [mark.name for mark in restored.timeline.marks] == ["requested", "started"]
    assert _left(launch) == _left(restored) == []


@pytest.mark.usefixtures("_on_the_path")
@pytest.mark.parametrize(
    ("technology", "reason"),
    [(Firecracker(), "PUT /snapshot/load: "), (CloudHypervisor(), "PUT /api/v1/vm.restore: ")],
)
def test_what_a_monitor_says_of_a_failed_restore_is_quoted(
    technology: Firecracker | CloudHypervisor, reason: str, launch: LaunchRequest, tmp_path: Path
) -> None:
    shutil.copy(launch.image.disk, tmp_path / monitor_api.DISK)
    with (
        pytest.raises(TrialFailed, match=f"^{technology.name} cannot restore the snapshot: unix_http: {reason}"),
        technology.restore(LocalHost(), launch, str(tmp_path)),
    ):
        pytest.fail("it was restored")
    assert _left(launch) == []


def test_libvirt_itself_boots_the_image_and_nothing_is_left(launch: LaunchRequest, tmp_path: Path) -> None:
    technology, host = registry.find("technologies", "libvirt-tcg")(), LocalHost()
    if not shutil.which("virsh") or not shutil.which("libvirtd"):
        pytest.skip("apt-get install libvirt-daemon-system libvirt-clients")
    groups = set(Path("/sys/fs/cgroup").glob("*/machine"))
    with ExitStack() as stack:
        if technology.daemon_problems(host):
            stack.enter_context(host.spawn("virtlogd"))
            (tmp_path / "qemu.conf").write_text('user = "root"\ngroup = "root"\n', encoding="utf-8")
            command = ("unshare", "--mount", "sh", "-c", LIBVIRTD, "sh", str(tmp_path / "qemu.conf"))
            stack.enter_context(host.spawn(*command))
        stack.enter_context(technology.run_engine(host))
        with technology.launch(host, launch) as instance:
            _answers_within_its_limits(instance, launch)
            assert [caution.kind for caution in instance.cautions] == ["emulated"]
            assert instance.network_path == "tap"
        assert _left(launch) == []
        assert not Path(f"/var/log/libvirt/qemu/{launch.name}.log").exists()
    for folder in set(Path("/sys/fs/cgroup").glob("*/machine")) - groups:  # libvirt's own, around its machines'
        folder.rmdir()


def test_the_cd_for_uefi_boots_the_image(launch: LaunchRequest, tmp_path: Path) -> None:
    host = LocalHost()
    host.run("mkdir", "-p", str(launch.folder), timeout=60)
    with launch.ledger.register_undo("rm", "-rf", "--one-file-system", str(launch.folder)):
        initrd = boot_media.make_initrd(host, launch.image, "virtio_pci", "sd_mod", "virtio_scsi")
        words = boot_media.command_line(launch)
        cd = boot_media.make_efi_cd(host, launch, initrd, words)
        assert [path.name for path in launch.folder.iterdir()] == ["cd.iso"]
        shutil.copy("/usr/share/OVMF/OVMF_VARS_4M.fd", tmp_path / "variables")
        drives = {
            "disk": f"file={launch.image.disk},format=raw,snapshot=on",
            "cd": f"file={cd},format=raw,readonly=on",
        }
        command = (
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max", "-m", "512M"),
            *("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-device", "virtio-scsi-pci"),
            *("-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"),
            *("-drive", f"if=pflash,format=raw,file={tmp_path / 'variables'}"),
            *(word for name, text in drives.items() for word in ("-drive", f"if=none,id={name},{text}")),
            *("-device", "scsi-hd,drive=disk,bootindex=1", "-device", "scsi-cd,drive=cd,bootindex=0"),
        )
        with host.spawn(*command) as console:
            lines = []
            while "tare-guest: userspace" not in (line := console.read_line(120).text):
                lines.append(line)
    assert any(line.endswith(f"Kernel command line: {words}") for line in map(str.strip, lines))
    launch.start_probe(launch.network.instance_address)  # as every start does


def _left(launch: LaunchRequest) -> list[str]:
    """Find what bears the instance's name; other people's instances may come and go meanwhile."""
    prefix = launch.network.prefix
    links = _run("ip", "-br", "link").text + _run("ip", "-n", launch.network.lan, "-br", "link").text
    found = [line for line in links.splitlines() if line.startswith((f"{prefix}-t", f"{prefix}-p", f"{prefix}-q"))]
    found += [line for line in _run("ip", "netns").text.splitlines() if line.startswith(f"{prefix}-p")]
    found += [str(path) for path in Path("/sys/fs/cgroup").rglob(f"*{launch.name}*")]
    found += [str(launch.folder)] if launch.folder.exists() else []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [path.read_text()] if launch.name in path.read_text() else []
    return found


def _answers_within_its_limits(instance: Instance, launch: LaunchRequest) -> None:
    assert instance.inside is not None
    assert instance.address == launch.network.instance_address
    limits = instance.inside.run("/usr/lib/tare/supervise", "--limits", timeout=60).text
    assert "cpus: 1\n" in limits
    assert "open_files: 4096\n" in limits
    memory = int(next(line for line in limits.splitlines() if line.startswith("memory: ")).split()[1])
    assert 0.85 * 512 * 2**20 <= memory <= 512 * 2**20
    probe = str(launch.image.root / "usr/lib/tare/probe")
    answer = _run("ip", "netns", "exec", launch.network.client_namespace, probe, instance.address, "17007", "60").text
    assert answer.split()[1] == "tare"
    names = [mark.name for mark in launch.timeline.marks]
    assert names == ["requested", "started", "kernel", "userspace"]
    assert instance.processes()
    assert {cpu for pid in instance.processes() for cpu in os.sched_getaffinity(pid)} == set(launch.limits.cpus)
    assert instance.proof["guest kernel"]


def _run(*argv: str) -> Output:
    return LocalHost().run(*argv, timeout=60)
