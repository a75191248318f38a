"""What each unit did: measures by day since the start and by age since first exposure, and moments of metrics.

One table of (id, day, age) with a column a measure serves every look, every age and the final numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis
import numpy as np

from evaluation.abtest.analysis.pieces import KEYS, summed, summed_in_pieces
from evaluation.abtest.analysis.sums import AveragedMetric, read_sums, sums_of, weighted
from evaluation.abtest.analysis.tables import DAY, condition_expr, numeric, real, to_records
from evaluation.abtest.analysis.units import UnitTable, eligible
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.metrics import MeanMetric, Measure, MetricConfig, ProportionMetric, RatioMetric
from evaluation.abtest.statistics.moments import COLUMNS, Moments

BEFORE = -1
"""The day, and the age, of what a unit did before its first exposure."""


@dataclass(frozen=True)
class Windowed:
    """A measure within a metric's window: one column of the table of values."""

    measure: Measure
    window_days: float | None


@dataclass
class Values:
    """Measures of units.

    Attributes:
        table: The units they are of.
        columns: Column of each measure.
        daily: Ibis table: id, day, age, one column a measure.
        pieces: The same as tables of some of the units each.
        before: Ibis table: id, the same columns before the first exposure; None without history.
        window: Default window in days.
        caps: Highest value of each capped metric.
    """

    table: UnitTable
    columns: dict[Windowed, str]
    daily: Any
    before: Any
    window: float | None
    caps: dict[str, float] = field(default_factory=dict)
    pieces: list[Any] = field(default_factory=list)

    def window_of(self, metric: MetricConfig) -> float | None:
        """The window of a metric, in days; a measure that ends on a day of its own needs that long."""
        ends = [one.to_day for one in measures_of(metric) if one.to_day is not None]
        return max(ends) if ends else metric.window_days or self.window

    def column(self, measure: Measure, metric: MetricConfig) -> str:
        """The column of a metric's measure."""
        return self.columns[Windowed(measure, self.window_of(metric))]


def measures_of(metric: MetricConfig) -> list[Measure]:
    """The measures that a metric is made of."""
    if isinstance(metric, RatioMetric):
        return [metric.numerator, metric.denominator]
    return [metric.value]


def measure_values(
    table: UnitTable,
    events: Any,
    metrics: Mapping[str, AveragedMetric],
    *,
    window: float | None = None,
    history_days: float = 0.0,
) -> Values:
    """Compute every measure of every unit.

    Args:
        table: Units.
        events: Of `event_rows`; None if all measures are of exposures.
        metrics: What is asked for.
        window: Days after first exposure that count where a metric has no window of its own.
        history_days: Days before the first exposure that make the covariate; 0 for none.

    Raises:
        ExperimentDataError: A column is missing or holds no numbers.
    """
    if events is None:
        _refuse_without_events(metrics)
    values = Values(table, {}, None, None, window)
    for metric in metrics.values():
        for measure in measures_of(metric):
            values.columns.setdefault(Windowed(measure, values.window_of(metric)), f"m{len(values.columns)}")
    parts = [_of_exposures(table, values.columns)]
    if events is not None and any(one.measure.exposure is None for one in values.columns):
        joined = _joined(table, events, values.columns, history_days)
        parts.append(_of_events(table, joined, values.columns))
        for one, column in values.columns.items():
            if one.measure.distinct is not None:
                parts += _of_distinct(table, joined, one, column, list(values.columns.values()))
    names = list(values.columns.values())
    pieces = summed_in_pieces(table, _together(parts, KEYS, names), names)
    values.pieces = [piece.filter(piece.day != BEFORE) for piece in pieces]
    values.daily = _united(values.pieces)
    if len(parts) > 1 and history_days > 0:
        values.before = _united([piece.filter(piece.day == BEFORE).select("id", *names) for piece in pieces])
    for name, metric in metrics.items():
        if isinstance(metric, MeanMetric) and metric.cap is not None:
            values.caps[name] = _cap(values, metric, metric.cap)
    return values


def _refuse_without_events(metrics: Mapping[str, AveragedMetric]) -> None:
    needing = [
        name
        for name, metric in metrics.items()
        if any(measure.exposure is None for measure in measures_of(metric))
    ]
    if needing:
        raise ExperimentDataError(
            f"The metrics {', '.join(needing)} count events, and no events were given: add --events."
        )


def _together(parts: Sequence[Any], keys: list[str], names: list[str]) -> Any:
    return _united([part.select(*keys, *names) for part in parts])


def _united(parts: Sequence[Any]) -> Any:
    return ibis.union(*parts) if len(parts) > 1 else parts[0]


def _joined(table: UnitTable, events: Any, columns: Iterable[Windowed], history_days: float) -> Any:
    measures = [one.measure for one in columns if one.measure.exposure is None]
    types = {name for one in measures for name in one.events}
    near = events.filter((events["at"] < table.until) & (events["at"] >= table.origin - history_days * DAY))
    if all(one.events for one in measures):
        near = near.filter(near.type.isin(sorted(types)))
    units = table.units.select("unit", "id", "first")
    joined = near.inner_join(units, "unit")
    return joined.filter(joined["at"] >= joined.first - history_days * DAY)


