from __future__ import annotations

import pytest
from shelf import (
    DURATION,
    NAME,
    NATIVE,
    REDIS,
    faults,
    read,
)

from tare.model.errors import SuiteError

STACK = '[suite]\nstacks = ["%s"]\n' + REDIS
USER = 'write ssh = "user@address"'
CLIENT = '[[hosts.client]]\nssh = "%s"\n'
TABLE = 'write [hosts.client] and below it ssh = "user@address"'
LENT = 'name what runs in it, as in "native/lender"'
NO_DEVICES = "its instances have neither the devices nor the control groups that another technology needs"

# --- one fault at a time: the two lines that the user sees
ON = '[suite]\nstacks = ["d"]\n[stacks.d]\n'
WHOLE = "write a whole number, without quotes"
NUMBER = "write a number, without quotes"
TEXT = "write it in quotes"
LIST = "write a list in brackets"
TECHNOLOGIES = "`tare technologies` lists the names"
REPAIR = "repair or remove its package"
ONE_SUITE = "write [suite] in one pair of brackets"
WORKLOAD = 'write [[workloads]] and below it use = "redis"'


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        # keys
        (NATIVE + REDIS + "clientz = [1]\n", "workloads[0].clientz: unknown key", 'did you mean "clients"?'),
        (NATIVE + 'budgett = "1m"\n' + REDIS, "suite.budgett: unknown key", 'did you mean "budget"?'),
        (
            NATIVE + "[limits]\nx = 1\n" + REDIS,
            "limits.x: unknown key",
            "the keys here are cpus, memory, open_files, time",
        ),
        (
            NATIVE + '[image]\nrelease = "trixy"\n' + REDIS,
            'image.release: "trixy" is not known',
            'did you mean "trixie"?',
        ),
        (NATIVE + "[image]\nrelease = 13\n" + REDIS, "image.release: 13 is not known", "write one of bookworm, trixie"),
        ("image = 13\n" + NATIVE + REDIS, "image: not a table", "write [image] in one pair of brackets"),
        (NATIVE + REDIS + "[limit]\n", "limit: unknown key", 'did you mean "limits"?'),
        ('[suit]\nstacks = ["native"]\n' + REDIS, "suit: unknown key", 'did you mean "suite"?'),
        (NATIVE + '[[workload]]\nuse = "redis"\n', "workload: unknown key", 'did you mean "workloads"?'),
        ('[suite]\nstack = ["native"]\n' + REDIS, "suite.stack: unknown key", 'did you mean "stacks"?'),
        (ON + 'stack = "docker"\nnetwrk = "nat"\n' + REDIS, "stacks.d.netwrk: unknown key", 'did you mean "network"?'),
        (NATIVE + REDIS + "[hosts.server]\n", "hosts.server.ssh: missing", USER),
        (NATIVE + REDIS + '[hosts.server]\nssh = "-oProxyCommand=x"\n', "hosts.server.ssh: not a machine", USER),
        (NATIVE + REDIS + '[hosts.load]\nssh = "a@b"\n', "hosts.load: unknown key", "the keys here are client, server"),
        (NATIVE + REDIS + "[hosts]\nclient = 5\n", "hosts.client: not a table", TABLE),
        (NATIVE + REDIS + "[hosts]\nclient = []\n", "hosts.client: not a table", TABLE),
        (NATIVE + REDIS + "[hosts]\nclient = [5]\n", "hosts.client[0]: not a table", TABLE),
        (NATIVE + REDIS + CLIENT % "a@b" + "[[hosts.client]]\n", "hosts.client[1].ssh: missing", USER),
        (
            NATIVE + REDIS + CLIENT % "a@b" + CLIENT % "a@c" + CLIENT % "a@b",
            "hosts.client[2].ssh: a@b is a client already",
            "name each machine once",
        ),
        (
            NATIVE + REDIS + '[hosts.server]\nssh = "a@c"\n' + CLIENT % "a@b" + CLIENT % "a@c",
            "hosts.client[1].ssh: a@c is the server, and one of several clients",
            "name other machines; the server can only be the client alone, in one [hosts.client]",
        ),
        (
            STACK % "qemu/docker",
            f"suite.stacks[0]: docker cannot be an outer layer: {NO_DEVICES}",
            'the outer layer comes last: did you mean "docker/qemu"?',
        ),
        (
            STACK % "docker/docker",
            "suite.stacks[0]: docker/docker names docker twice",
            "a technology can be in a stack once",
        ),
        # names of plug-ins
        (STACK % 'native", "dokcer', 'suite.stacks[1]: no stack named "dokcer"', 'did you mean "docker"?'),
        (STACK % "docker/qmu", 'suite.stacks[0]: no stack named "docker/qmu"', 'did you mean "docker/qemu"?'),
        (
            '[suite]\nstacks = ["docker-brige"]\n[stacks.docker-bridge]\nstack = "docker"\n' + REDIS,
            'suite.stacks[0]: no stack named "docker-brige"',
            'did you mean "docker-bridge"?',
        ),
        (STACK % "docker/", 'suite.stacks[0]: no stack named "docker/"', TECHNOLOGIES),
        (STACK % "zzz", 'suite.stacks[0]: no stack named "zzz"', TECHNOLOGIES),
        (STACK % "broken", "suite.stacks[0]: the plug-in 'broken' is broken: no module named 'gone'", REPAIR),
        (
            NATIVE + '[[workloads]]\nuse = "rediss"\n',
            'workloads[0].use: no workload named "rediss"',
            'did you mean "redis"?',
        ),
        (
            NATIVE + '[[workloads]]\nuse = "zzz"\n',
            'workloads[0].use: no workload named "zzz"',
            "`tare workloads` lists the names",
        ),
        (
            NATIVE + '[[workloads]]\nuse = "broken"\n',
            "workloads[0].use: the plug-in 'broken' is broken: no module named 'gone'",
            REPAIR,
        ),
        # stacks that are excluded from a workload
        (
            '[suite]\nstacks = ["native", "docker"]\n' + REDIS + 'exclude = ["dokcer"]\n',
            'workloads[0].exclude[0]: "dokcer" is not among the stacks',
            'did you mean "docker"?',
        ),
        (
            '[suite]\nstacks = ["docker", "native"]\n' + REDIS + 'exclude = ["native"]\n',
            "workloads[0].exclude[0]: the others are compared with the baseline",
            "leave it in",
        ),
        (
            NATIVE + REDIS + 'exclude = "docker"\n',
            "workloads[0].exclude: not a list of stacks",
            'write names of stacks in brackets, for example ["qemu-tcg"]',
        ),
        # what is missing
        (REDIS, "suite: missing", 'write [suite] and below it stacks = ["native", "docker"]'),
        ("[suite]\n" + REDIS, "suite.stacks: missing", 'write stacks = ["native", "docker"]'),
        ("[suite]\nstacks = []\n" + REDIS, "suite.stacks: a list has too few entries", "write at least 1"),
        (NATIVE, "workloads: missing", WORKLOAD),
        ("workloads = []\n" + NATIVE, "workloads: missing", WORKLOAD),
        (NATIVE + "[[workloads]]\n", "workloads[0].use: missing", 'write use = "redis"'),
        (NATIVE + '[[workloads]]\nuse = "fixed"\n', "workloads[0].size: missing", "write size = …"),
        (ON + REDIS, "stacks.d.stack: missing", 'write stack = "docker"'),
        (
            STACK % "remote",
            "suite.stacks[0]: remote needs the setting address",
            'write a table [stacks.NAME] with stack = "remote" and address = …',
        ),
        # values
        (
            NATIVE + '[telemetry]\nevery = "1ms"\n' + REDIS,
            'telemetry.every: "1ms" is too small',
            'write "10ms" or more',
        ),
        (NATIVE + '[telemetry]\nevery = "2h"\n' + REDIS, 'telemetry.every: "2h" is too large', 'write "1h" or less'),
        (NATIVE + "[telemetry]\nevery = 10\n" + REDIS, "telemetry.every: 10 cannot be used", DURATION),
        (NATIVE + "budget = 10\n" + REDIS, "suite.budget: 10 cannot be used", DURATION),
        (NATIVE + 'budget = "10"\n' + REDIS, 'suite.budget: "10" cannot be used', DURATION),
        (NATIVE + 'budget = "0s"\n' + REDIS, 'suite.budget: "0s" is too small', "write more than 0"),
        (
            NATIVE + "margin = 0.03\n" + REDIS,
            "suite.margin: 0.03 cannot be used",
            "a share needs its percent sign, for example 3%",
        ),
        (
            NATIVE + 'margin = "300%"\n' + REDIS,
            'suite.margin: "300%" cannot be used',
            "a margin lies between 0% and 100%, for example 3%",
        ),
        (NATIVE + "blocks = 0\n" + REDIS, "suite.blocks: 0 is too small", "write 1 or more"),
        (NATIVE + "blocks = 10001\n" + REDIS, "suite.blocks: 10001 is too large", "write 10000 or less"),
        (NATIVE + "blocks = 1.5\n" + REDIS, "suite.blocks: 1.5 is not a whole number", WHOLE),
        (NATIVE + "name = 3\n" + REDIS, "suite.name: 3 is not a text", TEXT),
        (NATIVE + 'name = "../etc"\n' + REDIS, 'suite.name: "../etc" cannot be a name', NAME),
        (
            NATIVE + "[limits]\nmemory = 512\n" + REDIS,
            "limits.memory: 512 cannot be used",
            "a size needs its unit, for example 512MiB or 2GB",
        ),
        (NATIVE + "[limits]\ncpus = true\n" + REDIS, "limits.cpus: true is not a whole number", WHOLE),
        ('[suite]\nstacks = "native"\n' + REDIS, 'suite.stacks: "native" is not a list', LIST),
        ('[suite]\nstacks = ["native", 3]\n' + REDIS, "suite.stacks[1]: 3 is not a text", TEXT),
        ('suite = "quick"\n' + REDIS, "suite: not a table", ONE_SUITE),
        ('[[suite]]\nstacks = ["native"]\n' + REDIS, "suite: not a table", ONE_SUITE),
        (
            NATIVE + '[workloads]\nuse = "redis"\n',
            "workloads: not a list of tables",
            "write [[workloads]] in two pairs of brackets",
        ),
        (NATIVE + "[[workloads]]\nuse = 3\n", "workloads[0].use: 3 is not a text", TEXT),
        (NATIVE + REDIS + 'clients = "50"\n', 'workloads[0].clients: "50" is not a list', LIST),
        (NATIVE + REDIS + 'clients = [1, "50"]\n', 'workloads[0].clients[1]: "50" is not a whole number', WHOLE),
        (
            NATIVE + REDIS + 'keep_alive = "yes"\n',
            'workloads[0].keep_alive: "yes" is neither true nor false',
            "write true or false, without quotes",
        ),
        (NATIVE + REDIS + "timeout = 5\n", "workloads[0].timeout: 5 cannot be used", DURATION),
        (NATIVE + REDIS + "share = nan\n", 'workloads[0].share: "nan" is not a number', NUMBER),
        (NATIVE + REDIS + "share = 2024-05-01\n", 'workloads[0].share: "2024-05-01" is not a number', NUMBER),
        (NATIVE + REDIS + "pipeline = [1]\n", "workloads[0].pipeline: a list is not a whole number", WHOLE),
        (
            NATIVE + REDIS + "clients = [50, 1]\n",
            "workloads[0]: the clients must rise",
            "change the settings of this table",
        ),
        (
            ON + 'stack = "docker"\nnetwork = "bridges"\n' + REDIS,
            'stacks.d.network: "bridges" is not known',
            'did you mean "bridge"?',
        ),
        # what contradicts itself
        (
            STACK % 'native", "docker", "native',
            'suite.stacks[2]: "native" is listed twice',
            "remove one; other settings need a table [stacks.NAME]",
        ),
        (
            '[suite]\nstacks = ["docker", "qemu"]\nbaseline = "dockr"\n' + REDIS,
            'suite.baseline: "dockr" is not among the stacks',
            'did you mean "docker"?',
        ),
        (
            '[suite]\nstacks = ["docker", "qemu"]\nbaseline = "native"\n' + REDIS,
            'suite.baseline: "native" is not among the stacks',
            "write one of docker, qemu",
        ),
        (NATIVE + REDIS + REDIS, 'workloads[1]: a second workload named "redis"', 'write name = "redis-2"'),
        (
            NATIVE + REDIS + 'name = "a"\n' + REDIS + 'name = "a"\n',
            'workloads[1].name: a second workload named "a"',
            'write name = "a-2"',
        ),
        (NATIVE + REDIS + 'name = "Redis/1"\n', 'workloads[0].name: "Redis/1" cannot be a name', NAME),
        (
            NATIVE + '[stacks.d]\nstack = "docker"\n' + REDIS,
            "stacks.d: not used",
            'add "d" to stacks in [suite], or remove this table',
        ),
        (
            '[suite]\nstacks = ["docker"]\n[stacks.docker]\nstack = "qemu"\n' + REDIS,
            "stacks.docker: this is the name of a technology",
            "give it its own, for example [stacks.docker-2]",
        ),
        (
            '[suite]\nstacks = ["a/b"]\n[stacks."a/b"]\nstack = "qemu"\n' + REDIS,
            'stacks.a/b: "a/b" cannot be a name',
            NAME,
        ),
        (
            '[suite]\nstacks = ["d"]\n[stacks]\nd = "docker"\n' + REDIS,
            "stacks.d: not a table",
            'write [stacks.d] and below it stack = "docker"',
        ),
        (ON + 'stack = "dockr"\n' + REDIS, 'stacks.d.stack: no stack named "dockr"', 'did you mean "docker"?'),
        (
            ON + 'stack = "docker/qemu"\n[stacks.d.docker]\nnetwork = "bridge"\n' + REDIS,
            'stacks.d.docker.network: the client would have to join "bridge", but it is outside of qemu',
            'write "nat", or leave it out',
        ),
        (
            '[suite]\nstacks = ["p"]\n[stacks.p]\nstack = "docker"\nnetwork = "bridge"\n[hosts.server]\nssh = "a"\n'
            + REDIS,
            'stacks.p.network: the client would have to join "bridge", but it is on another machine',
            'write "nat", or leave it out',
        ),
        (
            ON + 'stack = "docker/qemu"\nnetwork = "nat"\n' + REDIS,
            "stacks.d.network: docker/qemu takes its settings by layer",
            "write it below [stacks.d.docker] or [stacks.d.qemu]",
        ),
        (
            ON + 'stack = "docker/qemu"\n[stacks.d.docke]\nnetwork = "nat"\n' + REDIS,
            "stacks.d.docke: unknown key",
            'did you mean "docker"?',
        ),
        (
            ON + 'stack = "docker/qemu"\n[stacks.d.docker]\nnetwrk = "nat"\n' + REDIS,
            "stacks.d.docker.netwrk: unknown key",
            'did you mean "network"?',
        ),
        (
            ON + 'stack = "remote/qemu"\n[stacks.d.remote]\n' + REDIS,
            "stacks.d.remote.address: missing",
            "write address = …",
        ),
        (
            STACK % "remote/qemu",
            "suite.stacks[0]: remote needs the setting address",
            'write a table [stacks.NAME] with stack = "remote/qemu" and below it [stacks.NAME.remote] with address = …',
        ),
        # what only lends a machine
        (STACK % "lender", "suite.stacks[0]: lender only lends a machine", LENT),
        (ON + 'stack = "lender"\ncloud = "a"\n' + REDIS, "stacks.d.stack: lender only lends a machine", LENT),
        (
            STACK % "docker/lender/qemu",
            "suite.stacks[0]: lender can only be the outermost layer",
            "the outer layer comes last, as in docker/qemu",
        ),
    ],
)
def test_a_fault_names_its_key_and_says_what_to_write(text: str, what: str, hint: str) -> None:
    assert faults(text) == [(f"quick.toml: {what}", hint)]


