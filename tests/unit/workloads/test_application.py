"""An application of several services: what its folder makes of the server, of what runs beside it, and of the load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tare.hosts.local import LocalHost
from tare.images.recipes import guest_recipe, sidecar_recipe
from tare.loads.application import ApplicationLoad, UserService
from tare.model.errors import SuiteError, TrialFailed
from tare.model.image import Image, ImageSpec
from tare.model.trial import RawOutput
from tare.plugins.instance import Instance
from tare.plugins.workload import MeasurementContext
from tare.suites.suite import Suite, parse_suite
from tare.workloads.application import ApplicationWorkload

SHOP = """
[application]
under_test = "web"
[parameters]
users = 200
[services.db]
packages = ["mariadb-server"]
command = "mariadbd"
port = 3306
[services.web]
packages = ["nginx-light"]
command = "web --on {listen}:{port} --db db"
environment = { USERS = "{users}" }
port = 80
[load]
packages = ["curl"]
files = { "/srv/users" = "users" }
command = ["sh", "-c", "echo users: $1; echo CPU usage above 90% >&2", "sh", "{users}", "http://{address}:{port}/"]
duration = "5m"
timeout = "10s"
bottleneck = "CPU usage above"
[[load.metrics]]
name = "users"
better = "higher"
pattern = "users: ([0-9]+)"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "users").mkdir(parents=True)
    (folder / "application.toml").write_text(SHOP)
    return folder


def suite(folder: Path, more: str = "", before: str = "") -> Suite:
    head = f'[suite]\nstacks = ["native"]\n{before}'
    return parse_suite(
        f'{head}[[workloads]]\nuse = "application"\nfolder = {json.dumps(str(folder))}\n{more}', "s.toml"
    )


def in_suite(folder: Path, more: str = "") -> ApplicationWorkload:
    workload = suite(folder, more).workloads[0].workload
    assert isinstance(workload, ApplicationWorkload)
    return workload


def refusal(folder: Path, more: str = "", before: str = "") -> list[str]:
    with pytest.raises(SuiteError) as error:
        suite(folder, more, before)
    return [f"{fault.message} / {fault.hint}" for fault in error.value.faults]


# --- the services


def test_the_service_under_test_gets_its_address_and_the_number_of_users(shop: Path) -> None:
    service = in_suite(shop, "parameters = { users = 8000 }\n").service("198.18.0.10")
    assert service.argv == ("web", "--on", "198.18.0.10:80", "--db", "db")
    assert service.environment == ("USERS=8000",)
    workload = in_suite(shop)
    assert (workload.service("::1").environment, workload.port) == (("USERS=200",), 80)
    assert (workload.hostname, [each.name for each in workload.sidecars]) == ("web", ["db"])


def test_a_run_has_the_image_of_the_service_under_test_and_a_sidecar_image(shop: Path) -> None:
    read = suite(shop)
    workloads = [read.workloads[0].workload]
    assert read.image == ImageSpec(packages=("nginx-light",))
    guest = guest_recipe(workloads, read.image.release, read.image.packages)
    beside = sidecar_recipe(workloads[0].sidecars[0].image)
    assert ("nginx-light" in guest.packages, "mariadb-server" in guest.packages) == (True, False)
    assert ("nginx-light" in beside.packages, "mariadb-server" in beside.packages) == (False, True)
    assert beside.kernel == ""
    assert workloads[0].client_files == (("/srv/users", str(shop / "users")),)


def test_an_application_without_a_folder_is_tares_own_server() -> None:
    workload = ApplicationWorkload()
    assert (workload.image, workload.sidecars, workload.hostname) == (None, (), "")
    sample = Path(__file__).parents[2] / "samples/nginx/whole-second.txt"
    (value,) = workload.parse([RawOutput("load", ("wrk",), sample.read_text(), 1.0)])
    assert value.metric == "throughput"
    assert value.value == pytest.approx(49301.24)


