"""A compose file as an application: what is kept, what is left out and said, and what is refused, all at once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tare.features.compose.commands import parse_compose
from tare.features.compose.context import ComposeContext
from tare.features.compose.convert import ConvertedCompose, convert_compose
from tare.images.oci import CAPABILITIES
from tare.loads.application_file import parse_application
from tare.model.errors import SuiteError, TrialFailed, UsageError
from tare.model.image import ImageCommand

SHOP = """
name: shop
services:
  web:
    build: ./web
    image: registry.example:5000/shop-web
    command: app --title "two words" --price $$5
    ports: ["127.0.0.1:8080:80", "8443:443/tcp", "5140:5140/udp"]
    depends_on: [cache, db]
    environment: {DATABASE: db, DEBUG: false, WORKERS: 010, AT: 22:22}
    volumes: ["./web/app.conf:/etc/app.conf:ro", "uploads:/srv/uploads"]
    restart: always
    networks: [front]
  db:
    image: mariadb:10.11
    environment: [MARIADB_ROOT_PASSWORD=secret, "TITLE=a = b"]
    expose: [3306]
    depends_on: {cache: {condition: service_started}}
    healthcheck:
      test: ["CMD", "healthcheck.sh", "--connect"]
      retries: 5
    volumes:
      - {type: bind, source: ./db/start.sql, target: /docker-entrypoint-initdb.d/start.sql}
      - {type: volume, source: data, target: /var/lib/mysql}
  cache:
    image: memcached
    command: ["memcached", -m, 64]
    expose: ["11211"]
    healthcheck: {test: "echo stats | nc localhost 11211"}
  adminer:
    image: adminer
    profiles: [debug]
volumes: {data: , uploads: }
x-ours: {}
"""


def of(text: str, under_test: str = "", around: ComposeContext | None = None) -> ConvertedCompose:
    return convert_compose(parse_compose(text, "compose.yaml"), "compose.yaml", under_test, around)


def services(text: str, under_test: str = "", around: ComposeContext | None = None) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(of(text, under_test, around).text)["services"]
    return found


def refusal(text: str, under_test: str = "", around: ComposeContext | None = None) -> list[str]:
    with pytest.raises(SuiteError) as error:
        of(text, under_test, around)
    return [f"{fault.message} / {fault.hint}".removeprefix("compose.yaml: ") for fault in error.value.faults]


# --- what is kept


def test_a_service_keeps_what_decides_what_runs() -> None:
    assert services(SHOP)["web"] == {
        "from": "docker-daemon:registry.example:5000/shop-web:latest",  # the name of its registry has a colon, too
        "command": ["app", "--title", "two words", "--price", "$5"],
        "environment": {"DATABASE": "db", "DEBUG": "false", "WORKERS": "010", "AT": "22:22"},
        "port": 80,
        "ready_within": "2m",
        "after": [],
        "mounts": {"/etc/app.conf": "web/app.conf"},
        "folders": {"/srv/uploads": "volume"},
    }
    assert services(SHOP)["db"] == {
        "from": "docker://mariadb:10.11",
        "environment": {"MARIADB_ROOT_PASSWORD": "secret", "TITLE": "a = b"},
        "port": 3306,
        "ready_command": ["healthcheck.sh", "--connect"],
        "ready_within": "150s",  # five checks, each 30 s after the one before
        "ready_timeout": "30s",
        "after": [],
        "mounts": {"/docker-entrypoint-initdb.d/start.sql": "db/start.sql"},
        "folders": {"/var/lib/mysql": "volume"},
    }
    assert services(SHOP)["cache"]["command"] == ["memcached", "-m", "64"]
    assert services(SHOP)["cache"]["ready_command"] == ["sh", "-c", "echo stats | nc localhost 11211"]


def test_services_start_after_those_that_they_depend_on() -> None:
    assert [*services(SHOP)] == ["cache", "db", "web"]


def test_a_link_is_an_order_as_services_find_each_other_by_their_names() -> None:
    text = "services:\n  a: {image: x, ports: [80], links: [b, 'c:c']}\n  b: {image: y}\n  c: {image: z}\n"
    assert [*services(text)] == ["b", "c", "a"]


def test_a_file_below_the_folder_may_have_its_whole_path() -> None:
    text = "services:\n  a: {image: x, ports: [80], volumes: ['/my/shop/web:/srv/web']}\n"
    assert 'mounts = { "/srv/web" = "web" }' in of(text, around=ComposeContext("/my/shop")).text
    with pytest.raises(SuiteError, match="/my/shop/web is outside of the folder"):
        of(text, around=ComposeContext("/my/sho"))
    with pytest.raises(SuiteError, match="is outside of the folder"):
        of(text.replace("shop/web", "shop/../x"), around=ComposeContext("/my/shop"))


def test_all_names_of_compose_lead_to_the_service() -> None:
    text = """services:
  a:
    image: x
    ports: [80]
    container_name: shop-a
    hostname: front
    domainname: example.org
    networks: {default: {aliases: [www, front]}, back: {aliases: [front.back], ipv4_address: 172.16.0.9}}
    links: ["b:db", "b"]
  b: {image: y, networks: {default: {aliases: [www, a]}}}