def _chosen(rows: Any, measure: Measure, name: str) -> Any:
    chosen = rows.type.isin(measure.events) if measure.events else ibis.literal(True)
    return chosen & condition_expr(rows, measure.where, f"metric {name}") if measure.where else chosen


def _inside(table: UnitTable, rows: Any, one: Windowed) -> Any:
    """Whether a row lies in the measure's days after first exposure."""
    start = rows.first + (one.measure.from_day or 0.0) * DAY
    inside = rows["at"] >= start
    end = one.measure.to_day or one.window_days
    return inside & (rows["at"] < (rows.first + end * DAY if end else ibis.literal(table.closing)))


def _placed(table: UnitTable, rows: Any) -> dict[str, Any]:
    """Day and age of a row, both BEFORE for what came before the first exposure: one number a unit is enough of it."""
    after, before = rows["at"] >= rows.first, ibis.literal(BEFORE, "int32")
    return {
        "day": ibis.ifelse(after, ((rows["at"] - table.origin) / DAY).floor().cast("int32"), before),
        "age": ibis.ifelse(after, ((rows["at"] - rows.first) / DAY).floor().cast("int32"), before),
    }


def _number(rows: Any, measure: Measure) -> Any:
    if measure.sum is not None:
        return numeric(rows, measure.sum, f"A measure of {measure.event!r} events")
    return real(1)


def _of_events(table: UnitTable, joined: Any, columns: Mapping[Windowed, str]) -> Any:
    """What units did, before and after, in one pass over the events."""
    amounts = {}
    for one, column in columns.items():
        if one.measure.exposure is not None or one.measure.distinct is not None:
            amounts[column] = real(0)
            continue
        counts = _inside(table, joined, one) | (joined["at"] < joined.first)
        chosen = _chosen(joined, one.measure, column) & counts
        amounts[column] = ibis.ifelse(chosen, _number(joined, one.measure), real(0))
    return joined.select("id", **_placed(table, joined), **amounts)


def _of_distinct(
    table: UnitTable, joined: Any, one: Windowed, column: str, names: Sequence[str]
) -> list[Any]:
    """Distinct values count on the day on which they first appear, so that days add up."""
    _known(joined, one.measure.distinct or "")
    chosen = joined.filter(_chosen(joined, one.measure, column) & joined[one.measure.distinct].notnull())
    amounts = {**{name: real(0) for name in names}, column: real(1)}
    after = chosen.filter(_inside(table, chosen, one))
    seen = after.group_by("id", one.measure.distinct).aggregate(at=after["at"].min(), first=after.first.min())
    earlier = chosen.filter(chosen["at"] < chosen.first)
    then = earlier.group_by("id", one.measure.distinct).aggregate(
        at=earlier["at"].min(), first=earlier.first.min()
    )
    return [part.select("id", **_placed(table, part), **amounts) for part in (seen, then)]


def _known(rows: Any, name: str) -> None:
    if name not in rows.columns:
        numeric(rows, name, "A measure of distinct values")  # raises, with the nearest name


def _of_exposures(table: UnitTable, columns: Mapping[Windowed, str]) -> Any:
    rows = table.rows
    needed = [one for one in columns if one.measure.exposure is not None]
    amounts = {column: real(0) for column in columns.values()}
    if not needed:
        return table.units.select("id", "day", age=ibis.literal(0, "int32"), **amounts)
    rows = rows.inner_join(table.units.select("unit", "id", "first"), "unit")
    for one in needed:
        name = one.measure.exposure or ""
        value = real(1) if name == "count" else numeric(rows, name, "A measure of exposures")
        chosen = _inside(table, rows, one)
        if one.measure.where:
            chosen = chosen & condition_expr(rows, one.measure.where, f"the measure of {name!r}")
        amounts[columns[one]] = ibis.ifelse(chosen, value, real(0))
    return rows.select("id", **_placed(table, rows), **amounts)


def snapshot(values: Values, day: int | None = None) -> tuple[Any, float]:
    """All units as they stood at the end of a day, with zeros for those that did nothing.

    Args:
        values: Measures.
        day: Days since the start, from 0; the end of the data if None.

    Returns:
        Ibis table of units with columns m0... and, before the experiment, p0...; and its time.
    """
    table = values.table
    end = table.until if day is None else min(table.origin + (day + 1) * DAY, table.until)
    names = list(values.columns.values())
    daily = values.daily if day is None else values.daily.filter(values.daily.day <= day)
    now = daily.group_by("id").aggregate(**{name: daily[name].sum() for name in names})
    units = table.units.filter(table.units.first < end)
    wide = units.left_join(now, "id", rname="{name}_now").drop("id_now")
    pre = {name: f"p{name[1:]}" for name in names}
    if values.before is not None:
        before = values.before.rename({pre[name]: name for name in names})
        wide = wide.left_join(before, "id", rname="{name}_before").drop("id_before")
    else:
        wide = wide.mutate(**{name: real(0) for name in pre.values()})
    filled = {name: ibis.coalesce(wide[name], real(0)) for name in (*names, *pre.values())}
    return wide.mutate(**filled), end


