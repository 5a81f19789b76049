"""application.toml: what it makes of an application, and all its faults at once, each under its key."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from documents import DOCS, blocks, rows, section

from tare.loads.application import Application
from tare.loads.application_file import (
    _ApplicationTable,
    _LoadTable,
    _ServiceTable,
    parse_application,
    read_application,
)
from tare.model.errors import SuiteError
from tare.model.image import ImageCommand, ImageReference, ImageSpec
from tare.model.sidecar import Sidecar
from tare.model.trial import Service

(EXAMPLE,) = [text for text in blocks(DOCS / "applications.md", "toml") if "[application]" in text]
LOAD = '[load]\ncommand = "hey http://{address}"\n[[load.metrics]]\nname = "rate"\nbetter = "higher"\npointer = "/r"\n'
LEAST = f'[application]\nunder_test = "web"\n[services.web]\ncommand = "app"\nport = 80\n{LOAD}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the example, with all that it names."""
    for name in ("web", "database", "log", "users"):
        (tmp_path / "shop" / name).mkdir(parents=True)
    return tmp_path / "shop"


def refusal(text: str, folder: Path) -> list[str]:
    with pytest.raises(SuiteError) as error:
        parse_application(text, folder)
    return [f"{fault.message} / {fault.hint}".removeprefix(f"{folder}/") for fault in error.value.faults]


# --- what it makes of an application


def test_the_example_of_the_page_is_an_application(folder: Path) -> None:
    application = parse_application(EXAMPLE, folder)
    assert (application.name, application.under_test.name, application.parameters) == ("shop", "web", {"users": 200})
    assert [each.name for each in application.beside] == ["database", "sessions", "log"]
    assert application.under_test.image == ImageSpec(
        packages=("nginx-light", "php8.2-fpm", "php8.2-mysql"), files=(("/srv/web", str(folder / "web")),)
    )
    web = application.under_test.to_service("198.18.0.10", application.complete_parameters({}))
    assert web == Service(("/srv/web/start", "80"), 80, ready_path="/health")


def test_sidecars_from_debian_packages_share_an_image_and_know_its_paths(folder: Path) -> None:
    application = parse_application(EXAMPLE, folder)
    database, sessions, log = application.create_sidecars(application.complete_parameters({}))
    assert (
        database.image
        == sessions.image
        == log.image
        == ImageSpec(
            packages=("mariadb-server", "memcached", "python3-pymysql"),
            files=(("/srv/database", str(folder / "database")), ("/srv/log", str(folder / "log"))),
        )
    )
    assert sessions == Sidecar(
        "sessions",
        sessions.image,
        Service(("memcached", "-u", "nobody", "-l", "0.0.0.0", "-p", "11211"), 11211),  # noqa: S104
        2 << 30,
    )
    assert (database.service.ready_argv, database.service.ready_seconds) == (("/srv/database/is-filled",), 120.0)
    assert (log.service.port, log.service.environment) == (0, ("DATABASE=database",))


def test_an_external_image_is_found_in_the_folder_and_keeps_its_command(folder: Path) -> None:
    text = LEAST + '[services.db]\nfrom = "docker-archive:db.tar"\n[services.cache]\nfrom = "docker://redis:7"\n'
    application = parse_application(text, folder)
    database, cache = application.create_sidecars({})
    assert database.image.source == ImageReference("docker-archive:", str(folder / "db.tar"))
    assert cache.image.source == ImageReference("docker://", "redis:7")
    assert database.service.argv == ()


def test_entry_point_user_folder_and_stop_signal_override_the_image(folder: Path) -> None:
    said = 'entry_point = "/app --quiet"\nuser = "www-data:7"\nfolder = "/srv/app"\nstop_signal = "SIGQUIT"\n'
    text = f'{LEAST}[services.db]\nfrom = "db.tar"\n{said}[services.log]\nfrom = "log.tar"\nentry_point = ""\n'
    database, log = parse_application(text, folder).create_sidecars({})
    assert database.image.source is not None
    assert database.image.source.started == ImageCommand(("/app", "--quiet"), "www-data:7", "/srv/app", "SIGQUIT")
    assert (database.program, log.program) == (("/app",), ())
    assert [each.command_line for each in parse_application(text, folder).beside] == [("/app", "--quiet"), ()]
    assert log.image.source is not None
    assert log.image.source.started == ImageCommand(entry_point=())


COMPOSED = """
[services.db]
from = "db.tar"
capabilities = ["CHOWN"]
names = ["pg", "db.example.org"]
memory = "64MiB"
mounts = { "/etc/db" = "database" }
folders = { "/tmp" = "tmpfs" }
ready_command = "check"
ready_timeout = "2s"
after = []
"""


def test_what_engines_know_of_a_service_is_kept(folder: Path) -> None:
    (database,) = parse_application(LEAST + COMPOSED, folder).create_sidecars({})
    assert database.image.mounts == (("/etc/db", str(folder / "database")), ("/tmp", "tmpfs"))  # noqa: S108
    assert database.image.source is not None
    assert database.image.source.started.capabilities == ("CHOWN",)
    assert (database.service.names, database.service.after) == (("pg", "db.example.org"), ())
    assert (database.memory_bytes, database.service.ready_timeout) == (64 << 20, 2.0)


