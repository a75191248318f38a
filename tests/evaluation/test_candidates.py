"""Ranking among candidates: what competes, and the warning."""

import numpy as np
import pytest
from scipy import sparse

from evaluation import Candidates, DataError, evaluate_ranking


@pytest.fixture
def relevant() -> sparse.csr_array:
    return sparse.csr_array((np.random.default_rng(0).random((20, 50)) < 0.1).astype(float))


@pytest.fixture
def seen() -> sparse.csr_array:
    return sparse.csr_array((np.random.default_rng(1).random((20, 50)) < 0.2).astype(float))


def test_sampled_candidates_are_the_relevant_items_and_others_unseen(
    relevant: sparse.csr_array, seen: sparse.csr_array
) -> None:
    matrix = Candidates.sampled(relevant, seen, 10, seed=3).matrix.toarray() > 0
    truth, known = relevant.toarray() > 0, seen.toarray() > 0
    for user in range(20):
        if not truth[user].any():
            assert not matrix[user].any()
            continue
        assert (matrix[user] & truth[user]).sum() == truth[user].sum()
        others = matrix[user] & ~truth[user]
        assert others.sum() == min(10, (~truth[user] & ~known[user]).sum())
        assert not (others & known[user]).any()
    again = Candidates.sampled(relevant, seen, 10, seed=3).matrix.toarray() > 0
    np.testing.assert_array_equal(matrix, again)


def test_every_item_is_sampled_about_equally_often() -> None:
    relevant = sparse.csr_array((np.ones(2000), (np.arange(2000), np.zeros(2000, int))), shape=(2000, 11))
    counts = Candidates.sampled(relevant, None, 5).matrix.sum(axis=0)
    assert counts[1:] == pytest.approx(np.full(10, 1000), rel=0.1)


def test_sampled_figures_are_higher_and_warned_of(relevant: sparse.csr_array, seen: sparse.csr_array) -> None:
    noise = np.random.default_rng(2).random((20, 50))
    full = evaluate_ranking({"m": lambda users: noise[users]}, relevant, seen, ks=(5,), resamples=50)
    few = evaluate_ranking(
        {"m": lambda users: noise[users]},
        relevant,
        seen,
        ks=(5,),
        resamples=50,
        candidates=Candidates.sampled(relevant, seen, 5),
    )
    assert few.value("m", "recall@5") > full.value("m", "recall@5")
    assert "WARNING" in few.facts()
    assert "not comparable" in few.to_markdown()
    assert few.to_dict()["is_sampled"]
    assert "WARNING" not in full.facts()


def test_given_lists_compete_alone(relevant: sparse.csr_array) -> None:
    lists = np.tile(np.array([3, 7, 9, -1]), (20, 1))
    result = evaluate_ranking(
        {"m": lambda users: np.ones((len(users), 50))},
        relevant,
        ks=(3,),
        intervals=False,
        candidates=Candidates.of_lists(lists, 50),
    )
    assert set(np.unique(result.lists["m"].items)) <= {3, 7, 9}
    assert "given lists" in result.facts()


def test_bad_candidates_are_refused(relevant: sparse.csr_array) -> None:
    with pytest.raises(DataError, match="from 0 to 49"):
        Candidates.of_lists(np.array([[50]]), 50)
    with pytest.raises(DataError, match="negatives must be at least 1"):
        Candidates.sampled(relevant, None, 0)
    with pytest.raises(DataError, match="candidates must have shape"):
        evaluate_ranking(
            {"m": lambda users: np.ones((len(users), 50))},
            relevant,
            candidates=Candidates.of_lists(np.array([[1]]), 50),
        )
