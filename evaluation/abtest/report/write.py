"""Writing the report of an experiment: `write_experiment_report` is the one function a caller needs."""

import json
import os
from pathlib import Path

import jinja2

from evaluation.abtest.analysis.results import ExperimentResult
from evaluation.abtest.report import layout
from evaluation.errors import EvaluationError
from evaluation.render import TextTable
from evaluation.report import ReportPaths
from evaluation.report.layout import Table


def write_experiment_report(directory: str | os.PathLike[str], result: ExperimentResult) -> ReportPaths:
    """Write ``experiment.json``, ``experiment.md`` and ``experiment.html``, each at once.

    Args:
        directory: Where; created if missing.
        result: Of `analyze`.

    Returns:
        The three paths.

    Raises:
        EvaluationError: A file cannot be written.
    """
    folder = Path(directory)
    texts = {
        "experiment.json": json.dumps(result.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "experiment.md": to_markdown(result),
        "experiment.html": to_html(result),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            partial = folder / f".{name}.partial"
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, folder / name)
    except OSError as error:
        raise EvaluationError(f"The report cannot be written to {folder}: {error}") from error
    return ReportPaths(*(folder / name for name in texts))


def to_html(result: ExperimentResult) -> str:
    """The report as one HTML page."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader("evaluation.abtest.report"), jinja2.PackageLoader("evaluation.report")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("experiment.html.j2").render(layout.page(result))


def to_markdown(result: ExperimentResult) -> str:
    """The report without its plots, for a merge request or a wiki."""
    verdict = result.verdict
    parts = [f"# {result.experiment}: {verdict.word}", f"**{verdict.sentence}** (rule: {verdict.rule})"]
    if result.hypothesis:
        parts.append(result.hypothesis)
    parts.append("\n".join(f"- {name}: {value}" for name, value in layout.facts(result)))
    parts += ["## Can the data be trusted?", _text_table(layout.check_table(result.checks)).to_markdown()]
    parts.append(layout.left_out(result))
    if result.trusted:
        for variant in (name for name in result.weights if name != result.control):
            mine = [one for one in result.metrics if one.variant == variant]
            parts.append(f"## {variant} against {result.control}")
            for title, table in layout.metric_tables(mine, result.alpha):
                parts += [f"### {title}", _text_table(table).to_markdown()]
    else:
        parts.append("A check is red, so the numbers do not answer the question; they are in the JSON.")
    parts += list(result.notes)
    if result.command:
        parts += ["## How to reproduce", f"```sh\n{result.command}\n```"]
    return "\n\n".join(parts) + "\n"


def to_text(result: ExperimentResult) -> str:
    """The report for a terminal: verdict, checks that are not green, metrics."""
    verdict = result.verdict
    parts = [f"{verdict.word.upper()}  {verdict.sentence}"]
    odd = [check for check in result.checks if check.status in ("red", "amber")]
    parts += [f"{check.status}  {check.title}: {check.finding}. {check.advice}" for check in odd]
    if result.trusted:
        for variant in (name for name in result.weights if name != result.control):
            mine = [one for one in result.metrics if one.variant == variant]
            for title, table in layout.metric_tables(mine, result.alpha):
                parts.append(f"{variant} against {result.control}: {title}\n{_text_table(table).to_text()}")
    parts += [f"note: {note}" for note in result.notes]
    return "\n\n".join(parts)


def _text_table(table: Table) -> TextTable:
    left = frozenset(place for place, cell in enumerate(table.header) if cell.is_text)

    def text(cells: object) -> list[str]:
        return [
            f"{cell.text} {cell.small}".strip() if not cell.is_text else cell.text
            for cell in cells  # type: ignore[attr-defined]
        ]

    return TextTable([cell.text for cell in table.header], [text(row.cells) for row in table.rows], left)
