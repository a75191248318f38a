"""Moments of every metric at the end of every day, in one pass over the logs.

What a unit adds to a sum of products on a day is its product at the end of the day less that at the end of the day
before; so the sums of all looks are running totals of one table, however many looks there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ibis
import numpy as np

from evaluation.abtest.analysis.sums import AveragedMetric, changes, read_sums, sums_of
from evaluation.abtest.analysis.tables import DAY, real, to_records
from evaluation.abtest.analysis.values import Values, metric_parts, snapshot
from evaluation.abtest.statistics.moments import COLUMNS, Moments

_OLD = "old_"

Arms = dict[str, Moments]


def moments_by_day(values: Values, metrics: Mapping[str, AveragedMetric]) -> dict[str, list[Arms]]:
    """Moments by metric, day since the start, and variant.

    A metric with a window counts a unit from the day on which its window is over.

    Args:
        values: Measures.
        metrics: What is asked for.

    Returns:
        For each metric one mapping a day; the last one is the end of the data.
    """
    growing = {name: one for name, one in metrics.items() if values.window_of(one) is None}
    windowed = {name: one for name, one in metrics.items() if name not in growing}
    found = (
        _totals(values, [_changes(values, piece) for piece in values.pieces], growing, telescoping=True)
        if growing
        else {}
    )
    for window in sorted({values.window_of(one) or 0.0 for one in windowed.values()}):
        same = {name: one for name, one in windowed.items() if values.window_of(one) == window}
        found |= _totals(values, [_finished(values, window)], same, telescoping=False)
    return {name: found[name] for name in metrics}


def _changes(values: Values, piece: Any) -> Any:
    """A row for each unit and day on which it did something, with its measures after and before that day."""
    names = list(values.columns.values())
    daily = piece.filter(piece.day >= 0)
    daily = daily.group_by("id", "day").aggregate(**{name: daily[name].sum() for name in names})
    upto = ibis.window(group_by="id", order_by="day", preceding=None, following=0)
    each = ibis.window(group_by="id", order_by="day")
    sums = daily.mutate(
        **{f"new_{name}": daily[name].sum().over(upto) for name in names},
        place=ibis.row_number().over(each),
    )
    rows = sums.select(
        "id",
        "day",
        "place",
        **{name: sums[f"new_{name}"] for name in names},
        **{_OLD + name: sums[f"new_{name}"] - sums[name] for name in names},
    )
    rows = rows.inner_join(values.table.units.select("id", "variant"), "id")
    return _with_history(values, rows)


def _finished(values: Values, window: float) -> Any:
    """A row for each unit whose window is over, on the day on which it ended."""
    wide, end = snapshot(values)
    done = wide.filter(wide.first + window * DAY <= end).drop("day")
    ended = ((done.first + window * DAY - values.table.origin) / DAY).ceil().cast("int32") - 1
    return done.mutate(day=ibis.greatest(ended, 0), place=ibis.literal(0))


def _with_history(values: Values, rows: Any) -> Any:
    names = list(values.columns.values())
    before = {name: f"p{name[1:]}" for name in names}
    if values.before is None:
        return rows.mutate(**dict.fromkeys(before.values(), real(0)))
    history = values.before.rename({new: old for old, new in before.items()})
    joined = rows.left_join(history, "id", rname="{name}_before").drop("id_before")
    return joined.mutate(**{name: ibis.coalesce(joined[name], real(0)) for name in before.values()})


def _totals(
    values: Values, pieces: Sequence[Any], metrics: Mapping[str, AveragedMetric], *, telescoping: bool
) -> dict[str, list[Arms]]:
    found = [
        row for rows in pieces for row in to_records(_sums(values, rows, metrics, telescoping=telescoping))
    ]
    return {
        name: _running(found, metric, number, values.table.days)
        for number, (name, metric) in enumerate(metrics.items())
    }


def _sums(values: Values, rows: Any, metrics: Mapping[str, AveragedMetric], *, telescoping: bool) -> Any:
    sums: dict[str, Any] = {}
    is_first = rows.place == 0
    for number, (name, metric) in enumerate(metrics.items()):
        new = metric_parts(values, rows, name, metric)
        old = [real(0)] * COLUMNS
        if telescoping:
            # Before its first day a unit is not counted at all, constant denominators included.
            earlier = metric_parts(values, rows, name, metric, prefix=_OLD)
            old = [ibis.ifelse(is_first, real(0), part) for part in earlier]
        sums |= sums_of(metric, number, is_first.cast("float64").sum(), *changes(new, old))
    return rows.group_by("variant", "day").aggregate(**sums)


def _running(rows: Sequence[Mapping[str, Any]], metric: AveragedMetric, number: int, days: int) -> list[Arms]:
    variants = sorted({row["variant"] for row in rows})
    counts = {name: np.zeros(days) for name in variants}
    sums = {name: np.zeros((days, COLUMNS)) for name in variants}
    products = {name: np.zeros((days, COLUMNS, COLUMNS)) for name in variants}
    for row in rows:
        name, day = row["variant"], min(int(row["day"]), days - 1)
        count, single, both = read_sums(metric, number, row)
        counts[name][day] += count
        sums[name][day] += single
        products[name][day] += both
    totals = {
        name: (counts[name].cumsum(), sums[name].cumsum(axis=0), products[name].cumsum(axis=0))
        for name in variants
    }
    return [
        {
            name: Moments.of_sums(float(count[day]), total[day], product[day])
            for name, (count, total, product) in totals.items()
            if count[day] > 0
        }
        for day in range(days)
    ]