def test_a_plugin_whose_settings_cannot_be_read_is_a_fault_of_the_suite() -> None:
    [(what, hint)] = faults('[suite]\nstacks = ["plain"]\n' + REDIS)
    assert what.startswith('quick.toml: suite.stacks[0]: the settings of "plain" cannot be read: ')
    assert hint == "repair or remove its package"


# --- all of them at once


def test_all_faults_come_at_once_in_the_order_of_the_file() -> None:
    found = faults(
        """
        [suite]
        stacks = ["native", "dokcer", "native"]
        budget = 10
        sed = 1
        baseline = "xen"

        [limits]
        memory = "1"

        [stacks.spare]
        stack = "qemo"
        speed = 1

        [[workloads]]
        clientz = [1]
        use = "redis"
        clients = [1, "x"]

        [[workloads]]
        use = "nginy"

        [[workloads]]
        use = "redis"
        timeout = "1"

        [tables]
        """
    )
    assert [what for what, _ in found] == [
        'quick.toml: suite.stacks[1]: no stack named "dokcer"',
        'quick.toml: suite.stacks[2]: "native" is listed twice',
        "quick.toml: suite.budget: 10 cannot be used",
        "quick.toml: suite.sed: unknown key",
        'quick.toml: suite.baseline: "xen" is not among the stacks',
        'quick.toml: limits.memory: "1" cannot be used',
        "quick.toml: stacks.spare: not used",
        'quick.toml: stacks.spare.stack: no stack named "qemo"',
        "quick.toml: workloads[0].clientz: unknown key",
        'quick.toml: workloads[0].clients[1]: "x" is not a whole number',
        'quick.toml: workloads[1].use: no workload named "nginy"',
        'quick.toml: workloads[2]: a second workload named "redis"',
        'quick.toml: workloads[2].timeout: "1" cannot be used',
        "quick.toml: tables: unknown key",
    ]
    assert all(hint for _, hint in found)


