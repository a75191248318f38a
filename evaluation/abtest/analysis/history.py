"""What past logs say about a future experiment: its size, its duration, and whether its statistics keep their word.

Every unit that did anything in the past period counts as exposed at its first event, to no difference at all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np

from evaluation.abtest.analysis.metric_results import Question
from evaluation.abtest.analysis.sums import AveragedMetric
from evaluation.abtest.analysis.tables import DAY, event_rows, real, to_records
from evaluation.abtest.analysis.units import counts_by_variant, eligible, unit_table
from evaluation.abtest.analysis.values import (
    Values,
    measure_values,
    measures_of,
    metric_parts,
    snapshot,
)
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.hashing import drawer
from evaluation.abtest.schema import ExperimentConfig
from evaluation.abtest.statistics.effects import compare
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.power import Traffic, normal_count
from evaluation.abtest.statistics.ratio_check import sample_ratio_p
from evaluation.abtest.statistics.sequential import SpendingBounds
from evaluation.arrays import FloatArray

TABLE_DAYS = (7, 14, 21, 28)
_EVERYBODY = "everybody"


@dataclass(frozen=True)
class History:
    """Past units and what they did.

    Attributes:
        values: Measures.
        metrics: Goals and secondary metrics that events can tell.
        left_out: Metrics that past events cannot tell, and coverage, which is no mean over units.
    """

    values: Values
    metrics: Mapping[str, AveragedMetric]
    left_out: Sequence[str]


def history_of(
    one: ExperimentConfig,
    questions: Sequence[Question],
    events: Any,
    unit: str,
    *,
    since: float | None = None,
    until: float | None = None,
) -> History:
    """Read past logs as an experiment without a difference.

    Args:
        one: The experiment to plan.
        questions: Its metrics.
        events: Ibis table of events.
        unit: Column of the unit.
        since: First day of the past period, seconds since 1970. Unless given, `cuped_days` after the first event, so
            that there is history.
        until: Its end; the last event unless given.

    Raises:
        ExperimentDataError: No events in the period, or no metric that events can tell.
    """
    metrics = {
        question.name: question.metric
        for question in questions
        if isinstance(question.metric, AveragedMetric)
        and all(measure.exposure is None for measure in measures_of(question.metric))
    }
    if not metrics:
        raise ExperimentDataError(
            "The experiment has no metric of events, so past logs say nothing about it."
        )
    rows = event_rows(events, unit)
    [span] = to_records(rows.aggregate(first=rows["at"].min(), last=rows["at"].max()))
    if span["first"] is None:
        raise ExperimentDataError("The table of events is empty.")
    start = (
        since
        if since is not None
        else span["first"] + min(one.analysis.cuped_days * DAY, (span["last"] - span["first"]) / 2)
    )
    end = until if until is not None else span["last"] + 1e-3
    active = rows.filter((rows["at"] >= start) & (rows["at"] < end))
    table = unit_table(_exposed(active), _EVERYBODY, 1, triggered=False, until=end)
    values = measure_values(
        table, rows, metrics, window=one.analysis.window_days, history_days=one.analysis.cuped_days
    )
    left = [question.name for question in questions if question.name not in metrics]
    return History(values, metrics, left)


def _exposed(active: Any) -> Any:
    first = active.group_by("unit").aggregate(at=active["at"].min())
    empty = {name: ibis.null("string") for name in ("request_id", "attributes")}
    return first.mutate(
        experiment=ibis.literal(_EVERYBODY),
        variant=ibis.literal(_EVERYBODY),
        phase=ibis.literal(1),
        forced=ibis.literal(False),
        could_differ=ibis.literal(True),
        fallback=ibis.literal(False),
        **empty,
    )


def unit_values(history: History) -> dict[str, FloatArray]:
    """Numerator, denominator and both before, of each unit, float64 [4, units]; and "unit", text [units]."""
    wide, end = snapshot(history.values)
    columns: dict[str, Any] = {}
    for place, (name, metric) in enumerate(history.metrics.items()):
        parts = metric_parts(history.values, wide, name, metric)
        inside = eligible(wide, history.values.window_of(metric), end)
        columns |= {
            f"x{place}_{k}": ibis.ifelse(inside, part, real(math.nan)) for k, part in enumerate(parts)
        }
    # In one order always, so that the same seed gives the same splits.
    found = wide.select("unit", **columns).order_by("unit").to_pyarrow()
    result = {
        name: np.stack([found[f"x{place}_{k}"].to_numpy() for k in range(4)])
        for place, name in enumerate(history.metrics)
    }
    result["unit"] = found["unit"].to_numpy(zero_copy_only=False)
    return result


@dataclass(frozen=True)
class PlannedMetric:
    """What a metric needs.

    Attributes:
        name: Metric.
        units: Units in the past period whose window was over.
        value: The metric.
        sd: Standard deviation a unit, after CUPED.
        variance_saved: By CUPED.
        mde: Relative effect asked for; nan if none.
        needed: Units of all arms that show it; nan without one.
        days: Days until they are in; None if more than a year, or without one.
        table: (days, units of all arms, relative effect that is seen).
    """

    name: str
    units: int
    value: float
    sd: float
    variance_saved: float
    mde: float
    needed: float
    days: int | None
    table: Sequence[tuple[int, float, float]]


@dataclass(frozen=True)
class Plan:
    """How large and how long an experiment has to be.

    Attributes:
        metrics: One a metric; the first goal decides.
        traffic: New units a day, of the experiment's share.
        share: Share of traffic.
        inflation: Factor on the size that looking every day costs.
        period: Days of history read.
        left_out: Metrics that past events cannot tell, and coverage, which is no mean over units.
    """

    metrics: Sequence[PlannedMetric]
    traffic: Traffic
    share: float
    inflation: float
    period: int
    left_out: Sequence[str]


def plan(history: History, one: ExperimentConfig, share: float, *, mde: float | None = None) -> Plan:
    """Plan an experiment.

    Args:
        history: Past logs.
        one: The experiment.
        share: Of traffic that it gets.
        mde: Relative effect to see; the configured one unless given.

    Raises:
        ExperimentDataError: No share of traffic, or a metric that is 0 or the same for all units.
    """
    if not 0 < share <= 1:
        raise ExperimentDataError(
            f"The experiment has {share:.0%} of the traffic; give it `percent` or `segments`."
        )
    analysis = one.analysis
    mde = mde if mde is not None else analysis.mde
    table = history.values.table
    by_day = {row["day"]: row["units"] for row in counts_by_variant(table, "day")}
    traffic = Traffic(tuple(share * by_day.get(day, 0) for day in range(table.days)))
    factor = 1.0
    if analysis.method == "group_sequential":
        factor = inflation(analysis.alpha, analysis.power, analysis.spending)
    values = unit_values(history)
    metrics = [
        _planned(name, values[name], one, traffic, factor, mde, history.values.window_of(metric) or 0.0)
        for name, metric in history.metrics.items()
    ]
    return Plan(metrics, traffic, share, factor, table.days, history.left_out)


def _planned(
    name: str,
    parts: FloatArray,
    one: ExperimentConfig,
    traffic: Traffic,
    factor: float,
    mde: float | None,
    window: float,
) -> PlannedMetric:
    known = parts[:, np.isfinite(parts[0])]
    if known.shape[1] < 2:
        raise ExperimentDataError(
            f"Metric {name!r}: fewer than two units have a whole window in the past period; read more days."
        )
    half = np.arange(known.shape[1]) % 2 == 0
    arms = [Moments.of_values(*known[:, side]) for side in (half, ~half)]
    compared = compare(*arms, cuped=history_has_spread(known))
    both = arms[0] + arms[1]
    value = float(both.value())
    variance = float(both.variance()) * (1 - float(compared.variance_saved))
    if not value or not variance > 0 or not math.isfinite(variance):
        raise ExperimentDataError(
            f"Metric {name!r} is {value:g} with variance {variance:g} in the past period, so nothing can be planned: "
            "look whether the events it counts are in the log."
        )
    analysis = one.analysis
    shares = _arm_shares(one)

    def seen(units: float) -> float:
        # Two arms of n c and n t units see effects of (z_alpha + z_power) sd sqrt(1 / n c + 1 / n t).
        return math.sqrt(
            normal_count(1.0, alpha=analysis.alpha, power=analysis.power)
            / 2
            * factor
            * variance
            * shares
            / units
        )

    needed = math.nan
    if mde is not None:
        needed = seen(1.0) ** 2 / (mde * value) ** 2
    days = None if math.isnan(needed) else traffic.days(needed)
    rows = [
        (day, traffic.total(day), seen(traffic.total(day)) / abs(value) if traffic.total(day) else math.nan)
        for day in TABLE_DAYS
    ]
    return PlannedMetric(
        name,
        known.shape[1],
        value,
        math.sqrt(variance),
        float(compared.variance_saved),
        mde if mde is not None else math.nan,
        needed,
        None if days is None else days + math.ceil(window),
        rows,
    )


def history_has_spread(parts: FloatArray) -> bool:
    """Whether the covariate differs between units."""
    return bool(np.ptp(parts[2]) > 0)


def _arm_shares(one: ExperimentConfig) -> float:
    """1 / share of the control + 1 / share of the smallest variant."""
    weights = {name: variant.weight for name, variant in one.variants.items() if variant.weight}
    total = sum(weights.values())
    own = weights.get(one.control, 1)
    smallest = min(weight for name, weight in weights.items() if name != one.control)
    return total / own + total / smallest


def inflation(alpha: float, power: float, rho: float, looks: int = 14) -> float:
    """Factor on the size of a fixed test that keeps its power when someone looks every day."""
    bounds = SpendingBounds([(place + 1) / looks for place in range(looks)], rho)
    return bounds.drift(alpha, power) ** 2 / normal_count(1.0, alpha=alpha, power=power) * 2


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
    """

    runs: int
    alpha: float
    metrics: Sequence[NullMetric]
    ratio_alarms: float


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
    metrics = [_null(name, parts, sides, one.analysis.alpha) for name, parts in values.items()]
    return NullResult(runs, one.analysis.alpha, metrics, float(np.mean(alarms)))


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
