"""Ranking metrics by group of users."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from evaluation import DataError, EvaluationError, evaluate_ranking, rank_slices
from evaluation.metrics.ranking import ndcg_at_k


@pytest.fixture(scope="module")
def world() -> tuple[Any, np.ndarray[Any, Any]]:
    """A model that knows the taste of group a and guesses for group b."""
    generator = np.random.default_rng(0)
    likes = generator.random((200, 30)) < 0.2
    group = np.array(["a", "b"])[generator.integers(0, 2, 200)]
    scores = generator.random((200, 30)) + likes * (group == "a")[:, None]
    result = evaluate_ranking(
        {"m": lambda users: scores[users]}, sparse.csr_array(likes.astype(float)), resamples=50
    )
    return result, group


def test_groups_and_their_gap(world: Any) -> None:
    result, group = world
    sliced = rank_slices(result, {"group": group, "number:2": np.arange(200)}, metric="ndcg@5", resamples=300)
    values = ndcg_at_k(result.lists["m"], 5)
    judged = group[result.lists["m"].users]
    for one in sliced.slices[:2]:
        assert one.estimate.value == pytest.approx(values[judged == one.value].mean())
        assert one.n_units == (judged == one.value).sum()
    assert sliced.gaps["group"].value == pytest.approx(
        values[judged == "a"].mean() - values[judged == "b"].mean()
    )
    assert {one.value for one in sliced.different()} == {"a", "b"}
    assert len([one for one in sliced.slices if one.column == "number"]) == 2
    assert "group = a" in str(sliced)


def test_wrong_requests_are_explained(world: Any) -> None:
    result, group = world
    with pytest.raises(DataError, match="has 10 users, but user"):
        rank_slices(result, {"group": group[:10]})
    with pytest.raises(EvaluationError, match="no value for a single user"):
        rank_slices(result, {"group": group}, metric="coverage@5")
    with pytest.raises(EvaluationError, match="Unknown model 'n'"):
        rank_slices(result, {"group": group}, model="n")
    with pytest.raises(EvaluationError, match="nothing to slice by"):
        rank_slices(result, {})
