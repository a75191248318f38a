"""XAUC against a loop over all pairs, and against the AUC."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation import auc, xauc
from evaluation.metrics.concordance import XAUC
from evaluation.metrics.rows import Rows


def slow_xauc(label: Any, score: Any, weight: Any) -> float:
    won = total = 0.0
    for i in range(len(label)):
        for j in range(i):
            if label[i] == label[j]:
                continue
            pair = weight[i] * weight[j]
            order = np.sign(score[i] - score[j]) * np.sign(label[i] - label[j])
            total += pair
            won += pair * {1: 1.0, 0: 0.5, -1: 0.0}[int(order)]
    return won / total if total else math.nan


rows = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 3.0])),
    min_size=1,
    max_size=40,
)


@given(rows=rows)
@settings(max_examples=150, deadline=None)
def test_matches_a_loop_over_pairs(rows: list[tuple[int, int, float]]) -> None:
    label, score, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    weight[0] = 1.0
    assert xauc(label, score, weight) == pytest.approx(slow_xauc(label, score, weight), nan_ok=True)


def test_is_the_auc_for_labels_of_two_values() -> None:
    generator = np.random.default_rng(0)
    label, score = generator.integers(0, 2, 5000), np.round(generator.random(5000), 2)
    weight = generator.random(5000)
    assert xauc(label, score, weight) == pytest.approx(auc(label, score, weight), rel=1e-12)


def test_edges_are_defined() -> None:
    assert math.isnan(xauc([2.0, 2.0], [0.1, 0.9]))
    assert xauc([1.0, 2.0, 3.0], [5.0, 5.0, 5.0]) == 0.5
    assert xauc([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1.0
    assert xauc([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == 0.0


def test_first_order_resamples_vary_as_the_exact_ones() -> None:
    generator = np.random.default_rng(1)
    label = generator.normal(size=400)
    data = Rows(label, label + generator.normal(size=400), np.ones(400))
    group = np.arange(400) // 2
    weight = generator.multinomial(200, np.full(200, 1 / 200), size=300).T.astype(float)
    fast = XAUC.resampler(data, group, 200)(weight)
    exact = np.array([xauc(label, data.score, weight[group, column]) for column in range(300)])
    assert np.corrcoef(fast, exact)[0, 1] > 0.99
    assert fast.std() == pytest.approx(exact.std(), rel=0.1)
