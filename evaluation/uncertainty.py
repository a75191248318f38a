"""Confidence intervals and comparisons with the user as the unit.

Rows of one user are alike, so resampling rows would make intervals too narrow. All intervals here come from
the percentile bootstrap over whole users (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter
13; the cluster bootstrap): a resample draws users with replacement, and its weights say how often each was drawn.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.arrays import FloatArray
from evaluation.errors import DataError, EvaluationError
from evaluation.seeds import generator

DEFAULT_LEVEL = 0.95
DEFAULT_RESAMPLES = 1000
FEW_RESAMPLES = 200
LONG = 1_000_000
"""Rows beyond which resamples of the order of scores take long: 1,000 of a million rows take about 20 seconds."""
_BLOCK_BYTES = 128 << 20


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval.

    Attributes:
        value: The number on all the data; nan if undefined.
        low: Lower end of the interval; nan if there is none.
        high: Upper end of the interval; nan if there is none.
        level: Share of such intervals that would cover the true value.
        n: Number of independent units (users, or rows where no user is known) behind it.
        note: Why `value` or the interval is missing, or other words a reader needs; else empty.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    level: float = DEFAULT_LEVEL
    n: int = 0
    note: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether both ends are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Estimate":
        """From what `to_dict` gave."""
        value, low, high = (
            math.nan if content[key] is None else float(content[key]) for key in ("value", "low", "high")
        )
        return cls(value, low, high, float(content["level"]), int(content["n"]), str(content["note"]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; a missing number is None."""
        return {
            "value": finite_or_none(self.value),
            "low": finite_or_none(self.low),
            "high": finite_or_none(self.high),
            "level": self.level,
            "n": self.n,
            "note": self.note,
        }

    def __str__(self) -> str:
        """E.g. ``0.7312 [0.7248, 0.7371]``."""
        if math.isnan(self.value):
            return f"undefined ({self.note})" if self.note else "undefined"
        text = f"{self.value:.4f}"
        return f"{text} [{self.low:.4f}, {self.high:.4f}]" if self.has_interval else text


