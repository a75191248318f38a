"""Metrics of predicted values: RMSE, MAE, R2 and MAPE, as in scikit-learn."""

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


def mape(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean absolute error relative to the label, over the rows whose label is not 0.

    scikit-learn's, where no label is 0. A row with a label of 0 has no relative error and does not count.

    Args:
        label: Finite values [n].
        score: Predictions [n].
        weight: Row weights [n].

    Returns:
        In [0, inf), 0.1 is ten percent; nan if all labels are 0.

    Raises:
        DataError: See `rows.regression_rows`.
    """
    return MAPE.value(regression_rows(label, score, weight))


def error(rows: Rows) -> FloatArray:
    """Score minus label of each row, float64 [n]."""
    return rows.score.astype(np.float64) - rows.label


def r2_statistic(origin: float | None = None) -> SumStatistic:
    """The statistic behind `r2`.

    Args:
        origin: Squares are summed around it; around 0 they would cancel for labels far from 0. The mean of the rows
            unless given; when blocks of rows are added up it must be the same for all.
    """

    def columns(rows: Rows) -> Iterator[FloatArray]:
        centre = np.average(rows.label, weights=rows.weight) if origin is None else origin
        centred = rows.label - centre
        if origin is None and rows.label.min() == rows.label.max():
            centred = np.zeros_like(centred)
        yield rows.weight * error(rows) ** 2
        yield rows.weight * centred**2
        yield rows.weight * centred
        yield rows.weight

    return SumStatistic(columns, _r2)


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
R2 = r2_statistic()


def _relative_errors(rows: Rows) -> Iterator[FloatArray]:
    counts = rows.label != 0
    yield np.where(counts, rows.weight * np.abs(error(rows)) / np.abs(np.where(counts, rows.label, 1.0)), 0.0)
    yield rows.weight * counts


MAPE = SumStatistic(_relative_errors, lambda sums: ratio(sums[..., 0], sums[..., 1]))
