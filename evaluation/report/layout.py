"""The parts of the HTML page: tables as cells, plots as inline SVG. The template only places them."""

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from evaluation.metrics.registry import Metric, parse_metric
from evaluation.plotting import plots
from evaluation.plotting.theme import THEMED, inline_svg
from evaluation.ranking_result import RankingResult, is_beyond_accuracy, won_lost
from evaluation.render import (
    TextTable,
    common_decimals,
    decimals_for,
    interval_text,
    metric_title,
    number,
    p_value_text,
    percent,
)
from evaluation.report.training_log import training_curves
from evaluation.results import TaskResult
from evaluation.uncertainty import Estimate

_MAX_TRAINING_PLOTS = 8
_FEW_MODELS = 4
# Quantities of a training log that are drawn from 0: what matters is their size, not their change.
_AMOUNTS = ("per_second", "wait", "memory")
# Columns of a coverage table whose numbers from 0 to 1 are shares of rows.
_SHARES = ("missing", "unseen", "share", "coverage", "unknown", "oov", "empty", "null", "truncated", "rate")


@dataclass(frozen=True)
class Cell:
    """A table cell.

    Attributes:
        text: Main text.
        small: Smaller text under it.
        share: Length of a bar behind the text, 0 to 1; None for no bar.
        is_text: Whether it aligns left.
    """

    text: str
    small: str = ""
    share: float | None = None
    is_text: bool = False


@dataclass(frozen=True)
class Row:
    """A table row; `role` is "model", "reference" or empty."""

    cells: Sequence[Cell]
    role: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a header."""

    header: Sequence[Cell]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Plot:
    """A drawing with its heading and a line that says how to read it."""

    title: str
    svg: str
    caption: str = ""


class PlotMaker:
    """Draws figures for one page and gives each a name of its own.

    Args:
        prefix: Begins the names; another for each maker of a page.
    """

    def __init__(self, prefix: str = "plot") -> None:
        self._prefix = prefix
        self._count = 0

    def __call__(self, title: str, figure: Figure, caption: str = "") -> Plot:
        """Draw one figure."""
        self._count += 1
        return Plot(title, inline_svg(figure, f"{self._prefix}{self._count}", title), caption)


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Key facts as pairs of text."""
    return [(str(name).replace("_", " "), plain(value)) for name, value in summary.items()]


