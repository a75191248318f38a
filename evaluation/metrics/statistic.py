"""How a metric is recomputed cheaply on many resamples of the users.

A statistic prepares, once, what a resample needs; the result is a function of a block of user weights. Most
metrics are a function of a few sums over rows, so a block of resamples is one matrix product
(`SumStatistic`); metrics of the order of scores live in `ordering.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from evaluation.arrays import FloatArray, IntArray, sum_by_code
from evaluation.metrics.rows import Rows

Resampler: TypeAlias = Callable[[FloatArray], FloatArray]
"""Maps weights of the groups [groups, resamples] to the metric of each resample [resamples]."""


class Statistic(Protocol):
    """What a metric offers so that its interval costs less than computing it anew each time."""

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """Prepare for resampling whole groups of rows.

        Args:
            rows: The checked rows [n].
            group: The group (user) of each row, 0 to n_groups - 1 [n].
            n_groups: Number of groups.

        Returns:
            The function from group weights to metric values.
        """


@dataclass(frozen=True)
class SumStatistic:
    """A metric that is a function of sums over rows.

    Attributes:
        columns: Gives the m row vectors [n] to be summed, one after the other (so only one is held at a time).
        finish: Maps sums [..., m] to metric values [...]; nan where undefined, without a warning.
    """

    columns: Callable[[Rows], Iterable[FloatArray]]
    finish: Callable[[FloatArray], FloatArray]

    def value(self, rows: Rows) -> float:
        """The metric of all rows."""
        sums = np.array([column.sum() for column in self.columns(rows)])
        return float(self.finish(sums))

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        sums = np.stack([sum_by_code(column, group, n_groups) for column in self.columns(rows)], axis=1)
        return lambda weight: self.finish(weight.T @ sums)


@dataclass(frozen=True)
class RepeatedStatistic:
    """The fallback for a metric with no faster way: computed anew on reweighted rows for each resample.

    Attributes:
        function: The metric, called as function(label, score, weight).
    """

    function: Callable[..., float]

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        del n_groups

        def draw(weight: FloatArray) -> FloatArray:
            columns = (weight[group, index] * rows.weight for index in range(weight.shape[1]))
            return np.array(
                [
                    self.function(rows.label, rows.score, column) if column.any() else np.nan
                    for column in columns
                ]
            )

        return draw


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """numerator / denominator, nan where the denominator is 0, without a warning."""
    positive = denominator != 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), np.nan)


def mean_of(losses: Callable[[Rows], FloatArray]) -> SumStatistic:
    """The weighted mean of one number per row."""
    return SumStatistic(
        lambda rows: (rows.weight * losses(rows), rows.weight), lambda sums: ratio(sums[..., 0], sums[..., 1])
    )