def metric_parts(values: Values, wide: Any, name: str, metric: AveragedMetric, prefix: str = "") -> list[Any]:
    """Numerator, denominator, and both before the experiment, of each unit.

    Args:
        values: Measures.
        wide: A table with their columns m0..., and p0... for before.
        name: Of the metric.
        metric: The metric.
        prefix: Before the name of the columns m0...
    """

    def pair(start: str) -> list[Any]:
        if isinstance(metric, RatioMetric):
            both = (values.column(one, metric) for one in (metric.numerator, metric.denominator))
            return [wide[start + column[1:]] for column in both]
        value = wide[start + values.column(metric.value, metric)[1:]]
        if isinstance(metric, ProportionMetric):
            value = (value > 0).cast("float64")
        elif name in values.caps:
            value = ibis.least(value, real(values.caps[name]))
        return [value, real(1)]

    return [*pair(f"{prefix}m"), *pair("p")]


def moments(
    values: Values, wide: Any, end: float, metrics: Mapping[str, AveragedMetric], by: Sequence[str] = ()
) -> dict[str, dict[tuple[Any, ...], Moments]]:
    """Moments of metrics by variant and further columns, in one pass over the units.

    Args:
        values: Measures.
        wide: Of `snapshot`.
        end: Its time.
        metrics: What is asked for.
        by: Columns beside the variant.

    Returns:
        By metric, then by (variant, *values of `by`).
    """
    keys = ["variant", *by]
    rows = summed_metrics(values, wide, end, metrics, keys)
    return {
        name: {
            tuple(row[key] for key in keys): Moments.of_sums(*read_sums(metric, place, row)) for row in rows
        }
        for place, (name, metric) in enumerate(metrics.items())
    }


def summed_metrics(
    values: Values, wide: Any, end: float, metrics: Mapping[str, AveragedMetric], keys: Sequence[str]
) -> Sequence[dict[str, Any]]:
    """Sums of all metrics by columns of the units, as `read_sums` reads them; metrics by their place."""
    sums: dict[str, Any] = {}
    for place, (name, metric) in enumerate(metrics.items()):
        counted = eligible(wide, values.window_of(metric), end)
        weight = ibis.ifelse(counted, real(1), real(0))
        parts = metric_parts(values, wide, name, metric)
        sums |= sums_of(
            metric,
            place,
            weight.sum(),
            *weighted(weight, parts),
        )
    return to_records(wide.group_by(keys).aggregate(**sums))


def moments_by_age(
    values: Values, metrics: Mapping[str, AveragedMetric], last: int
) -> dict[str, dict[tuple[str, int], Moments]]:
    """Moments of what units did on day 0, 1, ... after their first exposure, without covariates.

    Units count for an age once that day of theirs is over; those that did nothing on it count as 0.
    """
    table, names = values.table, list(values.columns.values())
    done = table.units.mutate(full=((table.closing - table.units.first) / DAY).floor().cast("int32"))
    reached = {
        (row["variant"], row["full"]): row["units"]
        for row in to_records(done.group_by("variant", "full").aggregate(units=done.count()))
    }
    active: dict[str, dict[tuple[Any, ...], Moments]] = {name: {} for name in metrics}
    for piece in values.pieces:
        rows = piece.filter((piece.age <= last) & (piece.age >= 0))
        rows = summed(rows, ["id", "age"], names)
        rows = rows.inner_join(done.select("id", "variant", "full", "first"), "id")
        rows = rows.filter(rows.age < rows.full)
        rows = rows.mutate(**{f"p{name[1:]}": real(0) for name in names})
        for name, by_key in moments(values, rows, float("inf"), metrics, ["age"]).items():
            for key, one in by_key.items():
                active[name][key] = active[name][key] + one if key in active[name] else one
    found: dict[str, dict[tuple[str, int], Moments]] = {}
    for name, by_key in active.items():
        found[name] = {
            (variant, age): _with_idle(
                one,
                sum(
                    count
                    for (which, full), count in reached.items()
                    if which == variant and full is not None and full > age
                ),
                constant=not isinstance(metrics[name], RatioMetric),
            )
            for (variant, age), one in by_key.items()
        }
    return found


def _with_idle(active: Moments, count: int, *, constant: bool) -> Moments:
    """Adds the units that did nothing: zeros, but for the denominators of means, which are 1."""
    idle = count - float(active.count)
    if idle <= 0:
        return active
    mean = np.array([0.0, 1.0 if constant else 0.0, 0.0, 1.0 if constant else 0.0])
    return active + Moments(np.asarray(idle), mean, np.zeros((COLUMNS, COLUMNS)))


def _cap(values: Values, metric: MeanMetric, level: float) -> float:
    """The quantile of a measure over the units of all arms, from which values are cut."""
    wide, _ = snapshot(values)
    column = wide[values.column(metric.value, metric)]
    [row] = to_records(wide.aggregate(cap=column.quantile(level)))
    cap = float(row["cap"] or 0.0)
    # A cap of 0 on a rare value would erase the metric.
    return cap if cap > 0 else float("inf")
