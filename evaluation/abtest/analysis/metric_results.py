"""Results of metrics: every look, the final numbers, ages and segments."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy.special import chdtrc

from evaluation.abtest.analysis.judging import (
    FEW_EVENTS,
    FEW_UNITS,
    Judge,
    Judged,
    detectable,
    rare_events,
)
from evaluation.abtest.analysis.looks import moments_by_day
from evaluation.abtest.analysis.results import (
    NOT_ASKED,
    NOT_TESTED,
    Interval,
    MetricResult,
    Point,
    Role,
    SegmentEffects,
)
from evaluation.abtest.analysis.sums import AveragedMetric
from evaluation.abtest.analysis.tables import DAY
from evaluation.abtest.analysis.values import Values, measures_of, moments, snapshot
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.metrics import MetricConfig, ProportionMetric
from evaluation.abtest.schema import AnalysisConfig
from evaluation.abtest.statistics.bayes import posterior
from evaluation.abtest.statistics.effects import Comparison, compare, non_inferiority
from evaluation.abtest.statistics.moments import PRE_NUMERATOR, Moments
from evaluation.abtest.statistics.multiplicity import benjamini_hochberg, holm
from evaluation.abtest.statistics.quantiles import QuantileMoments, compare_quantiles

MAX_LOOKS = 60
_NO_VALUE = (
    "no value: an arm has nothing to divide by; look whether the events that the metric counts are in the log"
)
MAX_AGE = 13
MAX_SEGMENTS = 12

Arms = Mapping[str, Moments]


@dataclass(frozen=True)
class Question:
    """A metric and what it decides."""

    name: str
    role: Role
    metric: MetricConfig
    margin: float | None = None


def look_days(days: int) -> list[int]:
    """Days after which someone may have looked: every one, or evenly spread ones if there are many."""
    if days <= MAX_LOOKS:
        return list(range(days))
    return sorted({round(one) for one in np.linspace(0, days - 1, MAX_LOOKS)})


def moments_at_looks(
    values: Values, metrics: Mapping[str, AveragedMetric]
) -> list[tuple[int, dict[str, dict[str, Moments]]]]:
    """Moments by metric and variant at each look; the last look is the end of the data."""
    by_day = moments_by_day(values, metrics)
    for name, days in by_day.items():
        _refuse_infinite(name, metrics[name], days[-1])
    return [(day, {name: days[day] for name, days in by_day.items()}) for day in look_days(values.table.days)]


def _refuse_infinite(name: str, metric: AveragedMetric, arms: Arms) -> None:
    if all(np.isfinite(one.mean).all() for one in arms.values() if one.count > 0):
        return
    columns = sorted({one.sum or one.exposure or "" for one in measures_of(metric)} - {""})
    raise ExperimentDataError(
        f"The metric {name!r} adds up infinite values; look for them in the column {' or '.join(map(repr, columns))}."
    )


def cuped_of(metric: MetricConfig, arms: Arms, values: Values) -> str:
    """Whether the covariate is used: "used", or why not."""
    if not isinstance(metric, AveragedMetric) or not metric.cuped:
        return NOT_ASKED
    if values.before is None:
        return "no history was asked for"
    spread = sum(float(one.cov[PRE_NUMERATOR, PRE_NUMERATOR]) for one in arms.values() if one.count > 1)
    return "used" if spread > 0 else "no differences before the experiment"


def averaged_result(
    question: Question,
    variant: str,
    control: str,
    looks: Sequence[tuple[int, Mapping[str, Arms]]],
    values: Values,
    judge: Judge,
    analysis: AnalysisConfig,
) -> MetricResult:
    """The result of a mean, a proportion or a ratio for one variant."""
    usable = [
        (day, arms[question.name])
        for day, arms in looks
        if {control, variant} <= arms[question.name].keys()
        and min(float(arms[question.name][name].count) for name in (control, variant)) >= judge.few
    ]
    last = looks[-1][1][question.name]
    nobody = Moments.of_values(np.zeros(0))
    first, second = last.get(control, nobody), last.get(variant, nobody)
    cuped = cuped_of(question.metric, {control: first, variant: second}, values)
    comparisons = [compare(arms[control], arms[variant], cuped=cuped == "used") for _, arms in usable]
    counts = [sum(float(one.count) for one in arms.values()) for _, arms in usable]
    days = [values.table.age_at(day) for day, _ in usable]
    judged = judge.looks(comparisons, counts, days)
    # After the planned end more data come in and nothing more is tested: the result is that of the end.
    end = max((look for look, one in enumerate(judged) if one.tested), default=len(judged) - 1)
    if 0 <= end < len(judged) - 1:
        first, second = (usable[end][1][name] for name in (control, variant))
    final = comparisons[end] if comparisons else compare(first, second)
    result = MetricResult(
        question.name,
        question.role,
        question.metric.better,
        variant,
        int(first.count),
        int(second.count),
        float(final.control),
        float(final.treatment),
        Interval(float(final.absolute.estimate)),
        Interval(float(final.relative.estimate)),
        margin=question.margin,
        cuped=cuped,
        variance_saved=float(final.variance_saved),
        information=judge.information(counts[-1], days[-1]) if counts else math.nan,
    )
    if not judged:
        return replace(result, note=f"fewer than {judge.few} units whose window is over in an arm")
    points = [
        Point(_date(values, day), int(count), one.relative, one.p_value, one.crossed)
        for (day, _), count, one in zip(usable, counts, judged, strict=True)
    ]
    result = _with_final(result, judged[end], final, analysis, looks=points)
    if end < len(judged) - 1:
        result = replace(
            result,
            note=f"as of {points[end].label}, when the planned size was reached; later looks are not tested",
        )
    if not float(final.absolute.se) > 0:
        values_known = math.isfinite(result.control) and math.isfinite(result.value)
        same = "no variance: every unit has the same value, so nothing can be tested"
        return replace(result, note=same if values_known else _NO_VALUE)
    if isinstance(question.metric, ProportionMetric):
        result = _rare(result, first, second, judge)
    if question.role == "guardrail":
        return _guarded(result, question, first, second, cuped == "used", judge)
    return result


def _with_final(
    result: MetricResult, judged: Judged, final: Comparison, analysis: AnalysisConfig, looks: Sequence[Point]
) -> MetricResult:
    belief = posterior(final.relative)
    wins = belief.chance_to_win if result.better == "higher" else 1 - belief.chance_to_win
    known = math.isfinite(belief.sd)
    return replace(
        result,
        absolute=judged.absolute,
        relative=judged.relative,
        p_value=judged.p_value,
        looks=tuple(looks),
        detectable=detectable(final, analysis.alpha, analysis.power),
        chance_to_win=wins if known else math.nan,
        risk=belief.risk[1 if result.better == "higher" else 0] if known else math.nan,
    )


def _rare(result: MetricResult, first: Moments, second: Moments, judge: Judge) -> MetricResult:
    sides = [(float(one.mean[0] * one.count), float(one.count)) for one in (first, second)]
    if min(events for events, _ in sides) >= FEW_EVENTS or math.isnan(result.p_value):
        return result
    absolute, p = rare_events(sides[0], sides[1], judge.alpha)
    note = f"fewer than {FEW_EVENTS} units with an event in an arm: Newcombe's interval, for one look"
    if not judge.over:
        # The interval pays for one look only, so before the end it is shown and nothing is concluded from it.
        p, note = math.nan, f"{note}, at the end"
    return replace(
        result, absolute=absolute, relative=Interval(result.relative.estimate), p_value=p, note=note
    )


def _guarded(
    result: MetricResult, question: Question, first: Moments, second: Moments, cuped: bool, judge: Judge
) -> MetricResult:
    contrast = non_inferiority(
        first,
        second,
        question.margin or 0.0,
        higher_is_better=question.metric.better == "higher",
        cuped=cuped,
    )
    return _guard_words(result, float(contrast.p_value("greater")), float(contrast.p_value("less")), judge)


def _guard_words(result: MetricResult, holds_p: float, broken_p: float, judge: Judge) -> MetricResult:
    word = "holds" if holds_p < judge.alpha else "broken" if broken_p < judge.alpha else "not shown"
    return replace(result, p_value=holds_p, p_adjusted=holds_p, conclusion=word)


def quantile_result(
    question: Question,
    variant: str,
    control: str,
    found: Mapping[str, QuantileMoments],
    judge: Judge,
) -> MetricResult:
    """The result of a quantile for one variant, at the end of the data only."""
    empty = QuantileMoments(math.nan, math.nan, math.nan, 0)
    first, second = found.get(control, empty), found.get(variant, empty)
    result = MetricResult(
        question.name,
        question.role,
        question.metric.better,
        variant,
        int(first.count),
        int(second.count),
        first.value,
        second.value,
        Interval(second.value - first.value),
        Interval(second.value / first.value - 1 if first.value else math.nan),
        margin=question.margin,
        cuped=NOT_ASKED,
        note="judged at this look alone",
    )
    if min(first.count, second.count) < judge.few:
        return replace(result, note=f"fewer than {judge.few} units in an arm")
    absolute, log_ratio = compare_quantiles(first, second)
    low, high = (float(one) for one in absolute.interval(judge.alpha))
    log_low, log_high = (float(one) for one in log_ratio.interval(judge.alpha))
    result = replace(
        result,
        absolute=Interval(float(absolute.estimate), low, high),
        relative=Interval(float(np.expm1(log_ratio.estimate)), math.expm1(log_low), math.expm1(log_high)),
        p_value=float(absolute.p_value()),
    )
    if question.role != "guardrail":
        return result
    sign = 1.0 if question.metric.better == "higher" else -1.0
    limit = math.log1p(-sign * (question.margin or 0.0))
    moved = replace(log_ratio, estimate=np.asarray(sign * (log_ratio.estimate - limit)))
    return _guard_words(result, float(moved.p_value("greater")), float(moved.p_value("less")), judge)


def concluded(results: Sequence[MetricResult], alpha: float) -> list[MetricResult]:
    """Adjusts p-values for their number and says what they show: Holm for goals, Benjamini-Hochberg for the rest."""
    done = list(results)
    for role, adjust in (("goal", holm), ("secondary", benjamini_hochberg)):
        places = [place for place, one in enumerate(done) if one.role == role]
        adjusted = adjust([done[place].p_value for place in places])
        for place, p in zip(places, adjusted, strict=True):
            one = done[place]
            done[place] = replace(one, p_adjusted=p, conclusion=_word(one, p, alpha))
    return done


def _word(one: MetricResult, p: float, alpha: float) -> str:
    if one.conclusion == NOT_TESTED:
        return NOT_TESTED
    if math.isnan(p):
        return "not yet"
    if p >= alpha:
        return "no difference shown"
    return "better" if (one.absolute.estimate > 0) == (one.better == "higher") else "worse"


MomentsBy = Mapping[str, Mapping[tuple[Any, ...], Moments]]
"""By metric, then by variant and one more value."""


def ages_of(found: MomentsBy, variant: str, control: str, alpha: float) -> dict[str, list[Point]]:
    """Effect on each day of a unit's life in the experiment: a novelty wears off, a habit grows.

    Args:
        found: Moments by variant and age.
        variant: Name of the variant.
        control: Name of the control.
        alpha: Level of the intervals.
    """
    result: dict[str, list[Point]] = {}
    for name, by_key in found.items():
        ages = sorted({age for which, age in by_key if which == variant and (control, age) in by_key})
        result[name] = [
            _point(str(age), by_key[control, age], by_key[variant, age], alpha)
            for age in ages
            if min(by_key[control, age].count, by_key[variant, age].count) >= FEW_UNITS
        ]
    return result


def _point(label: str, first: Moments, second: Moments, alpha: float) -> Point:
    compared = compare(first, second)
    low, high = compared.relative_interval(alpha)
    return Point(
        label,
        int(first.count + second.count),
        Interval(float(compared.relative.estimate), float(low), float(high)),
        float(compared.absolute.p_value()),
    )


def moments_by_segment(values: Values, metrics: Mapping[str, AveragedMetric]) -> dict[str, MomentsBy]:
    """Moments by variant and segment, for each registered attribute."""
    wide, end = snapshot(values)
    return {
        attribute: moments(values, wide, end, metrics, [f"segment_{place}"])
        for place, attribute in enumerate(values.table.segments)
    }


def segments_of(
    found: Mapping[str, MomentsBy], variant: str, control: str, alpha: float
) -> dict[str, list[SegmentEffects]]:
    """Effect in each segment of each registered attribute, from `moments_by_segment`."""
    result: dict[str, list[SegmentEffects]] = {}
    for attribute, by_metric in found.items():
        for name, by_key in by_metric.items():
            result.setdefault(name, []).append(_segments(attribute, by_key, variant, control, alpha))
    return result


def _segments(
    attribute: str, by_key: Mapping[tuple[Any, ...], Moments], variant: str, control: str, alpha: float
) -> SegmentEffects:
    pairs = {
        str(segment): (by_key[control, segment], one)
        for (which, segment), one in by_key.items()
        if which == variant and segment is not None and (control, segment) in by_key
    }
    large = {name: pair for name, pair in pairs.items() if min(one.count for one in pair) >= FEW_UNITS}
    chosen = sorted(large, key=lambda name: -float(large[name][0].count))[:MAX_SEGMENTS]
    points = [_point(name, *large[name], alpha) for name in chosen]
    adjusted = benjamini_hochberg([point.p_value for point in points])
    points = [replace(point, p_value=p) for point, p in zip(points, adjusted, strict=True)]
    contrasts = [compare(*large[name]).absolute for name in chosen]
    estimates = np.array([float(one.estimate) for one in contrasts])
    weights = np.array([1 / float(one.se) ** 2 if float(one.se) > 0 else 0.0 for one in contrasts])
    if (weights > 0).sum() < 2:
        return SegmentEffects(attribute, points, math.nan)
    centre = float((weights * estimates).sum() / weights.sum())
    spread = float((weights * (estimates - centre) ** 2).sum())
    return SegmentEffects(attribute, points, float(chdtrc(int((weights > 0).sum()) - 1, spread)))


def _date(values: Values, day: int) -> str:
    return datetime.fromtimestamp(values.table.origin + day * DAY, UTC).date().isoformat()
