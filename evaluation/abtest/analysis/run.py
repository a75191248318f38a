"""The analysis of one experiment: logs in, a result with a verdict out."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from evaluation.abtest.analysis.coverage_values import coverage_of, coverage_result
from evaluation.abtest.analysis.hidden_units import hidden, refuse_strangers
from evaluation.abtest.analysis.judging import FEW_SLOTS, FEW_UNITS, Judge
from evaluation.abtest.analysis.metric_results import (
    MAX_AGE,
    Arms,
    Question,
    ages_of,
    averaged_result,
    concluded,
    cuped_of,
    moments_at_looks,
    moments_by_segment,
    quantile_result,
    segments_of,
)
from evaluation.abtest.analysis.quantile_values import quantile_moments
from evaluation.abtest.analysis.results import Check, ExperimentResult, MetricResult, Role, Verdict
from evaluation.abtest.analysis.second_opinion import second_opinion
from evaluation.abtest.analysis.sums import AveragedMetric
from evaluation.abtest.analysis.tables import DAY, event_rows, exposure_rows, to_records
from evaluation.abtest.analysis.trust import Subject, trust_checks
from evaluation.abtest.analysis.units import GRACE, UnitTable, counts_by_variant, unit_table
from evaluation.abtest.analysis.values import Values, measure_values, moments_by_age
from evaluation.abtest.analysis.verdict import decide, overall
from evaluation.abtest.assignment import TIME_SLOT, CompiledExperiment
from evaluation.abtest.compilation import compile_experiment
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.metrics import BUILT_IN, CoverageMetric, MetricConfig, QuantileMetric
from evaluation.abtest.pseudonyms import Pseudonyms
from evaluation.abtest.schema import ExperimentConfig, ExperimentsConfig
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.power import normal_count
from evaluation.errors import did_you_mean

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Logs:
    """What an analysis reads, as Ibis tables of any backend.

    Attributes:
        exposures: Columns as in `evaluation.abtest.exposure_files.COLUMNS`.
        events: Columns type, timestamp, the unit's id, and what metrics ask for; None for metrics of exposures alone.
        pseudonyms: Of the key under which the service wrote the exposures; None if it wrote ids as they are.
    """

    exposures: Any
    events: Any = None
    pseudonyms: Pseudonyms | None = None


def analyze(
    config: ExperimentsConfig,
    experiment: str,
    logs: Logs,
    *,
    dropped: Mapping[tuple[str, str], int] | None = None,
    until: float | None = None,
    phase: int | None = None,
    replay: CompiledExperiment | None = None,
    command: str = "",
    tell: Tell = lambda _: None,
) -> ExperimentResult:
    """Analyse an experiment.

    Args:
        config: Of the file the service ran with.
        experiment: Name.
        logs: Exposures and events.
        dropped: Rows that the exposure log lost, by (experiment, variant).
        until: End of the data, seconds since 1970; the last exposure or event unless given.
        phase: Phase; the configured one unless given.
        replay: What assigned the units; the experiment as configured unless given.
        command: That reproduces the analysis, for the report.
        tell: Called with the name of each step.

    Raises:
        ExperimentDataError: The logs cannot answer the question; says what is missing.
    """
    one = experiment_of(config, experiment)
    phase = phase or one.phase
    if one.interleave:
        raise ExperimentDataError(f"{experiment!r} mixes lists; use `easyrec ab interleave`.")
    tell("units")
    unit = config.unit_of(one.layer)
    exposures = hidden(exposure_rows(logs.exposures), logs.pseudonyms, unit)
    table = unit_table(
        exposures,
        experiment,
        phase,
        triggered=one.analysis.triggered,
        segments=one.analysis.segments,
        until=until,
        washout=60 * one.analysis.washout_minutes if unit == TIME_SLOT else 0.0,
    )
    refuse_strangers(table.units, logs.pseudonyms)
    questions = questions_of(config, one)
    events = _events(logs, table, unit)
    if until is None:
        end = _end(table, events)
        table = replace(table, until=end, closing=min(table.closing + GRACE, end))
    if one.end is not None:
        table = replace(table, closing=min(table.closing, max(one.end.timestamp(), table.origin + 1)))
    tell("values")
    values = measure_values(
        table,
        events,
        _averaged(questions),
        window=one.analysis.window_days,
        history_days=0.0 if unit == TIME_SLOT else one.analysis.cuped_days,
    )
    looks = moments_at_looks(values, _averaged(questions))
    judge = _judge(one, table, looks, questions, FEW_SLOTS if unit == TIME_SLOT else FEW_UNITS)
    tell("trust")
    checks = trust_checks(
        Subject(
            table,
            {name: variant.weight for name, variant in one.variants.items()},
            one.control,
            exposures,
            events,
            {variant: rows for (name, variant), rows in (dropped or {}).items() if name == experiment},
            replay or compile_experiment(config, experiment, phase),
            _before(values, looks[-1][1], questions),
            experiment,
        )
    )
    checks.append(second_opinion(_pairs(one, questions, looks[-1][1], values)))
    tell("effects")
    results = _results(one, questions, looks, values, judge, events)
    return _result(config, experiment, one, phase, table, checks, results, judge, command)


def experiment_of(config: ExperimentsConfig, name: str) -> ExperimentConfig:
    """An experiment by name.

    Raises:
        ExperimentDataError: There is none.
    """
    if name not in config.experiments:
        raise ExperimentDataError(
            f"There is no experiment {name!r}; {did_you_mean(name, config.experiments)}"
        )
    return config.experiments[name]


def questions_of(config: ExperimentsConfig, one: ExperimentConfig) -> list[Question]:
    """The metrics of an experiment with what they decide."""
    known: dict[str, MetricConfig] = {**BUILT_IN, **config.metrics}
    roles: list[tuple[Role, str, float | None]] = [("goal", name, None) for name in one.metrics.goals]
    roles += [("guardrail", name, margin) for name, margin in one.metrics.guardrails.items()]
    roles += [("secondary", name, None) for name in one.metrics.secondary]
    return [Question(name, role, known[name], margin) for role, name, margin in roles]


def _averaged(questions: Sequence[Question]) -> dict[str, AveragedMetric]:
    return {one.name: one.metric for one in questions if isinstance(one.metric, AveragedMetric)}


def _events(logs: Logs, table: UnitTable, unit: str) -> Any:
    events = logs.events
    if events is None:
        return None
    if unit in events.columns:
        return hidden(event_rows(events, unit), logs.pseudonyms, unit)
    if "request_id" not in events.columns:
        raise ExperimentDataError(
            f"The table of events has neither the unit's column {unit!r} nor request_id to join exposures by; "
            f"{did_you_mean(unit, events.columns)}"
        )
    # A unit that events do not know, such as a time slot, is known by the request they answer.
    requests = table.rows.select("request_id", **{unit: table.rows.unit}).filter(
        table.rows.request_id.notnull()
    )
    return event_rows(events.inner_join(requests.distinct(), "request_id"), unit)


def _end(table: UnitTable, events: Any) -> float:
    """The end of the data, for windows that go on after the last exposure; but nothing from the future."""
    if events is None:
        return table.until
    past = events.filter(events["at"] <= max(time.time(), table.until))
    [row] = to_records(past.aggregate(last=past["at"].max()))
    return max(table.closing, float(row["last"] or 0.0) + 1e-3)


def _judge(
    one: ExperimentConfig,
    table: UnitTable,
    looks: Sequence[tuple[int, Any]],
    questions: Sequence[Question],
    few: int,
) -> Judge:
    analysis = one.analysis
    planned = analysis.planned_n or _planned(one, looks[-1][1], questions)
    planned_days = max(analysis.planned_days or 0, analysis.min_days) or None
    ended = one.status == "stopped" or (one.end is not None and table.until >= one.end.timestamp())
    unplanned = planned is None and analysis.planned_days is None
    method = analysis.method
    if method == "group_sequential" and unplanned:
        method = "always_valid"
    judge = Judge(method, analysis.alpha, analysis.spending, planned, False, few, planned_days)
    reached = not unplanned and judge.information(table.counts["units"], table.age) >= 1
    return replace(judge, over=reached or ended or (unplanned and one.end is None and method == "fixed"))


def _planned(one: ExperimentConfig, last: Mapping[str, Any], questions: Sequence[Question]) -> int | None:
    """Units of all arms that the registered effect needs, from the control's variance."""
    goals = [question for question in questions if question.role == "goal" and question.name in last]
    if one.analysis.mde is None or not goals:
        return None
    control = last[goals[0].name].get(one.control)
    if control is None or control.count < 2 or not float(control.value()):
        return None
    effect = one.analysis.mde * abs(float(control.value())) / max(float(control.variance()) ** 0.5, 1e-12)
    weights = {name: variant.weight for name, variant in one.variants.items() if variant.weight}
    own = weights.get(one.control, 1)
    smallest = min(weight for name, weight in weights.items() if name != one.control)
    needed = normal_count(effect, alpha=one.analysis.alpha, power=one.analysis.power, ratio=smallest / own)
    return round(needed * sum(weights.values()) / own)


