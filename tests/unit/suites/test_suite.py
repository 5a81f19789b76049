from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from shelf import (
    NATIVE,
    REDIS,
    Cluster,
    Docker,
    Lender,
    Native,
    Qemu,
    Redis,
    Remote,
    Shelf,
    faults,
    read,
    settings,
)

from tare.model.errors import SuiteError
from tare.model.image import ImageSpec
from tare.model.machine import Hosts, SshTarget
from tare.model.trial import LimitsSpec
from tare.plugins import registry
from tare.suites.stacks import Stack
from tare.suites.suite import Suite, parse_suite, read_suite
from tare.suites.tables import RunSettings

SAMPLES = Path(__file__).parents[2] / "samples/suites"

# --- good suites


def test_a_suite_of_stacks_and_workloads_has_defaults_for_the_rest() -> None:
    text = NATIVE + REDIS
    suite = read(text)
    assert suite.name == "quick"
    assert suite.stacks == (Stack("native", (Native(),)),)
    assert suite.baseline == "native"
    assert suite.blocks == 30
    assert suite.budget_seconds is None
    assert suite.telemetry.every == 0.1
    assert suite.margin == 0.03
    assert suite.seed == 1
    assert suite.limits == LimitsSpec(cpus=1, memory_bytes=536870912, open_files=4096)
    assert suite.image == ImageSpec()
    [planned] = suite.workloads
    assert (planned.name, planned.use) == ("redis", "redis")
    assert settings(planned) == Redis()
    assert suite.text == text


# Of each run setting, a value in a suite that is not the default, and the value that the run gets.
RUN_SETTINGS: dict[str, tuple[str, object]] = {
    "blocks": ("7", 7),
    "until": ('"blocks"', "blocks"),
    "margin": ('"5%"', 0.05),
    "precision": ('"2%"', 0.02),
    "keep_awake": ('"off"', "off"),
    "instances": ('"per-workload"', "per-workload"),
    "seed": ("4", 4),
    "session": ('"One day"', "One day"),
}


def test_each_run_setting_reaches_the_suite() -> None:
    assert RUN_SETTINGS.keys() == {each.name for each in fields(RunSettings)}
    keys = "".join(f"{name} = {text}\n" for name, (text, _) in RUN_SETTINGS.items())
    suite = read(NATIVE + keys + REDIS)
    assert {name: getattr(suite, name) for name in RUN_SETTINGS} == {name: at for name, (_, at) in RUN_SETTINGS.items()}
    unset = read(NATIVE + REDIS)
    assert not any(getattr(unset, name) == at for name, (_, at) in RUN_SETTINGS.items())


def test_every_setting_of_a_suite_is_read() -> None:
    suite = read(
        """
        [suite]
        name = "vtmark-2021"
        stacks = ["docker/qemu", "docker-bridge", "docker"]
        baseline = "docker-bridge"
        blocks = 12
        budget = "10m"
        margin = "5%"
        seed = 7

        [limits]
        cpus = 2
        memory = "1GiB"
        open_files = 1024

        [image]
        release = "trixie"

        [telemetry]
        every = "1s"

        [stacks.docker-bridge]
        stack = "docker"
        network = "bridge"
        storage = "4KiB"

        [[workloads]]
        use = "redis"
        name = "redis-set"
        operations = ["SET"]
        clients = [1, 50, 200]
        keep_alive = false
        timeout = "1m30s"
        share = 1
        pipeline = 16

        [[workloads]]
        use = "redis"
        """
    )
    assert suite.name == "vtmark-2021"
    assert suite.stacks == (
        Stack("docker/qemu", (Docker(), Qemu())),
        Stack("docker-bridge", (Docker(network="bridge", storage=4096),)),
        Stack("docker", (Docker(),)),
    )
    assert (suite.baseline, suite.blocks, suite.budget_seconds) == ("docker-bridge", 12, 600.0)
    assert (suite.margin, suite.seed) == (0.05, 7)
    assert suite.limits == LimitsSpec(cpus=2, memory_bytes=1073741824, open_files=1024)
    assert suite.image == ImageSpec("trixie")
    assert suite.telemetry.every == 1.0
    assert [planned.name for planned in suite.workloads] == ["redis-set", "redis"]
    assert settings(suite.workloads[0]) == Redis(
        operations=("SET",), clients=(1, 50, 200), keep_alive=False, timeout=90.0, share=1.0, pipeline=16
    )


