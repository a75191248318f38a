"""A Bayesian view of the same effect, for display: a normal posterior, the chance to win, and the risk of choosing."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from evaluation.abtest.statistics.effects import Contrast


@dataclass(frozen=True)
class Posterior:
    """What is believed of an effect after the data.

    Attributes:
        mean: Of the effect.
        sd: Of the effect.
    """

    mean: float
    sd: float

    @property
    def chance_to_win(self) -> float:
        """Probability that the effect is above 0; a half when nothing is known."""
        return float(ndtr(self.mean / self.sd)) if np.isfinite(self.sd) and self.sd > 0 else 0.5

    @property
    def risk(self) -> tuple[float, float]:
        """Expected loss of keeping the control, and of choosing the treatment."""
        if not (np.isfinite(self.sd) and self.sd > 0):
            return 0.0, 0.0
        z = self.mean / self.sd
        density = float(np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))
        gain = self.sd * density + self.mean * float(ndtr(z))
        return gain, gain - self.mean

    def interval(self, alpha: float = 0.05) -> tuple[float, float]:
        """The middle 1 - alpha of the posterior."""
        reach = float(-ndtri(alpha / 2)) * self.sd
        return self.mean - reach, self.mean + reach


def posterior(contrast: Contrast, prior_mean: float = 0.0, prior_variance: float = float("inf")) -> Posterior:
    """Combine one contrast with a normal prior on the effect; an infinite variance is the flat prior."""
    estimate, se = float(contrast.estimate), float(contrast.se)
    if not (np.isfinite(estimate) and se > 0):
        return Posterior(0.0, float("nan"))
    precision = 1 / se**2 + 1 / prior_variance
    return Posterior(
        (estimate / se**2 + prior_mean / prior_variance) / precision, float(np.sqrt(1 / precision))
    )
