"""Which machines a run records, by their roles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import hosts_of
from runs import make_run, make_trial

from tare.errors import UsageError
from tare.hosts.local import LocalHost
from tare.model.machines import Facts, Hosts, Machine
from tare.runner.context import RunHosts
from tare.runner.job import check_same, machines_by_role
from tare.suites.suite import parse_suite

HERE = LocalHost().facts()


class _Elsewhere(LocalHost):
    def facts(self) -> Facts:
        return replace(HERE, cpu_model="Elsewhere")


def _roles(stack: str, there: RunHosts) -> dict[str, str]:
    text = f"""
    [suite]
    stacks = ["native", "{stack}"]
    baseline = "{stack}"
    [[workloads]]
    use = "dhrystone"
    """
    suite = parse_suite(text, "test.toml")
    if stack.endswith("openstack"):
        suite = replace(suite, stacks=suite.stacks[1:])
    return {role: facts.cpu_model for role, facts in machines_by_role(suite, there).items()}


def test_on_one_machine_all_roles_are_its_own() -> None:
    assert _roles("crun", hosts_of()) == dict.fromkeys(("controller", "server", "client"), HERE.cpu_model)


def test_a_server_elsewhere_is_not_the_controller() -> None:
    there = hosts_of(_Elsewhere(), reached=Hosts(server=Machine("root@there")))
    expected = {"controller": HERE.cpu_model, "server": "Elsewhere", "client": HERE.cpu_model}
    assert _roles("crun", there) == expected


def test_further_clients_are_numbered() -> None:
    hosts = Hosts(Machine("a"), Machine("b"), (Machine("c"), Machine("d")))
    there = hosts_of(_Elsewhere(), reached=hosts, extra=(_Elsewhere(), LocalHost()))
    assert list(_roles("crun", there)) == ["controller", "server", "client", "client 2", "client 3"]


def test_where_all_instances_are_on_lent_servers_no_server_is_this_machine() -> None:
    pytest.importorskip("openstack")
    assert list(_roles("native/openstack", hosts_of())) == ["controller", "client"]


def test_a_run_of_another_tare_is_not_resumed() -> None:
    now = make_run([make_trial("native", 0, [])]).record
    check_same(now, now)
    with pytest.raises(UsageError, match=r"the run was made by tare 0\.0\.9, and this is ") as refused:
        check_same(replace(now, tare="0.0.9"), now)
    assert refused.value.hint == "go on with tare 0.0.9, or start a new run"
