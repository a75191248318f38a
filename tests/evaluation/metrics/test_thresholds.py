"""Decisions at thresholds against scikit-learn and against trying every threshold."""

import math

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation import best_decisions, best_f1, confusion_matrix, decide, macro_f1
from evaluation.metrics.rows import Rows
from evaluation.metrics.thresholds import BEST_F1

cases = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.sampled_from([0.0, 0.5, 2.0])), min_size=1, max_size=30
)


@given(rows=cases)
@settings(max_examples=100, deadline=None)
def test_the_best_threshold_is_found(rows: list[tuple[int, int, float]]) -> None:
    label, score, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    weight[0] = 1.0
    if not (label * weight).any():
        assert math.isnan(best_f1(label, score, weight))
        return
    tried = [
        sk.f1_score(label, score >= at, sample_weight=weight, zero_division=0) for at in np.unique(score)
    ]
    best = best_decisions(label, score, weight)
    assert best.f1 == pytest.approx(max(tried))
    assert best_f1(label, score, weight) == pytest.approx(max(tried))
    assert decide(label, score, weight, threshold=best.threshold).f1 == pytest.approx(max(tried))


def test_counts_and_rates_match_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    label, score, weight = generator.integers(0, 2, 200), generator.random(200), generator.random(200)
    one = decide(label, score, weight, threshold=0.3)
    expected = sk.confusion_matrix(label, score >= 0.3, sample_weight=weight).ravel()
    counts = [one.true_negatives, one.false_positives, one.false_negatives, one.true_positives]
    assert counts == pytest.approx(expected)
    assert one.accuracy == pytest.approx(sk.accuracy_score(label, score >= 0.3, sample_weight=weight))
    assert one.precision == pytest.approx(sk.precision_score(label, score >= 0.3, sample_weight=weight))
    assert one.to_dict()["recall"] == pytest.approx(
        sk.recall_score(label, score >= 0.3, sample_weight=weight)
    )


def test_undefined_rates_are_nan_and_none() -> None:
    one = decide([0, 0], [0.1, 0.2])
    assert math.isnan(one.precision)
    assert math.isnan(one.recall)
    assert one.to_dict()["f1"] is None
    assert best_decisions([0, 0], [0.1, 0.2]).false_positives == 0


def test_multi_class_counts_match_scikit_learn() -> None:
    generator = np.random.default_rng(1)
    label, score, weight = (
        generator.integers(0, 3, 90),
        generator.dirichlet(np.ones(4), 90),
        generator.random(90),
    )
    predicted = score.argmax(axis=1)
    expected = sk.confusion_matrix(label, predicted, sample_weight=weight, labels=range(4))
    np.testing.assert_allclose(confusion_matrix(label, score, weight), expected)
    assert macro_f1(label, score, weight) == pytest.approx(
        sk.f1_score(label, predicted, sample_weight=weight, average="macro", zero_division=0)
    )


def test_a_resample_chooses_its_own_threshold() -> None:
    generator = np.random.default_rng(2)
    score = np.round(generator.random(300), 2)
    rows = Rows((generator.random(300) < score).astype(float), score, np.ones(300))
    weight = generator.integers(0, 3, (300, 5)).astype(float)
    drawn = BEST_F1.resampler(rows, np.arange(300), 300)(weight)
    expected = [best_f1(rows.label, score, weight[:, column]) for column in range(5)]
    assert drawn == pytest.approx(expected)
