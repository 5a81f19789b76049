"""The inside check: conditions of a process in each stack, compared with the baseline's."""

from __future__ import annotations

from fakes import Bench, suite

from tare.model.trial import Caution
from tare.runner.inside_check import Difference, compare_conditions, parse_conditions
from tare.technologies.bubblewrap import Bubblewrap
from tare.technologies.docker import Docker

PRINTED = """\
environment PATH\t/bin
mount /\toverlay rw,relatime,lowerdir=/a
mount /dev\tdevtmpfs rw,relatime
mount /dev\ttmpfs rw,nosuid,size=65536k,mode=755
mount /proc/keys\ttmpfs rw,nosuid
mount /proc/sys\tproc ro,relatime
mount /srv/my files\text4 ro,relatime
status NoNewPrivs\t0
"""


def test_a_mount_is_described_by_what_a_program_can_do_there() -> None:
    assert parse_conditions(PRINTED) == {
        "environment PATH": "/bin",
        "mount /dev": "tmpfs rw,nosuid",
        "mount /proc/keys": "hidden",
        "mount /proc/sys": "read-only",
        "mount /srv/my files": "ext4 ro",
        "status NoNewPrivs": "0",
    }


def test_a_difference_that_a_technology_declares_has_its_reason() -> None:
    baseline = {"status NoNewPrivs": "0", "umask": "022", "mount /proc/keys": "hidden"}
    here = {"status NoNewPrivs": "1", "umask": "077", "mount /run": "tmpfs rw,nosuid"}
    assert compare_conditions(here, baseline, (Bubblewrap(),)) == (
        Difference("mount /proc/keys", None, "hidden", "mount /proc/*", "it protects /proc and /sys by other mounts"),
        Difference("mount /run", "tmpfs rw,nosuid", None),
        Difference(
            "status NoNewPrivs",
            "1",
            "0",
            "status NoNewPrivs",
            "bwrap sets no_new_privs: setuid programs and file capabilities have no effect",
        ),
        Difference("umask", "077", "022"),
    )
    assert [each.name for each in compare_conditions(here, baseline, (Docker(),)) if not each.reason] == [
        "mount /proc/keys",
        "mount /run",
        "status NoNewPrivs",
        "umask",
    ]


def test_an_undeclared_difference_is_a_caution_on_all_trials_of_the_stack(bench: Bench) -> None:
    assert bench.work(suite("a:", 'b: umask = "077"', blocks=3)) == "plan"
    named = Caution("inside-differs", "umask is '077', the baseline's '022'")
    cautioned = {trial.trial for trial in bench.trials if named in trial.cautions}
    assert cautioned == {trial.trial for trial in bench.trials if trial.stack == "b"}
    assert len(cautioned) == 6  # three blocks of two workloads
