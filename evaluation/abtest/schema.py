"""The configuration of experiments: classes that hold what a file says.

version: 1
layers:
  ranking: {owns: [model, ranking.temperature]}
experiments:
  din:
    layer: ranking
    status: running
    percent: 20
    variants:
      control: {}
      din: {overrides: {model: din}}
    metrics: {goals: [ctr], guardrails: {latency_p95: 0.05}}
"""

import json
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from evaluation.abtest.hashing import BUCKETS, SEPARATOR
from evaluation.abtest.metrics import MetricConfig

Status = Literal["draft", "running", "paused", "stopped"]
Algorithm = Literal["sha256-v1", "growthbook-v2"]


def _name(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("a name is a text")
    text = str(value)
    if not text.strip() or SEPARATOR in text or not text.isprintable():
        raise ValueError("a name is a text of printable signs")
    return text


def _moment(value: Any) -> datetime | None:
    """A date or a time; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError("a time is written like 2026-05-01 or 2026-05-01T08:00:00+02:00") from error
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise ValueError("a time is written like 2026-05-01 or 2026-05-01T08:00:00+02:00")
    return value if value.tzinfo else value.replace(tzinfo=UTC)


Name = Annotated[str, BeforeValidator(_name)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Percent = Annotated[float, Field(ge=0, le=100)]
Segment = tuple[
    Annotated[int, Field(strict=True, ge=0, lt=BUCKETS)], Annotated[int, Field(strict=True, gt=0, le=BUCKETS)]
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Holdout(_Part):
    """Units that get no change at all, to measure what all launches together did."""

    percent: Percent
    salt: Name = "holdout"


class Domain(_Part):
    """A share of the units that only takes part in some layers."""

    percent: Percent
    layers: list[Name]


class Layer(_Part):
    """Experiments that share traffic, so that a unit is in at most one of them, and the parameters they may set."""

    owns: list[Name] = Field(min_length=1)
    unit: Name | None = None
    slot_minutes: int | None = Field(default=None, gt=0, le=7 * 24 * 60)
    salt: Name | None = None
    defaults: dict[Name, Any] = Field(default_factory=dict)


class VariantConfig(_Part):
    """What one arm gets."""

    weight: int = Field(default=1, strict=True, ge=0, le=1_000_000)
    control: bool = False
    overrides: dict[Name, Any] = Field(default_factory=dict)


class MetricChoice(_Part):
    """What decides: goals must improve, guardrails must not get worse by more than their margin."""

    goals: list[Name] = Field(default_factory=list)
    guardrails: dict[Name, Annotated[float, Field(ge=0, lt=1)]] = Field(default_factory=dict)
    secondary: list[Name] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _margins(cls, value: Any) -> Any:
        """A list of guardrails gets a margin of 1% each."""
        if isinstance(value, dict) and isinstance(value.get("guardrails"), list):
            return {**value, "guardrails": dict.fromkeys(value["guardrails"], 0.01)}
        return value

    @property
    def names(self) -> list[str]:
        """All metrics, each once."""
        return list(dict.fromkeys([*self.goals, *self.guardrails, *self.secondary]))


class AnalysisConfig(_Part):
    """How it is judged, laid down before the first look."""

    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    power: float = Field(default=0.8, gt=0, lt=1)
    mde: float | None = Field(default=None, gt=0)
    method: Literal["group_sequential", "always_valid", "fixed"] = "group_sequential"
    spending: float = Field(default=2.0, gt=0, le=10)
    planned_n: int | None = Field(default=None, gt=0)
    planned_days: float | None = Field(default=None, gt=0)
    min_days: int = Field(default=7, ge=0)
    window_days: float | None = Field(default=None, gt=0)
    cuped_days: float = Field(default=14, ge=0)
    triggered: bool = True
    washout_minutes: float = Field(default=0, ge=0)
    segments: list[Name] = Field(default_factory=list)


class ExperimentConfig(_Part):
    """One experiment."""

    layer: Name
    variants: dict[Name, VariantConfig]
    hypothesis: str = ""
    status: Status = "draft"
    phase: int = Field(default=1, strict=True, ge=1)
    salt: Name | None = None
    algorithm: Algorithm = "sha256-v1"
    start: Moment | None = None
    end: Moment | None = None
    percent: Percent | None = None
    segments: list[Segment] | None = None
    released: bool = False
    interleave: bool = False
    namespace: tuple[Name, float, float] | None = None
    when: dict[str, Any] | None = None
    allowlist: dict[Name, Name] = Field(default_factory=dict)
    metrics: MetricChoice = Field(default_factory=MetricChoice)
    analysis: AnalysisConfig = Field(default_factory=AnalysisConfig)

    @property
    def control(self) -> str:
        """Name of the control variant; the checks made sure that there is one."""
        marked = [name for name, variant in self.variants.items() if variant.control]
        return marked[0] if marked else "control"

    @property
    def holds_segments(self) -> bool:
        """Whether its segments are out of reach of other experiments.

        A stopped experiment keeps them until it is released: its users still remember what they saw.
        """
        return self.status != "draft" and not (self.status == "stopped" and self.released)


class ExperimentsConfig(_Part):
    """A whole file of experiments."""

    version: Literal[1]
    unit: Name = "user_id"
    holdout: Holdout | None = None
    domains: dict[Name, Domain] = Field(default_factory=dict)
    layers: dict[Name, Layer] = Field(default_factory=dict)
    experiments: dict[Name, ExperimentConfig] = Field(default_factory=dict)
    metrics: dict[Name, MetricConfig] = Field(default_factory=dict)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that name this content; formatting and comments do not matter."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def unit_of(self, layer: str) -> str:
        """The unit that a layer draws on."""
        return self.layers[layer].unit or self.unit

    def salt_of_layer(self, layer: str) -> str:
        """The salt of a layer's segment draw."""
        return self.layers[layer].salt or f"layer/{layer}"

    def salt_of_experiment(self, experiment: str) -> str:
        """The salt of an experiment's variant draw; a new phase draws anew."""
        config = self.experiments[experiment]
        if config.algorithm == "growthbook-v2":
            return config.salt or experiment
        return f"{config.salt or f'experiment/{experiment}'}/phase {config.phase}"

    def segments_of(self, experiment: str) -> list[tuple[int, int]]:
        """The buckets [from, to) that an experiment owns; those of a percentage start at 0."""
        config = self.experiments[experiment]
        if config.algorithm == "growthbook-v2":
            return [(0, BUCKETS)]
        if config.segments is not None:
            return sorted(config.segments)
        end = round((config.percent if config.percent is not None else 0.0) * BUCKETS / 100)
        return [(0, end)] if end else []
