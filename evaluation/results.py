"""What `evaluate` returns: metrics with intervals per task, printable in a terminal, a notebook and a report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evaluation.class_results import ClassResult, class_table
from evaluation.curves import BinaryCurves
from evaluation.errors import DataError, MetricError, did_you_mean
from evaluation.metrics.registry import parse_metric
from evaluation.metrics.thresholds import Decisions
from evaluation.plotting.plots import CURVE_PLOTS
from evaluation.render import (
    TextTable,
    common_decimals,
    decimals_for,
    interval_text,
    metric_title,
    number,
    percent,
)
from evaluation.slice_result import SliceResult
from evaluation.uncertainty import Estimate, PairedDifference, finite_or_none

TaskType: TypeAlias = Literal["binary", "regression", "multiclass"]
Unit: TypeAlias = Literal["user", "session", "row"]

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PlotKind: TypeAlias = Literal["roc", "precision_recall", "calibration", "scores", "gain", "lift"]

SCHEMA = "easyrec.evaluation/1"


@dataclass(frozen=True)
class BaselineResult:
    """What a baseline reaches on the same rows.

    Attributes:
        metrics: Estimates by metric name.
        differences: Model minus baseline by metric name; empty without intervals.
    """

    metrics: Mapping[str, Estimate]
    differences: Mapping[str, PairedDifference] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "metrics": {name: one.to_dict() for name, one in self.metrics.items()},
            "differences": {name: one.to_dict() for name, one in self.differences.items()},
        }


@dataclass(frozen=True)
class TaskResult:
    """The metrics of one task.

    Attributes:
        name: The task.
        type: "binary", "regression" or "multiclass".
        n_rows: Number of rows judged.
        label_mean: Weighted mean of the label; for a multi-class task nan.
        score_mean: Weighted mean of the score; for a multi-class task nan.
        metrics: Estimates by metric name.
        left_out: Why a metric of the default list was not computed, by metric name.
        notes: Sentences a reader of the numbers needs.
        curves: Points of ROC, precision-recall, calibration and histogram, for binary tasks with both classes.
        decisions: Confusion counts of a binary task, by how the threshold was chosen: "default" (0.5, only where
            scores are probabilities) and "best" (the highest F1).
        baselines: What simple baselines reach on the same rows, by name.
        classes: How each class of a multi-class task fares.
    """

    name: str
    type: TaskType
    n_rows: int
    label_mean: float
    score_mean: float
    metrics: Mapping[str, Estimate]
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    curves: BinaryCurves | None = field(default=None, repr=False)
    decisions: Mapping[str, Decisions] = field(default_factory=dict)
    baselines: Mapping[str, BaselineResult] = field(default_factory=dict)
    classes: tuple[ClassResult, ...] = ()

    def table(self) -> TextTable:
        """One line per metric: value, interval, which direction is better, meaning."""
        rows = []
        decimals_at = common_decimals(self.metrics.values())
        for place, (name, estimate) in enumerate(self.metrics.items()):
            metric, decimals = parse_metric(name).metric, decimals_at[place]
            better = metric.better
            remark = estimate.note or metric.doc
            rows.append(
                [name, number(estimate.value, decimals), interval_text(estimate, decimals), better, remark]
            )
        level = next((one.level for one in self.metrics.values() if one.has_interval), None)
        title = "interval" if level is None else f"{percent(level)} interval"
        return TextTable([self.name, "value", title, "better", "meaning"], rows, frozenset({0, 3, 4}))

    def plot(self, kind: PlotKind = "roc") -> "Figure":
        """A curve of a binary task.

        Args:
            kind: "roc", "precision_recall", "calibration", "scores", "gain" or "lift".

        Returns:
            A matplotlib figure.

        Raises:
            MetricError: Another kind.
            DataError: The task has no curves: it is not binary, or has one class only.
        """
        if kind not in CURVE_PLOTS:
            raise MetricError(f"Unknown plot {kind!r}; {did_you_mean(kind, CURVE_PLOTS)}")
        if self.curves is None:
            raise DataError(f"Task {self.name!r} has no curves: they are for binary tasks with both classes.")
        return CURVE_PLOTS[kind](self.curves)

    def baseline_table(self, *, titles: bool = False) -> TextTable:
        """One line a metric: the model, each baseline, and the model's lead over the last (strongest) baseline.

        Args:
            titles: Write metrics as titles, such as "AUC", instead of their names.

        Returns:
            The table.
        """
        names = list(self.baselines)
        last = self.baselines[names[-1]]
        rows = []
        for metric, estimate in self.metrics.items():
            one = [estimate, *(self.baselines[name].metrics[metric] for name in names)]
            decimals = decimals_for([estimate])
            gap = last.differences.get(metric)
            lead = "–" if gap is None else interval_text(gap.difference, decimals, signed=True)
            shown = metric_title(metric) if titles else metric
            rows.append([shown, *(number(value.value, decimals) for value in one), lead])
        return TextTable([self.name, "model", *names, f"model minus {names[-1]}, interval"], rows)

    def decision_table(self) -> TextTable:
        """Confusion counts and rates at each threshold of `decisions`."""
        rows = [
            [
                name,
                number(one.threshold),
                *(number(count, 0) for count in (one.true_positives, one.false_positives)),
                *(number(count, 0) for count in (one.false_negatives, one.true_negatives)),
                *(number(rate) for rate in (one.accuracy, one.precision, one.recall, one.f1)),
            ]
            for name, one in self.decisions.items()
        ]
        header = ["threshold", "score ≥", "TP", "FP", "FN", "TN", "accuracy", "precision", "recall", "F1"]
        return TextTable(header, rows)

    def facts(self) -> str:
        """One line of context, e.g. ``20,000 rows, mean label 0.4810, mean score 0.4702``."""
        text = f"{self.n_rows:,} rows"
        if self.type == "multiclass":
            return text
        return f"{text}, mean label {number(self.label_mean)}, mean score {number(self.score_mean)}"

    def remarks(self) -> list[str]:
        """The notes, and which metrics were left out and why."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(name)
        left_out = (f"Left out {', '.join(names)}: {reason}." for reason, names in by_reason.items())
        return [*self.notes, *left_out]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, see `EvaluationResult.to_dict`."""
        return {
            "type": self.type,
            "n_rows": self.n_rows,
            "label_mean": finite_or_none(self.label_mean),
            "score_mean": finite_or_none(self.score_mean),
            "metrics": {name: estimate.to_dict() for name, estimate in self.metrics.items()},
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
            "curves": self.curves.to_dict() if self.curves else None,
            "decisions": {name: one.to_dict() for name, one in self.decisions.items()},
            "baselines": {name: one.to_dict() for name, one in self.baselines.items()},
            "classes": [one.to_dict() for one in self.classes],
        }


@dataclass(frozen=True)
class EvaluationResult:
    """The metrics of all tasks of one predictions table.

    Attributes:
        tasks: Results by task name.
        unit: What intervals resample: "user", or "row" when no user column was given.
        n_units: Number of users, of sessions, or of rows.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples, 0 without intervals.
        seed: Seed of the resamples.
        n_grouped: Number of random groups that the units were drawn in, where they are too many to draw singly.
        slices: Metrics by slice that belong to it, for reports.
    """

    tasks: Mapping[str, TaskResult]
    unit: Unit
    n_units: int
    level: float
    resamples: int
    seed: int
    n_grouped: int | None = None
    slices: tuple[SliceResult, ...] = ()

    def __getitem__(self, task: str) -> TaskResult:
        """The result of a task."""
        return self.tasks[task]

    def value(self, name: str, task: str | None = None) -> float:
        """The value of a metric.

        Args:
            name: Metric name.
            task: Task name; may be left out if there is one task.

        Returns:
            The value; nan if it is undefined.

        Raises:
            KeyError: There is no such task or metric, or `task` is needed.
        """
        if task is None:
            if len(self.tasks) != 1:
                raise KeyError(f"There are several tasks ({', '.join(self.tasks)}); say which.")
            task = next(iter(self.tasks))
        return self.tasks[task].metrics[name].value

    def method(self) -> str:
        """How the intervals were made, in words."""
        if not self.resamples:
            return "No intervals were computed."
        unit = f"{self.n_units:,} {self.unit}s"
        if self.n_grouped is not None:
            unit += f" in {self.n_grouped:,} random groups"
        if self.unit == "row":
            unit += " (no user column was given, so rows count as independent)"
        return (
            f"Intervals: {percent(self.level)}, percentile bootstrap over {unit}, {self.resamples:,} resamples, "
            f"seed {self.seed}."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form.

        Returns:
            ``{"schema": "easyrec.evaluation/1", "unit", "n_units", "level", "resamples", "seed", "tasks": {name:
            {"type", "n_rows", "label_mean", "score_mean", "metrics": {name: {"value", "low", "high", "level", "n",
            "note"}}, "left_out": {metric: reason}, "notes": [..], "curves": {..} or None, "decisions": {..},
            "baselines": {name: {"metrics": {..}, "differences": {..}}}, "classes": [..]}}}``.

        Numbers that do not exist are None, never NaN. A name is only ever added within one schema version.
        """
        return {
            "schema": SCHEMA,
            "unit": self.unit,
            "n_units": self.n_units,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "tasks": {name: task.to_dict() for name, task in self.tasks.items()},
        }

    def to_markdown(self) -> str:
        """A section per task with its table."""
        parts = []
        for task in self.tasks.values():
            parts.append(f"### {task.name} ({task.type})\n\n{task.facts()}.\n\n{task.table().to_markdown()}")
            if task.baselines:
                parts.append(task.baseline_table().to_markdown())
            if task.decisions:
                parts.append(task.decision_table().to_markdown())
            parts += [class_table(task.classes).to_markdown()] if task.classes else []
            parts += [f"- {note}" for note in task.remarks()]
        return "\n\n".join([*parts, self.method()]) + "\n"

    def __str__(self) -> str:
        """Tables for a terminal."""
        parts = []
        for task in self.tasks.values():
            parts.append(f"{task.name} ({task.type}): {task.facts()}\n\n{task.table().to_text()}")
            parts += [task.baseline_table().to_text()] if task.baselines else []
            parts += [class_table(task.classes).to_text()] if task.classes else []
            parts += [f"Note: {note}" for note in task.remarks()]
        return "\n\n".join([*parts, self.method()])

    def _repr_html_(self) -> str:
        parts = []
        for task in self.tasks.values():
            title = escape(f"{task.name} ({task.type}): {task.facts()}")
            parts.append(f"<p><b>{title}</b></p>{task.table().to_html()}")
            parts += [task.baseline_table().to_html()] if task.baselines else []
            parts += [class_table(task.classes).to_html()] if task.classes else []
            parts += [f"<p>{escape(note)}</p>" for note in task.remarks()]
        return "".join([*parts, f"<p>{escape(self.method())}</p>"])
