"""Writes what came of a run for people: the run report and the evaluation report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from easyrec.config.pipeline import PipelineConfig
from easyrec.config.schema import resolved_yaml
from easyrec.data.bound import BoundDataset
from easyrec.features.encoder import Encoder
from easyrec.offline import MODEL, flat_metrics
from easyrec.offline.errors import raises_easyrec_errors
from easyrec.offline.leakage import look_for_leakage
from easyrec.preparation import Prepared
from easyrec.run import RunFolder
from easyrec.training.report import TrainingResult, run_report
from easyrec.training.report import write_report as write_run_report
from easyrec.versions import versions
from evaluation import (
    Attribution,
    EvaluationResult,
    Example,
    ImportanceResult,
    LeakageReport,
    RankingResult,
    write_report,
)

EXPLANATION = "explanation"
"""Folder in a run where `easyrec explain` writes, and reports look for it."""


@dataclass(frozen=True)
class Measured:
    """What the model reaches on held-out data.

    Attributes:
        rows: Metrics of rows; None without evaluation rows, or when all tasks are retrieval.
        ranking: Metrics of ranked lists; None when none are ranked.
        notes: Why something was not measured.
    """

    rows: EvaluationResult | None = None
    ranking: RankingResult | None = None
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, float]:
        """Values by `task/metric` and `ranking/metric@k`."""
        return flat_metrics(self.rows, self.ranking)


def write_reports(
    prepared: Prepared,
    result: TrainingResult,
    measured: Measured,
    examples: Callable[[], Sequence[Example]] = tuple,
) -> tuple[str, ...]:
    """Writes the run report (`run.json`) and the evaluation report (`report/`).

    The run is finished by then and its bundle written, so a part of the report that cannot be made is left out, and
    said to be.

    Args:
        prepared: The data and the features.
        result: What training did.
        measured: What the model reaches.
        examples: Makes example recommendations.

    Returns:
        What was left out and why, one sentence each.
    """
    run, encoder = prepared.run, prepared.encoder
    coverage = encoder.coverage()
    warnings = [*notes_of(prepared), *measured.notes, *choice_of(prepared, result)]
    report = run_report(
        result,
        prepared.data.report.as_dict(),
        coverage,
        metrics=measured.metrics,
        warnings=warnings,
    )
    write_run_report(run.summary_path, report)
    left_out: list[str] = []
    leakage = _part(
        "signs of leakage", lambda: look_for_leakage(prepared.config, prepared.data, encoder), left_out
    )
    write_evaluation_report(
        run,
        prepared.config,
        measured,
        coverage,
        examples=_part("example recommendations", examples, left_out) or (),
        leakage=leakage,
        notes=[*warnings, *left_out],
    )
    return tuple(left_out)


def choice_of(prepared: Prepared, result: TrainingResult) -> list[str]:
    """What it means for the figures that the same rows have chosen the checkpoint."""
    looked = len(result.evaluations)
    if prepared.config.export.checkpoint != "best" or result.best_step is None or looked < 2:
        return []
    return [
        f"the checkpoint of step {result.best_step:,} is the best of {looked} by {result.monitor} on the rows that are "
        "judged here, which flatters it, the more the fewer rows there are; for a figure that nothing was chosen by, "
        f"judge other rows: `easyrec evaluate {prepared.run.directory} --data FILE`"
    ]


def evaluation_report_of(
    run: RunFolder,
    config: PipelineConfig,
    data: BoundDataset,
    encoder: Encoder,
    measured: Measured,
    *,
    other_rows: Sequence[str] = (),
    folder: Path | None = None,
    examples: Callable[[], Sequence[Example]] = tuple,
) -> tuple[Path, tuple[str, ...]]:
    """Writes the evaluation report of a bundle that was measured after its training.

    Args:
        run: The run.
        config: Its configuration, with the evaluation rows that were judged.
        data: The rows.
        encoder: The features.
        measured: What the model reaches.
        other_rows: Paths of the evaluation rows where they are not the run's own: what the run knows of its own rows
            does not hold for them, and is found out anew.
        folder: Where to write; `report/` of the run unless given.
        examples: Makes example recommendations.

    Returns:
        The HTML page, and what was left out and why.
    """
    left_out: list[str] = []
    own = None if other_rows else _earlier_leakage(run)
    leakage = own or _part("signs of leakage", lambda: look_for_leakage(config, data, encoder), left_out)
    command = ["easyrec", "evaluate", str(run.directory)]
    for path in other_rows:
        command += ["--data", path]
    page = write_evaluation_report(
        run,
        config,
        measured,
        folder=folder,
        examples=_part("example recommendations", examples, left_out) or (),
        leakage=leakage,
        judged=data.report.as_dict() if other_rows else None,
        command=shlex.join([*command, *(["--report", str(folder)] if folder is not None else [])]),
        notes=[*measured.notes, *left_out],
    )
    return page, tuple(left_out)


Part = TypeVar("Part")


def _part(name: str, make: Callable[[], Part], left_out: list[str]) -> Part | None:
    """A part of a report; None, and a line in `left_out`, where it cannot be made."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - whatever it is, the run and the rest of its report stay
        left_out.append(f"the report is without {name}: {type(error).__name__}: {error}")
        return None