"""
    found = services(text)
    assert found["a"]["names"] == ["shop-a", "front", "front.example.org", "www", "front.back"]
    assert found["b"]["names"] == ["db"]
    assert of(text).notes == (
        "left out: services.a.hostname: the others find it by this name, and its host name is tare",
        "left out: services.a.networks: all services are on one network of tare's",
        "left out: services.b.networks.default.aliases: the name www leads to a",
        "left out: services.b.networks.default.aliases: the name a leads to a",
    )


def test_services_wait_for_healthy_ones_and_for_the_service_under_test() -> None:
    text = """services:
  web: {image: x, expose: [80], depends_on: [db]}
  late: {image: x, depends_on: {web: {condition: service_started}, cache: {condition: service_healthy}}}
  db: {image: x, expose: [81], links: [cache]}
  cache: {image: x}
"""
    found = services(text, "db")
    assert {name: each["after"] for name, each in found.items()} == {
        "cache": [],
        "db": [],
        "web": ["db"],
        "late": ["db", "cache"],  # it starts after web, which starts after db
    }
    assert [*found] == ["cache", "db", "web", "late"]


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("cap_drop: [all]", []),
        ("cap_drop: [ALL]\n    cap_add: [CHOWN, CAP_NET_RAW]", ["CHOWN", "NET_RAW"]),
        ("cap_add: [SETUID]", None),
        ("cap_drop: [NET_ADMIN]", None),  # no instance has it
        (
            "cap_drop: [MKNOD, cap_kill, chown]\n    cap_add: [chown]",
            [*(each for each in CAPABILITIES if each not in {"MKNOD", "KILL"})],
        ),
    ],
)
def test_capabilities_of_dockers_default_are_kept_or_dropped(setting: str, kept: list[str] | None) -> None:
    found = services(f"{ONE}    {setting}\n")["a"]
    assert found.get("capabilities") == kept


@pytest.mark.parametrize(
    ("check", "within", "timeout"),
    [
        ("test: [CMD, true]", "90s", "30s"),
        ("test: [CMD, true], interval: 2s, retries: 10, timeout: 500ms, start_period: 1m30s", "110s", "0.5s"),
        ("test: [CMD, true], interval: 1h, retries: 5", "3600s", "30s"),
        ("test: [CMD, true], interval: 0s, timeout: 0s, retries: 0", "90s", "30s"),
    ],
)
def test_a_health_check_has_the_times_of_compose(check: str, within: str, timeout: str) -> None:
    found = services(f"{ONE}    healthcheck: {{{check}}}\n")["a"]
    assert (found["ready_within"], found["ready_timeout"]) == (within, timeout)


def test_limits_of_memory_hold_for_sidecars_and_others_are_said_not_to() -> None:
    limits = "mem_limit: 512m, cpus: 0.5, pids_limit: 100"
    resources = "{limits: {cpus: '2', memory: 2G, pids: 9, '{x}': 1}, reservations: {memory: 1G}}"
    deploy = f"deploy: {{replicas: 3, resources: {resources}}}"
    text = f"services:\n  a: {{image: x, expose: [80], {deploy}}}\n  b: {{image: y, {limits}}}\n"
    text += f"  c: {{image: z, {deploy}}}\n"
    found = services(text, "a")
    assert [found[name].get("memory") for name in "abc"] == [None, "512MiB", "2GiB"]
    assert of(text, "a").notes == (
        "left out: services.a.deploy: the limit of 2 CPUs does not hold",
        "left out: services.a.deploy: the memory limit of 2 GiB does not hold: a suite has [limits] memory for it",
        "left out: services.a.deploy: the limit of 9 processes does not hold",
        "left out: services.a.deploy: {x}: it has no effect",
        "left out: services.a.deploy: nothing is reserved: memory",
        "left out: services.a.deploy.replicas: it runs once, not 3 times",
        "left out: services.b.cpus: the limit of 0.5 CPUs does not hold",
        "left out: services.b.pids_limit: the limit of 100 processes does not hold",
        "left out: services.c.deploy: the limit of 2 CPUs does not hold",
        "left out: services.c.deploy: the limit of 9 processes does not hold",
        "left out: services.c.deploy: {x}: it has no effect",
        "left out: services.c.deploy: nothing is reserved: memory",
        "left out: services.c.deploy.replicas: it runs once, not 3 times",
    )


SECRETS = """services:
  a:
    image: x
    expose: [80]
    secrets: [key, {source: key, target: other, mode: 0400}, {source: key, target: /etc/key}]
    configs: [site, {source: site, target: /etc/site.conf}]
