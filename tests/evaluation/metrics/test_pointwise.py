"""Pointwise metrics against scikit-learn, with ties and weights, and their defined edge cases."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evaluation import METRICS, DataError, MetricError
from evaluation.metrics import decisions, pointwise, regression


@st.composite
def binary_data(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities on a coarse grid (so that ties are common) and weights, some of them 0."""
    n = draw(st.integers(2, 40))
    label = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    score = np.array(draw(st.lists(st.integers(0, 8), min_size=n, max_size=n))) / 8
    weight = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.25]), min_size=n, max_size=n)))
    assume(weight.any())
    return label, score, weight


def both_classes(label: np.ndarray, weight: np.ndarray) -> bool:
    return len(np.unique(label[weight > 0])) == 2


# scikit-learn's own log_loss accepts one class only when told the labels; zero_division=nan says what is undefined.
ORACLES: dict[str, Callable[..., float]] = {
    "log_loss": lambda y, p, w: sk.log_loss(y, p, sample_weight=w, labels=[0, 1]),
    "brier": lambda y, p, w: sk.brier_score_loss(y, p, sample_weight=w, labels=[0, 1]),
    "accuracy": lambda y, p, w: sk.accuracy_score(y, p >= 0.5, sample_weight=w),
    "precision": lambda y, p, w: sk.precision_score(y, p >= 0.5, sample_weight=w, zero_division=np.nan),
    "recall": lambda y, p, w: sk.recall_score(y, p >= 0.5, sample_weight=w, zero_division=np.nan),
    "f1": lambda y, p, w: sk.f1_score(y, p >= 0.5, sample_weight=w, zero_division=np.nan),
    "rmse": lambda y, p, w: sk.root_mean_squared_error(y, p, sample_weight=w),
    "mae": lambda y, p, w: sk.mean_absolute_error(y, p, sample_weight=w),
}


@pytest.mark.parametrize("name", sorted(ORACLES))
@given(data=binary_data())
@settings(max_examples=40, deadline=None)
def test_matches_scikit_learn(name: str, data: tuple[Any, Any, Any]) -> None:
    label, score, weight = data
    expected = ORACLES[name](label, score, weight)
    assert METRICS[name].function(label, score, weight) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "oracle"), [("auc", sk.roc_auc_score), ("pr_auc", sk.average_precision_score)]
)
@given(data=binary_data())
@settings(max_examples=60, deadline=None)
def test_order_metrics_match_scikit_learn(name: str, oracle: Any, data: tuple[Any, Any, Any]) -> None:
    label, score, weight = data
    if both_classes(label, weight):
        expected = oracle(label, score, sample_weight=weight)
        assert METRICS[name].function(label, score, weight) == pytest.approx(expected, abs=1e-12)
    elif name == "auc":
        assert math.isnan(pointwise.auc(label, score, weight))


