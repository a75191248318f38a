"""Judge a table of predictions: START HERE for pointwise metrics; `ranking.py` judges recommendation lists."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from evaluation.arrays import BoolArray, IntArray, codes, name_rows, weights
from evaluation.class_results import classes_of
from evaluation.curves import binary_curves
from evaluation.errors import DataError, EvaluationError, MetricError, did_you_mean
from evaluation.metrics.grouped import auc_by_code
from evaluation.metrics.metric import Kind
from evaluation.metrics.rows import regression_rows
from evaluation.metrics.thresholds import Decisions, best_decisions_of, decisions_of
from evaluation.plans import Draws, Groups, MetricNames, Plan, TaskColumns, Units, draw_metrics, make_plan
from evaluation.results import EvaluationResult, TaskResult, Unit
from evaluation.seeds import generator
from evaluation.streaming import STREAMED_ROWS, evaluate_file, labels_are_binary, rows_in_file
from evaluation.tables import Column, Predictions, column_names, read_columns
from evaluation.task_baselines import baseline_plans, baseline_results
from evaluation.uncertainty import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    Estimate,
    check_bootstrap,
    estimate_from_draws,
    resamples_for,
)

Duplicates: TypeAlias = Literal["keep", "first", "last", "error"]

# More independent units than this are drawn in this many random groups: the width of an interval then has an error of
# its own of 0.5 %, a tenth of that of 200 resamples, and the cost no longer grows with the rows.
MAX_UNITS = 20_000

_TWO = 2


def evaluate(
    predictions: Predictions,
    *,
    tasks: Mapping[str, TaskColumns] | None = None,
    user: str | None = None,
    session: str | None = None,
    item: str | None = None,
    weight: str | None = None,
    metrics: MetricNames = None,
    duplicates: Duplicates = "keep",
    baselines: Mapping[str, Mapping[str, str]] | None = None,
    intervals: bool = True,
    level: float = DEFAULT_LEVEL,
    resamples: int | None = None,
    seed: int = 0,
) -> EvaluationResult:
    """Compute the metrics of every task, each with a confidence interval that respects users.

    A Parquet file of more than ten million rows is judged without ever being held whole (`streaming`).

    Args:
        predictions: pandas DataFrame, Arrow table, mapping of arrays, or path of a Parquet or CSV file.
        tasks: Columns by task name. By default one task "label" from the columns `label` and `score`: binary if all
            labels are 0 or 1, else regression.
        user: Column of users. With it intervals resample users and `gauc` is computed.
        session: Column of sessions or requests. With it `session_auc` is computed, and ranking metrics such as
            "ndcg@10" rank the rows of a session instead of a user.
        item: Column of items; with `user` it is checked whether a user has an item twice.
        weight: Column of row weights.
        metrics: Metric names for all tasks, or by task. By default every metric that fits; those that need
            probabilities are left out, and said to be, where scores are none.
        duplicates: What becomes of rows with the same user and item: "keep" all (and say how many there are), keep
            the "first" or the "last" of each, or raise an "error".
        baselines: By task, columns of what simple baselines predict, by name. "constant" and (with `item`) "item_rate"
            are learned from the judged rows where they are not given (see `rates`); an empty mapping for no baselines.
        intervals: Whether to compute intervals, and baselines along with them.
        level: Confidence level.
        resamples: Number of bootstrap resamples; see `resamples_for` unless given.
        seed: Seed of the resamples.

    Returns:
        The result.

    Raises:
        DataError: A column is missing, values are missing or of the wrong kind (rows are named), duplicated rows
            that are not allowed, or no rows.
        MetricError: An unknown metric, or one that does not fit the task.
        EvaluationError: A bad level or too few resamples for it.
    """
    if intervals:
        check_bootstrap(level, DEFAULT_RESAMPLES if resamples is None else resamples)
    if tasks is not None and not tasks:
        raise DataError("tasks is empty: there is nothing to evaluate.")
    chosen = tasks if tasks is not None else default_tasks(predictions)
    check_metric_tasks(metrics, chosen)
    if isinstance(predictions, str | Path) and (rows := rows_in_file(predictions)) > STREAMED_ROWS:
        if session is not None or duplicates != "keep":
            raise EvaluationError(
                f"{predictions} has more than {STREAMED_ROWS:,} rows and is judged in blocks, without sessions and "
                "with duplicates kept; remove them first, or judge a part of it."
            )
        return evaluate_file(
            predictions,
            tasks=chosen,
            user=user,
            weight=weight,
            metrics=metrics,
            level=level,
            resamples=(resamples or resamples_for(rows)) if intervals else 0,
            seed=seed,
        )
    given = [column for one in (baselines or {}).values() for column in one.values()]
    columns = _columns(predictions, chosen, [user, session, item, weight, *given])
    columns, notes = without_duplicates(columns, user, item, duplicates)
    resamples = resamples or resamples_for(len(next(iter(columns.values()))))
    plans, unit, units = plan_tasks(
        columns, chosen, user=user, session=session, weight=weight, metrics=metrics, seed=seed
    )
    others = {
        name: baseline_plans(plan, columns, item, (baselines or {}).get(name, {}), seed)
        for name, plan in plans.items()
        if intervals and (baselines is None or name in baselines)
    }
    everything = {
        one.name: one for group in ({"": plans}, others) for part in group.values() for one in part.values()
    }
    draws = (
        draw_metrics(everything, unit, units.n_drawn, resamples, seed) if intervals and units.n > 1 else {}
    )
    results = {}
    for name, plan in plans.items():
        result = task_result(plan, draws, level, units.n, notes)
        values = {metric: one.value for metric, one in result.metrics.items()}
        beside = baseline_results(
            plan, others.get(name, {}), values, draws, unit, units.n_drawn, units.n, level
        )
        results[name] = replace(result, baselines=beside)
    return EvaluationResult(
        results, units.name, units.n, level, resamples if intervals else 0, seed, units.n_grouped
    )


def plan_tasks(
    columns: Mapping[str, Column],
    tasks: Mapping[str, TaskColumns],
    *,
    user: str | None,
    session: str | None,
    weight: str | None,
    metrics: MetricNames,
    seed: int,
) -> tuple[dict[str, Plan], IntArray, Units]:
    """Check the columns of all tasks.

    Returns:
        (plans by task, unit of each row as it is drawn [n], what the units are).

    Raises:
        DataError: See `evaluate`.
        MetricError: See `evaluate`.
    """
    n_rows = len(columns[next(iter(tasks.values())).label])
    row_weight = weights(None if weight is None else columns[weight], n_rows)
    named = [(name, column) for name, column in (("user", user), ("session", session)) if column is not None]
    coded = {name: codes(columns[column], f"column {column!r}") for name, column in named}
    if {"user", "session"} <= coded.keys():  # a session number may be used again by another user
        pairs = coded["user"][0] * coded["session"][1] + coded["session"][0]
        coded["session"] = codes(pairs, "session")
    if named:
        first: Unit = "user" if user is not None else "session"
        code, n = coded[first]
    else:
        first, code, n = "row", np.arange(n_rows), n_rows
    of_unit, n_drawn = _few_groups(n, seed)
    unit = of_unit[code]
    kinds: dict[str, Kind] = {"user": "grouped", "session": "session"}
    groups = {kinds[name]: Groups.of(name, *coded[name], unit) for name in coded}
    plans = {
        name: make_plan(name, task, columns, row_weight, metrics_asked(metrics, name), groups)
        for name, task in tasks.items()
    }
    return plans, unit, Units(first, n, n_drawn)


def _few_groups(n: int, seed: int) -> tuple[IntArray, int]:
    """Each unit its own, or few enough random groups of units."""
    if n <= MAX_UNITS:
        return np.arange(n), n
    return generator(seed, n).permutation(np.arange(n) % MAX_UNITS), MAX_UNITS


def infer_task(
    predictions: Predictions,
    label: str = "label",
    score: str | Sequence[str] = "score",
    classes: Sequence[object] | None = None,
) -> TaskColumns:
    """The task that a label and a score column are of, found from the labels.

    Args:
        predictions: The table, see `evaluate`.
        label: Column of labels.
        score: Column of scores, or one column for each class.
        classes: Names of the classes, see `TaskColumns`.

    Returns:
        Multi-class for several score columns; else binary if all labels are 0 or 1, else regression.

    Raises:
        DataError: A column is missing, or holds something else than numbers.
    """
    if not isinstance(score, str) and len(score) > 1:
        return TaskColumns("multiclass", label, score, classes)
    name = score if isinstance(score, str) else score[0]
    if isinstance(predictions, str | Path) and rows_in_file(predictions) > STREAMED_ROWS:
        return TaskColumns("binary" if labels_are_binary(predictions, label) else "regression", label, name)
    columns = read_columns(predictions, [label, name])
    scores = np.asarray(columns[name])
    if scores.ndim == 2:
        return TaskColumns("multiclass", label, name, classes)
    labels = regression_rows(columns[label], scores).label
    return TaskColumns("binary" if bool(((labels == 0) | (labels == 1)).all()) else "regression", label, name)


def default_tasks(predictions: Predictions) -> dict[str, TaskColumns]:
    """The one task "label" of the columns `label` and `score`.

    Raises:
        DataError: A column is missing, or holds something else than numbers.
    """
    known = column_names(predictions)
    missing = [name for name in ("label", "score") if name not in known]
    if missing:
        raise DataError(
            f"Without tasks the table needs the columns 'label' and 'score'; {' and '.join(map(repr, missing))} "
            f"missing. Name the columns of each task with tasks={{'name': TaskColumns(...)}}. "
            f"{did_you_mean(missing[0], known)}"
        )
    return {"label": infer_task(predictions)}


def check_metric_tasks(metrics: MetricNames, tasks: Mapping[str, TaskColumns]) -> None:
    """Refuse metrics given as one text, or for tasks that do not exist."""
    if isinstance(metrics, str):
        raise MetricError(f"metrics must be a list of names, got the text {metrics!r}.")
    if isinstance(metrics, Mapping):
        for name in metrics:
            if name not in tasks:
                raise MetricError(f"metrics names an unknown task {name!r}; {did_you_mean(name, tasks)}")


def metrics_asked(metrics: MetricNames, task: str) -> Sequence[str] | None:
    """The metrics asked for a task, or None for the defaults."""
    return metrics.get(task) if isinstance(metrics, Mapping) else metrics


def _columns(
    predictions: Predictions, tasks: Mapping[str, TaskColumns], others: Sequence[str | None]
) -> dict[str, Column]:
    names = [name for task in tasks.values() for name in (task.label, *task.score_columns)]
    return read_columns(predictions, [*names, *(name for name in others if name is not None)])


def without_duplicates(
    columns: dict[str, Column], user: str | None, item: str | None, policy: Duplicates
) -> tuple[dict[str, Column], list[str]]:
    """Find rows with the same user and item, and do with them as asked.

    Args:
        columns: The table.
        user: Column of users.
        item: Column of items.
        policy: See `evaluate`.

    Returns:
        The table without the rows that are not kept, and what was found in words.

    Raises:
        DataError: There are such rows, and the policy is "error".
        EvaluationError: An unknown policy, or one that needs a column that is not given.
    """
    if policy not in ("keep", "first", "last", "error"):
        raise EvaluationError(
            f"Unknown policy {policy!r} for duplicates; {did_you_mean(policy, ['keep', 'first', 'last', 'error'])}"
        )
    if user is None or item is None:
        if policy != "keep":
            raise EvaluationError(f"duplicates={policy!r} needs a user and an item column.")
        return columns, []
    (who, _), (what, n_items) = (
        codes(columns[user], f"column {user!r}"),
        codes(columns[item], f"column {item!r}"),
    )
    again = _repeated(who * n_items + what, keep_last=policy == "last")
    if not again.any():
        return columns, []
    found = f"{int(again.sum()):,} rows repeat a user and item of another row"
    if policy == "error":
        raise DataError(f"{found}: {name_rows(again)}. Say with duplicates= which to keep.")
    if policy == "keep":
        return columns, [f"{found}; all are kept."]
    kept: dict[str, Column] = {name: np.asarray(values)[~again] for name, values in columns.items()}
    return kept, [f"{found}; the {policy} of each is kept."]


def _repeated(pair: IntArray, *, keep_last: bool) -> BoolArray:
    """Rows whose value occurs earlier (or, with `keep_last`, later)."""
    values = pair[::-1] if keep_last else pair
    again = np.ones(len(values), dtype=bool)
    again[np.unique(values, return_index=True)[1]] = False
    return again[::-1] if keep_last else again


def task_result(
    plan: Plan, draws: Draws, level: float, n_units: int, notes: Sequence[str] = ()
) -> TaskResult:
    """The metrics of a task from its plan and draws."""
    rows = plan.rows
    estimates: dict[str, Estimate] = {}
    for column in plan.metrics:
        value, metric = plan.value(column), column.metric
        key = (plan.name, column.name)
        if key in draws:
            estimates[column.name] = estimate_from_draws(
                value,
                draws[key],
                level=level,
                n=n_units,
                undefined=metric.undefined,
                is_biased=metric.is_biased,
            )
        else:
            note = metric.undefined if np.isnan(value) else ""
            estimates[column.name] = Estimate(value, level=level, n=n_units, note=note)
    one_score = rows.score.ndim == 1
    return TaskResult(
        name=plan.name,
        type=plan.type,
        n_rows=len(rows.label),
        label_mean=float(np.average(rows.label, weights=rows.weight)) if one_score else float("nan"),
        score_mean=float(np.average(rows.score, weights=rows.weight)) if one_score else float("nan"),
        metrics=estimates,
        left_out=plan.left_out,
        notes=(*notes, *_notes(plan)),
        curves=binary_curves(rows) if plan.type == "binary" else None,
        decisions=_decisions(plan),
        classes=classes_of(rows, plan.classes) if plan.type == "multiclass" else (),
    )


def _decisions(plan: Plan) -> dict[str, Decisions]:
    if plan.type != "binary":
        return {}
    found = {"default": decisions_of(plan.rows)} if plan.is_probability else {}
    if (plan.rows.label * plan.rows.weight).any():
        found["best"] = best_decisions_of(plan.rows)
    return found


def _notes(plan: Plan) -> list[str]:
    notes = []
    if plan.type == "regression":
        values = np.unique(plan.rows.label)
        if len(values) == _TWO:
            low, high = values.tolist()
            notes.append(
                f"Labels are {low:g} and {high:g} only, and were judged as numbers. Where they are two classes, write "
                "them as 0 and 1."
            )
    for kind, metric in (("grouped", "gauc"), ("session", "session_auc")):
        groups = plan.groups.get(kind)  # type: ignore[call-overload]
        if groups is None or not any(kind in column.metric.kinds for column in plan.metrics):
            continue
        skipped = auc_by_code(plan.rows, groups.code, groups.n).n_skipped
        if skipped:
            notes.append(
                f"{metric} leaves out {skipped:,} of {groups.n:,} {groups.name}s, whose rows are of one class."
            )
    if any(column.metric.is_ranking for column in plan.metrics):
        notes.append(
            "Metrics at k rank the rows that the table has for a user or session. They are not comparable with figures "
            "over the whole catalogue."
        )
    return notes
