"""Effects as GrowthBook's statistics engine reports them, for teams that compare the two.

The numbers are ours; what differs is what is said where there is no effect to speak of. We give no number then and say
why. GrowthBook gives an effect of exactly 0 with p = 1 beside an error message, so that its page has something to show;
so does this, with the reason.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from evaluation.abtest.statistics.bayes import posterior
from evaluation.abtest.statistics.effects import Alternative, Comparison, Contrast, compare
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.sequential import always_valid_p, confidence_sequence

Reason = Literal["", "ZERO_NEGATIVE_BASELINE_VARIATION", "ZERO_NEGATIVE_VARIANCE"]
"""GrowthBook's error messages; empty where there is an effect."""


@dataclass(frozen=True)
class GrowthBookEffect:
    """An effect in GrowthBook's terms.

    Attributes:
        expected: The effect.
        stddev: Its standard error.
        ci: Interval.
        p_value: nan in the Bayesian view.
        chance_to_win: nan in the frequentist view.
        risk: Of keeping the control and of choosing the variant; nan in the frequentist view.
        reason: Why the numbers are neutral ones; empty if they are not.
    """

    expected: float
    stddev: float
    ci: tuple[float, float]
    p_value: float = np.nan
    chance_to_win: float = np.nan
    risk: tuple[float, float] = (np.nan, np.nan)
    reason: Reason = ""


def _reason(control: Moments, treatment: Moments) -> Reason:
    """In GrowthBook's order: the baseline first, then the variances."""
    baseline = float(control.value())
    if not np.isfinite(baseline) or baseline == 0:
        return "ZERO_NEGATIVE_BASELINE_VARIATION"
    variances = [float(control.variance()), float(treatment.variance())]
    return "" if all(one > 0 for one in variances) else "ZERO_NEGATIVE_VARIANCE"


def _chosen(compared: Comparison, relative: bool) -> Contrast:
    return compared.relative if relative else compared.absolute


def growthbook_effect(
    control: Moments,
    treatment: Moments,
    *,
    relative: bool = True,
    alpha: float = 0.05,
    cuped: bool = False,
    alternative: Alternative = "two-sided",
    sequential_planned: float | None = None,
) -> GrowthBookEffect:
    """GrowthBook's frequentist result.

    Args:
        control: Moments of the control; made with `Moments.of_sums(..., checked=False)` they may contradict themselves.
        treatment: Moments of the variant.
        relative: Report treatment / control - 1, with the plain delta method.
        alpha: Level.
        cuped: Whether to use the covariate.
        alternative: Side of the test.
        sequential_planned: Its sequential tuning parameter; None for a test at one look.
    """
    reason = _reason(control, treatment)
    if reason:
        return GrowthBookEffect(0.0, 0.0, (0.0, 0.0), p_value=1.0, reason=reason)
    one = _chosen(compare(control, treatment, cuped=cuped), relative)
    if sequential_planned is None:
        low, high = one.interval(alpha, alternative)
        p_value = one.p_value(alternative)
    else:
        count = control.count + treatment.count
        low, high = confidence_sequence(one, count, alpha, sequential_planned)
        p_value = always_valid_p(one, count, alpha, sequential_planned)
    return GrowthBookEffect(
        float(one.estimate), float(one.se), (float(low), float(high)), p_value=float(p_value)
    )


def growthbook_posterior(
    control: Moments,
    treatment: Moments,
    *,
    relative: bool = True,
    alpha: float = 0.05,
    prior: tuple[float, float] = (0.0, np.inf),
    prior_is_relative: bool = True,
    inverse: bool = False,
) -> GrowthBookEffect:
    """GrowthBook's Bayesian result.

    Args:
        control: Moments of the control.
        treatment: Moments of the variant.
        relative: Report treatment / control - 1.
        alpha: Level.
        prior: Mean and variance; an infinite variance is the flat prior.
        prior_is_relative: Whether the prior is one of relative effects.
        inverse: Whether lower is better.
    """
    reason = _reason(control, treatment)
    if reason:
        return GrowthBookEffect(0.0, 0.0, (0.0, 0.0), chance_to_win=0.5, risk=(0.0, 0.0), reason=reason)
    mean, variance = prior
    if prior_is_relative and not relative:
        mean, variance = mean * float(control.value()), variance * float(control.value()) ** 2
    one = posterior(_chosen(compare(control, treatment), relative), mean, variance)
    chance, (keep, choose) = one.chance_to_win, one.risk
    if inverse:
        chance, keep, choose = 1 - chance, choose, keep
    return GrowthBookEffect(one.mean, one.sd, one.interval(alpha), chance_to_win=chance, risk=(keep, choose))
