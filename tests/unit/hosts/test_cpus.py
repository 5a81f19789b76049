from __future__ import annotations

import pytest

from tare.hosts.cpus import Placement, choose_cpus

FOUR = ((0,), (1,), (2,), (3,))
FOUR_WITH_SIBLINGS = ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
    ("cores", "wanted", "server", "client"),
    [
        (((0,), (1,)), 1, (1,), (0,)),
        (FOUR, 1, (3,), (0, 1, 2)),
        (FOUR, 2, (2, 3), (0, 1)),
        (FOUR, 3, (1, 2, 3), (0,)),
        (FOUR_WITH_SIBLINGS, 1, (3,), (0, 1, 2, 4, 5, 6)),
        (FOUR_WITH_SIBLINGS, 2, (2, 3), (0, 1, 4, 5)),
        (((8,), (12,)), 1, (12,), (8,)),  # tare itself may use only some of the machine's
    ],
)
def test_server_and_client_share_no_core(
    cores: tuple[tuple[int, ...], ...], wanted: int, server: tuple[int, ...], client: tuple[int, ...]
) -> None:
    assert choose_cpus(cores, wanted) == Placement(server, client)


def test_a_machine_of_one_cpu_runs_both_on_it_and_says_so() -> None:
    found = choose_cpus(((0,),), 1)
    assert (found.server, found.client) == ((0,), (0,))
    assert [(caution.kind, caution.text) for caution in found.cautions] == [
        ("shared-cpus", "client and instance run on the same CPUs: the machine is too small")
    ]


def test_a_machine_of_one_core_gives_the_client_its_other_thread_and_says_so() -> None:
    found = choose_cpus(((0, 1),), 1)
    assert (found.server, found.client) == ((0,), (1,))
    assert [(caution.kind, caution.text) for caution in found.cautions] == [
        ("shared-cpus", "client and instance share a core: the machine is too small")
    ]


def test_an_instance_that_wants_every_cpu_shares_them_with_the_client() -> None:
    found = choose_cpus(FOUR, 4)
    assert (found.server, found.client) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert [caution.kind for caution in found.cautions] == ["shared-cpus"]


def test_an_instance_that_wants_more_cpus_than_there_are_gets_all_and_says_so() -> None:
    found = choose_cpus(((0,), (1,)), 3)
    assert found.server == (0, 1)
    assert [(caution.kind, caution.text) for caution in found.cautions] == [
        ("too-few-cpus", "3 CPUs were asked for, the machine has 2"),
        ("shared-cpus", "client and instance run on the same CPUs: the machine is too small"),
    ]


def test_threads_of_a_core_are_taken_once_the_cores_are_used_up() -> None:
    found = choose_cpus(FOUR_WITH_SIBLINGS, 6)
    assert len(found.server) == 6
    assert set(found.server) | set(found.client) == set(range(8))
    assert not set(found.server) & set(found.client)