@raises_easyrec_errors
def write_evaluation_report(
    run: RunFolder,
    config: PipelineConfig,
    measured: Measured,
    coverage: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    examples: Sequence[Example] = (),
    model: str = MODEL,
    leakage: LeakageReport | None = None,
    judged: Mapping[str, Any] | None = None,
    command: str | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Writes the evaluation report of a run.

    Args:
        run: The run.
        config: Its configuration.
        measured: What the model reaches.
        coverage: Of its features; as the run report has it unless given.
        folder: Where to write; `report/` of the run unless given.
        examples: Example recommendations.
        model: Which model of `measured.ranking` the report is about.
        leakage: Signs of leakage; as the run's report has them of its own rows unless given.
        judged: What was read of the evaluation rows, where they are not the run's own.
        command: What makes the report again; by default training from the run's configuration into a folder beside it.
        notes: What a reader should know.

    Returns:
        The HTML page.
    """
    summary = run.summary()
    training = summary.get("training", {})
    data = dict(summary.get("data", {}))
    if judged is not None:
        data["eval"] = judged.get("eval") or {}
    facts = {
        "model": config.model.type,
        "training rows": data.get("train", {}).get("rows_used"),
        "evaluation rows": data.get("eval", {}).get("rows_used"),
        "epochs": training.get("epochs"),
        "examples per second": _rounded(training.get("examples_per_second")),
        "training seconds": _rounded(training.get("seconds")),
    }
    explained = _report_in(run.directory / EXPLANATION) if judged is None else {}
    again = ["easyrec", "train", str(run.config_path), "--run", f"{run.directory}-again"]
    paths = write_report(
        folder or run.report,
        title=config.name,
        evaluation=measured.rows,
        ranking=measured.ranking,
        model=model if measured.ranking is not None else None,
        summary={name: value for name, value in facts.items() if value is not None},
        training_log=_curves(run),
        coverage=coverage if coverage is not None else summary.get("features"),
        examples=examples,
        config_text=resolved_yaml(config),
        versions=versions(),
        data=_data_facts(data),
        leakage=leakage if leakage is not None or judged is not None else _earlier_leakage(run),
        importance=[ImportanceResult.from_dict(one) for one in explained.get("importance", ())],
        attributions=[Attribution(**one) for one in explained.get("attributions", ())],
        command=command or shlex.join(again),
        notes=notes,
    )
    return paths.html


def _data_facts(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows read, used and left out, of the training and of the evaluation data."""
    found = {}
    for part, name in (("train", "training"), ("eval", "evaluation")):
        rows = report.get(part) or {}
        if rows:
            found[name] = {
                "rows read": rows.get("rows_read"),
                "rows used": rows.get("rows_used"),
                "rows left out": sum((rows.get("dropped") or {}).values()),
                "sampled negatives": rows.get("negatives"),
                **{f"rows without {table}": count for table, count in (rows.get("unmatched") or {}).items()},
            }
    return found


def _earlier_leakage(run: RunFolder) -> LeakageReport | None:
    """What the run's own report says of leakage."""
    content = _report_in(run.report).get("leakage")
    return LeakageReport.from_dict(content) if content else None


def _report_in(folder: Path) -> dict[str, Any]:
    """The content of a report that was written there, or nothing."""
    path = folder / "report.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content


def notes_of(prepared: Prepared) -> list[str]:
    """What a reader of the numbers should know: rows left out, casts, joins, features without values."""
    encoder = prepared.encoder
    notes = list(prepared.notes)
    if prepared.config.data.negatives is not None:
        notes.append(
            "sampled negatives make scores lower than the rates observed in the evaluation rows: they rank items, and "
            "are no calibrated probabilities"
        )
    report = prepared.data.report
    return [*notes, *report.left_out(), *report.notes, *encoder.warnings, *encoder.coverage_warnings()]


def _curves(run: RunFolder) -> list[dict[str, Any]]:
    """Losses and metrics by step, from the log; steps that a resumed run did again count once."""
    curves: list[dict[str, Any]] = []
    for line in run.logged():
        if line.get("event") == "start":
            curves = [point for point in curves if point["step"] <= line["step"]]
        elif line.get("event") == "train":
            curves.append({"step": line["step"], "train/loss": line["loss"]})
        elif line.get("event") == "evaluation":
            metrics = {name: value for name, value in line.items() if "/" in name}
            curves.append(
                {"step": line["step"], **{f"eval/{name}": value for name, value in metrics.items()}}
            )
    return curves


def _rounded(value: float | None) -> int | float | None:
    return None if value is None else round(value) if value >= 10 else round(value, 2)