@dataclass(frozen=True)
class PairedDifference:
    """How much one model differs from another on the same users.

    Attributes:
        difference: Mean of (model - reference) over users, with its interval.
        p_value: Two-sided, from the same bootstrap as the interval, so the two agree (up to one resample) on
            whether 0 is excluded. Never below 2 / (resamples + 1); nan without an interval.
        win_rate: Share of users with model > reference.
        loss_rate: Share of users with model < reference; the rest are ties.
    """

    difference: Estimate
    p_value: float
    win_rate: float
    loss_rate: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.difference.has_interval and (self.difference.low > 0 or self.difference.high < 0)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; a missing number is None."""
        return {
            "difference": self.difference.to_dict(),
            "p_value": finite_or_none(self.p_value),
            "win_rate": finite_or_none(self.win_rate),
            "loss_rate": finite_or_none(self.loss_rate),
        }


def finite_or_none(value: float) -> float | None:
    """The number for JSON, which has neither NaN nor infinity."""
    return float(value) if math.isfinite(value) else None


def check_bootstrap(level: float, resamples: int) -> None:
    """Refuse a level outside (0, 1) and too few resamples for its tails."""
    if not 0 < level < 1:
        raise EvaluationError(f"level must be between 0 and 1, e.g. 0.95, got {level}.")
    needed = math.ceil(2 / (1 - level))
    if resamples < needed:
        raise EvaluationError(f"resamples must be at least {needed} for level {level}, got {resamples}.")


def resamples_for(rows: int) -> int:
    """Resamples of a table that nobody chose a number for: fewer where there are many rows."""
    return DEFAULT_RESAMPLES if rows <= LONG else FEW_RESAMPLES


def resample_weights(n_units: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """How often each unit is drawn, in blocks of resamples of bounded memory.

    Args:
        n_units: Number of units U (users).
        resamples: Number of resamples in all.
        seed: Seed; the same numbers give the same draws whatever the block size.

    Yields:
        float64 [U, resamples of the block], whole numbers; each column sums to U.
    """
    random = generator(seed)
    block = max(1, min(resamples, _BLOCK_BYTES // (8 * max(n_units, 1))))
    for start in range(0, resamples, block):
        counts = np.empty((min(block, resamples - start), n_units))
        for row in counts:
            row[:] = np.bincount(random.integers(n_units, size=n_units), minlength=n_units)
        yield np.ascontiguousarray(counts.T)


def centred(draws: FloatArray, value: float) -> FloatArray:
    """Draws shifted so that their median is the value.

    Resampled rows are lumpier than rows: a sum of absolute gaps, or the best of many, comes out too high on them, and a
    number of distinct items too low. The plain percentile interval repeats that shift and may lie beside the value; the
    spread of the draws is right all the same.
    """
    middle = np.nanmedian(draws) if (~np.isnan(draws)).any() else math.nan
    return draws - middle + value


def interval(draws: FloatArray, level: float) -> tuple[float, float]:
    """The percentile interval of bootstrap draws.

    Args:
        draws: float64 [resamples]; resamples where the metric is undefined (nan) are left out.
        level: Confidence level.

    Returns:
        (low, high); nan if more than half of the resamples are undefined.
    """
    defined = draws[~np.isnan(draws)]
    if 2 * len(defined) < len(draws) or not len(defined):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def estimate_from_draws(
    value: float,
    draws: FloatArray,
    *,
    level: float,
    n: int,
    undefined: str = "",
    is_biased: bool = False,
) -> Estimate:
    """Put a value and its bootstrap draws together.

    Args:
        value: The metric on all the data.
        draws: The metric on each resample [resamples].
        level: Confidence level.
        n: Number of units.
        undefined: Why the metric can be nan.
        is_biased: Whether resampling shifts the metric, which is never negative: draws are then `centred`.

    Returns:
        The estimate; without an interval, and a note that says so, if there are fewer than two units.
    """
    if math.isnan(value):
        return Estimate(value, level=level, n=n, note=undefined)
    if n < 2:
        return Estimate(value, level=level, n=n, note="an interval needs at least two users")
    low, high = interval(centred(draws, value) if is_biased else draws, level)
    if is_biased:
        low = max(low, 0.0)
    note = "" if math.isfinite(low) else f"no interval: in most resamples {undefined or 'it is undefined'}"
    return Estimate(value, low, high, level, n, note)


def mean_estimates(
    values: FloatArray,
    *,
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> list[Estimate]:
    """Means over users of several per-user values, all on the same resamples.

    Args:
        values: float64 [U, m], finite.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        m estimates.

    Raises:
        DataError: A value is missing.
        EvaluationError: A bad level or too few resamples for it.
    """
    check_bootstrap(level, resamples)
    means, draws = _mean_draws(values, resamples, seed)
    return [
        estimate_from_draws(float(mean), column, level=level, n=len(values), undefined="there are no users")
        for mean, column in zip(means, draws.T, strict=True)
    ]


def paired_differences(
    model: FloatArray,
    reference: FloatArray,
    *,
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> list[PairedDifference]:
    """Compare two models by several per-user values of the same users.

    Args:
        model: float64 [U, m], finite.
        reference: float64 [U, m], the same users in the same order.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        m differences.

    Raises:
        DataError: Shapes differ or a value is missing.
        EvaluationError: A bad level or too few resamples for it.
    """
    check_bootstrap(level, resamples)
    if model.shape != reference.shape:
        raise DataError(
            f"Paired values must be of the same users, got shapes {model.shape} and {reference.shape}."
        )
    gaps = model - reference
    means, draws = _mean_draws(gaps, resamples, seed)
    return [
        _paired(float(mean), column, gap, level)
        for mean, column, gap in zip(means, draws.T, gaps.T, strict=True)
    ]


def _paired(mean: float, draws: FloatArray, gap: FloatArray, level: float) -> PairedDifference:
    estimate = estimate_from_draws(mean, draws, level=level, n=len(gap), undefined="there are no users")
    shares = (float(np.mean(gap > 0)), float(np.mean(gap < 0))) if len(gap) else (math.nan, math.nan)
    return PairedDifference(
        estimate, bootstrap_p_value(draws) if estimate.has_interval else math.nan, *shares
    )


def bootstrap_p_value(draws: FloatArray) -> float:
    """The two-sided p-value of "no difference" from draws of a difference [resamples]; see `PairedDifference`."""
    return _p_value(draws[~np.isnan(draws)])


def _p_value(draws: FloatArray) -> float:
    # The level at which the percentile interval just touches 0. The observed data counts as one more draw, so
    # that a finite number of draws never claims certainty.
    below, above = int((draws <= 0).sum()), int((draws >= 0).sum())
    return min(1.0, 2 * (min(below, above) + 1) / (len(draws) + 1))


def _mean_draws(values: FloatArray, resamples: int, seed: int) -> tuple[FloatArray, FloatArray]:
    if values.ndim != 2:
        raise DataError(f"Per-user values must have shape [users, metrics], got {values.shape}.")
    if not np.isfinite(values).all():
        raise DataError(f"Per-user values must be finite; {int((~np.isfinite(values)).sum())} are not.")
    if len(values) == 0:
        return np.full(values.shape[1], np.nan), np.full((resamples, values.shape[1]), np.nan)
    blocks = [weight.T @ values / len(values) for weight in resample_weights(len(values), resamples, seed)]
    return values.mean(axis=0), np.concatenate(blocks)
