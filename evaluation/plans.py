"""What is computed for a task: its checked rows, its metrics, the groups they need, and how each is resampled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from evaluation.arrays import BoolArray, FloatArray, IntArray, sum_by_code
from evaluation.class_labels import class_numbers
from evaluation.errors import DataError, MetricError, did_you_mean
from evaluation.metrics.given_lists import lists_by_code
from evaluation.metrics.grouped import auc_by_code
from evaluation.metrics.metric import Kind, Metric, MetricAtK
from evaluation.metrics.pointwise import AUC
from evaluation.metrics.registry import metrics_of, parse_metric
from evaluation.metrics.rows import Rows, binary_rows, multiclass_rows, regression_rows
from evaluation.metrics.statistic import (
    GroupMeanStatistic,
    RepeatedStatistic,
    Resampler,
    Statistic,
    is_additive,
    ratio,
)
from evaluation.results import TaskType, Unit
from evaluation.tables import Column
from evaluation.uncertainty import resample_weights

Draws: TypeAlias = dict[tuple[str, str], FloatArray]
"""Values of every resample by (task, metric)."""
MetricNames: TypeAlias = "Sequence[str] | Mapping[str, Sequence[str]] | None"

CHECKS = {"binary": binary_rows, "regression": regression_rows, "multiclass": multiclass_rows}


@dataclass(frozen=True)
class TaskColumns:
    """Where a task's labels and scores are in a predictions table.

    Attributes:
        type: "binary", "regression" or "multiclass".
        label: Column of labels.
        score: Column of scores; for a multi-class task a column of lists, or one column per class.
        classes: The class of each score, in order, as labels name it. Without it labels are class numbers from 0, or
            text that is the name of a score column, or what sets it apart: "cat" for "p_cat" beside "p_dog".
    """

    type: TaskType
    label: str
    score: str | Sequence[str]
    classes: Sequence[object] | None = None

    @property
    def score_columns(self) -> list[str]:
        """The score columns as a list."""
        return [self.score] if isinstance(self.score, str) else list(self.score)


@dataclass(frozen=True)
class Units:
    """What the bootstrap draws.

    Attributes:
        name: "user", "session" or "row".
        n: How many there are.
        n_drawn: How many are drawn: `n`, or the number of random groups they are in.
    """

    name: Unit
    n: int
    n_drawn: int

    @property
    def n_grouped(self) -> int | None:
        """The number of random groups, or None where units are drawn singly."""
        return self.n_drawn if self.n_drawn < self.n else None


@dataclass(frozen=True)
class Groups:
    """Users or sessions, each within one unit of the bootstrap.

    Attributes:
        name: What one is called, "user" or "session".
        code: Group of each row, 0 to n - 1 [rows].
        n: Number of groups.
        unit: The unit that each group is drawn with [n].
    """

    name: str
    code: IntArray
    n: int
    unit: IntArray

    @classmethod
    def of(cls, name: str, code: IntArray, n: int, unit_of_row: IntArray) -> "Groups":
        """From the group and the unit of each row."""
        unit = np.zeros(n, dtype=np.int64)
        unit[code] = unit_of_row
        return cls(name, code, n, unit)

    def take(self, rows: "BoolArray | IntArray") -> "Groups":
        """The same groups with some of the rows; groups without a row stay and count nothing."""
        return Groups(self.name, self.code[rows], self.n, self.unit)


@dataclass(frozen=True)
class Plan:
    """One task, checked, with what is to be computed.

    Attributes:
        name: The task.
        type: Its type.
        rows: Its checked rows [n].
        metrics: What is computed.
        left_out: Why a default metric is not computed.
        groups: Users and sessions by the kind of metric that is computed within them.
        classes: Names of the classes of a multi-class task, where they have any.
    """

    name: str
    type: TaskType
    rows: Rows
    metrics: list[MetricAtK]
    left_out: dict[str, str] = field(default_factory=dict)
    groups: Mapping[Kind, Groups] = field(default_factory=dict)
    classes: tuple[str, ...] = ()

    @property
    def is_probability(self) -> bool:
        """Whether all scores lie in [0, 1]."""
        return bool(((self.rows.score >= 0) & (self.rows.score <= 1)).all())

    def take(self, rows: BoolArray) -> "Plan":
        """The same plan for some of the rows."""
        part = Rows(self.rows.label[rows], self.rows.score[rows], self.rows.weight[rows])
        groups = {kind: one.take(rows) for kind, one in self.groups.items()}
        return Plan(self.name, self.type, part, self.metrics, self.left_out, groups)

    def groups_of(self, metric: Metric) -> Groups | None:
        """The groups a metric is computed within, or None for a metric of all rows."""
        if metric.is_ranking:
            return self.groups.get("session", self.groups.get("grouped"))
        return next((self.groups[kind] for kind in metric.kinds if kind in self.groups), None)

    def statistic(self, column: MetricAtK) -> Statistic:
        """How a metric is resampled."""
        metric = column.metric
        if metric.is_ranking:
            return GroupMeanStatistic(partial(_metric_of_lists, column))
        # Every metric of rows has a `Statistic`; the others are of ranked lists only.
        return metric.statistic or RepeatedStatistic(metric.function)  # type: ignore[return-value]

    def value(self, column: MetricAtK) -> float:
        """The metric of all rows; nan if no row counts."""
        metric, rows, groups = column.metric, self.rows, self.groups_of(column.metric)
        if not rows.weight.any():
            return float("nan")
        if metric.is_ranking and groups is not None:
            return GroupMeanStatistic(partial(_metric_of_lists, column)).value(rows, groups.code, groups.n)
        if groups is None:
            return float(metric.function(rows.label, rows.score, rows.weight))
        return float(metric.function(rows.label, rows.score, groups.code, rows.weight))

    def resampler(self, column: MetricAtK, unit: IntArray, n_units: int) -> Resampler:
        """The metric as a function of how often each unit is drawn.

        Args:
            column: The metric.
            unit: Unit of each row [n].
            n_units: Number of units.

        Returns:
            See `Resampler`.
        """
        statistic, groups = self.statistic(column), self.groups_of(column.metric)
        if isinstance(statistic, GroupMeanStatistic) and groups is not None:
            return statistic.resampler_of_units(self.rows, groups.code, groups.n, groups.unit, n_units)
        return statistic.resampler(self.rows, unit, n_units)

    def per_unit(self, column: MetricAtK, unit: IntArray, n_units: int) -> FloatArray:
        """The metric of each unit alone [n_units]; nan where it is undefined or not known one by one."""
        statistic, groups = self.statistic(column), self.groups_of(column.metric)
        if isinstance(statistic, GroupMeanStatistic) and groups is not None:
            values, counts = statistic.per_group(self.rows, groups.code, groups.n)
            known = np.where(counts > 0, values, 0.0) * counts
            return ratio(sum_by_code(known, groups.unit, n_units), sum_by_code(counts, groups.unit, n_units))
        if is_additive(statistic):
            return statistic.finish(statistic.sums(self.rows, unit, n_units))
        if statistic is AUC and self.rows.score.ndim == 1:
            return auc_by_code(self.rows, unit, n_units).auc
        return np.full(n_units, np.nan)


def _metric_of_lists(
    column: MetricAtK, rows: Rows, group: IntArray, n_groups: int
) -> tuple[FloatArray, FloatArray]:
    """A ranking metric of each group's rows by falling score; groups without a relevant row do not count."""
    k = column.k or 1
    lists = lists_by_code(rows, group, n_groups, length=k)
    values, counts = np.zeros(n_groups), np.zeros(n_groups)
    values[lists.users] = column.metric.function(lists, k)
    counts[lists.users] = 1.0
    return values, counts


