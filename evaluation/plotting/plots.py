"""The plots of a report, each a matplotlib figure of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from evaluation.plotting.theme import FONT_SIZE, PRINT, Palette, few_ticks, legend, new_figure, plain_text
from evaluation.render import metric_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from evaluation.attribution import Attribution
    from evaluation.comparison_result import Compared, Comparison
    from evaluation.curves import BinaryCurves
    from evaluation.importance import ImportanceResult
    from evaluation.ranking_result import RankingResult
    from evaluation.slice_result import SliceResult
    from evaluation.uncertainty import Estimate

_LINE = 1.8


def roc_plot(curves: BinaryCurves, palette: Palette = PRINT) -> Figure:
    """ROC curve with the diagonal of chance."""
    figure, axes = new_figure(palette)
    axes.plot([0, 1], [0, 1], color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    axes.plot(curves.false_positive_rate, curves.true_positive_rate, color=palette.accent, linewidth=_LINE)
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1.01))
    return figure


def precision_recall_plot(curves: BinaryCurves, palette: Palette = PRINT) -> Figure:
    """Precision against recall with the share of positives, which a random ranking gets."""
    figure, axes = new_figure(palette)
    axes.axhline(curves.positive_share, color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    axes.plot(curves.recall, curves.precision, color=palette.accent, linewidth=_LINE, drawstyle="steps-pre")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.01))
    return figure


def calibration_plot(curves: BinaryCurves, palette: Palette = PRINT) -> Figure:
    """Observed rate against mean score in bins of equal weight; on the diagonal scores mean what they say."""
    figure, axes = new_figure(palette)
    low = min(*curves.mean_score, *curves.observed_rate, 1.0)
    high = max(*curves.mean_score, *curves.observed_rate, 0.0)
    margin = 0.06 * (high - low) or 0.05
    span = (max(low - margin, 0.0) if low >= 0 else low - margin, high + margin)
    axes.plot(span, span, color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    axes.plot(
        curves.mean_score,
        curves.observed_rate,
        color=palette.accent,
        linewidth=_LINE,
        marker="o",
        markersize=5,
    )
    axes.set(xlabel="mean score", ylabel="observed rate", xlim=span, ylim=span)
    return figure


def score_histogram(curves: BinaryCurves, palette: Palette = PRINT) -> Figure:
    """How scores of positive and of negative rows are spread, each adding up to 1."""
    figure, axes = new_figure(palette)
    for heights, color, name in (
        (curves.histogram_negative, palette.reference, "label 0"),
        (curves.histogram_positive, palette.accent, "label 1"),
    ):
        axes.stairs(heights, curves.histogram_edges, fill=True, color=color, alpha=0.35)
        axes.stairs(heights, curves.histogram_edges, color=color, linewidth=1.4, label=name)
    axes.set(
        xlabel="score", ylabel="share of rows", xlim=(curves.histogram_edges[0], curves.histogram_edges[-1])
    )
    axes.set_ylim(bottom=0)
    legend(axes, palette)
    return figure


def series_colors(ranking: RankingResult, model: str | None, palette: Palette = PRINT) -> dict[str, str]:
    """A colour for each model: the accent for the model of the report, one of its own for the reference."""
    others = iter(palette.others * (1 + len(ranking.models) // len(palette.others)))
    own = {model: palette.accent, ranking.reference: palette.reference}
    return {name: own[name] if name in own else next(others) for name in ranking.models}


def _line_styles(ranking: RankingResult, colors: Mapping[str, str]) -> dict[str, str]:
    """Solid lines, but dashes where another model before has the same colour."""
    names = list(ranking.models)
    return {
        name: "--" if colors[name] in {colors[one] for one in names[:place]} else "-"
        for place, name in enumerate(names)
    }


def ranking_overview(ranking: RankingResult, model: str | None = None, palette: Palette = PRINT) -> Figure:
    """The primary metric of every model with its interval, the best on top."""
    names = ranking.by_primary()[::-1]
    figure, axes = new_figure(palette, height=0.75 + 0.33 * len(names))
    colors = series_colors(ranking, model, palette)
    for place, name in enumerate(names):
        one = ranking.models[name][ranking.primary]
        if one.has_interval:
            axes.plot(
                [one.low, one.high], [place, place], color=colors[name], linewidth=2.2, solid_capstyle="round"
            )
        axes.plot(one.value, place, marker="o", markersize=6.5, color=colors[name])
    axes.set_yticks(range(len(names)), [plain_text(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor=palette.ink)
    axes.set_xlim(left=0)
    few_ticks(axes, 5)
    axes.set_xlabel(plain_text(metric_title(ranking.primary)))
    return figure


def metric_by_k(
    ranking: RankingResult, metric: str, model: str | None = None, palette: Palette = PRINT
) -> Figure:
    """One metric of every model against the cut-off.

    Args:
        ranking: The result.
        metric: Name without a cut-off, e.g. "ndcg".
        model: The model to emphasise.
        palette: Colours.

    Returns:
        The figure; vertical bars are intervals.
    """
    figure, axes = new_figure(palette, height=3.4)
    colors = series_colors(ranking, model, palette)
    styles = _line_styles(ranking, colors)
    for name, table in ranking.models.items():
        points = [table[f"{metric}@{k}"] for k in ranking.ks]
        axes.errorbar(
            ranking.ks,
            [one.value for one in points],
            yerr=_bars(points),
            color=colors[name],
            linestyle=styles[name],
            linewidth=2.2 if name == model else 1.3,
            elinewidth=1,
            marker="o",
            markersize=4,
            label=plain_text(name),
        )
    axes.set_xticks(list(ranking.ks))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="k", ylabel=plain_text(f"{metric_title(metric)}@k"))
    legend(axes, palette)
    return figure


def _bars(points: Sequence[Estimate]) -> list[list[float]] | None:
    if not all(one.has_interval for one in points):
        return None
    return [[one.value - one.low for one in points], [one.high - one.value for one in points]]


def training_plot(
    x_name: str,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    palette: Palette = PRINT,
    *,
    from_zero: bool = False,
) -> Figure:
    """Curves of a training log that share a quantity, such as the loss in training and in evaluation.

    Args:
        x_name: What the horizontal axis counts.
        series: (x, y) by name.
        palette: Colours.
        from_zero: Whether the vertical axis starts at 0, as for amounts.

    Returns:
        The figure.
    """
    figure, axes = new_figure(palette)
    colors = [palette.accent, palette.reference, *palette.others]
    for place, (name, (x, y)) in enumerate(series.items()):
        few = len(x) <= 30
        axes.plot(
            x,
            y,
            color=colors[place % len(colors)],
            linewidth=_LINE,
            marker="o" if few else None,
            markersize=4,
            label=plain_text(name),
        )
    few_ticks(axes, 6, whole=bool(all(np.mod(x, 1).max() == 0 for x, _ in series.values())))
    axes.set_xlabel(x_name)
    axes.yaxis.get_offset_text().set_fontsize(FONT_SIZE - 1)
    if from_zero:
        axes.set_ylim(bottom=0)
    if len(series) > 1:
        legend(axes, palette)
    return figure


def comparison_plot(comparison: Comparison, shown: Sequence[Compared], palette: Palette = PRINT) -> Figure:
    """Differences of two models with their intervals, each in units of half its interval.

    Args:
        comparison: Names the models.
        shown: The metrics.
        palette: Colours.

    Returns:
        The figure; 0 is no difference.
    """
    known = [one for one in shown if one.paired.difference.has_interval][::-1]
    figure, axes = new_figure(palette, width=5.6, height=0.9 + 0.32 * max(len(known), 1))
    colors = {"better": palette.accent, "worse": palette.reference}
    for place, one in enumerate(known):
        gap = one.paired.difference
        scale = (gap.high - gap.low) / 2 or 1.0
        color = colors.get(one.verdict, palette.muted)
        axes.plot([gap.low / scale, gap.high / scale], [place, place], color=color, linewidth=2.2)
        axes.plot(gap.value / scale, place, marker="o", color=color)
    axes.axvline(0, color=palette.muted, linewidth=1)
    axes.set_yticks(range(len(known)), [plain_text(one.name) for one in known])
    axes.set_xlabel(
        plain_text(f"{comparison.model} minus {comparison.reference}, in half-widths of the interval")
    )
    return figure


def slice_plot(result: SliceResult, palette: Palette = PRINT) -> Figure:
    """A metric by slice with intervals; the line is that of all rows.

    Args:
        result: The slices.
        palette: Colours.

    Returns:
        The figure; slices that differ beyond chance are coloured.
    """
    shown = [one for one in result.slices if np.isfinite(one.estimate.value)][::-1]
    figure, axes = new_figure(palette, height=0.9 + 0.3 * max(len(shown), 1))
    different = {id(one) for one in result.different()}
    axes.axvline(result.overall.value, color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    for place, one in enumerate(shown):
        color = palette.reference if id(one) in different else palette.accent
        if one.estimate.has_interval:
            axes.plot([one.estimate.low, one.estimate.high], [place, place], color=color, linewidth=2.2)
        axes.plot(one.estimate.value, place, marker="o", markersize=5.5, color=color)
    _name_rows(axes, [short(f"{one.column} = {one.value}") for one in shown], palette)
    axes.set_xlabel(plain_text(metric_title(result.metric)))
    return figure


def short(text: str, length: int = 36) -> str:
    """A text cut to a length with an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def importance_plot(result: ImportanceResult, palette: Palette = PRINT, most: int = 15) -> Figure:
    """The features that matter most, with intervals, the most important on top."""
    shown = result.features[:most][::-1]
    figure, axes = new_figure(palette, height=0.9 + 0.3 * max(len(shown), 1))
    axes.axvline(0, color=palette.muted, linewidth=1)
    for place, one in enumerate(shown):
        axes.barh(place, one.loss.value, height=0.55, color=palette.accent, alpha=0.35)
        if one.loss.has_interval:
            axes.plot([one.loss.low, one.loss.high], [place, place], color=palette.accent, linewidth=2)
    _name_rows(axes, [short(one.feature) for one in shown], palette)
    axes.set_xlabel(plain_text(f"loss of {metric_title(result.metric)} when shuffled"))
    return figure


