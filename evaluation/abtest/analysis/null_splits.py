"""Splits of past users without any difference: do the statistics keep their word on a team's own data?"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.abtest.analysis.history import BucketSums, History, bucket_sums, has_history
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.hashing import BUCKETS
from evaluation.abtest.schema import ExperimentConfig
from evaluation.abtest.statistics.effects import Contrast, compare
from evaluation.abtest.statistics.moments import DENOMINATOR, NUMERATOR, Moments
from evaluation.abtest.statistics.ratio_check import sample_ratio_p
from evaluation.arrays import FloatArray
from evaluation.seeds import generator

_FEWEST = 20
_ALARM = 0.001
_AT_ONCE = 500
"""Runs computed together: 40 MB."""


@dataclass(frozen=True)
class NullMetric:
    """How a metric behaved in splits without a difference.

    Attributes:
        name: Metric.
        units: Units.
        false_positives: Share of splits with p below alpha.
        low: 95% interval of what that share would be if the test kept its word, lower end.
        high: Upper end.
        error_ratio: Standard deviation of the effects over splits against the mean standard error; 1 is right.
    """

    name: str
    units: int
    false_positives: float
    low: float
    high: float
    error_ratio: float

    @property
    def sound(self) -> bool:
        """Whether the false positives are what alpha promises."""
        return self.low <= self.false_positives <= self.high


@dataclass(frozen=True)
class NullResult:
    """Splits of past users without a difference.

    Attributes:
        runs: Number of splits.
        alpha: Level.
        metrics: One a metric.
        ratio_alarms: Share of splits whose sample ratio raises the alarm.
        left_out: Metrics that too few units have, or that are the same for all of them.
    """

    runs: int
    alpha: float
    metrics: Sequence[NullMetric]
    ratio_alarms: float
    left_out: Sequence[str] = ()


def simulate_null(history: History, one: ExperimentConfig, *, runs: int = 1000, seed: int = 0) -> NullResult:
    """A/A tests: split past units again and again and test what cannot be there.

    Args:
        history: Past logs.
        one: The experiment: its weights, level and use of CUPED.
        runs: Number of splits.
        seed: Of the splits.

    Raises:
        ExperimentDataError: Too few units.
    """
    units, sums = bucket_sums(history)
    if units.sum() < _FEWEST or runs < 1:
        raise ExperimentDataError(
            f"A/A tests need at least {_FEWEST} units and a run, got {units.sum():g} and {runs}."
        )
    weights = [one.variants[one.control].weight or 1]
    weights.append(next(v.weight for name, v in one.variants.items() if name != one.control) or 1)
    usable = {name: parts for name, parts in sums.items() if _differs(parts.everybody)}
    if not usable:
        raise ExperimentDataError(
            f"No metric differs between past users, so nothing can be tested: {', '.join(sums)}."
        )
    alarms: list[bool] = []
    found: dict[str, list[Contrast]] = {name: [] for name in usable}
    for sides in _splits(runs, seed, weights[0] / sum(weights)):
        counts = sides @ units
        alarms += [sample_ratio_p([count, units.sum() - count], weights) < _ALARM for count in counts]
        for name, parts in usable.items():
            cuped = has_history(parts.everybody)
            arms = parts.moments(sides), parts.moments(1 - sides)
            found[name].append(compare(*arms, cuped=cuped).absolute)
    metrics = [_null(name, usable[name], contrasts, one.analysis.alpha) for name, contrasts in found.items()]
    left = [name for name in sums if name not in usable]
    return NullResult(runs, one.analysis.alpha, metrics, float(np.mean(alarms)), left)


def _differs(everybody: Moments) -> bool:
    """Whether enough units have a value for a test, and not all the same."""
    variances = np.diagonal(everybody.cov)[[NUMERATOR, DENOMINATOR]]
    return bool(everybody.count >= _FEWEST and variances.max() > 0)


def _splits(runs: int, seed: int, share: float) -> Iterator[FloatArray]:
    """The buckets of the control in each run, 0 or 1, float64 [runs at once, buckets]; as many as in the service."""
    random = generator(seed)
    side = (np.arange(BUCKETS) < round(share * BUCKETS)).astype(np.float64)
    for start in range(0, runs, _AT_ONCE):
        yield random.permuted(np.tile(side, (min(_AT_ONCE, runs - start), 1)), axis=1)


def _null(name: str, parts: BucketSums, contrasts: Sequence[Contrast], alpha: float) -> NullMetric:
    p_values = np.concatenate([one.p_value() for one in contrasts])
    effects = np.concatenate([one.estimate for one in contrasts])
    mean_error = float(np.mean(np.concatenate([one.se for one in contrasts])))
    rate = float(np.mean(p_values < alpha))
    reach = 1.96 * math.sqrt(alpha * (1 - alpha) / len(p_values))
    ratio = float(np.std(effects)) / mean_error if mean_error > 0 else math.nan
    return NullMetric(name, int(parts.count.sum()), rate, max(alpha - reach, 0.0), alpha + reach, ratio)
