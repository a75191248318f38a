"""Off-policy evaluation of ranked slates under the position-based model.

An item's click depends on the item and on how often its position is looked at, not on the other items. Then each
position is a choice of its own, whose weight is the chance of the item there under the new policy against that under
the logging policy (item-position weights: Li et al., "Offline evaluation of ranking policies with click models", KDD
2018); if examination by position is known, an item may also be weighted by how much it is looked at altogether,
wherever it was shown, which matches far more rows.
"""

from dataclasses import dataclass

import numpy as np

from evaluation.arrays import ArrayLike, FloatArray, IntArray, codes, floats, name_rows
from evaluation.errors import DataError
from evaluation.off_policy.estimators import MIN_EFFECTIVE_SHARE, bootstrap_ratios
from evaluation.off_policy.result import OffPolicyResult, PolicyEstimate, Support
from evaluation.uncertainty import DEFAULT_LEVEL, DEFAULT_RESAMPLES, check_bootstrap


@dataclass(frozen=True)
class LoggedSlates:
    """Slates with a reward and the probabilities of each position. Build it with `of`.

    Attributes:
        reward: float64 [n, k], e.g. clicks by position.
        logging: float64 [n, k]: chance of the shown item at its position under the logging policy; or, with known
            examination, how much it was looked at on average.
        target: float64 [n, k], the same under the new policy.
        unit: int64 [n], user of each slate.
        n_units: Number of users.
        attention: float64 [k], share of each position in all looking; equal shares unless examination is known.
        by_examination: Whether probabilities are summed over positions by examination.
    """

    reward: FloatArray
    logging: FloatArray
    target: FloatArray
    unit: IntArray
    n_units: int
    attention: FloatArray
    by_examination: bool

    @classmethod
    def of(
        cls, reward: ArrayLike, logging: ArrayLike, target: ArrayLike, *, user: ArrayLike | None = None
    ) -> "LoggedSlates":
        """Slates with the chance of each shown item at its own position.

        Args:
            reward: Rewards by position [n, k].
            logging: Chance of the shown item at its position under the logging policy [n, k], above 0.
            target: The same under the new policy [n, k].
            user: User of each slate [n].

        Returns:
            The slates.

        Raises:
            DataError: Shapes differ, values are missing or no probabilities, or a logged chance is 0.
        """
        rewards, shown, wanted = (
            _table(reward, "reward"),
            _table(logging, "logging"),
            _table(target, "target"),
        )
        return _checked(cls, (rewards, shown, wanted), np.ones(rewards.shape[1]), user, by_examination=False)

    @classmethod
    def by_position(
        cls,
        reward: ArrayLike,
        logging: ArrayLike,
        target: ArrayLike,
        examination: ArrayLike,
        *,
        user: ArrayLike | None = None,
    ) -> "LoggedSlates":
        """Slates with the chance of each shown item at every position, and how often positions are looked at.

        Args:
            reward: Rewards by position [n, k].
            logging: Chance of the item shown at position i to be at position j under the logging policy [n, k, k].
            target: The same under the new policy [n, k, k].
            examination: How often each position is looked at [k], above 0; only ratios matter.
            user: User of each slate [n].

        Returns:
            The slates, whose weights are sum_j target_j examination_j / sum_j logging_j examination_j.

        Raises:
            DataError: Shapes differ, values are missing or no probabilities, or an item was not to be looked at.
        """
        rewards, looked = _table(reward, "reward"), floats(examination, "examination")
        if (looked <= 0).any() or len(looked) != rewards.shape[1]:
            raise DataError(
                f"examination must be one number above 0 for each of the {rewards.shape[1]} positions, got {looked}."
            )
        parts = []
        for values, name in ((logging, "logging"), (target, "target")):
            array = np.asarray(values, dtype=np.float64)
            if array.shape != (*rewards.shape, rewards.shape[1]):
                raise DataError(
                    f"{name} must have shape {(*rewards.shape, rewards.shape[1])}, got {array.shape}."
                )
            parts.append(_table(array @ (looked / looked.max()), name))
        return _checked(cls, (rewards, parts[0], parts[1]), looked, user, by_examination=True)


