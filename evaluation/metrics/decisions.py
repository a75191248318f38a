"""Metrics of decisions: a score at or above the threshold counts as predicted positive."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evaluation.arrays import ArrayLike, BoolArray, FloatArray
from evaluation.metrics.rows import Rows, binary_rows, is_multiclass, multiclass_rows
from evaluation.metrics.statistic import SumStatistic, mean_of, ratio

DEFAULT_THRESHOLD = 0.5


def accuracy(
    label: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
) -> float:
    """Share of rows decided right.

    Args:
        label: 0 or 1 [n], or class numbers.
        score: Scores [n], a row counts as predicted positive at score >= threshold; or [n, classes], the class
            of the highest score counts (the lowest class number among equals).
        weight: Row weights [n].
        threshold: The decision threshold, for scores [n] only.

    Returns:
        In [0, 1].

    Raises:
        DataError: See `rows.binary_rows` and `rows.multiclass_rows`.
    """
    check = multiclass_rows if is_multiclass(score) else binary_rows
    return accuracy_statistic(threshold).value(check(label, score, weight))


def precision(
    label: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
) -> float:
    """Share of positives among the rows with score >= threshold.

    Args:
        label: 0 or 1 [n].
        score: Scores [n].
        weight: Row weights [n].
        threshold: The decision threshold.

    Returns:
        In [0, 1]; nan if no row reaches the threshold.

    Raises:
        DataError: See `rows.binary_rows`.
    """
    return precision_statistic(threshold).value(binary_rows(label, score, weight))


def recall(
    label: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
) -> float:
    """Share of the positives that have score >= threshold.

    Args:
        label: 0 or 1 [n].
        score: Scores [n].
        weight: Row weights [n].
        threshold: The decision threshold.

    Returns:
        In [0, 1]; nan if there is no positive.

    Raises:
        DataError: See `rows.binary_rows`.
    """
    return recall_statistic(threshold).value(binary_rows(label, score, weight))


def f1(
    label: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
) -> float:
    """Harmonic mean of precision and recall at a threshold, 2 TP / (2 TP + FP + FN).

    Args:
        label: 0 or 1 [n].
        score: Scores [n].
        weight: Row weights [n].
        threshold: The decision threshold.

    Returns:
        In [0, 1]; nan if no row is positive and none is predicted so.

    Raises:
        DataError: See `rows.binary_rows`.
    """
    return f1_statistic(threshold).value(binary_rows(label, score, weight))


def accuracy_statistic(threshold: float = DEFAULT_THRESHOLD) -> SumStatistic:
    """The statistic behind `accuracy` for a threshold."""

    def right(rows: Rows) -> FloatArray:
        predicted = np.argmax(rows.score, axis=1) if is_multiclass(rows.score) else rows.score >= threshold
        return np.asarray(predicted == rows.label, dtype=np.float64)

    return mean_of(right)


def precision_statistic(threshold: float = DEFAULT_THRESHOLD) -> SumStatistic:
    """The statistic behind `precision` for a threshold."""
    return SumStatistic(_Confusion(threshold), lambda sums: ratio(sums[..., 0], sums[..., 0] + sums[..., 1]))


def recall_statistic(threshold: float = DEFAULT_THRESHOLD) -> SumStatistic:
    """The statistic behind `recall` for a threshold."""
    return SumStatistic(_Confusion(threshold), lambda sums: ratio(sums[..., 0], sums[..., 0] + sums[..., 2]))


def f1_statistic(threshold: float = DEFAULT_THRESHOLD) -> SumStatistic:
    """The statistic behind `f1` for a threshold."""

    def finish(sums: FloatArray) -> FloatArray:
        return ratio(2 * sums[..., 0], 2 * sums[..., 0] + sums[..., 1] + sums[..., 2])

    return SumStatistic(_Confusion(threshold), finish)


@dataclass(frozen=True)
class _Confusion:
    """Row weights of true positives, false positives and false negatives, each [n]."""

    threshold: float

    def __call__(self, rows: Rows) -> Iterator[FloatArray]:
        chosen: BoolArray = rows.score >= self.threshold
        positive: BoolArray = rows.label == 1
        for cell in (chosen & positive, chosen & ~positive, ~chosen & positive):
            yield rows.weight * cell
