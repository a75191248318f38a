"""The effect of a treatment: Welch's test, the delta method for ratios, CUPED, relative effects, non-inferiority.

Sources: Welch (1947); Deng, Knoblich and Lu, "Applying the delta method in metric analytics" (KDD 2018); Deng, Xu,
Kohavi and Walker, "Improving the sensitivity of online controlled experiments by utilizing pre-experiment data" (WSDM
2013). All functions take arrays of experiments.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from evaluation.abtest.statistics.moments import Moments
from evaluation.arrays import FloatArray

Alternative = Literal["two-sided", "greater", "less"]


@dataclass(frozen=True)
class Contrast:
    """An estimated difference with its error.

    Attributes:
        estimate: [...].
        se: Standard error, [...].
        df: Degrees of freedom of the t distribution, [...]; infinite for the normal one.
    """

    estimate: FloatArray
    se: FloatArray
    df: FloatArray

    @property
    def statistic(self) -> FloatArray:
        """Estimate in standard errors; nan where there is no error to measure it by."""
        with np.errstate(invalid="ignore", divide="ignore"):
            result: FloatArray = self.estimate / np.where(self.se > 0, self.se, np.nan)
        return result

    def p_value(self, alternative: Alternative = "two-sided") -> FloatArray:
        """How often a difference at least as large would be seen without any effect."""
        statistic = self.statistic
        if alternative == "two-sided":
            # The tail itself: 1 - cdf would be exactly 0 for what is only rare.
            return np.minimum(1.0, 2 * _cdf(self.df, -np.abs(statistic)))
        return _cdf(self.df, -statistic if alternative == "greater" else statistic)

    def interval(
        self, alpha: float = 0.05, alternative: Alternative = "two-sided"
    ) -> tuple[FloatArray, FloatArray]:
        """The values that the test does not reject at `alpha`."""
        sides = 2 if alternative == "two-sided" else 1
        reach = _quantile(self.df, 1 - alpha / sides) * np.where(self.se > 0, self.se, np.nan)
        infinite = np.full_like(reach, np.inf)
        low = self.estimate - (infinite if alternative == "less" else reach)
        high = self.estimate + (infinite if alternative == "greater" else reach)
        return low, high


def _cdf(df: FloatArray, statistic: FloatArray) -> FloatArray:
    result: FloatArray = np.where(
        np.isinf(df), ndtr(statistic), stdtr(np.where(np.isinf(df), 1.0, df), statistic)
    )
    return result


def _quantile(df: FloatArray, level: float) -> FloatArray:
    result: FloatArray = np.where(np.isinf(df), ndtri(level), stdtrit(np.where(np.isinf(df), 1.0, df), level))
    return result


@dataclass(frozen=True)
class Comparison:
    """Control against treatment.

    Attributes:
        control: The control's value, adjusted if CUPED was used, [...].
        treatment: The treatment's value, [...].
        absolute: treatment - control.
        relative: treatment / control - 1 with the plain delta method: symmetric, may reach below -100%.
        log_ratio: log(treatment / control): its interval, taken back, is the honest relative one.
        theta: Coefficient of the covariate; 0 without CUPED.
        variance_saved: Share of the variance of the difference that CUPED removed.
    """

    control: FloatArray
    treatment: FloatArray
    absolute: Contrast
    relative: Contrast
    log_ratio: Contrast
    theta: FloatArray
    variance_saved: FloatArray

    def relative_interval(
        self, alpha: float = 0.05, alternative: Alternative = "two-sided"
    ) -> tuple[FloatArray, FloatArray]:
        """Interval of treatment / control - 1 on the log scale; nan where a value is not above 0."""
        low, high = self.log_ratio.interval(alpha, alternative)
        return np.expm1(low), np.expm1(high)


def compare(control: Moments, treatment: Moments, *, cuped: bool = False, normal: bool = False) -> Comparison:
    """Compare two arms.

    With CUPED the arms' values are adjusted by theta times the gap between the arm's covariate and that of both arms
    together; theta is the covariance over the variance of the covariate, over the units of both arms.

    Args:
        control: Moments of the control.
        treatment: Moments of the treatment.
        cuped: Whether to use the covariate; where it is constant, theta is 0 and nothing is adjusted.
        normal: Use the normal distribution in place of Student's t.

    Returns:
        The comparison; nan where an arm has fewer than two units or no denominator.
    """
    plain = control.variance() / control.count + treatment.variance() / treatment.count
    theta, centre = _coefficient(control + treatment) if cuped else (np.zeros(control.count.shape), 0.0)
    first, second = _Arm.of(control, theta, centre), _Arm.of(treatment, theta, centre)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = second.value / first.value
        usable = np.where((first.value > 0) & (second.value > 0), 1.0, np.nan)
        nonzero = np.where(first.value != 0, 1.0, np.nan)
        absolute = _welch(second.value - first.value, first, second, 1.0, 1.0, normal)
        relative = _welch(
            (ratio - 1) * nonzero, first, second, ratio / first.value, 1 / first.value, normal, df_of=absolute
        )
        log_ratio = _welch(
            np.log(np.where(ratio > 0, ratio, np.nan)) * usable,
            first,
            second,
            1 / first.value,
            1 / second.value,
            normal,
        )
        saved = 1 - absolute.se**2 / plain
    return Comparison(first.value, second.value, absolute, relative, log_ratio, theta, np.nan_to_num(saved))


@dataclass(frozen=True)
class _Arm:
    value: FloatArray
    variance: FloatArray
    count: FloatArray

    @classmethod
    def of(cls, moments: Moments, theta: FloatArray, centre: FloatArray | float) -> "_Arm":
        weights = moments.gradient()
        value, variance = moments.value(), moments.variance()
        used = np.not_equal(theta, 0)
        if np.any(used):
            pre = np.where(np.expand_dims(used, -1), moments.gradient(pre=True), 0.0)
            shift = np.where(used, moments.value(pre=True) - centre, 0.0)
            value = value - theta * shift
            both = theta**2 * moments.covariance(pre, pre) - 2 * theta * moments.covariance(weights, pre)
            variance = variance + both
        return cls(value, np.maximum(variance, 0.0), moments.count)


def _coefficient(both: Moments) -> tuple[FloatArray, FloatArray]:
    pre = both.gradient(pre=True)
    usable = np.isfinite(pre).all(axis=-1, keepdims=True)
    pre = np.where(usable, pre, 0.0)
    spread = both.covariance(pre, pre)
    with np.errstate(invalid="ignore", divide="ignore"):
        theta = np.where(spread > 0, both.covariance(both.gradient(), pre) / spread, 0.0)
    return np.nan_to_num(theta), both.value(pre=True)


def _welch(
    estimate: FloatArray,
    control: _Arm,
    treatment: _Arm,
    control_weight: FloatArray | float,
    treatment_weight: FloatArray | float,
    normal: bool,
    df_of: Contrast | None = None,
) -> Contrast:
    """A weighted difference of two arms with Welch's degrees of freedom."""
    first = control.variance * np.square(control_weight) / control.count
    second = treatment.variance * np.square(treatment_weight) / treatment.count
    if normal:
        df = np.full(np.shape(first + second), np.inf)
    elif df_of is not None:
        df = df_of.df
    else:
        df = (first + second) ** 2 / (first**2 / (control.count - 1) + second**2 / (treatment.count - 1))
    return Contrast(np.asarray(estimate), np.sqrt(first + second), np.asarray(df))


def non_inferiority(
    control: Moments, treatment: Moments, margin: float, *, higher_is_better: bool = True, cuped: bool = False
) -> Contrast:
    """How far the treatment is from being worse than the control by a share `margin` of it.

    Args:
        control: Moments of the control.
        treatment: Moments of the treatment.
        margin: What is still acceptable, such as 0.02 for 2%.
        higher_is_better: Direction of the metric.
        cuped: Whether to use the covariate.

    Returns:
        The contrast treatment - (1 - margin) control, turned so that above 0 is acceptable: its one-sided "greater"
        p-value shows that the treatment is not worse than the margin, its "less" p-value that it is.
    """
    sign = 1.0 if higher_is_better else -1.0
    theta, centre = _coefficient(control + treatment) if cuped else (np.zeros(control.count.shape), 0.0)
    first, second = _Arm.of(control, theta, centre), _Arm.of(treatment, theta, centre)
    scale = 1 - sign * margin * np.sign(first.value)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _welch(sign * (second.value - scale * first.value), first, second, scale, 1.0, False)