def plain(value: Any) -> str:
    """A fact for people: thousands apart, four digits of a fraction, lists with commas."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}".replace("-", "−")
    if isinstance(value, numbers.Real):
        return _four_digits(float(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(one)}" for key, one in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(plain(one) for one in value)
    return str(value)


def _four_digits(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        decimals = 0 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{decimals}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def comparison_table(ranking: RankingResult, model: str | None) -> Table:
    """Models by the primary metric, beside their paired difference from the reference."""
    name = ranking.primary
    decimals = decimals_for([one[name] for one in ranking.models.values()])
    header = [Cell("model", is_text=True), Cell(metric_title(name))]
    if ranking.differences:
        header += [Cell(f"against {ranking.reference}"), Cell("p"), Cell("users won / lost")]
    rows = []
    for one in ranking.by_primary():
        cells = [Cell(one, is_text=True), _estimate_cell(ranking.models[one][name], decimals)]
        if one in ranking.differences:
            gap = ranking.differences[one][name]
            cells += [
                _estimate_cell(gap.difference, decimals, signed=True),
                Cell(p_value_text(gap.p_value, 2 / (ranking.resamples + 1))),
                Cell(won_lost(gap)),
            ]
        elif ranking.differences:
            cells += [Cell("reference"), Cell("–"), Cell("–")]
        rows.append(Row(cells, _role(one, ranking, model)))
    return Table(header, rows)


def cutoff_tables(ranking: RankingResult, model: str | None) -> list[tuple[int, Table]]:
    """All metrics of all models, one table per cut-off."""
    return [(k, _cutoff_table(ranking, k, model)) for k in ranking.ks]


def _cutoff_table(ranking: RankingResult, k: int, model: str | None) -> Table:
    return _model_table(ranking.table(k), ranking, model)


def _model_table(text: TextTable, ranking: RankingResult, model: str | None) -> Table:
    rows = [
        Row([Cell(cells[0], is_text=True), *map(Cell, cells[1:])], _role(cells[0], ranking, model))
        for cells in text.rows
    ]
    return Table([Cell(text.header[0], is_text=True), *map(Cell, text.header[1:])], rows)


def _role(name: str, ranking: RankingResult, model: str | None) -> str:
    if name == model:
        return "model"
    return "reference" if name == ranking.reference else ""


def _estimate_cell(estimate: Estimate, decimals: int, *, signed: bool = False) -> Cell:
    small = interval_text(estimate, decimals, signed=signed) if estimate.has_interval else ""
    return Cell(number(estimate.value, decimals, signed=signed), small)


def overview_plots(ranking: RankingResult, model: str | None, draw: PlotMaker) -> list[Plot]:
    """The primary metric by model, and against k."""
    title = f"{metric_title(ranking.primary)} by model"
    caption = "Dots are means over users, bars their intervals."
    result = [draw(title, plots.ranking_overview(ranking, model, THEMED), caption)]
    return result + [_by_k(ranking, name, model, draw) for name in _bases(ranking)[:1] if len(ranking.ks) > 1]


def beyond_table(ranking: RankingResult, model: str | None) -> Table | None:
    """Coverage, novelty and the like of every model at the primary cut-off; None where there is none."""
    text = ranking.table(beyond_accuracy=True)
    return _model_table(text, ranking, model) if len(text.header) > 1 else None


def popularity_plots(ranking: RankingResult, model: str | None, draw: PlotMaker) -> list[Plot]:
    """Popularity of what is recommended against what is consumed."""
    shares = ranking.popularity
    if shares is None:
        return []
    shown = {
        name: values
        for name, values in shares.shares.items()
        if name in ("consumed", model, ranking.reference) or len(shares.shares) <= _FEW_MODELS
    }
    colors = plots.series_colors(ranking, model, THEMED)
    figure = plots.popularity_plot(shares.groups, shown, colors, THEMED)
    caption = (
        "Bars: what users took in training. Lines above them to the left lean on what is popular anyway."
    )
    return [draw("Popularity of what is recommended", figure, caption)]


def further_plots(ranking: RankingResult, model: str | None, draw: PlotMaker) -> list[Plot]:
    """The other metrics against k."""
    return [_by_k(ranking, name, model, draw) for name in _bases(ranking)[1:] if len(ranking.ks) > 1]


def _bases(ranking: RankingResult) -> list[str]:
    """Metrics without their cut-off, the primary one first."""
    primary = ranking.primary.partition("@")[0]
    names = dict.fromkeys(name.partition("@")[0] for name in ranking.metrics if not is_beyond_accuracy(name))
    return sorted(names, key=lambda name: name != primary)


def _by_k(ranking: RankingResult, name: str, model: str | None, draw: PlotMaker) -> Plot:
    return draw(f"{metric_title(name)} against k", plots.metric_by_k(ranking, name, model, THEMED))


def arrow(metric: Metric) -> str:
    """The better direction of a metric as an arrow, empty where neither is."""
    return "" if metric.is_descriptive else "↑" if metric.higher_is_better else "↓"


def task_table(task: TaskResult) -> Table:
    """Metrics of one task with meaning, value and interval."""
    rows = []
    decimals = common_decimals(task.metrics.values())
    for place, (name, estimate) in enumerate(task.metrics.items()):
        metric = parse_metric(name).metric
        title = f"{metric_title(name)} {arrow(metric)}"
        cells = [
            Cell(title, estimate.note or metric.doc, is_text=True),
            Cell(number(estimate.value, decimals[place])),
            Cell(interval_text(estimate, decimals[place])),
        ]
        rows.append(Row(cells))
    level = next((one.level for one in task.metrics.values() if one.has_interval), None)
    title = "interval" if level is None else f"{percent(level)} interval"
    return Table(
        [Cell("metric (↑ higher, ↓ lower is better)", is_text=True), Cell("value"), Cell(title)], rows
    )


def task_plots(task: TaskResult, draw: PlotMaker) -> list[Plot]:
    """ROC, precision-recall, calibration and histogram of a binary task."""
    curves = task.curves
    if curves is None:
        return []
    result = [
        draw("ROC curve", plots.roc_plot(curves, THEMED), "Dashed: chance."),
        draw(
            "Precision and recall",
            plots.precision_recall_plot(curves, THEMED),
            f"Dashed: share of positives, {number(curves.positive_share, 3)}.",
        ),
    ]
    result += [
        draw(
            "Gain",
            plots.gain_plot(curves, THEMED),
            "Dashed: rows in random order. Thin: the best possible order.",
        ),
        draw("Lift", plots.lift_plot(curves, THEMED), "Above 1: more positives than among all rows."),
    ]
    if "log_loss" not in task.left_out:
        caption = "On the dashed line scores mean what they say. Ten bins of equal weight."
        result.append(draw("Calibration", plots.calibration_plot(curves, THEMED), caption))
    caption = "Each colour adds up to 1. The less they overlap, the better."
    return [*result, draw("Scores by label", plots.score_histogram(curves, THEMED), caption)]


def training_plots(log: Sequence[Mapping[str, Any]], draw: PlotMaker) -> list[Plot]:
    """A plot per quantity in the training log."""
    axis, curves = training_curves(log)
    chosen = list(curves.items())[:_MAX_TRAINING_PLOTS]
    return [
        draw(
            quantity.replace("_", " "),
            plots.training_plot(axis, series, THEMED, from_zero=any(part in quantity for part in _AMOUNTS)),
        )
        for quantity, series in chosen
    ]


def coverage_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Feature coverage; shares get a bar."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    is_text = {name: not any(isinstance(row.get(name), numbers.Real) for row in rows) for name in names}
    header = [Cell(name.replace("_", " "), is_text=is_text[name]) for name in names]
    return Table(
        header, [Row([_coverage_cell(name, row.get(name), is_text[name]) for name in names]) for row in rows]
    )


def _coverage_cell(name: str, value: Any, is_text: bool) -> Cell:
    is_share = any(part in name.lower() for part in _SHARES)
    if is_share and isinstance(value, numbers.Real) and not isinstance(value, bool | numbers.Integral):
        share = float(value)
        if 0 <= share <= 1:
            return Cell(percent(share, 1 if 0 < share < 0.995 else 0), share=share)
    return Cell(plain(value), is_text=is_text)


def plain_table(text: TextTable) -> Table:
    """A table of texts as the template takes it."""
    header = [Cell(title, is_text=place in text.left) for place, title in enumerate(text.header)]
    rows = [
        Row([Cell(cell, is_text=place in text.left) for place, cell in enumerate(cells)])
        for cells in text.rows
    ]
    return Table(header, rows)


def data_table(data: Mapping[str, Mapping[str, Any]]) -> Table:
    """Facts of the parts of the data side by side, a row a fact."""
    names = list(dict.fromkeys(name for facts_of_part in data.values() for name in facts_of_part))
    header = [Cell("", is_text=True), *(Cell(part) for part in data)]
    rows = [
        Row(
            [
                Cell(name.replace("_", " "), is_text=True),
                *(Cell(plain(one.get(name))) for one in data.values()),
            ]
        )
        for name in names
    ]
    return Table(header, rows)