@given(data=binary_data(), shift=st.sampled_from([0.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_r2_matches_scikit_learn_far_from_zero(data: tuple[Any, Any, Any], shift: float) -> None:
    label, score, weight = data
    assume(both_classes(label, weight))
    expected = sk.r2_score(label + shift, score + shift, sample_weight=weight)
    assert regression.r2(label + shift, score + shift, weight) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(data=binary_data())
@settings(max_examples=40, deadline=None)
def test_weights_act_as_repeated_rows(data: tuple[Any, Any, Any]) -> None:
    label, score, weight = data
    times = np.round(weight * 4).astype(int)
    repeated = np.repeat(label, times), np.repeat(score, times)
    for name in [*ORACLES, "auc", "pr_auc", "normalized_entropy", "ece", "r2"]:
        metric = METRICS[name].function
        assert metric(label, score, weight) == pytest.approx(metric(*repeated), nan_ok=True, abs=1e-12), name


def test_ece_equals_the_written_out_formula() -> None:
    generator = np.random.default_rng(3)
    score, weight = generator.random(500), generator.random(500)
    label = (generator.random(500) < score**2).astype(int)
    score[:2] = 0.0, 1.0
    total = 0.0
    for number in range(15):
        low, high = number / 15, (number + 1) / 15
        inside = (score >= low) & ((score < high) | (number == 14))
        gap = abs(
            np.average(score[inside], weights=weight[inside])
            - np.average(label[inside], weights=weight[inside])
        )
        total += weight[inside].sum() / weight.sum() * gap
    assert pointwise.ece(label, score, weight) == pytest.approx(total)


def test_normalized_entropy_of_the_mean_is_one() -> None:
    assert pointwise.normalized_entropy([1, 0, 0, 0], [0.25] * 4) == pytest.approx(1)


def test_multiclass_matches_scikit_learn() -> None:
    generator = np.random.default_rng(5)
    label = np.concatenate((np.arange(4), generator.integers(0, 4, 200)))
    score = np.round(generator.random((204, 4)), 1) + 0.01
    score /= score.sum(axis=1, keepdims=True)
    weight = generator.random(204)
    assert pointwise.log_loss(label, score, weight) == pytest.approx(
        sk.log_loss(label, score, sample_weight=weight)
    )
    assert decisions.accuracy(label, score, weight) == pytest.approx(
        sk.accuracy_score(label, score.argmax(axis=1), sample_weight=weight)
    )
    by_class = [
        sk.roc_auc_score(label == number, score[:, number], sample_weight=weight) for number in range(4)
    ]
    assert pointwise.auc(label, score, weight) == pytest.approx(np.mean(by_class))


def test_multiclass_auc_leaves_out_classes_that_do_not_occur() -> None:
    score = np.array([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.5, 0.4, 0.1]])
    assert pointwise.auc([0, 1, 1], score) == pytest.approx(1.0)
    assert math.isnan(pointwise.auc([1, 1, 1], score))


@pytest.mark.parametrize("label", [[0, 0, 0], [1, 1, 1]])
def test_one_class_is_nan_where_undefined_and_a_number_elsewhere(label: list[int]) -> None:
    score = [0.2, 0.6, 0.9]
    assert math.isnan(pointwise.auc(label, score))
    assert math.isnan(pointwise.normalized_entropy(label, score))
    assert math.isnan(regression.r2(label, score))
    assert math.isfinite(pointwise.log_loss(label, score))
    assert math.isfinite(pointwise.brier(label, score))


def test_constant_scores_are_worth_nothing() -> None:
    assert pointwise.auc([0, 1, 1], [0.3] * 3) == 0.5
    assert pointwise.pr_auc([0, 1, 1], [0.3] * 3) == pytest.approx(2 / 3)


def test_a_confident_mistake_costs_by_the_precision_of_the_score() -> None:
    for kind in (np.float32, np.float64):
        score = np.array([1, 0], dtype=kind)
        assert pointwise.log_loss([0, 0], score) == pytest.approx(sk.log_loss([0, 0], score, labels=[0, 1]))


@pytest.mark.parametrize(
    ("label", "score", "weight", "message"),
    [
        ([0, 1, 1], [0.1, np.nan, np.nan], None, r"score has a missing value \(NaN or null\) in rows 1, 2"),
        ([0, None, 1], [0.1, 0.2, 0.3], None, r"label has a missing value .* in row 1 \(counting from 0\)"),
        ([0, 1, 1], [0.1, np.inf, 0.2], None, "score has an infinite value in row 1"),
        ([0, 1, 2], [0.1, 0.2, 0.3], None, "label of a binary task must be 0 or 1, got 2 in row 2"),
        ([0, 1], [0.1, 0.2, 0.3], None, "score has 3 rows but the label has 2"),
        ([0, 1], [0.1, 0.2], [1, -2], "weight must not be negative, got -2.0 in row 1"),
        ([0, 1], [0.1, 0.2], [0, 0], "weight is zero in every row"),
        (
            [0, 1],
            np.array(["0.1", "high"], dtype=object),
            None,
            "score must hold numbers, got text such as '0.1'",
        ),
        ([0, 1], ["0.1", "0.2"], None, "score must hold numbers, got <U3"),
        ([], [], None, "no rows"),
        ([[0, 1]], [0.1], None, "label must be one value per row"),
    ],
)
def test_bad_rows_are_named(label: Any, score: Any, weight: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        pointwise.auc(label, score, weight)


def test_many_bad_rows_are_counted() -> None:
    with pytest.raises(DataError, match=r"rows 0, 1, 2, 3, 4 and 5 more"):
        pointwise.auc([0] * 10, [np.nan] * 10)


def test_logits_are_refused_where_probabilities_are_needed() -> None:
    with pytest.raises(DataError, match=r"probability in \[0, 1\].*got 2.5 in row 1.*sigmoid"):
        pointwise.log_loss([0, 1], [0.5, 2.5])
    assert pointwise.auc([0, 1], [0.5, 2.5]) == 1


def test_multiclass_scores_must_be_a_distribution() -> None:
    with pytest.raises(DataError, match=r"must sum to 1 .* got 1.5 in row 1"):
        pointwise.log_loss([0, 1], [[0.5, 0.5], [0.7, 0.8]])
    with pytest.raises(DataError, match="class number from 0 to 1, got 2 in row 0"):
        decisions.accuracy([2, 1], [[0.5, 0.5], [0.7, 0.3]])


def test_bins_must_be_positive() -> None:
    with pytest.raises(MetricError, match="bins must be at least 1, got 0"):
        pointwise.ece([0, 1], [0.1, 0.9], bins=0)
