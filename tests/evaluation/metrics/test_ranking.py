"""Ranking metrics against formulas written out for one user at a time."""

import math
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from evaluation import DataError, MetricError, RankedLists, ndcg
from evaluation.metrics import ranking

N_ITEMS = 12


def slow(name: str, items: list[int], truth: dict[int, float], k: int) -> float:
    """One user's metric, as in a textbook."""
    top = [item for item in items[:k] if item >= 0]
    hits = [item in truth for item in top]
    found = sum(hits)
    if name == "precision_at_k":
        return found / k
    if name == "recall_at_k":
        return found / len(truth)
    if name == "f1_at_k":
        p, r = found / k, found / len(truth)
        return 2 * p * r / (p + r) if found else 0.0
    if name == "hit_rate_at_k":
        return float(any(hits))
    if name == "mrr_at_k":
        return 1 / (hits.index(True) + 1) if any(hits) else 0.0
    if name == "mean_rank_at_k":
        return hits.index(True) + 1.0 if any(hits) else k + 1.0
    if name == "map_at_k":
        parts = [sum(hits[: place + 1]) / (place + 1) for place, hit in enumerate(hits) if hit]
        return sum(parts) / min(k, len(truth))
    if name == "exponential_ndcg_at_k":
        truth = {item: 2**grade - 1 for item, grade in truth.items()}
    gained = sum(truth.get(item, 0.0) / math.log2(place + 2) for place, item in enumerate(top))
    best = sorted(truth.values(), reverse=True)[:k]
    return gained / sum(value / math.log2(place + 2) for place, value in enumerate(best))


NAMES = [
    "precision_at_k",
    "recall_at_k",
    "f1_at_k",
    "hit_rate_at_k",
    "ndcg_at_k",
    "map_at_k",
    "mrr_at_k",
    "mean_rank_at_k",
    "exponential_ndcg_at_k",
]


@st.composite
def case(draw: st.DrawFn) -> tuple[np.ndarray, list[dict[int, float]]]:
    n_users = draw(st.integers(1, 5))
    items, truth = [], []
    for _ in range(n_users):
        order = draw(st.permutations(range(N_ITEMS)))[:6]
        length = draw(st.integers(0, 6))
        items.append(list(order[:length]) + [-1] * (6 - length))
        liked = draw(st.sets(st.integers(0, N_ITEMS - 1), max_size=8))
        truth.append({item: float(draw(st.integers(1, 5))) for item in liked})
    return np.array(items), truth


def to_csr(truth: list[dict[int, float]]) -> Any:
    dense = np.zeros((len(truth), N_ITEMS))
    for user, liked in enumerate(truth):
        for item, grade in liked.items():
            dense[user, item] = grade
    return sparse.csr_array(dense)


@given(data=case(), k=st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_every_metric_matches_its_textbook_formula(data: Any, k: int) -> None:
    items, truth = data
    lists = RankedLists.of_items(items, to_csr(truth))
    kept = [user for user, liked in enumerate(truth) if liked]
    assert lists.users.tolist() == kept
    assert lists.n_excluded == len(truth) - len(kept)
    for name in NAMES:
        expected = [slow(name, items[user].tolist(), truth[user], k) for user in kept]
        np.testing.assert_allclose(getattr(ranking, name)(lists, k), expected, atol=1e-12, err_msg=name)


def test_ndcg_matches_scikit_learn_over_full_rankings() -> None:
    generator = np.random.default_rng(0)
    grades = generator.integers(0, 4, (30, 20)).astype(float)
    scores = generator.permuted(np.tile(np.arange(20.0), (30, 1)), axis=1)
    order = np.argsort(-scores, axis=1)
    lists = RankedLists.of_items(order, sparse.csr_array(grades))
    np.testing.assert_allclose(
        ndcg(lists, 7), sk.ndcg_score(grades, scores, k=7, ignore_ties=True), rtol=1e-12
    )


def test_exponential_gain_is_the_linear_gain_of_two_to_the_grade() -> None:
    grades = np.array([[0.0, 3.0, 1.0, 2.0]])
    plain = RankedLists.of_relevance(grades)
    raised = RankedLists.of_relevance(np.exp2(grades) - 1)
    np.testing.assert_allclose(
        ranking.ndcg_at_k(plain, 3, gain="exponential"), ranking.ndcg_at_k(raised, 3, gain="linear")
    )


def test_lists_by_relevance_agree_with_lists_by_item() -> None:
    items = np.array([[0, 1, 2], [3, 4, 5]])
    truth = to_csr([{1: 1.0, 7: 1.0}, {3: 1.0, 5: 1.0}])
    by_item = RankedLists.of_items(items, truth)
    by_relevance = RankedLists.of_relevance([[0, 1, 0], [1, 0, 1]], n_relevant=[2, 2])
    for name in NAMES:
        np.testing.assert_array_equal(
            getattr(ranking, name)(by_item, 3), getattr(ranking, name)(by_relevance, 3)
        )


def test_a_user_subset_is_looked_up_by_its_code() -> None:
    truth = to_csr([{0: 1.0}, {1: 1.0}, {2: 1.0}])
    lists = RankedLists.of_items([[2], [0]], truth, users=[2, 1])
    assert lists.relevance.tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize(
    ("items", "users", "message"),
    [
        ([[1, 1]], None, "Item 1 is recommended twice to user 0"),
        ([[1, 99]], None, "items must be codes from 0 to 11"),
        ([[1, 2]], [7], "users must be codes from 0 to 0"),
        ([[1], [2]], [0, 0], "same user twice"),
        ([[1], [2]], [0], "2 lists but 1 users"),
        ([[0.5]], None, "items must be whole numbers"),
        ([1, 2], None, "items must be whole numbers of rank 2"),
    ],
)
def test_bad_lists_are_refused(items: Any, users: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        RankedLists.of_items(items, to_csr([{0: 1.0}]), users)


def test_bad_relevance_is_refused() -> None:
    with pytest.raises(DataError, match="at least the number of hits"):
        RankedLists.of_relevance([[1, 1]], n_relevant=[1])
    with pytest.raises(DataError, match="Graded relevance needs every relevant item"):
        RankedLists.of_relevance([[3, 1]], n_relevant=[4])
    with pytest.raises(DataError, match="at least 0"):
        RankedLists.of_relevance([[-1.0, math.nan]])


def test_a_cut_off_beyond_the_list_is_refused() -> None:
    lists = RankedLists.of_relevance([[0, 1]])
    with pytest.raises(MetricError, match="k is 3 but the lists have only 2"):
        ranking.recall_at_k(lists, 3)
    with pytest.raises(MetricError, match="k must be at least 1"):
        ranking.ndcg_at_k(lists, 0)
    with pytest.raises(MetricError, match="gain must be"):
        ranking.ndcg_at_k(lists, 1, gain="log")  # type: ignore[arg-type]


def test_no_users_give_nan() -> None:
    lists = RankedLists.of_items([[0]], to_csr([{}]))
    assert lists.n_excluded == 1
    assert math.isnan(ndcg(lists, 1))
