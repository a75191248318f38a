"""Full-catalogue ranking against sorting everything, one user at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from evaluation import DataError, rank_full_catalogue
from evaluation.protocol import top_items


def slow_ranking(scores: np.ndarray, barred: np.ndarray, k: int) -> list[list[int]]:
    result = []
    for row, taken in zip(scores, barred, strict=True):
        free = [item for item in range(len(row)) if not taken[item] and row[item] > -np.inf]
        best = sorted(free, key=lambda item, row=row: (-row[item], item))[:k]  # type: ignore[misc]
        result.append(best + [-1] * (k - len(best)))
    return result


@given(data=st.data(), n_items=st.integers(1, 9), k=st.integers(1, 11), block=st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_matches_sorting_whatever_the_block_and_the_ties(data: Any, n_items: int, k: int, block: int) -> None:
    grid = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0])
    scores = np.array(
        data.draw(st.lists(st.lists(grid, min_size=n_items, max_size=n_items), min_size=4, max_size=4))
    )
    barred = np.array(
        data.draw(
            st.lists(st.lists(st.booleans(), min_size=n_items, max_size=n_items), min_size=4, max_size=4)
        )
    )
    before = scores.copy()
    ranked = rank_full_catalogue(
        lambda users: scores[users], 4, n_items, sparse.csr_array(barred), k, block_size=block
    )
    assert ranked.tolist() == slow_ranking(scores, barred, k)
    np.testing.assert_array_equal(scores, before)


def test_a_stored_zero_still_counts_as_seen() -> None:
    seen = sparse.csr_array((np.zeros(1), ([0], [2])), shape=(1, 3))
    assert rank_full_catalogue(lambda users: np.array([[1, 2, 3]]), 1, 3, seen, 3).tolist() == [[1, 0, -1]]


def test_only_the_users_asked_for_are_scored() -> None:
    asked = []

    def score(users: np.ndarray) -> np.ndarray:
        asked.extend(users.tolist())
        return np.tile([0.0, 1.0], (len(users), 1)).astype(np.float32)

    assert rank_full_catalogue(score, 9, 2, k=1, users=[7, 3], block_size=1).tolist() == [[1], [1]]
    assert asked == [7, 3]


@pytest.mark.parametrize(
    ("score", "arguments", "message"),
    [
        (lambda users: np.zeros((len(users), 4)), {}, r"shape \[users, items\] = \(2, 3\), got \(2, 4\)"),
        (lambda users: np.array([[0, 1, 2], [0, np.nan, 1]]), {}, "score of user 1 for item 1 is NaN"),
        (lambda users: np.zeros((len(users), 3)), {"k": 0}, "k must be at least 1"),
        (lambda users: np.zeros((len(users), 3)), {"users": [2]}, "codes from 0 to 1"),
        (lambda users: np.zeros((len(users), 3)), {"seen": sparse.csr_array((2, 5))}, "seen must have shape"),
    ],
)
def test_what_cannot_be_ranked_is_refused(score: Any, arguments: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rank_full_catalogue(score, 2, 3, **arguments)


def test_no_rows_and_no_places_are_empty() -> None:
    assert top_items(np.empty((0, 5)), 3).shape == (0, 3)
    assert rank_full_catalogue(lambda users: np.zeros((len(users), 3)), 2, 3, users=[]).shape == (0, 20)
