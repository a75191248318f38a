"""Metrics by slice: any column or quantiles of it, with intervals, p-values adjusted for their number, and gaps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evaluation.arrays import BoolArray, FloatArray, IntArray
from evaluation.errors import DataError, EvaluationError
from evaluation.metrics.metric import MetricAtK
from evaluation.metrics.registry import parse_metric
from evaluation.multiplicity import benjamini_hochberg
from evaluation.plans import Plan, TaskColumns
from evaluation.predictions import Duplicates, default_tasks, plan_tasks, without_duplicates
from evaluation.slice_result import FEWEST_UNITS, SLICE_RESAMPLES, Slice, SliceResult
from evaluation.streaming import STREAMED_ROWS, rows_in_file
from evaluation.tables import Column, Predictions, read_columns
from evaluation.uncertainty import (
    DEFAULT_LEVEL,
    Estimate,
    bootstrap_p_value,
    check_bootstrap,
    estimate_from_draws,
    resample_weights,
)

_MISSING = "missing"
_OTHER = "all others"
_MOST_VALUES = 20
_TWO = 2
_MAIN_METRIC = {"binary": "auc", "regression": "rmse", "multiclass": "accuracy"}


def evaluate_slices(
    predictions: Predictions,
    by: Sequence[str],
    *,
    tasks: Mapping[str, TaskColumns] | None = None,
    task: str | None = None,
    metric: str | None = None,
    user: str | None = None,
    session: str | None = None,
    weight: str | None = None,
    item: str | None = None,
    duplicates: Duplicates = "keep",
    level: float = DEFAULT_LEVEL,
    resamples: int = SLICE_RESAMPLES,
    seed: int = 0,
) -> SliceResult:
    """One metric within each slice of the rows.

    Args:
        predictions: The table, as for `evaluate`.
        by: Columns that cut: "country" by its values (the most frequent 20, the rest together), "price:4" by quarters.
        tasks: Columns by task name, as for `evaluate`.
        task: Which of them; may be left out if there is one.
        metric: The metric; by default AUC, RMSE or accuracy.
        user: Column of users.
        session: Column of sessions.
        weight: Column of row weights.
        item: Column of items; needed where `duplicates` are not kept.
        duplicates: What becomes of rows with the same user and item, as for `evaluate`.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Their seed.

    Returns:
        The metric by slice. A slice in which it is undefined is listed without a value.

    Raises:
        DataError: A column is missing, or one that is cut by quantiles holds no numbers.
        EvaluationError: No columns, several tasks and none chosen, or too few resamples.
        MetricError: See `evaluate`.
    """
    check_bootstrap(level, resamples)
    if isinstance(predictions, str | Path) and rows_in_file(predictions) > STREAMED_ROWS:
        raise EvaluationError(
            f"{predictions} has more than {STREAMED_ROWS:,} rows, too many to slice at once; slice a sample of them."
        )
    if isinstance(by, str) or not by:
        raise EvaluationError(f"by must be a list of columns that is not empty, got {by!r}.")
    known = dict(tasks) if tasks is not None else default_tasks(predictions)
    name = task if task is not None else next(iter(known))
    if name not in known or (task is None and len(known) > 1):
        raise EvaluationError(f"Say which task is sliced with task=: {', '.join(known)}.")
    chosen = known[name]
    column = parse_metric(metric or _MAIN_METRIC[chosen.type])
    cuts = [_parse_cut(text) for text in by]
    needed = [chosen.label, *chosen.score_columns, *(one for one, _ in cuts)]
    columns = read_columns(
        predictions, [*needed, *(one for one in (user, session, weight, item) if one is not None)]
    )
    columns, _ = without_duplicates(columns, user, item, duplicates)
    plans, unit, units = plan_tasks(
        columns,
        {name: chosen},
        user=user,
        session=session,
        weight=weight,
        metrics=[column.name],
        seed=seed,
    )
    cutter = _Cutter(
        plans[name], column, unit, units.n_drawn, list(resample_weights(units.n_drawn, resamples, seed))
    )
    groups = {text: slices_of(columns[one], one, parts) for text, (one, parts) in zip(by, cuts, strict=True)}
    overall = cutter.draw(np.ones(len(unit), dtype=bool))
    drawn = {
        (one, value): (rows, cutter.draw(rows))
        for (one, _), values in zip(cuts, groups.values(), strict=True)
        for value, rows in values.items()
    }
    slices = []
    for (one, value), (rows, (estimate, draws)) in drawn.items():
        gap = draws - overall[1]
        difference = estimate_from_draws(
            estimate - overall[0], gap, level=level, n=units.n, undefined=column.metric.undefined
        )
        slices.append(
            Slice(
                one,
                value,
                int(rows.sum()),
                len(np.unique(unit[rows])),
                cutter.estimate(estimate, draws, level),
                difference,
                bootstrap_p_value(gap) if difference.has_interval else float("nan"),
            )
        )
    return SliceResult(
        name,
        column.name,
        cutter.estimate(*overall, level),
        adjusted_slices(slices),
        gaps_of_columns({key: found for key, (_, found) in drawn.items()}, slices, level, units.n),
        level,
        resamples,
        units.name,
    )


class _Cutter:
    """Computes the metric of parts of the rows on the same resamples."""

    def __init__(
        self, plan: Plan, column: MetricAtK, unit: IntArray, n_units: int, weights: list[FloatArray]
    ) -> None:
        self._plan, self._column = plan, column
        self._unit, self._n_units = unit, n_units
        self._weights = weights

    def draw(self, rows: BoolArray) -> tuple[float, FloatArray]:
        """(value, draws [resamples]) of some of the rows; nan where undefined."""
        part = self._plan.take(rows)
        if not part.rows.weight.any():
            return float("nan"), np.full(sum(weight.shape[1] for weight in self._weights), np.nan)
        resampler = part.resampler(self._column, self._unit[rows], self._n_units)
        return part.value(self._column), np.concatenate([resampler(weight) for weight in self._weights])

    def estimate(self, value: float, draws: FloatArray, level: float) -> Estimate:
        """The estimate of a part."""
        metric = self._column.metric
        return estimate_from_draws(
            value,
            draws,
            level=level,
            n=self._n_units,
            undefined=metric.undefined or "no row counts",
            is_biased=metric.is_biased,
        )


def _parse_cut(text: str) -> tuple[str, int | None]:
    name, colon, parts = text.rpartition(":")
    if not colon or not parts.isdecimal():
        return text, None
    if int(parts) < 2:
        raise EvaluationError(f"{text!r} cuts {name!r} into {parts} parts; it must be at least 2.")
    return name, int(parts)


def slices_of(column: Column, name: str, parts: int | None = None) -> dict[str, BoolArray]:
    """Cut rows by a column.

    Args:
        column: Values [n]; missing ones are a slice of their own.
        name: The column's name, for messages.
        parts: Number of quantiles; None cuts by value, the rarest values beyond twenty together.

    Returns:
        Rows [n] by the slice's value, in words; equal quantiles are joined.

    Raises:
        DataError: Quantiles of something else than numbers.
    """
    values = (
        pd.Series(np.asarray(column)) if not isinstance(column, pd.Series) else column.reset_index(drop=True)
    )
    missing = values.isna().to_numpy()
    found: dict[str, BoolArray] = {}
    if parts is None:
        counts = values[~missing].value_counts()
        kept = list(counts.index[:_MOST_VALUES])
        order = sorted(kept) if len({type(one) for one in kept}) == 1 else kept
        for value in order:
            found[str(value)] = np.asarray((values == value).to_numpy(), dtype=bool)
        rest = ~missing & ~values.isin(kept).to_numpy()
        if rest.any():
            found[_OTHER] = rest
    else:
        numbers, written = _numbers(values)
        if (np.isnan(numbers) & ~missing).any():
            raise DataError(f"Column {name!r} is to be cut into quantiles, but does not hold numbers.")
        found |= _quantiles(numbers, parts, written)
    if missing.any():
        found[_MISSING] = missing
    return found


def _numbers(values: "pd.Series[Any]") -> tuple[FloatArray, Callable[[float], str]]:
    """Values as numbers (nan where they are none), and how a number is written: as a date, if they are dates."""
    if pd.api.types.is_datetime64_any_dtype(values):
        times = values.to_numpy().astype("datetime64[s]")
        numbers = np.where(np.isnat(times), np.nan, times.astype(np.int64).astype(np.float64))
        return numbers, lambda number: str(pd.Timestamp(round(number), unit="s"))
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64), lambda number: f"{number:g}"


def _quantiles(numbers: FloatArray, parts: int, written: Callable[[float], str]) -> dict[str, BoolArray]:
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return {}
    cuts = np.quantile(known, np.linspace(0, 1, parts + 1))
    edges = np.unique(cuts)
    # A value that fills a whole part, such as 0 in a column of counts, is a slice of its own.
    own = {float(value) for value in edges if (cuts == value).sum() > 1}
    found = {written(value): numbers == value for value in own if value == edges[0]}
    for place, (low, high) in enumerate(pairwise(edges.tolist())):
        above = numbers > low if low in own else numbers >= low
        below = numbers <= high if place == len(edges) - 2 and high not in own else numbers < high
        if (above & below).any():
            found[f"{'above ' if low in own else ''}{written(low)} to {written(high)}"] = above & below
        if high in own:
            found[written(high)] = numbers == high
    return found


def adjusted_slices(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """The slices with p-values adjusted for their number; those of too few users have neither interval nor p-value."""
    known = [one if one.is_large else _untested(one) for one in slices]
    adjusted = benjamini_hochberg([one.p_value for one in known])
    return tuple(replace(one, adjusted_p=float(value)) for one, value in zip(known, adjusted, strict=True))


def _untested(one: Slice) -> Slice:
    nan, note = float("nan"), f"too few for an interval: fewer than {FEWEST_UNITS}"
    estimate, difference = (
        replace(given, low=nan, high=nan, note=given.note or note) for given in (one.estimate, one.difference)
    )
    return replace(one, estimate=estimate, difference=difference, p_value=nan)


def gaps_of_columns(
    drawn: Mapping[tuple[str, str], tuple[float, FloatArray]],
    slices: Sequence[Slice],
    level: float,
    n_units: int,
) -> dict[str, Estimate]:
    """Largest minus smallest value among the slices of each column.

    The largest of several noisy values is too large and the smallest too small, so slices that are alike show a gap
    too. The interval allows for that: it is as wide on either side as the spread of the slices' own errors is at most,
    in a share `level` of the resamples (the simultaneous interval of all pairs; Tukey, 1953, with a bootstrap in place
    of the studentised range). It starts at 0 unless some pair of slices differs beyond chance.

    Args:
        drawn: (value, draws [resamples]) by column and slice.
        slices: The slices; those of too few users do not count.
        level: Confidence level.
        n_units: Number of units.

    Returns:
        Estimates by column that has at least two slices with a value.
    """
    gaps = {}
    large = {(one.column, one.value) for one in slices if one.is_large}
    for column in dict.fromkeys(name for name, _ in drawn):
        pairs = [
            (value, draws)
            for key, (value, draws) in drawn.items()
            if key[0] == column and key in large and not np.isnan(value)
        ]
        if len(pairs) < _TWO:
            continue
        values = np.array([value for value, _ in pairs])
        errors = np.stack([draws for _, draws in pairs]) - values[:, None]
        spread = errors.max(axis=0) - errors.min(axis=0)  # nan where a slice has no value in a resample
        known = spread[~np.isnan(spread)]
        gap = float(np.ptp(values))
        if 2 * len(known) < len(spread) or not len(known):
            gaps[column] = Estimate(gap, level=level, n=n_units, note="in most resamples a slice is empty")
            continue
        margin = float(np.quantile(known, level))
        gaps[column] = Estimate(gap, max(gap - margin, 0.0), gap + margin, level, n_units)
    return gaps
