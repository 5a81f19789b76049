"""One suite in every container technology: what its command finds inside does not depend on what called tare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calls import Call

from tare.hosts.local import LocalHost
from tare.model.run_folder import load_run
from tare.plugins import registry

STACKS = ("native", "crun", "runc", "podman", "bubblewrap", "nspawn", "lxc", "gvisor", "srt")
SCRIPT = """set -e
test "$(cat /run/app/token)" = secret
touch /run/app/pid
test "$(hostname)" = tare
getent ahostsv4 tare | grep -qv '^127'
getent hosts database | grep -q '^192.0.2.7'
test "$(umask)" = 0022
env | grep -qi proxy && exit 7
nice | grep -qx 0
kill -HUP $$ && exit 8
"""
SUITE = """
[suite]
name = "inside"
stacks = {stacks}
blocks = 1
budget = "5m"

[image.files]
"/run/app/token" = "token"
"/etc/hosts" = "names"

[[workloads]]
use = "command"
command = ["sh", "-c", '''
{script}''']
exit_codes = [129]
"""

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]


@pytest.mark.slow
def test_a_command_finds_the_same_in_every_stack_whatever_called_tare(tare: Call, tmp_path: Path) -> None:
    here = [name for name in STACKS if not registry.find("technologies", name)().problems(LocalHost())]
    assert len(here) > 5
    (tmp_path / "inside.toml").write_text(SUITE.format(stacks=json.dumps(here), script=SCRIPT))
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "names").write_text("192.0.2.7 database\n")
    caller = ("sh", "-c", 'umask 077; http_proxy=http://127.0.0.1:9 exec nice nohup "$@"', "sh")
    measured = tare("run", "inside.toml", "--out", "run", prefix=caller)
    assert measured.returncode == 0, measured.stderr
    trials = load_run(tmp_path / "run").trials
    assert {(trial.stack, trial.status, trial.reason) for trial in trials} == {
        (name, "ok", "") for name in (*here, "native-again")
    }
    differing = {"inside-differs", "isolation-differs"}
    assert [trial.stack for trial in trials if differing & {each.kind for each in trial.cautions}] == []
    assert all(trial.isolation for trial in trials)


def test_what_a_technology_cannot_make_equal_is_in_the_catalogue(tare: Call) -> None:
    listed = {
        each["name"]: each["differs"] for each in json.loads(tare("technologies", "--json").stdout)["technologies"]
    }
    assert listed["native"] == {}
    assert "no_new_privs" in listed["bubblewrap"]["status NoNewPrivs"]
    assert "bwrap sets no_new_privs" in tare("technologies", "bubblewrap").stdout