def test_services_that_wait_for_the_one_under_test_start_after_it(folder: Path) -> None:
    text = LEAST.replace("[services.web]", '[services.web]\nafter = ["b"]')
    for name, after in (("a", '["web"]'), ("b", None), ("c", '["a"]'), ("d", "[]")):
        text += f'[services.{name}]\nfrom = "x.tar"\n' + (f"after = {after}\n" if after else "")
    application = parse_application(text, folder)
    assert [each.name for each in application.start_order] == ["b", "d", "web", "a", "c"]
    sidecars = [(each.name, each.follows_tested) for each in application.create_sidecars({})]
    assert sidecars == [("b", False), ("d", False), ("a", True), ("c", True)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('after = ["wbe"]', 'services.db.after: wbe does not start before db / did you mean "web"?'),
        ('after = ["x"]', "services.db.after: x does not start before db / write [services.x] above [services.db]"),
        (
            'after = []\n[services.x]\nfrom = "x.tar"\nafter = ["y"]\n[services.y]\nfrom = "x.tar"',
            "services.x.after: y does not start before x / write [services.y] above [services.x]",
        ),
        ('after = ["db"]', "services.db.after: db does not start before db / "),
        ('names = ["web"]', 'services.db.names: "web" has the name web, too / let one of them have it'),
        ('names = ["a b"]', "services.db.names: "),
        ('capabilities = ["SYS_ADMIN"]', "services.db.capabilities: "),
        ('mounts = { "/x" = ".." }', 'services.db.mounts: ".." leads out of the folder / copy it into the'),
        ('mounts = { "/x" = "way" }', 'services.db.mounts: "way" leads out of the folder'),
        ('mounts = { "/x" = "none" }', 'services.db.mounts: there is no file or folder "none"'),
        ('mounts = { "x" = "web" }', "services.db.mounts"),
        ('folders = { "/x" = "full" }', "services.db.folders"),
        ('ready_timeout = "0s"', "services.db.ready_timeout: "),
    ],
)
def test_what_engines_could_not_keep_is_refused(text: str, said: str, folder: Path) -> None:
    (folder / "way").symlink_to("/etc")
    (told,) = refusal(f'{LEAST}[services.db]\nfrom = "db.tar"\n{text}\n', folder)
    assert told.startswith(f"application.toml: {said}")


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("web", 'memory = "1GiB"', "services.web.memory: a suite limits the service under test / write memory in its"),
        ("db", 'memory = "1GiB"', "services.db.memory: it shares an instance with the others of Debian's packages"),
        ("db", 'mounts = { "/x" = "web" }', "services.db.mounts: it changes an image that others have built"),
    ],
)
def test_what_only_images_of_others_have_is_refused(name: str, setting: str, said: str, folder: Path) -> None:
    text = LEAST + '[services.db]\ncommand = "db"\n'
    (told,) = refusal(text.replace(f"[services.{name}]", f"[services.{name}]\n{setting}"), folder)
    assert told.startswith(f"application.toml: {said}")


def test_a_suite_may_give_other_parameters_but_none_that_are_not_there(folder: Path) -> None:
    application = parse_application(EXAMPLE, folder)
    assert application.complete_parameters({"users": 16000}) == {"users": 16000}
    with pytest.raises(ValueError, match=r'no parameter user: did you mean "users"\?'):
        application.complete_parameters({"user": 1})
    with pytest.raises(ValueError, match="no parameter x: it has none"):
        parse_application(LEAST, folder).complete_parameters({"x": 1})


def test_a_file_is_read_whatever_editor_wrote_it(folder: Path) -> None:
    (folder / "application.toml").write_bytes(b"\xef\xbb\xbf" + LEAST.replace("\n", "\r\n").encode())
    assert isinstance(read_application(folder), Application)


def test_every_key_is_described() -> None:
    page = DOCS / "applications.md"
    tables = {"[application]": _ApplicationTable, "[services.NAME]": _ServiceTable, "[load]": _LoadTable}
    for name, table in tables.items():
        plural = "tables" if "NAME" in name else "table"
        described = rows(section(page, f"The {plural} `{name}`")).keys() - {"key"}
        read_apart = {"from"} if "NAME" in name else set()  # a word of Python
        assert described == {each.name for each in fields(table)} | read_apart


# --- faults


