"""Splits of past users without any difference: do the statistics keep their word on a team's own data?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.abtest.analysis.history import History, history_has_spread, unit_values
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.hashing import drawer
from evaluation.abtest.schema import ExperimentConfig
from evaluation.abtest.statistics.effects import compare
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.ratio_check import sample_ratio_p
from evaluation.arrays import FloatArray


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
    values = unit_values(history)
    units = values.pop("unit")
    if len(units) < 20 or runs < 1:
        raise ExperimentDataError(f"A/A tests need at least 20 units and a run, got {len(units)} and {runs}.")
    draw = drawer(f"aa {seed}")
    hashes = np.fromiter((draw(str(unit)) for unit in units), dtype=np.uint64, count=len(units))
    weights = [one.variants[one.control].weight or 1]
    weights.append(next(v.weight for name, v in one.variants.items() if name != one.control) or 1)
    share = weights[0] / sum(weights)
    sides = [_mixed(hashes, run) < share for run in range(runs)]
    alarms = [sample_ratio_p([int(side.sum()), int((~side).sum())], weights) < 0.001 for side in sides]
    usable = {name: parts for name, parts in values.items() if _differs(parts)}
    if not usable:
        raise ExperimentDataError(
            f"No metric differs between past users, so nothing can be tested: {', '.join(values)}."
        )
    metrics = [_null(name, parts, sides, one.analysis.alpha) for name, parts in usable.items()]
    left = [name for name in values if name not in usable]
    return NullResult(runs, one.analysis.alpha, metrics, float(np.mean(alarms)), left)


def _differs(parts: FloatArray) -> bool:
    """Whether enough units have a value for a test, and not all the same."""
    known = parts[:, np.isfinite(parts[0])]
    return known.shape[1] >= 20 and bool(np.ptp(known[:2], axis=1).max() > 0)


def _mixed(hashes: Any, run: int) -> FloatArray:
    """Uniform numbers in [0, 1): the hash of each unit mixed with the number of the run (SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = hashes + np.uint64((run + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    numbers: FloatArray = (mixed >> np.uint64(11)).astype(np.float64) / 2**53
    return numbers


def _null(name: str, parts: FloatArray, sides: Sequence[Any], alpha: float) -> NullMetric:
    known = np.isfinite(parts[0])
    cuped = history_has_spread(parts[:, known])
    p_values, effects, errors = [], [], []
    for side in sides:
        arms = [Moments.of_values(*parts[:, chosen & known]) for chosen in (side, ~side)]
        absolute = compare(*arms, cuped=cuped).absolute
        p_values.append(float(absolute.p_value()))
        effects.append(float(absolute.estimate))
        errors.append(float(absolute.se))
    rate = float(np.mean(np.array(p_values) < alpha))
    reach = 1.96 * math.sqrt(alpha * (1 - alpha) / len(sides))
    mean_error = float(np.mean(errors))
    ratio = float(np.std(effects)) / mean_error if mean_error > 0 else math.nan
    return NullMetric(name, int(known.sum()), rate, max(alpha - reach, 0.0), alpha + reach, ratio)
