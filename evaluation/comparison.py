"""Two models on the same rows: differences with intervals, p-values and win rates."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evaluation.arrays import IntArray, name_rows
from evaluation.comparison_result import Compared, Comparison
from evaluation.errors import DataError, EvaluationError, did_you_mean
from evaluation.metrics.metric import MetricAtK
from evaluation.metrics.registry import parse_metric
from evaluation.plans import Draws, MetricNames, Plan, TaskColumns, draw_metrics
from evaluation.predictions import default_tasks, plan_tasks, task_result
from evaluation.ranking_result import RankingResult
from evaluation.tables import Column, Predictions, read_columns
from evaluation.uncertainty import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    Estimate,
    PairedDifference,
    bootstrap_p_value,
    check_bootstrap,
    estimate_from_draws,
)


def compare(
    reference: Predictions,
    model: Predictions,
    *,
    tasks: Mapping[str, TaskColumns] | None = None,
    model_tasks: Mapping[str, TaskColumns] | None = None,
    on: Sequence[str] | None = None,
    user: str | None = None,
    session: str | None = None,
    weight: str | None = None,
    metrics: MetricNames = None,
    names: tuple[str, str] = ("reference", "model"),
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare two models by their predictions of the same rows.

    Args:
        reference: Predictions of the reference, as for `evaluate`.
        model: Predictions of the model; the same table again where both scores are columns of one.
        tasks: Columns by task name; by default one task "label" from the columns `label` and `score`.
        model_tasks: Columns in `model` where they differ from `tasks`, e.g. another score column.
        on: Columns that identify a row, to match tables in different orders; by default row by row.
        user: Column of users, in both tables.
        session: Column of sessions, in both tables.
        weight: Column of row weights, in both tables.
        metrics: As for `evaluate`.
        names: What reports call the two.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Their seed.

    Returns:
        The comparison.

    Raises:
        DataError: The tables do not hold the same rows: labels, users or weights differ (rows are named).
        MetricError: See `evaluate`.
        EvaluationError: See `evaluate`.
    """
    check_bootstrap(level, resamples)
    first = dict(tasks) if tasks is not None else default_tasks(reference)
    second = {name: (model_tasks or {}).get(name, task) for name, task in first.items()}
    shared = [name for name in (user, session, weight) if name is not None]
    columns = [
        read_columns(table, [*_names(chosen), *shared, *(on or ())])
        for table, chosen in ((reference, first), (model, second))
    ]
    if on:
        columns[1] = _matched(columns[0], columns[1], on)
    _refuse_other_rows(columns[0], columns[1], first, second, shared)
    planned = [
        plan_tasks(data, chosen, user=user, session=session, weight=weight, metrics=metrics, seed=seed)
        for data, chosen in zip(columns, (first, second), strict=True)
    ]
    (plans, unit, units), (others, _, _) = planned
    merged = {f"0/{name}": _renamed(plan, f"0/{name}") for name, plan in plans.items()}
    merged |= {f"1/{name}": _renamed(plan, f"1/{name}") for name, plan in others.items()}
    draws = draw_metrics(merged, unit, units.n_drawn, resamples, seed) if units.n > 1 else {}
    compared: dict[str, Compared] = {}
    for name, plan in plans.items():
        known = {column.name for column in others[name].metrics}
        for column in plan.metrics:
            if column.name in known:
                one = _compared(name, column, merged, draws, unit, units.n_drawn, level, units.n)
                compared[one.name] = one
    return Comparison(*names, compared, units.name, units.n, level, resamples, seed, _left_out(plans, others))


def _names(tasks: Mapping[str, TaskColumns]) -> list[str]:
    return [name for task in tasks.values() for name in (task.label, *task.score_columns)]


def _renamed(plan: Plan, name: str) -> Plan:
    return Plan(name, plan.type, plan.rows, plan.metrics, plan.left_out, plan.groups)


def _matched(
    reference: Mapping[str, Column], model: Mapping[str, Column], on: Sequence[str]
) -> dict[str, Column]:
    """The model's rows in the order of the reference's."""
    keys = [
        pd.MultiIndex.from_arrays([np.asarray(table[name]) for name in on], names=list(on))
        for table in (reference, model)
    ]
    for name, index in zip(("reference", "model"), keys, strict=True):
        if index.has_duplicates:
            again = index.duplicated()
            raise DataError(f"The {name} has several rows of the same {', '.join(on)}: {name_rows(again)}.")
    place: IntArray = keys[1].get_indexer(keys[0])
    if (place < 0).any():
        raise DataError(
            f"The model lacks {int((place < 0).sum()):,} rows of the reference (by {', '.join(on)}): "
            f"{name_rows(place < 0)} of the reference."
        )
    return {name: np.asarray(values)[place] for name, values in model.items()}