@pytest.mark.parametrize(("stacks", "baseline"), [('"qemu", "docker"', "qemu"), ('"qemu", "native"', "native")])
def test_native_is_the_baseline_or_else_the_first_stack(stacks: str, baseline: str) -> None:
    assert read(f"[suite]\nstacks = [{stacks}]\n{REDIS}").baseline == baseline


def test_a_variant_may_name_a_nested_stack_without_settings() -> None:
    suite = read('[suite]\nstacks = ["inner"]\n[stacks.inner]\nstack = "docker/qemu"\n' + REDIS)
    assert suite.stacks == (Stack("inner", (Docker(), Qemu())),)


def test_a_variant_of_a_nested_stack_has_settings_by_layer() -> None:
    suite = read(
        '[suite]\nstacks = ["metal"]\n[stacks.metal]\nstack = "docker/lender"\n'
        '[stacks.metal.docker]\nstorage = "2KiB"\n[stacks.metal.lender]\ncloud = "mine"\n' + REDIS
    )
    assert suite.stacks == (Stack("metal", (Docker(storage=2048), Lender("mine"))),)


def test_layers_without_a_table_keep_their_defaults() -> None:
    table = '[stacks.far]\nstack = "remote/qemu"\n[stacks.far.remote]\naddress = "10.0.0.1"\n'
    suite = read('[suite]\nstacks = ["far"]\n' + table + REDIS)
    assert suite.stacks == (Stack("far", (Remote("10.0.0.1"), Qemu())),)


def test_a_variant_gives_a_technology_the_setting_that_it_needs() -> None:
    suite = read('[suite]\nstacks = ["far"]\n[stacks.far]\nstack = "remote"\naddress = "10.0.0.1"\n' + REDIS)
    assert suite.stacks == (Stack("far", (Remote("10.0.0.1"),)),)


def test_a_short_name_and_a_word_after_it_need_no_table() -> None:
    suite = read('[suite]\nstacks = ["native", "pod", "pod-a-b", "cluster-c"]\n' + REDIS)
    assert suite.stacks[1:] == (
        Stack("pod", (Cluster(),)),
        Stack("pod-a-b", (Cluster(kind="a-b"),)),
        Stack("cluster-c", (Cluster(kind="c"),)),
    )


def test_a_table_adds_settings_to_those_of_a_name_and_its_own_count() -> None:
    suite = read(
        '[suite]\nstacks = ["large", "other", "pod", "far"]\n[stacks.large]\nstack = "pod-a"\nroom = "2KiB"\n'
        '[stacks.other]\nstack = "pod-a"\nkind = "b"\n[stacks.pod]\nstack = "docker"\n'
        '[stacks.far]\nstack = "docker/lender"\n' + REDIS
    )
    assert suite.stacks == (
        Stack("large", (Cluster("a", 2048),)),
        Stack("other", (Cluster("b"),)),
        Stack("pod", (Docker(),)),
        Stack("far", (Docker(), Lender())),
    )


def test_a_client_on_the_machine_of_the_instances_reaches_all_of_them() -> None:
    there = "".join(f'[hosts.{name}]\nssh = "root@a"\n' for name in ("server", "client"))
    assert read('[suite]\nstacks = ["pod-a"]\n' + REDIS + there).stacks == (Stack("pod-a", (Cluster("a"),)),)


def _on_clients(workloads: str, *clients: str) -> Suite:
    hosts = "".join(f'[[hosts.client]]\nssh = "{each}"\n' for each in clients)
    return parse_suite(f"{NATIVE}{workloads}{hosts}", "quick.toml")


WRK = "".join(f'[[workloads]]\nuse = "{use}"\n' for use in ("nginx", "nginx-latency", "service", "dhrystone"))


def test_several_clients_are_a_list_of_tables_and_one_is_the_main_client() -> None:
    assert _on_clients(WRK, "a", "b", "c").hosts == Hosts(None, SshTarget("a"), (SshTarget("b"), SshTarget("c")))
    assert _on_clients(WRK + REDIS, "a").hosts == Hosts(None, SshTarget("a"))  # whose load cannot be divided


