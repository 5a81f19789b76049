"""One image in every container technology: its files below /run, names, ports, rights and environment are the same."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from oci_made import file, folder, layer, layout, link

from tare import plugins
from tare.hosts.local import LocalHost
from tare.journal import load

Call = Callable[..., subprocess.CompletedProcess[str]]
STACKS = ("native", "crun", "runc", "podman", "bubblewrap", "nspawn", "lxc", "gvisor")
BUSYBOX = Path("/bin/busybox")
# As a plain user: a file below /run, the host's own name, a port below 1024, no variable of the caller's.
SCRIPT = """set -e
test "$(cat /run/app/token)" = secret
touch /run/app/pid
test "$(hostname)" = tare
hostname -i | grep -qv '^127'
test "$(umask)" = 0022
env | grep -qi proxy && exit 7
httpd -p 80 -h /www
test "$(wget -q -O - http://tare/)" = page
"""

pytestmark = [
    pytest.mark.machine,
    pytest.mark.usefixtures("machine_as_before"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("skopeo", "umoci", "busybox"))), reason="apt-get install skopeo umoci busybox-static"
    ),
]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of busybox, run by user 1000, with a file for that user below /run."""
    links = (
        link(f"bin/{name}", "busybox") for name in ("sh", "cat", "touch", "hostname", "env", "grep", "httpd", "wget")
    )
    files = layer(
        *(folder(name) for name in ("bin", "etc", "run", "www")),
        folder("tmp", 0o1777),
        folder("run/app", 0o777),
        file("bin/busybox", BUSYBOX.read_bytes(), 0o755),
        *links,
        file("run/app/token", b"secret\n", 0o644),
        file("www/index.html", b"page\n"),
    )
    return layout(tmp_path / "image", files, config={"User": "1000", "Env": ["PATH=/bin"]})


def test_a_plain_user_finds_the_same_in_every_stack_whatever_called_tare(
    tare: Call, tmp_path: Path, image: Path
) -> None:
    here = [name for name in STACKS if not plugins.find("technologies", name)().problems(LocalHost())]
    assert len(here) > 5
    caller = ("sh", "-c", 'umask 077; http_proxy=http://127.0.0.1:9 exec nice nohup "$@"', "sh")
    argv = ("try", "--from", f"oci:{image}", "--on", ",".join(here), "--budget", "1s", "--out", "run")
    tried = tare(*argv, "--", "sh", "-c", SCRIPT, prefix=caller)
    assert tried.returncode == 0, tried.stderr
    trials = load(tmp_path / "run").trials
    assert {(trial.stack, trial.status, trial.reason) for trial in trials} == {
        (name, "ok", "") for name in (*here, "native-again")
    }
    assert [trial.stack for trial in trials if any(each.kind == "inside-differs" for each in trial.cautions)] == []


def test_what_a_technology_cannot_make_equal_is_in_the_catalogue(tare: Call) -> None:
    listed = {
        each["name"]: each["differs"] for each in json.loads(tare("technologies", "--json").stdout)["technologies"]
    }
    assert listed["native"] == {}
    assert "no_new_privs" in listed["bubblewrap"]["status NoNewPrivs"]
    assert "bwrap sets no_new_privs" in tare("technologies", "bubblewrap").stdout
