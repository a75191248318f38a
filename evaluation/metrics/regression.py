"""Metrics of predicted values: RMSE, MAE and R2, as in scikit-learn."""

from collections.abc import Iterator

import numpy as np

from evaluation.arrays import ArrayLike, FloatArray
from evaluation.metrics.rows import Rows, regression_rows
from evaluation.metrics.statistic import SumStatistic, mean_of, ratio


def rmse(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Root of the mean squared error, in the unit of the label.

    Args:
        label: Finite values [n].
        score: Predictions [n].
        weight: Row weights [n].

    Returns:
        In [0, inf).

    Raises:
        DataError: See `rows.regression_rows`.
    """
    return RMSE.value(regression_rows(label, score, weight))


def mae(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean absolute error, in the unit of the label.

    Args:
        label: Finite values [n].
        score: Predictions [n].
        weight: Row weights [n].

    Returns:
        In [0, inf).

    Raises:
        DataError: See `rows.regression_rows`.
    """
    return MAE.value(regression_rows(label, score, weight))


def r2(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Share of the label's variance explained, 1 - squared error / squared deviation from the mean.

    Args:
        label: Finite values [n].
        score: Predictions [n].
        weight: Row weights [n].

    Returns:
        At most 1; 0 for always predicting the mean; nan if the label is constant.

    Raises:
        DataError: See `rows.regression_rows`.
    """
    return R2.value(regression_rows(label, score, weight))


def error(rows: Rows) -> FloatArray:
    """Score minus label of each row, float64 [n]."""
    return rows.score.astype(np.float64) - rows.label


def _r2_columns(rows: Rows) -> Iterator[FloatArray]:
    # The sum of squares is taken around the overall mean: around 0 it would cancel for labels far from 0.
    centred = rows.label - np.average(rows.label, weights=rows.weight)
    if rows.label.min() == rows.label.max():
        centred = np.zeros_like(centred)
    yield rows.weight * error(rows) ** 2
    yield rows.weight * centred**2
    yield rows.weight * centred
    yield rows.weight


def _r2(sums: FloatArray) -> FloatArray:
    error, squares, total, weight = np.moveaxis(sums, -1, 0)
    spread = squares - ratio(total**2, weight)
    # Below rounding of the sum of squares there is no spread left to explain.
    return 1 - ratio(error, np.where(spread > 1e-12 * squares, spread, 0.0))


RMSE = SumStatistic(
    lambda rows: (rows.weight * error(rows) ** 2, rows.weight),
    lambda sums: np.sqrt(ratio(sums[..., 0], sums[..., 1])),
)
MAE = mean_of(lambda rows: np.abs(error(rows)))
R2 = SumStatistic(_r2_columns, _r2)
