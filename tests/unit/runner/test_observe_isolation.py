"""The isolation of instances, from what `inspect` and the host's files said of real ones on one machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tare_fake.technology
from confined import CapturedHost, observe
from fakes import Bench, suite

from tare.hosts.host import HostCache
from tare.model.isolation import Isolation
from tare.model.observed_isolation import Confinement, ObservedIsolation, find_all_contradictions, find_contradictions
from tare.model.trial import Caution
from tare.runner.observe_isolation import observe_layer, parse_facts

SAME = {"ipc", "mnt", "net", "pid", "uts"}


def inside(name: str) -> Confinement:
    found = observe(name)
    assert (found.has_private_kernel, found.monitor, found.layer) == (False, None, name)
    assert found.inside is not None
    return found.inside


@pytest.mark.parametrize(
    ("name", "filters", "capabilities", "no_new_privileges", "separate"),
    [
        ("native", 0, 40, False, {"net", "uts"}),
        ("bubblewrap", 0, 40, True, SAME),
        ("crun", 0, 14, False, SAME),
        ("docker", 1, 14, False, SAME),
        ("nspawn", 5, 25, False, {*SAME, "cgroup"}),
        ("lxd", 1, 41, False, {*SAME, "cgroup", "user"}),
    ],
)
def test_a_container_is_confined_as_its_kernel_says(
    name: str, filters: int, capabilities: int, no_new_privileges: bool, separate: set[str]
) -> None:
    found = inside(name)
    assert (found.process, found.seccomp, found.seccomp_filters) == ("init", 2 if filters else 0, filters)
    assert (len(found.capability_names), found.last_capability) == (capabilities, 40)
    assert found.no_new_privileges is no_new_privileges
    assert set(found.namespaces or ()) == separate


def test_dockers_capabilities_have_their_names() -> None:
    assert inside("docker").capability_names == (
        *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service"),
        *("net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
    )
    # The virtual machine of the samples has no other than this one less.
    assert "sys_resource" not in inside("native").capability_names
    assert Confinement(capabilities=1 << 50, last_capability=50).capability_names == ("50",)


def test_the_root_of_a_user_namespace_is_another_user_of_the_machine() -> None:
    assert (inside("lxd").has_user_namespace, inside("lxd").outer_root) == (True, 100000)
    assert (inside("docker").has_user_namespace, inside("docker").outer_root) == (False, 0)
    rootless = Confinement(uid_map="0 1000 1; 1 100000 65536")
    assert (rootless.has_user_namespace, rootless.outer_root) == (True, 1000)
    without_root = Confinement(uid_map="1000 1000 1")
    assert (without_root.has_user_namespace, without_root.outer_root) == (True, None)
    assert Confinement().has_user_namespace is None


def test_a_guest_has_its_kernel_and_its_monitor_the_machines() -> None:
    found = observe("qemu-tcg", CapturedHost("qemu-tcg"))
    assert found.has_private_kernel
    assert found.inside is not None
    assert found.monitor is not None
    assert (len(found.inside.capability_names), found.inside.namespaces) == (41, None)
    assert found.monitor.process == "qemu-system-x86_64"  # the kernel cuts its name off after 15 letters
    assert (found.monitor.seccomp, found.monitor.namespaces) == (0, ("net",))
    assert found.barrier is found.monitor


def test_the_monitor_of_gvisor_is_its_kernel_and_not_its_gofer() -> None:
    found = observe("gvisor", CapturedHost("gvisor"))
    assert found.has_private_kernel
    assert found.inside is not None
    assert found.monitor is not None
    # gVisor's own /proc has no number of filters. The filter that confines it is on the host.
    assert (found.inside.seccomp, found.inside.seccomp_filters) == (0, None)
    assert (found.monitor.process, found.monitor.seccomp, found.monitor.seccomp_filters) == ("runsc-sandbox", 2, 1)
    assert found.monitor.capability_names == (
        "chown",
        "dac_override",
        "dac_read_search",
        "fowner",
        "fsetid",
        "sys_ptrace",
    )
    # All users are mapped to themselves: only the number of the namespace tells.
    assert (found.monitor.uid_map, found.monitor.has_user_namespace) == ("0 0 4294967295", True)
    assert (found.landlock, found.landlock_note) == (0, "not in the kernel")


def test_a_refusal_of_landlock_leaves_its_number_unknown() -> None:
    assert (observe("nspawn").landlock, observe("nspawn").landlock_note) == (None, "refused")
    assert (observe("crun").landlock, observe("crun").landlock_note) == (0, "")


def test_a_unikernel_has_nothing_but_its_monitor() -> None:
    found = observe_layer("micro", CapturedHost("qemu-tcg"), None, [20490], "", HostCache())
    assert (found.has_private_kernel, found.inside, found.landlock) == (None, None, None)
    assert found.monitor is not None


def test_an_instance_that_says_nothing_is_unknown() -> None:
    silent = CapturedHost()
    found = observe_layer("custom", silent, silent, [7], "", HostCache())
    assert found == ObservedIsolation("custom", has_private_kernel=False)
    assert parse_facts("umask\t022\nisolation Seccomp\t2\n") == {"Seccomp": "2"}


def test_the_host_is_read_once_and_a_container_needs_no_further_command() -> None:
    host, cache = CapturedHost(), HostCache()
    observe("crun", host, cache)
    before = len(host.reads)
    observe("docker", host, cache)
    assert before == len(host.reads) == 3  # namespaces, the time of the boot and the command line


FILTERED = Isolation("shared kernel", "namespaces; the engine's default seccomp filter")


@pytest.mark.parametrize(
    ("declared", "observed", "expected"),
    [
        (
            FILTERED,
            ObservedIsolation("a", has_private_kernel=False, inside=Confinement(seccomp=0)),
            ["a seccomp filter; observed: none"],
        ),
        (FILTERED, ObservedIsolation("a", has_private_kernel=False, inside=Confinement(seccomp=2)), []),
        (FILTERED, ObservedIsolation("a", has_private_kernel=False, inside=Confinement()), []),
        (FILTERED, ObservedIsolation("a"), []),
        (
            FILTERED,
            ObservedIsolation("a", has_private_kernel=False, inside=Confinement(namespaces=())),
            ["namespaces; observed: all are the host's"],
        ),
        (
            Isolation("none", "no seccomp filter"),
            ObservedIsolation("a", has_private_kernel=False, inside=Confinement(seccomp=0)),
            [],
        ),
        (
            Isolation("own kernel", "a guest"),
            ObservedIsolation("a", has_private_kernel=False, inside=Confinement(seccomp=2)),
            ["own kernel; observed: the host's kernel"],
        ),
        (
            Isolation("shared kernel", "a filter"),
            ObservedIsolation("a", has_private_kernel=True, inside=Confinement(seccomp=0)),
            [],
        ),
        (
            Isolation("own kernel", "a guest; seccomp filters its monitor"),
            ObservedIsolation(
                "a", has_private_kernel=True, inside=Confinement(seccomp=0), monitor=Confinement("fc", seccomp=0)
            ),
            ["a seccomp filter; observed: none (fc)"],
        ),
    ],
)
def test_what_is_weaker_than_declared_is_a_contradiction(
    declared: Isolation, observed: ObservedIsolation, expected: list[str]
) -> None:
    assert [*find_contradictions(declared, observed)] == [f"declared: {text}" for text in expected]


def test_contradictions_of_several_layers_have_the_layers_names() -> None:
    bare = ObservedIsolation("crun", has_private_kernel=False, inside=Confinement(seccomp=0))
    layers = (replace(bare, layer="qemu"), bare)
    texts = find_all_contradictions((FILTERED, Isolation("own kernel", "")), layers)
    assert texts[0] == "qemu: declared: a seccomp filter; observed: none"
    assert texts[1:] == ("crun: declared: own kernel; observed: the host's kernel",)


def test_a_contradiction_is_a_caution_on_all_trials_of_the_stack(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tare_fake.technology.Fake, "isolation", Isolation("own kernel", "a guest"))
    assert bench.work(suite("a:", "b:")) == "plan"
    expected = Caution("isolation-differs", "declared: own kernel; observed: the host's kernel")
    assert all(expected in trial.cautions for trial in bench.trials)
    # It is stored with each trial, and the journal is read back as it was written.
    assert {trial.isolation for trial in bench.trials} == {(ObservedIsolation("fake", has_private_kernel=False),)}
