"""The plots of an experiment's report, each a matplotlib figure of its own. Effects are in percent of the control."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from evaluation.abtest.analysis.results import MetricResult, Point, SegmentEffects
from evaluation.plotting.theme import PRINT, Palette, legend, new_figure, plain_text

_LINE = 1.8
_FEW = 8


def _percent_axis(axes: object) -> None:
    formatter = FuncFormatter(lambda value, _: f"{value:+.3g}%" if value else "0%")
    axes.yaxis.set_major_formatter(formatter)  # type: ignore[attr-defined]


def _known(points: Sequence[Point]) -> list[Point]:
    return [
        point for point in points if math.isfinite(point.relative.low) and math.isfinite(point.relative.high)
    ]


def effect_over_time(points: Sequence[Point], palette: Palette = PRINT, x_label: str = "") -> Figure | None:
    """Effect with its interval at each look; None with fewer than two looks that have one."""
    known = _known(points)
    if len(known) < 2:
        return None
    figure, axes = new_figure(palette)
    places = range(len(known))
    low, middle, high = (
        [100 * getattr(point.relative, end) for point in known] for end in ("low", "estimate", "high")
    )
    axes.axhline(0, color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    axes.fill_between(places, low, high, color=palette.accent, alpha=0.16, linewidth=0)
    axes.plot(places, middle, color=palette.accent, linewidth=_LINE, marker="o", markersize=3.5)
    crossed = [place for place in places if known[place].crossed]
    if crossed:
        axes.plot(
            crossed,
            [middle[place] for place in crossed],
            linestyle="none",
            marker="o",
            markersize=6,
            color=palette.reference,
            label="bound crossed",
        )
        legend(axes, palette)
        x_label = ""  # the legend stands there, and the dates speak for themselves
    # Early intervals can be so wide that nothing else could be read.
    widest = max(abs(one) for one in (low[-1], high[-1], *middle)) * 2.5
    axes.set_ylim(max(min(low), -widest), min(max(high), widest))
    _label_places(axes, [_short(point.label) for point in known])
    axes.set_ylabel("effect")
    axes.set_xlabel(x_label)
    _percent_axis(axes)
    return figure


def _short(label: str) -> str:
    return label[5:] if len(label) == 10 and label[4] == "-" else label


def _label_places(axes: object, labels: Sequence[str]) -> None:
    step = max(1, math.ceil(len(labels) / _FEW))
    chosen = list(range(0, len(labels), step))
    axes.set_xticks(chosen, [plain_text(labels[place]) for place in chosen])  # type: ignore[attr-defined]
    axes.tick_params(axis="x", labelrotation=30 if len(labels) > 5 else 0)  # type: ignore[attr-defined]


def daily_units(
    days: Mapping[str, Mapping[str, int]], variants: Sequence[str], palette: Palette = PRINT
) -> Figure:
    """New units of each variant by day."""
    figure, axes = new_figure(palette)
    colors = [palette.reference, palette.accent, *palette.others]
    for place, variant in enumerate(variants):
        axes.plot(
            range(len(days)),
            [day.get(variant, 0) for day in days.values()],
            color=colors[place % len(colors)],
            linewidth=_LINE,
            marker="o",
            markersize=3.5,
            label=plain_text(variant),
        )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_ylabel("new units")
    _label_places(axes, [_short(day) for day in days])
    legend(axes, palette, columns=min(3, len(variants)))
    return figure


def forest(rows: Sequence[tuple[str, float, float, float]], palette: Palette = PRINT) -> Figure | None:
    """Effects with intervals, one below the other; None if none has an interval.

    Args:
        rows: (label, estimate, low, high) as shares of the control.
        palette: Colours.
    """
    known = [row for row in rows if all(math.isfinite(one) for one in row[1:])][::-1]
    if not known:
        return None
    figure, axes = new_figure(palette, height=0.95 + 0.36 * len(known))
    axes.axvline(0, color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    for place, (_, estimate, low, high) in enumerate(known):
        axes.plot(
            [100 * low, 100 * high],
            [place, place],
            color=palette.accent,
            linewidth=2.2,
            solid_capstyle="round",
        )
        axes.plot(100 * estimate, place, marker="o", markersize=6.5, color=palette.accent)
    axes.set_yticks(range(len(known)), [plain_text(row[0]) for row in known])
    axes.set_ylim(-0.6, len(known) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor=palette.ink)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.3g}%" if value else "0%"))
    axes.set_xlabel("effect")
    return figure


def metric_forest(results: Sequence[MetricResult], palette: Palette = PRINT) -> Figure | None:
    """All metrics of one variant."""
    return forest(
        [(one.metric, one.relative.estimate, one.relative.low, one.relative.high) for one in results], palette
    )


def segment_forest(segments: SegmentEffects, palette: Palette = PRINT) -> Figure | None:
    """One metric in every segment."""
    return forest(
        [
            (point.label, point.relative.estimate, point.relative.low, point.relative.high)
            for point in segments.points
        ],
        palette,
    )