def test_the_plan_lists_what_it_starts_and_how_long_it_takes(shop: Path) -> None:
    workload = in_suite(shop)
    assert [line.partition(": ")[2].split()[0] for line in workload.external_effects("inside")] == [
        "web",
        "mariadbd",
        "sh",
    ]
    assert (workload.rounds, workload.estimate_seconds()) == (1, 300.0)
    assert in_suite(shop, 'duration = "2h"\nparameters = { users = 16000 }\n').estimate_seconds() == 7200.0


def test_less_time_than_the_load_takes_is_refused_as_nothing_shortens_it(shop: Path) -> None:
    (told,) = refusal(shop, before='[limits]\ntime = "1m"\n')
    assert told.startswith("s.toml: workloads[0].limits: takes about 5 min at the least, and may take 1 min")


# --- the load


def test_the_load_runs_once_and_says_where_it_was_the_bottleneck(shop: Path) -> None:
    host = LocalHost()
    setup = MeasurementContext(Instance("one", host, "198.18.0.10", "bridge", lambda: ()), host, ())
    workload = in_suite(shop, "parameters = { users = 3 }\n")
    (raw,) = workload.measure(setup)
    assert raw.argv[-2:] == ("3", "http://198.18.0.10:80/")
    assert raw.client_limit == "the load says: CPU usage above 90%"
    assert [(value.metric, value.value) for value in workload.parse([raw])] == [("users", 3.0)]
    for other in ([], [raw, raw], [RawOutput("run", (), raw.text, 1.0)]):
        with pytest.raises(TrialFailed, match="expected outputs of"):
            workload.parse(other)
    with pytest.raises(TrialFailed, match="the pattern of users does not match"):
        workload.parse([RawOutput("load", (), "", 1.0)])


# --- several clients


def _shared(load: ApplicationLoad, *, further: int = 1) -> RawOutput:
    """Run a load on clients that are all this machine."""
    host = LocalHost()
    instance = Instance("one", host, "198.18.0.10", "bridge", lambda: ())
    setup = MeasurementContext(
        instance, host, (), extra_clients=further * (host,), client_address="198.18.9.9" if further else ""
    )
    return load.run(setup, UserService("web", ImageSpec(), port=80), {"users": 3})


