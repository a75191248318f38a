"""Effects on quantiles, such as the 95th percentile of latency.

The error of a quantile comes from the interval of the share of values below it, whose own error is computed over units,
because values of one unit are alike (Liu, Sun, Varshney and Xu, "Large-scale online experimentation with quantile
metrics", 2019).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from evaluation.abtest.statistics.effects import Contrast

_Z = float(ndtri(0.975))


@dataclass(frozen=True)
class QuantileMoments:
    """A quantile of one arm.

    Attributes:
        value: The sample's quantile.
        low: The quantile at the lower end of the 95% interval of its level.
        high: At the upper end.
        count: Number of independent units, or of values if they are independent.
    """

    value: float
    low: float
    high: float
    count: float

    @property
    def variance(self) -> float:
        """Squared standard error of `value`."""
        return ((self.high - self.low) / (2 * _Z)) ** 2 * (self.count - 1) / self.count


def level_interval(quantile: float, share_se: float) -> tuple[float, float]:
    """Levels whose quantiles bound the 95% interval, given the standard error of the share of values below it."""
    return max(quantile - _Z * share_se, 0.0), min(quantile + _Z * share_se, 1.0)


def compare_quantiles(control: QuantileMoments, treatment: QuantileMoments) -> tuple[Contrast, Contrast]:
    """Absolute difference and log ratio; nan where an arm has too few values."""
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second = np.float64(control.variance), np.float64(treatment.variance)
        df = (first + second) ** 2 / (first**2 / (control.count - 1) + second**2 / (treatment.count - 1))
        absolute = Contrast(
            np.asarray(treatment.value - control.value), np.sqrt(first + second), np.asarray(df)
        )
        usable = control.value > 0 and treatment.value > 0
        logs = np.log(treatment.value / control.value) if usable else np.nan
        relative_se = np.sqrt(
            first / np.float64(control.value) ** 2 + second / np.float64(treatment.value) ** 2
        )
    return absolute, Contrast(np.asarray(logs), relative_se, np.asarray(df))
