"""Stacks of a suite with a command or an image of their own: two versions of a program in one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from shelf import REDIS, read

from tare.model.architecture import ARM64, X86_64
from tare.model.image import ImageReference, ImageSpec
from tare.suites.stacks import StackOverride
from tare.suites.suite import Suite, parse_suite
from tare.workloads.command import UserCommand

SQUEEZE = '[[workloads]]\nuse = "command"\nname = "squeeze"\ncommand = "gzip -6 file"\n'


def versions(old: str, new: str, rest: str = SQUEEZE) -> str:
    head = '[suite]\nstacks = ["old", "new"]\n'
    return f'{head}[stacks.old]\nstack = "crun"\n{old}\n[stacks.new]\nstack = "crun"\n{new}\n{rest}'


def own(suite: Suite) -> dict[str, StackOverride]:
    return {stack.name: stack.override for stack in suite.measured_stacks}


def test_commands_differ_by_stack_and_the_control_has_that_of_the_baseline() -> None:
    suite = parse_suite(versions('command = "gzip -6 file"', 'command = ["gzip", "-8", "file"]'), "versions.toml")
    old, new = StackOverride(("gzip", "-6", "file")), StackOverride(("gzip", "-8", "file"))
    assert own(suite) == {"old": old, "new": new, "old-again": old}
    (planned,) = suite.workloads
    assert isinstance(planned.workload, UserCommand)
    assert new.apply_to_workload(planned.workload) == UserCommand(("gzip", "-8", "file"))
    assert StackOverride().apply_to_workload(planned.workload) is planned.workload


def test_a_stack_has_an_image_of_its_own_which_is_started_as_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    image = '[image]\nfrom = "docker-archive:1.tar"\ncredentials = "/key"\nfiles = { "/srv/a" = "/own/a" }\n'
    suite = parse_suite(versions("", 'image = "docker-archive:2.tar"', image + SQUEEZE), "versions.toml")
    assert own(suite)["old"].apply_to_image(suite.image) == suite.image
    source = ImageReference("docker-archive:", f"{tmp_path}/2.tar", "/key")
    for architecture in (X86_64, ARM64):  # that of the machine under test
        files = (("/srv/a", "/own/a"),)
        expected = ImageSpec(source=source, files=files, architecture=architecture)
        assert own(suite)["new"].apply_to_image(replace(suite.image, architecture=architecture)) == expected


def test_the_command_of_a_stack_replaces_that_of_the_service_under_test() -> None:
    suite = parse_suite(
        versions("", 'command = "web --port {port}"', '[[workloads]]\nuse = "application"\n'), "versions.toml"
    )
    workload = own(suite)["new"].apply_to_workload(suite.workloads[0].workload)
    service = workload.service("10.0.0.2")
    assert service is not None
    assert service.argv == ("web", "--port", "18080")


def test_nested_stacks_have_custom_programs_and_settings_for_their_layers() -> None:
    table = '[stacks.new]\nstack = "docker/qemu"\nimage = "docker://app:2"\n[stacks.new.docker]\nstorage = "2KiB"\n'
    suite = read(f'[suite]\nstacks = ["new"]\n{table}{REDIS}')
    assert own(suite)["new"] == StackOverride(source=ImageReference("docker://", "app:2"))