def _before(
    values: Values, last: Mapping[str, Mapping[str, Moments]], questions: Sequence[Question]
) -> dict[str, dict[str, Moments]]:
    """Goals as they were before the experiment: the covariate in the place of the metric."""
    if values.before is None:
        return {}
    order = [2, 3, 0, 1]
    return {
        name: {
            variant: Moments(arm.count, arm.mean[..., order], arm.cov[..., order, :][..., order])
            for variant, arm in last[name].items()
        }
        for name in (question.name for question in questions if question.role == "goal")
        if name in last
    }


def _pairs(
    one: ExperimentConfig, questions: Sequence[Question], last: Mapping[str, Arms], values: Values
) -> dict[str, tuple[Moments, Moments, bool]]:
    """Moments of every effect at the end of the data."""
    pairs = {}
    for question in questions:
        arms = last.get(question.name, {})
        for variant in (name for name in one.variants if name != one.control and name in arms):
            if one.control in arms:
                both = {name: arms[name] for name in (one.control, variant)}
                cuped = cuped_of(question.metric, both, values) == "used"
                pairs[f"{question.name} of {variant}"] = (both[one.control], both[variant], cuped)
    return pairs


def _results(
    one: ExperimentConfig,
    questions: Sequence[Question],
    looks: Sequence[tuple[int, Any]],
    values: Values,
    judge: Judge,
    events: Any,
) -> list[MetricResult]:
    control, analysis = one.control, one.analysis
    results = []
    goals = {
        name: metric
        for name, metric in _averaged(questions).items()
        if any(question.name == name and question.role == "goal" for question in questions)
    }
    quantiles = {
        question.name: quantile_moments(values.table, question.metric)
        for question in questions
        if isinstance(question.metric, QuantileMetric)
    }
    covered = {
        question.name: coverage_of(values.table, events, question.name, question.metric, analysis.window_days)
        for question in questions
        if isinstance(question.metric, CoverageMetric)
    }
    by_age = moments_by_age(values, goals, MAX_AGE) if goals else {}
    by_segment = moments_by_segment(values, goals) if goals else {}
    for variant in (name for name in one.variants if name != control):
        ages = ages_of(by_age, variant, control, analysis.alpha)
        segments = segments_of(by_segment, variant, control, analysis.alpha)
        for question in questions:
            if question.name in quantiles:
                found = quantile_result(question, variant, control, quantiles[question.name], judge)
            elif question.name in covered:
                found = coverage_result(
                    question, variant, control, covered[question.name], judge.alpha, judge.few
                )
            else:
                found = averaged_result(question, variant, control, looks, values, judge, analysis)
                found = replace(
                    found,
                    ages=tuple(ages.get(question.name, ())),
                    segments=tuple(segments.get(question.name, ())),
                )
            results.append(found)
    return concluded(results, analysis.alpha)


