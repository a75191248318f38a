"""Small tables and numbers as text, Markdown and HTML, the same in a terminal, a notebook and a report."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from evaluation.uncertainty import Estimate

_TITLES = {
    "auc": "AUC",
    "pr_auc": "PR-AUC",
    "log_loss": "Log-loss",
    "brier": "Brier score",
    "ece": "ECE",
    "f1": "F1",
    "best_f1": "Best F1",
    "macro_f1": "Macro F1",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "mape": "MAPE",
    "xauc": "XAUC",
    "gauc": "GAUC",
    "gauc_by_positives": "GAUC by positives",
    "gauc_uniform": "GAUC, users alike",
    "grouped_log_loss": "Log-loss, users alike",
    "session_auc": "Session AUC",
    "session_auc_by_positives": "Session AUC by positives",
    "session_auc_uniform": "Session AUC, sessions alike",
    "ndcg": "NDCG",
    "exponential_ndcg": "NDCG (exponential)",
    "map": "MAP",
    "mrr": "MRR",
}
_DEFAULT_DECIMALS = 4
_SMALL = 10
_MISSING = "–"


@dataclass(frozen=True)
class TextTable:
    """A table of ready-made texts.

    Attributes:
        header: Column titles.
        rows: Cells, each row as long as the header.
        left: Columns that align left; the others, numbers, align right.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: frozenset[int] = frozenset({0})

    def to_text(self) -> str:
        """Columns padded with spaces, for a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.header))]

        def line(cells: Sequence[str]) -> str:
            padded = [
                cell.ljust(width) if place in self.left else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            return "  ".join(padded).rstrip()

        rule = "  ".join("-" * width for width in widths)
        return "\n".join([line(self.header), rule, *(line(row) for row in self.rows)])

    def to_markdown(self) -> str:
        """A pipe table."""
        marks = [":---" if place in self.left else "---:" for place in range(len(self.header))]
        return "\n".join(
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
            for cells in (self.header, marks, *self.rows)
        )

    def to_html(self) -> str:
        """A plain table element; every text is escaped."""

        def row(cells: Sequence[str], tag: str) -> str:
            sides = ("left" if place in self.left else "right" for place in range(len(cells)))
            return "".join(
                f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
                for side, cell in zip(sides, cells, strict=True)
            )

        body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in self.rows)
        return f"<table><thead><tr>{row(self.header, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def decimals_for(estimates: Iterable[Estimate]) -> int:
    """Decimals that show two digits of the median half-interval, between 2 and 5; 4 without intervals."""
    widths = sorted((one.high - one.low) / 2 for one in estimates if one.has_interval and one.high > one.low)
    if not widths:
        return _DEFAULT_DECIMALS
    return min(5, max(2, 1 - math.floor(math.log10(widths[len(widths) // 2]))))


def number(value: float, decimals: int = _DEFAULT_DECIMALS, *, signed: bool = False) -> str:
    """A rounded number with a true minus sign, or a dash if it is missing."""
    if not math.isfinite(value):
        return _MISSING
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    return text.replace("-", "−")


def interval_text(estimate: Estimate, decimals: int = _DEFAULT_DECIMALS, *, signed: bool = False) -> str:
    """E.g. ``0.7248 to 0.7371``, or a dash."""
    if not estimate.has_interval:
        return _MISSING
    low, high = number(estimate.low, decimals, signed=signed), number(estimate.high, decimals, signed=signed)
    return f"{low} to {high}"


def percent(share: float, decimals: int = 0) -> str:
    """E.g. ``95 %``."""
    return f"{number(100 * share, decimals)} %" if math.isfinite(share) else _MISSING


def p_value_text(p_value: float, floor: float = 0.0) -> str:
    """E.g. ``0.031`` or ``< 0.002``, where `floor` is the smallest value the method can give."""
    if not math.isfinite(p_value):
        return _MISSING
    if p_value <= floor * 1.0001:
        return f"≤ {floor:.3f}"
    return f"{p_value:.3f}"


def metric_title(name: str) -> str:
    """How a metric is written for readers, e.g. "ndcg@10" -> "NDCG@10", "hit_rate" -> "Hit rate"."""
    base, at, k = name.partition("@")
    return f"{_TITLES.get(base, base.replace('_', ' ').capitalize())}{at}{k}"


def common_decimals(estimates: Iterable[Estimate]) -> dict[int, int]:
    """Decimals by position for numbers of one column: those below 10 share theirs, so that they align."""
    numbers = list(estimates)
    shared = decimals_for(one for one in numbers if abs(one.value) < _SMALL)
    return {
        place: shared if not abs(one.value) >= _SMALL else decimals_for([one])
        for place, one in enumerate(numbers)
    }