secrets: {key: {file: ./key.txt}, vault: {external: true}}
configs: {site: {file: "${SITE}"}}
"""


def test_secrets_and_settings_are_mounted_where_compose_mounts_them() -> None:
    around = ComposeContext(variables={"SITE": "conf/site"})
    assert services(SECRETS, around=around)["a"]["mounts"] == {
        "/run/secrets/key": "key.txt",
        "/run/secrets/other": "key.txt",
        "/etc/key": "key.txt",
        "/site": "conf/site",
        "/etc/site.conf": "conf/site",
    }
    (note,) = of(SECRETS, around=around).notes
    assert note.startswith("left out: services.a.secrets: mode of key: the file keeps its owner")
    hint = "write below secrets at the top: vault: {file: ./vault.txt}"
    (told,) = refusal(SECRETS.replace("[key, ", "[vault, "), around=around)
    assert told == f"services.a.secrets: vault is not the content of a file / {hint}"
    assert refusal(SECRETS.replace("./key", "../key"), around=around)[0].startswith(
        "secrets.key.file: ../key.txt is outside of the folder / copy it"
    )


@pytest.mark.parametrize(
    ("setting", "mounts", "folders", "note"),
    [
        ("volumes: ['./none:/x']", {}, {"/x": "empty"}, "empty folder: services.a.volumes: /x, as there is no none"),
        ("volumes: [data:/x]", {}, {"/x": "volume"}, "left out: services.a.volumes: /x, which begins as in the image"),
        ("volumes: ['data:/x:nocopy']", {}, {"/x": "empty"}, "left out: services.a.volumes: /x, which begins empty"),
        ("volumes: [/x/]", {}, {"/x": "volume"}, "left out: services.a.volumes: /x, which begins"),
        ("volumes: [{type: tmpfs, target: /x}]", {}, {"/x": "tmpfs"}, "left out: services.a.volumes: /x is an empty"),
        ("tmpfs: '/x:size=1m'", {}, {"/x": "tmpfs"}, "left out: services.a.tmpfs: /x is an empty folder of the disk"),
        ("tmpfs: [/dev/shm]", {}, {}, "left out: services.a.tmpfs: /dev/shm is that of the instance"),
        (
            "volumes: ['./there:/x:ro,z']",
            {"/x": "there"},
            {},
            "left out: services.a.volumes: the service may write to /x",
        ),
        (
            "volumes: [{type: bind, source: ./there, target: /x, read_only: true}]",
            {"/x": "there"},
            {},
            "left out: services.a.volumes: the service may write to /x",
        ),
    ],
)
def test_volumes_are_files_of_the_folder_or_folders_of_an_engine(
    setting: str, mounts: dict[str, str], folders: dict[str, str], note: str
) -> None:
    around = ComposeContext(locate=lambda path: "there" if path == "there" else "missing")
    text = f"{ONE}    {setting}\n"
    found = services(text, around=around)["a"]
    assert (found.get("mounts", {}), found.get("folders", {})) == (mounts, folders)
    (line,) = of(text, around=around).notes
    assert line.startswith(note)


def test_lines_are_in_the_order_of_the_file() -> None:
    text = f"volumes: {{x: }}\n{ONE}    restart: always\n    image: ${{IMAGE}}x\n    networks: [b]\n    labels: [a]\n"
    text += "    healthcheck: {start_interval: 1s, test: 'true', odd: 1}\n    odd: 1\n    env_file: a.env\n"
    text += "networks: {b: }\n"
    around = ComposeContext(read=lambda _: "A=$NOBODY", unset=("OTHER",))
    lines = [line.split(": ")[:2] for line in of(text, around=around).notes]
    assert lines == [
        ["warning", ".env"],
        ["left out", "volumes"],
        ["warning", "services.a.image"],
        ["left out", "services.a.restart"],
        ["left out", "services.a.networks"],
        ["left out", "services.a.labels"],
        ["left out", "services.a.healthcheck.start_interval"],
        ["left out", "services.a.healthcheck.odd"],
        ["left out", "services.a.odd"],
        ["warning", "services.a.env_file"],
        ["left out", "networks"],
    ]


def test_what_is_written_is_an_application_whose_load_is_an_example(tmp_path: Path) -> None:
    for name in ("web/app.conf", "db/start.sql"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    application = parse_application(of(SHOP).text, tmp_path)
    assert (application.under_test.name, application.under_test.port) == ("web", 80)
    assert [each.name for each in application.beside] == ["cache", "db"]
    printed = (Path(__file__).parents[3] / "samples/nginx/whole-second.txt").read_text()
    (throughput,) = application.load.metrics
    assert throughput.value(printed, "").value == pytest.approx(49301.24)
    with pytest.raises(TrialFailed, match="which is no number"):
        throughput.value(printed.replace("49301.24", "1e400"), "")


def test_what_is_left_out_is_said_each_with_its_key() -> None:
    assert [*of(SHOP).notes] == [
        f"left out: services.web.build: registry.example:5000/shop-web:latest {BUILT}",
        "left out: services.web.ports: 5140:5140/udp, which is not TCP: services reach each other on all ports",
        "left out: services.web.ports: port 443, as the load knows one",
        "left out: services.web.volumes: /srv/uploads, which begins as in the image in each trial",
        "left out: services.web.volumes: the service may write to /etc/app.conf",
        "left out: services.web.restart: a service that ends fails the trial",
        "left out: services.web.networks: all services are on one network of tare's",
        "left out: services.db.volumes: /var/lib/mysql, which begins as in the image in each trial",
        "left out: services.adminer: it has a profile: an engine starts it only on request",
        "left out: volumes: each trial begins without what earlier ones stored there",
    ]


def test_texts_of_all_kinds_are_written_as_toml() -> None:
    word = 'a "quote" \\ and \x7f and é and \t'
    document = {"services": {"a.b": {"image": "x", "expose": ["80"], "command": [word], "environment": {"A.B": word}}}}
    text = convert_compose(document, "compose.yaml").text
    assert tomllib.loads(text)["services"]["a.b"]["command"] == [word]
    assert tomllib.loads(text)["services"]["a.b"]["environment"] == {"A.B": word}


# --- who runs what, and variables

PORT = ("port", "ready_within", "after")  # keys of every service with a port
ONE = "services:\n  a:\n    image: x\n    expose: [80]\n"
PROGRAM = """\
    entrypoint: /start --quiet
    command: [serve, "${PORT:-80}"]
    user: "${USER_ID}:1000"
    working_dir: /srv/app
    stop_signal: SIGQUIT
