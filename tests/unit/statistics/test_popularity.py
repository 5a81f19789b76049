"""VTmark's row_score, against what the paper's text says: the numbers in its Figures 1 to 3 are only drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tare.statistics.popularity import row_scores, shares_of_largest

TABLES = some.integers(1, 5).flatmap(
    lambda width: some.lists(some.lists(some.floats(0.001, 1e9), min_size=width, max_size=width), min_size=1)
)


def test_docker_and_kubernetes_have_the_scores_that_their_numbers_in_the_text_give() -> None:
    # Section 2.2: Docker has 75K threads on Stack Overflow, Kubernetes about 30 % of Docker's searches and questions.
    docker, kubernetes = (100, 75_000), (30, 22_500)
    assert row_scores((docker, kubernetes)) == pytest.approx((1, 0.3))


def test_what_is_three_orders_of_magnitude_less_searched_has_almost_no_share_of_that_column() -> None:
    # Section 2.2: Docker is that much more popular than any competitor, so Figure 3 leaves it out.
    assert shares_of_largest(((1000, 75_000), (1, 75_000))) == ((1, 1), (0.001, 1))
    assert row_scores(((1000, 75_000), (1, 75_000))) == pytest.approx((1, 0.5005))


def test_a_score_is_the_mean_over_columns_and_no_column_weighs_more_for_its_large_numbers() -> None:
    assert row_scores(((4, 1_000_000), (2, 1_000_000), (1, 500_000))) == pytest.approx((1, 0.75, 0.375))


@given(TABLES)
def test_scores_are_from_0_to_1_and_no_unit_of_a_column_changes_them(rows: list[list[float]]) -> None:
    scores = row_scores(rows)
    assert all(0 < score <= 1 for score in scores)
    other_unit = [[number * (1000 if at == 0 else 1) for at, number in enumerate(row)] for row in rows]
    assert row_scores(other_unit) == pytest.approx(scores)


@pytest.mark.parametrize("rows", [((1, 0), (2, 0)), ((1, -1), (2, 1)), ((1, 2), (1,)), ((float("nan"),),)])
def test_a_table_without_scores_is_refused(rows: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"column|argument"):
        row_scores(rows)
