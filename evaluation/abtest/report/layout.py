"""The parts of the page: tables as cells, plots as inline SVG. The template only places them."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from evaluation.abtest.analysis.results import NOT_ASKED, Check, ExperimentResult, MetricResult
from evaluation.abtest.analysis.wording import change, metric_title, probability, quantity, share, span
from evaluation.abtest.report import plots
from evaluation.plotting.theme import THEMED
from evaluation.report.layout import Cell, Plot, PlotMaker, Row, Table

_METHODS = {
    "group_sequential": "Looking every day is paid for: intervals are widened by group-sequential bounds (spending "
    "function), so that the chance of a false alarm over all looks together stays at the level.",
    "always_valid": "Intervals hold at any time and at any size (a confidence sequence), so looking costs nothing and "
    "the price is their width.",
    "fixed": "One test at the end; nothing is said before it.",
}
_ROLES = {"goal": "Goals", "guardrail": "Guardrails", "secondary": "Secondary metrics"}


def facts(result: ExperimentResult) -> list[tuple[str, str]]:
    """Key facts as pairs of text."""
    known = math.isfinite(result.information)
    planned = f"{result.planned:,}" if result.planned else "days alone" if known else "nobody planned a size"
    done = f" ({share(result.information, 0)} of units and days)" if known else ""
    return [
        ("phase", str(result.phase)),
        ("from", result.start[:16].replace("T", " ")),
        ("until", result.until[:16].replace("T", " ")),
        ("days", f"{result.days:.1f}"),
        (f"units ({result.unit})", f"{sum(result.units.values()):,}"),
        ("planned units", planned + done),
        ("method", result.method.replace("_", " ")),
        ("level", f"{result.alpha:g}"),
        ("configuration", result.config_hash),
    ]


def check_table(checks: Sequence[Check]) -> Table:
    """Checks with what was found and, where it helps, what to do."""
    signs = {"green": "✓ good", "amber": "! remark", "red": "✗ red", "skipped": "– skipped"}
    rows = [
        Row(
            [
                Cell(
                    check.title,
                    check.advice if check.status in ("red", "amber") else check.rule,
                    is_text=True,
                ),
                Cell(signs[check.status], is_text=True),
                Cell(check.finding, is_text=True),
            ],
            role="reference" if check.status == "red" else "",
        )
        for check in checks
    ]
    return Table(
        [Cell("check", is_text=True), Cell("state", is_text=True), Cell("found", is_text=True)], rows
    )


def metric_tables(results: Sequence[MetricResult], alpha: float) -> list[tuple[str, Table]]:
    """One table a role."""
    return [
        (title, _metric_table([one for one in results if one.role == role], alpha))
        for role, title in _ROLES.items()
        if any(one.role == role for one in results)
    ]


def _metric_table(results: Sequence[MetricResult], alpha: float) -> Table:
    header = [Cell("metric (↑ higher, ↓ lower is better)", is_text=True)]
    header += [Cell("control"), Cell("variant"), Cell("effect", f"{share(1 - alpha, 0)} interval")]
    header += [Cell("p", "adjusted"), Cell("shown", is_text=True)]
    return Table(header, [_metric_row(one) for one in results])


def _metric_row(one: MetricResult) -> Row:
    arrow = "↑" if one.better == "higher" else "↓"
    margin = f"margin {share(one.margin)}; " if one.margin is not None else ""
    p, small = probability(one.p_value), probability(one.p_adjusted)
    interval = span(one.relative.low, one.relative.high)
    if not interval and math.isfinite(one.absolute.low):
        interval = f"[{quantity(one.absolute.low)}, {quantity(one.absolute.high)}] absolute"
    return Row(
        [
            Cell(f"{metric_title(one.metric)} {arrow}", f"{margin}{remark(one)}", is_text=True),
            Cell(quantity(one.control), f"{one.units_control:,} units"),
            Cell(quantity(one.value), f"{one.units:,} units"),
            Cell(change(one.relative.estimate), interval),
            Cell(p, small if small != p else ""),
            Cell(one.conclusion, _detectable(one), is_text=True),
        ],
        role="model" if one.role == "goal" else "",
    )


def remark(one: MetricResult) -> str:
    """What a reader has to know of a metric, in a line."""
    if one.cuped == "used":
        cuped = f"CUPED removed {share(one.variance_saved, 0)} of the variance"
    else:
        cuped = "" if one.cuped == NOT_ASKED else f"without CUPED: {one.cuped}"
    return "; ".join(part for part in (one.note, cuped) if part)


def _detectable(one: MetricResult) -> str:
    return f"could see {share(one.detectable)}" if math.isfinite(one.detectable) else ""


def bayes_table(results: Sequence[MetricResult]) -> Table:
    """The optional Bayesian display of the goals."""
    rows = [
        Row(
            [
                Cell(metric_title(one.metric), is_text=True),
                Cell(share(one.chance_to_win)),
                Cell(share(one.risk, 2)),
            ]
        )
        for one in results
        if one.role == "goal" and math.isfinite(one.chance_to_win)
    ]
    return Table(
        [Cell("goal", is_text=True), Cell("chance to be better"), Cell("expected loss if not")], rows
    )


def page(result: ExperimentResult) -> dict[str, Any]:
    """Everything the template places, by name."""
    draw = PlotMaker()
    variants = [name for name in result.weights if name != result.control]
    return {
        "result": result,
        "facts": facts(result),
        "checks": check_table(result.checks),
        "left_out": left_out(result),
        "sections": [_variant(result, name, draw, many=len(variants) > 1) for name in variants],
        "units": _plots(
            draw,
            [
                (
                    "New units by day",
                    plots.daily_units(result.daily_units, list(result.weights), THEMED),
                    "Lines of variants of equal weight should lie on each other.",
                )
            ],
        ),
        "method": _METHODS[result.method],
        "versions": list(result.versions.items()),
    }


def left_out(result: ExperimentResult) -> str:
    """What was counted and does not take part."""
    counts = result.counts
    return (
        f"Of {counts['rows']:,} exposure rows, {counts['forced_rows']:,} were forced by allow lists, "
        f"{counts['untriggered_rows']:,} could not differ between variants, {counts['rows_without_unit']:,} had no "
        f"unit and {counts['rows_without_time']:,} no time. {counts['multi_variant_units']:,} of {counts['units']:,} "
        "units saw several variants and are left out."
    )


def _variant(result: ExperimentResult, variant: str, draw: PlotMaker, *, many: bool) -> dict[str, Any]:
    mine = [one for one in result.metrics if one.variant == variant]
    verdict = next((one for one in result.verdicts if one.variant == variant), None)
    figures: list[tuple[str, Figure | None, str]] = [
        ("All metrics", plots.metric_forest(mine, THEMED), "Relative to the control, with intervals.")
    ]
    goals = [one for one in mine if one.role == "goal"]
    for one in goals:
        title = metric_title(one.metric)
        figures += [
            (
                f"{title}: effect up to each day",
                plots.effect_over_time(one.looks, THEMED, "up to day"),
                "The band is the interval at that look.",
            ),
            (
                f"{title}: by days since first exposure",
                plots.effect_over_time(one.ages, THEMED, "days since first exposure"),
                "A novelty wears off; a habit grows. Intervals of single days, not paid for looks.",
            ),
        ]
        figures += [
            (
                f"{title}: by {segments.attribute}",
                plots.segment_forest(segments, THEMED),
                f"Chance of such differences if segments were alike: p {probability(segments.heterogeneity_p)}.",
            )
            for segments in one.segments
        ]
    return {
        "title": f"{variant} against {result.control}",
        "verdict": verdict.sentence if verdict and many and result.trusted else "",
        "tables": metric_tables(mine, result.alpha),
        "plots": _plots(draw, figures),
        "bayes": bayes_table(mine) if goals else None,
    }


def _plots(draw: PlotMaker, figures: Sequence[tuple[str, Figure | None, str]]) -> list[Plot]:
    return [draw(title, figure, caption) for title, figure, caption in figures if figure is not None]
