"""Statistics of numbers over chunks, in one pass and bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass
class Moments:
    """Count, mean, variance and range, merged chunk by chunk in double precision (Chan, Golub, LeVeque 1979)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean."""
    low: float = np.inf
    high: float = -np.inf

    def update(self, values: Floats) -> None:
        """Takes finite numbers [N] into account."""
        added = len(values)
        if added == 0:
            return
        values = values.astype(np.float64)
        mean = float(values.mean())
        squares = float(np.square(values - mean).sum())
        delta = mean - self.mean
        total = self.count + added
        self.mean += delta * added / total
        self.squares += squares + delta * delta * self.count * added / total
        self.count = total
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))

    @property
    def deviation(self) -> float:
        """Population standard deviation; 0 for a constant."""
        return 0.0 if self.count == 0 or self.low == self.high else float(np.sqrt(self.squares / self.count))


class QuantileSketch:
    """Quantiles of a stream of numbers.

    Exact up to `size` distinct values. Beyond, neighbours are merged until `size` remain, each standing for about the
    same number of rows; every such merge moves a rank by at most rows / (2 size), so with the default size a quantile
    of ten million distinct numbers is off by less than a thousandth in rank. No randomness: the same chunks give the
    same result.

    Args:
        size: How many distinct values are kept between chunks.
    """

    def __init__(self, size: int = 65_536) -> None:
        self.size = size
        self.count = 0
        self._values: list[NDArray[np.float64]] = []
        self._weights: list[NDArray[np.int64]] = []
        self._held = 0

    def update(self, values: Floats) -> None:
        """Takes finite numbers [N] into account."""
        if len(values) == 0:
            return
        distinct, counts = np.unique(values.astype(np.float64), return_counts=True)
        self.count += len(values)
        self._values.append(distinct)
        self._weights.append(counts.astype(np.int64))
        self._held += len(distinct)
        if self._held > 4 * self.size:
            self._compact()

    def _merged(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        values, inverse = np.unique(np.concatenate(self._values), return_inverse=True)
        weights = np.bincount(inverse, weights=np.concatenate(self._weights)).astype(np.int64)
        return values, weights

    def _compact(self) -> None:
        values, weights = self._merged()
        if len(values) > self.size:
            middle = np.cumsum(weights) - weights / 2
            group = np.minimum((middle * self.size / self.count).astype(np.int64), self.size - 1)
            starts = np.flatnonzero(np.diff(group, prepend=-1))
            merged_weights = np.add.reduceat(weights, starts)
            # The value in the middle of a group by rank stands for it.
            ends = np.cumsum(merged_weights)
            at = np.searchsorted(np.cumsum(weights), ends - merged_weights / 2, side="left")
            values, weights = values[at], merged_weights
        self._values, self._weights, self._held = [values], [weights], len(values)

    def boundaries(self, buckets: int) -> list[float]:
        """Values that cut the numbers seen into `buckets` parts of about equal size.

        A bucket holds the numbers from one boundary (included) to the next (not included). Numbers that occur often
        make boundaries coincide; each is given once, so fewer buckets may come out.

        Returns:
            At most `buckets - 1` increasing values, none of them the smallest number seen.
        """
        if self.count == 0:
            return []
        values, weights = self._merged()
        cumulative = np.cumsum(weights)
        ranks = self.count * np.arange(1, buckets) / buckets
        at = np.searchsorted(cumulative, ranks, side="right")
        chosen = np.unique(values[np.minimum(at, len(values) - 1)])
        return [float(value) for value in chosen if value > values[0]]
