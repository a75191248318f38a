"""Writing a report: `write_report` is the one function a caller needs; `add_explanations` adds to one later."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from evaluation.attribution import Attribution
from evaluation.errors import EvaluationError
from evaluation.importance import ImportanceResult
from evaluation.leakage import LeakageReport
from evaluation.ranking_result import RankingResult
from evaluation.report.content import (
    EXPLANATIONS_END,
    EXPLANATIONS_START,
    Example,
    Report,
    coverage_rows,
    examples_of,
    main_model,
)
from evaluation.report.markdown import explanations_markdown, to_markdown
from evaluation.report.page import explanations, page
from evaluation.results import EvaluationResult
from evaluation.slice_result import SliceResult


class ReportPaths(NamedTuple):
    """The files of a report."""

    json: Path
    markdown: Path
    html: Path


def write_report(
    directory: str | Path,
    *,
    title: str,
    evaluation: EvaluationResult | None = None,
    ranking: RankingResult | None = None,
    model: str | None = None,
    summary: Mapping[str, Any] | None = None,
    training_log: Sequence[Mapping[str, Any]] | None = None,
    coverage: Any = None,
    examples: Sequence[Example | Mapping[str, Any]] | None = None,
    config_text: str | None = None,
    versions: Mapping[str, str] | None = None,
    command: str | None = None,
    slices: Sequence[SliceResult] | None = None,
    leakage: LeakageReport | None = None,
    importance: Sequence[ImportanceResult] | None = None,
    attributions: Sequence[Attribution] | None = None,
    data: Mapping[str, Mapping[str, Any]] | None = None,
    notes: Sequence[str] | None = None,
) -> ReportPaths:
    """Write ``report.json``, ``report.md`` and ``report.html``; whatever is not given is left out.

    The HTML page needs no other file and no network. An older report is replaced file by file, each at once.

    Args:
        directory: Where to write; created if missing.
        title: Heading of the report.
        evaluation: Result of `evaluate`.
        ranking: Result of `evaluate_ranking`.
        model: Which model of `ranking` the report is about; by default the first that is neither the reference nor
            a baseline.
        summary: Key facts, e.g. ``{"rows": 100_000, "training time": "41 s"}``.
        training_log: Entries of the training log, e.g. ``{"step": 100, "train/loss": 0.51, "eval/auc": 0.78}``.
        coverage: Feature coverage: a DataFrame, a list of mappings, or mappings by feature, e.g. ``{"age":
            {"missing": 0.02, "unseen": 0.0}}``. Fractions in columns such as "missing" or "unseen" are shares.
        examples: Example lists, as `Example` or as mappings with its keys.
        config_text: The configuration as text.
        versions: Versions of libraries.
        command: The command that reproduces the run.
        slices: Results of `evaluate_slices`, after those of `evaluation` itself.
        leakage: Result of `check_leakage`.
        importance: Results of `permutation_importance`.
        attributions: Predictions taken apart.
        data: Facts of each part of the data, e.g. ``{"training": {"rows": 100}, "evaluation": {"rows": 20}}``.
        notes: What a reader should know: what was left out, and why something is missing.

    Returns:
        Paths of the three files.

    Raises:
        DataError: Coverage, examples or facts of an unknown form.
        EvaluationError: `model` is not in `ranking`, or a file cannot be written.
    """
    report = Report(
        title=title,
        model=main_model(ranking, model),
        evaluation=evaluation,
        ranking=ranking,
        summary=summary or {},
        training_log=training_log or (),
        coverage=coverage_rows(coverage),
        examples=examples_of(examples),
        config_text=config_text or "",
        versions=versions or {},
        command=command or "",
        slices=(*(evaluation.slices if evaluation else ()), *(slices or ())),
        leakage=leakage,
        importance=importance or (),
        attributions=attributions or (),
        data=data or {},
        notes=notes or (),
    )
    return _write(
        Path(directory),
        {
            "report.json": _json(report.to_dict()),
            "report.md": to_markdown(report),
            "report.html": to_html(report),
        },
    )


def add_explanations(
    directory: str | Path,
    *,
    importance: Sequence[ImportanceResult] = (),
    attributions: Sequence[Attribution] = (),
) -> ReportPaths | None:
    """Put what predictions come from into a report that is already written; the rest of it stays as it is.

    Args:
        directory: Where the report is.
        importance: Results of `permutation_importance`.
        attributions: Predictions taken apart.

    Returns:
        Paths of the three files; None if there is no whole report there to add to.

    Raises:
        EvaluationError: A file cannot be written.
    """
    folder = Path(directory)
    files = {name: folder / name for name in ("report.json", "report.md", "report.html")}
    if not all(path.is_file() for path in files.values()):
        return None
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    content = json.loads(texts["report.json"])
    report = Report("", importance=importance, attributions=attributions)
    html = _environment().get_template("explanations.html.j2").render(explanations(report))
    shown = {
        "report.md": _between_marks(texts["report.md"], explanations_markdown(report)),
        "report.html": _between_marks(
            texts["report.html"], f"{EXPLANATIONS_START}\n{html.rstrip()}\n{EXPLANATIONS_END}"
        ),
    }
    if not all(shown.values()):
        return None  # of an older version, which had no place for it
    added = {name: report.to_dict()[name] for name in ("importance", "attributions")}
    return _write(folder, {"report.json": _json({**content, **added}), **shown})


def _between_marks(text: str, new: str) -> str:
    """The text with what is between the marks of explanations replaced; empty if it has no marks."""
    before, start, rest = text.partition(EXPLANATIONS_START)
    _, end, after = rest.partition(EXPLANATIONS_END)
    return f"{before}{new}{after}" if start and end else ""


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _write(folder: Path, texts: Mapping[str, str]) -> ReportPaths:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _replace(folder / name, text)
    except OSError as error:
        raise EvaluationError(f"The report cannot be written to {folder}: {error}") from error
    return ReportPaths(*(folder / name for name in texts))


def to_html(report: Report) -> str:
    """The report as one HTML page."""
    return _environment().get_template("report.html.j2").render(page(report))


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("evaluation.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _replace(path: Path, text: str) -> None:
    # Written beside and moved, so that an interrupted write never leaves half a report.
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
