"""Moments of an arm: all that the tests need, additive over days and machines.

Every metric is a ratio of two sums over units, and its covariate, the same metric before the experiment, is one too:
columns NUMERATOR, DENOMINATOR, PRE_NUMERATOR, PRE_DENOMINATOR. A mean is a ratio whose denominator is 1.
"""

from dataclasses import dataclass

import numpy as np

from evaluation.abtest.errors import ExperimentDataError
from evaluation.arrays import FloatArray

COLUMNS = 4
NUMERATOR, DENOMINATOR, PRE_NUMERATOR, PRE_DENOMINATOR = range(COLUMNS)


@dataclass(frozen=True)
class Moments:
    """Moments of one arm, or of an array of arms.

    Attributes:
        count: Number of units, float64 [...].
        mean: Means of the four columns over units, float64 [..., 4].
        cov: Their sample covariances (divided by count - 1), float64 [..., 4, 4].
    """

    count: FloatArray
    mean: FloatArray
    cov: FloatArray

    @classmethod
    def of_values(
        cls,
        numerator: FloatArray,
        denominator: FloatArray | None = None,
        pre_numerator: FloatArray | None = None,
        pre_denominator: FloatArray | None = None,
    ) -> "Moments":
        """From one value a unit.

        Args:
            numerator: float64 [..., units].
            denominator: float64 [..., units]; 1 for each unit if left out.
            pre_numerator: The same before the experiment; 0 if left out, which switches CUPED off.
            pre_denominator: float64 [..., units]; 1 if left out.
        """
        numerator = np.asarray(numerator, dtype=np.float64)
        columns = [
            np.full_like(numerator, default) if given is None else np.asarray(given, dtype=np.float64)
            for given, default in ((denominator, 1.0), (pre_numerator, 0.0), (pre_denominator, 1.0))
        ]
        values = np.stack([numerator, *columns], axis=-2)
        units = values.shape[-1]
        mean = values.mean(axis=-1) if units else np.full(values.shape[:-1], np.nan)
        centred = values - mean[..., None]
        with np.errstate(invalid="ignore", divide="ignore"):
            cov = centred @ np.swapaxes(centred, -1, -2) / np.float64(units - 1)
        return cls(np.full(mean.shape[:-1], float(units)), mean, cov)

    @classmethod
    def of_sums(
        cls, count: FloatArray | float, sums: FloatArray, products: FloatArray, *, checked: bool = True
    ) -> "Moments":
        """From sums over units.

        Args:
            count: Number of units, [...].
            sums: Sums of the four columns, [..., 4].
            products: Sums of products of pairs of columns, [..., 4, 4].
            checked: Refuse sums that contradict each other.

        Raises:
            ExperimentDataError: Sums that no values can have: a negative variance.
        """
        count = np.asarray(count, dtype=np.float64)
        sums, products = np.asarray(sums, dtype=np.float64), np.asarray(products, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums / count[..., None]
            outer = mean[..., :, None] * mean[..., None, :] * count[..., None, None]
            cov = (products - outer) / (count - 1)[..., None, None]
        variances = np.diagonal(cov, axis1=-2, axis2=-1)
        scale = np.diagonal(products, axis1=-2, axis2=-1) / np.maximum(count - 1, 1)[..., None]
        if checked and (variances < -1e-9 * np.maximum(scale, 1e-300)).any():
            raise ExperimentDataError(
                "Sums, sums of squares and counts contradict each other: they give a negative variance. Compute all "
                "of them over the same units."
            )
        # What rounding leaves of a constant column is not a variance.
        constant = np.abs(variances) <= 1e-12 * scale
        keep = ~(constant[..., :, None] | constant[..., None, :])
        return cls(count, mean, np.where(keep | np.isnan(cov), cov, 0.0))

    @classmethod
    def of_mean(cls, count: float, mean: float, variance: float) -> "Moments":
        """From count, mean and sample variance of a mean metric; arrays are fine."""
        shape = np.broadcast(count, mean, variance).shape
        means, cov = np.zeros((*shape, COLUMNS)), np.zeros((*shape, COLUMNS, COLUMNS))
        means[..., NUMERATOR], means[..., DENOMINATOR], means[..., PRE_DENOMINATOR] = mean, 1.0, 1.0
        cov[..., NUMERATOR, NUMERATOR] = variance
        return cls(np.broadcast_to(np.asarray(count, dtype=np.float64), shape), means, cov)

    @classmethod
    def of_proportion(cls, count: float, successes: float) -> "Moments":
        """From counts of a 0/1 metric, with the variance p (1 - p) of the maximum likelihood; arrays are fine."""
        count = np.asarray(count, dtype=np.float64)  # type: ignore[assignment]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.asarray(successes, dtype=np.float64) / count
        return cls.of_mean(count, share, share * (1 - share))  # type: ignore[arg-type]

    def __add__(self, other: "Moments") -> "Moments":
        """Moments of both arms' units together (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        gap = other.mean - self.mean
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (other.count / count)[..., None]
            between = (
                gap[..., :, None] * gap[..., None, :] * (self.count * other.count / count)[..., None, None]
            )
            within = (
                self.cov * (self.count - 1)[..., None, None] + other.cov * (other.count - 1)[..., None, None]
            )
            return Moments(count, self.mean + share * gap, (within + between) / (count - 1)[..., None, None])

    def value(self, *, pre: bool = False) -> FloatArray:
        """The metric: mean of numerators over mean of denominators, [...]; nan where that is undefined."""
        first = PRE_NUMERATOR if pre else NUMERATOR
        with np.errstate(invalid="ignore", divide="ignore"):
            result: FloatArray = self.mean[..., first] / self.mean[..., first + 1]
        return np.where(np.isfinite(result), result, np.nan)

    def gradient(self, *, pre: bool = False) -> FloatArray:
        """Weights of the four columns in the linearised metric, [..., 4] (the delta method)."""
        first = PRE_NUMERATOR if pre else NUMERATOR
        weights = np.zeros(self.mean.shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            weights[..., first] = 1 / self.mean[..., first + 1]
            weights[..., first + 1] = -self.value(pre=pre) / self.mean[..., first + 1]
        return weights

    def covariance(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """Covariance a unit of two linear combinations of the columns, [...]."""
        result: FloatArray = np.einsum("...i,...ij,...j->...", one, self.cov, other)
        return result

    def variance(self) -> FloatArray:
        """Variance a unit of the metric; divide by the count for that of the arm's value."""
        weights = self.gradient()
        return self.covariance(weights, weights)
