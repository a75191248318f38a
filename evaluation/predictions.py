"""Judge a table of predictions: START HERE for pointwise metrics; `ranking.py` judges recommendation lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from evaluation.arrays import FloatArray, IntArray, codes, weights
from evaluation.curves import binary_curves
from evaluation.errors import DataError, MetricError, did_you_mean
from evaluation.metrics.grouped import auc_by_code
from evaluation.metrics.registry import Kind, Metric, get_metric, metrics_of
from evaluation.metrics.rows import Rows, binary_rows, multiclass_rows, regression_rows
from evaluation.metrics.statistic import RepeatedStatistic, Resampler
from evaluation.results import EvaluationResult, TaskResult, TaskType
from evaluation.tables import Column, Predictions, column_names, read_columns
from evaluation.uncertainty import (
    DEFAULT_LEVEL,
    Estimate,
    check_bootstrap,
    estimate_from_draws,
    resample_weights,
)

# Resampling the order of scores costs about 7 seconds for 1,000 resamples of a million rows.
DEFAULT_RESAMPLES = 200

# More independent rows than this are drawn in this many random groups: the width of an interval then has an error of
# its own of 0.5 %, a tenth of that of 200 resamples, and the cost no longer grows with the rows.
MAX_ROW_GROUPS = 20_000

_Draws: TypeAlias = dict[tuple[str, str], FloatArray]  # by (task, metric)
_CHECKS = {"binary": binary_rows, "regression": regression_rows, "multiclass": multiclass_rows}


@dataclass(frozen=True)
class TaskColumns:
    """Where a task's labels and scores are in a predictions table.

    Attributes:
        type: "binary", "regression" or "multiclass".
        label: Column of labels.
        score: Column of scores; for a multi-class task a column of lists, or one column per class.
    """

    type: TaskType
    label: str
    score: str | Sequence[str]

    @property
    def score_columns(self) -> list[str]:
        """The score columns as a list."""
        return [self.score] if isinstance(self.score, str) else list(self.score)


def evaluate(
    predictions: Predictions,
    *,
    tasks: Mapping[str, TaskColumns] | None = None,
    user: str | None = None,
    weight: str | None = None,
    metrics: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    intervals: bool = True,
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> EvaluationResult:
    """Compute the metrics of every task, each with a confidence interval that respects users.

    Args:
        predictions: pandas DataFrame, Arrow table, mapping of arrays, or path of a Parquet or CSV file.
        tasks: Columns by task name. By default one task "label" from the columns `label` and `score`: binary if all
            labels are 0 or 1, else regression.
        user: Column of users. With it intervals resample users and `gauc` is computed.
        weight: Column of row weights.
        metrics: Metric names for all tasks, or by task. By default every metric that fits; those that need
            probabilities are left out, and said to be, where scores are none.
        intervals: Whether to compute intervals.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The result.

    Raises:
        DataError: A column is missing, values are missing or of the wrong kind (rows are named), or no rows.
        MetricError: An unknown metric, or one that does not fit the task.
        EvaluationError: A bad level or too few resamples for it.
    """
    if intervals:
        check_bootstrap(level, resamples)
    if tasks is not None and not tasks:
        raise DataError("tasks is empty: there is nothing to evaluate.")
    chosen = tasks if tasks is not None else _default_tasks(predictions)
    _check_metric_tasks(metrics, chosen)
    names = [name for task in chosen.values() for name in (task.label, *task.score_columns)]
    columns = read_columns(predictions, [*names, *(name for name in (user, weight) if name is not None)])
    n_rows = len(columns[names[0]])
    row_weight = weights(None if weight is None else columns[weight], n_rows)
    group, n_units = _row_groups(n_rows, seed) if user is None else codes(columns[user], f"column {user!r}")
    plans = {
        name: _plan(name, task, columns, row_weight, _asked(metrics, name), has_user=user is not None)
        for name, task in chosen.items()
    }
    draws = _draws(plans, group, n_units, resamples, seed) if intervals and n_units > 1 else {}
    results = {name: _task_result(plan, group, n_units, draws, level) for name, plan in plans.items()}
    return EvaluationResult(
        results, "row" if user is None else "user", n_units, level, resamples if intervals else 0, seed
    )


def _row_groups(n_rows: int, seed: int) -> tuple[IntArray, int]:
    """A unit for each row, or few enough random groups of rows."""
    if n_rows <= MAX_ROW_GROUPS:
        return np.arange(n_rows), n_rows
    return np.random.default_rng([seed, n_rows]).permutation(
        np.arange(n_rows) % MAX_ROW_GROUPS
    ), MAX_ROW_GROUPS


@dataclass(frozen=True)
class _Plan:
    """One task, checked, with what is to be computed."""

    name: str
    type: TaskType
    rows: Rows
    metrics: list[Metric]
    left_out: dict[str, str]


def infer_task(
    predictions: Predictions, label: str = "label", score: str | Sequence[str] = "score"
) -> TaskColumns:
    """The task that a label and a score column are of, found from the labels.

    Args:
        predictions: The table, see `evaluate`.
        label: Column of labels.
        score: Column of scores, or one column for each class.

    Returns:
        Multi-class for several score columns; else binary if all labels are 0 or 1, else regression.

    Raises:
        DataError: A column is missing, or holds something else than numbers.
    """
    if not isinstance(score, str) and len(score) > 1:
        return TaskColumns("multiclass", label, score)
    name = score if isinstance(score, str) else score[0]
    columns = read_columns(predictions, [label, name])
    labels = regression_rows(columns[label], columns[name]).label
    return TaskColumns("binary" if bool(((labels == 0) | (labels == 1)).all()) else "regression", label, name)


def _default_tasks(predictions: Predictions) -> dict[str, TaskColumns]:
    known = column_names(predictions)
    missing = [name for name in ("label", "score") if name not in known]
    if missing:
        raise DataError(
            f"Without tasks the table needs the columns 'label' and 'score'; {' and '.join(map(repr, missing))} "
            f"missing. Name the columns of each task with tasks={{'name': TaskColumns(...)}}. "
            f"{did_you_mean(missing[0], known)}"
        )
    return {"label": infer_task(predictions)}


def _check_metric_tasks(
    metrics: Sequence[str] | Mapping[str, Sequence[str]] | None, tasks: Mapping[str, TaskColumns]
) -> None:
    if isinstance(metrics, str):
        raise MetricError(f"metrics must be a list of names, got the text {metrics!r}.")
    if isinstance(metrics, Mapping):
        for name in metrics:
            if name not in tasks:
                raise MetricError(f"metrics names an unknown task {name!r}; {did_you_mean(name, tasks)}")


def _asked(metrics: Sequence[str] | Mapping[str, Sequence[str]] | None, task: str) -> Sequence[str] | None:
    return metrics.get(task) if isinstance(metrics, Mapping) else metrics


def _plan(
    name: str,
    task: TaskColumns,
    columns: Mapping[str, Column],
    weight: FloatArray,
    asked: Sequence[str] | None,
    *,
    has_user: bool,
) -> _Plan:
    if task.type not in _CHECKS:
        raise DataError(f"Task {name!r} has unknown type {task.type!r}; {did_you_mean(task.type, _CHECKS)}")
    try:
        rows = _CHECKS[task.type](columns[task.label], _score(task, columns), weight)
    except DataError as error:
        raise DataError(f"Task {name!r} (label {task.label!r}, score {task.score!r}): {error}") from error
    is_probability = bool(((rows.score >= 0) & (rows.score <= 1)).all())
    kinds: list[Kind] = [task.type, "grouped"] if task.type == "binary" and has_user else [task.type]
    if asked is None:
        fitting = [metric for kind in kinds for metric in metrics_of(kind)]
        needless = [metric for metric in fitting if is_probability or not metric.needs_probability]
        reason = "its scores are not probabilities in [0, 1]"
        left_out = {metric.name: reason for metric in fitting if metric not in needless}
        return _Plan(name, task.type, rows, needless, left_out)
    chosen = [get_metric(metric) for metric in dict.fromkeys(asked)]
    for metric in chosen:
        _refuse_misfit(metric, name, task.type, kinds, is_probability=is_probability)
    return _Plan(name, task.type, rows, chosen, {})


def _score(task: TaskColumns, columns: Mapping[str, Column]) -> Column:
    parts = [np.asarray(columns[name]) for name in task.score_columns]
    return parts[0] if isinstance(task.score, str) else np.stack(parts, axis=1)


def _refuse_misfit(metric: Metric, task: str, type_: str, kinds: list[Kind], *, is_probability: bool) -> None:
    if not set(metric.kinds) & set(kinds):
        hint = " It needs a user column." if metric.kinds == ("grouped",) and type_ == "binary" else ""
        raise MetricError(
            f"Metric {metric.name!r} does not fit task {task!r}, which is {type_}; "
            f"it is for: {', '.join(metric.kinds)}.{hint}"
        )
    if metric.needs_probability and not is_probability:
        raise MetricError(
            f"Metric {metric.name!r} needs probabilities in [0, 1], which the scores of task {task!r} are not."
        )


def _draws(plans: Mapping[str, _Plan], group: IntArray, n_units: int, resamples: int, seed: int) -> _Draws:
    """Metric values of every resample by (task, metric); all on the same resamples."""
    resamplers: dict[tuple[str, str], Resampler] = {
        (name, metric.name): (metric.statistic or RepeatedStatistic(metric.function)).resampler(
            plan.rows, group, n_units
        )
        for name, plan in plans.items()
        for metric in plan.metrics
    }
    blocks: dict[tuple[str, str], list[FloatArray]] = {key: [] for key in resamplers}
    for weight in resample_weights(n_units, resamples, seed):
        for key, resampler in resamplers.items():
            blocks[key].append(resampler(weight))
    return {key: np.concatenate(values) for key, values in blocks.items()}


def _task_result(plan: _Plan, group: IntArray, n_units: int, draws: _Draws, level: float) -> TaskResult:
    rows = plan.rows
    estimates: dict[str, Estimate] = {}
    for metric in plan.metrics:
        inputs = (rows.label, rows.score, group) if "grouped" in metric.kinds else (rows.label, rows.score)
        value = float(metric.function(*inputs, rows.weight))
        key = (plan.name, metric.name)
        if key in draws:
            estimates[metric.name] = estimate_from_draws(
                value, draws[key], level=level, n=n_units, undefined=metric.undefined
            )
        else:
            note = metric.undefined if np.isnan(value) else ""
            estimates[metric.name] = Estimate(value, level=level, n=n_units, note=note)
    one_score = rows.score.ndim == 1
    return TaskResult(
        name=plan.name,
        type=plan.type,
        n_rows=len(rows.label),
        label_mean=float(np.average(rows.label, weights=rows.weight)) if one_score else float("nan"),
        score_mean=float(np.average(rows.score, weights=rows.weight)) if one_score else float("nan"),
        metrics=estimates,
        left_out=plan.left_out,
        notes=tuple(_notes(plan, group, n_units)),
        curves=binary_curves(rows) if plan.type == "binary" else None,
    )


def _notes(plan: _Plan, group: IntArray, n_units: int) -> list[str]:
    if not any("grouped" in metric.kinds for metric in plan.metrics):
        return []
    skipped = auc_by_code(plan.rows, group, n_units).n_skipped
    return (
        [f"gauc leaves out {skipped:,} of {n_units:,} users, whose rows are of one class."] if skipped else []
    )