def test_a_suite_without_a_name_is_named_after_its_file() -> None:
    assert parse_suite(NATIVE + REDIS, "examples/My Suite.toml", Shelf()).name == "my-suite"


def test_the_bundled_plugins_are_the_catalogue_unless_another_is_given() -> None:
    with pytest.raises(SuiteError, match=r'no stack named "no-such-technology"'):
        parse_suite('[suite]\nstacks = ["no-such-technology"]\n' + REDIS, "quick.toml")


# --- files that are no suites


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[suite]\nname = quick\n", "quick.toml: line 2: not TOML: invalid value"),
        ('[suite]\nname = "a"\nname = "b"\n', "quick.toml: line 3: not TOML: cannot overwrite a value"),
        ('[suite]\nname = "a', "quick.toml: at its end: not TOML: unterminated string"),
    ],
)
def test_what_is_not_toml_is_reported_with_its_line(text: str, what: str) -> None:
    [(found, hint)] = faults(text)
    assert found == what
    assert hint == 'a line is `key = value` or `[table]`; texts stand in "quotes", lists in [brackets]'


def file_fault(path: Path) -> tuple[str, str]:
    with pytest.raises(SuiteError) as caught:
        read_suite(path, Shelf())
    [fault] = caught.value.faults
    return fault.message, fault.hint


def test_a_suite_is_read_from_its_file_and_named_after_it(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(NATIVE + REDIS)
    assert read_suite(tmp_path / "small.toml", Shelf()).name == "small"


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(NATIVE + REDIS, encoding="utf-8-sig")
    assert read_suite(tmp_path / "small.toml", Shelf()).text == NATIVE + REDIS


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("quik.toml", "no such file", 'did you mean "{folder}/quick.toml"?'),
        ("quick", "no such file", 'did you mean "{folder}/quick.toml"?'),
        ("no/quick.toml", "no such file", "give a suite such as examples/quick.toml"),
        (".", "cannot be read: is a directory", "give the path of a .toml file that you may read"),
        ("quick.toml/x.toml", "cannot be read: not a directory", "give the path of a .toml file that you may read"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_with_what_to_give(
    name: str, what: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "quick.toml").touch()
    path = tmp_path / name
    assert file_fault(path) == (f"{path}: {what}", hint.format(folder=tmp_path))


def test_a_file_that_is_not_utf_8_is_reported_with_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'name = "caf\xe9"\n')
    assert file_fault(path) == (
        f"{path}: not UTF-8 text: byte 11 cannot be read",
        "save the file in the encoding UTF-8",
    )


def test_a_suite_without_an_end_is_refused() -> None:
    with pytest.raises(SuiteError, match="/dev/zero: cannot be read: file too large"):
        read_suite(Path("/dev/zero"))


# --- faults

# Suites, and the two lines that the user sees of each fault: with the small catalogue of plug-ins, and with tare's own.
CASES = [
    (catalog, case.strip())
    for catalog in ("faults", "plug-in-faults")
    for case in (SAMPLES / f"{catalog}.txt").read_text(encoding="utf-8").split("\n\n")
    if not case.startswith("## ")
]


@pytest.mark.parametrize(("catalog", "case"), CASES, ids=lambda text: text.splitlines()[-2:][0].removeprefix("=> "))
def test_a_fault_names_its_key_and_says_what_to_write(catalog: str, case: str) -> None:
    suite, *said = case.split("\n=> ")
    with pytest.raises(SuiteError) as caught:
        parse_suite(f"{suite}\n", "quick.toml", Shelf() if catalog == "faults" else registry)
    lines = [line for fault in caught.value.faults for line in (fault.message, fault.hint)]
    assert [line.removeprefix("quick.toml: ") for line in lines] == said


def test_a_plugin_whose_settings_cannot_be_read_is_a_fault_of_the_suite() -> None:
    [(what, hint)] = faults('[suite]\nstacks = ["plain"]\n' + REDIS)
    assert what.startswith('quick.toml: suite.stacks[0]: the settings of "plain" cannot be read: ')
    assert hint == "repair or remove its package"


def test_the_error_has_all_faults_in_its_text() -> None:
    with pytest.raises(SuiteError, match=r"suite: missing\n.*workloads: missing") as caught:
        read("")
    assert caught.value.exit_code == 2
