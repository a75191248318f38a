"""Intervals: the resampled value equals the metric on repeated users, and intervals cover what they should."""

import math
from typing import Any

import numpy as np
import pytest

from evaluation import DataError, EvaluationError
from evaluation.metrics.registry import metrics_of
from evaluation.metrics.rows import Rows
from evaluation.uncertainty import (
    estimate_from_draws,
    interval,
    mean_estimates,
    paired_differences,
    resample_weights,
)


def sample(n_rows: int, n_users: int, seed: int) -> tuple[Rows, np.ndarray]:
    generator = np.random.default_rng(seed)
    score = np.round(generator.random(n_rows), 2)
    label = (generator.random(n_rows) < score).astype(float)
    return Rows(label, score, generator.choice([0.5, 1.0, 2.0], n_rows)), generator.integers(
        0, n_users, n_rows
    )


CASES = [(metric, kind) for kind in ("binary", "regression", "grouped") for metric in metrics_of(kind)]


@pytest.mark.parametrize(("metric", "kind"), CASES, ids=[f"{metric.name}-{kind}" for metric, kind in CASES])
def test_a_resample_equals_the_metric_on_repeated_users(metric: Any, kind: str) -> None:
    rows, group = sample(300, 25, 1)
    weight = np.random.default_rng(2).integers(0, 4, (25, 7)).astype(float)
    draws = metric.statistic.resampler(rows, group, 25)(weight)
    for column, drawn in enumerate(draws):
        # One copy of each user's rows per time it was drawn, each copy a user of its own.
        picked = [(user, copy) for user in range(25) for copy in range(int(weight[user, column]))]
        index = np.concatenate([np.flatnonzero(group == user) for user, _ in picked])
        owner = np.concatenate(
            [np.full((group == user).sum(), place) for place, (user, _) in enumerate(picked)]
        )
        extra = (owner,) if kind == "grouped" else ()
        expected = metric.function(rows.label[index], rows.score[index], *extra, rows.weight[index])
        # XAUC of a resample is known to first order only.
        assert drawn == pytest.approx(expected, rel=0.02 if metric.name == "xauc" else 1e-9, nan_ok=True)


def test_a_multiclass_resample_equals_the_metric_on_repeated_users() -> None:
    generator = np.random.default_rng(8)
    score = generator.dirichlet(np.ones(3), 60)
    label = generator.integers(0, 3, 60).astype(float)
    rows, group = Rows(label, score, np.ones(60)), np.arange(60) // 5
    weight = generator.integers(0, 3, (12, 4)).astype(float)
    for metric in metrics_of("multiclass"):
        assert metric.statistic is not None
        draws = metric.statistic.resampler(rows, group, 12)(weight)
        for column, drawn in enumerate(draws):
            expected = metric.function(label, score, weight[group, column])
            assert drawn == pytest.approx(expected), metric.name


def test_resamples_are_reproducible_and_do_not_depend_on_the_block() -> None:
    whole = np.concatenate(list(resample_weights(50, 40, seed=4)), axis=1)
    again = np.concatenate(list(resample_weights(50, 40, seed=4)), axis=1)
    shorter = np.concatenate(list(resample_weights(50, 10, seed=4)), axis=1)
    np.testing.assert_array_equal(whole, again)
    np.testing.assert_array_equal(whole[:, :10], shorter)
    assert (whole.sum(axis=0) == 50).all()
    assert not np.array_equal(whole, next(resample_weights(50, 40, seed=5)))


def test_the_interval_of_a_mean_agrees_with_the_central_limit() -> None:
    values = np.random.default_rng(0).normal(3, 2, (2000, 1))
    [estimate] = mean_estimates(values, resamples=2000)
    half = 1.96 * values.std() / math.sqrt(2000)
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert estimate.n == 2000


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    generator = np.random.default_rng(7)
    values = generator.exponential(1.0, (60, 300))
    estimates = mean_estimates(values, level=0.9, resamples=400)
    covered = np.mean([one.low <= 1.0 <= one.high for one in estimates])
    assert 0.83 <= covered <= 0.95


def test_a_paired_difference_sees_what_two_intervals_do_not() -> None:
    generator = np.random.default_rng(1)
    base = generator.random((300, 1))
    better = base + generator.normal(0.02, 0.05, (300, 1))
    [gap] = paired_differences(better, base)
    [a], [b] = mean_estimates(better), mean_estimates(base)
    assert a.low < b.high
    assert gap.difference.low > 0
    assert gap.is_significant
    assert gap.p_value < 0.05
    assert gap.win_rate + gap.loss_rate == pytest.approx(1)
    assert gap.win_rate > 0.5


def test_no_difference_has_p_of_one_and_only_ties() -> None:
    values = np.random.default_rng(1).random((20, 1))
    [gap] = paired_differences(values, values)
    assert (gap.difference.value, gap.p_value, gap.win_rate, gap.loss_rate) == (0, 1, 0, 0)
    assert not gap.is_significant


def test_p_values_are_about_uniform_when_models_are_equal() -> None:
    generator = np.random.default_rng(3)
    gaps = paired_differences(
        generator.normal(size=(80, 400)), generator.normal(size=(80, 400)), resamples=400
    )
    assert 0.02 < np.mean([gap.p_value < 0.05 for gap in gaps]) < 0.1


def test_undefined_values_and_resamples_are_said_to_be() -> None:
    assert (
        estimate_from_draws(math.nan, np.zeros(9), level=0.9, n=5, undefined="one class").note == "one class"
    )
    assert (
        estimate_from_draws(0.5, np.zeros(9), level=0.9, n=1).note == "an interval needs at least two users"
    )
    mostly_nan = np.array([math.nan] * 6 + [0.1] * 3)
    estimate = estimate_from_draws(0.5, mostly_nan, level=0.9, n=5, undefined="one class")
    assert not estimate.has_interval
    assert "one class" in estimate.note
    assert interval(np.array([]), 0.95) == pytest.approx((math.nan, math.nan), nan_ok=True)


def test_no_users_are_not_an_error() -> None:
    [estimate] = mean_estimates(np.empty((0, 1)))
    assert math.isnan(estimate.value)
    assert estimate.note == "there are no users"
    assert estimate.to_dict()["value"] is None
    [gap] = paired_differences(np.empty((0, 1)), np.empty((0, 1)))
    assert math.isnan(gap.win_rate)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(EvaluationError, match="level must be between 0 and 1"):
        mean_estimates(np.ones((3, 1)), level=95)
    with pytest.raises(EvaluationError, match="resamples must be at least 40"):
        mean_estimates(np.ones((3, 1)), resamples=10)
    with pytest.raises(DataError, match="must be finite; 1 are not"):
        mean_estimates(np.array([[1.0], [math.nan]]))
    with pytest.raises(DataError, match="same users"):
        paired_differences(np.ones((3, 1)), np.ones((4, 1)))
    with pytest.raises(DataError, match=r"\[users, metrics\]"):
        mean_estimates(np.ones(3))
