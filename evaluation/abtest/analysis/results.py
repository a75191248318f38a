"""What an analysis found, as plain data that becomes JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["green", "amber", "red", "skipped"]
Role = Literal["goal", "guardrail", "secondary"]
NOT_ASKED = "not asked for"
"""Why a metric that never has a covariate is without CUPED."""
NOT_TESTED = "not tested"
"""Conclusion of a number of whole arms, for which there is no test over units."""
Word = Literal["ship", "do not ship", "inconclusive", "broken", "running"]


@dataclass(frozen=True)
class Check:
    """A check of trust.

    Attributes:
        key: Short name.
        title: For people.
        status: "red" hides the verdict, "amber" is a remark, "skipped" had nothing to look at.
        finding: What was seen.
        rule: When it turns.
        advice: What to do if it is not green.
    """

    key: str
    title: str
    status: Status
    finding: str
    rule: str
    advice: str = ""


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval; nan where there is none."""

    estimate: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Point:
    """An effect at one look, one age, or in one segment.

    Attributes:
        label: The date, the days since first exposure, or the segment.
        units: Units of both arms.
        relative: Relative effect.
        p_value: As good as the method allows; nan if not shown.
        crossed: Whether a bound was crossed here.
    """

    label: str
    units: int
    relative: Interval
    p_value: float = math.nan
    crossed: bool = False


@dataclass(frozen=True)
class SegmentEffects:
    """One goal over the values of one attribute.

    Attributes:
        attribute: Its name.
        points: Effect in each segment, p-values adjusted (Benjamini-Hochberg).
        heterogeneity_p: How often effects would differ this much between segments if they were one (Cochran's Q).
    """

    attribute: str
    points: Sequence[Point]
    heterogeneity_p: float


@dataclass(frozen=True)
class MetricResult:
    """One metric of one variant against the control.

    Attributes:
        metric: Name.
        role: What it decides.
        better: Which direction is better, "higher" or "lower".
        variant: Name of the variant.
        units_control: Units of the control whose window is over.
        units: Those of the variant.
        control: Value of the control; adjusted if CUPED was used.
        value: Value of the variant.
        absolute: Difference.
        relative: Relative difference.
        p_value: Two-sided; for a guardrail one-sided, of not being worse than the margin.
        p_adjusted: For the number of questions asked.
        conclusion: "better", "worse", "no difference shown"; for a guardrail "holds", "broken", "not shown"; "not yet"
            while the method does not allow a word; "not tested" for coverage.
        margin: Of a guardrail.
        cuped: "used", or why not.
        variance_saved: Share that CUPED removed.
        detectable: Relative effect that this much data would show with the planned power.
        information: Share of the planned units.
        note: What a reader has to know.
        looks: Effect over time.
        ages: Effect by days since first exposure.
        segments: Effect by attribute.
        chance_to_win: Bayesian display with a flat prior; of the direction that is better.
        risk: Expected relative loss of choosing the variant.
    """

    metric: str
    role: Role
    better: str
    variant: str
    units_control: int
    units: int
    control: float
    value: float
    absolute: Interval
    relative: Interval
    p_value: float = math.nan
    p_adjusted: float = math.nan
    conclusion: str = "not yet"
    margin: float | None = None
    cuped: str = ""
    variance_saved: float = 0.0
    detectable: float = math.nan
    information: float = math.nan
    note: str = ""
    looks: Sequence[Point] = ()
    ages: Sequence[Point] = ()
    segments: Sequence[SegmentEffects] = ()
    chance_to_win: float = math.nan
    risk: float = math.nan


@dataclass(frozen=True)
class Verdict:
    """The word for a variant, and why.

    Attributes:
        word: The verdict.
        variant: Of which variant; empty for the whole experiment.
        rule: The rule that fired.
        sentence: For people.
    """

    word: Word
    variant: str
    rule: str
    sentence: str


@dataclass(frozen=True)
class ExperimentResult:
    """Everything that the report shows.

    Attributes:
        experiment: Name.
        hypothesis: As registered.
        phase: Phase.
        unit: Type of the units.
        control: Name of the control.
        weights: Of the variants.
        method: How looks are paid for.
        alpha: Level.
        planned: Planned units of all arms; None if nobody planned.
        information: Share of them that is in.
        start: First exposure, ISO 8601.
        until: End of the data, ISO 8601.
        days: Days of data, with their fraction.
        config_hash: Of the configuration.
        units: By variant.
        counts: What was left out on the way.
        daily_units: New units by day: {date: {variant: units}}.
        checks: Trust.
        metrics: Results.
        verdicts: One a variant.
        verdict: The one for the experiment.
        notes: Remarks.
        versions: Of the software.
        command: That reproduces it.
    """

    experiment: str
    hypothesis: str
    phase: int
    unit: str
    control: str
    weights: Mapping[str, int]
    method: str
    alpha: float
    planned: int | None
    information: float
    start: str
    until: str
    days: float
    config_hash: str
    units: Mapping[str, int]
    counts: Mapping[str, int]
    daily_units: Mapping[str, Mapping[str, int]]
    checks: Sequence[Check]
    metrics: Sequence[MetricResult]
    verdicts: Sequence[Verdict]
    verdict: Verdict
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    @property
    def trusted(self) -> bool:
        """Whether no check is red."""
        return all(check.status != "red" for check in self.checks)

    def check(self, key: str) -> Check:
        """A check by its key."""
        return next(check for check in self.checks if check.key == key)

    def metric(self, name: str, variant: str | None = None) -> MetricResult:
        """A result by metric and, where there are several, variant."""
        return next(one for one in self.metrics if one.metric == name and variant in (None, one.variant))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; a number that is missing or infinite is None."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
