"""`easyrec evaluate --predictions`: judges a table of predictions, from this framework or not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from easyrec.cli.common import output
from easyrec.errors import ConfigError, nearest
from easyrec.versions import versions

if TYPE_CHECKING:
    from evaluation import EvaluationResult, SliceResult, TaskColumns

_DUPLICATES = ("keep", "first", "last", "error")
_TYPES = ("binary", "regression", "multiclass")


@dataclass(frozen=True)
class TableRequest:
    """What is asked about a table of predictions.

    Attributes:
        table: The file or folder.
        labels: Label column of each task.
        scores: Score column of each task, or its columns with commas between.
        types: Type of each task, or one of all; found from the labels unless given.
        classes: Names of the classes of a multi-class task, in the order of its score columns, with commas between.
        columns: The columns of users, sessions, items and weights, by what they are.
        metrics: Names of metrics; all that fit unless given.
        slices: Columns that cut the rows.
        duplicates: What becomes of rows with the same user and item.
        level: Confidence level.
        resamples: Bootstrap resamples; fewer for a long table unless given.
        report: Folder of the report.
    """

    table: Path
    labels: Sequence[str] = ("label",)
    scores: Sequence[str] = ("score",)
    types: Sequence[str] = ()
    classes: str | None = None
    columns: dict[str, str | None] = field(default_factory=dict)
    metrics: Sequence[str] | None = None
    slices: Sequence[str] = ()
    duplicates: str = "keep"
    level: float = 0.95
    resamples: int | None = None
    report: Path | None = None

    def check(self) -> None:
        """Refuses options that do not fit each other.

        Raises:
            ConfigError: They do not.
        """
        if len(self.labels) != len(self.scores):
            raise ConfigError(
                f"--label is given {len(self.labels)} times and --score {len(self.scores)} times: each task needs "
                "one of both, in the same order"
            )
        if len(set(self.labels)) != len(self.labels):
            raise ConfigError("--label names a column twice: a label has one score")
        if len(self.types) not in (0, 1, len(self.labels)):
            raise ConfigError(f"--task is given {len(self.types)} times for {len(self.labels)} labels")
        for type_ in self.types:
            if type_ not in _TYPES:
                raise ConfigError(
                    f"--task must be one of {', '.join(_TYPES)}, got {type_!r}.{nearest(type_, _TYPES)}"
                )
        if self.duplicates not in _DUPLICATES:
            raise ConfigError(
                f"--duplicates must be one of {', '.join(_DUPLICATES)}, got {self.duplicates!r}"
            )

    def tasks(self) -> dict[str, TaskColumns]:
        """The task of each label, its type as asked or found from the labels."""
        from evaluation import TaskColumns, infer_task

        types: list[str | None] = [*self.types] or [None]
        if len(types) == 1:
            types *= len(self.labels)
        classes = _names(self.classes) if self.classes is not None else None
        found: dict[str, TaskColumns] = {}
        for label, score, type_ in zip(self.labels, self.scores, types, strict=True):
            names = _names(score)
            if not names:
                raise ConfigError("--score names no column")
            if type_ is None:
                found[label] = infer_task(self.table, label, names, classes)
            else:
                one = names if len(names) > 1 else names[0]
                found[label] = TaskColumns(type_, label, one, classes if type_ == "multiclass" else None)  # type: ignore[arg-type]
        if classes is not None and all(task.type != "multiclass" for task in found.values()):
            kinds = ", ".join(f"{name!r} is {task.type}" for name, task in found.items())
            raise ConfigError(f"--classes names the classes of a multi-class task, but {kinds}")
        return found

    def metrics_of(self, tasks: dict[str, TaskColumns]) -> dict[str, list[str]] | None:
        """The metrics asked for, for each task those that fit it; one that fits none is left for the check of it."""
        from evaluation import parse_metric

        if self.metrics is None:
            return None
        kinds = {
            name: {task.type, "ranking", *(("grouped", "session") if task.type == "binary" else ())}
            for name, task in tasks.items()
        }
        wanted: dict[str, list[str]] = {name: [] for name in tasks}
        for metric in self.metrics:
            fitting = [name for name in tasks if kinds[name] & set(parse_metric(metric).metric.kinds)]
            for name in fitting or tasks:
                wanted[name].append(metric)
        return wanted

    def command(self) -> str:
        """The command that makes the same report."""
        parts = ["easyrec", "evaluate", "--predictions", str(self.table)]
        for label, score in zip(self.labels, self.scores, strict=True):
            parts += ["--label", label, "--score", score]
        for type_ in self.types:
            parts += ["--task", type_]
        optional = {"classes": self.classes, **self.columns}
        for name, value in optional.items():
            parts += [f"--{name}", value] if value is not None else []
        for metric in self.metrics or ():
            parts += ["--metric", metric]
        for name in self.slices:
            parts += ["--slice", name]
        parts += ["--duplicates", self.duplicates] if self.duplicates != "keep" else []
        parts += ["--level", str(self.level)] if self.level != TableRequest.level else []
        parts += ["--resamples", str(self.resamples)] if self.resamples is not None else []
        parts += ["--report", str(self.report)] if self.report is not None else []
        return shlex.join(parts)


def judge_table(request: TableRequest) -> None:
    """Judges a table, prints what was found, and writes the report."""
    from evaluation import evaluate, write_report

    request.check()
    tasks = request.tasks()
    metrics = request.metrics_of(tasks)
    if metrics is not None:
        tasks = {name: task for name, task in tasks.items() if metrics[name]}
        metrics = {name: metrics[name] for name in tasks}
    result = evaluate(
        request.table,
        tasks=tasks,
        metrics=metrics,
        duplicates=request.duplicates,  # type: ignore[arg-type]
        level=request.level,
        resamples=request.resamples,
        **request.columns,  # type: ignore[arg-type]
    )
    slices = [_sliced(request, tasks, name, result) for name in tasks] if request.slices else []
    paths = write_report(
        request.report or Path("report"),
        title=request.table.name,
        evaluation=result,
        slices=slices,
        versions=versions(),
        data={
            "predictions": {
                "rows": next(iter(result.tasks.values())).n_rows,
                **({} if result.unit == "row" else {f"{result.unit}s": result.n_units}),
                **{
                    f"mean {name}": task.label_mean
                    for name, task in result.tasks.items()
                    if task.type != "multiclass"
                },
            }
        },
        command=request.command(),
    )
    out = output()
    for part in (result, *slices):
        out.print(str(part), markup=False)
        out.print()
    out.print(f"report  {paths.html}", markup=False)


def _sliced(
    request: TableRequest, tasks: dict[str, TaskColumns], task: str, result: EvaluationResult
) -> SliceResult:
    from evaluation import evaluate_slices
    from evaluation.slice_result import SLICE_RESAMPLES

    found = evaluate_slices(
        request.table,
        list(request.slices),
        tasks=tasks,
        task=task,
        duplicates=request.duplicates,  # type: ignore[arg-type]
        level=request.level,
        resamples=max(result.resamples, SLICE_RESAMPLES) if request.resamples is None else request.resamples,
        **request.columns,  # type: ignore[arg-type]
    )
    # One number has one interval in a report, however often its bootstrap is run.
    overall = result[task].metrics.get(found.metric)
    return found if overall is None else replace(found, overall=overall)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