def make_plan(
    name: str,
    task: TaskColumns,
    columns: Mapping[str, Column],
    weight: FloatArray,
    asked: Sequence[str] | None,
    groups: Mapping[Kind, Groups],
) -> Plan:
    """Check a task's columns and choose its metrics.

    Args:
        name: The task.
        task: Its columns.
        columns: The table.
        weight: Row weights [n].
        asked: Metric names, or None for all that fit by default.
        groups: Users and sessions.

    Returns:
        The plan.

    Raises:
        DataError: An unknown task type, or values that do not fit it.
        MetricError: An unknown metric, or one that does not fit.
    """
    if task.type not in CHECKS:
        raise DataError(f"Task {name!r} has unknown type {task.type!r}; {did_you_mean(task.type, CHECKS)}")
    if task.label in task.score_columns:
        raise DataError(
            f"Task {name!r} has {task.label!r} as its label and as its score: name another score column."
        )
    try:
        label: Column = columns[task.label]
        classes: tuple[str, ...] = ()
        if task.type == "multiclass":
            label, classes = class_numbers(label, task.score_columns, task.classes)
        rows = CHECKS[task.type](label, score_of(task, columns), weight)
        if classes and len(classes) != rows.score.shape[1]:
            raise DataError(f"There are {rows.score.shape[1]} scores a row but {len(classes)} classes.")
    except DataError as error:
        raise DataError(f"Task {name!r} (label {task.label!r}, score {task.score!r}): {error}") from error
    plan = Plan(name, task.type, rows, [], {}, groups)
    metrics, left_out = choose_metrics(name, task.type, asked, groups, is_probability=plan.is_probability)
    return Plan(name, task.type, rows, metrics, left_out, groups, classes)


