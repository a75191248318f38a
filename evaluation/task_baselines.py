"""The simplest baselines beside the model in every task: what knowing only averages would reach."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from evaluation.arrays import FloatArray, IntArray, scores, sum_by_code
from evaluation.metrics.rows import Rows
from evaluation.plans import Draws, Plan
from evaluation.rates import rate_baselines
from evaluation.results import BaselineResult
from evaluation.tables import Column
from evaluation.uncertainty import Estimate, PairedDifference, bootstrap_p_value, estimate_from_draws


def baseline_plans(
    plan: Plan, columns: Mapping[str, Column], item: str | None, given: Mapping[str, str], seed: int
) -> dict[str, Plan]:
    """The task with the scores of each baseline in place of the model's.

    Args:
        plan: The task.
        columns: The table.
        item: Column of items.
        given: Columns of baseline scores by the baseline's name, e.g. learned from training rows.
        seed: Seed of what is learned here.

    Returns:
        Plans by baseline: those given, and "constant" and (with items) "item_rate" learned from these rows.

    Raises:
        DataError: Scores that are no finite numbers.
    """
    rows = plan.rows
    found: dict[str, FloatArray] = {}
    if plan.type == "multiclass":
        classes = rows.score.shape[1]
        shares = sum_by_code(rows.weight, rows.label.astype(np.int64), classes) / rows.weight.sum()
        found["constant"] = np.tile(shares, (len(rows.label), 1))
    elif set(given) < {"constant", "item_rate"}:
        found = rate_baselines(
            rows.label, None if item is None else columns[item], weight=rows.weight, seed=seed
        )
    named = {name: scores(columns[column], f"baseline {name!r}") for name, column in given.items()}
    return {
        name: replace(plan, name=f"{plan.name} by {name}", rows=Rows(rows.label, score, rows.weight))
        for name, score in {**found, **named}.items()
    }


def baseline_results(
    plan: Plan,
    baselines: Mapping[str, Plan],
    values: Mapping[str, float],
    draws: Draws,
    unit: IntArray,
    n_drawn: int,
    n_units: int,
    level: float,
) -> dict[str, BaselineResult]:
    """The metrics of each baseline, and the model's difference from them.

    Args:
        plan: The model's task.
        baselines: Plans by baseline.
        values: The model's metrics by name.
        draws: Draws of all of them; may be empty.
        unit: Unit of each row [n].
        n_drawn: Number of units drawn.
        n_units: Number of units.
        level: Confidence level.

    Returns:
        Results by baseline.
    """
    results = {}
    for name, other in baselines.items():
        metrics: dict[str, Estimate] = {}
        differences: dict[str, PairedDifference] = {}
        for column in plan.metrics:
            metric, value = column.metric, other.value(column)
            drawn = draws.get((other.name, column.name))
            if drawn is None:
                metrics[column.name] = Estimate(value, level=level, n=n_units)
                continue
            metrics[column.name] = estimate_from_draws(
                value, drawn, level=level, n=n_units, undefined=metric.undefined, is_biased=metric.is_biased
            )
            gap = draws[plan.name, column.name] - drawn
            change = estimate_from_draws(
                values[column.name] - value, gap, level=level, n=n_units, undefined=metric.undefined
            )
            per_unit = plan.per_unit(column, unit, n_drawn) - other.per_unit(column, unit, n_drawn)
            known = per_unit[~np.isnan(per_unit)] * (1 if metric.higher_is_better else -1)
            shares = (
                (float(np.mean(known > 0)), float(np.mean(known < 0))) if len(known) else (np.nan, np.nan)
            )
            p_value = bootstrap_p_value(gap) if change.has_interval else float("nan")
            differences[column.name] = PairedDifference(change, p_value, *shares)
        results[name] = BaselineResult(metrics, differences)
    return results
