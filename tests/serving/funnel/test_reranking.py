"""Variety and rules, against slow and obvious formulas."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.funnel.candidates import Candidates
from serving.funnel.reranking.diversity import greedy_dpp, mmr, scaled
from serving.funnel.reranking.rules import placed, spread
from serving.recommender import Request


def alike(seed: int, size: int, width: int = 4) -> Any:
    vectors = np.random.default_rng(seed).normal(size=(size, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


@given(st.integers(0, 1000), st.integers(1, 12), st.floats(0, 1))
def test_mmr_takes_the_best_margin_at_every_step(seed, size, relevance):
    scores, cosines = np.random.default_rng(seed).random(size), alike(seed, size)
    chosen: list[int] = []
    for _ in range(size):
        margins = {
            item: relevance * scores[item]
            - (1 - relevance) * max([cosines[item, other] for other in chosen] + [0.0])
            for item in range(size)
            if item not in chosen
        }
        best = mmr(scores, cosines, relevance, len(chosen) + 1)[-1]
        assert margins[best] == pytest.approx(max(margins.values()))
        chosen.append(best)
    assert mmr(scores, cosines, relevance, size) == chosen


@given(st.integers(0, 1000), st.integers(1, 8))
def test_greedy_dpp_enlarges_the_determinant_most_at_every_step(seed, size):
    quality = np.exp(np.random.default_rng(seed).random(size))
    kernel = quality[:, None] * alike(seed, size) * quality[None, :]
    order = greedy_dpp(kernel, size)
    for step in range(len(order)):
        before = order[:step]
        gains = {
            item: np.linalg.det(kernel[np.ix_([*before, item], [*before, item])])
            for item in range(size)
            if item not in before
        }
        assert gains[order[step]] == pytest.approx(max(gains.values()), rel=1e-6, abs=1e-9)


def test_dpp_finds_the_best_pair_of_few():
    kernel = (
        np.diag([1.2, 1.0, 1.0])
        @ np.array([[1, 0.99, 0.1], [0.99, 1, 0.1], [0.1, 0.1, 1]])
        @ np.diag([1.2, 1.0, 1.0])
    )
    best = max(combinations(range(3), 2), key=lambda pair: np.linalg.det(kernel[np.ix_(pair, pair)]))
    assert sorted(greedy_dpp(kernel, 2)) == list(best) == [0, 2]


def test_dpp_ends_when_nothing_different_is_left():
    assert greedy_dpp(np.ones((4, 4)), 4) == [0]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([3, 1, 2], [1, 0, 0.5]),
        ([2, 2], [1, 1]),
        ([], []),
        ([np.nan, 1, 0], [0, 1, 0]),
        ([-np.inf, 4, 2], None),
    ],
)
def test_scores_are_scaled(scores, expected):
    found = scaled(np.asarray(scores, np.float64))
    assert np.isfinite(found).all()
    if expected is not None:
        np.testing.assert_allclose(found, expected)


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_a_cap_is_kept_wherever_it_can_be(values, most, window, n):
    order = spread(values, most, window, n)
    assert len(order) == len(set(order)) == min(n, len(values))
    left = set(range(len(values)))
    for place, item in enumerate(order):
        recent = [values[other] for other in order[max(0, place - window + 1) : place]]
        fits = {one for one in left if values[one] is None or recent.count(values[one]) < most}
        assert item == min(fits or left), "the best that keeps the rule, or the best there is"
        left.remove(item)


@given(st.integers(0, 8), st.dictionaries(st.integers(1, 12), st.integers(0, 7), max_size=4))
def test_placed_items_stand_where_they_should(size, places):
    distinct = {position: item for position, item in places.items() if item < size}
    distinct = {
        position: item for item, position in {item: position for position, item in distinct.items()}.items()
    }
    result = placed(Candidates.of_rows(np.arange(size)), distinct).rows.tolist()
    assert sorted(result) == list(range(size))
    for position, item in distinct.items():
        if position <= size:
            assert result[position - 1] == item
    others = [item for item in result if item not in distinct.values()]
    assert others == sorted(others)


def answer(world: Any, reranking: dict[str, Any], n: int = 10, **scene: Any) -> list[dict[str, Any]]:
    config = {"sources": {"popular": {"type": "popularity"}}, "reranking": reranking, **scene}
    made = world(config).recommender.answer(Request(user_id="100", n=n, properties=True))
    assert made.payload["degraded"] == []
    return made.payload["items"]


def test_variety_mixes_genres(world):
    plain = [item["properties"]["genres"] for item in answer(world, {}, 4, ranking={"score": "click"})]
    varied = [
        item["properties"]["year"] for item in answer(world, {"v": {"type": "mmr", "relevance": 0.3}}, 4)
    ]
    assert plain
    assert max(varied) - min(varied) > 10, "other times are reached"


def test_a_boost_lifts_items(world):
    items = answer(world, {"old": {"type": "boost", "where": "year < 1962", "factor": 100}}, 3)
    assert [item["item_id"] for item in items] == [1, 0, 59]


def test_pinned_items_become_candidates_and_stand_where_they_should(world):
    scene = {"sources": {"few": {"type": "fixed", "items": [50, 51, 52]}}, "fallback": {}}
    items = answer(world, {"pin": {"type": "pin", "items": {2: 7, 1: "9"}}}, 5, **scene)
    assert [item["item_id"] for item in items] == [9, 7, 52, 51, 50]
    filtered = {**scene, "filters": {"seen": {"type": "seen"}}}
    items = answer(world, {"pin": {"type": "pin", "items": {1: 3}}}, 5, **filtered)
    assert 3 not in [item["item_id"] for item in items], "user 100 has seen it"


def test_slots_are_kept_for_sources(world):
    scene = {
        "sources": {"popular": {"type": "popularity"}, "shelf": {"type": "fixed", "items": [5, 6, 7]}},
        "reranking": {"mix": {"type": "slots", "sources": ["shelf"], "every": 3}},
    }
    items = answer(world, scene.pop("reranking"), 10, **scene)
    assert [item["item_id"] for item in items] == [59, 58, 7, 57, 56, 6, 55, 54, 5, 53]


def test_a_cap_limits_each_value(world):
    items = answer(world, {"cap": {"type": "cap", "column": "genres", "most": 1}}, 6)
    genres = [item["properties"]["genres"] for item in items]
    assert len(set(genres[:4])) == 4, "there are four different values"
    assert [item["item_id"] for item in items[4:]] == [55, 54], "then the best there is"
