"""Metrics beyond accuracy against formulas written out item by item."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from evaluation import Interactions, ItemAttributes, MetricError, evaluate_ranking
from evaluation.facts import catalogue_facts
from evaluation.metrics import beyond_accuracy as beyond
from evaluation.metrics.ranking import RankedLists

N_USERS, N_ITEMS, K = 12, 15, 4


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    generator = np.random.default_rng(3)
    taken = generator.random((N_USERS, N_ITEMS)) < np.linspace(0.6, 0.05, N_ITEMS)
    taken[0] = False
    relevant = (generator.random((N_USERS, N_ITEMS)) < 0.25) & ~taken
    tokens = [[f"t{one}" for one in range(6) if generator.random() < 0.4] for _ in range(N_ITEMS)]
    users, items = np.nonzero(taken)
    interactions = Interactions.of(users, items, n_users=N_USERS, n_items=N_ITEMS)
    lists = np.array([generator.permutation(N_ITEMS)[:K] for _ in range(N_USERS)])
    lists[1, 2:] = -1
    facts = catalogue_facts(
        N_ITEMS, interactions, ItemAttributes.of_tokens(tokens), sparse.csr_array(taken.astype(float)), K
    )
    judged = RankedLists.of_items(lists, sparse.csr_array(relevant.astype(float)), facts=facts)
    return {
        "taken": taken,
        "tokens": tokens,
        "lists": judged,
        "relevant": relevant,
        "interactions": interactions,
    }


def per_list(world: dict[str, Any]) -> list[tuple[int, list[int]]]:
    lists = world["lists"]
    return [
        (int(user), [int(one) for one in row if one >= 0])
        for user, row in zip(lists.users, lists.items, strict=True)
    ]


def test_novelty_and_average_popularity(world: dict[str, Any]) -> None:
    count, n_known = world["taken"].sum(axis=0), world["taken"].any(axis=1).sum()
    surprise = [
        np.mean([-math.log2((count[i] + 1) / (n_known + 1)) for i in row]) for _, row in per_list(world)
    ]
    assert beyond.novelty_at_k(world["lists"], K) == pytest.approx(surprise)
    popularity = [np.mean(count[row]) for _, row in per_list(world)]
    assert beyond.average_popularity_at_k(world["lists"], K) == pytest.approx(popularity)


def test_diversity(world: dict[str, Any]) -> None:
    def cosine(a: set[str], b: set[str]) -> float:
        return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0

    sets = [set(one) for one in world["tokens"]]
    expected = [
        np.mean([1 - cosine(sets[i], sets[j]) for i, j in combinations(row, 2)]) for _, row in per_list(world)
    ]
    assert beyond.diversity_at_k(world["lists"], K) == pytest.approx(expected)


def test_serendipity(world: dict[str, Any]) -> None:
    count = world["taken"].sum(axis=0)
    expected = []
    for user, row in per_list(world):
        unseen = [i for i in range(N_ITEMS) if not world["taken"][user, i]]
        popular = sorted(unseen, key=lambda i: (-count[i], i))[:K]
        expected.append(sum(world["relevant"][user, i] and i not in popular for i in row) / K)
    assert beyond.serendipity_at_k(world["lists"], K) == pytest.approx(expected)
    assert max(expected) > 0


def test_coverage_gini_and_popularity_lift(world: dict[str, Any]) -> None:
    shown = [i for _, row in per_list(world) for i in row]
    assert beyond.coverage_at_k(world["lists"], K) == len(set(shown)) / N_ITEMS
    counts = np.bincount(shown, minlength=N_ITEMS)
    pairs = sum(abs(int(a) - int(b)) for a in counts for b in counts)
    assert beyond.gini_at_k(world["lists"], K) == pytest.approx(pairs / (2 * N_ITEMS**2 * counts.mean()))
    popularity = world["taken"].sum(axis=0)
    recommended, own = [], []
    for user, row in per_list(world):
        history = np.flatnonzero(world["taken"][user])
        if len(history):
            recommended.append(popularity[row].mean())
            own.append(popularity[history].mean())
    expected = np.sum(recommended) / np.sum(own) - 1
    assert beyond.popularity_lift_at_k(world["lists"], K) == pytest.approx(expected)


def test_a_resample_equals_the_metric_on_repeated_users(world: dict[str, Any]) -> None:
    lists = world["lists"]
    weight = np.random.default_rng(0).integers(0, 3, (lists.n_users, 6)).astype(float)
    for statistic in (beyond.COVERAGE, beyond.GINI, beyond.POPULARITY_LIFT):
        drawn = statistic.resampler(lists, K)(weight)
        for column in range(6):
            index = np.repeat(np.arange(lists.n_users), weight[:, column].astype(int))
            copy = RankedLists(
                lists.users[index], lists.items[index], lists.relevance[index], lists.n_relevant[index],
                lists.ideal[index], 0, lists.facts,
            )  # fmt: skip
            assert drawn[column] == pytest.approx(statistic.value(copy, K))


def test_they_stand_beside_the_others_with_intervals_and_differences(world: dict[str, Any]) -> None:
    generator = np.random.default_rng(5)
    noise = generator.random((N_USERS, N_ITEMS))
    popularity = np.tile(world["taken"].sum(axis=0), (N_USERS, 1))
    result = evaluate_ranking(
        {"model": lambda users: noise[users], "popularity": lambda users: popularity[users]},
        sparse.csr_array(world["relevant"].astype(float)),
        sparse.csr_array(world["taken"].astype(float)),
        ks=(3,),
        interactions=world["interactions"],
        attributes=ItemAttributes.of_tokens(world["tokens"]),
        resamples=100,
    )
    for name in ("coverage@3", "gini@3", "novelty@3", "serendipity@3", "popularity_lift@3", "diversity@3"):
        one = result.models["model"][name]
        assert one.low <= one.value <= one.high, name
    assert result.value("model", "coverage@3") > result.value("popularity", "coverage@3")
    gap = result.differences["model"]["coverage@3"]
    assert gap.difference.value == pytest.approx(
        result.value("model", "coverage@3") - result.value("popularity", "coverage@3")
    )
    assert math.isnan(gap.win_rate)
    assert result.value("popularity", "serendipity@3") == 0
    assert "Coverage" in result.to_markdown()


def test_what_is_missing_is_said() -> None:
    lists = RankedLists.of_items(np.array([[0, 1]]), sparse.csr_array(np.array([[1.0, 0.0]])))
    with pytest.raises(MetricError, match="needs the training interactions"):
        beyond.novelty_at_k(lists, 2)
    with pytest.raises(MetricError, match="needs item attributes"):
        evaluate_ranking(
            {"a": np.array([[0, 1]])},
            sparse.csr_array(np.array([[1.0, 0.0]])),
            ks=(2,),
            metrics=["ndcg", "diversity"],
        )