def attribution_plot(one: Attribution, palette: Palette = PRINT, most: int = 10) -> Figure:
    """What the features of a row add to its prediction, the largest on top."""
    shown = list(one.contributions.items())[:most][::-1]
    figure, axes = new_figure(palette, height=0.9 + 0.3 * max(len(shown), 1))
    axes.axvline(0, color=palette.muted, linewidth=1)
    for place, (_, value) in enumerate(shown):
        axes.barh(
            place, value, height=0.55, color=palette.accent if value >= 0 else palette.reference, alpha=0.75
        )
    _name_rows(axes, [short(name) for name, _ in shown], palette)
    axes.set_xlabel(f"adds to the {one.unit}")
    return figure


def gain_plot(curves: BinaryCurves, palette: Palette = PRINT) -> Figure:
    """Share of the positives found among the highest scores, against the share of rows looked at."""
    figure, axes = new_figure(palette)
    axes.plot([0, 1], [0, 1], color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    perfect = min(max(curves.positive_share, 0.0), 1.0)
    axes.plot([0, perfect, 1], [0, 1, 1], color=palette.rule, linewidth=1.2)
    axes.plot(curves.share_taken, curves.share_found, color=palette.accent, linewidth=_LINE)
    axes.set(
        xlabel="share of rows, highest scores first",
        ylabel="share of positives found",
        xlim=(0, 1),
        ylim=(0, 1.01),
    )
    return figure


def lift_plot(curves: BinaryCurves, palette: Palette = PRINT) -> Figure:
    """How many times more positives there are among the highest scores than among all rows."""
    figure, axes = new_figure(palette)
    axes.axhline(1, color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    taken, found = np.asarray(curves.share_taken), np.asarray(curves.share_found)
    use = taken >= 0.005  # above so few rows the lift is noise
    axes.plot(taken[use], found[use] / taken[use], color=palette.accent, linewidth=_LINE)
    axes.set(xlabel="share of rows, highest scores first", ylabel="lift", xlim=(0, 1))
    axes.set_ylim(bottom=0)
    return figure


CURVE_PLOTS: Mapping[str, Callable[[BinaryCurves], Figure]] = MappingProxyType(
    {
        "roc": roc_plot,
        "precision_recall": precision_recall_plot,
        "calibration": calibration_plot,
        "scores": score_histogram,
        "gain": gain_plot,
        "lift": lift_plot,
    }
)
"""Plots of a binary task by name."""


def popularity_plot(
    groups: Sequence[str],
    shares: Mapping[str, Sequence[float]],
    colors: Mapping[str, str],
    palette: Palette = PRINT,
) -> Figure:
    """How what is consumed, and what each model recommends, spreads over items from popular to rare.

    Args:
        groups: Groups of items, the most popular first.
        shares: Share of each group by name; "consumed" is what users took in training.
        colors: Colour of each model.
        palette: Colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(palette, height=3.4)
    for name, values in shares.items():
        if name == "consumed":
            axes.bar(range(len(groups)), values, width=0.7, color=palette.muted, alpha=0.3, label="consumed")
            continue
        color = colors[name]
        axes.plot(
            range(len(groups)),
            values,
            color=color,
            linewidth=_LINE,
            marker="o",
            markersize=4,
            label=plain_text(name),
        )
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="items by popularity in training", ylabel="share")
    legend(axes, palette)
    return figure


def _name_rows(axes: Axes, names: Sequence[str], palette: Palette) -> None:
    axes.set_yticks(range(len(names)), [plain_text(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor=palette.ink)
    few_ticks(axes, 4)
