"""A report as Markdown, for a merge request or a wiki."""

from evaluation.render import TextTable, metric_title
from evaluation.report import layout
from evaluation.report.content import EXPLANATIONS_END, EXPLANATIONS_START, Report


def to_markdown(report: Report) -> str:
    """The whole report but its plots."""
    parts = [f"# {report.title}", *(f"**{verdict}**" for verdict in report.verdicts())]
    if report.summary:
        parts.append("\n".join(f"- {name}: {value}" for name, value in layout.facts(report.summary)))
    parts += report.notes
    if report.ranking:
        parts += ["## Recommendations", report.ranking.to_markdown().strip()]
    if report.evaluation:
        parts += ["## Predictions", report.evaluation.to_markdown().strip()]
    for one in report.slices:
        parts += [f"## {metric_title(one.metric)} of {one.task} by slice", one.to_markdown().strip()]
    if report.evaluation or report.ranking or report.importance or report.attributions:
        parts.append(explanations_markdown(report))
    if report.data:
        parts += ["## Data", _text_table(layout.data_table(report.data)).to_markdown()]
    if report.leakage:
        parts += ["## Leakage", report.leakage.to_markdown().strip()]
    if report.coverage:
        parts += ["## Features", _text_table(layout.coverage_table(report.coverage)).to_markdown()]
    parts += _examples(report)
    parts += _reproduce(report)
    return "\n\n".join(parts) + "\n"


def explanations_markdown(report: Report) -> str:
    """What predictions come from, between marks that do not show: nothing but the marks where it is not known."""
    parts = []
    for importance in report.importance:
        parts += [f"## What predictions of {importance.task} come from", importance.to_markdown().strip()]
    for attribution in report.attributions:
        parts += [f"### {attribution.row}", attribution.table().to_markdown()]
    return "\n\n".join([EXPLANATIONS_START, *parts, EXPLANATIONS_END])


def _text_table(table: layout.Table) -> TextTable:
    left = frozenset(place for place, cell in enumerate(table.header) if cell.is_text)
    rows = [[cell.text for cell in row.cells] for row in table.rows]
    return TextTable([cell.text for cell in table.header], rows, left)


def _examples(report: Report) -> list[str]:
    parts = ["## Examples"] if report.examples else []
    for one in report.examples:
        lines = [
            f"{place}. {item.title}{' ✓' if item.relevant else ''}" for place, item in enumerate(one.items, 1)
        ]
        parts += [f"### {one.user}", f"Liked: {', '.join(one.history) or '–'}", "\n".join(lines)]
    return parts


def _reproduce(report: Report) -> list[str]:
    parts = []
    if report.command:
        parts.append(f"```sh\n{report.command}\n```")
    if report.versions:
        parts.append(", ".join(f"{name} {version}" for name, version in report.versions.items()))
    if report.config_text:
        parts.append(f"```yaml\n{report.config_text.rstrip()}\n```")
    return ["## How to reproduce", *parts] if parts else []
