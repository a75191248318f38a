"""What all launches together did: the units of the holdout against all others.

The holdout sees no experiment, so the exposure log has no rows of it. None are needed: who is in it follows from the
file, and every unit that did anything in the period takes part from its first event on.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ibis

from evaluation.abtest.analysis.engines import kept, texts
from evaluation.abtest.analysis.results import ExperimentResult, MetricResult, Verdict
from evaluation.abtest.analysis.run import Logs, Tell, analyze
from evaluation.abtest.analysis.tables import event_rows
from evaluation.abtest.analysis.values import measures_of
from evaluation.abtest.analysis.wording import change, share
from evaluation.abtest.assignment import CompiledExperiment, Variant
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.hashing import BUCKETS, drawer, unit_text
from evaluation.abtest.metrics import BUILT_IN, CoverageMetric, MetricConfig
from evaluation.abtest.schema import (
    AnalysisConfig,
    ExperimentConfig,
    ExperimentsConfig,
    Layer,
    MetricChoice,
    VariantConfig,
)
from evaluation.errors import did_you_mean

HOLDOUT, LAUNCHED = "holdout", "launched"


def analyze_holdout(
    config: ExperimentsConfig,
    events: Any,
    metrics: Sequence[str],
    *,
    since: float | None = None,
    until: float | None = None,
    planned_days: float | None = None,
    command: str = "",
    tell: Tell = lambda _: None,
) -> ExperimentResult:
    """Compare what units inside and outside the holdout did.

    There is no covariate: the holdout was one before the period too, and CUPED would take its effect away.

    Args:
        config: The file, with a holdout that was the same all the time.
        events: Ibis table of events.
        metrics: Names; each is a goal, but for coverage, which has no test.
        since: Start of the period, seconds since 1970; the first event unless given.
        until: Its end; the last event unless given.
        planned_days: Days after which it ends. With them it may be looked at every day before: bounds pay for the
            looks (group sequential). Without, the end of the data is the one look.
        command: That reproduces the analysis, for the report.
        tell: Called with the name of each step.

    Raises:
        ExperimentDataError: The file has no holdout, a metric is unknown or not of events, or there are no events.
    """
    buckets = round(config.holdout.percent * BUCKETS / 100) if config.holdout else 0
    if config.holdout is None or not 0 < buckets < BUCKETS:
        raise ExperimentDataError("The file holds nobody out: give it `holdout: {percent: 2}`, and wait.")
    known: dict[str, MetricConfig] = {**BUILT_IN, **config.metrics}
    for name in metrics:
        if name not in known:
            raise ExperimentDataError(f"There is no metric {name!r}; {did_you_mean(name, known)}")
        if any(measure.exposure is not None for measure in measures_of(known[name])):
            raise ExperimentDataError(
                f"The metric {name!r} counts exposures, and the holdout has none; name metrics of events."
            )
    tell("holdout")
    draw = drawer(config.holdout.salt)

    def choose(unit: str) -> Variant:
        held = (draw(unit_text(unit)) * BUCKETS) >> 64 < buckets
        return Variant(HOLDOUT if held else LAUNCHED, {})

    rows = event_rows(events, config.unit)
    rows = rows.filter(rows.unit != "")
    if since is not None:
        rows = rows.filter(rows["at"] >= since)
    if until is not None:
        rows = rows.filter(rows["at"] < until)
    result = analyze(
        _as_experiment(config, metrics, known, buckets, planned_days),
        HOLDOUT,
        # Without request ids: there are no exposures that they could name.
        Logs(
            _exposures(rows, choose), events.drop("request_id") if "request_id" in events.columns else events
        ),
        until=until,
        replay=CompiledExperiment(HOLDOUT, 1, choose),
        command=command,
        tell=tell,
    )
    verdict = result.verdict if result.verdict.word == "broken" else _verdict(result)
    return replace(result, verdict=verdict, verdicts=[verdict], config_hash=config.hash)


def _exposures(rows: Any, choose: Any) -> Any:
    """The first event of each unit as its exposure, and its last, until which what units do counts."""
    first = kept(rows.group_by("unit").aggregate(first=rows["at"].min(), last=rows["at"].max()))
    units = first.select("unit").to_pyarrow()
    if not units.num_rows:
        raise ExperimentDataError("The table of events has none in the period.")
    inside = [
        one
        for batch in units.to_batches(max_chunksize=100_000)
        for one in batch.column(0).to_pylist()
        if choose(one).key == HOLDOUT
    ]
    held = texts(first.get_backend(), "held", inside)
    joined = first.left_join(held, first.unit == held.held)
    side = ibis.ifelse(joined.held.isnull(), LAUNCHED, HOLDOUT)
    both = [
        joined.select(timestamp=at, unit_id=joined.unit, experiment=ibis.literal(HOLDOUT), variant=side)
        for at in (joined["first"], joined["last"])
    ]
    return kept(ibis.union(*both))


def _as_experiment(
    config: ExperimentsConfig,
    metrics: Sequence[str],
    known: dict[str, MetricConfig],
    buckets: int,
    planned_days: float | None,
) -> ExperimentsConfig:
    """The holdout as an experiment without a covariate: over, with one test, or going on, with bounds."""
    untested = [name for name in metrics if isinstance(known[name], CoverageMetric)]
    one = ExperimentConfig(
        layer=HOLDOUT,
        status="running" if planned_days else "stopped",
        hypothesis="All launches together do users good.",
        variants={
            HOLDOUT: VariantConfig(weight=buckets, control=True),
            LAUNCHED: VariantConfig(weight=BUCKETS - buckets),
        },
        metrics=MetricChoice(goals=[name for name in metrics if name not in untested], secondary=untested),
        analysis=AnalysisConfig(
            method="group_sequential" if planned_days else "fixed",
            planned_days=planned_days,
            cuped_days=0,
            min_days=0,
        ),
    )
    layers = {HOLDOUT: Layer(owns=[HOLDOUT])}
    return ExperimentsConfig(
        version=1, unit=config.unit, layers=layers, experiments={HOLDOUT: one}, metrics=config.metrics
    )


def _verdict(result: ExperimentResult) -> Verdict:
    better, worse = (_named(result.metrics, word) for word in ("better", "worse"))
    if worse:
        also = f" Better: {better}." if better else ""
        text = f"Worse with all launches than without: {worse}.{also} Find the launch that costs it."
        return Verdict("do not ship", LAUNCHED, "goal got worse", text)
    if better:
        return Verdict(
            "ship", LAUNCHED, "goal got better", f"Better with all launches than without: {better}."
        )
    if all(math.isnan(one.p_value) for one in result.metrics):
        why = "; ".join(f"{one.metric}: {one.note or one.conclusion}" for one in result.metrics)
        return Verdict("inconclusive", LAUNCHED, "nothing tested", f"Nothing could be tested. {why}.")
    if result.method == "group_sequential" and result.information < 1:
        text = f"No bound is crossed yet, {share(result.information, 0)} into the planned time. Keep the holdout."
        return Verdict("running", LAUNCHED, "planned end not reached", text)
    text = "No difference shown between all launches and none."
    return Verdict("inconclusive", LAUNCHED, "no difference", text)


def _named(results: Sequence[MetricResult], word: str) -> str:
    return ", ".join(
        f"{one.metric} {change(one.relative.estimate)}" for one in results if one.conclusion == word
    )