def _result(
    config: ExperimentsConfig,
    name: str,
    one: ExperimentConfig,
    phase: int,
    table: UnitTable,
    checks: Sequence[Check],
    results: Sequence[MetricResult],
    judge: Judge,
    command: str,
) -> ExperimentResult:
    days = table.age
    verdicts: list[Verdict] = [
        decide(
            variant,
            [result for result in results if result.variant == variant],
            days=days,
            min_days=one.analysis.min_days,
            over=judge.over,
            method=judge.method,
        )
        for variant in one.variants
        if variant != one.control
    ]
    units = {row["variant"]: int(row["units"]) for row in counts_by_variant(table)}
    return ExperimentResult(
        experiment=name,
        hypothesis=one.hypothesis,
        phase=phase,
        unit=config.unit_of(one.layer),
        control=one.control,
        weights={key: variant.weight for key, variant in one.variants.items()},
        method=judge.method,
        alpha=judge.alpha,
        planned=judge.planned,
        information=judge.information(table.counts["units"], table.age),
        start=_iso(table.start),
        until=_iso(table.closing),
        days=days,
        config_hash=config.hash,
        units={**dict.fromkeys(one.variants, 0), **units},
        counts=table.counts,
        daily_units=_daily(table),
        checks=checks,
        metrics=results,
        verdicts=verdicts,
        verdict=overall(verdicts, checks, results),
        notes=_notes(one, judge, days),
        versions={
            "python": ".".join(map(str, sys.version_info[:3])),
            **{package: version(package) for package in ("duckdb", "ibis-framework", "scipy", "numpy")},
        },
        command=command,
    )


def _notes(one: ExperimentConfig, judge: Judge, days: float) -> list[str]:
    notes = []
    if one.analysis.method == "group_sequential" and judge.method == "always_valid":
        notes.append(
            "Nobody planned a size (`analysis.planned_n`, `planned_days` or `mde`), so intervals that hold at any time "
            "are used; with a plan the same data says more."
        )
    if judge.method == "group_sequential" and judge.planned and not one.analysis.planned_n:
        notes.append(f"The planned size comes from `mde: {one.analysis.mde}` and the control's variance.")
    if days % 7 > 1 and days > 7:
        notes.append("The data do not end after whole weeks; weekdays are weighted unevenly.")
    return notes


def _daily(table: UnitTable) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for row in sorted(counts_by_variant(table, "day"), key=lambda row: (row["day"], row["variant"])):
        date = _iso(table.origin + row["day"] * DAY)[:10]
        result.setdefault(date, {})[row["variant"]] = int(row["units"])
    return result


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