def choose_metrics(
    name: str,
    type_: TaskType,
    asked: Sequence[str] | None,
    groups: Mapping[Kind, Groups],
    *,
    is_probability: bool,
) -> tuple[list[MetricAtK], dict[str, str]]:
    """The metrics of a task, and why defaults are left out.

    Raises:
        MetricError: An unknown metric, or one that does not fit.
    """
    kinds: list[Kind] = [type_, *groups] if type_ == "binary" else [type_]
    if asked is None:
        fitting = [metric for kind in kinds for metric in metrics_of(kind) if metric.is_default]
        needless = [
            metric
            for metric in fitting
            if is_probability
            or not (metric.needs_probability or (metric.is_thresholded and type_ == "binary"))
        ]
        reason = "its scores are not probabilities in [0, 1]"
        left_out = {metric.name: reason for metric in fitting if metric not in needless}
        return [MetricAtK(metric, None) for metric in needless], left_out
    chosen = [parse_metric(metric) for metric in dict.fromkeys(asked)]
    for column in chosen:
        _refuse_misfit(column.metric, name, type_, kinds, bool(groups), is_probability)
    return chosen, {}


def score_of(task: TaskColumns, columns: Mapping[str, Column]) -> Column:
    """The scores of a task, [n] or [n, classes]."""
    parts = [np.asarray(columns[name]) for name in task.score_columns]
    return parts[0] if isinstance(task.score, str) else np.stack(parts, axis=1)


def _refuse_misfit(
    metric: Metric, task: str, type_: str, kinds: list[Kind], grouped: bool, is_probability: bool
) -> None:
    if metric.is_ranking:
        if type_ == "multiclass" or not grouped or metric.of_all_lists or metric.needs:
            raise MetricError(
                f"Metric {metric.name!r} does not fit task {task!r}, which is {type_}: the rows of a user or session "
                "can be ranked for accuracy metrics of binary and regression tasks, given a user or session column."
            )
    elif not set(metric.kinds) & set(kinds):
        needed = {"grouped": "user", "session": "session"}.get(metric.kinds[0])
        hint = f" It needs a {needed} column." if needed and type_ == "binary" else ""
        raise MetricError(
            f"Metric {metric.name!r} does not fit task {task!r}, which is {type_}; "
            f"it is for: {', '.join(metric.kinds)}.{hint}"
        )
    if metric.needs_probability and not is_probability:
        raise MetricError(
            f"Metric {metric.name!r} needs probabilities in [0, 1], which the scores of task {task!r} are not."
        )


def draw_metrics(plans: Mapping[str, Plan], unit: IntArray, n_units: int, resamples: int, seed: int) -> Draws:
    """Metric values of every resample by (plan, metric); all on the same resamples."""
    resamplers = {
        (name, column.name): plan.resampler(column, unit, n_units)
        for name, plan in plans.items()
        for column in plan.metrics
    }
    blocks: dict[tuple[str, str], list[FloatArray]] = {key: [] for key in resamplers}
    for weight in resample_weights(n_units, resamples, seed):
        for key, resampler in resamplers.items():
            blocks[key].append(resampler(weight))
    return {key: np.concatenate(values) for key, values in blocks.items()}
