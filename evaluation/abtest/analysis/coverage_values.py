"""The share of a catalogue that each arm was shown. Only pairs with rare items leave the database."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ibis
import numpy as np

from evaluation.abtest.analysis.engines import kept
from evaluation.abtest.analysis.metric_results import Question
from evaluation.abtest.analysis.results import NOT_ASKED, NOT_TESTED, Interval, MetricResult
from evaluation.abtest.analysis.tables import DAY, condition_expr, numeric
from evaluation.abtest.analysis.units import UnitTable, counts_by_variant, eligible
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.metrics import CoverageMetric
from evaluation.abtest.statistics.coverage import Shown, compare_coverage, rare_below


@dataclass(frozen=True)
class Coverage:
    """What all arms were shown.

    Attributes:
        arms: By variant.
        catalogue: Items that 100% would be.
        given: Whether the metric names their number; else they are the items shown in any arm.
    """

    arms: Mapping[str, Shown]
    catalogue: int
    given: bool


def coverage_of(
    table: UnitTable, events: Any, name: str, metric: CoverageMetric, default_window: float | None
) -> Coverage:
    """Collect what each arm's units were shown.

    Args:
        table: Units.
        events: Of `event_rows`.
        name: Of the metric.
        metric: What is asked for.
        default_window: Days after first exposure that count unless the metric has a window of its own.

    Raises:
        ExperimentDataError: There are no events, the item's column is missing, or more items were shown than the
            catalogue is said to hold.
    """
    if events is None:
        raise ExperimentDataError(f"The metric {name} counts events, and no events were given: add --events.")
    window = metric.window_days or default_window
    units = table.units.filter(eligible(table.units, window, table.until))
    sizes = {
        row["variant"]: int(row["units"])
        for row in counts_by_variant(replace(table, units=units))
        if row["variant"] is not None
    }
    pairs = kept(_pairs(table, units, events, name, metric, window))
    counted = pairs.group_by("variant", "item").aggregate(units=pairs.count())
    counts = counted.to_pyarrow()
    items = np.unique(counts["item"].to_numpy(zero_copy_only=False).astype(str))
    if metric.catalogue is not None and len(items) > metric.catalogue:
        raise ExperimentDataError(
            f"The metric {name} says `catalogue: {metric.catalogue}`, and units were shown {len(items):,} different "
            f"values of {metric.value.distinct!r}; give the number of items that could be shown."
        )
    smallest = min(sizes.values(), default=0)
    rare = {variant: rare_below(size, smallest) for variant, size in sizes.items()}
    arms = {variant: _arm(pairs, counted, variant, size, rare[variant]) for variant, size in sizes.items()}
    return Coverage(arms, metric.catalogue or len(items), metric.catalogue is not None)


def _pairs(
    table: UnitTable, units: Any, events: Any, name: str, metric: CoverageMetric, window: float | None
) -> Any:
    """Each unit once with each item that it was shown."""
    measure, column = metric.value, metric.value.distinct or ""
    if column not in events.columns:
        numeric(events, column, f"The metric {name}")  # raises, with the nearest name
    rows = events.filter(events.type.isin(measure.events)) if measure.events else events
    rows = rows.filter(rows[column].notnull())
    if measure.where:
        rows = rows.filter(condition_expr(rows, measure.where, f"metric {name}"))
    rows = rows.inner_join(units.select("unit", "id", "first", owner="variant"), "unit")
    end = rows.first + window * DAY if window else ibis.literal(table.closing)
    rows = rows.filter((rows["at"] >= rows.first) & (rows["at"] < end))
    return rows.select("id", variant=rows.owner, item=rows[column].cast("string")).distinct()


def _arm(pairs: Any, counted: Any, variant: str, size: int, rare: float) -> Shown:
    mine = counted.filter(counted.variant == variant)
    frequency = mine.select("item", "units").order_by("item").to_pyarrow()
    few = mine.filter(mine.units < math.ceil(rare) + 1).select("item")
    found = pairs.filter(pairs.variant == variant).inner_join(few, "item").select("id", "item").to_pyarrow()
    names = frequency["item"].to_numpy(zero_copy_only=False).astype(str)
    order = np.argsort(names)
    places = order[np.searchsorted(names[order], found["item"].to_numpy(zero_copy_only=False).astype(str))]
    _, units = np.unique(found["id"].to_numpy(zero_copy_only=False), return_inverse=True)
    return Shown(
        size, frequency["units"].to_numpy().astype(np.int64), units.astype(np.int64), places.astype(np.int64)
    )


def coverage_result(
    question: Question, variant: str, control: str, found: Coverage, alpha: float, few: int
) -> MetricResult:
    """The coverage of one variant beside the control's: an estimate with an interval, and no test.

    Args:
        question: The metric.
        variant: Name of the variant.
        control: Name of the control.
        found: Of `coverage_of`.
        alpha: Level of the interval.
        few: Units of an arm below which nothing is shown.
    """
    nobody = Shown(0, *(np.zeros(0, dtype=np.int64),) * 3)
    first, second = found.arms.get(control, nobody), found.arms.get(variant, nobody)
    total = found.catalogue or math.nan
    result = MetricResult(
        question.name,
        question.role,
        question.metric.better,
        variant,
        first.units,
        second.units,
        len(first.counts) / total if first.units else math.nan,
        len(second.counts) / total if second.units else math.nan,
        Interval(math.nan),
        Interval(math.nan),
        conclusion=NOT_TESTED,
        cuped=NOT_ASKED,
    )
    if not found.catalogue:
        return replace(result, note="no item was shown")
    if min(first.units, second.units) < few:
        return replace(result, note=f"fewer than {few} units in an arm")
    absolute, log_ratio = compare_coverage(first, second, found.catalogue)
    low, high = (float(one) for one in absolute.interval(alpha))
    log_low, log_high = (float(one) for one in log_ratio.interval(alpha))
    return replace(
        result,
        absolute=Interval(float(absolute.estimate), low, high),
        relative=Interval(
            float(np.expm1(log_ratio.estimate)), float(np.expm1(log_low)), float(np.expm1(log_high))
        ),
        note=_note(found, first.units, second.units)
        if float(absolute.se) > 0
        else "no interval: without any one unit the arms were shown the same items",
    )


def _note(found: Coverage, first: int, second: int) -> str:
    whole = "of the catalogue" if found.given else f"of the {found.catalogue:,} items shown in any arm"
    same = "" if first == second else f"; effect at {min(first, second):,} units of each arm"
    return f"whole arm, {whole}{same}; interval by jackknife over units, no test"
