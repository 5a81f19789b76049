from tare.telemetry.processes import Count, ResourceUsage

PARENT_ID, CHILD_ID = (100, 1.0), (101, 2.0)


def test_what_was_used_before_the_first_look_does_not_count() -> None:
    used = ResourceUsage()
    assert used.look({PARENT_ID: Count(1, 50.0, 0.0)}, frozenset()) == 0.0
    assert used.look({PARENT_ID: Count(1, 53.0, 0.0)}, frozenset()) == 3.0


def test_all_that_a_new_process_used_counts() -> None:
    used = ResourceUsage()
    used.look({PARENT_ID: Count(1, 50.0, 0.0)}, frozenset())
    both = {PARENT_ID: Count(1, 50.0, 0.0), CHILD_ID: Count(100, 4.0, 0.0)}
    assert used.look(both, frozenset({CHILD_ID})) == 4.0


def test_an_ended_process_is_not_forgotten() -> None:
    used = ResourceUsage()
    used.look({PARENT_ID: Count(1, 0.0, 0.0), (200, 1.0): Count(1, 10.0, 0.0)}, frozenset())
    used.look({PARENT_ID: Count(1, 1.0, 0.0), (200, 1.0): Count(1, 15.0, 0.0)}, frozenset())
    assert used.look({PARENT_ID: Count(1, 2.0, 0.0)}, frozenset()) == 7.0


def test_what_a_parent_took_over_from_its_child_is_counted_once() -> None:
    used = ResourceUsage()
    used.look({PARENT_ID: Count(1, 0.0, 0.0)}, frozenset())
    used.look({PARENT_ID: Count(1, 1.0, 0.0), CHILD_ID: Count(100, 4.0, 0.0)}, frozenset({CHILD_ID}))
    assert used.look({PARENT_ID: Count(1, 6.0, 5.0)}, frozenset()) == 6.0


def test_a_child_from_before_the_first_look_does_not_bring_its_past_along() -> None:
    used = ResourceUsage()
    used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 40.0, 0.0)}, frozenset())
    assert used.look({PARENT_ID: Count(1, 42.0, 42.0)}, frozenset()) == 2.0


def test_a_child_that_nobody_waited_for_is_kept() -> None:
    used = ResourceUsage()
    used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 0.0, 0.0)}, frozenset())
    used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 4.0, 0.0)}, frozenset())
    assert used.look({PARENT_ID: Count(1, 0.0, 0.0)}, frozenset()) == 4.0


def test_a_parent_that_was_read_before_it_waited_for_its_child_does_not_count_it_twice() -> None:
    used = ResourceUsage()
    used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 0.0, 0.0)}, frozenset())
    used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 4.0, 0.0)}, frozenset())
    assert used.look({PARENT_ID: Count(1, 0.0, 0.0)}, frozenset()) == 4.0
    assert used.look({PARENT_ID: Count(1, 5.0, 5.0)}, frozenset()) == 5.0
    assert used.look({PARENT_ID: Count(1, 8.0, 8.0)}, frozenset()) == 8.0


def test_a_parent_that_ends_before_it_was_read_again_passes_its_child_on() -> None:
    used = ResourceUsage()
    grandchild = (102, 3.0)
    first = {PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 0.0, 0.0), grandchild: Count(101, 0.0, 0.0)}
    used.look(first, frozenset())
    used.look(first | {CHILD_ID: Count(100, 2.0, 0.0), grandchild: Count(101, 3.0, 0.0)}, frozenset())
    assert used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 2.0, 0.0)}, frozenset()) == 5.0
    assert used.look({PARENT_ID: Count(1, 5.0, 5.0)}, frozenset()) == 5.0


def test_a_child_and_its_parent_that_end_together_are_counted_once_in_the_grandparent() -> None:
    used = ResourceUsage()
    grandchild = (102, 3.0)
    start = {PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(100, 0.0, 0.0), grandchild: Count(101, 0.0, 0.0)}
    used.look(start, frozenset())
    used.look(start | {CHILD_ID: Count(100, 2.0, 0.0), grandchild: Count(101, 3.0, 0.0)}, frozenset())
    assert used.look({PARENT_ID: Count(1, 5.0, 5.0)}, frozenset()) == 5.0


def test_a_process_that_is_missing_for_one_look_is_not_counted_twice() -> None:
    used = ResourceUsage()
    used.look({PARENT_ID: Count(1, 0.0, 0.0)}, frozenset())
    born = frozenset({CHILD_ID})
    used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(1, 4.0, 0.0)}, born)
    assert used.look({PARENT_ID: Count(1, 0.0, 0.0)}, frozenset()) == 4.0
    assert used.look({PARENT_ID: Count(1, 0.0, 0.0), CHILD_ID: Count(1, 5.0, 0.0)}, born) == 5.0
