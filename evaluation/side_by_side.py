"""Many reports side by side: which model is best by which metric, and whether they were judged on the same rows."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from evaluation.errors import DataError, EvaluationError, did_you_mean
from evaluation.metrics.registry import parse_metric
from evaluation.render import TextTable, decimals_for, interval_text, number
from evaluation.uncertainty import Estimate

_MOST_COLUMNS = 8


@dataclass(frozen=True)
class Entry:
    """One report.

    Attributes:
        name: What it is called.
        title: Its heading.
        metrics: Estimates by name, e.g. "liked/auc" or "ranking/ndcg@10".
        judged_on: How many rows, users and items it was judged on, by part; equal for comparable reports.
        primary: The main metric of its ranked lists; empty without any.
    """

    name: str
    title: str
    metrics: Mapping[str, Estimate]
    judged_on: Mapping[str, int]
    primary: str = ""


@dataclass(frozen=True)
class Leaderboard:
    """Reports by one metric, best first.

    Attributes:
        entries: The reports in order.
        metric: What they are ordered by.
        metrics: The metrics that are shown.
    """

    entries: tuple[Entry, ...]
    metric: str
    metrics: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers needs to know."""
        by_rows: dict[str, list[str]] = {}
        for one in self.entries:
            by_rows.setdefault(_counts(one.judged_on), []).append(one.name)
        notes = []
        if len(by_rows) > 1:
            groups = "; ".join(f"{', '.join(names)} on {rows}" for rows, names in by_rows.items())
            notes.append(
                f"Not all were judged on the same rows, and those figures are not comparable: {groups}."
            )
        return [
            *notes,
            "Intervals that overlap do not mean that there is no difference: compare two runs for that.",
        ]

    def table(self) -> TextTable:
        """Reports by metrics; the ordering one with its interval."""
        decimals = {
            name: decimals_for([one.metrics[name] for one in self.entries if name in one.metrics])
            for name in self.metrics
        }
        rows = []
        for place, one in enumerate(self.entries, 1):
            cells = [str(place), one.name]
            for name in self.metrics:
                estimate = one.metrics.get(name)
                cells.append("–" if estimate is None else number(estimate.value, decimals[name]))
                if name == self.metric:
                    cells.append("–" if estimate is None else interval_text(estimate, decimals[name]))
            rows.append(cells)
        header = ["", "run"]
        for name in self.metrics:
            header += [name, "interval"] if name == self.metric else [name]
        return TextTable(header, rows, frozenset({1}))

    def __str__(self) -> str:
        """A table for a terminal."""
        return "\n\n".join([self.table().to_text(), *(f"Note: {note}" for note in self.notes)])

    def to_markdown(self) -> str:
        """Table and notes."""
        return "\n\n".join([self.table().to_markdown(), *(f"- {note}" for note in self.notes)]) + "\n"

    def _repr_html_(self) -> str:
        return self.table().to_html() + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "schema": "easyrec.leaderboard/1",
            "metric": self.metric,
            "entries": [
                {
                    "name": one.name,
                    "title": one.title,
                    "metrics": {name: estimate.to_dict() for name, estimate in one.metrics.items()},
                    "judged_on": dict(one.judged_on),
                }
                for one in self.entries
            ],
            "notes": self.notes,
        }


def leaderboard(reports: Mapping[str, str | Path], metric: str | None = None) -> Leaderboard:
    """Put reports side by side.

    Args:
        reports: Paths of ``report.json`` files, or of the folders they are in, by name.
        metric: What to order by, e.g. "liked/auc"; by default the first that all have.

    Returns:
        The board, best first.

    Raises:
        DataError: A file is missing or is no report.
        EvaluationError: No reports, a metric that none has, or none that all have.
    """
    if not reports:
        raise EvaluationError("There are no reports to put side by side.")
    entries = [read_entry(name, path) for name, path in reports.items()]
    names = list(dict.fromkeys(name for one in entries for name in one.metrics))
    common = [name for name in names if all(name in one.metrics for one in entries)]
    if metric is not None and metric not in names:
        raise EvaluationError(f"No report has a metric {metric!r}; {did_you_mean(metric, names)}")
    headline = [f"ranking/{one.primary}" for one in entries]
    chosen = metric or next(iter([name for name in headline if name in common] + common), None)
    if chosen is None:
        raise EvaluationError("The reports have no metric in common; name one to order by.")
    sign = -1 if parse_metric(chosen.partition("/")[2]).metric.higher_is_better else 1

    def order(one: Entry) -> tuple[bool, float]:
        value = one.metrics[chosen].value if chosen in one.metrics else math.nan
        return math.isnan(value), sign * value if not math.isnan(value) else 0.0

    k = (chosen if "@" in chosen else headline[0]).rpartition("@")[2]
    alike = [name for name in common if "@" not in name or name.endswith(f"@{k}")]
    shown = list(dict.fromkeys([chosen, *alike]))[:_MOST_COLUMNS]
    return Leaderboard(tuple(sorted(entries, key=order)), chosen, tuple(shown))


def read_entry(name: str, path: str | Path) -> Entry:
    """Read one report.

    Raises:
        DataError: The file is missing or is no report.
    """
    file = Path(path)
    file = file / "report.json" if file.is_dir() else file
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{name}: {file} cannot be read as a report: {error}") from error
    if not isinstance(content, dict) or not str(content.get("schema", "")).startswith("easyrec.report/"):
        raise DataError(f"{name}: {file} is no report written by `write_report`.")
    metrics: dict[str, Estimate] = {}
    judged_on: dict[str, int] = {}
    for task, result in ((content.get("evaluation") or {}).get("tasks") or {}).items():
        judged_on[f"{task} rows"] = int(result["n_rows"])
        metrics |= {f"{task}/{metric}": Estimate.from_dict(one) for metric, one in result["metrics"].items()}
    ranking = content.get("ranking")
    if ranking:
        judged_on |= {"users": int(ranking["n_users"]), "items": int(ranking["n_items"])}
        table = ranking["models"][content["model"]]
        metrics |= {f"ranking/{metric}": Estimate.from_dict(one) for metric, one in table.items()}
    return Entry(name, str(content["title"]), metrics, judged_on, str(ranking["primary"]) if ranking else "")


def _counts(judged_on: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in judged_on.items()) or "nothing"
