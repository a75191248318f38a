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
from evaluation.abtest.analysis.sums import AveragedMetric, read_sums
from evaluation.abtest.analysis.tables import DAY, event_rows, to_records
from evaluation.abtest.analysis.units import counts_by_variant, unit_table
from evaluation.abtest.analysis.values import Values, measure_values, measures_of, snapshot, summed_metrics
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.hashing import BUCKETS
from evaluation.abtest.schema import ExperimentConfig
from evaluation.abtest.statistics.effects import compare
from evaluation.abtest.statistics.moments import COLUMNS, PRE_NUMERATOR, Moments
from evaluation.abtest.statistics.power import Traffic, normal_count
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


@dataclass(frozen=True)
class BucketSums:
    """A metric summed over the units of each bucket: arms are made of whole buckets, as in the service.

    Attributes:
        count: Units whose window is over, float64 [buckets].
        sums: Of the four columns of `Moments`, float64 [buckets, 4].
        products: Of pairs of them, float64 [buckets, 4, 4].
    """

    count: FloatArray
    sums: FloatArray
    products: FloatArray

    def moments(self, chosen: FloatArray) -> Moments:
        """Moments of arms.

        Args:
            chosen: Which buckets each arm has, 0 or 1, float64 [..., buckets].
        """
        flat = self.products.reshape(len(self.count), -1)
        products = (chosen @ flat).reshape(*chosen.shape[:-1], COLUMNS, COLUMNS)
        return Moments.of_sums(chosen @ self.count, chosen @ self.sums, products)

    @property
    def everybody(self) -> Moments:
        """Moments of all units."""
        return self.moments(np.ones(len(self.count)))


def bucket_sums(history: History) -> tuple[FloatArray, dict[str, BucketSums]]:
    """Units of each bucket, float64 [buckets], and sums by metric; the memory does not grow with the units."""
    wide, end = snapshot(history.values)
    # The remainder of a negative number is negative in SQL.
    wide = wide.mutate(bucket=(wide.unit.hash() % BUCKETS + BUCKETS) % BUCKETS)
    units = np.zeros(BUCKETS)
    for row in to_records(wide.group_by("bucket").aggregate(units=wide.count())):
        units[row["bucket"]] = row["units"]
    rows = summed_metrics(history.values, wide, end, history.metrics, ["bucket"])
    found = {}
    for place, (name, metric) in enumerate(history.metrics.items()):
        one = BucketSums(
            np.zeros(BUCKETS), np.zeros((BUCKETS, COLUMNS)), np.zeros((BUCKETS, COLUMNS, COLUMNS))
        )
        for row in rows:
            bucket = row["bucket"]
            one.count[bucket], one.sums[bucket], one.products[bucket] = read_sums(metric, place, row)
        found[name] = one
    return units, found


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
    if mde is not None and not 0 < mde < math.inf:
        raise ExperimentDataError(f"The effect to see is a share above 0, such as 0.02 for 2%; got {mde:g}.")
    mde = mde if mde is not None else analysis.mde
    table = history.values.table
    by_day = {row["day"]: row["units"] for row in counts_by_variant(table, "day")}
    traffic = Traffic(tuple(share * by_day.get(day, 0) for day in range(table.days)))
    factor = 1.0
    if analysis.method == "group_sequential":
        factor = inflation(analysis.alpha, analysis.power, analysis.spending)
    _, sums = bucket_sums(history)
    metrics, left = [], list(history.left_out)
    for name, metric in history.metrics.items():
        window = history.values.window_of(metric) or 0.0
        try:
            metrics.append(_planned(name, sums[name], one, traffic, factor, mde, window))
        except ExperimentDataError:
            if name in one.metrics.goals:
                raise  # goals decide, so a plan without them would be one of another experiment
            left.append(name)
    if not metrics:
        raise ExperimentDataError(
            f"Past events tell too little of any metric to plan with ({', '.join(left)})."
        )
    return Plan(metrics, traffic, share, factor, table.days, left)


def _planned(
    name: str,
    sums: BucketSums,
    one: ExperimentConfig,
    traffic: Traffic,
    factor: float,
    mde: float | None,
    window: float,
) -> PlannedMetric:
    both = sums.everybody
    if both.count < 2:
        raise ExperimentDataError(
            f"Metric {name!r}: fewer than two units have a whole window in the past period; read more days."
        )
    half = (np.arange(BUCKETS) % 2).astype(np.float64)
    compared = compare(sums.moments(half), sums.moments(1 - half), cuped=has_history(both))
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
        int(both.count),
        value,
        math.sqrt(variance),
        float(compared.variance_saved),
        mde if mde is not None else math.nan,
        needed,
        None if days is None else days + math.ceil(window),
        rows,
    )


def has_history(both: Moments) -> bool:
    """Whether the covariate differs between units."""
    return bool(both.cov[PRE_NUMERATOR, PRE_NUMERATOR] > 0)


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