def _refuse_other_rows(
    reference: Mapping[str, Column],
    model: Mapping[str, Column],
    tasks: Mapping[str, TaskColumns],
    model_tasks: Mapping[str, TaskColumns],
    shared: Sequence[str],
) -> None:
    pairs = [(task.label, model_tasks[name].label) for name, task in tasks.items()]
    for mine, other in [*pairs, *((name, name) for name in shared)]:
        a, b = np.asarray(reference[mine]), np.asarray(model[other])
        if len(a) != len(b):
            raise DataError(
                f"The reference has {len(a):,} rows but the model {len(b):,}: a comparison needs the same rows. "
                "Match them by their keys with on=."
            )
        differs = np.asarray(a != b, dtype=bool) & ~(pd.isna(a) & pd.isna(b))
        if differs.any():
            row = int(np.argmax(differs))
            raise DataError(
                f"Reference and model are not of the same rows: {mine!r} is {_plain(a[row])!r} in one and "
                f"{_plain(b[row])!r} in the other in {name_rows(differs)}. Match them by their keys with on=, or "
                "predict the same data with both."
            )


def _plain(value: Any) -> Any:
    """A NumPy number as Python writes it."""
    return value.item() if isinstance(value, np.generic) else value


def _compared(
    task: str,
    column: MetricAtK,
    plans: Mapping[str, Plan],
    draws: Draws,
    unit: IntArray,
    n_drawn: int,
    level: float,
    n_units: int,
) -> Compared:
    first, second = plans[f"0/{task}"], plans[f"1/{task}"]
    metric = column.metric
    estimates = []
    for plan in (first, second):
        only = Plan(plan.name, plan.type, plan.rows, [column], {}, plan.groups)
        estimates.append(task_result(only, draws, level, n_units).metrics[column.name])
    change = estimates[1].value - estimates[0].value
    if draws:
        drawn = draws[second.name, column.name] - draws[first.name, column.name]
        difference = estimate_from_draws(change, drawn, level=level, n=n_units, undefined=metric.undefined)
    else:
        drawn, difference = np.empty(0), Estimate(change, level=level, n=n_units)
    gap = second.per_unit(column, unit, n_drawn) - first.per_unit(column, unit, n_drawn)
    gap = gap[~np.isnan(gap)] * (1 if metric.higher_is_better else -1)
    shares = (float(np.mean(gap > 0)), float(np.mean(gap < 0))) if len(gap) else (math.nan, math.nan)
    p_value = bootstrap_p_value(drawn) if difference.has_interval else math.nan
    paired = PairedDifference(difference, p_value, *shares)
    return Compared(
        f"{task}/{column.name}",
        estimates[0],
        estimates[1],
        paired,
        metric.higher_is_better,
        metric.is_descriptive,
    )


def _left_out(plans: Mapping[str, Plan], others: Mapping[str, Plan]) -> tuple[str, ...]:
    notes = []
    for name, plan in plans.items():
        missing = {**plan.left_out, **others[name].left_out}
        if missing:
            notes.append(f"{name}: left out {', '.join(missing)}: {next(iter(missing.values()))}.")
    return tuple(notes)


def compared_rankings(ranking: RankingResult, model: str, prefix: str = "ranking") -> list[Compared]:
    """The metrics of ranked lists of a model and the reference of a ranking result.

    Args:
        ranking: With differences.
        model: A model other than the reference.
        prefix: First part of the names.

    Returns:
        One a metric.

    Raises:
        EvaluationError: There is no difference for this model.
    """
    if model not in ranking.differences:
        raise EvaluationError(f"No difference for {model!r}; {did_you_mean(model, ranking.differences)}")
    found = []
    for name, paired in ranking.differences[model].items():
        metric = parse_metric(name).metric
        reference = ranking.models[str(ranking.reference)][name]
        if not metric.higher_is_better:
            paired = PairedDifference(paired.difference, paired.p_value, paired.loss_rate, paired.win_rate)
        found.append(
            Compared(
                f"{prefix}/{name}",
                reference,
                ranking.models[model][name],
                paired,
                metric.higher_is_better,
                metric.is_descriptive,
            )
        )
    return found
