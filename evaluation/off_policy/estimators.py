"""Estimators of a policy's value: replay, IPS, clipped IPS, SNIPS, direct method, doubly robust, switch-DR.

Each is a ratio of two sums over rows, or one sum divided by the number of rows, so that its interval is a matrix
product over resampled users. Weights are w = target / propensity, r is the reward, q the predicted reward of the logged
action, v the predicted reward of the new policy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from evaluation.arrays import FloatArray, IntArray, sum_by_code
from evaluation.errors import EvaluationError, did_you_mean
from evaluation.metrics.statistic import ratio
from evaluation.off_policy.logs import LoggedActions
from evaluation.off_policy.result import OffPolicyResult, PolicyEstimate, Support
from evaluation.uncertainty import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    Estimate,
    check_bootstrap,
    estimate_from_draws,
    resample_weights,
)

DEFAULT_CLIP = 10.0
MIN_EFFECTIVE_SHARE = 0.05
"""Below this share of effective rows weighted estimators refuse: a few rows would decide."""
MAX_UNSUPPORTED = 0.0
"""Above this probability of actions that are never logged they refuse too."""

Terms: TypeAlias = tuple[FloatArray, FloatArray]
"""Numerator and denominator of each row [n]; the estimate is sum / sum."""


@dataclass(frozen=True)
class Estimator:
    """One way to estimate.

    Attributes:
        name: Its name.
        terms: Numerator and denominator of each row, from the logs and the clip.
        meaning: What it does, in a few words.
        needs_model: Whether it needs predicted rewards.
        needs_weights: Whether it rests on importance weights and refuses below support.
        needs_deterministic: Whether the new policy must choose one action for certain.
    """

    name: str
    terms: Callable[[LoggedActions, float], Terms]
    meaning: str
    needs_model: bool = False
    needs_weights: bool = True
    needs_deterministic: bool = False


def _ones(logs: LoggedActions) -> FloatArray:
    return np.ones(len(logs))


def _replay(logs: LoggedActions, clip: float) -> Terms:
    """Rows where both policies agree (Li et al., WSDM 2011); unbiased if logging was uniform."""
    agrees = (logs.target == 1).astype(np.float64)
    return agrees * logs.reward, agrees


def _ips(logs: LoggedActions, clip: float) -> Terms:
    """Mean of w r (Horvitz and Thompson, 1952)."""
    return logs.weight * logs.reward, _ones(logs)


def _clipped_ips(logs: LoggedActions, clip: float) -> Terms:
    """Mean of min(w, clip) r (Bottou et al., JMLR 2013): less variance, a bias towards 0 rewards."""
    return np.minimum(logs.weight, clip) * logs.reward, _ones(logs)


def _snips(logs: LoggedActions, clip: float) -> Terms:
    """Sum of w r / sum of w (Swaminathan and Joachims, NeurIPS 2015)."""
    return logs.weight * logs.reward, logs.weight


def _direct(logs: LoggedActions, clip: float) -> Terms:
    """Mean of v: as good as the reward model."""
    return _model(logs)[1], _ones(logs)


def _doubly_robust(logs: LoggedActions, clip: float) -> Terms:
    """Mean of v + w (r - q) (Dudík et al., ICML 2011)."""
    predicted, value = _model(logs)
    return value + logs.weight * (logs.reward - predicted), _ones(logs)


def _switch(logs: LoggedActions, clip: float) -> Terms:
    """As doubly robust where w is at most the clip, elsewhere v alone (Wang et al., ICML 2017)."""
    predicted, value = _model(logs)
    weight = np.where(logs.weight <= clip, logs.weight, 0.0)
    return value + weight * (logs.reward - predicted), _ones(logs)


def _model(logs: LoggedActions) -> tuple[FloatArray, FloatArray]:
    if logs.predicted is None or logs.baseline is None:
        raise EvaluationError("This estimator needs predicted rewards.")
    return logs.predicted, logs.baseline


ESTIMATORS: tuple[Estimator, ...] = (
    Estimator(
        "replay", _replay, "rows where both policies agree", needs_weights=False, needs_deterministic=True
    ),
    Estimator("ips", _ips, "inverse propensity weights"),
    Estimator("clipped_ips", _clipped_ips, "weights cut at the clip, biased low"),
    Estimator("snips", _snips, "self-normalised weights"),
    Estimator("dm", _direct, "reward model alone", needs_model=True, needs_weights=False),
    Estimator("dr", _doubly_robust, "reward model, corrected by weights", needs_model=True),
    Estimator("switch_dr", _switch, "the same, model alone beyond the clip", needs_model=True),
)


def estimate_value(
    logs: LoggedActions,
    estimators: Sequence[str] | None = None,
    *,
    clip: float = DEFAULT_CLIP,
    min_effective_share: float = MIN_EFFECTIVE_SHARE,
    max_unsupported: float = MAX_UNSUPPORTED,
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> OffPolicyResult:
    """Estimate the mean reward of the new policy.

    Args:
        logs: What was logged.
        estimators: Names; by default all that the logs allow: "replay", "ips", "clipped_ips", "snips", "dm", "dr",
            "switch_dr".
        clip: Largest weight of "clipped_ips", and where "switch_dr" turns to the model.
        min_effective_share: Estimators that rest on weights refuse below this share of effective rows.
        max_unsupported: They refuse above this probability of actions that are never logged.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Their seed.

    Returns:
        Estimates with intervals by user, and which were refused and why.

    Raises:
        EvaluationError: An unknown estimator, a clip that is not above 0, or too few resamples.
    """
    check_bootstrap(level, resamples)
    if not clip > 0:
        raise EvaluationError(f"clip must be above 0, got {clip}.")
    known = {one.name: one for one in ESTIMATORS}
    for name in estimators or ():
        if name not in known:
            raise EvaluationError(f"Unknown estimator {name!r}; {did_you_mean(name, known)}")
    chosen = [known[name] for name in estimators] if estimators is not None else list(ESTIMATORS)
    support = support_of(logs)
    refused, computed = {}, []
    for one in chosen:
        reason = _refusal(one, logs, support, min_effective_share, max_unsupported)
        if reason:
            refused[one.name] = reason
        else:
            computed.append(one)
    terms = {one.name: one.terms(logs, clip) for one in computed}
    values = bootstrap_ratios(
        {**terms, "logged": (logs.reward, _ones(logs))}, logs.unit, logs.n_units, level, resamples, seed
    )
    logged = values.pop("logged")
    return OffPolicyResult(
        {one.name: PolicyEstimate(one.name, values[one.name], one.meaning) for one in computed},
        logged,
        support,
        refused,
        level,
        resamples,
        seed,
    )


def support_of(logs: LoggedActions) -> Support:
    """How much the logs say about the new policy."""
    weight = logs.weight
    squares = float(weight @ weight)
    return Support(
        n_rows=len(logs),
        n_units=logs.n_units,
        effective_rows=float(weight.sum()) ** 2 / squares if squares else 0.0,
        max_weight=float(weight.max()),
        mean_weight=float(weight.mean()),
        matched=float((logs.target > 0).mean()),
        unsupported=logs.unsupported,
    )


def _refusal(
    one: Estimator, logs: LoggedActions, support: Support, min_share: float, max_unsupported: float
) -> str:
    if one.needs_model and (logs.predicted is None or logs.baseline is None):
        return "no predicted rewards of the logged actions and of the new policy were given"
    if one.needs_deterministic:
        if not np.isin(logs.target, (0.0, 1.0)).all():
            return "the new policy chooses by chance, and replay is for policies that choose one action for certain"
        return "" if logs.target.any() else "no logged action is one that the new policy takes"
    if not one.needs_weights:
        return ""
    if support.unsupported > max_unsupported:
        return (
            f"the new policy takes actions that are never logged {support.unsupported:.1%} of the time, more than "
            f"{max_unsupported:.0%}"
        )
    if support.share < min_share:
        return (
            f"the logs are worth {support.effective_rows:,.1f} rows of the new policy, {support.share:.1%} of "
            f"{support.n_rows:,}, less than {min_share:.0%}: a few rows would decide"
        )
    return ""


def bootstrap_ratios(
    terms: dict[str, Terms], unit: IntArray, n_units: int, level: float, resamples: int, seed: int
) -> dict[str, Estimate]:
    """Ratios of sums over rows with intervals over units, all on the same resamples.

    Args:
        terms: Numerator and denominator of each row, by name.
        unit: Unit of each row [n].
        n_units: Number of units.
        level: Confidence level.
        resamples: Number of resamples.
        seed: Their seed.

    Returns:
        Estimates by name.
    """
    sums = {
        name: np.stack([sum_by_code(part, unit, n_units) for part in pair], axis=1)
        for name, pair in terms.items()
    }
    drawn: dict[str, list[FloatArray]] = {name: [] for name in terms}
    for weight in resample_weights(n_units, resamples, seed):
        for name, table in sums.items():
            totals = weight.T @ table
            drawn[name].append(ratio(totals[:, 0], totals[:, 1]))
    return {
        name: estimate_from_draws(
            float(ratio(np.asarray(table[:, 0].sum()), np.asarray(table[:, 1].sum()))),
            np.concatenate(drawn[name]),
            level=level,
            n=n_units,
            undefined="no row counts",
        )
        for name, table in sums.items()
    }