def test_the_error_has_all_faults_in_its_text() -> None:
    with pytest.raises(SuiteError, match=r"suite: missing\n.*workloads: missing") as caught:
        read("")
    assert caught.value.exit_code == 2


# --- faults of stacks whose names have a word, and of those that only some machines and clients can have -------------

BESIDE = "only a client on the same machine reaches its instances, but it is"
BOTH = "write [hosts.server] and [hosts.client], both with the ssh of that machine"


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        # what a machine that tare boots does not have, and what only a client beside it reaches
        (
            STACK % "pod-a/qemu",
            "suite.stacks[0]: pod-a cannot be in a machine that tare boots: it needs a cluster",
            'name a machine that can run it: [hosts.server] ssh = "root@HOST"',
        ),
        (
            STACK % "lender/qemu",
            "suite.stacks[0]: lender can only be the outermost layer",
            'the outer layer comes last: did you mean "qemu/lender"?',
        ),
        (
            STACK % "pod" + '[hosts.server]\nssh = "a"\n',
            f"suite.stacks: pod: {BESIDE} on another machine",
            BOTH,
        ),
        (
            STACK % "pod/lender",
            f"suite.stacks: pod/lender: {BESIDE} outside of lender",
            BOTH,
        ),
        # names with a word
        (STACK % "pdo-a", 'suite.stacks[0]: no stack named "pdo-a"', 'did you mean "pod-a"?'),
        (STACK % "pod_a", 'suite.stacks[0]: no stack named "pod_a"', 'did you mean "pod-a"?'),
        (STACK % "pod-", 'suite.stacks[0]: no stack named "pod-"', 'did you mean "pod"?'),
        (STACK % "docker-a", 'suite.stacks[0]: no stack named "docker-a"', 'did you mean "docker"?'),
        (
            STACK % "pod/cluster",
            "suite.stacks[0]: pod/cluster names cluster twice",
            "a technology can be in a stack once",
        ),
    ],
)
def test_a_fault_of_a_stack_says_what_to_write(text: str, what: str, hint: str) -> None:
    assert faults(text) == [(f"quick.toml: {what}", hint)]