def _checked(
    cls: type[LoggedSlates],
    tables: tuple[FloatArray, FloatArray, FloatArray],
    examination: FloatArray,
    user: ArrayLike | None,
    *,
    by_examination: bool,
) -> LoggedSlates:
    reward, logging, target = tables
    for table, name in ((logging, "logging"), (target, "target")):
        if table.shape != reward.shape:
            raise DataError(f"{name} has shape {table.shape} but reward has {reward.shape}.")
        limit = reward.shape[1] if by_examination else 1.0
        outside = ((table < 0) | (table > limit + 1e-3)).any(axis=1)
        if outside.any():
            raise DataError(f"{name} must be probabilities in [0, 1]; they are not in {name_rows(outside)}.")
    never = (logging <= 0).any(axis=1)
    if never.any():
        raise DataError(
            f"logging must be above 0 for items that were shown, got 0 in {name_rows(never)}: what cannot be shown "
            "cannot be in the log."
        )
    unit, n_units = (np.arange(len(reward)), len(reward)) if user is None else codes(user, "user")
    if len(unit) != len(reward):
        raise DataError(f"user has {len(unit):,} rows but there are {len(reward):,} slates.")
    attention = examination / examination.sum()
    return cls(reward, logging, target, unit, n_units, attention, by_examination)


def _table(values: ArrayLike, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise DataError(f"{name} must have shape [slates, positions], got {array.shape}.")
    missing = ~np.isfinite(array).all(axis=1)
    if missing.any():
        raise DataError(f"{name} has a missing or infinite value in {name_rows(missing)}.")
    return array


def estimate_slate_value(
    slates: LoggedSlates,
    *,
    min_effective_share: float = MIN_EFFECTIVE_SHARE,
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> OffPolicyResult:
    """Estimate the mean reward of a slate (the sum over its positions) of the new policy.

    Args:
        slates: What was logged.
        min_effective_share: Refuse below this share of effective positions.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Their seed.

    Returns:
        "ips" (mean of sum_i w_i r_i) and "snips" (the same, divided by the mean weight of a look), with intervals by
        user.

    Raises:
        EvaluationError: A bad level or too few resamples for it.
    """
    check_bootstrap(level, resamples)
    weight = slates.target / slates.logging
    squares = float((weight**2).sum())
    support = Support(
        n_rows=len(slates.reward),
        n_units=slates.n_units,
        effective_rows=float(weight.sum()) ** 2 / squares / weight.shape[1] if squares else 0.0,
        max_weight=float(weight.max()),
        mean_weight=float(weight.mean()),
        matched=float((slates.target > 0).mean()),
        unsupported=0.0,
    )
    ones = np.ones(len(weight))
    terms = {"logged": (slates.reward.sum(axis=1), ones)}
    refused = {}
    if support.share < min_effective_share:
        reason = (
            f"the logs are worth {support.effective_rows:,.1f} slates of the new policy, {support.share:.1%} of "
            f"{support.n_rows:,}, less than {min_effective_share:.0%}: a few slates would decide"
        )
        refused = {"ips": reason, "snips": reason}
    else:
        earned = (weight * slates.reward).sum(axis=1)
        terms["ips"] = (earned, ones)
        terms["snips"] = (earned, weight @ slates.attention)  # which is 1 in expectation
    values = bootstrap_ratios(terms, slates.unit, slates.n_units, level, resamples, seed)
    kind = "by examination" if slates.by_examination else "by position"
    meanings = {"ips": f"weights of each item {kind}", "snips": "the same, self-normalised"}
    return OffPolicyResult(
        {
            name: PolicyEstimate(name, values[name], meaning)
            for name, meaning in meanings.items()
            if name in values
        },
        values["logged"],
        support,
        refused,
        level,
        resamples,
        seed,
    )