"""


def test_entry_point_user_folder_and_stop_signal_are_kept() -> None:
    around = ComposeContext(variables={"USER_ID": "1001", "PORT": "", "HOME": "/root"})
    assert services(ONE + PROGRAM, around=around)["a"] == {
        "from": "docker://x",
        "entry_point": ["/start", "--quiet"],
        "command": ["serve", "80"],
        "user": "1001:1000",
        "folder": "/srv/app",
        "stop_signal": "SIGQUIT",
        "port": 80,
        "ready_within": "2m",
        "after": [],
    }
    assert of(ONE + PROGRAM, around=around).embedded_variables == ("PORT", "USER_ID")
    assert services(ONE + "    user:\n    entrypoint:\n    command:\n")["a"].keys() == {"from", *PORT}


def test_what_is_started_is_an_application(tmp_path: Path) -> None:
    text = of(ONE + PROGRAM, around=ComposeContext(variables={"USER_ID": "1001"})).text
    image = parse_application(text, tmp_path).under_test.image
    assert image.source is not None
    assert image.source.started == ImageCommand(("/start", "--quiet"), "1001:1000", "/srv/app", "SIGQUIT")
    assert image.find_program(("serve", "80")) == ("/start",)


def test_an_entry_point_may_be_taken_away_and_a_command_only_with_another() -> None:
    assert services(ONE + "    entrypoint: []\n    command: serve\n")["a"]["entry_point"] == ""
    assert services(ONE + "    entrypoint: [/start]\n    command: []\n")["a"].keys() == {"from", "entry_point", *PORT}
    (told,) = refusal(ONE + "    command: ''\n")
    assert told.startswith("services.a.command: an image's command cannot be taken away alone / leave it out")


def test_an_unset_variable_is_an_empty_text_with_one_warning() -> None:
    text = ONE + "    environment: {A: 'x${NOBODY}', B: '$NOBODY'}\n    labels: {x: '${OTHER}'}\n"
    assert services(text)["a"]["environment"] == {"A": "x", "B": ""}
    first, second = of(text).notes
    what = "the variable NOBODY is not set: an empty text stands for it"
    assert first == f"warning: services.a.environment.A: {what}"
    assert second.startswith("left out: services.a.labels: ")
    long = "services:\n  a:\n    image: x\n    ports: [{target: 80, published: '${NOBODY}'}]\n"
    assert services(long)["a"]["port"] == 80


def test_variables_are_substituted_before_splitting_and_only_where_used() -> None:
    around = ComposeContext(variables={"OPTIONS": "--fast '--to=a b'", "TAG": "1.2", "WWW": "./www"})
    text = "services:\n  a:\n    image: x:${TAG}\n    command: serve $OPTIONS $$5\n    ports: ['${NOBODY}:80']\n"
    text += "    volumes: ['${WWW}:/www']\n    labels: {x: '${NOBODY}'}\n"
    assert services(text, around=around)["a"] == {
        "from": "docker://x:1.2",
        "command": ["serve", "--fast", "--to=a b", "$5"],
        "port": 80,
        "ready_within": "2m",
        "after": [],
        "mounts": {"/www": "www"},
    }


@pytest.mark.parametrize(
    ("around", "name", "image"),
    [
        (ComposeContext("/srv/My Shop"), "", "myshop-a"),
        (ComposeContext("/srv/x"), "name: _Shop.1\n", "shop1-a"),
        (ComposeContext("/srv/x", {"COMPOSE_PROJECT_NAME": "other"}), "name: shop\n", "other-a"),
    ],
)
def test_what_the_file_builds_has_the_name_that_compose_gives_it(around: ComposeContext, name: str, image: str) -> None:
    found = of(f"{name}services:\n  a: {{build: ., expose: [80]}}\n", around=around)
    assert f'from = "docker-daemon:{image}:latest"' in found.text
    assert found.notes == (
        f"left out: services.a.build: {image}:latest is taken from Docker: build it before: docker compose build",
    )


def test_an_image_of_this_machine_is_left_to_the_engine_that_has_it() -> None:
    image = "image: localhost/shop:1, expose: [80]"
    plain, built = of(f"services:\n  a: {{{image}}}\n"), of(f"services:\n  a: {{build: ., {image}}}\n")
    assert 'from = "docker://localhost/shop:1"' in plain.text
    assert 'from = "docker://localhost/shop:1"' in built.text
    assert built.notes == (
        "left out: services.a.build: localhost/shop:1 is taken from Podman or Docker: build it before, as root",
    )


FILES = {"a.env": "A=1\nB=2\n", "sub/b.env": "B=$X\nexport C='$X'\n", "odd.env": "A=1\n???\n"}
SEVERAL = ONE + "    env_file: [a.env, {path: ./sub/b.env}, {path: none.env, required: false}]\n"


def test_variable_files_are_read_and_the_service_settings_override_them() -> None:
    around = ComposeContext("/shop", {"X": "x"}, FILES.get)
    assert services(SEVERAL, around=around)["a"]["environment"] == {"A": "1", "B": "x", "C": "$X"}
    text = f"{SEVERAL}    environment: [A=own, X, NOBODY]\n"
    assert services(text, around=around)["a"]["environment"] == {"A": "own", "B": "x", "C": "$X", "X": "x"}
    assert of(text, around=around).notes == (
        "left out: services.a.env_file: there is no none.env",
        "left out: services.a.environment.NOBODY: it is not set",
    )
    absolute = ONE + "    env_file: /shop/a.env\n"
    assert services(absolute, around=around)["a"]["environment"] == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.env", "there is no file none.env"),
        ("../a.env", "../a.env is outside of the folder"),
        ("/etc/passwd", "/etc/passwd is outside of the folder"),
        ("odd.env", "odd.env: line 2: neither NAME=value nor a comment"),
    ],
)
def test_a_file_of_variables_that_cannot_be_read_is_refused(name: str, said: str) -> None:
    (told,) = refusal(f"{ONE}    env_file: {name}\n", around=ComposeContext("/shop", {}, FILES.get))
    assert told.startswith(f"services.a.env_file: {said} / ")


# --- which one is under test


BUILT = "is taken from Docker: build it before: docker compose build"
TWO = "services:\n  a: {image: x, expose: [80]}\n  b: {image: y, expose: [81]}\n"


def test_the_service_under_test_is_named_where_ports_do_not_decide() -> None:
    assert tomllib.loads(of(TWO, "b").text)["application"] == {"under_test": "b"}
    assert refusal(TWO) == [
        "services: no service publishes a port: which one is under test? / say it: --service a",
    ]
    both = TWO.replace("expose", "ports")
    assert refusal(both) == ["services: a, b publish ports: which one is under test? / say it: --service a"]
    assert refusal(TWO, "bb") == ['services: there is no service "bb" / did you mean "b"?']


def test_the_service_under_test_has_a_port() -> None:
    (told,) = refusal("services:\n  a: {image: x}\n")
    assert told.startswith("services.a: it has no TCP port, and the load needs one / write expose")


# --- what is refused


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("privileged: true", "services.a.privileged: cannot be kept / an instance has no more rights"),
        ("devices: [/dev/kvm]", "services.a.devices: cannot be kept"),
        ("cap_add: [SYS_ADMIN]", "services.a.cap_add: SYS_ADMIN cannot be given: it has power over the machine"),
        ("cap_add: [ALL]", "services.a.cap_add: ALL cannot be given"),
        ("cap_drop: [CHOWM]", 'services.a.cap_drop: CHOWM is no capability / did you mean "CHOWN"?'),
        ("use_api_socket: true", "services.a.use_api_socket: cannot be kept"),
        ("network_mode: host", "services.a.network_mode: cannot be kept"),
        ("secrets: [x]", "services.a.secrets: there is no x in the table secrets / write below secrets"),
        ("links: ['b:db']", 'services.a.depends_on: there is no service "b" / write a service b'),
        ("networks: {default: {aliases: [a b]}}", "services.a.networks.default.aliases: 'a b' is no name of a host"),
        ("mem_limit: 2X", "services.a.mem_limit: 2X is no size such as 512m / write it as in 512m or 2G"),
        ("healthcheck: {test: x, interval: 5}", "services.a.healthcheck: 5 is no duration such as 1m30s"),
        ("healthcheck: {test: x, retries: many}", "services.a.healthcheck.retries: many is no number"),
        ("volumes: ['./x:y']", "services.a.volumes: y is no path in an image"),
        ("volumes: ['./x:/y/../z']", "services.a.volumes: /y/../z is no path in an image"),
        ("volumes: [{type: image, source: x, target: /y}]", "services.a.volumes: /y: nothing of type image"),
        ("gpus: all", "services.a.gpus: cannot be kept"),
        ("volumes_from: [b]", "services.a.volumes_from: cannot be kept"),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}", "services.a.deploy.resources"),
        ("depends_on: {a: {condition: service_completed_successfully}}", "services.a.depends_on.a: the services"),
        ("volumes: ['/var/run/docker.sock:/x']", "services.a.volumes: /var/run/docker.sock is a socket of the"),
        ("volumes: ['../x:/x']", "services.a.volumes: ../x is outside of the folder"),
        ("volumes: ['./a/../../x:/x']", "services.a.volumes: ./a/../../x is outside of the folder"),
        ("volumes: ['~/x:/x']", "services.a.volumes: ~/x is outside of the folder"),
        ("command: run ${WORD?}", "services.a.command: the variable WORD is not set / write its value into .env"),
        ("environment: {A: '${WORD:?say it}'}", "services.a.environment.A: the variable WORD is not set: say it /"),
        ("user: $1", "services.a.user: '$1' is no variable: a dollar sign is written $$ / see"),
        ("command: 'serve {port}'", "services.a.command: it has {port}, which tare would fill in / write it otherwise"),
        ("environment: {A: '{listen}'}", "services.a.environment: it has {listen}, which tare would fill in"),
        ("healthcheck: {test: [CMD, '{port}']}", "services.a.healthcheck.test: it has {port}"),
        ("healthcheck: {test: 'curl :{port}'}", "services.a.healthcheck.test: it has {port}"),
        ("entrypoint: {a: b}", "services.a.entrypoint: neither a line nor a list of words"),
        ('command: "run \'x"', "services.a.command: it cannot be split into words"),
        ("command: {a: b}", "services.a.command: neither a line nor a list of words"),
        ("environment: x", "services.a.environment: neither a table nor a list"),
        ("ports: [{target: 99999}]", "services.a.ports: {'target': '99999'} is not one port"),
        ("healthcheck: {test: [curl]}", "services.a.healthcheck.test: it begins with curl"),
    ],
)
def test_what_would_be_another_application_is_refused(setting: str, said: str) -> None:
    told = refusal(f"services:\n  a:\n    image: x\n    expose: [80]\n    {setting}\n")
    assert [each for each in told if each.startswith(said)], told


@pytest.mark.parametrize(
    "setting",
    ["privileged: false", "devices: []", "secrets: []", "healthcheck: {disable: true}", "deploy: {resources: {}}"],
)
def test_what_asks_for_nothing_is_not(setting: str) -> None:
    assert services(f"services:\n  a:\n    image: x\n    expose: [80]\n    {setting}\n")["a"]["port"] == 80


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "services: missing"),
        ("- a\n", "services: missing"),
        ("services: {}\n", "services: missing"),
        ("services: [a]\n", "services: missing"),
        ("services: {a: x}\n", "services.a: not a table"),
        ("services:\n  a: {expose: [80]}\n", "services.a.image: missing / "),
        ("services:\n  a: {build: ., expose: [80]}\n", "services.a.image: nobody has built its image / give it a name"),
        ("include: [b.yaml]\nservices:\n  a: {image: x, expose: [80]}\n", "include: the services of other files"),
        (TWO.replace("80]", "80], depends_on: [b]").replace("81]", "81], depends_on: [a]"), "services: a, b depend on"),
    ],
)
def test_what_is_no_compose_file_is_refused(text: str, said: str) -> None:
    assert [each for each in refusal(text, "a") if each.startswith(said)]


def test_all_that_cannot_be_kept_is_reported_at_once() -> None:
    text = SHOP.replace("restart: always", "privileged: true").replace("expose: [3306]", "pid: host")
    assert [each.partition(" / ")[0] for each in refusal(text)] == [
        "services.web.privileged: cannot be kept",
        "services.db.pid: cannot be kept",
    ]


def test_aliases_that_grow_without_end_are_refused() -> None:
    lines = [f"x{n}: &x{n} [{', '.join(9 * [f'*x{n - 1}'])}]" for n in range(1, 30)]
    text = "\n".join(("x0: &x0 [lol]", *lines, "services:", "  web: {image: web, ports: ['80:80'], command: *x29}"))
    with pytest.raises(UsageError, match="its aliases make more than 100,000 values"):
        of(text)