def test_all_faults_are_reported_at_once_in_the_order_of_the_file(folder: Path) -> None:
    text = """
[application]
under_test = "wbe"
[services.web]
command = "app | tee log"
files = { "/srv/x" = "nowhere" }
[services."my db"]
command = "db"
port = 70000
[load]
command = "hey"
typo = 1
"""
    assert [each.partition(" / ")[0].removeprefix("application.toml: ") for each in refusal(text, folder)] == [
        'application.under_test: there is no service "wbe"',
        'services.web.command: "app | tee log" cannot be used',
        "services.my db: the others could not find it by this name",
        "services.my db.port: 70000 is too large",
        "load.typo: unknown key",
        "load.metrics: missing",
    ]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('under_test = "web"', "", "application.under_test: missing / write under_test = …"),
        ('[application]\nunder_test = "web"', "", "application: missing / write [application] and below it under_test"),
        ("port = 80", "", "services.web.port: missing / the load needs it: write port = 80"),
        ('command = "app"', "", 'services.web.command: missing / write command = "…", or from ='),
        ("port = 80", 'port = 80\nfrom = "x:y"', 'services.web.from: "x:y": "x:" is no kind of image'),
        ("port = 80", 'port = 80\nfrom = "a.tar"\npackages = ["b1"]', "services.web.packages: an image that others"),
        ("port = 80", 'port = 80\nfiles = { "/srv/x" = "x" }', 'services.web.files: there is no file or folder "x"'),
        ("port = 80", 'port = 80\nfiles = { "srv" = "web" }', "services.web.files.srv: "),
        ("port = 80", 'port = 80\nuser = "1000"', "services.web.user: it changes an image that others have built"),
        ("port = 80", 'port = 80\nfrom = "a.tar"\nuser = "a b"', 'services.web.user: "a b" cannot be used / write a'),
        ("port = 80", 'port = 80\nfrom = "a.tar"\nfolder = "srv"', 'services.web.folder: "srv" cannot be used / write'),
        ("port = 80", 'port = 80\nfrom = "a.tar"\nstop_signal = "!"', 'services.web.stop_signal: "!" cannot be used'),
        (
            "port = 80",
            'port = 80\nfrom = "a.tar"\nentry_point = "app --on {port}"',
            "services.web.entry_point: nothing is filled in there",
        ),
        (
            "port = 80",
            'port = 80\nenvironment = { "A B" = "x" }',
            "services.web.environment: a table cannot be used",
        ),
        ("port = 80", 'port = 80\nready = "health"', 'services.web.ready: "health" cannot be used / a path begins'),
        ("port = 80", 'port = 80\n[services.log]\ncommand = "l"\nready = "/"', "services.log.ready: there is no port"),
        (
            "port = 80",
            "port = 80\n[parameters]\nusers = 5",
            "parameters.users: nothing has a place for it / ",
        ),
        ("port = 80", "port = 80\n[parameters]\nport = 5", "parameters.port: tare gives this itself"),
        ("port = 80", "port = 80\n[parameters]\nUsers = 5", "parameters.Users: not a name of a parameter"),
        ("port = 80", "port = 80\n[parameters]\nusers = true", "parameters.users: neither a text nor a number"),
        (
            "port = 80",
            "port = 80\n[services.localhost]\ncommand = 'x'",
            "services.localhost: the others could",
        ),
        (
            '"hey http://{address}"',
            '"hey"\nbottleneck = "("',
            'load.bottleneck: "(" cannot be used / this is no',
        ),
        ("[load]", "[laod]", "laod: unknown key / did you mean"),
    ],
)
def test_a_fault_names_its_key_and_what_to_write(before: str, after: str, said: str, folder: Path) -> None:
    assert before in LEAST
    told = refusal(LEAST.replace(before, after, 1), folder)
    assert any(each.removeprefix("application.toml: ").startswith(said) for each in told), told


def test_two_metrics_of_one_name_are_refused(folder: Path) -> None:
    metric = LOAD.partition("[[")[2]
    (told,) = refusal(f"{LEAST}[[{metric}", folder)
    assert told.startswith('application.toml: load.metrics[1].name: there are two metrics named "rate"')


def test_only_services_that_share_a_host_share_its_ports_and_files(folder: Path) -> None:
    two = '[services.a]\ncommand = "a"\nport = 11211\nfiles = { "/srv/x" = "web" }\n'
    two += '[services.b]\ncommand = "b"\nport = 11211\nfiles = { "/srv/x" = "log" }\n'
    assert [each.partition(" / ")[0] for each in refusal(LEAST + two, folder)] == [
        'application.toml: services.b.port: "a" has this port, and they share a host',
        'application.toml: services.b.files: "a" has another file at /srv/x, and they share an image',
    ]
    apart = two.replace('command = "b"', 'from = "b.tar"')
    assert len(parse_application(LEAST + apart, folder).beside) == 2
    without = two.replace("port = 11211\n", "").replace('"log"', '"web"')
    assert len(parse_application(LEAST + without, folder).beside) == 2


def test_a_folder_without_an_application_is_refused_and_so_is_non_text(folder: Path) -> None:
    with pytest.raises(SuiteError, match=r"shop/application\.toml: cannot be read: no such file or directory"):
        read_application(folder)
    (folder / "application.toml").write_bytes(b"\xff")
    with pytest.raises(SuiteError, match="not UTF-8 text: byte 0"):
        read_application(folder)
    (folder / "application.toml").write_text("[application\n")
    with pytest.raises(SuiteError, match="line 1: not TOML"):
        read_application(folder)
