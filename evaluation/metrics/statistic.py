"""How a metric is recomputed cheaply on many resamples of the users.

A statistic prepares, once, what a resample needs; the result is a function of a block of user weights. Most
metrics are a function of a few sums over rows, so a block of resamples is one matrix product
(`SumStatistic`); metrics of the order of scores live in `ordering.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeGuard

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


class AdditiveStatistic(Protocol):
    """A metric that is a function of sums over rows, so that blocks of rows can be added up."""

    def sums(self, rows: Rows, group: IntArray, n_groups: int) -> FloatArray:
        """The sums of each group of rows, float64 [groups, m]."""

    def finish(self, sums: FloatArray) -> FloatArray:
        """Metric values [...] from sums [..., m]; nan where undefined, without a warning."""


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

    def sums(self, rows: Rows, group: IntArray, n_groups: int) -> FloatArray:
        """See `AdditiveStatistic.sums`."""
        return np.stack([sum_by_code(column, group, n_groups) for column in self.columns(rows)], axis=1)

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        return resample_sums(self, rows, group, n_groups)


@dataclass(frozen=True)
class BinnedStatistic:
    """A metric that is a function of sums over the rows of each of a fixed number of bins.

    Attributes:
        bins: Number of bins.
        place: Gives the bin of each row, 0 to bins - 1 [n].
        columns: Gives the row vectors [n] to be summed within each bin.
        from_bins: Maps sums [..., m, bins], m the number of columns, to metric values [...].
    """

    bins: int
    place: Callable[[Rows], IntArray]
    columns: Callable[[Rows], Iterable[FloatArray]]
    from_bins: Callable[[FloatArray], FloatArray]

    def value(self, rows: Rows) -> float:
        """The metric of all rows."""
        return float(self.finish(self.sums(rows, np.zeros(len(rows.label), np.int64), 1))[0])

    def sums(self, rows: Rows, group: IntArray, n_groups: int) -> FloatArray:
        """See `AdditiveStatistic.sums`."""
        cell = group * self.bins + self.place(rows)
        parts = [sum_by_code(column, cell, n_groups * self.bins) for column in self.columns(rows)]
        return np.concatenate([part.reshape(n_groups, self.bins) for part in parts], axis=1)

    def finish(self, sums: FloatArray) -> FloatArray:
        """See `AdditiveStatistic.finish`."""
        return self.from_bins(sums.reshape(*sums.shape[:-1], -1, self.bins))

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        return resample_sums(self, rows, group, n_groups)


def is_additive(statistic: object) -> TypeGuard[AdditiveStatistic]:
    """Whether a statistic is a function of sums over rows."""
    return hasattr(statistic, "sums") and hasattr(statistic, "finish")


def resample_sums(statistic: AdditiveStatistic, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
    """The resampler of a statistic that is a function of sums: one matrix product a block of resamples."""
    sums = statistic.sums(rows, group, n_groups)
    return lambda weight: statistic.finish(weight.T @ sums)


PerGroup: TypeAlias = Callable[[Rows, IntArray, int], tuple[FloatArray, FloatArray]]
"""Maps rows, their group and the number of groups to (value of each group, how much it counts), each [groups]; a
group that counts 0 may have any value."""


@dataclass(frozen=True)
class GroupMeanStatistic:
    """A weighted mean over groups of rows (users, sessions) of something computed within each.

    Attributes:
        per_group: Gives the value of each group and how much it counts.
    """

    per_group: PerGroup

    def value(self, rows: Rows, group: IntArray, n_groups: int) -> float:
        """The mean over groups; nan if none counts."""
        values, counts = self.per_group(rows, group, n_groups)
        total = counts.sum()
        return float(np.where(counts > 0, values, 0.0) @ counts / total) if total > 0 else float("nan")

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        return self.resampler_of_units(rows, group, n_groups, np.arange(n_groups), n_groups)

    def resampler_of_units(
        self, rows: Rows, group: IntArray, n_groups: int, unit: IntArray, n_units: int
    ) -> Resampler:
        """As `resampler`, where each group (a session) belongs to one unit (a user) that is drawn as a whole.

        Args:
            rows: The checked rows [n].
            group: The group of each row [n].
            n_groups: Number of groups.
            unit: The unit of each group [groups].
            n_units: Number of units.

        Returns:
            The function from weights of the units to metric values. What is computed within a group does not change
            when it is drawn again, so two sums a unit are enough.
        """
        values, counts = self.per_group(rows, group, n_groups)
        weighted = sum_by_code(np.where(counts > 0, values, 0.0) * counts, unit, n_units)
        total = sum_by_code(counts, unit, n_units)
        return lambda weight: ratio(weighted @ weight, total @ weight)


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
