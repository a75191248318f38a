"""Plans and A/A results for a terminal."""

import math

from evaluation.abtest.analysis.history import Plan
from evaluation.abtest.analysis.null_splits import NullResult
from evaluation.abtest.analysis.wording import MISSING, metric_title, quantity, share
from evaluation.abtest.schema import ExperimentConfig
from evaluation.render import TextTable


def plan_text(plan: Plan, one: ExperimentConfig) -> str:
    """Needs of each metric, effects seen after some weeks, and the line for the configuration."""
    header = ["metric", "now", "CUPED saves", "effect", "units needed", "days"]
    rows = [
        [
            metric_title(metric.name),
            quantity(metric.value),
            share(metric.variance_saved, 0),
            share(metric.mde) if not math.isnan(metric.mde) else MISSING,
            f"{math.ceil(metric.needed):,}" if not math.isnan(metric.needed) else MISSING,
            _days(metric.days, metric.mde),
        ]
        for metric in plan.metrics
    ]
    week_header = [
        "metric",
        *(f"{days} days ({units:,.0f} units)" for days, units, _ in plan.metrics[0].table),
    ]
    weeks = [
        [metric_title(metric.name), *(share(effect) for _, _, effect in metric.table)]
        for metric in plan.metrics
    ]
    parts = [
        f"{share(plan.share, 0)} of the traffic, {plan.period} days of history, level {one.analysis.alpha:g}, power "
        f"{one.analysis.power:g}; looking every day costs {share(plan.inflation - 1)} more units.",
        TextTable(header, rows).to_text(),
        f"Smallest relative effect that is seen after\n{TextTable(week_header, weeks).to_text()}",
    ]
    first = plan.metrics[0]
    if not math.isnan(first.needed):
        parts.append(
            f"For the configuration:  analysis: {{planned_n: {math.ceil(first.needed)}, mde: {first.mde:g}}}"
        )
    if plan.left_out:
        parts.append(f"Left out, because past events do not tell: {', '.join(plan.left_out)}.")
    return "\n\n".join(parts)


def _days(days: int | None, mde: float) -> str:
    if math.isnan(mde):
        return MISSING
    return str(days) if days is not None else "over a year"


def null_text(result: NullResult) -> str:
    """False positives of each metric."""
    header = ["metric", "units", "false positives", "expected", "spread / error", "sound"]
    rows = [
        [
            metric_title(one.name),
            f"{one.units:,}",
            share(one.false_positives),
            f"{share(one.low)} to {share(one.high)}",
            f"{one.error_ratio:.2f}",
            "yes" if one.sound else "NO",
        ]
        for one in result.metrics
    ]
    return "\n\n".join(
        [
            f"{result.runs:,} splits without a difference, level {result.alpha:g}",
            TextTable(header, rows).to_text(),
            f"Sample-ratio alarms: {share(result.ratio_alarms, 2)} (0.1% expected).",
            *(
                [f"Left out, for too few users differ: {', '.join(result.left_out)}."]
                if result.left_out
                else []
            ),
        ]
    )
