"""Baselines against their formulas written out with dense arrays."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from evaluation import BASELINES, DataError, Interactions, ItemAttributes, fit_baselines
from evaluation.baselines import CoOccurrenceBaseline, RecentPopularityBaseline

N_USERS, N_ITEMS = 20, 15
GENRES = [["drama"], ["drama", "war"], ["comedy"], [], ["comedy", "drama", "war"]] * 3


@pytest.fixture(scope="module")
def log() -> Interactions:
    generator = np.random.default_rng(0)
    pairs = np.unique(generator.integers(0, [N_USERS - 1, N_ITEMS - 1], (120, 2)), axis=0)
    times = generator.permutation(len(pairs)).astype(float)
    return Interactions.of(pairs[:, 0], pairs[:, 1], n_users=N_USERS, n_items=N_ITEMS, times=times)


@pytest.fixture(scope="module")
def genres() -> ItemAttributes:
    return ItemAttributes.of_tokens(GENRES)


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_every_baseline_scores_all_items_for_all_users(
    name: str, log: Interactions, genres: ItemAttributes
) -> None:
    score = fit_baselines(log, genres, names=[name])[name]
    everyone = np.arange(N_USERS)
    whole = np.asarray(score(everyone))
    assert whole.shape == (N_USERS, N_ITEMS)
    assert np.isfinite(whole).all()
    by_one = np.concatenate([np.asarray(score(everyone[user : user + 1])) for user in everyone])
    np.testing.assert_array_equal(whole, by_one)
    assert np.asarray(score(np.empty(0, np.int64))).shape == (0, N_ITEMS)
    again = fit_baselines(log, genres, names=[name])[name]
    np.testing.assert_array_equal(whole, again(everyone))


def test_random_orders_differ_by_user_and_seed(log: Interactions) -> None:
    first = np.asarray(fit_baselines(log, names=["random"], seed=1)["random"](np.arange(3)))
    second = np.asarray(fit_baselines(log, names=["random"], seed=2)["random"](np.arange(3)))
    assert len({tuple(np.argsort(row)) for row in (*first, *second)}) == 6


def test_popularity_counts_weights() -> None:
    log = Interactions.of([0, 1, 1], [2, 2, 0], n_users=3, n_items=3, weight=[1.0, 2.0, 0.5])
    score = fit_baselines(log, names=["popularity"])["popularity"]
    assert np.asarray(score(np.array([0, 2]))).tolist() == [[0.5, 0, 3], [0.5, 0, 3]]


def test_recent_popularity_halves_with_every_half_life() -> None:
    times = np.array(["2024-01-01", "2024-01-11", "2024-01-21"], dtype="datetime64[ns]")
    log = Interactions.of([0, 0, 0], [0, 1, 2], n_users=1, n_items=3, times=times)
    days = 10 * 24 * 3600 * 1e6
    score = RecentPopularityBaseline(half_life=days).fit(log).scores(np.array([0]))
    np.testing.assert_allclose(score, [[0.25, 0.5, 1.0]])
    by_default = RecentPopularityBaseline().fit(log).scores(np.array([0]))
    np.testing.assert_allclose(by_default, [[2.0**-10, 2.0**-5, 1.0]])


def test_recent_popularity_of_one_moment_is_popularity() -> None:
    log = Interactions.of([0, 1], [1, 1], n_users=2, n_items=2, times=[5, 5])
    assert RecentPopularityBaseline().fit(log).scores(np.array([0])).tolist() == [[0, 2]]


def known(scores: Any) -> Any:
    """Scores of what a baseline knows something of; the rest is below 0."""
    return np.maximum(scores, 0.0)


@pytest.mark.parametrize("name", ["content_based", "co_occurrence", "last_item"])
def test_what_a_baseline_does_not_know_comes_last_by_popularity(
    name: str, log: Interactions, genres: ItemAttributes
) -> None:
    scores = np.asarray(fit_baselines(log, genres, names=[name])[name](np.arange(N_USERS)))
    popularity = np.bincount(log.items, minlength=N_ITEMS)
    nobody = np.setdiff1d(np.arange(N_USERS), log.users)
    assert len(nobody)
    for user in range(N_USERS):
        unknown = np.flatnonzero(scores[user] < 0)
        if user in nobody:
            assert len(unknown) == N_ITEMS
        order = np.argsort(-scores[user], kind="stable")
        assert set(order[len(order) - len(unknown) :]) == set(unknown)
        assert (np.diff(popularity[order[len(order) - len(unknown) :]]) <= 0).all()


def test_content_based_matches_scikit_learn(log: Interactions, genres: ItemAttributes) -> None:
    vectors = TfidfVectorizer(analyzer=list).fit_transform(GENRES).toarray()
    taste = log.matrix().toarray()
    profile = taste @ vectors / np.maximum(taste.sum(axis=1, keepdims=True), 1)
    score = fit_baselines(log, genres, names=["content_based"])["content_based"]
    np.testing.assert_allclose(known(score(np.arange(N_USERS))), profile @ vectors.T, atol=1e-12)


def test_co_occurrence_matches_the_cosine_of_item_columns(log: Interactions) -> None:
    taste = log.matrix(binary=True).toarray()
    similar = cosine_similarity(taste.T)
    np.fill_diagonal(similar, 0)
    score = fit_baselines(log, names=["co_occurrence"])["co_occurrence"]
    np.testing.assert_allclose(known(score(np.arange(N_USERS))), taste @ similar, atol=1e-12)


def test_co_occurrence_keeps_the_nearest_and_the_latest(log: Interactions) -> None:
    assert log.times is not None
    latest = np.zeros((N_USERS, N_ITEMS))
    for user in range(N_USERS):
        mine = np.flatnonzero(log.users == user)
        for row in mine[np.argsort(log.times[mine])][-3:]:
            latest[user, log.items[row]] = 1
    similar = cosine_similarity(latest.T)
    np.fill_diagonal(similar, 0)
    for row in similar:
        order = np.lexsort((np.arange(N_ITEMS), -row))
        row[order[2:]] = 0
    score = CoOccurrenceBaseline(neighbours=2, history=3).fit(log).scores(np.arange(N_USERS))
    np.testing.assert_allclose(score, latest @ similar, atol=1e-12)


def test_a_shared_history_finds_the_related_item() -> None:
    users = [0, 0, 1, 1, 2, 2, 3]
    items = [0, 1, 0, 1, 2, 3, 0]
    log = Interactions.of(users, items, n_users=4, n_items=4)
    scores = CoOccurrenceBaseline().fit(log).scores(np.array([3]))[0]
    assert scores.argmax() == 1
    assert all(later <= earlier for earlier, later in pairwise(scores[[1, 2, 3]]))


def test_only_what_the_data_allows_is_fitted(log: Interactions, genres: ItemAttributes) -> None:
    untimed = Interactions.of(log.users, log.items, n_users=N_USERS, n_items=N_ITEMS)
    assert list(fit_baselines(untimed)) == ["random", "popularity", "co_occurrence"]
    assert set(fit_baselines(log, genres)) == set(BASELINES)
    with pytest.raises(DataError, match="recent popularity needs the times"):
        fit_baselines(untimed, names=["recent_popularity"])
    with pytest.raises(DataError, match="needs item attributes"):
        fit_baselines(log, names=["content_based"])
    with pytest.raises(DataError, match="did you mean 'popularity'"):
        fit_baselines(log, names=["populrity"])
    with pytest.raises(DataError, match="attributes of 2 items but 15"):
        fit_baselines(log, ItemAttributes.of_tokens([["a"], ["b"]]), names=["content_based"])


@pytest.mark.parametrize(
    ("users", "items", "more", "message"),
    [
        ([0, 9], [0, 0], {}, "users must be codes from 0 to 1, got 0 to 9"),
        ([0, 1], [0, -1], {}, "items must be codes from 0 to 1, got -1 to 0"),
        ([0.5], [0], {}, "users must be whole-number codes"),
        ([0, 1], [0], {}, "2 users but 1 items"),
        ([0], [0], {"times": [1, 2]}, "1 interactions but 2 times"),
        ([0], [0], {"times": [np.nan]}, "times has a missing value"),
        ([0], [0], {"times": np.array(["NaT"], dtype="datetime64[s]")}, "times has a missing value"),
        ([0], [0], {"weight": [-1]}, "weight must not be negative"),
    ],
)
def test_bad_interactions_are_refused(users: Any, items: Any, more: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Interactions.of(users, items, n_users=2, n_items=2, **more)


def test_no_interactions_at_all_still_score(genres: ItemAttributes) -> None:
    log = Interactions.of([], [], n_users=2, n_items=N_ITEMS, times=[])
    for name, score in fit_baselines(log, genres).items():
        assert np.isfinite(score(np.arange(2))).all(), name
    assert CoOccurrenceBaseline(neighbours=1).fit(log).scores(np.arange(1)).shape == (1, N_ITEMS)
    with pytest.raises(DataError, match="at least 1"):
        CoOccurrenceBaseline(neighbours=0)
    with pytest.raises(DataError, match="above 0"):
        RecentPopularityBaseline(half_life=0)


def test_the_last_item_decides(log: Interactions) -> None:
    score = fit_baselines(log, names=["last_item"])["last_item"]
    dense = np.zeros((N_USERS, N_ITEMS))
    dense[log.users, log.items] = 1
    similar = cosine_similarity(dense.T)
    np.fill_diagonal(similar, 0)
    assert log.times is not None
    for user in range(N_USERS):
        mine = np.flatnonzero(log.users == user)
        row = np.asarray(score(np.array([user])))[0]
        if not len(mine):
            assert not known(row).any()
            continue
        last = log.items[mine[np.argmax(log.times[mine])]]
        np.testing.assert_allclose(known(row), similar[last], atol=1e-12)