def test_extra_clients_run_the_worker_during_the_load_and_know_the_first(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    waiting = f"while [ ! -e {meeting} ]; do sleep 0.01; done; cat {meeting}; echo {{first_client}} {{client_cpus}}"
    busy = "n=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done"
    load = ApplicationLoad(
        command=("sh", "-c", waiting),
        metrics=(),
        worker=("sh", "-c", f"echo {{first_client}} {{users}} > {meeting}.new; mv {meeting}.new {meeting}; {busy}"),
    )
    raw = _shared(load)
    cpus = int(LocalHost().run("nproc", timeout=30).text)
    assert raw.text == f"198.18.9.9 3\n198.18.9.9 {2 * cpus}\n"
    assert raw.clients_cpu[0] is None  # who runs a command on this machine directly learns no CPU time
    assert raw.clients_cpu[1]
    assert raw.client_cpu == raw.clients_cpu[1]


def test_a_client_alone_is_where_the_load_is_and_has_no_worker() -> None:
    load = ApplicationLoad(("echo", "{first_client}", "{client_cpus}"), (), worker=("false",))
    raw = _shared(load, further=0)
    assert raw.text == f"127.0.0.1 {LocalHost().run('nproc', timeout=30).text}"
    assert raw.clients_cpu == ()


def test_a_load_that_fails_says_which_client_could_not_help() -> None:
    load = ApplicationLoad(("sh", "-c", "sleep 1; exit 1"), (), worker=("sh", "-c", "echo 'no master' >&2; exit 3"))
    with pytest.raises(TrialFailed, match=r"^sh: exit code 1: it printed nothing; client 2: no master$"):
        _shared(load)


def test_a_lasting_worker_is_ended_with_the_load_and_has_unknown_cpu_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tare.loads.application._WORKER_END_SECONDS", 0.1)
    assert _shared(ApplicationLoad(("echo", "done"), (), worker=("sleep", "600"))).clients_cpu == (None, None)


def test_an_application_with_a_worker_alone_may_have_several_clients(shop: Path) -> None:
    clients = "".join(f'[[hosts.client]]\nssh = "{name}"\n' for name in "ab")
    (told,) = refusal(shop, clients)
    assert told.startswith("s.toml: hosts.client: the load of application cannot be divided among several clients")
    text = SHOP.replace("[load]\n", '[load]\nworker = "locust --worker --master-host {first_client}"\n')
    (shop / "application.toml").write_text(text)
    (planned,) = suite(shop, clients).workloads
    assert planned.workload.external_effects("inside")[-1] == (
        "as root on extra clients, if there are any: locust --worker --master-host '{first_client}'"
    )


# --- suites


def test_faults_of_the_application_are_reported_with_those_of_the_suite(shop: Path) -> None:
    (shop / "application.toml").write_text(SHOP.replace("port = 3306", "port = 0").replace("duration", "durration"))
    assert [each.partition(" / ")[0] for each in refusal(shop, "exclude = 5\n")] == [
        "s.toml: workloads[0].exclude: not a list of stacks",
        f"{shop}/application.toml: services.db.port: 0 is too small",
        f"{shop}/application.toml: load.durration: unknown key",
    ]


def test_an_invalid_folder_and_an_unknown_parameter_are_reported(shop: Path) -> None:
    (told,) = refusal(shop / "users")
    assert told.startswith(
        f"{shop}/users/application.toml: cannot be read: no such file or directory / give the folder"
    )
    (told,) = refusal(shop, "parameters = { user = 1 }\n")
    assert told.startswith('s.toml: workloads[0]: the application has no parameter user: did you mean "users"?')


def test_an_application_brings_its_image_and_excludes_any_other(shop: Path) -> None:
    (told,) = refusal(shop, before='[image]\npackages = ["nginx-light"]\n')
    assert told == 's.toml: image: "application" brings the image of its service / leave [image] out'
    other = shop.parent / "other"
    other.mkdir()
    (other / "users").mkdir()
    (other / "application.toml").write_text(SHOP.replace("nginx-light", "lighttpd"))
    second = f'[[workloads]]\nuse = "application"\nname = "two"\nfolder = {json.dumps(str(other))}\n'
    (told,) = refusal(shop, second)
    assert told.startswith('s.toml: workloads[1]: "two" brings another image than a workload before it / ')
    assert len(suite(shop, second.replace("other", "shop")).workloads) == 2  # another number of users, say


def test_a_run_keeps_the_whole_application_so_that_changes_are_noticed(shop: Path) -> None:
    def kept() -> object:
        return TypeAdapter(dict[str, Any]).dump_python(dict(vars(in_suite(shop))), mode="json")

    before = kept()
    assert json.loads(json.dumps(before)) == kept()
    (shop / "application.toml").write_text(SHOP.replace("mariadbd", "mysqld"))
    assert kept() != before


def test_the_image_of_the_service_under_test_may_say_its_port(shop: Path) -> None:
    text = SHOP.replace('packages = ["nginx-light"]', 'from = "oci:web"').replace("port = 80\n", "")
    (shop / "application.toml").write_text(text)
    image = Image("0" * 64, shop, shop, shop, shop, shop, "", start_command=("start",), ports=(8080,))
    workload = in_suite(shop).adapt_to_image(image)
    assert (workload.port, workload.service("::1").argv[:3]) == (8080, ("web", "--on", "::1:8080"))
    with pytest.raises(SuiteError, match=r"services\.web\.port: missing: the image exposes no port"):
        in_suite(shop).adapt_to_image(replace(image, ports=()))
