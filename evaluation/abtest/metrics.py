"""Metrics of experiments as they are written in YAML.

    metrics:
      ctr:      {type: ratio, numerator: {event: click}, denominator: {event: impression}}
      revenue:  {type: mean, value: {event: purchase, sum: value}, cap: 0.999}
      buyers:   {type: proportion, value: {event: purchase}, window_days: 7}
      seen:     {type: coverage, value: {event: impression, distinct: item_id}, catalogue: 27000}
      slow:     {type: quantile, quantile: 0.95, value: {exposure: latency_ms}, better: lower}

Every metric is about units: each exposed unit counts, with 0 where it did nothing.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Measure(_Part):
    """A number a unit: how many events of a type, or the sum or the distinct values of one of their columns.

    With `exposure` it is the sum of a column over the unit's exposures in place of events; `exposure: count` counts
    them.
    """

    event: str | list[str] | None = None
    exposure: str | None = None
    sum: str | None = None
    distinct: str | None = None
    where: dict[str, Any] | None = None
    from_day: float | None = Field(default=None, ge=0)
    to_day: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_source(self) -> "Measure":
        if (self.event is None) == (self.exposure is None):
            raise ValueError("names either `event` or `exposure`")
        if self.sum is not None and self.distinct is not None:
            raise ValueError("takes `sum` or `distinct`, not both")
        if self.exposure is not None and (self.sum or self.distinct or self.from_day or self.to_day):
            raise ValueError("`exposure` names the column itself and takes no `sum`, `distinct` or days")
        if self.from_day is not None and self.to_day is not None and self.from_day >= self.to_day:
            raise ValueError("`from_day` comes before `to_day`")
        return self

    def __hash__(self) -> int:
        """Measures are keys; a list or a mapping inside keeps pydantic from hashing them by itself."""
        return hash(self.model_dump_json())

    @property
    def events(self) -> list[str]:
        """Event types; empty for any type ("*")."""
        names = [self.event] if isinstance(self.event, str) else list(self.event or ())
        return [] if "*" in names else names


class _Metric(_Part):
    better: Literal["higher", "lower"] = "higher"
    window_days: float | None = Field(default=None, gt=0)
    description: str = ""


class MeanMetric(_Metric):
    """Mean of a number over units, such as revenue per user."""

    type: Literal["mean"]
    value: Measure
    cap: float | None = Field(default=None, gt=0.5, lt=1)
    cuped: bool = True


class ProportionMetric(_Metric):
    """Share of units for which a number is above 0, such as buyers."""

    type: Literal["proportion"]
    value: Measure
    cuped: bool = True


class RatioMetric(_Metric):
    """Sum over sum, such as clicks over impressions; its error is computed over units."""

    type: Literal["ratio"]
    numerator: Measure
    denominator: Measure
    cuped: bool = True


class QuantileMetric(_Metric):
    """A quantile of a column of the exposures, such as the 95th percentile of latency."""

    type: Literal["quantile"]
    value: Measure
    quantile: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _of_exposures(self) -> "QuantileMetric":
        if self.value.exposure is None:
            raise ValueError("a quantile is of a column of the exposures: value: {exposure: latency_ms}")
        return self


class CoverageMetric(_Metric):
    """Share of the catalogue that an arm's units were shown together: one number an arm, without a test.

    Without `catalogue`, the number of items that could be shown, it is the share of the items shown in any arm.
    """

    type: Literal["coverage"]
    value: Measure
    catalogue: int | None = Field(default=None, strict=True, gt=0)

    @model_validator(mode="after")
    def _of_items(self) -> "CoverageMetric":
        value = self.value
        if value.event is None or value.distinct is None:
            raise ValueError("coverage is of items in events: value: {event: impression, distinct: item_id}")
        if value.from_day is not None or value.to_day is not None:
            raise ValueError("coverage takes `window_days` and no `from_day` or `to_day`")
        return self


Metric = MeanMetric | ProportionMetric | RatioMetric | QuantileMetric | CoverageMetric
MetricConfig = Annotated[Metric, Field(discriminator="type")]

BUILT_IN: dict[str, Metric] = {
    "ctr": RatioMetric(
        type="ratio", numerator=Measure(event="click"), denominator=Measure(event="impression")
    ),
    "clicks": MeanMetric(type="mean", value=Measure(event="click")),
    "conversion": ProportionMetric(type="proportion", value=Measure(event="purchase")),
    "revenue": MeanMetric(type="mean", value=Measure(event="purchase", sum="value"), cap=0.999),
    "sessions": MeanMetric(type="mean", value=Measure(event="*", distinct="session_id")),
    "watch_time": MeanMetric(type="mean", value=Measure(event="watch", sum="value"), cap=0.999),
    "retention_d7": ProportionMetric(type="proportion", value=Measure(event="*", from_day=7, to_day=8)),
    "items_seen": MeanMetric(type="mean", value=Measure(event="impression", distinct="item_id"), cuped=False),
    "coverage": CoverageMetric(type="coverage", value=Measure(event="impression", distinct="item_id")),
    "fallback_rate": RatioMetric(
        type="ratio",
        numerator=Measure(exposure="fallback"),
        denominator=Measure(exposure="count"),
        better="lower",
        cuped=False,
    ),
    "latency_p95": QuantileMetric(
        type="quantile", quantile=0.95, value=Measure(exposure="latency_ms"), better="lower"
    ),
    "latency_p99": QuantileMetric(
        type="quantile", quantile=0.99, value=Measure(exposure="latency_ms"), better="lower"
    ),
}
"""Metrics that need no definition; a file may define one of the same name in another way."""
