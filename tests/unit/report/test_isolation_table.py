"""The table of the observed isolation: on the page, in report.md, and in `tare show`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from called import Call
from pages import html_of
from runs import isolation_by_plugins, make_run, make_trial, measured, write

from tare.model.observed_isolation import Confinement, ObservedIsolation
from tare.model.run_folder import Run, load_run, read_trial, trial_fields
from tare.model.trial import Caution
from tare.report.documents import render_markdown
from tare.report.isolation_table import COLUMNS, NOT_COMPARED, isolation_rows
from tare.statistics.summarize import summarize

MAPPED = Confinement(
    process="init",
    capabilities=1 << 40,
    last_capability=40,
    no_new_privileges=True,
    seccomp=2,
    seccomp_filters=3,
    uid_map="0 100000 65536",
    gid_map="0 100000 65536",
    namespaces=("pid", "user"),
    label="docker-default",
)
ALL = Confinement(
    process="init",
    capabilities=2**41 - 1,
    last_capability=40,
    no_new_privileges=False,
    seccomp=0,
    seccomp_filters=0,
    uid_map="0 0 4294967295",
    gid_map="0 0 4294967295",
    namespaces=(),
)
SENTRY, QEMU = replace(MAPPED, process="runsc"), replace(ALL, process="qemu")
GUEST = ObservedIsolation(
    "qemu-tcg", has_private_kernel=True, inside=ALL, landlock=None, landlock_note="refused", monitor=QEMU
)


def shared(layer: str, inside: Confinement, landlock: int = 0) -> ObservedIsolation:
    return ObservedIsolation(layer, has_private_kernel=False, inside=inside, landlock=landlock)


OBSERVED = {
    "native": (shared("native", replace(ALL, capabilities=(2**41 - 1) ^ 1 << 24)),),
    "docker": (shared("docker", MAPPED, landlock=2),),
    "gvisor": (
        ObservedIsolation(
            "gvisor",
            has_private_kernel=True,
            inside=Confinement("init", capabilities=1),
            landlock=0,
            landlock_note="not in the kernel",
            monitor=SENTRY,
        ),
    ),
    "solo5-virtio": (ObservedIsolation("solo5-virtio", monitor=QEMU),),
    "crun/qemu-tcg": (GUEST, shared("crun", replace(MAPPED, seccomp=1))),
    "unknown": (ObservedIsolation("unknown", has_private_kernel=False),),
}


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Run:
    trials = [
        replace(make_trial(stack, block, [measured("speed", 1.0)]), isolation=found)
        for block in (0, 1)
        for stack, found in OBSERVED.items()
    ]
    made = make_run(trials, folder=tmp_path / "run")
    return replace(made, record=replace(made.record, isolation=isolation_by_plugins(OBSERVED)))


def test_each_confined_process_has_a_row(run: Run) -> None:
    rows = [(row.stack, row.process, *(cell.text for cell in row.cells)) for row in isolation_rows(summarize(run), run)]
    full = ("no filter", "41 of 41", "no", "none")
    mapped = ("1 of 41", "yes", "root is user 100000")
    assert rows == [
        ("native", "init inside", "shared", "no filter", "40 of 41", "no", "none", "none", "none"),
        ("docker", "init inside", "shared", "seccomp, 3 filters", *mapped, "2 rulesets", "pid, user"),
        (
            "gvisor",
            "init inside",
            "in user space",
            "unknown",
            "1",
            "unknown",
            "unknown",
            "none (not in its kernel)",
            NOT_COMPARED,
        ),
        ("gvisor", "runsc on the host", "shared", "seccomp, 3 filters", *mapped, "unknown", "pid, user"),
        ("solo5-virtio", "qemu on the host", "own, as declared", *full, "unknown", "none"),
        ("crun/qemu-tcg", "init inside qemu-tcg", "own", *full, "unknown (refused)", "none"),
        ("crun/qemu-tcg", "qemu on the host of qemu-tcg", "shared", *full, "unknown", "none"),
        ("crun/qemu-tcg", "init inside crun", "shared", "seccomp, strict", *mapped, "none", "pid, user"),
    ]


def test_tooltips_have_the_names_and_the_declared_level(run: Run) -> None:
    rows = {
        (row.stack, row.process): dict(zip(COLUMNS, row.cells, strict=True))
        for row in isolation_rows(summarize(run), run)
    }
    native, docker = rows["native", "init inside"], rows["docker", "init inside"]
    assert native["capabilities"].detail == "all but sys_resource"
    assert docker["capabilities"].detail == "checkpoint_restore; they hold in its user namespace only"
    assert rows["solo5-virtio", "qemu on the host"]["capabilities"].detail == "all"
    assert docker["kernel"].detail.startswith("declared: shared kernel: namespaces")
    assert docker["system calls"].detail == "security label: docker-default"
    assert docker["user namespace"].detail == "uid_map 0 100000 65536; gid_map 0 100000 65536"


def test_the_page_has_the_table_and_a_link_to_it(run: Run) -> None:
    page = html_of(run)
    assert '<section id="isolation">' in page
    assert '<a href="#isolation">Isolation</a>' in page
    assert '<td data-label="system calls" title="security label: docker-default">seccomp, 3 filters</td>' in page
    bare = replace(run, trials=tuple(replace(trial, isolation=()) for trial in run.trials))
    assert "#isolation" not in html_of(bare)
    assert 'id="isolation"' not in html_of(bare)


def test_a_contradiction_is_in_the_table_and_among_the_cautions(run: Run) -> None:
    text = "declared: own kernel; observed: the host's kernel"
    weaker = (shared("solo5-virtio", ALL),)
    trials = tuple(
        replace(trial, isolation=weaker, cautions=(Caution("isolation-differs", text),))
        if trial.stack == "solo5-virtio"
        else trial
        for trial in run.trials
    )
    changed = replace(run, trials=trials)
    [row] = [row for row in isolation_rows(summarize(changed), changed) if row.notes]
    assert (row.stack, row.notes) == ("solo5-virtio", (text,))
    page = html_of(changed)
    assert '<span class="why differs">declared: own kernel; observed: the host&#39;s kernel</span>' in page
    assert "What its kernel reports is weaker than the isolation that its technology declares" in page


def test_markdown_has_the_table_folded(run: Run) -> None:
    text = render_markdown(summarize(run), run)["report.md"].decode()
    assert "<details><summary>Isolation as read in running instances</summary>\n\n| stack | process | kernel |" in text
    assert "\n| docker | init inside | shared | seccomp, 3 filters | 1 of 41 | yes |" in text


def test_show_prints_it_and_json_has_it(run: Run, call: Call) -> None:
    folder = write(run)
    shown = call("show", folder, "dhrystone-docker-0").out
    assert (
        "isolation, init inside: kernel: shared; system calls: seccomp, 3 filters; capabilities: 1 of 41; "
        "no_new_privs: yes; user namespace: root is user 100000; Landlock: 2 rulesets; private namespaces: pid, user\n"
    ) in shown
    assert call("show", folder, "dhrystone-gvisor-0").out.count("\nisolation, ") == 2
    [docker] = (
        each for each in json.loads(call("show", folder, "--json").out) if each["trial"] == "dhrystone-docker-0"
    )
    assert docker["isolation"][0]["inside"]["namespaces"] == ["pid", "user"]


def test_the_journal_keeps_it_and_older_journals_have_none(run: Run) -> None:
    assert load_run(write(run)).trials == run.trials
    fields = trial_fields(run.trials[0])
    del fields["isolation"]
    older = read_trial(json.dumps(fields).encode(), "here")
    assert older == replace(run.trials[0], isolation=())
