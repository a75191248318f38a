"""Permutation importance: how much worse a model predicts when one feature's values are dealt out at random."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from evaluation.errors import DataError, EvaluationError, did_you_mean
from evaluation.metrics.registry import parse_metric
from evaluation.metrics.rows import Rows
from evaluation.plans import CHECKS, Plan, TaskColumns
from evaluation.plotting.plots import importance_plot
from evaluation.predictions import plan_tasks
from evaluation.render import TextTable, decimals_for, interval_text, metric_title, number, percent
from evaluation.results import TaskType
from evaluation.seeds import generator
from evaluation.tables import Column
from evaluation.uncertainty import (
    DEFAULT_LEVEL,
    Estimate,
    check_bootstrap,
    estimate_from_draws,
    resample_weights,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PredictTable: TypeAlias = Callable[[pa.Table], Any]
"""Scores [n] or [n, classes] of the rows of a table."""

_MAIN_METRIC = {"binary": "auc", "regression": "rmse", "multiclass": "accuracy"}
DEFAULT_REPEATS = 3
DEFAULT_RESAMPLES = 200


@dataclass(frozen=True)
class Importance:
    """How much a feature matters.

    Attributes:
        feature: Its name.
        loss: How much worse the metric gets, above 0 for a feature that helps.
        spread: Standard deviation of the loss over repeated shuffles.
    """

    feature: str
    loss: Estimate
    spread: float


@dataclass(frozen=True)
class ImportanceResult:
    """Permutation importance of all features, the most important first.

    Attributes:
        task: The task.
        metric: The metric.
        value: The metric with nothing shuffled.
        features: The features.
        n_rows: Number of rows used.
        unit: What intervals resample.
        repeats: Number of shuffles of each feature.
    """

    task: str
    metric: str
    value: float
    features: tuple[Importance, ...]
    n_rows: int
    unit: str
    repeats: int

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "ImportanceResult":
        """From what `to_dict` gave."""
        features = tuple(
            Importance(str(one["feature"]), Estimate.from_dict(one["loss"]), float(one["spread"]))
            for one in content["features"]
        )
        return cls(**{**content, "features": features})

    def table(self) -> TextTable:
        """One line a feature."""
        decimals = decimals_for(one.loss for one in self.features)
        level = percent(next((one.loss.level for one in self.features), DEFAULT_LEVEL))
        rows = [
            [
                one.feature,
                number(one.loss.value, decimals, signed=True),
                interval_text(one.loss, decimals, signed=True),
            ]
            for one in self.features
        ]
        return TextTable(["feature", f"loss of {metric_title(self.metric)}", f"{level} interval"], rows)

    def method(self) -> str:
        """How it was computed, in words."""
        return (
            f"Each feature's values are dealt out at random over {self.n_rows:,} rows, {self.repeats} times; the loss "
            f"of {metric_title(self.metric)} ({number(self.value)} before) is averaged. Intervals resample "
            f"{self.unit}s. Features that say the same share their importance: each alone may look useless."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "task": self.task,
            "metric": self.metric,
            "value": self.value,
            "features": [
                {"feature": one.feature, "loss": one.loss.to_dict(), "spread": one.spread}
                for one in self.features
            ],
            "n_rows": self.n_rows,
            "unit": self.unit,
            "repeats": self.repeats,
        }

    def to_markdown(self) -> str:
        """Table and method."""
        return f"{self.table().to_markdown()}\n\n{self.method()}\n"

    def __str__(self) -> str:
        """A table for a terminal."""
        return f"{self.table().to_text()}\n\n{self.method()}"

    def _repr_html_(self) -> str:
        return f"{self.table().to_html()}<p>{escape(self.method())}</p>"

    def plot(self) -> "Figure":
        """Bars with intervals, the most important feature on top."""
        return importance_plot(self)


def permutation_importance(
    predict: PredictTable,
    table: pa.Table,
    label: Column,
    features: Mapping[str, Sequence[str]],
    *,
    task: str = "label",
    type_: TaskType = "binary",
    metric: str | None = None,
    user: "Column | None" = None,
    weight: "Column | None" = None,
    repeats: int = DEFAULT_REPEATS,
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> ImportanceResult:
    """Measure what a model loses without each feature (Breiman, "Random forests", 2001, section 10).

    Args:
        predict: The model; called once for the table and `repeats` times a feature.
        table: Rows to judge, with the model's columns.
        label: Labels [n].
        features: The columns of each feature, which are shuffled together.
        task: Name of the task.
        type_: Its type.
        metric: The metric; by default AUC, RMSE or accuracy.
        user: User of each row [n].
        weight: Weight of each row [n].
        repeats: Shuffles of each feature.
        level: Confidence level.
        resamples: Number of bootstrap resamples, the same for all.
        seed: Seed of shuffles and resamples.

    Returns:
        The features, the most important first.

    Raises:
        DataError: A feature's column is not in the table, or labels do not fit.
        EvaluationError: No features, fewer than one repeat, or too few resamples.
        MetricError: An unknown metric, or one that does not fit.
    """
    check_bootstrap(level, resamples)
    if not features or repeats < 1:
        raise EvaluationError(
            f"There must be features and at least one repeat, got {len(features)} and {repeats}."
        )
    for name, columns in features.items():
        for column in columns:
            if column not in table.column_names:
                raise DataError(
                    f"Feature {name!r} reads the column {column!r}, which the table lacks; "
                    f"{did_you_mean(column, table.column_names)}"
                )
    chosen = parse_metric(metric or _MAIN_METRIC[type_])
    given = {"label": label, "score": np.asarray(predict(table))}
    given |= {name: values for name, values in (("user", user), ("weight", weight)) if values is not None}
    plans, unit, units = plan_tasks(
        given,
        {task: TaskColumns(type_, "label", "score")},
        user=None if user is None else "user",
        session=None,
        weight=None if weight is None else "weight",
        metrics=[chosen.name],
        seed=seed,
    )
    plan = plans[task]
    weights = list(resample_weights(units.n_drawn, resamples, seed))
    sign = 1.0 if chosen.metric.higher_is_better else -1.0

    def judged(one: Plan) -> tuple[float, Any]:
        resampler = one.resampler(chosen, unit, units.n_drawn)
        return one.value(chosen), np.concatenate([resampler(part) for part in weights])

    value, draws = judged(plan)
    random = generator(seed)
    found = []
    for name, columns in features.items():
        losses, drawn = [], np.zeros(resamples)
        for _ in range(repeats):
            shuffled = _shuffle(table, columns, random.permutation(len(table)))
            other, other_draws = judged(_with_scores(plan, np.asarray(predict(shuffled))))
            losses.append(sign * (value - other))
            drawn += sign * (draws - other_draws) / repeats
        loss = estimate_from_draws(
            float(np.mean(losses)), drawn, level=level, n=units.n, undefined=chosen.metric.undefined
        )
        found.append(Importance(name, loss, float(np.std(losses))))
    ordered = sorted(found, key=lambda one: -one.loss.value if np.isfinite(one.loss.value) else np.inf)
    return ImportanceResult(task, chosen.name, value, tuple(ordered), len(table), units.name, repeats)


def _with_scores(plan: Plan, score: Any) -> Plan:
    rows = CHECKS[plan.type](plan.rows.label, score, plan.rows.weight)
    return replace(plan, rows=Rows(rows.label, rows.score, rows.weight))


def _shuffle(table: pa.Table, columns: Sequence[str], order: Any) -> pa.Table:
    for name in columns:
        place = table.column_names.index(name)
        table = table.set_column(place, table.field(place), table.column(name).take(pa.array(order)))
    return table
