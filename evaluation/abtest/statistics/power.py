"""How many units an experiment needs, and what it can see with those it gets."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import nctdtr, ndtr, ndtri, stdtrit

from evaluation.abtest.errors import ExperimentDataError


def mean_power(effect: float, count: float, *, alpha: float = 0.05, ratio: float = 1.0) -> float:
    """Power of the two-sided t-test.

    Args:
        effect: In standard deviations.
        count: Units of the control.
        alpha: Level.
        ratio: Units of the treatment for each of the control.
    """
    df = count * (1 + ratio) - 2
    shift = effect * math.sqrt(count * ratio / (1 + ratio))
    bound = float(stdtrit(df, 1 - alpha / 2))
    upper = 1 - float(nctdtr(df, shift, bound))
    return upper + float(nctdtr(df, shift, -bound))


def mean_count(effect: float, *, alpha: float = 0.05, power: float = 0.8, ratio: float = 1.0) -> float:
    """Units of the control that see an effect of a size, in standard deviations, with a power.

    Raises:
        ExperimentDataError: No effect, which no number of units can show, or a power that is not above alpha.
    """
    _check(effect, alpha, power)
    start = max(2.0, normal_count(effect, alpha=alpha, power=power, ratio=ratio))
    low, high = 2.0, 2 * start + 10
    if mean_power(effect, low, alpha=alpha, ratio=ratio) >= power:
        return low
    return float(
        brentq(
            lambda count: mean_power(effect, count, alpha=alpha, ratio=ratio) - power, low, high, xtol=1e-9
        )
    )


def normal_count(effect: float, *, alpha: float = 0.05, power: float = 0.8, ratio: float = 1.0) -> float:
    """The same with the normal distribution and one tail, in closed form."""
    _check(effect, alpha, power)
    reach = float(-ndtri(alpha / 2) + ndtri(power))
    return (reach / effect) ** 2 * (1 + 1 / ratio)


def detectable_effect(count: float, *, alpha: float = 0.05, power: float = 0.8, ratio: float = 1.0) -> float:
    """The effect, in standard deviations, that is seen with a power: the minimum detectable effect (MDE)."""
    _check(1.0, alpha, power)
    if count < 2 or count * ratio < 2:
        return math.inf
    scale = math.sqrt(count * ratio / (1 + ratio))
    bound = float(-ndtri(alpha / 2))

    def gap(effect: float) -> float:
        return float(ndtr(effect * scale - bound) + ndtr(-effect * scale - bound)) - power

    return float(brentq(gap, 0.0, 10 * (bound + 10) / scale, xtol=1e-14, rtol=1e-12))


def proportion_power(control: float, difference: float, count: float, *, alpha: float = 0.05) -> float:
    """Power of the two-sided test of two rates with `count` units an arm, pooled variance without an effect."""
    null_sd, sd = _rates(control, difference)
    bound = float(-ndtri(alpha / 2)) * null_sd
    reach = abs(difference) * math.sqrt(count)
    return float(ndtr((reach - bound) / sd) + ndtr((-reach - bound) / sd))


def proportion_count(control: float, difference: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Units an arm for two rates (Fleiss, Levin and Paik, 2003, chapter 4)."""
    _check(difference, alpha, power)
    null_sd, sd = _rates(control, difference)
    return ((float(-ndtri(alpha / 2)) * null_sd + float(ndtri(power)) * sd) / difference) ** 2


def _rates(control: float, difference: float) -> tuple[float, float]:
    other = control + difference
    if not (0 <= control <= 1 and 0 <= other <= 1):
        raise ExperimentDataError(f"Rates lie between 0 and 1, got {control:g} and {other:g}.")
    pooled = (control + other) / 2
    return math.sqrt(2 * pooled * (1 - pooled)), math.sqrt(control * (1 - control) + other * (1 - other))


def _check(effect: float, alpha: float, power: float) -> None:
    if not effect or not math.isfinite(effect):
        raise ExperimentDataError(f"The effect to detect must be a number other than 0, got {effect}.")
    if not 0 < alpha < power < 1:
        raise ExperimentDataError(f"0 < alpha < power < 1 is needed, got alpha {alpha} and power {power}.")


@dataclass(frozen=True)
class Traffic:
    """How units come in, from history: those new on each day since the start, both arms together.

    Attributes:
        new_units: Of day 1, 2, ...
    """

    new_units: tuple[float, ...]

    def total(self, days: int) -> float:
        """Units after some days; beyond the known ones, the last week's average goes on."""
        known = sum(self.new_units[:days])
        rest = days - len(self.new_units)
        return known + (rest * float(np.mean(self.new_units[-7:])) if rest > 0 and self.new_units else 0.0)

    def days(self, units: float, limit: int = 365) -> int | None:
        """First day on which that many units are in; None if not within the limit."""
        return next((day for day in range(1, limit + 1) if self.total(day) >= units), None)
